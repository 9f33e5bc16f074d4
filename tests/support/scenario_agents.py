"""Agents of the scenarios: every callback is written down, and does what the test planned.

Loaded by agent processes, from `tests` as their directory. What they saw is in their
state, which a turn may lose, and in a file, which outlives everything.
"""

from __future__ import annotations

import json
import os
import select
from pathlib import Path
from typing import Any, TypeAlias

from genagent_backends.gates import open_side
from genagent_protocol.envelopes import Completion, Down
from genagent_protocol.errors import GenAgentError
from genagent_protocol.events import Event, Outcome, Response
from genagent_protocol.failed import Failed
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import ExitReason, Failure, Overloaded
from genagent_protocol.refs import RequestRef
from genagentd import Agent, Halt, NoReply, Ok, Prompt, Run, Skip, Started, telemetry

Seen: TypeAlias = tuple[str, ...]

#: What a callback answers that answers nonsense.
GARBAGE = 7


def wait_at(directory: str, tag: str) -> None:
    """Arrive at the gate *tag* and block this thread until it is released."""
    blocked = open_side(directory, tag, "blocked")
    release = open_side(directory, tag, "release")
    try:
        os.write(blocked, b".")
        select.select([release], [], [])
        os.read(release, 1)
    finally:
        os.close(blocked)
        os.close(release)


class Acting(Agent[Seen]):
    """Does in each callback what is planned for it, one plan for each call.

    Options: `on` (by callback, a list of plans), `file` (where to write down what is
    seen), `gate_dir`, and `backend` (the backend's options). A plan is a list of
    words with their object: `raise`, `garbage`, `halt`, `skip`, `fail: R`, `run: P`,
    `prompt: P`, and before any of these `block: TAG`, `notify: [NAME, EVENT]`,
    `stop: NAME`. An event that is a mapping is a plan itself.
    """

    def init_agent(self, options: FrozenDict) -> Any:
        self.options = options
        self.calls: dict[str, int] = {}
        return self._act("init_agent", None, Started(_mapping(options, "backend"), ()))

    def _write(self, line: str) -> None:
        path = self.options.get("file")
        if isinstance(path, str):
            with open(path, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def _see(self, state: Seen, line: str) -> Seen:
        self._write(line)
        return (*state, line)

    def _act(self, name: str, state: Any, usual: Any) -> Any:
        number = self.calls.get(name, 0)
        self.calls[name] = number + 1
        plans = _mapping(self.options, "on").get(name, ())
        assert isinstance(plans, tuple)
        plan = plans[number] if number < len(plans) else None
        return self._follow(plan, state, usual) if isinstance(plan, FrozenDict) else usual

    def _follow(self, plan: FrozenDict, state: Any, usual: Any) -> Any:
        for word, what in plan.items():
            match word:
                case "block":
                    wait_at(str(self.options["gate_dir"]), str(what))
                case "notify":
                    assert isinstance(what, tuple)
                    self.context.peers.notify(*what)
                case "raise":
                    raise LookupError(f"a secret: {what!s}")
                case _:
                    return _answer(str(word), what, state)
        return usual

    def pre_run(self, state: Seen) -> Any:
        seen = self._see(state, "pre_run")
        return self._act("pre_run", seen, Ok(seen))

    def pre_turn(self, prompt: str, state: Seen) -> Any:
        seen = self._see(state, f"pre_turn {prompt}")
        return self._act("pre_turn", seen, Run(prompt, seen))

    def handle_stream_event(self, event: Event, state: Seen) -> Any:
        said = event.data.get("text", "")
        seen = self._see(state, f"stream {event.kind} {said!s}".rstrip())
        self._act("handle_stream_event", seen, None)
        return seen

    def handle_response(self, ref: RequestRef, response: Response, state: Seen) -> Any:
        seen = self._see(state, f"response {response.text}")
        self._write(f"ref {ref.text}")
        return self._act("handle_response", seen, NoReply(seen))

    def handle_error(self, ref: RequestRef, reason: Failure, state: Seen) -> Any:
        seen = self._see(state, f"error {_told(reason)}")
        self._write(f"ref {ref.text}")
        return self._act("handle_error", seen, NoReply(seen))

    def post_turn(self, outcome: Outcome, _ref: RequestRef, state: Seen) -> Any:
        how = outcome.reason.code if isinstance(outcome, Failed) else "completed"
        seen = self._see(state, f"post_turn {how}")
        return self._act("post_turn", seen, Ok(seen))

    def post_run(self, state: Seen) -> Any:
        self._write("post_run")
        return self._act("post_run", state, None)

    def handle_event(self, event: Plain, state: Seen) -> Any:
        seen = self._see(state, f"event {_shown(event)}")
        usual = self._act("handle_event", seen, NoReply(seen))
        return self._follow(event, seen, usual) if isinstance(event, FrozenDict) else usual

    def terminate_agent(self, reason: ExitReason, state: Seen) -> Any:
        self._see(state, f"terminate_agent {reason}")
        return self._act("terminate_agent", state, None)

    def show_state(self, state: Seen) -> Plain:
        return state


class Listening(Acting):
    """Receives messages, too."""

    def handle_info(self, message: object, state: Seen) -> Any:
        match message:
            case Completion(agent=name, outcome=outcome):
                how = outcome.reason.code if isinstance(outcome, Failed) else outcome.response.text
                said = f"completion of {name!s}: {how}"
            case Down(reason=reason):
                said = f"down {reason}"
            case _:
                said = type(message).__name__
        seen = self._see(state, f"info {said}")
        return self._act("handle_info", seen, NoReply(seen))

    async def handle_event(self, event: Plain, state: Seen) -> Any:
        """Reach a peer as the event says: `["tell", NAME, PROMPT]` and the like."""
        try:
            said = await self._reach(event)
        except GenAgentError as error:
            reason = getattr(error, "reason", None)
            said = f"{type(error).__name__} {getattr(reason, 'code', reason)!s}"
        return NoReply(self._see(state, said))

    async def _reach(self, event: Plain) -> str:
        peers = self.context.peers
        match event:
            case ("tell", name, str(prompt)):
                await peers.tell_with_completion(name, prompt)
            case ("ask", name, str(prompt)):
                return f"answer {(await peers.ask(name, prompt)).text}"
            case ("monitor", name):
                handle = await peers.whereis(name)
                assert handle is not None
                peers.monitor(handle)
            case ("stop", name):
                await peers.stop(name)
            case _:
                return f"event {_shown(event)}"
        return f"{event[0]!s} done"


class StopsItself(Listening):
    """Tries to stop itself wherever it can: in its decision, its last hook and its turn."""

    async def _stop(self, state: Seen, where: str) -> Seen:
        try:
            await self.context.peers.stop(self.context.name)
        except GenAgentError as error:
            reason = getattr(error, "reason", None)
            return self._see(state, f"{where} {getattr(reason, 'code', reason)!s}")
        return self._see(state, f"{where} stopped")

    async def handle_response(self, _ref: RequestRef, _response: Response, state: Seen) -> Any:
        return Halt(await self._stop(state, "decision"))

    async def post_run(self, state: Seen) -> Any:
        await self._stop(state, "post_run")

    async def handle_stream_event(self, event: Event, state: Seen) -> Any:
        return await self._stop(state, "stream") if event.terminal else state


class NamesItself(Acting):
    """Writes down its own name and the ref under way, in each callback."""

    def _see(self, state: Seen, line: str) -> Seen:
        ref = self.context.current_ref
        where = line.split()[0]
        self._write(f"{where} {self.context.name!s} {'-' if ref is None else ref.text}")
        return state


class Watched(Acting):
    """Writes down every record of its own telemetry."""

    def init_agent(self, options: FrozenDict) -> Any:
        telemetry.attach(lambda record: self._write(json.dumps({"event": record.event})))
        return super().init_agent(options)

    def handle_event(self, _event: Plain, state: Seen) -> Any:
        return NoReply(state)


class ShowsOptions(Agent[FrozenDict]):
    """Shows what `init_agent` was given."""

    def init_agent(self, options: FrozenDict) -> Started[FrozenDict]:
        return Started({}, options)

    def handle_response(
        self, _ref: RequestRef, _response: Response, state: FrozenDict
    ) -> NoReply[FrozenDict]:
        return NoReply(state)

    def show_state(self, state: FrozenDict) -> Plain:
        return state


class CountsCopies(Agent[str]):
    """Shows how often its state was copied."""

    copies = 0

    def init_agent(self, options: FrozenDict) -> Started[str]:
        return Started(options, "state")

    def handle_response(self, _ref: RequestRef, _response: Response, state: str) -> NoReply[str]:
        return NoReply(state)

    def copy_state(self, state: str) -> str:
        self.copies += 1
        return state

    def show_state(self, _state: str) -> Plain:
        return self.copies


class CountsCopiesWatching(CountsCopies):
    """The same, with a callback that runs in the turn and is handed the state."""

    def handle_stream_event(self, _event: Event, state: str) -> str:
        return state


class Bare(Agent[None]):
    """Has only what an agent has to have."""

    def handle_response(self, _ref: RequestRef, _response: Response, state: None) -> NoReply[None]:
        return NoReply(state)


def _answer(word: str, what: Plain, state: Any) -> Any:
    match word:
        case "garbage":
            return GARBAGE
        case "halt":
            return Halt(state)
        case "skip":
            return Skip(state)
        case "fail":
            return Failed(what)
        case "run":
            return Run(what, state)  # type: ignore[arg-type]  # what is no text is garbage
        case "prompt":
            return Prompt(what, state)  # type: ignore[arg-type]  # as above
        case "reply":
            return NoReply(state)
    raise AssertionError(word)


def _told(reason: Failure) -> str:
    if isinstance(reason, Overloaded):
        return f"overloaded {reason.queue} {reason.limit}"
    said = getattr(reason, "reason", None) or getattr(reason, "error", None)
    return f"{reason.code} {said}" if said else reason.code


def _shown(event: Plain) -> str:
    return json.dumps(event, default=dict)


def _mapping(options: FrozenDict, name: str) -> FrozenDict:
    found = options.get(name, FrozenDict())
    assert isinstance(found, FrozenDict)
    return found


def lines(path: Path) -> list[str]:
    """Return what an agent wrote down so far."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
