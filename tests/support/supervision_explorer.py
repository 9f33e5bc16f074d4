"""Breadth first over every order of events around a small table, with its shortest failure.

Each edge is one input that an honest shell could report. The world checks every
order; this module checks the table against the world, and that everything ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from genagent_protocol.supervision import rules
from genagent_protocol.supervision.inputs import (
    ChannelDrained,
    DeadlinePassed,
    Input,
    ProcessBorn,
    ProcessExited,
    ShutdownRequested,
    Signalled,
)
from genagent_protocol.supervision.table import Table, empty, whereis
from support.supervision_world import BOOT, PLACE, World, happen, life, perform, possible


@dataclass(frozen=True, slots=True)
class Situation:
    """The table and what is around it."""

    table: Table
    world: World


@dataclass(frozen=True, slots=True)
class Closure:
    """How much was walked."""

    situations: int
    edges: int


class Broken(AssertionError):
    """A law does not hold; `trace` is the shortest way there, one input a line."""

    def __init__(self, problem: str, trace: list[str]) -> None:
        self.trace = trace
        super().__init__("\n  ".join((problem, *trace)))


def opening(*tickets: Input) -> Situation:
    """Return a fresh daemon with these requests still to come."""
    return Situation(empty(BOOT, PLACE), World(tickets=frozenset(tickets)))


def after(situation: Situation, *facts: Input) -> Situation:
    """Return the situation once *facts* have been told, to begin a walk further on."""
    for fact in facts:
        situation = step(situation, fact)
    return situation


def step(situation: Situation, fact: Input) -> Situation:
    """Return what follows from one fact; every law is checked on the way."""
    world = happen(situation.world, fact)
    advanced = rules.advance(situation.table, fact)
    world = perform(world, fact, advanced.effects)
    check(advanced.table, world)
    return Situation(advanced.table, world)


def check(table: Table, world: World) -> None:
    """Judge the table against the world."""
    living = {child.life.incarnation: child for child in table.children.values() if child.life}
    known = {life(n) for n, p in enumerate(world.processes, 1) if not p.over}
    assert set(living) == known, "the table lives other lives than the world"
    assert {life(n): key for n, key in table.keys.items()} == {
        who: child.terms.key for who, child in living.items()
    }
    watched = {
        (client, ref, who)
        for who, child in living.items()
        for client, ref in (child.life.monitors if child.life else ())
    }
    assert watched == world.watches, "a watch without a monitor, or the reverse"
    assert {(c, r): who for c, r, who in watched} == dict(table.watched)
    for who, child in living.items():
        process = world.process(who)
        found = whereis(table, child.terms.key)
        findable = process.ready and process.alive and not process.drained
        assert (found is not None) == findable, "whereis is for who is ready, alive, in reach"
    for child in table.children.values():
        assert child.terms.group is None or child.terms.group in table.groups
        assert table.shutdown is None or not child.wanted
    for number, group in table.groups.items():
        members = [c for c in table.children.values() if c.terms.group == number]
        assert members or not group.closing, "a closing group without agents is closed"
        assert not group.closing or not any(c.wanted for c in members)
    assert table.finished == world.finished
    if table.shutdown is not None and not table.children:
        assert table.finished
    if all(p.over for p in world.processes) and not world.armed:
        assert not world.waiting, f"nobody will ever answer {set(world.waiting)}"
        assert not world.watches


def explore(start: Situation, *, words: bool = True, fate_every: int = 5) -> Closure:
    """Walk every situation reachable from *start* and return how many there are.

    From every *fate_every*-th one, the daemon is also forced down.

    Raises:
        Broken: a law does not hold somewhere.
    """
    parents: dict[Situation, tuple[Situation, Input] | None] = {start: None}
    queue = deque([start])
    edges = 0
    while queue:
        situation = queue.popleft()
        facts: list[Input] = possible(situation.world, words=words)
        for fact in facts:
            edges += 1
            following = _checked(parents, situation, fact)
            if following not in parents:
                parents[following] = (situation, fact)
                queue.append(following)
        if len(parents) % fate_every == 0:
            _check_fate(parents, situation)
    return Closure(len(parents), edges)


Parents = dict[Situation, tuple[Situation, Input] | None]


def _checked(parents: Parents, situation: Situation, fact: Input) -> Situation:
    try:
        return step(situation, fact)
    except Exception as error:
        raise Broken(repr(error), trace(parents, situation, fact)) from error


def _check_fate(parents: Parents, situation: Situation) -> None:
    try:
        ended = force_down(situation)
        assert ended.table.finished
        assert not ended.world.waiting
    except Exception as error:
        raise Broken(f"forced down: {error!r}", trace(parents, situation)) from error


def force_down(situation: Situation) -> Situation:
    """Return what a forced shutdown ends in, if nothing ends but what is killed."""
    situation = replace_tickets(situation)
    while not (situation.table.finished or situation.table.shutdown == "forced"):
        situation = step(situation, ShutdownRequested(grace_ms=1, forced=True))
    while facts := _consequences(situation.world):
        situation = step(situation, facts[0])
    return situation


def replace_tickets(situation: Situation) -> Situation:
    """Return the situation in which no client asks for anything more."""
    return Situation(situation.table, replace(situation.world, tickets=frozenset()))


def _consequences(world: World) -> list[Input]:
    """Return what happens if no agent does anything on its own."""
    found: list[Input] = []
    for number, process in enumerate(world.processes, 1):
        who = life(number)
        if process.over:
            continue
        if not process.born:
            found.append(ProcessBorn(incarnation=who, pid=100 + number, started_ticks=number))
        elif process.killed and process.alive:
            found.append(ProcessExited(incarnation=who, status=Signalled(9), now_ms=0))
        elif process.status is not None and process.drain_ordered:
            found.append(ChannelDrained(incarnation=who, held=True))
    found += [DeadlinePassed(timer) for timer in sorted(world.armed, key=repr)]
    return found


def trace(parents: Parents, situation: Situation, last: Input | None = None) -> list[str]:
    """Return the inputs that lead to *situation*, first one first."""
    facts = [] if last is None else [last]
    while (link := parents[situation]) is not None:
        situation, fact = link
        facts.append(fact)
    return [str(fact) for fact in reversed(facts)]
