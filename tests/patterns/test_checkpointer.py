"""S267: nothing goes on without the decision about exactly the draft that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from examples.patterns.checkpointer import awaited, begin
from examples.patterns.company import Voice, Watch, shown
from genagentd import Client
from genagentd.testing import Gates, breaks, echoes, holds, says, scripted

pytestmark = pytest.mark.process

STEPS = ["one", "two", "three"]


def _decide(client: Client, **decision: str) -> None:
    client.notify_ack("d", decision)


def _begin(client: Client, *turns: Any, gates: Gates | None = None) -> None:
    begin(client, "d", STEPS, Voice("scripted", scripted(*turns, gates=gates)))


def _draft(client: Client, watch: Watch, text: str) -> Mapping[str, Any]:
    watch.until(lambda: shown(client, "d")["draft"] == text, f"draft {text}")
    return awaited(client, watch, "d")


def test_three_approvals_finish_it(genagent_client: Client, watch: Watch) -> None:
    """While it waits, it is idle and not halted: a halted one could not hear the decision."""
    _begin(genagent_client, says("1"), says("2"), says("3"))
    for text in ("1", "2", "3"):
        review = _draft(genagent_client, watch, text)
        snapshot = genagent_client.runtime_snapshot("d")
        assert (snapshot.phase, snapshot.halted) == ("idle", False)
        _decide(genagent_client, approve=review["token"])

    watch.until_halted(["d"])
    assert shown(genagent_client, "d")["approved"] == ("1", "2", "3")


def test_a_revision_repeats_the_step_with_the_feedback(
    genagent_client: Client, watch: Watch
) -> None:
    """The model is told what it wrote and what to change."""
    _begin(genagent_client, says("1"), echoes())
    review = _draft(genagent_client, watch, "1")

    _decide(genagent_client, revise=review["token"], feedback="shorter")
    review = _draft(genagent_client, watch, "one\nYour draft: 1\nChange this: shorter")

    assert review["step"] == 1
    assert review["approved"] == ()


def test_finishing_ends_it_early(genagent_client: Client, watch: Watch) -> None:
    """With what was approved, and the draft that is there."""
    _begin(genagent_client, says("1"))
    _decide(genagent_client, finish=_draft(genagent_client, watch, "1")["token"])

    watch.until_halted(["d"])
    review = shown(genagent_client, "d")
    assert (review["phase"], review["approved"]) == ("done", ("1",))


def test_s267_a_decision_counts_once(genagent_client: Client, watch: Watch) -> None:
    """A double click approves one step."""
    _begin(genagent_client, says("1"), says("2"))
    token = _draft(genagent_client, watch, "1")["token"]
    for _ in range(3):
        _decide(genagent_client, approve=token)

    assert _draft(genagent_client, watch, "2")["approved"] == ("1",)


@pytest.mark.parametrize("decision", ["approve", "finish"])
def test_a_decision_during_a_turn_is_ignored_after_it(
    genagent_client: Client, watch: Watch, genagent_gates: Gates, decision: str
) -> None:
    """It was about the draft before, which has been decided."""
    _begin(genagent_client, says("1"), holds("second", "2"), gates=genagent_gates)
    token = _draft(genagent_client, watch, "1")["token"]
    _decide(genagent_client, approve=token)
    genagent_gates.wait_blocked("second")
    _decide(genagent_client, **{decision: token})
    genagent_gates.release("second")

    review = _draft(genagent_client, watch, "2")
    assert (review["phase"], review["step"]) == ("review", 2)


def test_a_failed_turn_neither_advances_nor_loses_the_step(
    genagent_client: Client, watch: Watch
) -> None:
    """It shows, an approval means nothing to it, and a retry that names it goes on."""
    _begin(genagent_client, says("1"), breaks("away"), echoes())
    _decide(genagent_client, approve=_draft(genagent_client, watch, "1")["token"])
    watch.until(lambda: shown(genagent_client, "d")["phase"] == "failed", "it failed")
    review = shown(genagent_client, "d")
    assert (review["step"], review["failure"]) == (2, "backend_failed: away")

    _decide(genagent_client, approve=review["token"])
    assert shown(genagent_client, "d")["phase"] == "failed"
    _decide(genagent_client, retry="another failure")
    assert shown(genagent_client, "d")["phase"] == "failed"

    _decide(genagent_client, retry=review["token"])
    assert _draft(genagent_client, watch, "two")["failure"] == ""
