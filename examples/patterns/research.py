"""Research: one agent works through phases by itself, each turn prompting the next.

    tell ──▶ plan ──▶ answer 1 ──▶ … ──▶ answer n ──▶ report ──▶ halt
               └── every arrow is a Prompt from handle_response

A halted agent is alive and can be resumed; a finished one keeps its report and halts
again. Whoever started it stops it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from examples.patterns.company import Voice, Watch, cast, of_voice, shown, stopping, watching
from examples.patterns.stage import stage
from genagent_protocol.plain import FrozenDict
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

NUMBERING = re.compile(r"^\s*(?:[-*•]|\(?\d+[.):]?)\s*")


@dataclass(frozen=True)
class Study:
    """How far the research is."""

    limit: int
    phase: Literal["planning", "answering", "writing", "done", "failed"] = "planning"
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    report: str = ""
    failure: str = ""

    def failed(self, why: str) -> Halt[Study]:
        """Return the end that is no report."""
        return Halt(replace(self, phase="failed", failure=why))


def questions_in(text: str, limit: int) -> tuple[str, ...]:
    """Return the first *limit* lines that are questions, without their numbering."""
    lines = (NUMBERING.sub("", line).strip() for line in text.splitlines())
    return tuple(line for line in lines if line.endswith("?"))[:limit]


class Researcher(Agent[Study]):
    """Plans questions, answers each, and writes the report."""

    def init_agent(self, options: FrozenDict) -> Started[Study]:
        limit = options["limit"]
        assert isinstance(limit, int)
        return Started(of_voice(options), Study(limit))

    def handle_response(
        self, _ref: RequestRef, response: Response, study: Study
    ) -> Prompt[Study] | Halt[Study]:
        match study.phase:
            case "planning":
                questions = questions_in(response.text, study.limit)
                if not questions:
                    return study.failed("the plan has no question in it")
                return self._next(replace(study, phase="answering", questions=questions))
            case "answering":
                return self._next(replace(study, answers=(*study.answers, response.text)))
            case "writing":
                return Halt(replace(study, phase="done", report=response.text))
            case "done" | "failed":
                return Halt(study)

    def _next(self, study: Study) -> Prompt[Study]:
        done = len(study.answers)
        if done < len(study.questions):
            return Prompt(f"Answer in one sentence: {study.questions[done]}", study)
        facts = "\n".join(
            f"{question} {answer}"
            for question, answer in zip(study.questions, study.answers, strict=True)
        )
        return Prompt(f"Write a short report from this:\n{facts}", replace(study, phase="writing"))

    def handle_error(
        self, _ref: RequestRef, reason: Failure, study: Study
    ) -> NoReply[Study] | Halt[Study]:
        if study.phase in ("done", "failed"):
            return Halt(study)
        return study.failed(str(reason))

    def show_state(self, study: Study) -> FrozenDict:
        return FrozenDict(
            phase=study.phase,
            questions=study.questions,
            answers=study.answers,
            report=study.report,
            failure=study.failure,
        )


def begin(client: Client, name: str, topic: str, voice: Voice, limit: int = 3) -> AgentHandle:
    """Start a researcher on *topic*; everything after this it does by itself."""
    handle = client.start_agent(cast(Researcher, name, voice, limit=limit))
    client.tell(name, f"List {limit} short questions about: {topic}\nOne per line, nothing else.")
    return handle


def finished(
    client: Client, watch: Watch, name: str, within_ms: int = 600_000
) -> Mapping[str, Any]:
    """Return what the study came to, once it is done or has failed.

    Raises:
        TimeoutError: it is not over after *within_ms*. It goes on; stop it if you like.
        CallTimeout: the agent did not even say how far it is within that time.
    """

    def over() -> Mapping[str, Any] | None:
        study = shown(client, name, within_ms)
        return study if study["phase"] in ("done", "failed") else None

    return watch.until(over, f"{name} is done", within_ms)


def main() -> None:
    """A study of two questions."""
    with stage("Research: one agent works through phases.") as here, watching(here.client) as watch:
        voice = here.voice(
            says("1. What does a supervisor do?\n2. What dies with what?"),
            says("It starts processes, watches them, and says how they ended."),
            says("An agent takes its turn and its provider processes along, and nothing else."),
            says("A supervisor knows how everything ended, because ends are its business."),
        )
        handle = begin(here.client, "researcher", "process supervision", voice, limit=2)
        with stopping(here.client, [handle]):
            study = finished(here.client, watch, "researcher")
            for question, answer in zip(study["questions"], study["answers"], strict=False):
                here.say(f"{question} {answer}")
            if study["phase"] == "failed":
                here.fail(study["failure"])
            here.say(f"done: {study['report']}")


if __name__ == "__main__":
    main()
