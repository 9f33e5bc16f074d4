"""Retry: what failed in passing is tried again, a bounded number of times.

    ask ──▶ turn fails ──▶ handle_error ──Prompt──▶ the same request, attempt 2     (Persistent)
    tell ─▶ turn fails ──▶ handle_error ──timer──▶ {"retry": token} ──▶ a new turn  (Patient)

`Persistent` tries at once: its caller waits through all attempts and hears one outcome,
under one ref. `Patient` waits longer each time, and nobody waits with it: a callback
never sleeps, so that it can be looked at, cancelled and stopped meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from examples.patterns.company import Voice, Watch, cast, of_voice, shown, stopping, watching
from examples.patterns.stage import stage
from genagent_protocol.plain import FrozenDict, Plain
from genagentd import (
    Agent,
    AgentHandle,
    Client,
    Halt,
    NoReply,
    Prompt,
    RequestRef,
    Response,
    Run,
    Started,
)
from genagentd.messages import BackendError, ExitReason, Failure
from genagentd.testing import breaks, says


@dataclass(frozen=True)
class Attempts:
    """How often it was tried, and what went wrong each time."""

    most: int
    backoff_ms: int
    task: str = ""
    count: int = 0
    errors: tuple[str, ...] = ()
    phase: Literal["new", "trying", "waiting", "done", "failed", "cancelled"] = "new"
    answer: str = ""
    #: Which timer counts; any other is stale.
    token: str = ""

    def failed(self, reason: Failure) -> Attempts:
        """Return it with one more error."""
        return replace(self, errors=(*self.errors, str(reason)))

    @property
    def delay_ms(self) -> int:
        """How long to wait before the next attempt: twice as long each time."""
        return self.backoff_ms << (self.count - 1)


def passing(reason: Failure) -> bool:
    """Whether trying again may help: nobody stopped it, and the provider does not rule it out."""
    if isinstance(reason, BackendError):
        return reason.retryable
    return reason.code not in ("interrupted", "timeout")


class Persistent(Agent[Attempts]):
    """Tries again at once, as further attempts of the same request."""

    def init_agent(self, options: FrozenDict) -> Started[Attempts]:
        most, backoff_ms = options["most"], options["backoff_ms"]
        assert isinstance(most, int)
        assert isinstance(backoff_ms, int)
        return Started(of_voice(options), Attempts(most, backoff_ms))

    def pre_turn(self, prompt: str, state: Attempts) -> Run[Attempts]:
        task = state.task or prompt
        return Run(prompt, replace(state, task=task, count=state.count + 1, phase="trying"))

    def handle_response(
        self, _ref: RequestRef, response: Response, state: Attempts
    ) -> Halt[Attempts]:
        return Halt(replace(state, phase="done", answer=response.text))

    def handle_error(
        self, _ref: RequestRef, reason: Failure, state: Attempts
    ) -> NoReply[Attempts] | Prompt[Attempts] | Halt[Attempts]:
        state = state.failed(reason)
        if state.count >= state.most or not passing(reason):
            return Halt(replace(state, phase="failed"))
        return self.again(state)

    def again(self, state: Attempts) -> NoReply[Attempts] | Prompt[Attempts]:
        """Return what leads to the next attempt."""
        return Prompt(state.task, state)

    def show_state(self, state: Attempts) -> FrozenDict:
        return FrozenDict(
            phase=state.phase, attempts=state.count, errors=state.errors, answer=state.answer
        )


class Patient(Persistent):
    """Waits before it tries again, without making anybody wait."""

    #: A timer is no state: a copy of the state has none.
    timer: asyncio.TimerHandle | None = None

    def again(self, state: Attempts) -> NoReply[Attempts]:
        token = os.urandom(8).hex()
        self.timer = asyncio.get_running_loop().call_later(
            state.delay_ms / 1000,
            self.context.peers.notify,
            self.context.handle,
            {"retry": token},
        )
        return NoReply(replace(state, phase="waiting", token=token))

    def handle_event(
        self, event: Plain, state: Attempts
    ) -> NoReply[Attempts] | Prompt[Attempts] | Halt[Attempts]:
        match event:
            case {"retry": str(token)} if state.phase == "waiting" and token == state.token:
                return Prompt(state.task, replace(state, phase="trying", token=""))
            # An interrupt finds no turn during the pause; this is what ends it.
            case "cancel" if state.phase == "waiting":
                self._forget_timer()
                return Halt(replace(state, phase="cancelled", token=""))
        return NoReply(state)

    def terminate_agent(self, _reason: ExitReason, _state: Attempts) -> None:
        self._forget_timer()

    def _forget_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


def begin(
    client: Client,
    name: str,
    voice: Voice,
    *,
    most: int = 3,
    backoff_ms: int = 0,
    limits: dict[str, object] | None = None,
) -> AgentHandle:
    """Start an agent that tries up to *most* times; with *backoff_ms* it takes its time."""
    kind = Patient if backoff_ms else Persistent
    return client.start_agent(
        cast(kind, name, voice, most=most, backoff_ms=backoff_ms, limits=limits)
    )


def ended(client: Client, watch: Watch, name: str) -> Mapping[str, Any]:
    """Return how it ended."""
    over = ("done", "failed", "cancelled")
    watch.until(lambda: shown(client, name)["phase"] in over, f"{name} has ended", 600_000)
    return shown(client, name)


def main() -> None:
    """Both forms, each failing twice."""
    with stage("Retry: bounded, at once or in time.") as here, watching(here.client) as watch:
        voice = here.voice(breaks("overloaded"), breaks("overloaded"), says("Here it is."))
        with stopping(here.client, [begin(here.client, "persistent", voice)]):
            answer = here.client.ask("persistent", "Say that here it is.").text
            tries = shown(here.client, "persistent")["attempts"]
            here.say(f"persistent: {answer} (attempts: {tries}, one ref, one outcome)")
        with stopping(here.client, [begin(here.client, "patient", voice, backoff_ms=40)]):
            here.client.tell("patient", "Say that here it is.")
            state = ended(here.client, watch, "patient")
            if state["phase"] != "done":
                here.fail(state["errors"][-1])
            tries = state["attempts"]
            here.say(f"patient: {state['answer']} (attempts: {tries}, waiting in between)")


if __name__ == "__main__":
    main()
