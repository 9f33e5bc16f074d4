"""The contract of a backend: five callbacks that turn one prompt into a stream of events.

A backend owns its session: it opens one, threads it through prompts, and closes
it. Everything else (queueing, retries, deadlines, capture limits, interruption) is
the agent's. A stream yields events in order and ends with exactly one terminal
event (`result` or `error`); a failure during the turn is a terminal `error`, not
an exception.

Which callback runs where: `prompt`, the stream and `update_session` run in the
turn thread with its own event loop; the others in the agent's coordinator, which
answers nobody meanwhile. Each may be `def` or `async def`. Do not keep anything in
a session that belongs to one event loop: the next turn may have another.

How a stream ends early: the agent cancels the task that reads it, once, and waits
a grace for it to end; after a terminal event, or when it wants no more, it closes
the stream (`aclose` of an asynchronous generator, `close` of a plain one). Either
way `finally` blocks run, and may await. A plain iterable that blocks can not be
interrupted; if it outlasts the grace, the agent process ends (`turn_stuck`).
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from genagent_protocol.events import Event
from genagent_protocol.failed import Failed as Failed
from genagent_protocol.plain import FrozenDict, Plain

#: What a backend keeps between turns. The agent threads it through and never looks inside.
#: One that is None stays None; a callback that gives None in place of another has forgotten it.
Session: TypeAlias = Any


def is_session(answer: object, before: Session) -> bool:
    """Whether a callback returned the session that follows *before*.

    It may be anything but a `Failed`, and None only where it was None before: any other
    backend that gives None back has forgotten to return the session.
    """
    return not isinstance(answer, Failed) and (answer is not None or before is None)


@dataclass(frozen=True, slots=True)
class Streaming:
    """The answer of `prompt`: the events to come, and the session for the next turn.

    `session` is kept if the stream comes to a terminal event or to its end, and
    dropped if the turn crashes, is interrupted or times out. The agent stamps
    `Event.at_ms`; leave it at 0. What a stream learns only while it runs goes into
    the data of its `result` event, from where `update_session` takes it.
    """

    events: AsyncIterable[Event] | Iterable[Event]
    session: Session


#: With which signal the end of a process begins.
FirstSignal: TypeAlias = Literal["SIGINT", "SIGTERM", "SIGKILL"]


class Process(Protocol):
    """A provider's process, begun for one turn or for a session.

    Its standard output and error are read through it; its whole process tree is
    ended with the turn (or the session) that began it, also what called setsid or
    forked twice. Nothing here says that a remote provider has settled.

    Every method may be awaited from the turn's loop and from the coordinator's, and
    `write` at the same time as `read`: a peer may talk before it has heard all. Two
    writes at a time would be mixed: `saying.py` is one writer for a whole turn.
    """

    @property
    def pid(self) -> int:
        """The process id; also of one that has ended."""
        ...

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, None while it runs."""
        ...

    async def write(self, data: bytes) -> None:
        """Write all of *data* to standard input. A peer that closed it is no error."""
        ...

    async def close_stdin(self) -> None:
        """Close standard input, so that a peer that reads it to the end goes on. Twice is fine."""
        ...

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        """Return the next bytes of standard output; empty at its end.

        The end comes when the last holder of the pipe has closed it, which may be a
        grandchild, long after the process has ended. Cancelling a read loses nothing.
        """
        ...

    @property
    def stderr_tail(self) -> str:
        """The last 8 KiB of standard error, control characters removed.

        It is always drained. Once `wait` has returned, all that the process itself
        printed has been seen.
        """
        ...

    async def wait(self) -> int:
        """Return the exit code once the process has ended; 255 if somebody else took it."""
        ...

    async def end(self, first: FirstSignal = "SIGINT") -> int:
        """End the process and its tree and return the exit code; at once if it has ended.

        SIGINT to the process alone (a provider CLI ends its own tools on it), then
        SIGTERM and SIGKILL to its group, with a grace between them that keeps the
        whole inside the grace of an interrupt. *first* is where it begins: with SIGKILL
        for one that has nothing to put in order. What it had already printed can still
        be read.
        """
        ...


class Turn(Protocol):
    """What the agent offers a backend during one turn."""

    @property
    def agent(self) -> Plain:
        """The agent's name."""
        ...

    @property
    def number(self) -> int:
        """How many turns this life of the agent has begun, this one included."""
        ...

    @property
    def interrupt_grace_ms(self) -> int:
        """How long the turn may take to end once it was interrupted; then the agent ends.

        `Process.end` takes up to three fifths of it.
        """
        ...

    async def checkpoint(self, session_id: str) -> Plain:
        """Tell the agent the provider's session id as soon as it is known; wait for its answer.

        An accepted id survives whatever becomes of the turn. Returns None when it
        was accepted, else the code of the refusal (`unsupported_checkpoint`,
        `invalid_session_id`, `conflicting_session_id`, `not_current`). A refusal
        other than `not_current` fails the turn even if a result follows.
        """
        ...

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        for_session: bool = False,
    ) -> Process:
        """Start a process, from the agent's main thread, with pipes for all three streams.

        *env* replaces the agent's environment when given. A process *for_session*
        survives the turn, its interruption included, and ends with the session or
        the agent.

        Raises:
            OSError: the program could not be started.
        """
        ...


class Backend(Protocol):
    """The three callbacks every backend has.

    A backend class is called without arguments, once per agent. Callbacks get their
    arguments by position, so an implementation may name them as it likes.
    """

    def start_session(
        self, options: FrozenDict, /
    ) -> Session | Failed | Awaitable[Session | Failed]:
        """Open a session from the backend options that `init_agent` returned.

        Validate every option here, before any key is looked up or process started.
        """
        ...

    def prompt(
        self, session: Session, prompt: str, turn: Turn, /
    ) -> Streaming | Failed | Awaitable[Streaming | Failed]:
        """Dispatch one prompt. `Failed` means that it could not be dispatched at all."""
        ...

    def terminate_session(self, session: Session, /) -> Awaitable[None] | None:
        """Release the session. Safe to call twice; a killed agent never calls it.

        The end waits for it, and for `terminate_agent` before it, for `shutdown_ms` at most.
        """
        ...


@runtime_checkable
class UpdatesSession(Protocol):
    """Optional: fold the data of a successful turn's `result` event into the session."""

    def update_session(self, session: Session, data: FrozenDict, /) -> Session | Awaitable[Session]:
        """Return the session with what the finished turn taught. Must not fail."""
        ...


@runtime_checkable
class ResumesSession(Protocol):
    """Optional: open a recorded session; called instead of `start_session`."""

    def resume_session(
        self, session_id: str, options: FrozenDict, /
    ) -> Session | Failed | Awaitable[Session | Failed]:
        """Open the provider's session *session_id*; options are validated as at a start."""
        ...


@runtime_checkable
class Checkpoints(Protocol):
    """Optional: apply a session id that was acknowledged during a turn."""

    def checkpoint_session(
        self, session: Session, session_id: str, /
    ) -> Session | Awaitable[Session]:
        """Return the session with *session_id* in it. Must not fail; twice is fine."""
        ...


@runtime_checkable
class ResetsSession(Protocol):
    """Optional: start the conversation anew without losing the agent."""

    def reset_session(self, session: Session, /) -> Session | Failed | Awaitable[Session | Failed]:
        """Return a session without a past. After `Failed` the old one stays in use."""
        ...
