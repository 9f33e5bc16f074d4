"""The one edge to foreign code: a body is run, and whatever it does becomes a value.

Only KeyboardInterrupt passes, because it is meant for the process and not for
the call. SystemExit, GeneratorExit and a cancellation that a body lets escape
are failures of the function like any other exception. One that wants a code of its own
raises `FunctionFailed`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TypeVar

from genagent_protocol.errors import FunctionFailed
from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.functions import Function, Scope
from genagent_protocol.rpc.json_values import (
    Arguments,
    Copied,
    Unfit,
    copied,
    is_sendable,
    plain_text,
)
from genagent_protocol.rpc.limits import MAX_ERROR_CHARACTERS
from genagent_protocol.rpc.outcomes import EXECUTION_ERROR, STANDING_TEXT, RpcError

T = TypeVar("T")


def attempted(step: Callable[[], T]) -> T | RpcError:
    """Return what *step* gives, or the error that stands for what it raised.

    Raises:
        KeyboardInterrupt: *step* raised it.
    """
    try:
        return step()
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001  # foreign code runs in here
        return error_of(failure)


def returned(
    function: Function, args: Arguments, scope: Scope, *, max_bytes: int
) -> Copied | RpcError:
    """Run the function and return a copy of its value, or the error it gave as its answer.

    Raises:
        ExpressionFault: it has no body, or its value is nothing that JSON can hold.
        BaseException: whatever the body raises.
    """
    if function.body is None:
        raise ExpressionFault(f"Function '{function.name}' has no implementation here.")
    result = function.body(args, scope)
    return result if isinstance(result, RpcError) else value_of(function, result, max_bytes)


def value_of(function: Function, result: object, max_bytes: int) -> Copied:
    """Return a copy of what a function gave.

    Raises:
        ExpressionFault: JSON cannot hold it, or it is still to be awaited.
    """
    if isinstance(result, Coroutine):
        # Nobody here can await it, and one that is dropped unawaited warns.
        result.close()
        raise ExpressionFault(f"Function '{function.name}' has to be awaited by its host.")
    copy = copied(result, max_bytes=max_bytes)
    if isinstance(copy, Unfit):
        raise ExpressionFault(
            f"Function '{function.name}' returned what JSON cannot hold: {copy.problem}."
        )
    return copy


def error_of(failure: BaseException) -> RpcError:
    """Return the error of a call whose function raised: its own code, or EXECUTION_ERROR."""
    try:
        # To ask what it is is to run its code, too.
        if not isinstance(failure, FunctionFailed):
            return RpcError(EXECUTION_ERROR, failure_text(failure))
        said = RpcError(failure.code, failure.text)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # to ask a foreign exception is to run its code
        said = RpcError(EXECUTION_ERROR, "")
    return sendable_error(said)


def sendable_error(error: RpcError) -> RpcError:
    """Return *error* as it can be sent; foreign code made it, and may have put anything into it.

    A code that is no text is EXECUTION_ERROR, one that is too long is cut like the text.
    """
    code: object = error.code
    text = plain_text(code) if isinstance(code, str) else ""
    chosen = text[:MAX_ERROR_CHARACTERS] if text and is_sendable(text) else EXECUTION_ERROR
    return RpcError(chosen, _sendable_text(error.message))


def failure_text(failure: BaseException) -> str:
    """Return what an exception says, fit to be sent; the standing sentence if it says nothing."""
    if isinstance(failure, RecursionError):
        return "The call is nested too deeply."
    return _sendable_text(failure)


def _sendable_text(said: object) -> str:
    try:
        text = "" if said is None else plain_text(str(said))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # the text of a foreign object is foreign code too
        text = ""
    sendable = text[:MAX_ERROR_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8")
    return sendable or STANDING_TEXT
