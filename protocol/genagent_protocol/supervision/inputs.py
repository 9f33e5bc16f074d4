"""Facts the daemon's shell reports to the supervision machine, in the past tense.

An input says what happened and decides nothing. Facts about a process come from
the kernel or the launcher and arrive at most once each; facts said over a channel
come from code we do not trust and may arrive in any number; requests come from
clients. `call` is whatever the shell needs to answer one request, opaque and
hashable; None means that nobody waits for an answer.

What the shell owes for each `Launch(incarnation)`:

1. exactly one of `ProcessBorn` and `LaunchFailed`, also after the start was given up;
2. after `ProcessBorn`, exactly one `ProcessExited` and exactly one `ChannelDrained`,
   in either order, the latter also when no channel ever came up;
3. in between, what the agent said, in the order in which it was said;
4. nothing about an incarnation that no `Launch` named. What comes after its
   `Dispose` is late, and is ignored.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_protocol.reasons import ExitReason, StartError
from genagent_protocol.refs import AgentHandle, Incarnation, MonitorRef, RequestRef
from genagent_protocol.supervision.terms import Terms

Call: TypeAlias = Hashable
#: For what the daemon kills a process that it began.
Cause = Literal["start_timeout", "stop", "group", "shutdown", "abuse", "channel"]

TimerKind = Literal[
    "start", "missed", "stop", "leave", "drain", "restart", "last_words", "shutdown"
]


@dataclass(frozen=True, slots=True)
class Timer:
    """The identity of one deadline; each is armed at most once.

    `start`: readiness is due. `missed`: the exit of a process that was not found where
    it should be would be known by now. `stop`: the shutdown window closes. `leave`: a
    process without a channel should be gone. `drain`: a dead process's channel
    should be at its end. `restart`: the wait after this incarnation is over.
    `last_words`: who still drains should say what it leaves. `shutdown`: the daemon's
    grace ends (both without an incarnation).
    """

    kind: TimerKind
    incarnation: Incarnation | None = None


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended by itself with this exit code, 0 to 255."""

    code: int


@dataclass(frozen=True, slots=True)
class Signalled:
    """The process was ended by this signal number."""

    signal: int


ExitStatus: TypeAlias = Exited | Signalled


# Requests of clients.


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequested:
    """A client wants an agent under `terms`. Answered once, when it is ready or gone."""

    call: Call
    client: int
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A client wants the agent that holds `key` in `group` to end, and its name free."""

    call: Call
    client: int
    key: bytes
    group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorRequested:
    """A client wants exactly one DOWN for the incarnation that `handle` captured."""

    call: Call
    client: int
    monitor: MonitorRef
    handle: AgentHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonitorRequested:
    """A client no longer wants the DOWN of `monitor`."""

    call: Call
    client: int
    monitor: MonitorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOpenRequested:
    """A client wants a group of its own; the answer names it. `owner_pid` is for the reports."""

    call: Call
    client: int
    owner_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCloseRequested:
    """A client wants every agent of its group to end."""

    call: Call
    client: int
    group: int


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client's connection ended; its number is never given to another one."""

    client: int


# What the launcher and the kernel say about a process.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBorn:
    """The launched process exists. `started_ticks` is field 22 of its `/proc` stat."""

    incarnation: Incarnation
    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailed:
    """No process came of the launch, and none will. `now_ms` is monotonic."""

    incarnation: Incarnation
    error: StartError
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExited:
    """The kernel reported the end of the process, and what it left behind has ended, too.

    Unless that takes too long. `now_ms` is when the process ended, and monotonic.
    """

    incarnation: Incarnation
    status: ExitStatus
    now_ms: int


# What became of the channel, and what was said over it.


@dataclass(frozen=True, slots=True)
class ChannelFailed:
    """A living, starting agent cannot be talked to: no descriptor is left."""

    incarnation: Incarnation
    error: StartError


@dataclass(frozen=True, slots=True)
class ChannelMissed:
    """A starting agent was not found where it should be: nobody listens there, or a stranger.

    `error` says so. The agent may as well have just ended. The first one counts.
    """

    incarnation: Incarnation
    error: StartError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDrained:
    """Everything the process said before it left has been read and forwarded.

    `held` is the answer to `DrainNow` when the channel never reported its end:
    something the agent left behind holds it open.
    """

    incarnation: Incarnation
    held: bool = False


@dataclass(frozen=True, slots=True)
class AgentReady:
    """The agent said that it takes prompts now."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class AgentRefused:
    """The agent said why it cannot start; it exits on its own."""

    incarnation: Incarnation
    error: StartError


@dataclass(frozen=True, slots=True)
class LeavingSaid:
    """The agent said which accepted requests it would leave without an outcome, if it ended now."""

    incarnation: Incarnation
    unresolved: tuple[RequestRef, ...]


@dataclass(frozen=True, slots=True)
class ExitSaid:
    """The agent said why it is about to exit, and which requests it leaves. The last one counts."""

    incarnation: Incarnation
    reason: ExitReason
    unresolved: tuple[RequestRef, ...] = ()


@dataclass(frozen=True, slots=True)
class AbuseSeen:
    """The agent broke the protocol or flooded; `detail` says how, in one line."""

    incarnation: Incarnation
    detail: str


# Time and the daemon's own end.


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """An armed deadline passed. One that was disarmed meanwhile is late and ignored."""

    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRequested:
    """Somebody wants the daemon to end within `grace_ms` or, if `forced`, at once.

    It may be asked for any number of times; only a forced one changes an end that has begun.
    That has no use for its grace.
    """

    grace_ms: int
    forced: bool = False


Request: TypeAlias = (
    StartRequested
    | StopRequested
    | MonitorRequested
    | DemonitorRequested
    | GroupOpenRequested
    | GroupCloseRequested
    | ClientGone
)

ProcessFact: TypeAlias = (
    ProcessBorn
    | LaunchFailed
    | ProcessExited
    | ChannelFailed
    | ChannelMissed
    | ChannelDrained
    | AgentReady
    | AgentRefused
    | LeavingSaid
    | ExitSaid
    | AbuseSeen
)

Input: TypeAlias = Request | ProcessFact | DeadlinePassed | ShutdownRequested
