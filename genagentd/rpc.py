"""What programs need that call and serve functions (A2UI v1.0): catalogs, codes, sessions.

Importing this loads what reads schemas, which takes a moment; programs that call no
functions never do. An agent needs it only to compare codes: it offers functions
with `genagentd.function` and calls them through its context.
"""

from genagent_protocol.errors import FunctionFailed
from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    CANCELLED,
    DISPOSED,
    DUPLICATE,
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    TIMEOUT,
    UNKNOWN_ERROR,
    UNKNOWN_FUNCTION,
    Catalog,
    CatalogFault,
    Function,
    Surface,
    basic_catalog,
    load_catalog,
)
from genagentd.client.serving import MAIN_SURFACE
from genagentd.client.session import AsyncSession, Session

__all__ = [
    "BASIC_CATALOG_ID",
    "CANCELLED",
    "DISPOSED",
    "DUPLICATE",
    "EXECUTION_ERROR",
    "INVALID_FUNCTION_CALL",
    "MAIN_SURFACE",
    "TIMEOUT",
    "UNKNOWN_ERROR",
    "UNKNOWN_FUNCTION",
    "AsyncSession",
    "Catalog",
    "CatalogFault",
    "Function",
    "FunctionFailed",
    "Session",
    "Surface",
    "basic_catalog",
    "load_catalog",
]
