"""One incarnation from its launch to its DOWN: what each fact about it changes.

A life is over when its process has exited and its channel is drained, in either
order, and only then does anyone hear of its end. Until Ready it is a start, and
the first reason that it cannot succeed is the one its starter gets.
"""

from __future__ import annotations

from dataclasses import replace

from genagent_protocol.errors import InvalidTransition
from genagent_protocol.reasons import ExitReason, StartError
from genagent_protocol.refs import Incarnation
from genagent_protocol.supervision import settling, verdicts
from genagent_protocol.supervision.draft import Draft, living
from genagent_protocol.supervision.effects import (
    ArmDeadline,
    Dispose,
    DrainNow,
    GiveUpLaunch,
    Kill,
    Launch,
    NotStarted,
    ReportUnresolved,
    SendDown,
    Started,
    Sweep,
    WarnOfUnknown,
)
from genagent_protocol.supervision.inputs import (
    AbuseSeen,
    AgentReady,
    AgentRefused,
    Cause,
    ChannelDrained,
    ChannelFailed,
    ChannelMissed,
    ExitSaid,
    LaunchFailed,
    LeavingSaid,
    ProcessBorn,
    ProcessExited,
    Timer,
)
from genagent_protocol.supervision.table import Child, Life, handle_of

#: How long a dead process's channel may take to report its end.
DRAIN_WAIT_MS = 250
#: How much later than the end of its files the exit of a process may be told.
MISSED_WAIT_MS = 100
#: How long a process may outlive its own channel.
LEAVE_WAIT_MS = 5_000


def launch(draft: Draft, child: Child, previous: Incarnation | None) -> None:
    """Give *child* its next life and order the process for it."""
    table = draft.table
    incarnation = Incarnation(table.boot, table.next_incarnation)
    draft.table = replace(
        table,
        next_incarnation=incarnation.number + 1,
        keys=table.keys.put(incarnation.number, child.terms.key),
    )
    child = replace(child, last=incarnation, life=Life(incarnation=incarnation), ended_at_ms=0)
    draft.emit("agent.starting", child)
    draft.arm(child, "start", child.terms.start_timeout_ms)
    draft.order(Launch(incarnation, child.terms, previous))


def relaunch(draft: Draft, timer: Timer) -> None:
    """The wait after an end is over: the next life begins, if the child still waits for it."""
    for child in draft.table.children.values():
        if child.last == timer.incarnation and child.phase == "restarting":
            launch(draft, child, child.last)
            return


def born(draft: Draft, fact: ProcessBorn) -> None:
    """The process exists; if its end was decided meanwhile, it ends now."""
    if (subject := draft.subject(fact.incarnation)) is None:
        return
    child, life = subject
    if life.pid is not None:
        raise InvalidTransition(f"{fact.incarnation} was born twice")
    draft.put_life(child, replace(life, pid=fact.pid, started_ticks=fact.started_ticks))
    if life.killed:
        draft.order(Kill(life.incarnation))


def launch_failed(draft: Draft, fact: LaunchFailed) -> None:
    """There is no process, so nothing has to exit or be drained: the life is over."""
    if (subject := draft.subject(fact.incarnation)) is None:
        return
    child, life = subject
    if life.pid is not None:
        raise InvalidTransition(f"the launch of {fact.incarnation} failed after it was born")
    child = draft.disarm(child, life.armed)
    over = replace(living(child), verdict=life.verdict or fact.error, exited_at_ms=fact.now_ms)
    _end(draft, draft.put_life(child, over))


def kill(draft: Draft, child: Child, cause: Cause, verdict: StartError) -> None:
    """Decide the end of a living process, once; *verdict* is for a start that it cuts off."""
    life = living(child)
    if not life.alive or life.killed:
        return
    draft.emit("agent.killed", child, cause=cause)
    child = draft.disarm(child, ("start", "missed", "stop", "leave"))
    life = living(child)
    if not life.ready and life.verdict is None:
        life = replace(life, verdict=verdict)
    draft.put_life(child, replace(life, killed_for=cause))
    # An unborn process cannot be killed yet; `born` does it.
    who = life.incarnation
    draft.order(GiveUpLaunch(who) if life.pid is None else Kill(who))


def ready(draft: Draft, fact: AgentReady) -> None:
    """The start succeeded, unless it is already decided that it did not.

    A process that said so and died meanwhile was ready: what it said comes first.
    """
    if (subject := _speaker(draft, fact.incarnation)) is None:
        return
    child, life = subject
    if life.ready or life.killed or life.verdict is not None:
        return
    starter = child.starter
    child = draft.disarm(child, ("start", "missed"))
    child = draft.put_life(child, replace(living(child), ready=True))
    child = draft.put(replace(child, proven=True, starter=None))
    draft.emit("agent.started", child, pid=life.pid, group=child.terms.group)
    handle = handle_of(draft.table, child)
    assert handle is not None
    draft.answer(starter, Started(handle))


def refused(draft: Draft, fact: AgentRefused) -> None:
    """The agent said why it cannot start. It has until the start deadline to exit."""
    if (subject := _speaker(draft, fact.incarnation)) is None:
        return
    child, life = subject
    if not life.ready and life.verdict is None:
        draft.put_life(child, replace(life, verdict=fact.error))


def leaving(draft: Draft, fact: LeavingSaid) -> None:
    """The agent said what it would leave: it may be killed before it can say why it exits."""
    if (subject := _speaker(draft, fact.incarnation)) is not None:
        child, life = subject
        draft.put_life(child, replace(life, leaves=fact.unresolved))


def said(draft: Draft, fact: ExitSaid) -> None:
    """The agent said why it exits; whether that is believed depends on its status."""
    if (subject := _speaker(draft, fact.incarnation)) is not None:
        child, life = subject
        draft.put_life(child, replace(life, said=fact.reason, leaves=fact.unresolved))


def abuse(draft: Draft, fact: AbuseSeen) -> None:
    """An agent that breaks the protocol ends at once; a dead or doomed one already does."""
    if (subject := _speaker(draft, fact.incarnation)) is None:
        return
    child, life = subject
    if life.alive and not life.killed:
        child = draft.put_life(child, replace(life, abuse=fact.detail))
        kill(draft, child, "abuse", verdicts.abused(child.terms, fact.detail))


def channel_failed(draft: Draft, fact: ChannelFailed) -> None:
    """Nobody could ever talk to this process, so its start fails."""
    if (subject := _unheard(draft, fact.incarnation)) is not None:
        kill(draft, subject[0], "channel", fact.error)


def channel_missed(draft: Draft, fact: ChannelMissed) -> None:
    """Its start fails for that, too, unless the news of its exit is on the way."""
    if (subject := _unheard(draft, fact.incarnation)) is None:
        return
    child, life = subject
    # The first one is the cause: the end of a connection to a stranger comes after it.
    if life.alive and not life.killed and life.missed is None:
        child = draft.put_life(child, replace(life, missed=fact.error))
        draft.arm(child, "missed", MISSED_WAIT_MS)


def exited(draft: Draft, fact: ProcessExited) -> None:
    """The first or second of the two facts. What the process left behind ends first.

    A forked child of it may hold the channel open, and would hold back the DOWN.
    """
    if (subject := draft.subject(fact.incarnation)) is None:
        return
    child, life = subject
    if life.pid is None or not life.alive:
        raise InvalidTransition(f"{fact.incarnation} cannot exit: it is not a living process")
    child = draft.disarm(child, life.armed)
    over = replace(living(child), status=fact.status, exited_at_ms=fact.now_ms)
    child = draft.put_life(child, over)
    draft.order(Sweep(life.incarnation))
    if life.drained:
        _end(draft, child)
    else:
        draft.arm(child, "drain", DRAIN_WAIT_MS)


def drained(draft: Draft, fact: ChannelDrained) -> None:
    """The first or second of the two facts. A process should not outlive its channel long."""
    if (subject := _speaker(draft, fact.incarnation)) is None:
        return
    child, life = subject
    if fact.held and life.alive:
        raise InvalidTransition(f"{fact.incarnation} lives: nothing holds its channel but itself")
    child = draft.put_life(child, replace(life, drained=True))
    if fact.held:
        draft.emit("channel.held", child)
    if not life.alive:
        _end(draft, draft.disarm(child, life.armed))
    elif not life.killed:
        draft.arm(child, "leave", LEAVE_WAIT_MS)


def deadline_passed(draft: Draft, timer: Timer) -> None:
    """A deadline of one life passed; it is late if it is not armed any more."""
    assert timer.incarnation is not None
    subject = draft.subject(timer.incarnation)
    if subject is None or timer.kind not in subject[1].armed:
        return
    child, life = subject
    child = draft.put_life(child, replace(life, armed=life.armed - {timer.kind}))
    match timer.kind:
        case "start":
            kill(draft, child, "start_timeout", verdicts.timed_out(child.terms))
        case "missed":
            assert life.missed is not None
            kill(draft, child, "channel", life.missed)
        case "stop":
            kill(draft, child, "stop", verdicts.stopped_early(child.terms))
        case "leave":
            draft.emit("channel.lost", child)
            kill(draft, child, "channel", verdicts.cut_off(child.terms))
        case "drain":
            draft.order(DrainNow(life.incarnation))
        case "restart" | "last_words" | "shutdown":
            raise AssertionError(f"{timer} is no deadline of a life")


def _speaker(draft: Draft, incarnation: Incarnation) -> tuple[Child, Life] | None:
    """Return whose channel spoke; None if that life is over.

    Raises:
        InvalidTransition: that channel cannot speak, not yet or no longer.
    """
    subject = draft.subject(incarnation)
    if subject is not None and (subject[1].pid is None or subject[1].drained):
        raise InvalidTransition(f"{incarnation} has no channel that could be read")
    return subject


def _unheard(draft: Draft, incarnation: Incarnation) -> tuple[Child, Life] | None:
    """Return whose channel never came up; None if that life is over.

    Raises:
        InvalidTransition: it did come up, or nothing can come of it any more.
    """
    subject = _speaker(draft, incarnation)
    if subject is not None and subject[1].ready:
        raise InvalidTransition(f"{incarnation} was ready over a channel that never was")
    return subject


def _end(draft: Draft, child: Child) -> None:
    """Both facts are in: say DOWN, then let the policy decide about the name."""
    life = living(child)
    reason = verdicts.exit_reason(life)
    error = None if life.ready else verdicts.start_error(child, life)
    _send_downs(draft, life, reason)
    _account(draft, life)
    # Why an unborn process ended is the error of its start.
    ended = None if life.status is None else reason
    draft.order(Dispose(life.incarnation, ended, verdicts.killed_for(life)))
    if life.status is not None:
        draft.emit("agent.down", child, pid=life.pid, reason=reason.text)
    if error is not None:
        draft.emit("agent.start_failed", child, error=error.kind)
    draft.table = replace(draft.table, keys=draft.table.keys.without(life.incarnation.number))
    heard = child.reason if life.status is None else reason
    rest = draft.put(replace(child, life=None, starter=None, reason=heard, error=error))
    if child.proven and verdicts.restart_due(child, life, reason):
        _restart(draft, rest, life)
        return
    if error is not None:
        draft.answer(child.starter, NotStarted(error))
    settling.forget(draft, rest)


def _send_downs(draft: Draft, life: Life, reason: ExitReason) -> None:
    watched = draft.table.watched.without(*life.monitors)
    draft.table = replace(draft.table, watched=watched)
    for (client, ref), handle in life.monitors.items():
        draft.order(SendDown(client=client, monitor=ref, handle=handle, reason=reason))


def _account(draft: Draft, life: Life) -> None:
    """Name the requests that got no outcome because it ended, or say that nobody can."""
    if life.leaves:
        draft.order(ReportUnresolved(life.incarnation, life.leaves))
    elif life.leaves is None and (life.asked is not None or _unasked(draft, life)):
        # It was killed before it could say so: frozen, or holding its interpreter.
        draft.order(WarnOfUnknown(life.incarnation))


def _unasked(draft: Draft, life: Life) -> bool:
    """Whether the daemon ended a life that could not be asked for its last words."""
    return life.ready and life.killed and draft.table.shutdown is not None


def _restart(draft: Draft, child: Child, life: Life) -> None:
    policy = child.terms.restart
    child = replace(child, ended_at_ms=life.exited_at_ms)
    plan = verdicts.next_restart(policy, child.restarts, life.exited_at_ms)
    if plan is None:
        child = draft.put(replace(child, failed=True))
        draft.emit("agent.failed", child, restarts=len(child.restarts))
        return
    child = draft.put(replace(child, restarts=plan.times_ms))
    draft.emit("agent.restarting", child, after_ms=plan.after_ms)
    draft.order(ArmDeadline(Timer("restart", life.incarnation), plan.after_ms))
