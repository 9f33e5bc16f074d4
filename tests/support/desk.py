"""An agent that offers functions and calls those of its clients, as its prompts say.

A prompt is JSON: `{"call": NAME, "args": ..., "timeout_ms": ...}`. With `"in"` the call is
made there: `turn` (the default) inside the turn, `async` in an awaited callback, `def` in
a plain one, `request` without waiting, `count` times, `turn_request` so inside the turn.
`"to"` is the place of a session, `"big"` the length of an argument, `"evil"` one of what cannot
be sent at all. What came of each call is
kept in the state.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from typing import Any

from genagent_protocol.errors import GenAgentError
from genagent_protocol.events import Event, Response
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.refs import RequestRef
from genagentd import Agent, FunctionFailed, NoReply, Started, function

#: The catalog that tests attach with.
CATALOG = "urn:test:person"


@dataclass
class Desk:
    """What became of the calls, in order."""

    settled: list[Any] = field(default_factory=list)


class Clerk(Agent[Desk]):
    """Calls its client, and serves it."""

    def init_agent(self, options: FrozenDict) -> Started[Desk]:
        return Started(options, Desk())

    def copy_state(self, state: Desk) -> Desk:
        # The turn notes into the same list: what it heard is what the tests ask for.
        return state

    async def handle_stream_event(self, said: Event, state: Desk) -> Desk:
        wanted = _wanted(said.data.get("text"))
        if wanted.get("in") == "turn":
            state.settled.append(await self._called(wanted))
        if wanted.get("in") == "turn_request":
            self.context.request(wanted["call"], wanted.get("args"), catalog=CATALOG)
        return state

    async def handle_response(
        self, _ref: RequestRef, response: Response, state: Desk
    ) -> NoReply[Desk]:
        wanted = _wanted(response.text)
        match wanted.get("in"):
            case "async":
                state.settled.append(await self._called(wanted))
            case "request":
                for _ in range(wanted.get("count", 1)):
                    self.context.request(wanted["call"], wanted.get("args"), catalog=CATALOG)
            case _:
                pass
        return NoReply(state)

    def handle_event(self, event_: Plain, state: Desk) -> NoReply[Desk]:
        if event_ == "def":
            try:
                self.context.call("ask", catalog=CATALOG).close()
            except GenAgentError as error:
                state.settled.append(type(error).__name__)
        elif event_ == "task":
            wanted: dict[str, Any] = {"call": "ask"}
            self.task = asyncio.create_task(self._called(wanted))
            self.task.add_done_callback(lambda done: state.settled.append(done.result()))
        else:
            state.settled.append(event_)
        return NoReply(state)

    def show_state(self, state: Desk) -> object:
        return {"settled": state.settled, "dropped": self.context.sessions.dropped}

    async def _called(self, wanted: dict[str, Any]) -> Any:
        to = wanted.get("to")
        try:
            return await self.context.call(
                wanted["call"],
                wanted.get("args"),
                catalog=CATALOG,
                session=None if to is None else self.context.attached[to].address,
                timeout_ms=wanted.get("timeout_ms", 0),
            )
        except FunctionFailed as failed:
            return {"code": failed.code, "text": failed.text}

    @function(
        arguments={
            "type": "object",
            "properties": {"sha": {"type": "string"}},
            "required": ["sha"],
            "additionalProperties": False,
        }
    )
    def look_up_build(self, arguments: dict[str, Any], _state: Desk) -> object:
        if arguments["sha"] == "unknown":
            raise FunctionFailed("BUILD_UNKNOWN", "no build of unknown")
        return {"green": True, "sha": arguments["sha"]}

    @function
    async def slowly(self, arguments: dict[str, Any], _state: Desk) -> object:
        await asyncio.sleep(0)
        return arguments

    @function
    def breaks(self, _arguments: dict[str, Any], _state: Desk) -> object:
        raise ZeroDivisionError("broken on purpose")

    @function
    def fails_at_length(self, _arguments: dict[str, Any], _state: Desk) -> object:
        raise FunctionFailed("C" * 17_000_000, "it failed")

    @function
    def kills_itself(self, _arguments: dict[str, Any], _state: Desk) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    @function
    def exits(self, _arguments: dict[str, Any], _state: Desk) -> object:
        raise SystemExit(3)

    @function
    def unsendable(self, _arguments: dict[str, Any], _state: Desk) -> object:
        return object()

    @function
    async def asks_back(self, _arguments: dict[str, Any], _state: Desk) -> object:
        return await self.context.call("ask", catalog=CATALOG, timeout_ms=0)

    @function
    async def hangs(self, _arguments: dict[str, Any], state: Desk) -> object:
        try:
            return await asyncio.Event().wait()
        finally:
            state.settled.append("let go")

    @function
    async def begins(self, _arguments: dict[str, Any], state: Desk) -> object:
        state.settled.append("begun")
        return await asyncio.Event().wait()


class BadClerk(Clerk):
    """Offers a function whose schema is none."""

    @function(arguments={"type": 7})
    def never(self, _arguments: dict[str, Any], _state: Desk) -> object:
        return None


def _shared(levels: int) -> list[Any]:
    """Return a value of a few lists that reads as ten to the power of *levels* items."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value] * 10
    return value


_EVIL: dict[str, Any] = {
    "integer": {"n": 2**64},
    "object": {"o": object()},
    "key": {1: 1},
    "no mapping": [1],
    "shared": {"laughs": _shared(30)},
    "wide": {"many": [0] * 200_000},
}


def _wanted(text: object) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    if not isinstance(found, dict) or "call" not in found:
        return {}
    if "big" in found:
        found["args"] = {"big": "x" * found["big"]}
    if "evil" in found:
        found["args"] = _EVIL[found["evil"]]
    return {"in": "turn", **found}


class Terminal(Clerk):
    """Asks a terminal: a prompt is a JSON list of `{FUNCTION: ARGUMENTS}`."""

    async def handle_response(
        self, _ref: RequestRef, response: Response, state: Desk
    ) -> NoReply[Desk]:
        try:
            questions = json.loads(response.text)
        except ValueError:
            return NoReply(state)
        for question in questions:
            for name, arguments in question.items():
                state.settled.append(await self._asked(name, arguments))
        print(state.settled, file=sys.stderr, flush=True)
        return NoReply(state)

    async def _asked(self, name: str, arguments: dict[str, Any]) -> Any:
        try:
            return await self.context.call(name, arguments, catalog="urn:genagentd:terminal")
        except FunctionFailed as failed:
            return failed.code

    def show_state(self, state: Desk) -> object:
        return {"attached": len(self.context.attached)}
