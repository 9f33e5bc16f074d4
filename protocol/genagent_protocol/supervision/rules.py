"""The rule book of the daemon's table: one input at a time, wholly or not at all.

The theory, in the order in which a name lives.

A *name* is taken by the request that starts an agent and free again when the last
DOWN of it is out. In between exactly one child holds it, whatever the group, so
that of any number of simultaneous starts one succeeds and the others name it.

A *start* succeeds at Ready. Until then everything that goes wrong is a start
error, and the starter hears it only when the process is gone: a failed start
leaves nothing. The first reason stands, because what comes after it is mostly its
consequence. An agent that is stopped while it starts is killed, for it cannot
be asked; its starter hears `exited`, or `shutting_down`, or `group_not_running`.
An agent that is not found at its place may have just ended: whoever ends closes its
files a moment before the kernel says so. Only if no exit follows in that moment is
it the place that is wrong.

An *end* needs two facts, the exit of the process and the end of its channel, in
either order. The exit alone would let a DOWN overtake what the agent said; the
channel alone says nothing about the process. If the channel stays open after the
exit, something left behind holds it: that is swept first, then waited for, then
what is there is read and counts as all. A process that outlives its channel is
alive but unreachable, which nothing may be: it is killed.

A *reason* is what the kernel says. Being asked changes only what status 0 means.

A *request* that an agent accepted and never answered is accounted for at its end,
by its own last word. Who was asked to end and died without a word left nobody
knows what.

A *kill* is decided once. An order to kill what is not born yet waits for the birth,
and a birth that nobody wants any more is not waited for long.

A *restart* follows from the policy, the reason, and nobody having asked for the
end; it takes a new incarnation and keeps the name. Too many, and the child stays
as `failed`, holding its name, until somebody stops it.

A *monitor* yields exactly one DOWN: at the end of the life that it watches, or at
once if that life is over, was another boot's, or never was. A stop that waits
for the end is answered behind the DOWNs.

A *group* belongs to one client, ends with it, and hides behind it.

A *shutdown* is the end of every child and of every wish for restart; when the
last child is gone it is complete, once. Agents finish their turns first, and who
still drains near the end of the grace is stopped, so that it can tell what it
leaves before it is killed. Forced, it stops them at once and is short; forced
when it has begun, it kills.

Facts about a life that is over are late, not wrong. Facts about a life that never
was, or that cannot be (a second exit, a word from a closed channel), are bugs of
the shell: InvalidTransition. What an agent says twice or out of turn is not a bug
of the shell; it is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from genagent_protocol.supervision import endings, lives, requests
from genagent_protocol.supervision.draft import Draft
from genagent_protocol.supervision.effects import Effect
from genagent_protocol.supervision.inputs import (
    AbuseSeen,
    AgentReady,
    AgentRefused,
    ChannelDrained,
    ChannelFailed,
    ChannelMissed,
    ClientGone,
    DeadlinePassed,
    DemonitorRequested,
    ExitSaid,
    GroupCloseRequested,
    GroupOpenRequested,
    Input,
    LaunchFailed,
    LeavingSaid,
    MonitorRequested,
    ProcessBorn,
    ProcessExited,
    ProcessFact,
    Request,
    ShutdownRequested,
    StartRequested,
    StopRequested,
    Timer,
)
from genagent_protocol.supervision.table import Table


@dataclass(frozen=True, slots=True)
class Advance:
    """What one input led to: the next table, and the orders in their order."""

    table: Table
    effects: tuple[Effect, ...]


def advance(table: Table, fact: Input) -> Advance:
    """Return what *fact* changes in *table* and what has to be done about it.

    Raises:
        InvalidTransition: the shell reported what cannot be; *table* is unaffected.
    """
    draft = Draft(table)
    match fact:
        case DeadlinePassed(timer):
            _deadline_passed(draft, timer)
        case ShutdownRequested():
            endings.shut_down(draft, fact)
        case (
            ProcessBorn()
            | LaunchFailed()
            | ProcessExited()
            | ChannelFailed()
            | ChannelMissed()
            | ChannelDrained()
            | AgentReady()
            | AgentRefused()
            | LeavingSaid()
            | ExitSaid()
            | AbuseSeen()
        ):
            _hear_of_process(draft, fact)
        case _:
            _take_request(draft, fact)
    return Advance(draft.table, tuple(draft.effects))


def _hear_of_process(draft: Draft, fact: ProcessFact) -> None:
    match fact:
        case ProcessBorn():
            lives.born(draft, fact)
        case LaunchFailed():
            lives.launch_failed(draft, fact)
        case ProcessExited():
            lives.exited(draft, fact)
        case ChannelFailed():
            lives.channel_failed(draft, fact)
        case ChannelMissed():
            lives.channel_missed(draft, fact)
        case ChannelDrained():
            lives.drained(draft, fact)
        case AgentReady():
            lives.ready(draft, fact)
        case AgentRefused():
            lives.refused(draft, fact)
        case LeavingSaid():
            lives.leaving(draft, fact)
        case ExitSaid():
            lives.said(draft, fact)
        case AbuseSeen():
            lives.abuse(draft, fact)
        case _:
            assert_never(fact)


def _take_request(draft: Draft, request: Request) -> None:
    match request:
        case StartRequested():
            requests.start(draft, request)
        case StopRequested():
            requests.stop(draft, request)
        case MonitorRequested():
            requests.monitor(draft, request)
        case DemonitorRequested():
            requests.demonitor(draft, request)
        case GroupOpenRequested():
            requests.open_group(draft, request)
        case GroupCloseRequested():
            requests.close_group(draft, request)
        case ClientGone():
            requests.client_gone(draft, request)
        case _:
            assert_never(request)


def _deadline_passed(draft: Draft, timer: Timer) -> None:
    match timer.kind:
        case "last_words":
            endings.last_words_due(draft)
        case "shutdown":
            endings.grace_passed(draft)
        case "restart":
            lives.relaunch(draft, timer)
        case _:
            lives.deadline_passed(draft, timer)
