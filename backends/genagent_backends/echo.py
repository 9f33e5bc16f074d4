"""The backend that answers with the prompt, byte for byte.

It needs no provider and costs next to nothing: what a new user meets first, and
what measures everything around a backend.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

from genagent_backends.base import Failed, Streaming, Turn
from genagent_backends.options import Option, read_options, text, whole
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict

CHUNK: Option[int | None] = Option("chunk", whole(1), None)
DELAY_MS: Option[int] = Option("delay_ms", whole(0), 0)
SESSION_ID: Option[str | None] = Option("session_id", text, None)


@dataclass(frozen=True, slots=True)
class EchoSession:
    """One conversation with the echo: its id, and how the answer is cut and paced."""

    session_id: str
    chunk: int | None
    delay_ms: int


class EchoBackend:
    """Echoes each prompt as `text` events, then a `usage` and a `result`.

    Options: `chunk` (characters per text event; one event for all if not given),
    `delay_ms` (pause before each text event, for demonstrations; 0) and
    `session_id` (a random one if not given).

    `usage` counts words. This does not remember what was said.
    """

    def start_session(self, options: FrozenDict) -> EchoSession | Failed:
        """Open a session; an unknown or malformed option refuses it."""
        chosen = read_options((CHUNK, DELAY_MS, SESSION_ID), options)
        if isinstance(chosen, Failed):
            return chosen
        session_id = SESSION_ID.of(chosen) or os.urandom(16).hex()
        return EchoSession(session_id, CHUNK.of(chosen), DELAY_MS.of(chosen))

    def resume_session(self, session_id: str, options: FrozenDict) -> EchoSession | Failed:
        """Open a session under the id of an earlier one."""
        session = self.start_session(options)
        return session if isinstance(session, Failed) else replace(session, session_id=session_id)

    def prompt(self, session: EchoSession, prompt: str, _turn: Turn) -> Streaming:
        """Answer with *prompt* itself."""
        events = _answer(session, prompt)
        return Streaming(_paced(events, session.delay_ms) if session.delay_ms else events, session)

    def update_session(self, session: EchoSession, _data: FrozenDict) -> EchoSession:
        """Return the session as it is: an echo learns nothing."""
        return session

    def checkpoint_session(self, session: EchoSession, session_id: str) -> EchoSession:
        """Go on under *session_id*."""
        return replace(session, session_id=session_id)

    def reset_session(self, session: EchoSession) -> EchoSession:
        """Begin anew under a fresh id."""
        return replace(session, session_id=os.urandom(16).hex())

    def terminate_session(self, session: EchoSession) -> None:
        """Do nothing: an echo holds nothing."""


def _answer(session: EchoSession, prompt: str) -> Iterator[Event]:
    size = session.chunk or max(len(prompt), 1)
    for start in range(0, len(prompt), size):
        yield event("text", {"text": prompt[start : start + size]})
    words = len(prompt.split())
    yield event("usage", {"input_tokens": words, "output_tokens": words})
    yield event("result", {"session_id": session.session_id})


async def _paced(events: Iterator[Event], delay_ms: int) -> AsyncIterator[Event]:
    # Only a paced echo needs it; an agent that never paces should not import it here.
    import asyncio

    for said in events:
        if said.kind == "text":
            await asyncio.sleep(delay_ms / 1000)
        yield said
