"""From a call that may run to its answer, in two halves that may be far apart.

A prepared call has passed every check and holds its resolved arguments. It is
run here, or answered later by a person or a program outside; either way
`finished` makes the one message out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast, get_args

from genagent_protocol.plain import FrozenDict
from genagent_protocol.rpc.bodies import (
    attempted,
    error_of,
    returned,
    sendable_error,
    value_of,
)
from genagent_protocol.rpc.functions import Function, Scope
from genagent_protocol.rpc.json_values import Copied, thawed_object
from genagent_protocol.rpc.limits import RpcLimits
from genagent_protocol.rpc.messages import Message, ResponseKind, error_message, value_message
from genagent_protocol.rpc.outcomes import EXECUTION_ERROR, RpcError


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call of the other side that may run: the function, its arguments, where to answer."""

    kind: ResponseKind
    version: str
    function_call_id: str
    function: Function
    args: FrozenDict
    scope: Scope = field(compare=False, repr=False)

    def run(self, limits: RpcLimits) -> Message:
        """Run the function here and return the answer, whatever the function does.

        Raises:
            KeyboardInterrupt: the function raised it.
        """
        outcome = attempted(
            lambda: returned(
                self.function,
                thawed_object(self.args),
                self.scope,
                max_bytes=limits.max_value_bytes,
            )
        )
        return self._answer(outcome)

    def finished(self, outcome: object, limits: RpcLimits) -> Message:
        """Return the answer for an *outcome* that was reached outside.

        An `RpcError` or a `FunctionFailed` is answered with its code, another
        exception with EXECUTION_ERROR; anything else is the value. This does not
        remember that the call was answered.
        """
        return self._answer(attempted(lambda: self._settled(outcome, limits)))

    def _settled(self, outcome: object, limits: RpcLimits) -> Copied | RpcError:
        if isinstance(outcome, RpcError):
            return outcome
        # By its type: `isinstance` asks the value itself as well, and that is code of others.
        if issubclass(type(outcome), BaseException):
            return error_of(cast("BaseException", outcome))
        return value_of(self.function, outcome, limits.max_value_bytes)

    def _answer(self, outcome: Copied | RpcError) -> Message:
        if isinstance(outcome, RpcError):
            return refused(self.kind, self.version, self.function_call_id, outcome)
        return value_message(self.kind, self.version, self.function_call_id, outcome.value)


def refused(kind: ResponseKind, version: str, function_call_id: str, error: RpcError) -> Message:
    """Return the answer that tells *error*, its code and text cut to what a reader can use."""
    told = sendable_error(error)
    return error_message(kind, version, function_call_id, told.code, told.message)


def in_place_of(answer: Message, problem: str) -> Message | None:
    """Return the answer with EXECUTION_ERROR that is sent instead of one that cannot be.

    None if *answer* is none. Whoever made the call must not wait for what never leaves.
    """
    for kind in get_args(ResponseKind):
        body = answer.get(kind)
        if isinstance(body, Mapping):
            error = RpcError(EXECUTION_ERROR, f"The answer cannot be sent: {problem}")
            return refused(kind, str(answer["version"]), str(body["functionCallId"]), error)
    return None
