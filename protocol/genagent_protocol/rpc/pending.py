"""The calls that wait for the other side: a table by id that never changes in place.

A call is kept as it was sent, deeply frozen, so that nobody who holds a message
or the arguments it was made of can change what the table says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genagent_protocol.plain import FrozenDict


@dataclass(frozen=True, slots=True)
class PendingCall:
    """One call that waits for its answer.

    `call` is the function call object of its message. `timeout_ms` is None when
    no timer ends the call.
    """

    function_call_id: str
    surface_id: str | None
    call: FrozenDict
    timeout_ms: float | None

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.call["@call"])


@dataclass(frozen=True, slots=True)
class PendingCalls(Mapping[str, PendingCall]):
    """The pending calls by id, in the order of the code points of their ids."""

    calls: tuple[PendingCall, ...] = ()

    def __getitem__(self, call_id: object) -> PendingCall:
        place = self._place(call_id) if isinstance(call_id, str) else len(self.calls)
        if place < len(self.calls) and self.calls[place].function_call_id == call_id:
            return self.calls[place]
        raise KeyError(call_id)

    def __iter__(self) -> Iterator[str]:
        return (call.function_call_id for call in self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def including(self, call: PendingCall) -> PendingCalls:
        """Return the calls with one more, whose id is not among them."""
        place = self._place(call.function_call_id)
        return PendingCalls((*self.calls[:place], call, *self.calls[place:]))

    def without(self, call_id: str) -> PendingCalls:
        """Return the calls without the one of this id, which is among them."""
        place = self._place(call_id)
        return PendingCalls(self.calls[:place] + self.calls[place + 1 :])

    def _place(self, call_id: str) -> int:
        return bisect_left(self.calls, call_id, key=lambda call: call.function_call_id)
