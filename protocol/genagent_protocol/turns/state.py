"""The agent as a value: its step, its queues, its flags. Nothing in here acts.

The step says what the agent waits for. In `Ready`, `Running` and `Stopping` it
answers anything; `Starting` waits for the turn's start alone, and every other step
for one callback. `phase` and the snapshot are projections of this value. The
user's state and the backend's session are not in it: the shell keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from genagent_protocol.bounds import Bound, Limits, Queue, Usage, admit, hold, release
from genagent_protocol.events import Completed, Outcome
from genagent_protocol.reasons import ExitReason, Overloaded, Reason
from genagent_protocol.turns.decisions import CallbackName, Decision
from genagent_protocol.turns.effects import Effect, HandleEvent, HandleInfo
from genagent_protocol.turns.requests import CallId, Request
from genagent_protocol.turns.results import Results


class Weighed(Protocol):
    """Something that counts bytes while it waits."""

    @property
    def size_bytes(self) -> int:
        """What it counts, measured once when it was admitted."""
        ...


Item = TypeVar("Item", bound=Weighed)


@dataclass(frozen=True, slots=True)
class Offers:
    """Which of the optional callbacks this agent and its backend have."""

    handle_info: bool = False
    checkpoint_session: bool = False
    reset_session: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """A notification, and what it counts while it waits for the end of the turn."""

    callback: HandleEvent | HandleInfo
    size_bytes: int = 0
    owed: bool = False


@dataclass(frozen=True, slots=True)
class Waiting(Generic[Item]):
    """A first-in-first-out queue with its running totals."""

    items: tuple[Item, ...] = ()
    usage: Usage = field(default_factory=Usage)

    def push(self, item: Item, bound: Bound, queue: Queue) -> Waiting[Item] | Overloaded:
        """Return the queue with *item* at its tail, or why it does not fit."""
        usage = admit(self.usage, item.size_bytes, bound, queue)
        return usage if isinstance(usage, Overloaded) else Waiting((*self.items, item), usage)

    def append(self, item: Item) -> Waiting[Item]:
        """Return the queue with *item* at its tail, whether it fits or not."""
        return Waiting((*self.items, item), hold(self.usage, item.size_bytes))

    def take(self) -> tuple[Item, Waiting[Item]]:
        """Return the head and the queue without it, its room given back."""
        head = self.items[0]
        return head, Waiting(self.items[1:], release(self.usage, head.size_bytes))

    def without(self, gone: Sequence[Item]) -> Waiting[Item]:
        """Return the queue without the items *gone*, their room given back."""
        usage = self.usage
        for item in gone:
            usage = release(usage, item.size_bytes)
        identities = set(map(id, gone))
        return Waiting(tuple(item for item in self.items if id(item) not in identities), usage)


# The turn in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One attempt of a request that was dispatched.

    `prompt` is what the backend was given. `checkpoint` is the provider's session
    id once one was accepted, `refusal` the first one that was not. `interrupts`
    are the calls to be answered when the turn has ended and been dealt with.
    """

    number: int
    request: Request
    prompt: str
    checkpoint: str | None = None
    refusal: Reason | None = None
    interrupts: tuple[CallId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A turn that is over: what its callbacks are told, and what its caller will be.

    The two differ only if the outcome is too large to be sent. `started` is false
    if the turn's code never ran.
    """

    turn: Turn
    outcome: Outcome
    delivered: Outcome
    started: bool = True


# Steps


@dataclass(frozen=True, slots=True)
class Opening:
    """`pre_run` is running; nothing was dispatched yet."""

    name: ClassVar[str] = "pre_run"
    callback: ClassVar[CallbackName] = "pre_run"


@dataclass(frozen=True, slots=True)
class Ready:
    """Idle. Unless halted or pacing itself, the agent has no work waiting."""

    name: ClassVar[str] = "ready"


@dataclass(frozen=True, slots=True)
class Gating:
    """`pre_turn` is looking at a request; `then` is said as soon as it came back."""

    name: ClassVar[str] = "pre_turn"
    callback: ClassVar[CallbackName] = "pre_turn"
    request: Request
    then: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Starting:
    """A turn was ordered and has not reported its start."""

    name: ClassVar[str] = "start_turn"
    turn: Turn


@dataclass(frozen=True, slots=True)
class Running:
    """A turn is in flight."""

    name: ClassVar[str] = "running"
    turn: Turn


@dataclass(frozen=True, slots=True)
class Stopping:
    """The turn was told to stop and its code may still run.

    `why` will be its outcome, whatever it still produces. Without one the agent
    is leaving, and nobody is told an outcome.
    """

    name: ClassVar[str] = "stopping"
    turn: Turn
    why: Reason | None


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """`checkpoint_session` is applying an id while the turn of `back` goes on."""

    name: ClassVar[str] = "checkpoint_session"
    callback: ClassVar[CallbackName] = "checkpoint_session"
    back: Running | Stopping
    call: CallId
    session_id: str


@dataclass(frozen=True, slots=True)
class Deciding:
    """`handle_response` or `handle_error` is looking at the outcome of a turn."""

    name: ClassVar[str] = "decide"
    ending: Ending

    @property
    def callback(self) -> CallbackName:
        """Which of the two it is."""
        succeeded = isinstance(self.ending.outcome, Completed)
        return "handle_response" if succeeded else "handle_error"


@dataclass(frozen=True, slots=True)
class Wrapping:
    """`post_turn` is running; it cannot change the decision."""

    name: ClassVar[str] = "post_turn"
    callback: ClassVar[CallbackName] = "post_turn"
    ending: Ending
    decision: Decision


@dataclass(frozen=True, slots=True)
class Noticing:
    """A notification is being handled; `immediate` if no turn kept it waiting."""

    name: ClassVar[str] = "handle_event"
    deferred: Deferred
    immediate: bool = False
    call: CallId | None = None

    @property
    def callback(self) -> CallbackName:
        """`handle_event` or `handle_info`."""
        return self.deferred.callback.name


@dataclass(frozen=True, slots=True)
class Reporting:
    """`handle_error` is told that a generated prompt became no turn.

    `gated` if its gate refused it, else it did not fit.
    """

    name: ClassVar[str] = "report"
    callback: ClassVar[CallbackName] = "handle_error"
    request: Request
    gated: bool


@dataclass(frozen=True, slots=True)
class Finishing:
    """`post_run` is running, at the end of a halt transition."""

    name: ClassVar[str] = "post_run"
    callback: ClassVar[CallbackName] = "post_run"


@dataclass(frozen=True, slots=True)
class Resetting:
    """The backend is making a new session."""

    name: ClassVar[str] = "reset_session"
    callback: ClassVar[CallbackName] = "reset_session"
    call: CallId


@dataclass(frozen=True, slots=True)
class Exited:
    """`Exit` was ordered. Nothing can happen any more."""

    name: ClassVar[str] = "exited"
    reason: ExitReason


OpenStep: TypeAlias = Ready | Running | Stopping
CallbackStep: TypeAlias = (
    Opening
    | Gating
    | Checkpointing
    | Deciding
    | Wrapping
    | Noticing
    | Reporting
    | Finishing
    | Resetting
)
Step: TypeAlias = OpenStep | Starting | CallbackStep | Exited


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Everything the rules know about one agent.

    `turns` is the number of the newest turn. `draining` and `leaving` hold the
    exit reason: a draining agent finishes its turn first, a leaving one only waits
    for the turn's code to stop. `chain` is the reserved slot: a follow-up, or the
    next attempt of a request. `paced` while that slot waits out its pause. `held`
    is said when the agent becomes idle; `post_run_due` while a halt transition is
    under way.
    """

    limits: Limits
    offers: Offers = field(default_factory=Offers)
    step: Step = field(default_factory=Opening)
    turns: int = 0
    halted: bool = False
    halt_pending: bool = False
    draining: ExitReason | None = None
    leaving: ExitReason | None = None
    turns_refused: bool = False
    paced: bool = False
    chain: Request | None = None
    prompts: Waiting[Request] = field(default_factory=Waiting)
    notifications: Waiting[Deferred] = field(default_factory=Waiting)
    results: Results = field(default_factory=Results)
    held: tuple[Effect, ...] = ()
    post_run_due: bool = False

    @property
    def turn(self) -> Turn | None:
        """The turn in flight, as callers may see it: running or stopping."""
        return self.step.turn if isinstance(self.step, (Running, Stopping)) else None


class Advance(NamedTuple):
    """What an input made of an agent: the next value, and what is to be done."""

    agent: Agent
    effects: tuple[Effect, ...] = ()

    def after(self, *effects: Effect) -> Advance:
        """Return the same with *effects* done first."""
        return Advance(self.agent, (*effects, *self.effects)) if effects else self
