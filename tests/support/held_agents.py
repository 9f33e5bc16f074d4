"""Agents that stay in a callback until they are let go, and only then do what an event says.

Until then whatever is sent to them waits, here or at the daemon.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any

from genagentd import Agent, FunctionFailed, NoReply, RequestRef, Response, Started
from genagentd.rpc import Catalog, Function

State = tuple[str, ...]
#: What the person serves who is asked.
PERSON = Catalog(
    catalog_id="urn:test:held", functions=(Function.made("ask", allowed_callers="agentOnly"),)
)


class Held(Agent[State]):
    """Shows what came of each event; SIGUSR1 lets it go, once for all."""

    def init_agent(self, options: Any) -> Started[State]:
        self.released = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.released.set)
        return Started(options, ())

    async def handle_event(self, event: Any, state: State) -> NoReply[State]:
        if not isinstance(event, Mapping):
            return NoReply(state)  # It is only heavy.
        if event["do"] == "monitor":
            found = await self.context.peers.whereis("b")
            assert found is not None
            self.context.peers.monitor(found)
            return NoReply((*state, "watching"))
        await self.released.wait()
        return NoReply((*state, await self._done(event["do"])))

    async def _done(self, wanted: str) -> str:
        match wanted:
            case "ask":
                return (await self.context.peers.ask("b", "hello")).text
            case "whereis":
                return type(await self.context.peers.whereis("b")).__name__
            case "start":
                await self.context.peers.start_agent(None, name="child", backend="echo")
                return "started"
            case "call":
                try:
                    return str(await self.context.call("ask", {}, catalog=PERSON.catalog_id))
                except FunctionFailed as failed:
                    return failed.code
        return wanted

    def handle_info(self, message: object, state: State) -> NoReply[State]:
        return NoReply((*state, type(message).__name__))

    def handle_response(self, ref: RequestRef, response: Response, state: State) -> NoReply[State]:
        return NoReply(state)

    def terminate_agent(self, reason: object, state: State) -> None:
        print("it could still tidy up", flush=True)

    def show_state(self, state: State) -> State:
        return state
