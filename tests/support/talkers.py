"""Agents for tests of the client; loaded by agent processes, from `tests` as their directory."""

from __future__ import annotations

import signal
import time

from genagent_protocol.events import Response
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import Failure
from genagent_protocol.refs import RequestRef
from genagentd import Agent, NoReply, Prompt, Run, Skip, Started

Heard = tuple[Plain, ...]


class Noting(Agent[Heard]):
    """Keeps its events and shows them."""

    def init_agent(self, options: FrozenDict) -> Started[Heard]:
        return Started(options, ())

    def handle_response(self, ref: RequestRef, response: Response, state: Heard) -> NoReply[Heard]:
        return NoReply(state)

    def handle_event(self, event: Plain, state: Heard) -> NoReply[Heard]:
        return NoReply((*state, event))

    def show_state(self, state: Heard) -> Heard:
        return state


class Held(Noting):
    """Stays in its callback, when an event says `block`, until it gets SIGUSR1."""

    released = False

    def init_agent(self, options: FrozenDict) -> Started[Heard]:
        signal.signal(signal.SIGUSR1, self._release)
        return Started(options, ())

    def _release(self, _number: int, _frame: object) -> None:
        self.released = True

    def handle_event(self, event: Plain, state: Heard) -> NoReply[Heard]:
        while event == "block" and not self.released:
            time.sleep(0.005)
        return NoReply(state)


class Skipping(Noting):
    """Declines every prompt."""

    def pre_turn(self, prompt: str, state: Heard) -> Run[Heard] | Skip[Heard]:
        return Skip(state)


class Retrying(Noting):
    """Tries again whatever failed."""

    def handle_error(self, ref: RequestRef, reason: Failure, state: Heard) -> Prompt[Heard]:
        return Prompt("again", state)
