"""Debate: two agents push each other on; nobody coordinates them.

    ┌──── {"said": …} ────▶┐
    pro                    con        each statement is a notification to the opponent,
    └◀──── {"said": …} ────┘          which makes it a prompt

Each side speaks the agreed number of times, and halts when it has heard as much as it
said. The last statement is on its way before its speaker halts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from examples.patterns.company import Voice, cast, of_voice, shown, start_all, stopping, watching
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
    Started,
)
from genagentd.messages import Failure
from genagentd.testing import says


@dataclass(frozen=True)
class Position:
    """One side of one debate."""

    debate: str
    opponent: str
    rounds: int
    transcript: tuple[tuple[str, str], ...] = ()
    failure: str = ""

    def heard(self, speaker: str, said: str) -> Position:
        """Return the position with one more statement in its transcript."""
        return replace(self, transcript=(*self.transcript, (speaker, said)))

    def statements(self, speaker: str) -> int:
        """Return how often *speaker* has spoken."""
        return sum(1 for who, _ in self.transcript if who == speaker)


class Debater(Agent[Position]):
    """Answers every statement of its opponent, as often as agreed."""

    def init_agent(self, options: FrozenDict) -> Started[Position]:
        rounds = options["rounds"]
        assert isinstance(rounds, int)
        position = Position(str(options["debate"]), str(options["opponent"]), rounds)
        return Started(of_voice(options), position)

    def handle_response(
        self, _ref: RequestRef, response: Response, position: Position
    ) -> NoReply[Position] | Halt[Position]:
        position = position.heard(str(self.context.name), response.text)
        self._tell_opponent(position, said=response.text)
        return Halt(position) if self._over(position) else NoReply(position)

    def handle_error(self, _ref: RequestRef, reason: Failure, position: Position) -> Halt[Position]:
        self._tell_opponent(position, gave_up=str(reason))
        return Halt(replace(position, failure=str(reason)))

    def handle_event(
        self, event: Plain, position: Position
    ) -> NoReply[Position] | Prompt[Position] | Halt[Position]:
        match event:
            # What belongs to an earlier debate under the same names means nothing here.
            case {"debate": debate} if debate != position.debate:
                return NoReply(position)
            case {"said": str(said)}:
                position = position.heard(position.opponent, said)
                if self._over(position):
                    return Halt(position)
                return Prompt(f"Your opponent says: {said}\nReply in one sentence.", position)
            case {"gave_up": str(reason)}:
                return Halt(replace(position, failure=reason))
        return NoReply(position)

    def _tell_opponent(self, position: Position, **what: str) -> None:
        self.context.peers.notify(position.opponent, {"debate": position.debate, **what})

    def _over(self, position: Position) -> bool:
        both = (str(self.context.name), position.opponent)
        return all(position.statements(speaker) >= position.rounds for speaker in both)

    def show_state(self, position: Position) -> FrozenDict:
        return FrozenDict(transcript=position.transcript, failure=position.failure)


def begin(client: Client, topic: str, sides: dict[str, Voice], rounds: int) -> list[AgentHandle]:
    """Start both sides, or none, and let the first one open."""
    first, second = sides
    debate = os.urandom(8).hex()
    handles = start_all(
        client,
        [
            cast(Debater, me, sides[me], debate=debate, opponent=other, rounds=rounds)
            for me, other in ((first, second), (second, first))
        ],
    )
    client.tell(first, f"You argue for this: {topic}\nOpen in one sentence.")
    return handles


def main() -> None:
    """Two rounds."""
    with stage("Debate: two agents push each other on.") as here, watching(here.client) as watch:
        sides = {
            "pro": here.voice(
                says("One process for each agent keeps a crash where it happened."),
                says("Memory is cheap; a lost night of work is not."),
            ),
            "con": here.voice(
                says("It also costs megabytes where a task costs kilobytes."),
                says("Then measure what a night is worth, and choose."),
            ),
        }
        topic = "every agent deserves a process of its own"
        with stopping(here.client, begin(here.client, topic, sides, rounds=2)):
            watch.until_halted(sides)
            position = shown(here.client, "con")
            for speaker, said in position["transcript"]:
                here.say(f"{speaker}: {said}")
            if position["failure"]:
                here.fail(f"one side gave up: {position['failure']}")
            here.say("both halted")


if __name__ == "__main__":
    main()
