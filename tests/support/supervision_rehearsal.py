"""A daemon's table that is told facts one by one and remembers the orders it gave."""

from __future__ import annotations

from typing import TypeVar

from genagent_protocol.plain import Plain
from genagent_protocol.reasons import ExitReason
from genagent_protocol.supervision import rules
from genagent_protocol.supervision.effects import (
    Answer,
    Answered,
    Effect,
    Emit,
    EventName,
    SendDown,
)
from genagent_protocol.supervision.inputs import AgentReady, Input, StartRequested
from genagent_protocol.supervision.table import empty
from support.supervision_phases import born
from support.supervision_world import BOOT, PLACE, life

E = TypeVar("E")


class Rehearsal:
    """One table under test; `orders` holds everything it ordered so far, in order."""

    def __init__(self, *facts: Input) -> None:
        self.table = empty(BOOT, PLACE)
        self.orders: list[Effect] = []
        self.tell(*facts)

    def tell(self, *facts: Input) -> list[Effect]:
        """Report *facts* and return the orders they led to, reports left out."""
        effects: list[Effect] = []
        for fact in facts:
            advanced = rules.advance(self.table, fact)
            self.table = advanced.table
            effects += advanced.effects
        self.orders += effects
        return [effect for effect in effects if not isinstance(effect, Emit)]

    def run_agent(self, request: StartRequested) -> int:
        """Start an agent up to Ready and return the number of its incarnation."""
        number = self.table.next_incarnation
        self.tell(request, born(number), AgentReady(life(number)))
        return number

    def answers(self, call: str) -> list[Answered]:
        """Return what the caller of *call* was told."""
        return [e.answer for e in self.orders if isinstance(e, Answer) and e.call == call]

    def answer(self, call: str) -> Answered:
        """Return the one answer to *call*."""
        (only,) = self.answers(call)
        return only

    def downs(self, client: int = 1) -> list[tuple[int, ExitReason]]:
        """Return the DOWNs sent to *client*: number of the monitor, and the reason."""
        return [
            (e.monitor.number, e.reason)
            for e in self.orders
            if isinstance(e, SendDown) and e.client == client
        ]

    def count(self, kind: type[Effect]) -> int:
        """Return how many orders of one kind were given."""
        return sum(isinstance(effect, kind) for effect in self.orders)

    def reports(self) -> list[str]:
        """Return the names of the events emitted."""
        return [effect.event for effect in self.orders if isinstance(effect, Emit)]

    def told(self, event: EventName) -> list[dict[str, Plain]]:
        """Return what was told with each report of *event*."""
        emitted = [effect for effect in self.orders if isinstance(effect, Emit)]
        return [dict(effect.metadata) for effect in emitted if effect.event == event]


def position(effects: list[Effect], kind: type[Effect]) -> int:
    """Return where the first order of that kind stands."""
    return next(i for i, effect in enumerate(effects) if isinstance(effect, kind))
