"""The basic catalog as a value: every declaration with its body.

One body cannot be pure: opening a URL is the host's deed. It is handed in, and
gets only URLs that were checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from genagent_protocol.rpc.basic.currency import format_currency
from genagent_protocol.rpc.basic.dates import format_date
from genagent_protocol.rpc.basic.declarations import BASIC_CATALOG_ID, basic_document
from genagent_protocol.rpc.basic.formatting import format_number, format_string, pluralize
from genagent_protocol.rpc.basic.links import url_opener
from genagent_protocol.rpc.basic.logic import all_true, any_true, negated
from genagent_protocol.rpc.basic.validators import email, length, numeric, regex, required
from genagent_protocol.rpc.catalog import Catalog
from genagent_protocol.rpc.catalog_document import CatalogFault, load_catalog
from genagent_protocol.rpc.functions import Body

__all__ = ["BASIC_CATALOG_ID", "basic_bodies", "basic_catalog"]

_BODIES: Final[dict[str, Body]] = {
    "required": required,
    "regex": regex,
    "length": length,
    "numeric": numeric,
    "email": email,
    "formatString": format_string,
    "formatNumber": format_number,
    "formatCurrency": format_currency,
    "formatDate": format_date,
    "pluralize": pluralize,
    "and": all_true,
    "or": any_true,
    "not": negated,
}


def basic_bodies(open_url: Callable[[str], None] | None = None) -> dict[str, Body]:
    """Return the body of each basic function, for a document that declares them.

    *open_url* is called with every URL that may be opened. Without it the URL
    is only checked.
    """
    return {**_BODIES, "openUrl": url_opener(open_url)}


def basic_catalog(open_url: Callable[[str], None] | None = None) -> Catalog:
    """Return the basic catalog of v1.0; *open_url* is called with every URL that may be opened.

    Without *open_url* the URL is only checked. Components are not in it.
    """
    loaded = load_catalog(basic_document(), basic_bodies(open_url))
    assert not isinstance(loaded, CatalogFault), loaded.problem
    return loaded
