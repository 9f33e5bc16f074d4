"""Notifications: at once while idle, in their order after a turn, and what they lead to."""

from __future__ import annotations

from genagent_protocol.answers import Ok, PollCompleted, Refused
from genagent_protocol.bounds import Limits
from genagent_protocol.reasons import PRE_TURN_SKIPPED, Overloaded
from genagent_protocol.turns.decisions import Halt, Skip
from genagent_protocol.turns.effects import HandleError
from support.turns_scripted import ScriptedAgent
from support.turns_values import ref, response


def events_handled(agent: ScriptedAgent) -> list[str]:
    return [line.split("'")[1] for line in agent.story if line.startswith("handle_event")]


def test_s059_an_idle_agent_runs_the_prompt_of_an_event() -> None:
    """notify with an event whose callback returns a prompt: a turn of origin event."""
    agent = ScriptedAgent()
    agent.script("handle_event", "go")
    agent.notify()

    current = agent.snapshot().current_request
    assert agent.prompts == ["go"]
    assert current is not None
    assert current.origin == "event"


def test_s060_every_notification_of_a_turn_is_handled_after_its_state_is_kept() -> None:
    """Five notifications in a held turn: all five see the state after the turn."""
    agent = ScriptedAgent()
    agent.tell(1)
    for number in range(5):
        agent.notify(f"e{number}")
    assert events_handled(agent) == []
    agent.end()

    assert events_handled(agent) == [f"e{number}" for number in range(5)]
    assert agent.story.index("post_turn r1 ok") < agent.story.index("handle_event 'e0'")


def test_s061_notifications_of_a_turn_are_handled_in_arrival_order() -> None:
    """Four notifications during a turn."""
    agent = ScriptedAgent()
    agent.tell(1)
    for event in "dbca":
        agent.notify(event)
    agent.end()

    assert events_handled(agent) == ["d", "b", "c", "a"]


def test_s062_the_prompt_of_a_deferred_event_runs_after_the_turn() -> None:
    """A deferred notification returning a prompt."""
    agent = ScriptedAgent()
    agent.tell(1, "turn")
    agent.notify()
    agent.script("handle_event", "because")
    agent.end()

    assert agent.prompts == ["turn", "because"]


def test_s063_a_queued_tell_runs_before_the_prompt_of_a_later_event() -> None:
    """Held turn, queued tell q, deferred event producing p: q before p."""
    agent = ScriptedAgent()
    agent.tell(1, "turn")
    agent.tell(2, "q")
    agent.notify()
    agent.script("handle_event", "p")
    agent.end()
    agent.end()

    assert agent.prompts == ["turn", "q", "p"]


def test_s064_a_chain_runs_before_the_prompt_of_an_event() -> None:
    """Turn chains c, a deferred event produces p: c before p."""
    agent = ScriptedAgent()
    agent.tell(1, "turn")
    agent.notify()
    agent.script("handle_response", "c")
    agent.script("handle_event", "p")
    agent.end()
    agent.end()

    assert agent.prompts == ["turn", "c", "p"]


def test_s065_a_failing_turn_handles_its_notifications_too() -> None:
    """Error, crash, interrupt and watchdog alike."""
    for end in ("fail", "crash", "stopped"):
        agent = ScriptedAgent()
        agent.tell(1)
        agent.notify(end)
        getattr(agent, end)()

        assert events_handled(agent) == [end]


def test_a_completion_precedes_the_deferred_events_and_an_answer_follows_them() -> None:
    """A completion is said when the turn is decided, an ask answered when the agent is idle."""
    teller, asker = ScriptedAgent(), ScriptedAgent()
    teller.submit(1)
    asker.ask(1)
    for agent in (teller, asker):
        agent.notify("e")
        agent.end()

    assert teller.story[-2:] == ["completion r1 ok", "handle_event 'e'"]
    assert asker.story[-2:] == ["handle_event 'e'", "reply r1 ok"]


def test_s066_an_acknowledged_event_was_handled() -> None:
    """Idle agent: ok after the callback ran."""
    agent = ScriptedAgent()

    assert agent.notify_ack("e") == Ok()
    assert agent.story[-2:] == ["handle_event 'e'", "reply c1 Ok"]


def test_s067_the_gate_does_not_change_the_acknowledgement() -> None:
    """Idle, an event whose prompt the gate skips: ok, and handle_error got pre_turn_skipped."""
    agent = ScriptedAgent()
    agent.script("handle_event", "go")
    agent.script("pre_turn", Skip())

    assert agent.notify_ack() == Ok()
    (report,) = agent.handled("handle_error")
    assert isinstance(report, HandleError)
    assert report.reason == PRE_TURN_SKIPPED


def test_s068_a_prompt_that_does_not_fit_is_reported_and_not_in_the_acknowledgement() -> None:
    """Halted, prompt queue full: the event was handled, so its acknowledgement is ok.

    The overload goes to handle_error: the acknowledgement speaks of the event, not of
    the prompt it led to.
    """
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    agent.halt()
    agent.tell(1)
    agent.script("handle_event", "go")

    assert agent.notify_ack() == Ok()
    (report,) = agent.handled("handle_error")
    assert isinstance(report, HandleError)
    assert isinstance(report.reason, Overloaded)
    assert report.reason.queue == "prompts"
    assert agent.snapshot().pending_prompts == 1


def test_s069_a_halted_agent_handles_events_and_dispatches_nothing() -> None:
    """Callbacks run; their prompts are queued."""
    agent = ScriptedAgent()
    agent.halt()
    agent.script("handle_event", "later")
    agent.notify("a")
    agent.notify("b")

    assert events_handled(agent) == ["a", "b"]
    assert agent.prompts == []
    assert agent.snapshot().pending_prompts == 1
    agent.resume()
    assert agent.prompts == ["later"]


def test_an_acknowledgement_in_a_turn_says_that_the_event_is_kept() -> None:
    """Kept, or refused: nothing in between."""
    agent = ScriptedAgent(Limits(max_pending_notifications=1))
    agent.tell(1)

    assert agent.notify_ack("a") == Ok()
    refusal = agent.notify_ack("b")
    assert isinstance(refusal, Refused)
    assert refusal.reason.code == "overloaded"
    agent.end()
    assert events_handled(agent) == ["a"]


def test_an_event_may_halt_an_idle_agent_and_is_acknowledged_after_the_halt() -> None:
    """What the acknowledgement's reader sees next is the halted agent."""
    agent = ScriptedAgent()
    agent.script("handle_event", Halt())

    assert agent.notify_ack("e") == Ok()
    assert agent.story[-3:] == ["post_run", "halted", "reply c1 Ok"]
    agent.tell(1)
    agent.resume()
    agent.end()
    assert agent.poll(1) == PollCompleted(response())
    assert agent.completions(1) == []
    assert agent.reply(ref(1)) is None
