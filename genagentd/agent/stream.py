"""One turn's code, from the prompt to the outcome: what runs in the turn's thread.

It prompts the backend, shows every event first to the capture, then to the user's
`handle_stream_event`, then to who listens, and stops at the first terminal event or
when it is told to. It works on a copy of the state; what it returns is all there is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from genagent_backends.base import (
    Backend,
    Failed,
    Session,
    Streaming,
    Turn,
    UpdatesSession,
    is_session,
)
from genagent_backends.failures import reason_of
from genagent_protocol import events, schema
from genagent_protocol.bounds import LARGEST_OUTCOME_BYTES, Limits
from genagent_protocol.events import Completed, Event, Outcome
from genagent_protocol.plain import encoded_size, freeze
from genagent_protocol.reasons import EventCaptureOverflow, Reason
from genagent_protocol.turns.capture import Capture
from genagentd.agent import forked, log
from genagentd.agent.behaviour import AnyAgent
from genagentd.agent.callbacks import overrides, plain, settled
from genagentd.agent.class_names import kind_of, module_of

#: After so many events the turn's own loop gets a moment, whatever kind of stream they are of.
BREATH = 64
#: An outcome is nested deeper than the data in it.
_OUTCOME_DEPTH = 128


class Guide(Protocol):
    """What the turn's code hears from and tells to those who ordered the turn."""

    @property
    def stopped(self) -> bool:
        """Whether the turn was told to stop."""
        ...

    async def relay(self, event: Event) -> None:
        """Hand on an event that was accepted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Everything one turn works with. `offer` is what the backend gets as its turn.

    A repr can reach a log, and what people and models said must not.
    """

    agent: AnyAgent = field(repr=False)
    backend: Backend = field(repr=False)
    limits: Limits
    prompt: str = field(repr=False)
    state: Any = field(repr=False)
    session: Session = field(repr=False)
    offer: Turn = field(repr=False)
    guide: Guide


@dataclass(frozen=True, slots=True)
class Ended:
    """What a turn came to. Not `dispatched`: the backend never began to stream."""

    outcome: Outcome = field(repr=False)
    state: Any = field(repr=False)
    session: Session = field(repr=False)
    dispatched: bool = True


async def perform(work: Work) -> Ended:
    """Run the turn to its end and return what it came to.

    Raises:
        BaseException: whatever the backend, its stream or the stream callback raised.
    """
    if work.guide.stopped:
        raise asyncio.CancelledError
    began_ms = now_ms()
    watched = overrides(work.agent, "handle_stream_event")
    state = work.state
    if watched:
        try:
            with forked.Home():
                state = work.agent.copy_state(work.state)
        except BaseException as error:  # noqa: BLE001  # the user's own objects may refuse in any way
            log.raised(
                "callback.failed",
                error,
                agent=work.offer.agent,
                module=module_of(work.agent),
                callback="copy_state",
            )
            return _not_begun(work, events.Failed(Reason("state_not_copyable")))
    backend = work.backend
    answer = await settled(lambda: backend.prompt(work.session, work.prompt, work.offer))
    if isinstance(answer, Failed):
        return _not_begun(work, events.Failed(reason_of(plain(answer.reason))))
    if not isinstance(answer, Streaming):
        raise TypeError(f"prompt returned {type(answer).__name__}, not Streaming or Failed")
    if not is_session(answer.session, work.session):
        await _close(answer.events)
        raise TypeError(f"prompt returned Streaming with {kind_of(answer.session)}, not a session")
    capture = Capture(work.limits, reason_of)
    reading = Reading(work, capture, began_ms, watched, state)
    await reading.read(answer.events)
    outcome = capture.outcome(prompt=work.prompt, duration_ms=now_ms() - began_ms)
    session = await _taught(backend, answer.session, outcome)
    return Ended(outcome, reading.state, session)


def _not_begun(work: Work, outcome: Outcome) -> Ended:
    return Ended(outcome, work.state, work.session, dispatched=False)


@dataclass(slots=True)
class Reading:
    """A stream on its way through capture, user code and relay, and the state after it so far."""

    work: Work
    capture: Capture = field(repr=False)
    began_ms: int
    watched: bool
    state: Any = field(repr=False)
    taken: int = 0

    async def read(self, stream: Any) -> None:
        """Take the stream in, up to its first terminal event or what does not fit."""
        try:
            with forked.Home():
                if hasattr(stream, "__aiter__"):
                    await self._read_async(stream)
                else:
                    await self._read_plain(stream)
        finally:
            await _close(stream)

    async def _read_async(self, stream: AsyncIterable[object]) -> None:
        async for said in stream:
            await self._take(said)
            if self.capture.over:
                return

    async def _read_plain(self, stream: Iterable[object]) -> None:
        for said in stream:
            await self._take(said)
            if self.capture.over:
                return

    async def _take(self, said: object) -> None:
        forked.leave()
        # Nothing can interrupt a plain iterable, and an asynchronous one only where it waits; with
        # several events at hand it does not. So both are asked after each of their elements.
        await self._heed()
        event = _stamped(said, now_ms() - self.began_ms)
        if isinstance(self.capture.accept(event), EventCaptureOverflow):
            return
        if self.watched:
            handle, state = self.work.agent.handle_stream_event, self.state
            self.state = await settled(lambda: handle(event, state))
        await self.work.guide.relay(event)
        self.taken += 1
        if self.taken % BREATH == 0:
            await asyncio.sleep(0)

    async def _heed(self) -> None:
        """Go no further if the turn was told to stop.

        Raises:
            asyncio.CancelledError: it was.
        """
        if not self.work.guide.stopped:
            return
        task = asyncio.current_task()
        assert task is not None
        if not task.cancelling():
            # The cancellation is on its way; were it not awaited, it would cut off what the
            # stream does at its end.
            await asyncio.get_running_loop().create_future()
        raise asyncio.CancelledError


async def _close(stream: Any) -> None:
    close: Callable[[], Awaitable[None] | None] | None
    close = getattr(stream, "aclose", None) or getattr(stream, "close", None)
    if close is not None:
        await settled(close)


def _stamped(said: object, at_ms: int) -> Event:
    if not isinstance(said, Event):
        raise TypeError(f"the stream yielded {type(said).__name__}, not an Event")
    if not events.well_made(said):
        raise TypeError("the stream yielded an Event that `event()` did not make")
    return Event(said.kind, said.data, at_ms)


async def _taught(backend: Backend, session: Session, outcome: Outcome) -> Session:
    if isinstance(outcome, Completed) and isinstance(backend, UpdatesSession):
        data = outcome.response.terminal.data
        answer = await settled(lambda: backend.update_session(session, data))
        if not is_session(answer, session):
            raise TypeError(f"update_session returned {kind_of(answer)}, not a session")
        return answer
    return session


def encoded_bytes(outcome: Outcome) -> int:
    """Return the encoded length of *outcome*, or 0 if it cannot be too long for a message."""
    if isinstance(outcome, Completed):
        response = outcome.response
        texts = len(response.text) + len(response.final_message) + len(response.prompt)
        kept = response.event_coverage.retained_bytes + response.terminal.size_bytes
        # Text takes at most four bytes a character, an event at most this much around its data.
        most = 4 * texts + kept + 64 * len(response.events) + 65_536
        if most < LARGEST_OUTCOME_BYTES:
            return 0
    return encoded_size(freeze(schema.dump(outcome), max_depth=_OUTCOME_DEPTH))


def now_ms() -> int:
    """Return the monotonic moment in milliseconds."""
    return time.monotonic_ns() // 1_000_000
