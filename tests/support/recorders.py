"""Agents that tests start by name: their options say what to do, their state what they saw."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from genagent_protocol.envelopes import Completion, Down
from genagent_protocol.errors import GenAgentError
from genagent_protocol.events import Completed, Event, Outcome, Response
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import ExitReason, Failure
from genagent_protocol.refs import RequestRef
from genagentd.agent.behaviour import (
    Agent,
    Failed,
    Halt,
    NoReply,
    Ok,
    Prompt,
    Run,
    Skip,
    Started,
)

#: The last words of agents that have ended, for tests in the same process.
ENDED: list[str] = []


@dataclass(frozen=True)
class Trace:
    """What happened, in order, and what the agent was told to do about it."""

    told: FrozenDict
    seen: tuple[str, ...] = ()
    mutable: list[str] = field(default_factory=list)

    def saw(self, what: str) -> Trace:
        return replace(self, seen=(*self.seen, what))


class Recorder(Agent[Trace]):
    """Writes down every callback, and answers as its options say.

    Options: `backend` (the backend's options) and, by callback name, what to do:
    `raise`, `exit`, `garbage`, `halt`, `skip`, `fail`, or text for a prompt.
    """

    def init_agent(self, options: FrozenDict) -> Any:
        return self._act("init_agent", Trace(options), Started(_backend(options), Trace(options)))

    def _act(self, name: str, state: Trace, usual: Any) -> Any:
        told = state.told.get(name)
        match told:
            case None:
                return usual
            case "raise":
                raise LookupError("a secret")
            case "exit":
                sys.exit(3)
            case "stop":
                return next(iter(()))
            case "garbage":
                return "garbage"
            case "halt":
                return Halt(state.saw(name))
            case "skip":
                return Skip(state.saw(name))
            case "fail":
                return Failed("told to")
            case "fail in lines":
                return Failed("told\nto\x1b[31m")
            case str(prompt):
                once = FrozenDict({key: v for key, v in state.told.items() if key != name})
                return Prompt(prompt, replace(state.saw(name), told=once))
        raise AssertionError(told)

    def handle_response(self, ref: RequestRef, response: Response, state: Trace) -> Any:
        assert self.context.current_ref == ref
        return self._act("handle_response", state, NoReply(state.saw(f"response {response.text}")))

    def handle_error(self, ref: RequestRef, reason: Failure, state: Trace) -> Any:
        assert self.context.current_ref == ref
        return self._act("handle_error", state, NoReply(state.saw(f"error {reason.code}")))

    def handle_event(self, event: Plain, state: Trace) -> Any:
        return self._act("handle_event", state, NoReply(state.saw(f"event {event!s}")))

    def handle_stream_event(self, event: Event, state: Trace) -> Trace:
        state.mutable.append(event.kind)
        if state.told.get("handle_stream_event") == "raise":
            raise LookupError("a secret")
        return state.saw(f"stream {event.kind}")

    def pre_run(self, state: Trace) -> Any:
        return self._act("pre_run", state, Ok(state.saw("pre_run")))

    def pre_turn(self, prompt: str, state: Trace) -> Any:
        return self._act("pre_turn", state, Run(prompt, state.saw(f"pre_turn {prompt}")))

    def post_turn(self, outcome: Outcome, _ref: RequestRef, state: Trace) -> Any:
        how = "completed" if isinstance(outcome, Completed) else outcome.reason.code
        return self._act("post_turn", state, Ok(state.saw(f"post_turn {how}")))

    def post_run(self, state: Trace) -> Any:
        return self._act("post_run", state, None)

    def terminate_agent(self, reason: ExitReason, state: Trace) -> Any:
        ENDED.append(f"{reason.text}: {' '.join(state.seen)}")
        return self._act("terminate_agent", state, None)

    def show_state(self, state: Trace) -> Plain:
        return FrozenDict(seen=state.seen, mutable=tuple(state.mutable))


def _backend(options: FrozenDict) -> FrozenDict:
    given = options.get("backend")
    return given if isinstance(given, FrozenDict) else FrozenDict()


class Sparse(Agent[int]):
    """Only what an agent has to have."""

    def init_agent(self, options: FrozenDict) -> Started[int]:
        return Started(options, 0)

    def handle_response(self, _ref: RequestRef, _response: Response, state: int) -> NoReply[int]:
        return NoReply(state + 1)

    def show_state(self, state: int) -> Plain:
        return state


class Slow(Sparse):
    """Waits in an `async def` callback until somebody sets `go`."""

    go = asyncio.Event()

    async def handle_event(self, _event: Plain, state: int) -> NoReply[int]:
        await Slow.go.wait()
        return NoReply(state + 10)


class Blocking(Agent[str]):
    """Blocks in a plain callback until somebody writes into the FIFO `go`."""

    def init_agent(self, options: FrozenDict) -> Started[str]:
        fifo = f"{options['fifo']!s}/go"
        os.mkfifo(fifo)
        return Started(_backend(options), fifo)

    def handle_response(self, _ref: RequestRef, _response: Response, state: str) -> NoReply[str]:
        return NoReply(state)

    def handle_event(self, _event: Plain, state: str) -> NoReply[str]:
        with open(state, encoding="utf-8") as fifo:
            fifo.read()
        return NoReply(state)


class Straying(Sparse):
    """Leaves a task behind that exits, which nobody awaits."""

    async def handle_event(self, _event: Plain, state: int) -> NoReply[int]:
        async def leave() -> None:
            raise SystemExit(3)

        self.stray = asyncio.create_task(leave())
        await asyncio.sleep(0)
        return NoReply(state + 1)


class Linked(Agent[int]):
    """Leaves a task behind that cancels, as it ends, the one that began it."""

    def init_agent(self, options: FrozenDict) -> Started[int]:
        return Started(options, 0)

    def show_state(self, state: int) -> int:
        return state

    async def handle_event(self, _event: Plain, state: int) -> NoReply[int]:
        began = asyncio.current_task()
        assert began is not None
        self.helper = asyncio.create_task(asyncio.sleep(0))
        self.helper.add_done_callback(lambda _: began.cancel())
        return NoReply(state + 1)

    async def handle_response(
        self, _ref: RequestRef, _response: Response, state: int
    ) -> NoReply[int]:
        for _ in range(20):
            await asyncio.sleep(0)
        return NoReply(state)


class Clingy(Sparse):
    """Says on standard output that it ends, and why."""

    def terminate_agent(self, reason: ExitReason, _state: int) -> None:
        print(f"ended {reason.text}", flush=True)


class Uncopyable(Agent[Any]):
    """Keeps in its state what cannot be copied."""

    def init_agent(self, options: FrozenDict) -> Started[Any]:
        return Started(options, threading.Lock())

    def handle_response(self, _ref: RequestRef, _response: Response, state: Any) -> NoReply[Any]:
        return NoReply(state)


class Spoiled(Agent[list[Any]]):
    """Its state becomes uncopyable with its first response."""

    def init_agent(self, options: FrozenDict) -> Started[list[Any]]:
        return Started(options, [])

    def handle_response(
        self, _ref: RequestRef, _response: Response, state: list[Any]
    ) -> NoReply[list[Any]]:
        return NoReply([*state, threading.Lock()])

    def handle_stream_event(self, _event: Event, state: list[Any]) -> list[Any]:
        return state


class Secretive(Sparse):
    """Shows something that cannot be sent."""

    def show_state(self, _state: int) -> Any:
        return {"a set": {1, 2}}


class Unfinished(Agent[None]):
    """Lacks the one callback every agent has to have."""


class Explosive(Sparse):
    """Cannot even be made."""

    def __init__(self) -> None:
        raise RuntimeError("a secret")


class Careless(Sparse):
    """Returns backend options that cannot be frozen."""

    def init_agent(self, _options: FrozenDict) -> Started[int]:
        return Started({"a set": {1, 2}}, 0)


@dataclass(frozen=True)
class Talk:
    """What a talkative agent heard."""

    heard: tuple[str, ...] = ()


class Talker(Agent[Talk]):
    """Reaches its peers as its events say: `["ask", target, prompt]` and the like."""

    def init_agent(self, options: FrozenDict) -> Started[Talk]:
        return Started(options, Talk())

    def handle_response(self, _ref: RequestRef, _response: Response, state: Talk) -> NoReply[Talk]:
        return NoReply(state)

    async def handle_event(self, event: Plain, state: Talk) -> NoReply[Talk]:
        try:
            said = await self._do(event)
        except GenAgentError as error:
            reason = getattr(error, "reason", None)
            said = f"{type(error).__name__} {getattr(reason, 'code', reason)}"
        return NoReply(Talk((*state.heard, said)))

    async def _do(self, event: Plain) -> str:
        peers = self.context.peers
        match event:
            case ("whereis", name):
                return f"found {await peers.whereis(name) is not None}"
            case ("ask", target, str(prompt)):
                response = await peers.ask(target, prompt, timeout_ms=20_000)
                return f"answer {response.text}"
            case ("ask_soon", target, str(prompt)):
                # Of a call by name the lookup takes a part of the time, on a busy machine all.
                handle = await peers.whereis(target)
                assert handle is not None
                await peers.ask(handle, prompt, timeout_ms=10)
            case ("notify", target, what):
                peers.notify(target, what)
                return "notified"
            case ("notify_ack", target, what):
                await peers.notify_ack(target, what)
                return "acknowledged"
            case ("tell", target, str(prompt)):
                ref = await peers.tell_with_completion(target, prompt)
                return f"told {ref.incarnation}"
            case ("watch", name):
                handle = await peers.whereis(name)
                assert handle is not None
                return f"watching {peers.monitor(handle).number}"
            case ("start", name):
                handle = await peers.start_agent(Sparse, name=name, backend="echo")
                return f"started {handle.incarnation.number}"
            case ("stop", name):
                await peers.stop(name)
                return "stopped"
        raise AssertionError(event)

    def handle_info(self, message: object, state: Talk) -> NoReply[Talk]:
        match message:
            case Completion(outcome=Completed(response)):
                said = f"completion {response.text}"
            case Down(reason=reason):
                said = f"down {reason}"
            case _:
                said = type(message).__name__
        return NoReply(Talk((*state.heard, said)))

    async def handle_stream_event(self, event: Event, state: Talk) -> Talk:
        """Ask from the turn's thread when the model says so."""
        if event.kind == "question":
            response = await self.context.peers.ask("bob", "from the turn")
            return Talk((*state.heard, f"answer {response.text}"))
        return state

    def show_state(self, state: Talk) -> Plain:
        return state.heard


def not_an_agent() -> NoReturn:
    """Something else of that name."""
    raise AssertionError
