"""What can happen to an agent: facts, in the past tense, as the shell reports them.

The shell feeds one at a time, in the order in which they became known. After an
`Invoke` it feeds nothing but that callback's `CallbackReturned` or
`CallbackCrashed`, after a `StartTurn` nothing but `TurnStarted` or
`TurnStartFailed`; whatever else arrives meanwhile it keeps, unopened and in order,
the news of the turn's thread and passed deadlines included. After `Exit` it feeds
nothing more.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_protocol.events import Event, Outcome
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import NORMAL, TASK_SUPERVISOR_UNAVAILABLE, ExitReason, Reason
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns.decisions import CallbackName, Decision
from genagent_protocol.turns.requests import AddressText, CallId, OnHalt

#: The three deadlines of an agent; at most one of each is armed at any time.
#: `watchdog` limits a turn, `grace` the stopping of one, `pace` spaces the tries of
#: a generated prompt that its gate refused.
DeadlineName: TypeAlias = Literal["watchdog", "grace", "pace"]


# Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSubmitted:
    """A prompt was sent without waiting; the recipient is owed an admission."""

    ref: RequestRef
    prompt: str
    recipient: AddressText
    stream_to: AddressText | None = None
    on_halt: OnHalt = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class TellReceived:
    """A prompt was sent by a call that is answered once it is accepted or refused.

    With a `recipient` the outcome is sent there too; without one it can only be polled.
    """

    call: CallId
    ref: RequestRef
    prompt: str
    recipient: AddressText | None = None
    stream_to: AddressText | None = None
    on_halt: OnHalt = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskReceived:
    """A prompt was sent by a call that waits for the outcome; `caller` is who waits."""

    call: CallId
    ref: RequestRef
    prompt: str
    caller: AddressText


@dataclass(frozen=True, slots=True)
class CallerDown:
    """The process behind `caller` is gone: nobody waits for its queued asks any more."""

    caller: AddressText


# Notifications


@dataclass(frozen=True, slots=True)
class NotificationReceived:
    """An event came from outside; with a `call` somebody waits for its acknowledgement."""

    event: Plain
    call: CallId | None = None


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message for the agent's `handle_info` came: another agent's completion, a DOWN.

    The machine keeps it and gives it back. `size_bytes` is its length as it came in.
    One that is `owed` answers what the agent itself asked for, and is never refused.
    """

    message: Hashable
    size_bytes: int
    owed: bool = False


# Control


@dataclass(frozen=True, slots=True)
class PollRequested:
    """Somebody asks what became of `ref`."""

    call: CallId
    ref: RequestRef


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants the queued request `ref` removed."""

    call: CallId
    ref: RequestRef


@dataclass(frozen=True, slots=True)
class InterruptReceived:
    """Somebody wants whatever turn is active stopped; nobody waits."""


@dataclass(frozen=True, slots=True)
class InterruptRequested:
    """Somebody wants exactly the turn of `ref` stopped, and waits until it is."""

    call: CallId
    ref: RequestRef


@dataclass(frozen=True, slots=True)
class HaltRequested:
    """Somebody outside wants the agent halted, after the active turn if there is one."""


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """Somebody wants the agent to go on, or takes back a halt that has not come yet."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Somebody wants the agent to admit nothing more, finish its turn and exit with `reason`.

    The call is answered when draining has begun; the end itself is told by the DOWN.
    """

    call: CallId | None = None
    reason: ExitReason = NORMAL


@dataclass(frozen=True, slots=True)
class ResetRequested:
    """Somebody wants the backend to begin the conversation anew."""

    call: CallId


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """Somebody asks for the counts."""

    call: CallId


@dataclass(frozen=True, slots=True)
class StatusRequested:
    """Somebody asks for the short description."""

    call: CallId


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The agent has to end now: it was asked to, or it lost its daemon."""

    reason: ExitReason


@dataclass(frozen=True, slots=True)
class TurnsRefused:
    """The owner of this agent is closing: no turn can be started from now on."""


@dataclass(frozen=True, slots=True)
class TurnsAllowed:
    """Turns can be started again."""


# The turn


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The turn's code is running."""

    turn: int


@dataclass(frozen=True, slots=True)
class TurnStartFailed:
    """The turn's code could not be started; nothing of it runs."""

    turn: int
    reason: Reason = TASK_SUPERVISOR_UNAVAILABLE


@dataclass(frozen=True, slots=True)
class TurnEventReceived:
    """The turn's stream callback accepted an event; needed only if the turn is relayed."""

    turn: int
    event: Event


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """The turn's backend names the provider's session, and waits for the answer."""

    call: CallId
    turn: int
    session_id: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn's code came to its end and left an outcome; it runs no more.

    `dispatched` is false if the backend refused the prompt before any stream: then
    there is no new state and no new session. `encoded_bytes` is the length of the
    encoded outcome, zero where that cannot exceed a message.
    """

    turn: int
    outcome: Outcome
    dispatched: bool = True
    encoded_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TurnCrashed:
    """The turn's code raised; it runs no more. `error` is the exception's class."""

    turn: int
    error: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class TurnStopped:
    """The turn's code runs no more and left no outcome."""

    turn: int


@dataclass(frozen=True, slots=True)
class TurnNotSwept:
    """The turn's code runs no more, but what it began cannot be looked for, and may run on."""

    turn: int


# Time and callbacks


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """A deadline that was armed has passed; `turn` is the one it was armed for."""

    name: DeadlineName
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class CallbackReturned:
    """The callback that was invoked came back with a decision."""

    callback: CallbackName
    decision: Decision


@dataclass(frozen=True, slots=True)
class CallbackCrashed:
    """The callback that was invoked raised; `error` is the exception's class, no more."""

    callback: CallbackName
    error: str


Steering: TypeAlias = (
    PollRequested
    | CancelRequested
    | InterruptReceived
    | InterruptRequested
    | HaltRequested
    | ResumeRequested
    | DrainRequested
    | ResetRequested
    | SnapshotRequested
    | StatusRequested
)
FromCaller: TypeAlias = (
    PromptSubmitted | TellReceived | AskReceived | NotificationReceived | MessageReceived | Steering
)
FromAbove: TypeAlias = StopRequested | CallerDown | TurnsRefused | TurnsAllowed
#: How a turn that is over is reported: once, when its code and its processes have ended.
TurnReport: TypeAlias = TurnEnded | TurnCrashed | TurnStopped
FromTurn: TypeAlias = (
    TurnEventReceived | CheckpointRequested | TurnReport | TurnNotSwept | DeadlinePassed
)
FromStart: TypeAlias = TurnStarted | TurnStartFailed
FromCallback: TypeAlias = CallbackReturned | CallbackCrashed
Input: TypeAlias = FromCaller | FromAbove | FromTurn | FromStart | FromCallback
