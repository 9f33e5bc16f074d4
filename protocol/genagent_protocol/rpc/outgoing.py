"""The calls one end has made and not yet seen settled: each ends exactly once, or waits.

Both ends of the RPC keep this table, with the directions swapped. A call enters
it when its message is made, and leaves it with one settlement: the other side's
answer, the host's timer, or the host giving up. Whatever is reported of a call
that is not pending gives no settlement and changes nothing. A timeout is data:
the host starts a timer for it and reports it; nothing here reads a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

from genagent_protocol.plain import FrozenDict
from genagent_protocol.rpc.bodies import attempted
from genagent_protocol.rpc.json_values import Unfit, copied, plain_text, thawed_object
from genagent_protocol.rpc.limits import RpcLimits
from genagent_protocol.rpc.messages import CallKind, Kind, Message, call_message
from genagent_protocol.rpc.outcomes import (
    CANCELLED,
    DISPOSED,
    DISPOSED_TEXT,
    DUPLICATE,
    INVALID_FUNCTION_CALL,
    TIMEOUT,
    UNKNOWN_ERROR,
    Rejected,
    Resolved,
    RpcError,
    Settlement,
)
from genagent_protocol.rpc.pending import PendingCall, PendingCalls
from genagent_protocol.rpc.reading import read_loosely, reported_error, text_in
from genagent_protocol.rpc.sending import (
    address_problem,
    is_duration,
    is_id,
    option_problem,
    sendable_call,
)
from genagent_protocol.rpc.versions import VERSION

DEFAULT_TIMEOUT_MS: Final = 30_000

Settled: TypeAlias = "tuple[Settlement, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingCalls:
    """The half of a handler that calls the other side; every operation returns the next value."""

    default_timeout_ms: float = DEFAULT_TIMEOUT_MS
    disposed: bool = False
    next_id: int = 1
    pending: PendingCalls = field(default_factory=PendingCalls)
    limits: RpcLimits = field(default_factory=RpcLimits)

    def pending_ids(self) -> tuple[str, ...]:
        """Return the ids of the calls that still wait, sorted by code points."""
        return tuple(self.pending)

    def pending_timeout(self, call_id: str) -> float | None:
        """Return the timeout of a pending call in milliseconds.

        None means that the call is not pending or has no timeout. The host's
        timer is the one that fires it.
        """
        call = self.pending.get(call_id)
        return None if call is None else call.timeout_ms

    def timeout(self, call_id: str) -> tuple[Self, Settled]:
        """Reject a pending call because its timer fired, with TIMEOUT.

        A call that has no timeout ends too: the host is the judge.
        """
        call = self.pending.get(call_id)
        if call is None:
            return self, ()
        after = "" if call.timeout_ms is None else f" after {call.timeout_ms:.15g} ms"
        text = f"The call of function '{call.name}' timed out{after}."
        return self._rejected(call_id, RpcError(TIMEOUT, text, call_id))

    def cancel(self, call_id: str, reason: str) -> tuple[Self, Settled]:
        """Reject a pending call because the host gave it up, with CANCELLED and the reason."""
        call = self.pending.get(call_id)
        if call is None:
            return self, ()
        text = f"The call of function '{call.name}' was cancelled: {reason}"
        return self._rejected(call_id, RpcError(CANCELLED, text, call_id))

    def dispose(self, reason: str = "it is no longer needed") -> tuple[Self, Settled]:
        """Reject every pending call with CANCELLED, in the order of the ids, and stop for good.

        Afterwards calls are refused and answered with DISPOSED. A second time
        nothing happens.
        """
        settled = tuple(
            Rejected(call_id, RpcError(CANCELLED, _disposal_text(call_id, reason), call_id))
            for call_id in self.pending
        )
        return replace(self, disposed=True, pending=PendingCalls()), settled

    def _called(
        self,
        kind: CallKind,
        call: object,
        surface_id: str | None,
        function_call_id: str | None,
        timeout_ms: float | None,
        version: str | None,
    ) -> tuple[Self, Message] | RpcError:
        checked = self._checked(kind, call, surface_id, function_call_id, timeout_ms, version)
        if isinstance(checked, RpcError):
            return checked
        taken = self if function_call_id is not None else self._past_used_ids()
        call_id = _generated(taken.next_id) if function_call_id is None else function_call_id
        call_id = plain_text(call_id)
        surface_id = None if surface_id is None else plain_text(surface_id)
        pending = PendingCall(call_id, surface_id, checked, self._effective(timeout_ms))
        following = replace(
            taken,
            next_id=taken.next_id + (function_call_id is None),
            pending=taken.pending.including(pending),
        )
        body = thawed_object(checked)
        said = plain_text(version or VERSION)
        return following, call_message(kind, said, call_id, surface_id, body)

    def _checked(
        self,
        kind: CallKind,
        call: object,
        surface_id: object,
        function_call_id: str | None,
        timeout_ms: object,
        version: object,
    ) -> FrozenDict | RpcError:
        """Return the call as it can be sent, or the first reason why it cannot."""
        known_id = function_call_id if is_id(function_call_id) else None
        if self.disposed:
            return RpcError(DISPOSED, DISPOSED_TEXT, known_id)
        sendable = sendable_call(call, kind, self.limits)
        if isinstance(sendable, str):
            return RpcError(INVALID_FUNCTION_CALL, sendable, known_id)
        problem = address_problem(kind, surface_id, function_call_id)
        problem = problem or option_problem(timeout_ms, version)
        if problem is not None:
            return RpcError(INVALID_FUNCTION_CALL, problem, known_id)
        if function_call_id is not None and function_call_id in self.pending:
            text = f"A call with the id '{function_call_id}' is already pending."
            return RpcError(DUPLICATE, text, function_call_id)
        if len(self.pending) >= self.limits.max_pending:
            text = f"{len(self.pending)} calls are pending already, which is the limit."
            return RpcError(INVALID_FUNCTION_CALL, text, known_id)
        return sendable

    def _answered(self, kind: Kind, message: object) -> tuple[Self, Settled]:
        """Settle the call that an answer of the other side names, if it is pending."""
        body = read_loosely(message, kind).body
        call_id = text_in(body, "functionCallId")
        if call_id is None or call_id not in self.pending:
            return self, ()
        settlement = attempted(lambda: self._read(body, call_id))
        return self._settled(call_id, _readable(settlement, call_id))

    def _read(self, body: dict[str, object], call_id: str) -> Settlement:
        if body.get("error") is not None:
            error = reported_error(body["error"], UNKNOWN_ERROR, call_id)
            return Rejected(call_id, error)
        value = copied(body.get("value"), max_bytes=self.limits.max_value_bytes)
        if isinstance(value, Unfit):
            return _unreadable(call_id, value.problem)
        return Resolved(call_id, value.value)

    def _reported(self, message: object) -> tuple[Self, Settled]:
        """Reject the call that the other side could not read and reported in an `error`."""
        body = read_loosely(message, "error").body
        call_id = text_in(body, "functionCallId")
        if call_id is None or call_id not in self.pending:
            return self, ()
        error = attempted(lambda: Rejected(call_id, reported_error(body, UNKNOWN_ERROR, call_id)))
        return self._settled(call_id, _readable(error, call_id))

    def _rejected(self, call_id: str, error: RpcError) -> tuple[Self, Settled]:
        return self._settled(call_id, Rejected(call_id, error))

    def _settled(self, call_id: str, settlement: Settlement) -> tuple[Self, Settled]:
        return replace(self, pending=self.pending.without(call_id)), (settlement,)

    def _past_used_ids(self) -> Self:
        next_id = self.next_id
        while _generated(next_id) in self.pending:
            next_id += 1
        return replace(self, next_id=next_id)

    def _effective(self, timeout_ms: float | None) -> float | None:
        wanted = self.default_timeout_ms if timeout_ms is None else timeout_ms
        return wanted if 0 < wanted < math.inf else None


def checked_default_timeout(timeout_ms: float) -> float:
    """Return *timeout_ms* if it can be a handler's default; zero or less means none.

    Raises:
        ValueError: it is no number.
    """
    if not is_duration(timeout_ms):
        raise ValueError(f"the default timeout is a number of milliseconds, not {timeout_ms!r}")
    return timeout_ms


def _readable(settlement: Settlement | RpcError, call_id: str) -> Settlement:
    """Return the settlement of an answer, also of one whose own code failed."""
    if isinstance(settlement, RpcError):
        return _unreadable(call_id, "its own code failed")
    return settlement


def _unreadable(call_id: str, problem: str) -> Rejected:
    text = f"The answer cannot be read: {problem}."
    return Rejected(call_id, RpcError(UNKNOWN_ERROR, text, call_id))


def _generated(number: int) -> str:
    return f"call-{number}"


def _disposal_text(call_id: str, reason: str) -> str:
    return f"The handler was disposed while call '{call_id}' was pending: {reason}"
