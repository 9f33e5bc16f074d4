"""What a holder of a captured handle may count on, as far as the agent decides it."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import CancelAnswer, InterruptAnswer, NotFound, Refused
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Failed
from genagent_protocol.reasons import (
    CANCELLED,
    DRAINING,
    HALTED,
    INTERRUPTED,
    TASK_SUPERVISOR_UNAVAILABLE,
)
from genagent_protocol.turns.decisions import Halt, Invalid, Skip
from genagent_protocol.turns.effects import SendAdmission, SendCompletion
from genagent_protocol.turns.inputs import TurnsRefused
from support.turns_scripted import Answer, ScriptedAgent, raises
from support.turns_values import done, ref


def test_s097_a_submission_is_admitted_and_then_completed_under_its_ref() -> None:
    """Admission ok, then completion, the same ref."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.end()

    said = [line for line in agent.story if line.startswith(("admission", "completion"))]
    assert said == ["admission r1 ok", "completion r1 ok"]


def test_s100_the_admission_waits_for_the_callback_that_blocks_the_agent() -> None:
    """Nothing is said for an agent whose gate is still looking."""
    agent = ScriptedAgent()
    agent.hold("pre_turn")
    agent.submit(1)
    assert agent.orders(SendAdmission) == []
    agent.release()

    assert len(agent.orders(SendAdmission)) == 1


def test_s101_an_overloaded_submission_leaves_no_trace() -> None:
    """Admission overload, no completion, poll and cancel say not_found."""
    agent = ScriptedAgent(Limits(max_pending_prompts=0))
    agent.submit(1)
    agent.submit(2)
    agent.end()

    assert "admission r2 overloaded" in agent.story
    assert agent.completions(2) == []
    assert agent.poll(2) == NotFound()
    assert agent.cancel(2) == CancelAnswer("not_found")


def test_s102_a_draining_agent_refuses_a_submission() -> None:
    """Admission draining, no completion."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.drain()
    agent.submit(2)
    agent.end()

    assert SendAdmission("bob", ref(2), Refused(DRAINING)) in agent.effects
    assert agent.completions(2) == []
    assert agent.completions(1) == [done()]


def test_s103_a_halted_agent_refuses_or_queues_as_the_submission_says() -> None:
    """With fail: halted; with queue: admitted, and completed after resume."""
    agent = ScriptedAgent()
    agent.halt()
    agent.submit(1, on_halt="fail")
    agent.submit(2)
    assert SendAdmission("bob", ref(1), Refused(HALTED)) in agent.effects
    agent.resume()
    agent.end()

    assert agent.completions(1) == []
    assert agent.completions(2) == [done()]


@pytest.mark.parametrize(
    "answer", [Skip(), Halt(), Invalid(), raises("pre_turn")], ids=lambda a: type(a).__name__
)
def test_s104_a_refusing_gate_is_one_admission_and_one_completion(answer: Answer) -> None:
    """Accepted work: exactly one error completion and one admission ok."""
    agent = ScriptedAgent()
    agent.script("pre_turn", answer)
    agent.submit(1)

    assert agent.story.count("admission r1 ok") == 1
    assert len(agent.completions(1)) == 1
    assert isinstance(agent.completions(1)[0], Failed)


def test_s105_a_turn_that_cannot_be_started_was_accepted() -> None:
    """Group closing: error completion, admission ok."""
    agent = ScriptedAgent()
    agent.feed(TurnsRefused())
    agent.submit(1)

    assert "admission r1 ok" in agent.story
    assert agent.completions(1) == [Failed(TASK_SUPERVISOR_UNAVAILABLE)]


def test_s110_an_orderly_stop_invents_no_completion() -> None:
    """Accepted request, orderly stop."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.stop()
    agent.end()

    assert agent.orders(SendCompletion) == []


def test_s112_the_same_prompt_twice_is_two_turns() -> None:
    """Two submits of the same prompt: two refs, two turns."""
    agent = ScriptedAgent()
    agent.submit(1, "same")
    agent.submit(2, "same")
    agent.end()
    agent.end()

    assert agent.prompts == ["same", "same"]
    assert [agent.completions(number) for number in (1, 2)] == [[done()], [done()]]


def test_s113_retries_are_one_admission_and_one_completion() -> None:
    """Failing attempts retried by the agent."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.script("handle_error", "again", "again")
    agent.fail()
    agent.fail()
    agent.end()

    assert agent.story.count("admission r1 ok") == 1
    assert agent.completions(1) == [done()]


def test_s114_a_queued_submission_can_be_cancelled() -> None:
    """ok cancelled, completion cancelled once, capacity back."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    agent.submit(1)
    agent.submit(2)

    assert agent.cancel(2) == CancelAnswer("cancelled")
    assert agent.completions(2) == [Failed(CANCELLED)]
    agent.submit(3)
    assert "admission r3 ok" in agent.story


def test_s115_an_active_submission_is_interrupted_under_the_same_ref() -> None:
    """cancel: current; interrupt: accepted, completion interrupted."""
    agent = ScriptedAgent()
    agent.submit(1)
    assert agent.cancel(1) == CancelAnswer("current")
    call = agent.interrupt_request(1)
    assert agent.reply(call) is None
    agent.stopped()

    assert agent.reply(call) == InterruptAnswer("accepted")
    assert agent.completions(1) == [Failed(INTERRUPTED)]


def test_s117_work_that_was_dispatched_before_the_cancel_runs() -> None:
    """The cancel was sent earlier and is processed later: current; the work ran."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.submit(2)
    agent.end()

    assert agent.cancel(2) == CancelAnswer("current")
    agent.end()
    assert agent.completions(2) == [done()]


def test_s121_the_queue_bounds_what_is_processed_not_what_was_sent() -> None:
    """Many submissions while blocked, room for one: overload beyond capacity, in their order."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    for number in range(1, 6):
        agent.submit(number)

    said = [line.split()[-1] for line in agent.story if line.startswith("admission")]
    assert said == ["ok", "ok", "overloaded", "overloaded", "overloaded"]
