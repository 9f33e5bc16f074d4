"""The agent of those who wrote none: it runs what it is sent and keeps the transcript.

The transcript is bounded, oldest exchanges leave first; it is what `show_state`
shows, so whoever may ask for the agent's status may read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from genagent_protocol.events import Response
from genagent_protocol.plain import FrozenDict, Plain, encoded_size
from genagent_protocol.reasons import Failure
from genagent_protocol.refs import RequestRef
from genagentd.agent.behaviour import Agent, NoReply, Started

#: What is kept: so many exchanges, and so many bytes of them.
MAX_EXCHANGES = 200
MAX_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class Transcript:
    """The latest exchanges, oldest first, and how many bytes they count."""

    exchanges: tuple[FrozenDict, ...] = field(default=(), repr=False)
    bytes: int = 0

    def with_one_more(self, exchange: FrozenDict) -> Transcript:
        """Return the transcript with *exchange* at its end and without what no longer fits."""
        kept = [*self.exchanges, exchange]
        total = self.bytes + encoded_size(exchange)
        while len(kept) > MAX_EXCHANGES or total > MAX_BYTES:
            total -= encoded_size(kept.pop(0))
        return Transcript(tuple(kept), total)


Turned: TypeAlias = NoReply[Transcript]


class PlainAgent(Agent[Transcript]):
    """Keeps what was asked and answered, and decides nothing."""

    def init_agent(self, options: FrozenDict) -> Started[Transcript]:
        """Hand all options to the backend."""
        return Started(options, Transcript())

    def handle_response(self, ref: RequestRef, response: Response, state: Transcript) -> Turned:
        """Write down the answer."""
        answered = FrozenDict(ref=ref.text, prompt=response.prompt, text=response.text)
        return NoReply(state.with_one_more(answered))

    def handle_error(self, ref: RequestRef, reason: Failure, state: Transcript) -> Turned:
        """Write down the failure."""
        return NoReply(state.with_one_more(FrozenDict(ref=ref.text, error=str(reason))))

    def copy_state(self, state: Transcript) -> Transcript:
        """Return the same: a transcript never changes."""
        return state

    def show_state(self, state: Transcript) -> Plain:
        """Show the transcript."""
        return state.exchanges
