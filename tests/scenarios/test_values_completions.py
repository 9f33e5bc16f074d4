"""Completions by message and relayed events: once, in order, and to nobody else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genagent_protocol.answers import CancelAnswer, NotFound, Ok, PollFailed, Refused
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, Failed, event
from genagent_protocol.reasons import (
    CANCELLED,
    HALTED,
    INTERRUPTED,
    PRE_TURN_HALTED,
    PRE_TURN_INVALID,
    PRE_TURN_SKIPPED,
    SHUTDOWN,
    TIMEOUT,
    AgentTerminated,
    Reason,
)
from genagent_protocol.turns.decisions import Decision, Halt, Invalid, Skip
from genagent_protocol.turns.effects import SendCompletion, SendEvent, StartTurn
from genagent_protocol.turns.inputs import TurnEventReceived
from support.turns_scripted import ScriptedAgent, raises
from support.turns_values import done, failed, ref

BAD_GATES: list[tuple[Decision, Reason]] = [
    (Skip(), PRE_TURN_SKIPPED),
    (Halt(), PRE_TURN_HALTED),
    (Invalid(), PRE_TURN_INVALID),
]


def told(agent: ScriptedAgent, number: int) -> list[str]:
    """Return what the callers heard of that request, in order."""
    wanted = (f"admission r{number}", f"event r{number}", f"completion r{number}")
    return [line for line in agent.story if line.startswith(wanted)]


def test_s070_a_completion_follows_decision_and_post_turn() -> None:
    """Backend start, decision, post_turn, then exactly one completion with that ref."""
    agent = ScriptedAgent()
    agent.tell(1, to="bob")
    agent.end()

    order = ["start r1", "handle_response r1", "post_turn r1 ok", "completion r1 ok"]
    assert [line for line in agent.story if line in order] == order
    assert agent.completions(1) == [done()]


def test_s071_completions_do_not_depend_on_the_memory() -> None:
    """Cache size 1: both completions arrive although the first is no longer pollable."""
    agent = ScriptedAgent(Limits(max_tell_results=1))
    for number in (1, 2):
        agent.tell(number, to="bob")
        agent.end()

    assert [agent.completions(number) for number in (1, 2)] == [[done()], [done()]]
    assert agent.poll(1) == NotFound()


@pytest.mark.parametrize(("answer", "reason"), BAD_GATES)
def test_s072_a_refusing_gate_completes_the_request(answer: Decision, reason: Reason) -> None:
    """Completion with the matching reason, poll agrees, no backend start, no post_turn."""
    agent = ScriptedAgent()
    agent.script("pre_turn", answer)

    assert agent.tell(1, to="bob") == Ok()
    assert agent.completions(1) == [Failed(reason)]
    assert agent.poll(1) == PollFailed(reason)
    assert agent.prompts == []
    assert agent.handled("post_turn") == []


def test_s073_the_completion_of_a_skipped_tell_follows_its_answer() -> None:
    """Both are there when the call returns; waiting for one never waits for the other."""
    agent = ScriptedAgent()
    agent.script("pre_turn", Skip())
    agent.tell(1, to="bob")

    assert agent.story[-2:] == ["reply c1 Ok", "completion r1 pre_turn_skipped"]


def test_s074_a_rejected_tell_gets_no_completion_ever() -> None:
    """Queue of 1 with one queued: overload, no completion; the queued one completes later."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    agent.tell(1)
    agent.tell(2, to="bob")
    refusal = agent.tell(3, to="bob")
    agent.end()
    agent.end()

    assert isinstance(refusal, Refused)
    assert refusal.reason.code == "overloaded"
    assert [agent.completions(number) for number in (2, 3)] == [[done()], []]
    assert agent.poll(3) == NotFound()


def interrupted(agent: ScriptedAgent) -> None:
    agent.interrupt()
    agent.stopped()


def timed_out(agent: ScriptedAgent) -> None:
    agent.deadline("watchdog")
    agent.stopped()


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (lambda agent: agent.fail("r"), failed("r")),
        (interrupted, Failed(INTERRUPTED)),
        (timed_out, Failed(TIMEOUT)),
    ],
)
def test_s075_each_bad_end_is_one_error_completion(
    end: Callable[[ScriptedAgent], None], outcome: Failed
) -> None:
    """Backend error, interrupt, watchdog: one each, none twice."""
    agent = ScriptedAgent()
    agent.submit(1)
    end(agent)

    assert agent.completions(1) == [outcome]


def test_s076_only_the_recipient_gets_the_message() -> None:
    """Recipient is another process."""
    agent = ScriptedAgent()
    agent.tell(1, to="dora")
    agent.end()

    assert agent.orders(SendCompletion) == [SendCompletion("dora", ref(1), done())]


@pytest.mark.parametrize("first", ["result", "interrupt"])
def test_s078_a_race_of_result_and_interrupt_has_one_outcome(first: str) -> None:
    """Whatever the interrupt is answered, the request has one outcome."""
    agent = ScriptedAgent()
    agent.submit(1)
    if first == "interrupt":
        call = agent.interrupt_request(1)
        agent.end()
    else:
        agent.end()
        call = agent.interrupt_request(1)

    assert agent.completions(1) == [Failed(INTERRUPTED) if first == "interrupt" else done()]
    assert agent.reply(call) is not None


def test_s079_a_stop_invents_no_completions() -> None:
    """Active and queued completion tells; stop: nothing for either."""
    agent = ScriptedAgent()
    agent.tell(1, to="bob")
    agent.tell(2, to="bob")
    agent.stop()
    agent.end()

    assert agent.exit == SHUTDOWN
    assert agent.orders(SendCompletion) == []


def test_s080_a_crashing_decision_ends_the_agent_before_the_completion() -> None:
    """handle_response raises: exit, no completion."""
    agent = ScriptedAgent()
    agent.script("handle_response", raises("handle_response"))
    agent.submit(1)
    agent.end()

    assert agent.exit is not None
    assert agent.exit.text == "callback_failed"
    assert agent.orders(SendCompletion) == []


def test_s081_a_tell_may_choose_to_fail_at_a_halted_agent() -> None:
    """on_halt fail: halted at once, nothing queued; an ordinary one queues and runs later."""
    agent = ScriptedAgent()
    agent.halt()

    assert agent.tell(1, to="bob", on_halt="fail") == Refused(HALTED)
    assert agent.snapshot().pending_prompts == 0
    assert agent.tell(2, to="bob") == Ok()
    agent.resume()
    agent.end()
    assert [agent.completions(number) for number in (1, 2)] == [[], [done()]]


def test_s082_a_halt_fails_what_chose_to_fail_and_keeps_the_rest() -> None:
    """Queue: halter, fail-A, ordinary, fail-B: A and B complete once, ordinary runs later."""
    agent = ScriptedAgent()
    agent.submit(1, "halter")
    agent.submit(2, "A", on_halt="fail")
    agent.submit(3, "ordinary")
    agent.submit(4, "B", on_halt="fail")
    agent.script("handle_response", Halt())
    agent.end()

    assert agent.completions(2) == agent.completions(4) == [Failed(HALTED)]
    assert agent.completions(3) == []
    assert agent.snapshot().pending_prompts == 1
    agent.resume()
    agent.end()
    assert agent.completions(3) == [done()]
    assert agent.completions(2) == agent.completions(4) == [Failed(HALTED)]


def test_s083_a_cancelled_request_is_not_failed_again_by_a_halt() -> None:
    """Queued on_halt fail tell; cancel: one completion cancelled, a later halt adds none."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.submit(2, on_halt="fail")
    assert agent.cancel(2) == CancelAnswer("cancelled")
    agent.script("handle_response", Halt())
    agent.end()

    assert agent.completions(2) == [Failed(CANCELLED)]


def test_s085_an_orderly_stop_answers_the_asks() -> None:
    """Active and queued asks; orderly stop: both get agent_terminated shutdown."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.ask(2)
    agent.stop()

    assert agent.reply(ref(1)) == agent.reply(ref(2)) == Failed(AgentTerminated(SHUTDOWN))


def test_s086_an_ask_of_a_crashing_decision_gets_no_answer() -> None:
    """Active ask, decision raises: the asker's call ends with the process."""
    agent = ScriptedAgent()
    agent.script("handle_response", raises("handle_response"))
    agent.ask(1)
    agent.end()

    assert agent.reply(ref(1)) is None
    assert agent.exit is not None


# Relayed events


def say(agent: ScriptedAgent, *texts: str) -> None:
    for text in texts:
        agent.event(event("text", text=text))


def test_s087_events_come_in_order_and_then_the_completion() -> None:
    """Events a, b, result to the recipient: exactly those, in order, then the completion."""
    agent = ScriptedAgent()
    agent.submit(1, stream_to="bob")
    say(agent, "a", "b")
    agent.event(event("result"))
    agent.end()

    relayed = ["event r1 text", "event r1 text", "event r1 result"]
    assert told(agent, 1) == ["admission r1 ok", *relayed, "completion r1 ok"]


def test_s089_without_a_target_no_event_is_relayed_nor_wanted() -> None:
    """Default: no event messages, and the turn need not report any."""
    agent = ScriptedAgent()
    agent.submit(1)
    say(agent, "a")

    assert agent.orders(SendEvent) == []
    assert [start.relayed for start in agent.effects if isinstance(start, StartTurn)] == [False]


def test_s090_a_separate_sink_gets_the_events_alone() -> None:
    """Sink gets events, recipient only the completion."""
    agent = ScriptedAgent()
    agent.submit(1, to="bob", stream_to="screen")
    say(agent, "a")
    agent.end()

    assert [e.stream_to for e in agent.effects if isinstance(e, SendEvent)] == ["screen"]
    assert [e.recipient for e in agent.effects if isinstance(e, SendCompletion)] == ["bob"]


def test_s091_each_request_has_its_own_events() -> None:
    """Two streamed requests, the second queued: all of the first before the second's."""
    agent = ScriptedAgent()
    agent.submit(1, stream_to="bob")
    agent.submit(2, stream_to="bob")
    say(agent, "a", "b")
    agent.end()
    say(agent, "c")
    agent.end()

    refs = [e.ref for e in agent.effects if isinstance(e, SendEvent)]
    assert refs == [ref(1), ref(1), ref(2)]


def test_s092_a_request_that_never_ran_streams_nothing() -> None:
    """Cancelled, skipped, halted, overloaded, synchronous error, not startable."""
    agent = ScriptedAgent(Limits(max_pending_prompts=2))
    agent.submit(1)
    agent.submit(2, stream_to="bob")
    agent.submit(3, stream_to="bob", on_halt="fail")
    agent.submit(4, stream_to="bob")
    agent.cancel(2)
    agent.script("handle_response", Halt())
    agent.end()
    agent.resume()
    agent.script("pre_turn", Skip())
    agent.submit(5, stream_to="bob")
    agent.submit(6, stream_to="bob")
    agent.fail(dispatched=False)
    agent.start_failure = Reason("task_supervisor_unavailable")
    agent.submit(7, stream_to="bob")

    assert agent.orders(SendEvent) == []
    assert {n: len(agent.completions(n)) for n in (2, 3, 4, 5, 6, 7)} == {
        2: 1,
        3: 1,
        4: 0,
        5: 1,
        6: 1,
        7: 1,
    }


@pytest.mark.parametrize("why", ["interrupt", "watchdog"])
def test_s093_a_stopped_turn_streams_nothing_more(why: str) -> None:
    """No event for that ref after its stop; the next request streams normally."""
    agent = ScriptedAgent()
    agent.submit(1, stream_to="bob")
    say(agent, "a")
    if why == "interrupt":
        agent.interrupt()
    else:
        agent.deadline("watchdog")
    say(agent, "swallowed")
    agent.stopped()
    agent.feed(TurnEventReceived(1, event("text", text="late")))
    agent.submit(2, stream_to="bob")
    say(agent, "b")

    assert [e.ref for e in agent.effects if isinstance(e, SendEvent)] == [ref(1), ref(2)]


def test_s094_a_forged_relay_is_not_forwarded() -> None:
    """Wrong or stale turn number."""
    agent = ScriptedAgent()
    agent.submit(1, stream_to="bob")
    agent.feed(TurnEventReceived(7, event("text", text="forged")))

    assert agent.orders(SendEvent) == []


def test_s096_every_attempt_streams_under_the_same_ref() -> None:
    """Retry after streamed failure: events of both attempts, then one completion."""
    agent = ScriptedAgent()
    agent.submit(1, stream_to="bob")
    say(agent, "a")
    agent.event(event("error", reason="r"))
    agent.script("handle_error", "again")
    agent.fail("r")
    say(agent, "b")
    agent.end()

    relayed = ["event r1 text", "event r1 error", "event r1 text"]
    assert told(agent, 1) == ["admission r1 ok", *relayed, "completion r1 ok"]
    assert agent.completions(1) == [Completed(done().response)]
