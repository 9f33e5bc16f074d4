"""Orders the supervision machine gives the daemon's shell, and the answers in them.

The shell performs the effects of one input in the order given, and decides
nothing. An order about a client that is gone meanwhile is dropped by the shell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_protocol.plain import EMPTY, FrozenDict
from genagent_protocol.reasons import ExitReason, Reason, StartError
from genagent_protocol.refs import AgentHandle, Incarnation, MonitorRef, RequestRef
from genagent_protocol.supervision.inputs import Call, Cause, Timer
from genagent_protocol.supervision.terms import Terms

# Answers.


@dataclass(frozen=True, slots=True)
class Started:
    """The agent is ready, and this is its handle."""

    handle: AgentHandle


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Nothing was started, or nothing of it is left.

    For `already_started`, `holder` is the agent that has the name, when it has a
    process; `error.detail` is the text of its incarnation in any case.
    """

    error: StartError
    holder: AgentHandle | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The agent is gone and its name free; `reason` is what its last DOWN said.

    `reason` is `noproc` if it never had a process.
    """

    reason: ExitReason


@dataclass(frozen=True, slots=True)
class GroupRunning:
    """The group is open under this number, which is never used again."""

    group: int


@dataclass(frozen=True, slots=True)
class Done:
    """It is so now: the monitor is set or gone, or the group is closed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer is no, and nothing changed."""

    reason: Reason


Answered: TypeAlias = Started | NotStarted | Stopped | GroupRunning | Done | Refused


# Orders.


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell the caller of `call`. At most one per call; none for a call of None."""

    call: Call
    answer: Answered


@dataclass(frozen=True, slots=True, kw_only=True)
class SendDown:
    """Send the one DOWN of this monitor, behind all that was forwarded to the client."""

    client: int
    monitor: MonitorRef
    handle: AgentHandle
    reason: ExitReason


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a process for this incarnation.

    `previous` is the incarnation it replaces under a restart policy, else None.
    """

    incarnation: Incarnation
    terms: Terms
    previous: Incarnation | None = None


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Ask the agent over its channel to exit in order.

    With `drain` it finishes the turn it is in first. It may be asked to drain
    and later, once, to stop.
    """

    incarnation: Incarnation
    reason: ExitReason
    drain: bool = False


@dataclass(frozen=True, slots=True)
class RefuseTurns:
    """Tell the agent that its group is closing: turns it has not begun fail."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill exactly this process, by its pidfd. Ordered at most once per incarnation."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class GiveUpLaunch:
    """Be done with this launch soon: it is born, and killed then, or its launch has failed.

    Ordered at most once per incarnation, in place of a Kill of what is not born yet.
    """

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Sweep:
    """End what the dead process left behind. Its DOWN does not wait for the result."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class DrainNow:
    """Read the dead process's channel until nothing is there, then report it drained."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ReportUnresolved:
    """Write down the requests that got no outcome, by the last word of their agent."""

    incarnation: Incarnation
    refs: tuple[RequestRef, ...]


@dataclass(frozen=True, slots=True)
class WarnOfUnknown:
    """Write down that nobody knows which requests this agent left without an outcome."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Dispose:
    """Close and forget what belongs to this incarnation; nothing more is heard of it.

    `reason` is why its process ended, the last word of its log; None if it had no process.
    `killed_for` is for what the daemon killed it, which no reason says.
    """

    incarnation: Incarnation
    reason: ExitReason | None
    killed_for: Cause | None = None


@dataclass(frozen=True, slots=True)
class ArmDeadline:
    """Report `DeadlinePassed(timer)` after this many milliseconds."""

    timer: Timer
    after_ms: int


@dataclass(frozen=True, slots=True)
class DisarmDeadline:
    """The deadline does not matter any more."""

    timer: Timer


EventName = Literal[
    "agent.starting",
    "agent.started",
    "agent.start_failed",
    "agent.stopping",
    "agent.killed",
    "agent.down",
    "agent.restarting",
    "agent.failed",
    "channel.lost",
    "channel.held",
    "group.opened",
    "group.closed",
    "shutdown.started",
    "shutdown.forced",
    "shutdown.finished",
]


@dataclass(frozen=True, slots=True)
class Emit:
    """Report for operators: identities, reasons and durations, never content.

    `agent.*` and `channel.*` carry `agent` (the name) and `incarnation`; `agent.started` and
    `agent.down` carry `pid`, too. `agent.started` and `agent.stopping` carry `group`, if the
    agent is in one, and `agent.stopping` and `group.closed` a `cause`.
    """

    event: EventName
    metadata: FrozenDict = EMPTY


@dataclass(frozen=True, slots=True)
class Finished:
    """The shutdown is complete: no process is left. Ordered exactly once, last."""


Effect: TypeAlias = (
    Answer
    | SendDown
    | Launch
    | AskToStop
    | RefuseTurns
    | Kill
    | GiveUpLaunch
    | Sweep
    | DrainNow
    | ReportUnresolved
    | WarnOfUnknown
    | Dispose
    | ArmDeadline
    | DisarmDeadline
    | Emit
    | Finished
)
