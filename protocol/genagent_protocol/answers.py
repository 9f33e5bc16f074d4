"""What a call is answered with: typed values, so that every caller has to look at them.

An answer is sent exactly once for each call that is answered at all; a call whose
agent ends first gets none, and its caller learns the end instead. `Refused` says
that nothing was accepted. An `ask` is answered by its outcome (`events.Completed`
or `events.Failed`), which is not a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_protocol.events import Completed, Failed, Response
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import ExitReason, Failure, StartError
from genagent_protocol.refs import AgentHandle, RequestRef

Phase: TypeAlias = Literal["idle", "processing"]
#: Who asked for a prompt: a caller that waits, a caller that does not, an event or
#: message handled by the agent, or the agent's own decision after a turn.
Origin: TypeAlias = Literal["ask", "tell", "event", "self_chain"]


@dataclass(frozen=True, slots=True)
class Ok:
    """It was done, or accepted where the call is documented to mean acceptance."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The call was not accepted and left no trace; `reason` is why."""

    reason: Failure


@dataclass(frozen=True, slots=True)
class PollPending:
    """The request is queued, running, or between two attempts."""


@dataclass(frozen=True, slots=True)
class PollCompleted:
    """The request ended well and its result is still remembered."""

    response: Response


@dataclass(frozen=True, slots=True)
class PollFailed:
    """The request ended with `reason` and that is still remembered."""

    reason: Failure


@dataclass(frozen=True, slots=True)
class NotFound:
    """This agent knows no such request: not processed yet, rejected, unknown or evicted.

    It is not evidence that the request was cancelled or never accepted.
    """


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """What became of a cancellation.

    `current` means that the request is the active turn, which only an interrupt
    stops; `not_found` covers everything that cannot be cancelled by ref.
    """

    result: Literal["cancelled", "current", "already_finished", "not_found"]


@dataclass(frozen=True, slots=True)
class InterruptAnswer:
    """What became of an exact interrupt.

    `accepted` comes after the turn's code has really ended and the error path has
    run. It does not say that a provider outside this process has settled.
    """

    result: Literal["accepted", "not_current", "idle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRequest:
    """The active turn in a snapshot. `watchdog_ms` is None when there is no limit."""

    ref: RequestRef
    origin: Origin
    attempt: int
    elapsed_ms: int
    watchdog_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the agent's coordinator is doing: counts and identities, no payload.

    A point-in-time observation. It is not durable and not permission to dispatch.
    """

    phase: Phase
    halted: bool
    halt_pending: bool
    draining: bool
    pending_prompts: int
    pending_notifications: int
    self_chain_pending: bool
    current_request: CurrentRequest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The agent's short description.

    `agent_state` is what the agent's `show_state` makes of its retained state, not
    a live read of a turn in flight.
    """

    state: Phase
    name: Plain
    queued: int
    current_request: RequestRef | None
    halted: bool
    halt_pending: bool
    draining: bool
    agent_state: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class UiAttached:
    """The session is open; these are the functions the agent offers in it."""

    functions: tuple[str, ...] = ()


#: Everything that one agent answers a call with.
AgentAnswer: TypeAlias = (
    Ok
    | Refused
    | Completed
    | Failed
    | PollPending
    | PollCompleted
    | PollFailed
    | NotFound
    | CancelAnswer
    | InterruptAnswer
    | Snapshot
    | Status
    | UiAttached
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The handle of the living agent of that name, if there is one."""

    handle: AgentHandle | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """What the daemon knows of one agent.

    `reason` is how its latest life ended, `error` why it could not be started again.
    `group_owner_pid` is the process that opened its group, while it is connected.
    `watchdog_ms` is how long a turn of it may last, None without a limit.
    `age_ms` is the age of its life or, when it is `restarting` or `failed`, of that end.
    `unresponsive_since_ms` is how long ago the oldest unanswered control call was
    sent, by the daemon's clock; it never means death.
    """

    name: Plain
    state: Literal["starting", "running", "stopping", "exited", "restarting", "failed"]
    handle: AgentHandle | None = None
    agent: str | None = None
    backend: str = ""
    group: int | None = None
    age_ms: int = 0
    restarts: int = 0
    reason: ExitReason | None = None
    error: StartError | None = None
    unresponsive_since_ms: int | None = None
    log: str | None = None
    group_owner_pid: int | None = None
    watchdog_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Every agent the daemon knows of."""

    rows: tuple[AgentRow, ...]
