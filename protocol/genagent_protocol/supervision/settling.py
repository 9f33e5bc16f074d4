"""What follows from the last trace of an agent being gone.

The order is fixed: the name is free before anyone who waited for that hears of
it, a group is closed when its last agent is, and the shutdown is complete when
nothing is left at all.
"""

from __future__ import annotations

from dataclasses import replace

from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import NOPROC
from genagent_protocol.supervision.draft import Draft
from genagent_protocol.supervision.effects import (
    DisarmDeadline,
    Done,
    Emit,
    Finished,
    Stopped,
)
from genagent_protocol.supervision.inputs import Timer
from genagent_protocol.supervision.table import Child, Shutdown

LAST_WORDS = Timer("last_words")
GRACE = Timer("shutdown")
#: The daemon's own deadlines that are armed in each phase of its shutdown.
_ARMED: dict[Shutdown, tuple[Timer, ...]] = {
    "draining": (LAST_WORDS, GRACE),
    "stopping": (GRACE,),
    "forced": (),
}


def forget(draft: Draft, child: Child) -> None:
    """Free the name of a child without a life, answer its stops, settle what waited for it."""
    table = draft.table
    draft.table = replace(table, children=table.children.without(child.terms.key))
    for call in child.stoppers:
        draft.answer(call, Stopped(child.reason or NOPROC))
    if child.terms.group is not None:
        settle_group(draft, child.terms.group)
    settle_shutdown(draft)


def settle_group(draft: Draft, number: int) -> None:
    """Close a closing group if no agent is left in it, and answer who asked."""
    table = draft.table
    group = table.groups[number]
    if not group.closing or any(c.terms.group == number for c in table.children.values()):
        return
    draft.table = replace(table, groups=table.groups.without(number))
    draft.order(
        Emit(
            "group.closed",
            FrozenDict({"group": number, "owner_pid": group.owner_pid, "cause": group.cause}),
        )
    )
    for call in group.closers:
        draft.answer(call, Done())


def settle_shutdown(draft: Draft) -> None:
    """Complete the shutdown if one was asked for and no agent is left."""
    table = draft.table
    if table.shutdown is None or table.finished or table.children:
        return
    disarm_shutdown(draft)
    draft.table = replace(table, finished=True)
    draft.order(Emit("shutdown.finished"), Finished())


def disarm_shutdown(draft: Draft, passed: Timer | None = None) -> None:
    """Take back the deadlines of the shutdown, but for the one that just *passed*."""
    assert draft.table.shutdown is not None
    armed = _ARMED[draft.table.shutdown]
    draft.order(*(DisarmDeadline(timer) for timer in armed if timer != passed))
