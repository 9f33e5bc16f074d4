"""S260: phases in order, and a report that outlives further prompts."""

from __future__ import annotations

import pytest

from examples.patterns.company import Voice, Watch, cast, shown
from examples.patterns.research import Researcher, begin, finished, questions_in
from genagentd import CallTimeout, Client
from genagentd.testing import Gates, breaks, holds, says, scripted

pytestmark = pytest.mark.process


def _voice(*turns: list[dict[str, object]], gates: Gates | None = None) -> Voice:
    return Voice("scripted", scripted(*turns, gates=gates))


PLAN = says("Some questions:\n1) What is it?\n 2. Why?\nnot one\n- Who cares?")


def test_s260_the_phases_follow_each_other_and_make_one_report(
    genagent_client: Client, watch: Watch
) -> None:
    """Two questions make four turns."""
    begin(
        genagent_client,
        "r",
        "it",
        _voice(PLAN, says("A thing."), says("Because."), says("REPORT")),
        limit=2,
    )

    study = finished(genagent_client, watch, "r")

    assert study["phase"] == "done"
    assert study["questions"] == ("What is it?", "Why?")
    assert study["answers"] == ("A thing.", "Because.")
    assert study["report"] == "REPORT"


def test_the_caller_of_the_first_prompt_gets_the_first_turn(genagent_client: Client) -> None:
    """The chain is the agent's own work; its caller asked for the plan."""
    voice = _voice(says("Why?"), says("Because."), says("REPORT"))
    genagent_client.start_agent(cast(Researcher, "r", voice, limit=1))

    assert genagent_client.ask("r", "plan").text == "Why?"


def test_a_finished_study_keeps_its_report(genagent_client: Client, watch: Watch) -> None:
    """Resumed and prompted again, it halts again with the same report."""
    voice = _voice(says("Why?"), says("Because."), says("REPORT"), says("something else"))
    begin(genagent_client, "r", "it", voice, limit=1)
    finished(genagent_client, watch, "r")
    watch.until_halted(["r"])

    genagent_client.resume("r")
    assert genagent_client.ask("r", "and now?").text == "something else"
    watch.until_halted(["r"])

    assert shown(genagent_client, "r")["report"] == "REPORT"


def test_a_plan_without_questions_fails(genagent_client: Client, watch: Watch) -> None:
    """There is nothing to work on, and it says so."""
    begin(genagent_client, "r", "it", _voice(says("I would rather not.")))

    study = finished(genagent_client, watch, "r")

    assert (study["phase"], study["failure"]) == ("failed", "the plan has no question in it")


def test_a_failed_turn_ends_the_study_with_its_reason(
    genagent_client: Client, watch: Watch
) -> None:
    """A study that goes on without an answer would report what nobody found out."""
    begin(genagent_client, "r", "it", _voice(PLAN, breaks("provider away")))

    study = finished(genagent_client, watch, "r")

    assert study["phase"] == "failed"
    assert "provider away" in study["failure"]
    watch.until_halted(["r"])


def test_waiting_for_a_study_is_bounded(
    genagent_client: Client, watch: Watch, genagent_gates: Gates
) -> None:
    """The study goes on; only the waiting ends."""
    voice = _voice(holds("plan", "Why?"), gates=genagent_gates)
    begin(genagent_client, "r", "it", voice)
    genagent_gates.wait_blocked("plan")

    with pytest.raises((TimeoutError, CallTimeout)):
        finished(genagent_client, watch, "r", within_ms=100)

    assert genagent_client.runtime_snapshot("r").phase == "processing"
    genagent_gates.release("plan")


def test_numbering_goes_before_the_limit_counts() -> None:
    """A numbered line that is no question must not take a question's place."""
    assert questions_in("1. Intro\n2) (a?\n3. Why?\n(4) How?", 2) == ("(a?", "Why?")
