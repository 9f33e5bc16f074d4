"""Every message of the protocol as a frozen value, and who may say it to whom.

`ToDaemon`, `ToAgent` and `ToClient` are the three unions; a peer that hears
anything else answers that it does not know the type. What each message promises is
in `protocol/SPEC.md`, row by row; the fields here are the rows' fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from genagent_protocol.answers import AgentAnswer, Found, Listing
from genagent_protocol.events import Event, Outcome
from genagent_protocol.plain import EMPTY, FrozenDict, Plain
from genagent_protocol.reasons import ExitReason, Failure, Reason, StartError
from genagent_protocol.refs import (
    Address,
    AgentHandle,
    BootId,
    Incarnation,
    MailboxAddress,
    MonitorRef,
    RequestRef,
)
from genagent_protocol.requests import AgentRequest, DaemonRequest, StartAgent
from genagent_protocol.supervision.effects import GroupRunning, NotStarted, Started, Stopped

#: The versions this side speaks. One number is one promise of compatibility.
MIN_VERSION = 1
MAX_VERSION = 1


# --- the frozen core: the same for every version ------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Anyone → daemon or agent: answer `Pong` at once; no work is done."""

    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    """The answer to `Ping`, with the versions the answering side speaks."""

    # No defaults: they are left out on the wire, and these differ from version to version.
    call: int
    min_version: int
    max_version: int

    @classmethod
    def to(cls, ping: Ping) -> Pong:
        """Return this side's answer to *ping*."""
        return cls(call=ping.call, min_version=MIN_VERSION, max_version=MAX_VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreStatus:
    """Client → daemon: who are you? Answered for every version."""

    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreState:
    """Daemon → client: the answer to `CoreStatus`."""

    call: int
    pid: int
    boot: BootId
    software: str
    ready: bool
    draining: bool
    agents: int
    clients: int
    uptime_ms: int
    bad_frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreStop:
    """Client → daemon: shut down; with `force` without the grace period."""

    call: int
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Daemon → client: the answer to `CoreStop`; the connection ends when it is done."""

    call: int


# --- connection ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Client → daemon, first of all: the versions I speak."""

    min_version: int
    max_version: int
    software: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Daemon → client: the version we speak, and who you are on this connection."""

    version: int
    boot: BootId
    mailbox: MailboxAddress
    place: str
    software: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRefused:
    """Daemon → client: we share no version; nothing but the core will be answered."""

    min_version: int
    max_version: int
    software: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """Daemon → client: you did not read, so what waited is gone and this connection is over."""

    waiting_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Receiver → sender of one connection: how much I have taken in so far, in total."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownType:
    """Anyone → sender: I do not know the type `tag`; nothing was done."""

    tag: str
    call: int | None = None


# --- client or agent → daemon ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Client or agent → daemon: do this and answer under `call`."""

    call: int
    request: DaemonRequest


# --- agent → daemon -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Agent → daemon: `init_agent` and the session are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRefused:
    """Agent → daemon: I cannot start; I exit now."""

    error: StartError


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Agent → daemon: asked to end, I hold these accepted requests without a completion.

    Said at once, since the agent may be killed before it can say `Exiting`: then this list
    is accounted for.
    """

    unresolved: tuple[RequestRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exiting:
    """Agent → daemon: why I exit. Believed only with the reserved exit status or signal.

    Said before the termination callbacks, which may not come back in time.
    `unresolved` are the accepted requests that got no outcome; they are
    accounted for in the daemon's log and nowhere else.
    """

    reason: ExitReason
    unresolved: tuple[RequestRef, ...] = ()


#: The event of the record that counts those of its agent that gave way.
RECORDS_LOST = "telemetry.lost"
#: More records than any agent loses; whoever counts more is not believed.
_MAX_LOST = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Agent → daemon → subscribers: something happened. Content-free when `turn.*`."""

    event: str
    agent: Plain
    incarnation: Incarnation | None = None
    measurements: FrozenDict = EMPTY
    metadata: FrozenDict = EMPTY

    @property
    def records(self) -> int:
        """How many records this stands for: itself, or those that it counts as lost."""
        count = self.measurements.get("count") if self.event == RECORDS_LOST else None
        return count if type(count) is int and 0 < count < _MAX_LOST else 1


ToDaemon = (
    Hello
    | Ping
    | CoreStatus
    | CoreStop
    | Credit
    | Request
    | Ready
    | StartRefused
    | Leaving
    | Exiting
    | Pong
    | Telemetry
    | UnknownType
)


# --- client or agent → agent ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Run this prompt; admission and completion go to `recipient`, events to `stream_to`.

    `deadline_ms`, `trace_id` and `idempotency_key` are reserved: carried, not acted on.
    """

    ref: RequestRef
    prompt: str
    recipient: Address
    on_halt: Literal["queue", "fail"] = "queue"
    stream_to: Address | None = None
    deadline_ms: int | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Handle this event; best effort, nothing is answered."""

    event: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Stop whatever turn is active; nothing when idle, nothing is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Go on after a halt; nothing is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Halt, after the active turn if there is one; nothing is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Client or agent → agent: answer this under `call`."""

    call: int
    request: AgentRequest


# --- sessions of function calls (A2UI), client ⇄ agent ---------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UiMessage:
    """One A2UI message of an attached session, untouched; the header says which session.

    To an agent the session is the header's `ref`, a box of the sending connection;
    to a client it is the mailbox in `to`.
    """

    message: FrozenDict


@dataclass(frozen=True, slots=True, kw_only=True)
class UiDetach:
    """Client → agent: the session that the header's `ref` names is over; nothing is answered."""


# --- daemon → agent -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHello:
    """Daemon → agent, first of all: who you are and what to start.

    With `telemetry` someone watches already, until `TelemetryWanted` says otherwise.
    """

    incarnation: Incarnation
    place: str
    start: StartAgent
    telemetry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Daemon → agent: exit in an orderly way, for this reason.

    With `drain` refuse new work and finish the active turn first.
    """

    reason: ExitReason
    drain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseTurns:
    """Daemon → agent: your group is closing; start no more turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerDown:
    """Daemon → agent: that client connection, or agent, is gone; drop its queued asks."""

    caller: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryWanted:
    """Daemon → agent: send (or stop sending) telemetry records."""

    on: bool


# --- → client (and → agent, where one is the recipient) -------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The decision about one submission: accepted when `refused` is None."""

    agent: Plain
    ref: RequestRef
    refused: Failure | None = None

    @property
    def accepted(self) -> bool:
        """Whether the request was accepted."""
        return self.refused is None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMessage:
    """One event of a request's turn, in stream order."""

    agent: Plain
    ref: RequestRef
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The final outcome of an accepted request; at most one, none after a rejection."""

    agent: Plain
    ref: RequestRef
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """That incarnation is gone and everything it had sent was delivered before this.

    This does not say that a provider has settled.
    """

    monitor: MonitorRef
    handle: AgentHandle
    reason: ExitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Events `first` to `last` of this request's stream were dropped on the way to you."""

    ref: RequestRef | None
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Undeliverable:
    """Daemon → client: that submission never reached its agent; it was never accepted."""

    agent: Plain
    ref: RequestRef
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class UiUndeliverable:
    """Daemon → client: a message of that session never reached its agent."""

    session: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryLost:
    """Daemon → subscriber: so many telemetry records were dropped since the last one."""

    count: int


DaemonAnswer = Started | NotStarted | Stopped | Found | Listing | GroupRunning


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to one call or request, under its number. Late ones are dropped."""

    call: int
    answer: AgentAnswer | DaemonAnswer


ToAgent = (
    AgentHello
    | StopAsked
    | RefuseTurns
    | CallerDown
    | TelemetryWanted
    | Ping
    | Credit
    | Submit
    | Notify
    | Interrupt
    | Resume
    | Halt
    | Call
    | UiMessage
    | UiDetach
    | Reply
    | Admission
    | EventMessage
    | Completion
    | Down
    | Gap
    | Undeliverable
    | UnknownType
)

#: What an agent may say to a client or to another agent; everything else is the daemon's.
FromAgent = Reply | Admission | EventMessage | Completion | Gap | UiMessage

ToClient = (
    Welcome
    | VersionRefused
    | Pong
    | CoreState
    | Stopping
    | CutOff
    | Credit
    | Reply
    | Admission
    | EventMessage
    | Completion
    | Down
    | Gap
    | Undeliverable
    | UiMessage
    | UiUndeliverable
    | Telemetry
    | TelemetryLost
    | UnknownType
)
