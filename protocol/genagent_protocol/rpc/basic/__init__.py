"""The basic catalog of A2UI v1.0: its fourteen functions, declared and implemented here.

Where the engines of the field differ, these functions do what a browser's `Intl`
and JavaScript do in the locale en-US, which is the only locale here.
"""

from __future__ import annotations

from genagent_protocol.rpc.basic.catalog import BASIC_CATALOG_ID, basic_bodies, basic_catalog

__all__ = ["BASIC_CATALOG_ID", "basic_bodies", "basic_catalog"]
