"""What clients ask of the table, and who may ask it.

A request never raises: whatever a client sends is answered, and an answer that
says no has changed nothing. A group exists only for the client that opened it.
"""

from __future__ import annotations

from dataclasses import replace

from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import NOPROC, NOT_FOUND, Reason
from genagent_protocol.refs import Incarnation
from genagent_protocol.supervision import endings, lives, verdicts
from genagent_protocol.supervision.draft import Draft, living
from genagent_protocol.supervision.effects import (
    Done,
    Emit,
    GroupRunning,
    NotStarted,
    Refused,
    SendDown,
)
from genagent_protocol.supervision.inputs import (
    ClientGone,
    DemonitorRequested,
    GroupCloseRequested,
    GroupOpenRequested,
    MonitorRequested,
    StartRequested,
    StopRequested,
)
from genagent_protocol.supervision.table import Child, Group, Watch, child_of, handle_of
from genagent_protocol.supervision.terms import flaw

SHUTTING_DOWN = Reason("shutting_down")
NOT_ALLOWED = Reason("not_allowed")


def start(draft: Draft, request: StartRequested) -> None:
    """Take the name and launch, or say at once why not."""
    why_not = _why_not(draft, request)
    if why_not is not None:
        draft.answer(request.call, why_not)
        return
    unborn = Incarnation(draft.table.boot, draft.table.next_incarnation)
    child = Child(terms=request.terms, last=unborn, life=None, starter=request.call)
    lives.launch(draft, child, previous=None)


def _why_not(draft: Draft, request: StartRequested) -> NotStarted | None:
    terms = request.terms
    if draft.table.shutdown is not None:
        return NotStarted(verdicts.shutting_down(terms))
    if (found := flaw(terms)) is not None:
        return NotStarted(verdicts.invalid(terms, found))
    if terms.group is not None and not _runs(draft, request.client, terms.group):
        return NotStarted(verdicts.group_not_running(terms))
    holder = draft.table.children.get(terms.key)
    if holder is None:
        return None
    return NotStarted(verdicts.already_started(holder), handle_of(draft.table, holder))


def stop(draft: Draft, request: StopRequested) -> None:
    """End the agent that holds the name there; answered when its name is free."""
    child = draft.table.children.get(request.key)
    foreign = request.group is not None and not _owns(draft, request.client, request.group)
    if child is None or child.terms.group != request.group or foreign:
        draft.answer(request.call, Refused(NOT_FOUND))
        return
    if request.call is not None:
        child = replace(child, stoppers=(*child.stoppers, request.call))
    endings.end_child(draft, child, "stop")


def monitor(draft: Draft, request: MonitorRequested) -> None:
    """Watch a life that is not over; for any other the DOWN follows at once."""
    watch = (request.client, request.monitor)
    if watch in draft.table.watched:
        draft.answer(request.call, Refused(NOT_ALLOWED))
        return
    draft.answer(request.call, Done())
    incarnation = request.handle.incarnation
    child = child_of(draft.table, incarnation)
    if child is None:
        draft.order(
            SendDown(
                client=request.client,
                monitor=request.monitor,
                handle=request.handle,
                reason=NOPROC,
            )
        )
        return
    life = living(child)
    draft.put_life(child, replace(life, monitors=life.monitors.put(watch, request.handle)))
    draft.table = replace(draft.table, watched=draft.table.watched.put(watch, incarnation))


def demonitor(draft: Draft, request: DemonitorRequested) -> None:
    """Forget the watch, if there is one; no DOWN of it is sent after the answer."""
    _unwatch(draft, [(request.client, request.monitor)])
    draft.answer(request.call, Done())


def open_group(draft: Draft, request: GroupOpenRequested) -> None:
    """Open a group under the next number."""
    table = draft.table
    if table.shutdown is not None:
        draft.answer(request.call, Refused(SHUTTING_DOWN))
        return
    number = table.next_group
    group = Group(owner=request.client, owner_pid=request.owner_pid)
    groups = table.groups.put(number, group)
    draft.table = replace(table, next_group=number + 1, groups=groups)
    draft.order(Emit("group.opened", FrozenDict({"group": number, "owner_pid": group.owner_pid})))
    draft.answer(request.call, GroupRunning(number))


def close_group(draft: Draft, request: GroupCloseRequested) -> None:
    """Close the client's own group; answered when its last agent is gone."""
    if not _owns(draft, request.client, request.group):
        draft.answer(request.call, Refused(NOT_FOUND))
        return
    endings.close_group(draft, request.group, request.call, "closed")


def client_gone(draft: Draft, fact: ClientGone) -> None:
    """A client that is gone watches nothing, and its groups end with it."""
    _unwatch(draft, [watch for watch in draft.table.watched if watch[0] == fact.client])
    for number, group in tuple(draft.table.groups.items()):
        if group.owner == fact.client:
            endings.close_group(draft, number, None, "owner_gone")


def _unwatch(draft: Draft, watches: list[Watch]) -> None:
    """Forget all of them in one go: a client may have thousands."""
    by_life: dict[Incarnation, list[Watch]] = {}
    for watch in watches:
        incarnation = draft.table.watched.get(watch)
        if incarnation is not None:
            by_life.setdefault(incarnation, []).append(watch)
    draft.table = replace(draft.table, watched=draft.table.watched.without(*watches))
    for incarnation, over_it in by_life.items():
        child = child_of(draft.table, incarnation)
        assert child is not None
        life = living(child)
        draft.put_life(child, replace(life, monitors=life.monitors.without(*over_it)))


def _owns(draft: Draft, client: int, number: int) -> bool:
    group = draft.table.groups.get(number)
    return group is not None and group.owner == client


def _runs(draft: Draft, client: int, number: int) -> bool:
    return _owns(draft, client, number) and not draft.table.groups[number].closing
