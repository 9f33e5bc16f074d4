"""Interrupting and cancelling: exactly what was named, and nothing beside it."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import CancelAnswer, InterruptAnswer, PollFailed, PollPending
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Failed
from genagent_protocol.reasons import CANCELLED, INTERRUPTED
from genagent_protocol.refs import Incarnation, RequestRef
from genagent_protocol.turns.decisions import Halt
from genagent_protocol.turns.effects import CancelTurn
from genagent_protocol.turns.inputs import CancelRequested, InterruptRequested
from support.turns_scripted import ScriptedAgent
from support.turns_values import done, ref

IDLE, NOT_CURRENT = InterruptAnswer("idle"), InterruptAnswer("not_current")
ACCEPTED = InterruptAnswer("accepted")


def test_s199_an_interrupt_stops_the_turn_and_tells_the_asker() -> None:
    """Held ask, interrupt: asker gets interrupted, turn stopped, agent idle."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.interrupt()
    assert agent.orders(CancelTurn) == [CancelTurn(1)]
    agent.stopped()

    assert agent.reply(ref(1)) == Failed(INTERRUPTED)
    assert agent.snapshot().phase == "idle"


def test_s200_an_interrupt_of_an_idle_agent_is_nothing() -> None:
    """Later turns are unaffected."""
    agent = ScriptedAgent()
    agent.interrupt()
    agent.ask(1)
    agent.end()

    assert agent.reply(ref(1)) == done()


def test_s201_an_exact_interrupt_is_acknowledged_when_all_is_done() -> None:
    """accepted, poll interrupted, one error callback; repeating: idle."""
    agent = ScriptedAgent()
    agent.tell(1)
    call = agent.interrupt_request(1)
    assert agent.reply(call) is None
    agent.stopped()

    assert agent.reply(call) == ACCEPTED
    assert agent.poll(1) == PollFailed(INTERRUPTED)
    assert len(agent.handled("handle_error")) == 1
    assert agent.reply(agent.interrupt_request(1)) == IDLE


def test_s202_the_ref_of_a_finished_turn_does_not_stop_the_next() -> None:
    """A finished, B active; interrupt A: not_current, B untouched."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.tell(2)
    agent.end()

    assert agent.reply(agent.interrupt_request(1)) == NOT_CURRENT
    assert agent.orders(CancelTurn) == []


def test_s203_an_idle_agent_has_nothing_to_interrupt() -> None:
    """Any ref."""
    agent = ScriptedAgent()

    assert agent.reply(agent.interrupt_request(1)) == IDLE


def test_s204_the_ref_of_another_life_stops_nothing_here() -> None:
    """Old incarnation's ref, busy replacement: not_current, even if the random part were equal."""
    agent = ScriptedAgent()
    agent.tell(1)
    life = ref(1).incarnation
    stranger = RequestRef(Incarnation(life.boot, life.number - 1), ref(1).token)
    agent.feed(InterruptRequested("c", stranger))
    agent.feed(CancelRequested("d", stranger))

    assert agent.reply("c") == NOT_CURRENT
    assert agent.reply("d") == CancelAnswer("not_found")
    assert agent.poll(1) == PollPending()


def test_s205_the_ref_of_a_queued_tell_is_not_current() -> None:
    """Queued tell's ref while another is active: still queued."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.tell(2)

    assert agent.reply(agent.interrupt_request(2)) == NOT_CURRENT
    assert agent.snapshot().pending_prompts == 1


def test_s206_the_queue_goes_on_after_an_interrupt() -> None:
    """Interrupted turn with a queued prompt: that runs next."""
    agent = ScriptedAgent()
    agent.tell(1, "one")
    agent.tell(2, "two")
    agent.interrupt()
    assert agent.prompts == ["one"]
    agent.stopped()

    assert agent.prompts == ["one", "two"]


def test_s207_handle_error_may_halt_on_an_interrupt() -> None:
    """Agent halted after the interrupt."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.script("handle_error", Halt())
    agent.interrupt()
    agent.stopped()

    assert agent.snapshot().halted


def test_while_a_turn_is_being_stopped_the_agent_answers() -> None:
    """A turn that takes its time to end must not make the agent look dead."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.tell(2)
    agent.interrupt()

    assert agent.poll(1) == PollPending()
    assert agent.snapshot().phase == "processing"
    assert agent.cancel(2) == CancelAnswer("cancelled")
    assert agent.cancel(1) == CancelAnswer("current")
    assert agent.ask(3) is None


def test_several_who_interrupt_are_all_acknowledged() -> None:
    """One turn is stopped once; everybody who wanted that hears of it."""
    agent = ScriptedAgent()
    agent.submit(1)
    calls = [agent.interrupt_request(1), agent.interrupt_request(1)]
    agent.interrupt()
    agent.stopped()

    assert [agent.reply(call) for call in calls] == [ACCEPTED, ACCEPTED]
    assert agent.orders(CancelTurn) == [CancelTurn(1)]
    assert agent.completions(1) == [Failed(INTERRUPTED)]


# Cancelling


def test_s208_a_cancelled_tell_never_runs() -> None:
    """cancelled, poll cancelled, never reaches the backend, no callbacks."""
    agent = ScriptedAgent()
    agent.tell(1, "one")
    agent.tell(2, "two")

    assert agent.cancel(2) == CancelAnswer("cancelled")
    assert agent.poll(2) == PollFailed(CANCELLED)
    agent.end()
    assert agent.prompts == ["one"]
    assert agent.handled("handle_error") == []


def test_s209_cancelling_again_says_the_same_and_does_nothing() -> None:
    """ok again while cached; one completion, one telemetry event."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.submit(2)

    assert [agent.cancel(2), agent.cancel(2)] == [CancelAnswer("cancelled")] * 2
    assert len(agent.completions(2)) == len(agent.emitted("turn.cancelled")) == 1


def test_s210_the_active_tell_cannot_be_cancelled() -> None:
    """error current, turn continues."""
    agent = ScriptedAgent()
    agent.submit(1)

    assert agent.cancel(1) == CancelAnswer("current")
    agent.end()
    assert agent.completions(1) == [done()]


def test_s211_what_is_finished_unknown_or_an_ask_cannot_be_cancelled() -> None:
    """Finished tell: already_finished; unknown, queued ask, evicted: not_found."""
    agent = ScriptedAgent(Limits(max_tell_results=1))
    agent.tell(1)
    agent.end()
    agent.tell(2)
    agent.end()
    agent.ask(3)
    agent.ask(4)
    answers = {number: agent.cancel(number) for number in (1, 2, 3, 4, 9)}

    finished, unknown = CancelAnswer("already_finished"), CancelAnswer("not_found")
    assert answers == {1: unknown, 2: finished, 3: unknown, 4: unknown, 9: unknown}
    agent.end()
    agent.end()
    assert agent.reply(ref(4)) == done()


def test_s212_a_cancellation_is_forgotten_with_its_result() -> None:
    """Cancellation evicted from the cache: not_found."""
    agent = ScriptedAgent(Limits(max_tell_results=1))
    agent.tell(1)
    agent.tell(2)
    agent.cancel(2)
    agent.end()

    assert agent.cancel(2) == CancelAnswer("not_found")


def test_s213_cancelling_one_does_not_touch_its_neighbours() -> None:
    """Cancelled B between A and C: C runs; cancelling B again cannot touch C."""
    agent = ScriptedAgent()
    for number, text in ((1, "A"), (2, "B"), (3, "C")):
        agent.submit(number, text)
    agent.cancel(2)
    agent.end()
    agent.cancel(2)
    agent.end()

    assert agent.prompts == ["A", "C"]
    assert agent.completions(3) == [done()]


def test_s214_nothing_runs_after_resume_if_all_was_cancelled() -> None:
    """Halted queued tell; cancel then resume."""
    agent = ScriptedAgent()
    agent.halt()
    agent.tell(1)
    agent.cancel(1)
    agent.resume()

    assert agent.prompts == []


@pytest.mark.parametrize("origin", ["event", "self_chain"])
def test_a_generated_turn_can_be_interrupted_by_its_ref_but_not_cancelled(origin: str) -> None:
    """Any origin can be active; only tells can be cancelled."""
    agent = ScriptedAgent()
    if origin == "event":
        agent.script("handle_event", "go")
        agent.notify()
    else:
        agent.tell(1)
        agent.script("handle_response", "go")
        agent.end()
    current = agent.snapshot().current_request
    assert current is not None
    assert current.origin == origin
    agent.feed(CancelRequested("c", current.ref))
    agent.feed(InterruptRequested("i", current.ref))
    agent.stopped()

    assert agent.reply("c") == CancelAnswer("not_found")
    assert agent.reply("i") == ACCEPTED
