"""Heartbeat: an agent that collects, and works in batches when the clock says so.

    notify {"observed": …} ─▶┐
    notify {"observed": …} ─▶├─ agent ──(enough, and nothing outstanding)──▶ one turn
    Ticker ──{"tick": life}─▶┘

The ticker belongs to one life of the agent: it ends with it, and a tick aimed at an
earlier life means nothing to a later one. A tick that is lost costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from examples.patterns.company import Voice, Watch, cast, of_voice, shown, stopping, watching
from examples.patterns.stage import stage
from genagent_protocol.plain import FrozenDict, Plain
from genagentd import (
    Agent,
    AgentHandle,
    Client,
    DaemonLost,
    Down,
    NoReply,
    Prompt,
    RequestRef,
    Response,
    Run,
    Skip,
    Started,
)
from genagentd.messages import Failure
from genagentd.testing import says

#: What is kept for the next batch; the oldest leave first.
MAX_OBSERVATIONS = 1_000


@dataclass(frozen=True)
class Batches:
    """What was observed and not looked at, what is being looked at, and what was found."""

    minimum: int
    observed: tuple[str, ...] = ()
    in_flight: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    failures: int = 0
    #: What the latest of them was.
    failure: str = ""

    @property
    def prompt(self) -> str:
        """What the model is asked about the batch in flight."""
        return "Sum up in one sentence:\n" + "\n".join(self.in_flight)

    def put_back(self, why: str) -> Batches:
        """Return it with the batch in front of what was observed since."""
        observed = (*self.in_flight, *self.observed)[-MAX_OBSERVATIONS:]
        failures = self.failures + 1
        return replace(self, observed=observed, in_flight=(), failures=failures, failure=why)


class Heart(Agent[Batches]):
    """Decides at every tick whether it is worth a turn."""

    def init_agent(self, options: FrozenDict) -> Started[Batches]:
        minimum = options["minimum"]
        assert isinstance(minimum, int)
        return Started(of_voice(options), Batches(minimum))

    def handle_event(self, event: Plain, state: Batches) -> NoReply[Batches] | Prompt[Batches]:
        match event:
            case {"observed": str(what)}:
                observed = (*state.observed, what)[-MAX_OBSERVATIONS:]
                return NoReply(replace(state, observed=observed))
            case {"tick": str(life)} if life == self.context.incarnation.text:
                # Outstanding means from here to its end: also while halted, or queued.
                if not state.in_flight and len(state.observed) >= state.minimum:
                    state = replace(state, in_flight=state.observed, observed=())
                    return Prompt(state.prompt, state)
        return NoReply(state)

    def pre_turn(self, prompt: str, state: Batches) -> Run[Batches] | Skip[Batches]:
        mine = bool(state.in_flight) and prompt == state.prompt
        return Run(prompt, state) if mine else Skip(state)

    def handle_response(
        self, _ref: RequestRef, response: Response, state: Batches
    ) -> NoReply[Batches]:
        return NoReply(replace(state, in_flight=(), findings=(*state.findings, response.text)))

    def handle_error(self, _ref: RequestRef, reason: Failure, state: Batches) -> NoReply[Batches]:
        # No prompt: a later tick tries again, so that a provider in trouble gets time.
        return NoReply(state.put_back(str(reason)) if state.in_flight else state)

    def show_state(self, state: Batches) -> FrozenDict:
        return FrozenDict(
            observed=state.observed,
            in_flight=state.in_flight,
            findings=state.findings,
            failures=state.failures,
            failure=state.failure,
        )


class Ticker:
    """A clock for one life of an agent: a thread with a connection of its own.

    It ticks until that life, or the daemon, or this object ends.
    """

    def __init__(self, handle: AgentHandle, every_ms: int, run_dir: Path | None = None) -> None:
        self._handle = handle
        self._every_ms = every_ms
        self._run_dir = run_dir
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tick, name=f"ticker {handle.name!s}")
        self._thread.start()

    def _tick(self) -> None:
        with Client(self._run_dir) as client:
            agent = client.at(self._handle)
            agent.monitor()
            try:
                # Waiting for the agent's end *is* the pause between two ticks.
                while not isinstance(client.receive(self._every_ms), Down):
                    if self._stopped.is_set():
                        return
                    agent.notify({"tick": self._handle.incarnation.text})
            except DaemonLost:
                return

    @property
    def running(self) -> bool:
        """Whether it still ticks."""
        return self._thread.is_alive()

    def wait(self, within_ms: int) -> bool:
        """Wait until it has ended by itself; say whether it has."""
        self._thread.join(within_ms / 1000)
        return not self.running

    def stop(self) -> None:
        """End it, after the current pause at the latest."""
        self._stopped.set()
        self._thread.join()


def begin(client: Client, name: str, voice: Voice, minimum: int) -> AgentHandle:
    """Start the agent; it wants a ticker."""
    return client.start_agent(cast(Heart, name, voice, minimum=minimum))


def looked(client: Client, watch: Watch, name: str) -> Mapping[str, Any]:
    """Return the agent's state once a batch was looked at, with or without a finding."""

    def once() -> Mapping[str, Any] | None:
        state = shown(client, name)
        return state if state["findings"] or state["failures"] else None

    return watch.until(once, "a batch was looked at")


def main() -> None:
    """Two observations are too few, three are a batch."""
    with stage("Heartbeat: driven by a clock.") as here, watching(here.client) as watch:
        voice = here.voice(says("Load rose from 0.4 to 3.1 within three readings."))
        handle = begin(here.client, "heart", voice, minimum=3)
        with stopping(here.client, [handle]):
            ticker = Ticker(handle, 50, here.run_dir)
            for load in ("load 0.4", "load 1.8"):
                here.client.notify_ack("heart", {"observed": load})
                here.say(load)
            here.say(f"findings so far: {len(shown(here.client, 'heart')['findings'])}")
            here.client.notify_ack("heart", {"observed": "load 3.1"})
            here.say("load 3.1")
            state = looked(here.client, watch, "heart")
            if not state["findings"]:
                # The agent would try again at every tick; whoever watches need not.
                here.fail(state["failure"])
            for finding in state["findings"]:
                here.say(f"  {finding}")
        here.say(f"the ticker ended with the agent: {ticker.wait(5_000)}")


if __name__ == "__main__":
    main()
