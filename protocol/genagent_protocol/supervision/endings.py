"""Ends that somebody asked for: a stop, the close of a group, the daemon's shutdown.

Every such end is the same order to one agent: what still starts is killed, what is
ready is asked over its channel and killed when its window closes, what waits or
has failed is gone at once. None of them is followed by a restart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, assert_never

from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import SHUTDOWN, StartError
from genagent_protocol.supervision import lives, settling, verdicts
from genagent_protocol.supervision.draft import Draft, living
from genagent_protocol.supervision.effects import (
    ArmDeadline,
    AskToStop,
    DisarmDeadline,
    Emit,
    RefuseTurns,
)
from genagent_protocol.supervision.inputs import (
    Call,
    ShutdownRequested,
    Timer,
)
from genagent_protocol.supervision.table import Child, GroupEnd
from genagent_protocol.supervision.terms import Terms

#: The end of a shutdown's grace, at most half of it: who is still in a turn is stopped then,
#: so that it can tell which requests it leaves unresolved before it would be killed.
LAST_WORDS_MS = 2_000
#: How long agents may take to end, or to say what they leave, if that is forced at once.
FORCED_MS = 500

Ending = Literal["stop", "group", "shutdown"]


def end_child(draft: Draft, child: Child, why: Ending, *, drain: bool = False) -> None:
    """Order the end of *child*; what is ending already is left to its end.

    An agent asked to drain may still be asked to stop, but not the reverse.
    """
    child = draft.put(replace(child, wanted=False))
    life = child.life
    if life is None:
        if child.phase == "restarting":
            draft.order(DisarmDeadline(Timer("restart", child.last)))
        settling.forget(draft, child)
    elif not life.ready:
        lives.kill(draft, child, why, _verdict(why, child.terms))
    elif life.reachable:
        _ask(draft, child, "drain" if drain else "stop", why)


def _ask(draft: Draft, child: Child, wish: Literal["drain", "stop"], why: Ending) -> None:
    life = living(child)
    if life.asked == "stop" or life.asked == wish:
        return
    child = draft.put_life(child, replace(life, asked=wish))
    draft.emit("agent.stopping", child, drain=wish == "drain", cause=why, group=child.terms.group)
    draft.order(AskToStop(life.incarnation, SHUTDOWN, drain=wish == "drain"))
    if wish == "stop" and child.terms.shutdown_ms is not None:
        draft.arm(child, "stop", child.terms.shutdown_ms)


def _verdict(why: Ending, terms: Terms) -> StartError:
    match why:
        case "stop":
            return verdicts.stopped_early(terms)
        case "group":
            return verdicts.group_not_running(terms)
        case "shutdown":
            return verdicts.shutting_down(terms)
        case _:
            assert_never(why)


def close_group(draft: Draft, number: int, call: Call, cause: GroupEnd) -> None:
    """End every agent of the group; *call* is answered when none is left.

    All of them refuse new turns before the first is asked to stop, so that none
    begins work because of what a dying neighbour sent it.
    """
    group = draft.table.groups[number]
    closers = group.closers if call is None else (*group.closers, call)
    # What began its end is why it ends, also where its owner goes or closes it meanwhile.
    closing = replace(group, cause=group.cause or cause, closers=closers)
    draft.table = replace(draft.table, groups=draft.table.groups.put(number, closing))
    if group.closing:
        return
    members = [c for c in draft.table.children.values() if c.terms.group == number]
    for child in members:
        if child.life is not None and child.life.reachable:
            draft.order(RefuseTurns(child.life.incarnation))
    for child in members:
        end_child(draft, child, "group")
    if not members:
        settling.settle_group(draft, number)


def shut_down(draft: Draft, fact: ShutdownRequested) -> None:
    """Take no more starts and end everything; who forces what is ending does not want to wait."""
    if draft.table.finished or draft.table.shutdown == "forced":
        return
    if draft.table.shutdown is not None:
        if fact.forced:
            settling.disarm_shutdown(draft)
            _kill_all(draft)
    elif fact.forced:
        _begin_shutdown(draft, "stopping", FORCED_MS)
    else:
        _begin_shutdown(draft, "draining", fact.grace_ms)


def _begin_shutdown(draft: Draft, phase: Literal["draining", "stopping"], grace_ms: int) -> None:
    draft.table = replace(draft.table, shutdown=phase)
    draft.order(Emit("shutdown.started", FrozenDict({"grace_ms": grace_ms})))
    if phase == "draining":
        last_ms = min(LAST_WORDS_MS, grace_ms // 2)
        draft.order(ArmDeadline(settling.LAST_WORDS, grace_ms - last_ms))
    draft.order(ArmDeadline(settling.GRACE, grace_ms))
    _end_all(draft, drain=phase == "draining")


def last_words_due(draft: Draft) -> None:
    """Stop whoever still drains: its turn will not end within the grace."""
    if draft.table.shutdown == "draining" and not draft.table.finished:
        draft.table = replace(draft.table, shutdown="stopping")
        _end_all(draft, drain=False)


def grace_passed(draft: Draft) -> None:
    """Kill what is left at the end of the grace."""
    if draft.table.shutdown in ("draining", "stopping") and not draft.table.finished:
        settling.disarm_shutdown(draft, passed=settling.GRACE)
        _kill_all(draft)


def _end_all(draft: Draft, *, drain: bool) -> None:
    children = tuple(draft.table.children.values())
    for child in children:
        end_child(draft, child, "shutdown", drain=drain)
    if not children:
        settling.settle_shutdown(draft)


def _kill_all(draft: Draft) -> None:
    draft.table = replace(draft.table, shutdown="forced")
    draft.order(Emit("shutdown.forced"))
    # Each has a life: in a shutdown nothing waits for a restart, nor is kept for show.
    for child in tuple(draft.table.children.values()):
        lives.kill(draft, child, "shutdown", verdicts.shutting_down(child.terms))
