"""Why something was refused, failed or ended: one closed vocabulary of values.

Every reason has a `code`, which callers branch on, and prints as one line. The
structured ones carry their numbers; none carries a prompt, a state or an event
body. A code this version does not know is never read as success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from genagent_protocol.plain import FrozenDict, Plain, printable

#: Reasons that are nothing but their code.
Code = Literal[
    # The request was not accepted.
    "not_found",
    "halted",
    "draining",
    "not_alive",
    "unknown_request",
    "malformed_request",
    "duplicate_ref",
    "inbox_full",
    "shutting_down",
    "not_allowed",
    "self_call",
    "self_stop",
    # A turn ended so.
    "pre_turn_skipped",
    "pre_turn_halted",
    "pre_turn_invalid",
    "task_supervisor_unavailable",
    "no_terminal_event",
    "unknown",
    "timeout",
    "interrupted",
    "cancelled",
    "unsupported_checkpoint",
    "invalid_session_id",
    "conflicting_session_id",
    "checkpoint_failed",
    "state_not_copyable",
    # A control call was answered so.
    "busy",
    "unsupported",
    "invalid_reset_result",
    "not_current",
]


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason that needs no numbers: its code says all."""

    code: Code

    def __str__(self) -> str:
        return self.code


@dataclass(frozen=True, slots=True, kw_only=True)
class Overloaded:
    """An item did not fit a bound; nothing of it was kept."""

    code: ClassVar[Literal["overloaded"]] = "overloaded"

    queue: Literal["prompts", "notifications", "self_chain"]
    limit: Literal["count", "bytes"]
    pending_count: int
    pending_bytes: int
    incoming_bytes: int
    max_count: int
    max_bytes: int

    def __str__(self) -> str:
        return (
            f"overloaded: {self.queue} {self.limit} limit "
            f"(pending {self.pending_count} of {self.max_count}, "
            f"{self.pending_bytes} + {self.incoming_bytes} of {self.max_bytes} bytes)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCaptureOverflow:
    """A turn produced more events than it may keep; the rejected one is not in here."""

    code: ClassVar[Literal["event_capture_overflow"]] = "event_capture_overflow"

    limit: Literal["events", "bytes"]
    max_events: int
    max_bytes: int
    retained_events: int
    retained_bytes: int
    rejected_event_kind: str
    rejected_event_bytes: int

    def __str__(self) -> str:
        return (
            f"event_capture_overflow: {self.limit} limit at a "
            f"{printable(self.rejected_event_kind)} event of {self.rejected_event_bytes} bytes "
            f"(retained {self.retained_events} of {self.max_events} events, "
            f"{self.retained_bytes} of {self.max_bytes} bytes); raise the limit "
            f"{'max_events_per_turn' if self.limit == 'events' else 'max_event_bytes_per_turn'}, "
            f"or keep a prefix with event_retention=compact"
        )


@dataclass(frozen=True, slots=True)
class TaskCrashed:
    """The turn's code raised; `error` is the exception's class, `message` what it said."""

    code: ClassVar[Literal["task_crashed"]] = "task_crashed"

    error: str
    message: str = ""

    def __str__(self) -> str:
        said = f"{self.error}: {self.message}" if self.message else self.error
        return f"task_crashed: {printable(said)}"


@dataclass(frozen=True, slots=True)
class PreTurnCrashed:
    """`pre_turn` raised on a prompt that no caller waits for; `error` is the class."""

    code: ClassVar[Literal["pre_turn_crashed"]] = "pre_turn_crashed"

    error: str

    def __str__(self) -> str:
        return f"pre_turn_crashed: {printable(self.error)}"


@dataclass(frozen=True, slots=True)
class BackendFailed:
    """The backend's own reason, as it gave it."""

    code: ClassVar[Literal["backend_failed"]] = "backend_failed"

    reason: Plain

    def __str__(self) -> str:
        return f"backend_failed: {printable(self.reason)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendError:
    """A provider's failure in normal form. Nothing was retried.

    `retry_after` is the header's text, unparsed. `message` and `raw` come from
    the provider and are not for logs.
    """

    code: ClassVar[Literal["backend_error"]] = "backend_error"

    provider: str
    kind: str
    retryable: bool
    status: int | None = None
    retry_after: str | None = None
    message: str = ""
    raw: Plain = None

    def __str__(self) -> str:
        status = f" (status {self.status})" if self.status is not None else ""
        said = f": {self.message}" if self.message else ""
        return printable(f"{self.provider} {self.kind}{status}{said}")


@dataclass(frozen=True, slots=True)
class PayloadTooLarge:
    """Something was larger than one message may be."""

    code: ClassVar[Literal["payload_too_large"]] = "payload_too_large"

    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return f"payload_too_large: {self.size_bytes} bytes, the limit is {self.limit_bytes}"


@dataclass(frozen=True, slots=True)
class ResetFailed:
    """`reset_session` of the backend raised; the session is as it was."""

    code: ClassVar[Literal["backend_reset_failed"]] = "backend_reset_failed"

    error: str

    def __str__(self) -> str:
        return f"backend_reset_failed: {printable(self.error)}"


@dataclass(frozen=True, slots=True)
class ExitReason:
    """How one life of an agent ended, as the DOWN says it.

    `text` is one of `normal`, `shutdown`, `exit:N`, `signal:N`, `pre_run_failed`,
    `pre_run_crashed`, `pre_run_invalid`, `callback_failed`, `turn_stuck`,
    `registry_lost`, `protocol_abuse`, `noproc`, `noconnection`. `detail` belongs
    to the structured ones.
    """

    text: str
    detail: Plain = None

    def __str__(self) -> str:
        text = printable(self.text)
        return text if self.detail is None else f"{text}: {printable(_told(self.detail))}"


def _told(detail: Plain) -> Plain:
    """Return a detail for people: a mapping as its keys and values, anything else as it is."""
    if not isinstance(detail, FrozenDict):
        return detail
    said = {key: value if isinstance(value, str) else repr(value) for key, value in detail.items()}
    return ", ".join(f"{key} {text}" for key, text in said.items())


@dataclass(frozen=True, slots=True)
class AgentTerminated:
    """An ask was still unanswered when its agent ended in an orderly way."""

    code: ClassVar[Literal["agent_terminated"]] = "agent_terminated"

    reason: ExitReason

    def __str__(self) -> str:
        return f"agent_terminated: {self.reason}"


#: Why a turn failed: what a completion, a poll and `handle_error` may carry.
Failure: TypeAlias = (
    Reason
    | Overloaded
    | EventCaptureOverflow
    | TaskCrashed
    | PreTurnCrashed
    | BackendFailed
    | BackendError
    | PayloadTooLarge
    | ResetFailed
    | AgentTerminated
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartError:
    """Why an agent could not be started; no process of it is left and its name is free.

    `message` is one printable line that says what, where and what to do; `log` names the
    file that holds what the process printed, when there is one.
    """

    kind: Literal[
        "init_failed",
        "init_agent_failed",
        "backend_start_failed",
        "unsupported_resume",
        "unknown_agent",
        "unknown_backend",
        "import_failed",
        "invalid_option",
        "already_started",
        "start_timeout",
        "exited",
        "resource_exhausted",
        "shutting_down",
        "group_not_running",
        "not_allowed",
        "invalid_limits",
        "bad_directory",
        "state_not_copyable",
    ]
    message: str
    detail: Plain = None
    log: str | None = None

    def __post_init__(self) -> None:
        # Here, because what code of others said is in many of them.
        object.__setattr__(self, "message", printable(self.message))

    @property
    def code(self) -> str:
        """The kind, under the name that every reason has."""
        return self.kind

    def __str__(self) -> str:
        said = f"{self.kind}: {self.message}" + (f" (see {self.log})" if self.log else "")
        return printable(said)


NOT_FOUND = Reason("not_found")
HALTED = Reason("halted")
DRAINING = Reason("draining")
SHUTTING_DOWN = Reason("shutting_down")
DUPLICATE_REF = Reason("duplicate_ref")
NOT_CURRENT = Reason("not_current")
UNSUPPORTED_CHECKPOINT = Reason("unsupported_checkpoint")
INVALID_SESSION_ID = Reason("invalid_session_id")
CONFLICTING_SESSION_ID = Reason("conflicting_session_id")
CHECKPOINT_FAILED = Reason("checkpoint_failed")
UNKNOWN = Reason("unknown")
TIMEOUT = Reason("timeout")
INTERRUPTED = Reason("interrupted")
CANCELLED = Reason("cancelled")
NO_TERMINAL_EVENT = Reason("no_terminal_event")
PRE_TURN_SKIPPED = Reason("pre_turn_skipped")
PRE_TURN_HALTED = Reason("pre_turn_halted")
PRE_TURN_INVALID = Reason("pre_turn_invalid")
TASK_SUPERVISOR_UNAVAILABLE = Reason("task_supervisor_unavailable")

NORMAL = ExitReason("normal")
SHUTDOWN = ExitReason("shutdown")
NOPROC = ExitReason("noproc")
NOCONNECTION = ExitReason("noconnection")
TURN_STUCK = ExitReason("turn_stuck")
#: The texts of the ends that an agent came to in order; every other end went wrong.
ORDERLY = frozenset({NORMAL.text, SHUTDOWN.text})
