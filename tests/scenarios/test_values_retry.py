"""Retries that the caller owns: one ref, one outcome, every attempt a turn of its own."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import PollCompleted, PollPending, Snapshot
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Failed
from genagent_protocol.reasons import (
    INTERRUPTED,
    PRE_TURN_SKIPPED,
    TASK_SUPERVISOR_UNAVAILABLE,
)
from genagent_protocol.turns.decisions import Halt, NoReply, Run, Skip
from genagent_protocol.turns.effects import ArmDeadline
from genagent_protocol.turns.inputs import TurnsAllowed, TurnsRefused
from support.turns_scripted import Answer, ScriptedAgent
from support.turns_values import done, failed, ref, response


def attempt(snapshot: Snapshot) -> tuple[str, int]:
    current = snapshot.current_request
    assert current is not None
    return current.origin, current.attempt


def test_s188_an_asker_waits_through_the_retry() -> None:
    """handle_error returns a prompt: the caller gets the retry's success; one ref throughout."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.script("handle_error", "again")
    agent.fail()
    assert agent.reply(ref(1)) is None
    agent.end("recovered")

    assert agent.reply(ref(1)) == done("recovered")
    assert [line for line in agent.story if line.startswith("start")] == ["start r1", "start r1"]


def test_s189_a_tell_stays_pending_between_its_attempts() -> None:
    """poll pending, snapshot attempt 2 origin tell, exactly one completion."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.script("handle_error", "again")
    agent.fail()

    assert agent.poll(1) == PollPending()
    assert attempt(agent.snapshot()) == ("tell", 2)
    agent.end()
    assert agent.completions(1) == [done()]


def test_s190_every_attempt_is_told_and_decided() -> None:
    """Two failures then success: start and end per attempt; callbacks for each failure."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.script("handle_error", "2", "3")
    agent.fail()
    agent.fail()
    agent.end()

    assert [n.attempt for n in agent.emitted("turn.start")] == [1, 2, 3]
    ends = [(n.name, n.attempt) for n in agent.emitted("turn.error", "turn.stop")]
    assert ends == [("turn.error", 1), ("turn.error", 2), ("turn.stop", 3)]
    assert len(agent.handled("handle_error")) == 2
    assert len(agent.handled("post_turn")) == 3


@pytest.mark.parametrize(("answer", "halted"), [(NoReply(), False), (Halt(), True)])
def test_s191_the_last_error_is_delivered(answer: Answer, halted: bool) -> None:
    """Answered with noreply or halt: the caller gets the last error; halted iff halt."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.script("handle_error", "again", answer)
    agent.fail("first")
    agent.fail("last")

    assert agent.reply(ref(1)) == failed("last")
    assert agent.snapshot().halted is halted


def test_s192_a_retry_runs_before_older_prompts() -> None:
    """Retry pending and two queued asks: retry first, then their order."""
    agent = ScriptedAgent()
    agent.ask(1, "one")
    agent.ask(2, "two")
    agent.ask(3, "three")
    agent.script("handle_error", "one again")
    agent.fail()
    agent.end()
    agent.end()

    assert agent.prompts == ["one", "one again", "two", "three"]


def test_s193_an_interrupted_attempt_is_not_tried_again() -> None:
    """Second attempt interrupted: completion interrupted; the prompt runs on its own."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.script("handle_error", "again", "recover")
    agent.fail()
    agent.interrupt_request(1)
    agent.stopped()

    assert agent.completions(1) == [Failed(INTERRUPTED)]
    assert agent.prompts[2:] == ["recover"]
    assert attempt(agent.snapshot()) == ("self_chain", 1)


@pytest.mark.parametrize("end", ["watchdog", "crash"])
def test_s194_a_watchdog_or_a_crash_can_be_retried(end: str) -> None:
    """Recovered result."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.script("handle_error", "again")
    if end == "watchdog":
        agent.deadline("watchdog")
        agent.stopped()
    else:
        agent.crash()
    agent.end("recovered")

    assert agent.poll(1) == PollCompleted(response("recovered"))


def test_s196_a_retry_that_its_gate_refuses_fails_with_that() -> None:
    """The original caller gets the gate's reason."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.script("handle_error", "again")
    agent.script("pre_turn", Skip())
    agent.fail()

    assert agent.reply(ref(1)) == Failed(PRE_TURN_SKIPPED)
    (note,) = agent.emitted("turn.rejected")
    assert note.attempt == 2


def test_s197_a_failed_event_turn_goes_on_under_a_new_ref() -> None:
    """Event-origin turn fails and is re-prompted: new ref, origin self_chain."""
    agent = ScriptedAgent()
    agent.script("handle_event", "go")
    agent.notify()
    first = agent.snapshot().current_request
    agent.script("handle_error", "go on")
    agent.fail()
    second = agent.snapshot().current_request

    assert first is not None
    assert second is not None
    assert second.ref != first.ref
    assert (second.origin, second.attempt) == ("self_chain", 1)


def test_s198_what_cannot_be_started_is_not_tried_again_at_once() -> None:
    """handle_error always re-prompts: one failure, prompt discarded, a later request works."""
    agent = ScriptedAgent()
    agent.feed(TurnsRefused())
    agent.script("handle_error", "again")
    agent.submit(1)
    assert agent.completions(1) == [Failed(TASK_SUPERVISOR_UNAVAILABLE)]
    assert len(agent.handled("handle_error")) == 1
    assert not agent.snapshot().self_chain_pending
    agent.feed(TurnsAllowed())
    agent.submit(2)
    agent.end()

    assert agent.completions(2) == [done()]


def test_each_attempt_has_its_own_watchdog() -> None:
    """A retry gets the whole time again."""
    agent = ScriptedAgent(Limits(watchdog_ms=50))
    agent.submit(1)
    agent.script("handle_error", "again", "and again")
    for _ in range(2):
        agent.deadline("watchdog")
        agent.stopped()

    armed = [e for e in agent.effects if isinstance(e, ArmDeadline) and e.name == "watchdog"]
    assert [(e.after_ms, e.turn) for e in armed] == [(50, 1), (50, 2), (50, 3)]
    assert attempt(agent.snapshot()) == ("tell", 3)


def test_a_retry_passes_its_gate_with_its_new_prompt() -> None:
    """The gate rewrites each attempt afresh."""
    agent = ScriptedAgent()
    agent.script("pre_turn", Run("1st"), Run("2nd"))
    agent.submit(1, "raw")
    agent.script("handle_error", "raw again")
    agent.fail()

    assert agent.prompts == ["1st", "2nd"]
    assert [line for line in agent.story if line.startswith("pre_turn")] == [
        "pre_turn raw",
        "pre_turn raw again",
    ]
