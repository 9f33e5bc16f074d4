"""Checkpointer: after every step the agent waits for a person, who approves, revises or finishes.

    tell ──▶ draft 1 ──▶ review ──{"approve": token}──▶ draft 2 ──▶ review ──▶ … ──▶ halt
                           └──{"revise": token, "feedback": …}──▶ draft 1 again

While it waits the agent is idle, and not halted: a halted one would queue the very
decision it waits for. A decision names the draft it is about; sent twice, too late or
for another draft, it does nothing.
"""

from __future__ import annotations

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
from genagentd.messages import Failure
from genagentd.testing import says


@dataclass(frozen=True)
class Review:
    """Which step it is, its draft, and what was approved so far."""

    steps: tuple[str, ...]
    phase: Literal["drafting", "review", "failed", "done"] = "drafting"
    approved: tuple[str, ...] = ()
    draft: str = ""
    #: What a decision has to name; empty when none is awaited.
    token: str = ""
    prompt: str = ""
    failure: str = ""

    @property
    def step(self) -> str:
        """The task of the current step."""
        return self.steps[len(self.approved)]

    def awaiting(self, phase: Literal["review", "failed"]) -> Review:
        """Return it waiting for a decision about what is there now."""
        return replace(self, phase=phase, token=os.urandom(8).hex())


Decision = NoReply[Review] | Prompt[Review] | Halt[Review]


class Drafter(Agent[Review]):
    """Drafts a step and waits for the verdict."""

    def init_agent(self, options: FrozenDict) -> Started[Review]:
        steps = options["steps"]
        assert isinstance(steps, tuple)
        return Started(of_voice(options), Review(tuple(map(str, steps))))

    def pre_turn(self, prompt: str, review: Review) -> Run[Review]:
        return Run(prompt, replace(review, phase="drafting", token="", prompt=prompt))

    def handle_response(self, _ref: RequestRef, response: Response, review: Review) -> Decision:
        return NoReply(replace(review, draft=response.text, failure="").awaiting("review"))

    def handle_error(self, _ref: RequestRef, reason: Failure, review: Review) -> Decision:
        if review.phase == "done":
            return Halt(review)
        return NoReply(replace(review, failure=str(reason)).awaiting("failed"))

    def handle_event(self, event: Plain, review: Review) -> Decision:
        match event:
            case {"approve": str(token)} if self._awaited(review, "review", token):
                return self._next(replace(review, approved=(*review.approved, review.draft)))
            case {"revise": str(token), "feedback": str(wish)} if self._awaited(
                review, "review", token
            ):
                revise = f"{review.step}\nYour draft: {review.draft}\nChange this: {wish}"
                return Prompt(revise, replace(review, phase="drafting", token=""))
            case {"finish": str(token)} if self._awaited(review, "review", token):
                return Halt(
                    replace(
                        review, phase="done", token="", approved=(*review.approved, review.draft)
                    )
                )
            case {"retry": str(token)} if self._awaited(review, "failed", token):
                return Prompt(review.prompt, replace(review, phase="drafting", token=""))
        return NoReply(review)

    def _awaited(self, review: Review, phase: str, token: str) -> bool:
        return review.phase == phase and review.token == token

    def _next(self, review: Review) -> Decision:
        if len(review.approved) == len(review.steps):
            return Halt(replace(review, phase="done", token=""))
        return Prompt(review.step, replace(review, phase="drafting", token="", draft=""))

    def show_state(self, review: Review) -> FrozenDict:
        return FrozenDict(
            phase=review.phase,
            step=min(len(review.approved) + 1, len(review.steps)),
            draft=review.draft,
            token=review.token,
            approved=review.approved,
            prompt=review.prompt,
            failure=review.failure,
        )


def begin(client: Client, name: str, steps: list[str], voice: Voice) -> AgentHandle:
    """Start the drafter and have it draft the first step."""
    handle = client.start_agent(cast(Drafter, name, voice, steps=steps))
    client.tell(name, steps[0])
    return handle


def awaited(client: Client, watch: Watch, name: str) -> Mapping[str, Any]:
    """Return the review once a decision is awaited, a turn has failed, or everything is done."""

    def waits() -> Mapping[str, Any] | None:
        review = shown(client, name)
        return review if review["phase"] != "drafting" else None

    return watch.until(waits, f"{name} waits for a decision", 600_000)


def main() -> None:
    """Approve, send back once, approve."""
    with stage("Checkpointer: a person in the loop.") as here, watching(here.client) as watch:
        voice = here.voice(
            says("Agents that stay."),
            says("Each agent is a process. It has a queue, a session and a monitor."),
            says("Each agent is one process with one session."),
        )
        steps = ["Write a title about long-running agents.", "Write the first sentence."]
        with stopping(here.client, [begin(here.client, "drafter", steps, voice)]):
            for verdict in ("approve", "revise", "approve"):
                review = awaited(here.client, watch, "drafter")
                if review["phase"] == "failed":
                    # A person could have it tried again; nobody sits here.
                    here.fail(review["failure"])
                here.say(f"step {review['step']}: {review['draft']}")
                decision = {verdict: review["token"]}
                if verdict == "revise":
                    decision["feedback"] = "shorter, one sentence"
                here.client.notify_ack("drafter", decision)
                here.say(f"  reviewer: {verdict}")
                # The same decision once more changes nothing.
                here.client.notify_ack("drafter", decision)
            watch.until_halted(["drafter"])
            review = shown(here.client, "drafter")
            here.say(f"{review['phase']}: {' / '.join(review['approved'])}")


if __name__ == "__main__":
    main()
