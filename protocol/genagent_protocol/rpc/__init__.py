"""The function RPC of A2UI v1.0, as a value: both ends of it, and all they stand on.

`Rpc` is a renderer's handler, which a client holds; `AgentRpc` is its mirror in
an agent. Each operation returns the next handler, the message to send, or the
settlements it caused. Nothing here sends, waits, reads a clock or draws a
random number: the host carries the messages and keeps the time. A refusal is a
value, and what a function does, short of KeyboardInterrupt, becomes an answer.

    catalog = load_catalog(document, bodies)          # or Catalog(...) in code
    rpc = Rpc.new([basic_catalog(), catalog])
    answer = rpc.call_renderer_function(message)      # always one message
    rpc, message = rpc.call_agent_function("main", {"@call": "lookUp"})
    rpc, settlements = rpc.handle_agent_function_response(answer_of_the_agent)
"""

from __future__ import annotations

from genagent_protocol.rpc.agent import AgentRpc
from genagent_protocol.rpc.basic import BASIC_CATALOG_ID, basic_bodies, basic_catalog
from genagent_protocol.rpc.catalog import Catalog
from genagent_protocol.rpc.catalog_document import CatalogFault, load_catalog
from genagent_protocol.rpc.context import DataContext, Surface
from genagent_protocol.rpc.execution import Prepared
from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.functions import Body, Function, Scope
from genagent_protocol.rpc.json_values import Arguments, Json
from genagent_protocol.rpc.limits import RpcLimits
from genagent_protocol.rpc.messages import Message
from genagent_protocol.rpc.outcomes import (
    CANCELLED,
    DISPOSED,
    DUPLICATE,
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    TIMEOUT,
    UNKNOWN_ERROR,
    UNKNOWN_FUNCTION,
    Rejected,
    Resolved,
    RpcError,
    Settlement,
)
from genagent_protocol.rpc.outgoing import DEFAULT_TIMEOUT_MS
from genagent_protocol.rpc.pending import PendingCall, PendingCalls
from genagent_protocol.rpc.reading import Envelope, Malformed, malformed_report, read_message
from genagent_protocol.rpc.renderer import Rpc
from genagent_protocol.rpc.resolution import Resolver, resolver_for

__all__ = [
    "BASIC_CATALOG_ID",
    "CANCELLED",
    "DEFAULT_TIMEOUT_MS",
    "DISPOSED",
    "DUPLICATE",
    "EXECUTION_ERROR",
    "INVALID_FUNCTION_CALL",
    "TIMEOUT",
    "UNKNOWN_ERROR",
    "UNKNOWN_FUNCTION",
    "AgentRpc",
    "Arguments",
    "Body",
    "Catalog",
    "CatalogFault",
    "DataContext",
    "Envelope",
    "ExpressionFault",
    "Function",
    "Json",
    "Malformed",
    "Message",
    "PendingCall",
    "PendingCalls",
    "Prepared",
    "Rejected",
    "Resolved",
    "Resolver",
    "Rpc",
    "RpcError",
    "RpcLimits",
    "Scope",
    "Settlement",
    "Surface",
    "basic_bodies",
    "basic_catalog",
    "load_catalog",
    "malformed_report",
    "read_message",
    "resolver_for",
]
