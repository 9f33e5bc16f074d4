"""What an agent is to its author: one class, whose methods say what happens between turns.

Every callback gets the agent's state last and gives the next one back inside its
answer; nothing else is remembered. All but `handle_response` have defaults that do
nothing. A callback may be `def` or `async def`; either way the agent does nothing
else until it is back, so a slow one makes every caller wait.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from genagent_protocol.events import Event, Outcome, Response
from genagent_protocol.failed import Failed
from genagent_protocol.plain import FrozenDict, Loose, Plain
from genagent_protocol.reasons import ExitReason, Failure
from genagent_protocol.refs import RequestRef
from genagentd.agent.class_names import kind_of

if TYPE_CHECKING:
    from genagentd.agent.context import Context

__all__ = [
    "Agent",
    "Failed",
    "Halt",
    "NoReply",
    "Ok",
    "Prompt",
    "Run",
    "Skip",
    "Started",
]

S = TypeVar("S")
T = TypeVar("T")

#: What a callback may return: its answer, or something to await for it.
Answer: TypeAlias = T | Awaitable[T]


# Answers


@dataclass(frozen=True, slots=True)
class Started(Generic[S]):
    """`init_agent` is done: the options of the backend, and the first state."""

    backend_options: Mapping[str, object]
    state: S


@dataclass(frozen=True, slots=True)
class NoReply(Generic[S]):
    """Nothing follows; the agent takes what waits."""

    state: S


@dataclass(frozen=True, slots=True)
class Prompt(Generic[S]):
    """Another prompt follows.

    After a turn that is a follow-up, ahead of everything that waits, or the next
    attempt of the request that failed. From an event or a message it is new work.
    """

    text: str
    state: S


@dataclass(frozen=True, slots=True)
class Halt(Generic[S]):
    """The agent freezes: it goes on admitting, and starts nothing until it is resumed."""

    state: S


@dataclass(frozen=True, slots=True)
class Run(Generic[S]):
    """`pre_turn` lets the turn start, with this prompt."""

    prompt: str
    state: S


@dataclass(frozen=True, slots=True)
class Skip(Generic[S]):
    """`pre_turn` declines this prompt; its request fails with `pre_turn_skipped`."""

    state: S


@dataclass(frozen=True, slots=True)
class Ok(Generic[S]):
    """A hook is done."""

    state: S


Following: TypeAlias = NoReply[S] | Prompt[S] | Halt[S]
Gate: TypeAlias = Run[S] | Skip[S] | Halt[S]


class Agent(ABC, Generic[S]):
    """Derive from this; the framework makes one instance for each life of the agent.

    `handle_response` is the one callback that you have to write. All others,
    `init_agent` among them, have defaults; override what you need.

    Keep what must be remembered in the state: a turn that crashes, is interrupted
    or times out leaves the state of its dispatch, whatever `handle_stream_event`
    did meanwhile. An instance attribute knows no such thing.

    Return a new state instead of changing the one you get: after a callback that
    raises the agent goes on with the state object from before, and what was changed
    in it before the raise stays changed. Only `handle_stream_event` gets a copy.

    A method `handle_info(self, message, state)`, answering like `handle_event`,
    receives messages: completions and events of prompts this agent sent to others,
    and the `Down` of agents it watches. There is no default; without one, messages
    are dropped and logged.
    """

    #: Who the agent is and whom it can talk to; there from `init_agent` on.
    context: Context

    def init_agent(self, options: FrozenDict, /) -> Answer[Started[S] | Failed]:
        """Return the backend's options and the first state, or why there is no starting.

        *options* are the start options without the limits. The default hands all
        of them to the backend and has no state (None). Whoever overrides this hands
        them on, `Started(options, state)`: what it leaves out reaches nobody.
        """
        return Started(options, cast("S", None))

    @abstractmethod
    def handle_response(
        self, ref: RequestRef, response: Response, state: S, /
    ) -> Answer[Following[S]]:
        """Decide what follows a turn that succeeded.

        This is the one callback without a guard: if it raises or answers anything
        else, the agent exits (`callback_failed`) and nothing of the turn is delivered.
        """

    def handle_error(self, _ref: RequestRef, _reason: Failure, state: S, /) -> Answer[Following[S]]:
        """Decide what follows a turn that failed, or a generated prompt that became none.

        A `Prompt` is the next attempt of the same request, unless it was interrupted.
        """
        return NoReply(state)

    def handle_event(self, _event: Plain, state: S, /) -> Answer[Following[S]]:
        """Handle a notification; the ones of a turn come after it, in their order."""
        return NoReply(state)

    def handle_stream_event(self, _event: Event, state: S, /) -> Answer[S]:
        """Return the state after *event* of the running turn.

        This runs in the turn's thread, on a copy of the state, and may block
        without making anybody wait. If it raises, the turn fails.
        """
        return state

    def pre_run(self, state: S, /) -> Answer[Ok[S] | Failed]:
        """Prepare the agent, once, before its first turn; failing ends it."""
        return Ok(state)

    def pre_turn(self, prompt: str, state: S, /) -> Answer[Gate[S]]:
        """Let *prompt* run, rewritten or not, decline it, or halt."""
        return Run(prompt, state)

    def post_turn(self, _outcome: Outcome, _ref: RequestRef, state: S, /) -> Answer[Ok[S]]:
        """See a turn off, after the decision, which stands whatever this returns."""
        return Ok(state)

    def post_run(self, _state: S, /) -> Answer[object]:
        """See a run off, when the agent has halted. What it returns is not looked at."""
        return None

    def terminate_agent(self, _reason: ExitReason, _state: S, /) -> Answer[object]:
        """Clean up before an end that was decided. A killed agent never gets here.

        The end waits for this and for `terminate_session`, together, for `shutdown_ms` at most;
        code that still blocks then is ended with its process. Whatever it returns or raises, the
        reason stays; only where it ends the process itself (`os._exit`) the kernel's word counts.
        """
        return None

    def copy_state(self, state: S, /) -> S:
        """Return a copy of *state* that a turn may change without changing *state*."""
        return copy.deepcopy(state)

    def show_state(self, state: S, /) -> Loose:
        """Return what outsiders may see of *state*: plain data. The type's name by default."""
        return kind_of(state)


AnyAgent: TypeAlias = Agent[Any]
