"""Runs a backend's turns without an agent, for the tests of people who write one.

`rehearse` does what an agent does with one prompt: it reads the stream up to the
first terminal event, closes it, ends the processes that the turn began, and folds
what was learned into the session. It judges the session ids that the turn names as an
agent does. `RehearsalTurn` is the contract's `Turn` on the running
event loop.

This has no queue, no watchdog and no capture limits, and it does not sweep up what
a provider started in a session of its own: those are the agent's.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from genagent_backends.base import (
    Backend,
    Checkpoints,
    Failed,
    Process,
    Session,
    Streaming,
    UpdatesSession,
    is_session,
)
from genagent_backends.loop_process import GRACE_MS, LoopProcess
from genagent_protocol.events import Event, text_or_none, well_made
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import (
    CHECKPOINT_FAILED,
    CONFLICTING_SESSION_ID,
    INVALID_SESSION_ID,
    UNSUPPORTED_CHECKPOINT,
    Reason,
)
from genagent_protocol.session_ids import acceptable

#: What an agent has unless its limits say something else.
INTERRUPT_GRACE_MS = 5_000

T = TypeVar("T")


async def settled(answer: T | Awaitable[T]) -> T:
    """Return a callback's answer, which may have to be awaited."""
    if inspect.isawaitable(answer):
        return cast("T", await answer)
    return answer


@dataclass(slots=True)
class Rehearsed:
    """What one turn came to: its events, and the session that the next turn gets."""

    session: Session
    events: list[Event] = field(default_factory=list)
    refused: Failed | None = None
    #: The session id that was accepted while the turn ran.
    checkpoint: str | None = None
    #: The code of the first checkpoint's refusal: an agent's turn fails with it, whatever it said.
    checkpoint_refused: str | None = None

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events, in order."""
        return [event.kind for event in self.events]

    @property
    def terminal(self) -> Event | None:
        """The event that ended the turn, or None if its stream just ended."""
        return self.events[-1] if self.events and self.events[-1].terminal else None

    @property
    def session_id(self) -> str | None:
        """What names the conversation: the accepted checkpoint, or else the result's id."""
        told = None if self.terminal is None else self.terminal.data.get("session_id")
        return self.checkpoint or text_or_none(told)

    @property
    def text(self) -> str:
        """The text of the terminal event, or the text events put together."""
        said = None if self.terminal is None else text_or_none(self.terminal.data.get("text"))
        return _joined(self.events) if said is None else said

    @property
    def usage(self) -> Mapping[str, Plain] | None:
        """The data of the last `usage` event."""
        found = [event.data for event in self.events if event.kind == "usage"]
        return found[-1] if found else None


def _joined(events: Sequence[Event]) -> str:
    text = ""
    for event in events:
        chunk = text_or_none(event.data.get("text")) if event.kind == "text" else None
        if chunk:
            text += "\n\n" if text and event.data.get("message_boundary") is True else ""
            text += chunk
    return text


async def rehearse(
    backend: Backend,
    session: Session,
    prompt: str,
    turn: RehearsalTurn | None = None,
    *,
    on_event: Callable[[Event], None] | None = None,
) -> Rehearsed:
    """Run one turn of *backend* and return what it came to.

    *on_event* sees each event as it arrives. Cancelling this is what an interrupt is
    to a backend. After a refused checkpoint the session is the one from before.

    Raises:
        TypeError: the stream yielded what `event()` did not make, or `update_session`
            or `prompt` returned no session.
        BaseException: what the backend or its stream raised.
    """
    turn = turn or RehearsalTurn()
    turn.begin(backend, session)
    try:
        answer: Streaming | Failed = await settled(backend.prompt(session, prompt, turn))
        if isinstance(answer, Failed):
            return Rehearsed(turn.session, refused=answer)
        if not is_session(answer.session, session):
            await _close(answer.events)
            said = type(answer.session).__name__
            raise TypeError(f"prompt returned Streaming with {said}, not a session")
        done = Rehearsed(answer.session)
        async with contextlib.aclosing(events_of(answer)) as events:
            async for event in events:
                if not well_made(event):
                    raise TypeError("the stream yielded what `event()` did not make")
                done.events.append(event)
                if on_event is not None:
                    on_event(event)
                if event.terminal:
                    break
    finally:
        await turn.end()
    done.checkpoint, done.checkpoint_refused = turn.accepted, turn.refusal
    done.session = await _taught(backend, done, turn)
    return done


async def events_of(streaming: Streaming) -> AsyncGenerator[Event, None]:
    """Yield the events of a stream of either kind, and close it when nobody wants more.

    Whoever reads them can be cancelled after each, as an agent's turn can be interrupted.
    """
    events = streaming.events
    try:
        # Nothing cancels a plain stream, and an asynchronous one only where it waits; with
        # several events at hand it does not.
        if hasattr(events, "__aiter__"):
            async for event in events:
                yield event
                await asyncio.sleep(0)
        else:
            for event in events:
                yield event
                await asyncio.sleep(0)
    finally:
        await _close(events)


async def _close(events: object) -> None:
    close = getattr(events, "aclose", None) or getattr(events, "close", None)
    if close is not None:
        await settled(close())


async def _taught(backend: Backend, done: Rehearsed, turn: RehearsalTurn) -> Session:
    session, terminal = done.session, done.terminal
    if terminal is not None and terminal.kind == "result" and isinstance(backend, UpdatesSession):
        answer = await settled(backend.update_session(session, terminal.data))
        if not is_session(answer, session):
            raise TypeError(f"update_session returned {type(answer).__name__}, not a session")
        session = answer
    if turn.refusal is not None:
        return turn.session
    if turn.accepted is not None and isinstance(backend, Checkpoints):
        applied = await settled(backend.checkpoint_session(session, turn.accepted))
        return applied if is_session(applied, session) else session
    return session


class RehearsalTurn:
    """The contract's `Turn`: judges session ids as an agent does, and spawns on the running loop.

    One that `begin` was not called for takes the backend for one that keeps checkpoints.
    `grace_ms` is how long a process that is being ended gets after each signal.
    """

    def __init__(
        self,
        *,
        agent: Plain = "rehearsal",
        number: int = 1,
        grace_ms: int = GRACE_MS,
        interrupt_grace_ms: int = INTERRUPT_GRACE_MS,
    ) -> None:
        self.agent = agent
        self.number = number
        self.grace_ms = grace_ms
        self.interrupt_grace_ms = interrupt_grace_ms
        #: Every session id that was told, refused ones included.
        self.checkpoints: list[str] = []
        #: The session id that this turn has been accepted, and the code of the first refusal.
        self.accepted: str | None = None
        self.refusal: str | None = None
        #: What is left of the session if the turn comes to nothing.
        self.session: Session = None
        self._backend: Backend | None = None
        self.processes: list[LoopProcess] = []
        self.session_processes: list[LoopProcess] = []

    def begin(self, backend: Backend, session: Session) -> None:
        """Begin one turn of *backend* on *session*; `rehearse` does it itself."""
        self._backend, self.session = backend, session
        self.accepted = self.refusal = None

    async def checkpoint(self, session_id: str) -> Plain:
        """Accept the first id that is one, and every repetition of it; apply it to the session."""
        self.checkpoints.append(session_id)
        refused = await self._refused(session_id)
        if refused is None:
            self.accepted = session_id
            return None
        self.refusal = self.refusal or refused.code
        return refused.code

    async def _refused(self, session_id: str) -> Reason | None:
        backend = self._backend
        if backend is not None and not isinstance(backend, Checkpoints):
            return UNSUPPORTED_CHECKPOINT
        if not acceptable(session_id):
            return INVALID_SESSION_ID
        if self.accepted is not None:
            return None if session_id == self.accepted else CONFLICTING_SESSION_ID
        return None if backend is None else await self._unapplied(backend, session_id)

    async def _unapplied(self, backend: Checkpoints, session_id: str) -> Reason | None:
        try:
            applied = await settled(backend.checkpoint_session(self.session, session_id))
        except Exception:  # noqa: BLE001  # an agent survives it, too, and refuses the checkpoint
            return CHECKPOINT_FAILED
        if not is_session(applied, self.session):
            return CHECKPOINT_FAILED
        self.session = applied
        return None

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        for_session: bool = False,
    ) -> Process:
        """Start a process in a session of its own.

        Raises:
            OSError: the program could not be started.
        """
        process = LoopProcess(argv, env=env, cwd=cwd, grace_ms=self.grace_ms)
        (self.session_processes if for_session else self.processes).append(process)
        return process

    async def end(self) -> None:
        """End the processes of the turn, as the agent does when the turn has ended."""
        for process in self.processes:
            await process.close()

    async def end_session(self) -> None:
        """End the processes of the session, too."""
        await self.end()
        for process in self.session_processes:
            await process.close()

    def kill(self) -> bool:
        """Kill what has not ended of these processes, without their loop; return whether any had.

        Their pipes stay open: whatever is left in that loop may still look at them.
        """
        processes = (*self.processes, *self.session_processes)
        left = [process for process in processes if process.returncode is None]
        for process in left:
            process.kill()
        return bool(left)
