"""Pipeline: a chain of agents, each working on exactly what the one before it wrote.

    tell ──▶ draft ──{"input": …}──▶ edit ──{"input": …}──▶ publish
               halts                   halts                  halts

A stage that fails says so down the chain: the later ones halt without a turn, and
each carries the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    Run,
    Started,
)
from genagentd.messages import Failure
from genagentd.testing import echoes


@dataclass(frozen=True)
class Work:
    """One stage: its task, who comes next (or nobody), and what came of it."""

    task: str
    next: str | None
    output: str = ""
    failure: str = ""


class Station(Agent[Work]):
    """Does its task once, hands the result on, and halts."""

    def init_agent(self, options: FrozenDict) -> Started[Work]:
        after = options["next"]
        return Started(
            of_voice(options), Work(str(options["task"]), None if after is None else str(after))
        )

    def pre_turn(self, prompt: str, work: Work) -> Run[Work]:
        return Run(f"{work.task}: {prompt}", work)

    def handle_response(self, _ref: RequestRef, response: Response, work: Work) -> Halt[Work]:
        self._hand_on(work, {"input": response.text})
        return Halt(replace(work, output=response.text))

    def handle_error(self, _ref: RequestRef, reason: Failure, work: Work) -> Halt[Work]:
        return self._failed(f"{self.context.name!s}: {reason}", work)

    def handle_event(self, event: Plain, work: Work) -> NoReply[Work] | Prompt[Work] | Halt[Work]:
        match event:
            case {"input": str(text)}:
                return Prompt(text, work)
            case {"failed": str(reason)}:
                return self._failed(reason, work)
        return NoReply(work)

    def _failed(self, reason: str, work: Work) -> Halt[Work]:
        self._hand_on(work, {"failed": reason})
        return Halt(replace(work, failure=reason))

    def _hand_on(self, work: Work, event: dict[str, str]) -> None:
        if work.next is not None:
            self.context.peers.notify(work.next, event)

    def show_state(self, work: Work) -> FrozenDict:
        return FrozenDict(output=work.output, failure=work.failure)


def begin(
    client: Client, text: str, stations: Sequence[tuple[str, str, Voice]]
) -> list[AgentHandle]:
    """Start the chain of (name, task, voice), or none of it, and feed its first stage."""
    names = [name for name, _, _ in stations]
    following: list[str | None] = [*names[1:], None]
    handles = start_all(
        client,
        [
            cast(Station, name, voice, task=task, next=after)
            for (name, task, voice), after in zip(stations, following, strict=True)
        ],
    )
    client.tell(names[0], text)
    return handles


def main() -> None:
    """Three stages; with the built-in backends each one shows what it was given."""
    with stage("Pipeline: a chain of agents.") as here, watching(here.client) as watch:
        stations = [
            ("draft", "Draft one sentence about", here.voice(echoes())),
            ("edit", "Make it shorter", here.voice(echoes())),
            ("publish", "Give it a headline", here.voice(echoes())),
        ]
        topic = "agents that outlive their terminal"
        with stopping(here.client, begin(here.client, topic, stations)):
            names = [name for name, _, _ in stations]
            watch.until_halted(names)
            for name in names:
                work = shown(here.client, name)
                if work["failure"]:
                    here.fail(work["failure"])
                here.say(f"{name}: {work['output']}")


if __name__ == "__main__":
    main()
