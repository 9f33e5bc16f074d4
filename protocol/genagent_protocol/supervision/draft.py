"""The next table while the rules of one input write it, with the orders so far.

A draft is dropped whole when a rule raises, so an illegal input changes nothing.
It knows how entries are stored and nothing about when they may change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from genagent_protocol.errors import InvalidTransition
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.refs import Incarnation
from genagent_protocol.supervision.effects import (
    Answer,
    Answered,
    ArmDeadline,
    DisarmDeadline,
    Effect,
    Emit,
    EventName,
)
from genagent_protocol.supervision.inputs import Call, Timer, TimerKind
from genagent_protocol.supervision.table import Child, Life, Table, child_of


class Draft:
    """One table under change. Not a value: it lives for a single `advance`."""

    __slots__ = ("effects", "table")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.effects: list[Effect] = []

    def order(self, *effects: Effect) -> None:
        """Add orders behind the ones given so far."""
        self.effects.extend(effects)

    def answer(self, call: Call, answer: Answered) -> None:
        """Order an answer, unless nobody waits for it."""
        if call is not None:
            self.order(Answer(call, answer))

    def emit(self, event: EventName, child: Child, **facts: Plain) -> None:
        """Order a report about *child*; what of *facts* is None is left out."""
        named = {"agent": child.terms.name, "incarnation": child.last.text}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        self.order(Emit(event, FrozenDict({**named, **known})))

    def put(self, child: Child) -> Child:
        """Store *child* under its key and return it."""
        self.table = replace(self.table, children=self.table.children.put(child.terms.key, child))
        return child

    def put_life(self, child: Child, life: Life) -> Child:
        """Store *child* with this *life* and return it."""
        return self.put(replace(child, life=life))

    def arm(self, child: Child, kind: TimerKind, after_ms: int) -> Child:
        """Order a deadline of the child's life and remember that it is armed."""
        life = living(child)
        self.order(ArmDeadline(Timer(kind, life.incarnation), after_ms))
        return self.put_life(child, replace(life, armed=life.armed | {kind}))

    def disarm(self, child: Child, kinds: Iterable[TimerKind]) -> Child:
        """Take back those deadlines of the child's life that are armed."""
        life = living(child)
        ours = life.armed & frozenset(kinds)
        if not ours:
            return child
        self.order(*(DisarmDeadline(Timer(kind, life.incarnation)) for kind in sorted(ours)))
        return self.put_life(child, replace(life, armed=life.armed - ours))

    def subject(self, incarnation: Incarnation) -> tuple[Child, Life] | None:
        """Return whom a fact is about, or None if its life is over and the fact late.

        Raises:
            InvalidTransition: no launch ever named this incarnation.
        """
        minted = 1 <= incarnation.number < self.table.next_incarnation
        if incarnation.boot != self.table.boot or not minted:
            raise InvalidTransition(f"a fact about {incarnation}, which was never launched")
        child = child_of(self.table, incarnation)
        return None if child is None else (child, living(child))


def living(child: Child) -> Life:
    """Return the life of a child that has one."""
    assert child.life is not None
    return child.life
