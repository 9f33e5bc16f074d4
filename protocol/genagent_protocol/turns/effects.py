"""What the machine wants done: orders, in the imperative, carried out in their order.

The shell performs a list from front to back, decides nothing, and only then reads
the next input. `Invoke` and `StartTurn` are always the last of their list: they
are the two orders whose result is the next input. `Exit` is the last order of all.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from genagent_protocol.answers import AgentAnswer, Ok, Origin, Phase, Refused
from genagent_protocol.events import Event, Outcome, Response
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import ExitReason, Failure
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns.decisions import CallbackName
from genagent_protocol.turns.inputs import DeadlineName
from genagent_protocol.turns.requests import AddressText, CallId

# Messages


@dataclass(frozen=True, slots=True)
class SendAdmission:
    """Tell the recipient whether its submission was accepted."""

    recipient: AddressText
    ref: RequestRef
    verdict: Ok | Refused


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Relay an event of the turn. Best effort: it may be dropped, visibly."""

    stream_to: AddressText
    ref: RequestRef
    event: Event


@dataclass(frozen=True, slots=True)
class SendCompletion:
    """Tell the recipient the final outcome of its request."""

    recipient: AddressText
    ref: RequestRef
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a call.

    The shell fills in what only it knows: `elapsed_ms` of a snapshot, `name` and
    `agent_state` of a status.
    """

    call: CallId
    answer: AgentAnswer


# The turn


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTurn:
    """Run one turn on a copy of the state, and report that it started or could not.

    Without `relayed` nobody listens to its events and none need be reported.
    """

    turn: int
    ref: RequestRef
    attempt: int
    origin: Origin
    prompt: str
    relayed: bool


@dataclass(frozen=True, slots=True)
class CancelTurn:
    """Stop the turn's code, and report when it has really ended."""

    turn: int


@dataclass(frozen=True, slots=True)
class KeepTurn:
    """Make the turn's final state the agent's, and its session too if `session`.

    A `checkpoint` is an acknowledged session id: apply it again to the session
    that the turn returned; if that raises, keep the session as it was.
    """

    turn: int
    session: bool = True
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class DropTurn:
    """Forget the turn's state and session: those of its dispatch stay."""

    turn: int


@dataclass(frozen=True, slots=True)
class AbandonTurn:
    """The turn did not end, as far as is known: kill its processes; this agent exits next."""

    turn: int


# Time


@dataclass(frozen=True, slots=True)
class ArmDeadline:
    """Report `DeadlinePassed` with this name and turn after so long; replaces one of that name."""

    name: DeadlineName
    after_ms: int
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class DisarmDeadline:
    """Forget the deadline of that name."""

    name: DeadlineName


# Callbacks


@dataclass(frozen=True, slots=True)
class PreRun:
    """Prepare the agent, once, before its first turn."""

    name: ClassVar[CallbackName] = "pre_run"


@dataclass(frozen=True, slots=True)
class PreTurn:
    """Let this prompt run, rewrite it, decline it, or halt."""

    name: ClassVar[CallbackName] = "pre_turn"
    prompt: str


@dataclass(frozen=True, slots=True)
class HandleResponse:
    """Decide what follows a turn that succeeded."""

    name: ClassVar[CallbackName] = "handle_response"
    ref: RequestRef
    response: Response


@dataclass(frozen=True, slots=True)
class HandleError:
    """Decide what follows a turn that failed, or a generated prompt that became none."""

    name: ClassVar[CallbackName] = "handle_error"
    ref: RequestRef
    reason: Failure


@dataclass(frozen=True, slots=True)
class PostTurn:
    """See a turn off, after the decision."""

    name: ClassVar[CallbackName] = "post_turn"
    ref: RequestRef
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class HandleEvent:
    """Handle a notification."""

    name: ClassVar[CallbackName] = "handle_event"
    event: Plain


@dataclass(frozen=True, slots=True)
class HandleInfo:
    """Handle a message."""

    name: ClassVar[CallbackName] = "handle_info"
    message: Hashable


@dataclass(frozen=True, slots=True)
class PostRun:
    """See a run off, at the end of a halt transition."""

    name: ClassVar[CallbackName] = "post_run"


@dataclass(frozen=True, slots=True)
class CheckpointSession:
    """Apply `session_id` to the retained session, the one of before the turn."""

    name: ClassVar[CallbackName] = "checkpoint_session"
    session_id: str


@dataclass(frozen=True, slots=True)
class ResetSession:
    """Let the backend make a new session of the retained one."""

    name: ClassVar[CallbackName] = "reset_session"


Callback: TypeAlias = (
    PreRun
    | PreTurn
    | HandleResponse
    | HandleError
    | PostTurn
    | HandleEvent
    | HandleInfo
    | PostRun
    | CheckpointSession
    | ResetSession
)


@dataclass(frozen=True, slots=True)
class Invoke:
    """Run user code with the retained state, and report what it decided.

    A returned state (for `checkpoint_session` and `reset_session`: session)
    replaces the retained one only if the decision fits the callback.
    """

    callback: Callback


# Telemetry and the end

EmitName: TypeAlias = Literal[
    "prompt.start",
    "prompt.stop",
    "prompt.error",
    "turn.start",
    "turn.stop",
    "turn.error",
    "turn.rejected",
    "turn.cancelled",
    "event.received",
    "state.changed",
    "mailbox.queued",
    "input.rejected",
    "halted",
    "terminated",
    "callback.failed",
    "message.dropped",
]


class Emit(NamedTuple):
    """Tell the subscribers what happened; only the fields that the name calls for are set.

    The shell adds the agent's name, the wall clock, the shown state where the name
    calls for it, and the duration of `turn` where a turn is named. The names
    `turn.*` are free of content.
    """

    name: EmitName
    ref: RequestRef | None = None
    attempt: int | None = None
    origin: Origin | None = None
    turn: int | None = None
    reason: Failure | ExitReason | None = None
    reason_kind: str | None = None
    prompt: str | None = None
    original_prompt: str | None = None
    rewritten: bool | None = None
    event: Plain = None
    depth: int | None = None
    was: Phase | None = None
    now: Phase | None = None
    callback: CallbackName | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """Asked to end, the agent holds these requests without an outcome, and may be killed so."""

    unresolved: tuple[RequestRef, ...]


@dataclass(frozen=True, slots=True)
class Terminate:
    """Run `terminate_agent`, then `terminate_session`; neither can prevent the end.

    Nor put it off: when `within_ms` have passed, whatever still runs is left, and the process
    ends for this reason; None is no limit. `unresolved` are the requests that get no outcome.
    They are told, and so is the reason, before anything runs.
    """

    reason: ExitReason
    unresolved: tuple[RequestRef, ...] = ()
    within_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process so that its DOWN says `reason`."""

    reason: ExitReason


Effect: TypeAlias = (
    SendAdmission
    | SendEvent
    | SendCompletion
    | Reply
    | StartTurn
    | CancelTurn
    | KeepTurn
    | DropTurn
    | AbandonTurn
    | ArmDeadline
    | DisarmDeadline
    | Invoke
    | Emit
    | Leaving
    | Terminate
    | Exit
)
