"""What can be asked for: of the daemon inside a `Request`, of an agent inside a `Call`.

Every request is answered exactly once, under the number of the message that carried
it, unless the side that was asked ends first. The answers are in `answers.py` and, for
what the supervision decides, in `supervision/effects.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from genagent_protocol.plain import EMPTY, FrozenDict, Plain
from genagent_protocol.refs import Address, AgentHandle, MonitorRef, RequestRef
from genagent_protocol.supervision.terms import TEMPORARY, RestartPolicy

# --- of the daemon ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAgent:
    """Start an agent; answered by `Started` when it is ready, else by `NotStarted`.

    `agent` is `package.module:Class`, None for the plain agent. `options` holds the
    limits and whatever its `init_agent` takes. `session` names a recorded session
    of the backend to resume. `cwd` becomes its working directory and the head of
    its import path; `env` is added to the allow-listed environment.
    """

    name: Plain
    agent: str | None
    backend: str
    options: FrozenDict = EMPTY
    cwd: str | None = None
    env: FrozenDict = EMPTY
    group: int | None = None
    restart: RestartPolicy = TEMPORARY
    start_timeout_ms: int = 60_000
    session: str | None = None
    may_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAgent:
    """Stop the agent of that name in that group (None: the global one).

    Answered by `Stopped` when it is gone and its name free, or `Refused(not_found)`.
    """

    name: Plain
    group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereis:
    """Answered by `Found`: the handle of the ready, living agent of that name, or none."""

    name: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAgents:
    """Answered by `Listing`; a point-in-time view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorAgent:
    """Send exactly one `Down` with this monitor when that incarnation is gone; answered by `Ok`.

    For a dead, unknown or foreign incarnation the `Down` says `noproc` and comes at once.
    """

    monitor: MonitorRef
    handle: AgentHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonitorAgent:
    """Forget that monitor; no `Down` of it is sent after the answer, `Ok`."""

    monitor: MonitorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGroup:
    """Open a group owned by this connection; answered by `GroupRunning`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseGroup:
    """End that group: its agents' turns are refused, then they stop; `Ok` when all are gone."""

    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTelemetry:
    """From the answer, `Ok`, on, send every telemetry record to this client until told off."""

    on: bool = True


DaemonRequest = (
    StartAgent
    | StopAgent
    | Whereis
    | ListAgents
    | MonitorAgent
    | DemonitorAgent
    | OpenGroup
    | CloseGroup
    | WatchTelemetry
)


# --- of an agent --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Run this prompt and answer with its outcome."""

    ref: RequestRef
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Accept this prompt, or say why not; the outcome is polled, or sent to `recipient`."""

    ref: RequestRef
    prompt: str
    recipient: Address | None = None
    on_halt: Literal["queue", "fail"] = "queue"
    stream_to: Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What is known of that ref?"""

    ref: RequestRef


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyAck:
    """Handle or retain this event, and say which, or why not."""

    event: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """Remove that queued request."""

    ref: RequestRef


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptRequest:
    """Stop the active turn if it is that request's."""

    ref: RequestRef


@dataclass(frozen=True, slots=True, kw_only=True)
class GetStatus:
    """The agent's phase, queue and `show_state`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSnapshot:
    """The coordinator's runtime snapshot; no payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetSession:
    """Start the backend's conversation anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Refuse new work, finish the active turn, exit `normal`; answered when draining."""


#: How many catalogs one session names at most, and how long their ids are together.
MAX_CATALOGS = 256
MAX_CATALOG_CHARACTERS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachUi:
    """Open a session of function calls with me: the box of my connection that hears it.

    `catalog_ids` are the catalogs whose functions I serve.
    """

    session: int
    catalog_ids: tuple[str, ...] = ()


AgentRequest = (
    Ask
    | Tell
    | Poll
    | NotifyAck
    | CancelRequest
    | InterruptRequest
    | GetStatus
    | GetSnapshot
    | ResetSession
    | Drain
    | AttachUi
)
