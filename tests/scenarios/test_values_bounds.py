"""What fits, what does not, who hears of it, and when the room comes back."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import AgentAnswer, CancelAnswer, Ok, Refused
from genagent_protocol.bounds import Limits, Usage, encoded_size
from genagent_protocol.events import Failed
from genagent_protocol.limits import split_options
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import Failure, Overloaded, StartError
from genagent_protocol.turns.decisions import Halt
from genagent_protocol.turns.effects import HandleError
from support.turns_scripted import ScriptedAgent
from support.turns_values import failed, ref


def overload(answer: AgentAnswer | None) -> Overloaded:
    assert isinstance(answer, Refused)
    return info(answer.reason)


def info(reason: Failure) -> Overloaded:
    assert isinstance(reason, Overloaded)
    return reason


def reported(agent: ScriptedAgent) -> list[HandleError]:
    return [call for call in agent.handled("handle_error") if isinstance(call, HandleError)]


def test_s124_a_full_queue_refuses_tell_and_ask_with_the_numbers() -> None:
    """Prompt cap 1, held and one queued: both overload; after a slot frees, a tell fits."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    agent.tell(1, "one")
    agent.tell(2, "two")
    expected = Overloaded(
        queue="prompts",
        limit="count",
        pending_count=1,
        pending_bytes=4,
        incoming_bytes=6,
        max_count=1,
        max_bytes=1_048_576,
    )

    assert overload(agent.tell(3, "three")) == expected
    assert overload(agent.ask(4, "three")) == expected
    agent.end()
    assert agent.tell(5, "five") == Ok()


def test_s125_an_exact_fit_is_admitted_and_one_more_byte_is_not() -> None:
    """Byte cap = size of "small": first accepted, second overload bytes."""
    agent = ScriptedAgent(Limits(max_pending_prompt_bytes=encoded_size("small")))
    agent.tell(1)

    assert agent.tell(2, "small") == Ok()
    assert overload(agent.tell(3, "x")).limit == "bytes"


def test_s126_caps_of_zero_still_let_an_idle_agent_work() -> None:
    """Both zero: an idle agent runs a prompt; while held everything is refused by count."""
    agent = ScriptedAgent(Limits(max_pending_prompts=0, max_pending_notifications=0))

    assert agent.tell(1) == Ok()
    assert overload(agent.tell(2)).limit == "count"
    refusal = overload(agent.notify_ack())
    assert (refusal.queue, refusal.limit) == ("notifications", "count")


def test_s127_notifications_are_bounded_like_prompts() -> None:
    """Second ack overload count; larger event overload bytes; a refused cast is never handled."""
    by_count = ScriptedAgent(Limits(max_pending_notifications=1))
    by_bytes = ScriptedAgent(Limits(max_pending_notification_bytes=encoded_size("e")))
    for agent in (by_count, by_bytes):
        agent.tell(1)
    assert by_count.notify_ack("e") == Ok()
    assert overload(by_count.notify_ack("f")).limit == "count"
    assert overload(by_bytes.notify_ack("larger")).limit == "bytes"

    by_count.notify("cast")
    by_count.end()

    assert [line for line in by_count.story if "handle_event" in line] == ["handle_event 'e'"]
    assert len(by_count.emitted("input.rejected")) == 2


def test_s128_exactly_as_many_are_accepted_as_fit() -> None:
    """Cap 3, held turn, 20 tells: 3 accepted, 17 overload, snapshot says 3."""
    agent = ScriptedAgent(Limits(max_pending_prompts=3))
    agent.tell(1)
    answers = [agent.tell(number) for number in range(2, 22)]

    assert answers.count(Ok()) == 3
    assert agent.snapshot().pending_prompts == 3


def test_s129_a_halted_agent_keeps_what_it_admitted_within_its_cap() -> None:
    """Halted, cap 1: one retained, next overload, resume runs it and capacity returns."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    agent.halt()
    assert agent.tell(1, "kept") == Ok()
    assert overload(agent.tell(2)).limit == "count"
    agent.resume()

    assert agent.prompts == ["kept"]
    assert agent.tell(3) == Ok()


def test_s130_an_event_prompt_that_does_not_fit_is_told_to_handle_error() -> None:
    """Prompt queue full, deferred event produces one: overload told, queued work unaffected."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    agent.tell(1)
    agent.tell(2, "queued")
    agent.notify()
    agent.script("handle_event", "one too many")
    agent.end()

    (report,) = reported(agent)
    assert info(report.reason).queue == "prompts"
    assert report.ref not in (ref(1), ref(2))
    assert agent.prompts[1:] == ["queued"]
    assert agent.handled("post_turn")[1:] == []


def test_s131_a_chain_has_a_place_of_its_own() -> None:
    """Prompt count cap 0, byte cap 300: a chain of 200 bytes runs."""
    agent = ScriptedAgent(Limits(max_pending_prompts=0, max_pending_prompt_bytes=300))
    agent.tell(1)
    agent.script("handle_response", "x" * 200)
    agent.end()

    assert agent.prompts[1:] == ["x" * 200]


def test_s131_a_chain_that_fits_exactly_runs() -> None:
    """The slot is compared alone with the byte cap, and an exact fit is a fit."""
    agent = ScriptedAgent(Limits(max_pending_prompt_bytes=encoded_size("exactly")))
    agent.tell(1)
    agent.script("handle_response", "exactly")
    agent.end()

    assert agent.prompts[1:] == ["exactly"]


def test_s132_a_chain_has_to_fit_the_bytes() -> None:
    """Byte cap 100: a chain of 200 bytes is overload self_chain bytes, and no turn."""
    agent = ScriptedAgent(Limits(max_pending_prompt_bytes=100))
    agent.tell(1)
    agent.script("handle_response", "x" * 200)
    agent.end()

    (report,) = reported(agent)
    assert (info(report.reason).queue, info(report.reason).limit) == ("self_chain", "bytes")
    assert len(agent.prompts) == 1


def test_s133_an_interrupt_gives_the_room_of_notifications_back() -> None:
    """Notification cap 1, one deferred; interrupt: it is handled and capacity is back."""
    agent = ScriptedAgent(Limits(max_pending_notifications=1))
    agent.tell(1)
    agent.notify("e")
    agent.interrupt()
    agent.stopped()
    assert "handle_event 'e'" in agent.story

    agent.tell(2)
    assert agent.notify_ack("f") == Ok()


@pytest.mark.parametrize("value", [-1, 1.5, "1", True])
@pytest.mark.parametrize(
    "name",
    [
        "max_pending_prompts",
        "max_pending_prompt_bytes",
        "max_pending_notifications",
        "max_pending_notification_bytes",
    ],
)
def test_s134_pending_limits_are_whole_and_not_negative(name: str, value: Plain) -> None:
    """Anything else fails the start."""
    assert isinstance(split_options({name: value}), StartError)


def test_s135_a_cancelled_tell_frees_count_and_bytes_at_once() -> None:
    """Cancelled queued tell at both caps: an equal prompt fits."""
    limits = Limits(max_pending_prompts=1, max_pending_prompt_bytes=encoded_size("same"))
    agent = ScriptedAgent(limits)
    agent.tell(1)
    agent.tell(2, "same")
    assert overload(agent.tell(3, "same")).limit == "count"

    assert agent.cancel(2) == CancelAnswer("cancelled")
    assert agent.tell(4, "same") == Ok()


def test_s136_a_halt_makes_room_before_its_events_are_handled() -> None:
    """Opted-in queued tell fills the queue, a buffered event prompts: failed first, then room."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    agent.tell(1)
    agent.tell(2, "opted in", to="bob", on_halt="fail")
    agent.notify("e")
    agent.script("handle_response", Halt())
    agent.script("handle_event", "generated")
    agent.end()

    assert agent.story.index("completion r2 halted") < agent.story.index("handle_event 'e'")
    assert agent.snapshot().pending_prompts == 1
    agent.resume()
    assert agent.prompts[1:] == ["generated"]


def test_s137_a_retry_that_does_not_fit_delivers_the_first_error() -> None:
    """The caller gets the original error; handle_error hears of the overload under a new ref."""
    agent = ScriptedAgent(Limits(max_pending_prompt_bytes=10))
    agent.ask(1)
    agent.script("handle_error", "x" * 50, "short")
    agent.fail("r")

    first, second = reported(agent)
    assert agent.reply(ref(1)) == failed("r")
    assert first.ref == ref(1)
    assert second.ref != ref(1)
    assert info(second.reason).queue == "self_chain"
    current = agent.snapshot().current_request
    assert current is not None
    assert (current.origin, current.attempt) == ("self_chain", 1)
    agent.end()
    assert agent.reply(ref(1)) == failed("r")


def test_s138_the_totals_of_the_queues_come_back_to_zero() -> None:
    """After any mix of asks, tells, notifications, halts and interrupts: quiescent means empty.

    Every step in between is judged by the laws; the long random mixes are in the
    stateful test of the machine.
    """
    agent = ScriptedAgent(Limits(max_pending_prompts=3, max_pending_notifications=2))
    for number in range(1, 40):
        agent.submit(number, "x" * number, on_halt="fail" if number % 3 else "queue")
        agent.notify(number)
        if number % 5 == 0:
            agent.halt()
        if number % 7 == 0:
            agent.cancel(number - 1)
        if agent.snapshot().phase == "processing" and number % 2:
            agent.interrupt()
            agent.stopped()
    agent.resume()
    while agent.snapshot().phase == "processing":
        agent.end()

    assert agent.agent.prompts.usage == agent.agent.notifications.usage == Usage()


def test_s139_the_active_prompt_is_outside_the_caps() -> None:
    """A prompt larger than the byte cap, sent to an idle agent, is accepted."""
    agent = ScriptedAgent(Limits(max_pending_prompt_bytes=10))

    assert agent.tell(1, "x" * 1_000) == Ok()
    assert agent.prompts == ["x" * 1_000]


def test_s140_breaking_both_limits_is_reported_as_count() -> None:
    """The count is judged first."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1, max_pending_prompt_bytes=3))
    agent.tell(1)
    agent.tell(2, "a")

    assert overload(agent.tell(3, "far too long")).limit == "count"


def test_an_overload_report_that_answers_with_another_overload_comes_to_an_end() -> None:
    """Otherwise a callback that always answers too largely would spin for ever."""
    agent = ScriptedAgent(Limits(max_pending_prompt_bytes=5))
    agent.submit(1)
    agent.script("handle_response", "x" * 50)
    agent.script("handle_error", "y" * 50)
    agent.end()

    assert len(reported(agent)) == 1
    assert agent.snapshot().phase == "idle"
    assert len(agent.emitted("input.rejected")) == 2


def test_an_overload_report_may_use_the_slot_only_if_it_is_free() -> None:
    """A chain that was placed first is not pushed out by a later report's prompt."""
    agent = ScriptedAgent(Limits(max_pending_prompts=0))
    agent.submit(1)
    agent.notify()
    agent.script("handle_response", "chain")
    agent.script("handle_event", "event prompt")
    agent.script("handle_error", "second thought")
    agent.end()
    agent.end()

    assert agent.prompts == ["p", "chain"]
    rejected = [note.reason for note in agent.emitted("input.rejected")]
    assert [isinstance(r, Overloaded) and r.queue for r in rejected] == ["prompts", "self_chain"]


def test_an_outcome_too_large_for_a_message_is_delivered_as_that_everywhere() -> None:
    """Completion, poll and answer agree, and there is exactly one of each."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.end(encoded_bytes=20_000_000)
    agent.ask(2)
    agent.end(encoded_bytes=20_000_000)

    (completion,) = agent.completions(1)
    assert isinstance(completion, Failed)
    assert completion.reason.code == "payload_too_large"
    assert agent.reply(ref(2)) == completion
    assert len(agent.handled("handle_response")) == 2
