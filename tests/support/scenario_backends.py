"""Backends of the scenarios that no script can play."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from genagent_backends.base import Streaming, Turn
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict
from support.scenario_agents import wait_at


class Rambling:
    """Its streams yield what is no event."""

    def start_session(self, _options: FrozenDict) -> None:
        return None

    def prompt(self, session: None, _prompt: str, _turn: Turn) -> Streaming:
        elements: list[Any] = ["not an event"]
        return Streaming(elements, session)

    def terminate_session(self, _session: None) -> None:
        return None


class Remembering:
    """Says its session id in the first turn alone, and remembers it."""

    def start_session(self, _options: FrozenDict) -> str:
        return ""

    def prompt(self, session: str, _prompt: str, _turn: Turn) -> Streaming:
        return Streaming(self._stream(session), session)

    def _stream(self, session: str) -> Iterator[Event]:
        if session:
            yield event("result", text=f"goes on with {session}")
        else:
            yield event("result", session_id="s-1")

    def update_session(self, session: str, data: FrozenDict) -> str:
        return str(data.get("session_id", session))

    def terminate_session(self, _session: str) -> None:
        return None


class Clinging:
    """Counts its turns in the session, says so at the end, and raises."""

    def start_session(self, options: FrozenDict) -> int:
        self.file = str(options["file"])
        return 0

    def prompt(self, session: int, _prompt: str, _turn: Turn) -> Streaming:
        return Streaming([event("result", text=f"turn {session + 1}")], session + 1)

    def terminate_session(self, session: int) -> None:
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(f"terminated after {session} turns\n")
        raise LookupError("a secret")


class Stubborn(Remembering):
    """Cannot begin anew."""

    def reset_session(self, _session: str) -> str:
        raise LookupError("a secret")


class Blocked:
    """Blocks in `prompt`, before there is a stream, at the gate `prompt`."""

    def start_session(self, options: FrozenDict) -> str:
        return str(options["gate_dir"])

    def prompt(self, session: str, _prompt: str, _turn: Turn) -> Streaming:
        wait_at(session, "prompt")
        return Streaming([event("result")], session)

    def terminate_session(self, _session: str) -> None:
        return None


class Late:
    """Keeps the offer of its first turn, checkpoints it in the next, and says the answer."""

    first: Turn | None = None

    def start_session(self, _options: FrozenDict) -> str | None:
        return None

    def prompt(self, session: str | None, _prompt: str, turn: Turn) -> Streaming:
        return Streaming(self._stream(session, turn), session)

    async def _stream(self, session: str | None, turn: Turn) -> AsyncIterator[Event]:
        said = "first"
        if self.first is None:
            self.first = turn
        else:
            said = str(await self.first.checkpoint("s-late"))
        yield event("result", {"session_id": session} if session else {}, text=said)

    def checkpoint_session(self, _session: str | None, session_id: str) -> str:
        return session_id

    def terminate_session(self, _session: str | None) -> None:
        return None
