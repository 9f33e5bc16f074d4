"""A call as it arrives from the other side, read before anything of it is believed.

It may come from a strict reader or straight from the wire; whatever cannot be
read is a refusal with a code, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from genagent_protocol.rpc.allowance import Allowance
from genagent_protocol.rpc.functions import Function
from genagent_protocol.rpc.json_values import Arguments, Unfit, copied, measured, plain_object
from genagent_protocol.rpc.limits import MAX_ARGUMENTS, RpcLimits
from genagent_protocol.rpc.outcomes import EXECUTION_ERROR, INVALID_FUNCTION_CALL, RpcError
from genagent_protocol.rpc.reading import Loose, text_in


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingCall:
    """What one call says. Its arguments are still the sender's, unchecked."""

    surface_id: str | None
    name: str
    catalog_id: str | None
    written: Mapping[object, object]


def incoming_call(message: Loose) -> IncomingCall | RpcError:
    """Return the call that a message makes, or INVALID_FUNCTION_CALL with what is missing."""
    if not isinstance(message.body.get("callFunction"), dict):
        return invalid("The message has no callFunction.", message)
    call = plain_object(message.body["callFunction"])
    name = text_in(call, "@call")
    if not name:
        return invalid("The call names no function.", message)
    written = call.get("args", {})
    if not isinstance(written, dict):
        return invalid(f"The arguments of function '{name}' are not an object.", message)
    surface_id, catalog_id = text_in(message.body, "surfaceId"), text_in(call, "catalogId")
    if surface_id is None and message.body.get("surfaceId") is not None:
        return invalid("The surfaceId is not text.", message)
    if catalog_id is None and call.get("catalogId") is not None:
        return invalid("The catalogId is not text.", message)
    return IncomingCall(surface_id=surface_id, name=name, catalog_id=catalog_id, written=written)


def incoming_arguments(call: IncomingCall, limits: RpcLimits) -> Arguments | RpcError:
    """Return a copy of the arguments as they are written, or why they cannot be taken."""
    if len(call.written) > MAX_ARGUMENTS:
        problem = f"more than {MAX_ARGUMENTS} arguments"
        return RpcError(INVALID_FUNCTION_CALL, invalid_arguments(call.name, problem))
    copy = copied(call.written, max_bytes=limits.max_argument_bytes)
    if isinstance(copy, Unfit):
        code = EXECUTION_ERROR if copy.kind == "too_deep" else INVALID_FUNCTION_CALL
        return RpcError(code, invalid_arguments(call.name, copy.problem))
    assert isinstance(copy.value, dict)
    if measured(copy.value) > limits.max_argument_bytes:
        return RpcError(INVALID_FUNCTION_CALL, invalid_arguments(call.name, "too large"))
    return copy.value


def argument_refusal(function: Function, args: Arguments, allowance: Allowance) -> RpcError | None:
    """Return why a function does not take these resolved arguments, or None.

    Validation results among them are settled in place first.

    Raises:
        ExpressionFault: to find out takes more than *allowance* has left.
    """
    wrong = next((name for name in args if not name.isidentifier()), None)
    if wrong is None:
        problem = function.arguments.resolved_problem(args, allowance)
    else:
        problem = f"{wrong[:80]!r} is no name for an argument"
    if problem is None:
        return None
    return RpcError(INVALID_FUNCTION_CALL, invalid_arguments(function.name, problem))


def invalid_arguments(name: str, problem: str) -> str:
    """Return the text of a refusal of arguments."""
    return f"Invalid arguments for function '{name}': {problem}."


def invalid(text: str, message: Loose) -> RpcError:
    """Return INVALID_FUNCTION_CALL for a message."""
    return RpcError(INVALID_FUNCTION_CALL, text, message.function_call_id)
