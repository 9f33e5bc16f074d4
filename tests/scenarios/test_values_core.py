"""Turns, asks, tells, polls and chains, as far as they are about order and outcome."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import NotFound, Ok, PollCompleted, PollFailed, PollPending, Refused
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, Failed
from genagent_protocol.limits import split_options
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import (
    INTERRUPTED,
    NO_TERMINAL_EVENT,
    TIMEOUT,
    BackendFailed,
    Reason,
    StartError,
    TaskCrashed,
)
from genagent_protocol.turns.decisions import Run
from genagent_protocol.turns.effects import (
    AbandonTurn,
    CancelTurn,
    DropTurn,
    HandleError,
    HandleResponse,
    Invoke,
    KeepTurn,
    PostTurn,
    StartTurn,
)
from genagent_protocol.turns.inputs import TurnEnded
from genagent_protocol.turns.results import outcome_size
from genagent_protocol.turns.state import Offers
from support.turns_scripted import ScriptedAgent
from support.turns_values import done, failed, ref, response


def test_s001_an_ask_is_answered_with_the_response() -> None:
    """Idle agent, script "pong": the asker gets it, the decision ran once, the agent is idle."""
    agent = ScriptedAgent()

    assert agent.ask(1, "ping") is None
    agent.end("pong")

    assert agent.reply(ref(1)) == done("pong")
    assert len(agent.handled("handle_response")) == 1
    assert agent.snapshot().phase == "idle"


def test_s002_a_tell_comes_back_at_once_and_is_polled() -> None:
    """The ref comes back without waiting for the backend; pending while held, then completed."""
    agent = ScriptedAgent()

    assert agent.tell(1) == Ok()
    assert agent.poll(1) == PollPending()
    agent.end("pong")

    assert agent.poll(1) == PollCompleted(response("pong"))


def test_s003_a_ref_that_was_never_issued_is_not_found() -> None:
    """Any agent; poll with a never-issued ref."""
    assert ScriptedAgent().poll(1) == NotFound()


def test_s004_a_failed_tell_polls_as_its_reason() -> None:
    """Script fails with reason r; tell, then poll after the turn."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.fail("r")

    assert agent.poll(1) == PollFailed(BackendFailed("r"))


def test_s005_a_second_ask_waits_and_both_get_their_own() -> None:
    """A held ask, a second arrives: queued is 1; after release each gets its own answer."""
    agent = ScriptedAgent()
    agent.ask(1)
    assert agent.ask(2) is None
    assert agent.status().queued == 1

    agent.end("first")
    assert agent.reply(ref(2)) is None
    agent.end("second")

    assert agent.reply(ref(1)) == done("first")
    assert agent.reply(ref(2)) == done("second")


def test_s006_queued_tells_run_in_their_order_one_at_a_time() -> None:
    """Held turn, three tells: that order, never two turns alive."""
    agent = ScriptedAgent()
    for number in (1, 2, 3, 4):
        agent.tell(number, f"t{number}")
        assert len(agent.prompts) == 1

    for count in (1, 2, 3, 4):
        assert agent.prompts == ["t1", "t2", "t3", "t4"][:count]
        agent.end()

    assert agent.snapshot().current_request is None


def test_s007_the_asker_of_a_chaining_turn_gets_the_first_response() -> None:
    """handle_response returns a prompt: a second turn under a new ref, origin self_chain."""
    agent = ScriptedAgent()
    agent.script("handle_response", "more")
    agent.ask(1)
    agent.end("first")

    current = agent.snapshot().current_request
    assert agent.reply(ref(1)) == done("first")
    assert current is not None
    assert (current.origin, current.ref == ref(1)) == ("self_chain", False)


def test_s008_a_chained_prompt_runs_before_a_queued_one() -> None:
    """Held turn that will chain, one queued tell: first, chained, queued."""
    agent = ScriptedAgent()
    agent.script("handle_response", "chained")
    agent.tell(1, "first")
    agent.tell(2, "queued")
    agent.end()
    agent.end()

    assert agent.prompts == ["first", "chained", "queued"]


def test_s009_a_synchronous_backend_error_is_the_outcome() -> None:
    """The error reaches the asker; the agent is idle and the next ask works."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.fail("no quota", dispatched=False)
    assert agent.reply(ref(1)) == failed("no quota")

    agent.ask(2)
    agent.end()
    assert agent.reply(ref(2)) == done()


def test_s010_a_terminal_error_reaches_caller_and_handle_error() -> None:
    """Stream ends with an error of reason r: both hear r."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.fail("r")

    assert agent.reply(ref(1)) == failed("r")
    assert agent.handled("handle_error") == [HandleError(ref(1), BackendFailed("r"))]


def test_s013_a_stream_that_raises_is_a_crashed_task_of_a_living_agent() -> None:
    """The asker gets task_crashed, the agent is alive and idle."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.crash("ValueError")

    assert agent.reply(ref(1)) == Failed(TaskCrashed("ValueError"))
    assert agent.exit is None
    assert agent.snapshot().phase == "idle"


def test_s014_a_task_that_ends_without_a_result_has_crashed() -> None:
    """It exits normally: task_crashed normal; the queued tell then completes."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.tell(2)
    agent.stopped()
    agent.end()

    assert agent.poll(1) == PollFailed(TaskCrashed("normal"))
    assert agent.poll(2) == PollCompleted(response())


def test_s017_a_watchdog_stops_the_turn_and_fails_it_with_timeout() -> None:
    """Watchdog 50 ms, held turn: timeout, turn stopped, agent idle, next request works."""
    agent = ScriptedAgent(Limits(watchdog_ms=50))
    agent.ask(1)
    agent.deadline("watchdog")
    assert agent.orders(CancelTurn) == [CancelTurn(1)]
    assert agent.reply(ref(1)) is None
    agent.stopped()
    assert agent.reply(ref(1)) == Failed(TIMEOUT)

    agent.ask(2)
    agent.end()
    assert agent.reply(ref(2)) == done()


@pytest.mark.parametrize("value", [1, "infinity"])
def test_s018_a_watchdog_of_one_or_infinity_is_accepted(value: Plain) -> None:
    """Start options watchdog 1 and infinity."""
    assert not isinstance(split_options({"watchdog_ms": value}), StartError)


@pytest.mark.parametrize("value", [0, -5, "text", 1.5, "never"])
def test_s018_any_other_watchdog_fails_the_start(value: Plain) -> None:
    """0, negative, text, fractions and unknown words."""
    assert isinstance(split_options({"watchdog_ms": value}), StartError)


def test_s020_a_terminal_error_keeps_the_partial_stream_state() -> None:
    """Text, then error: handle_error and post_turn see the partial stream state."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.fail()

    kept = agent.effects.index(KeepTurn(1))
    handled = [type(getattr(e, "callback", None)) for e in agent.effects[kept:]]
    assert HandleError in handled
    assert PostTurn in handled


def test_s021_a_stream_without_an_end_keeps_the_partial_state_too() -> None:
    """Text, then end of file: state kept, reason no_terminal_event."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.fail(NO_TERMINAL_EVENT)

    assert agent.orders(KeepTurn, DropTurn) == [KeepTurn(1)]
    assert agent.poll(1) == PollFailed(NO_TERMINAL_EVENT)


def test_s022_an_interrupted_turn_leaves_the_state_of_its_dispatch() -> None:
    """Text consumed, then interrupt: the stream's changes are lost."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.interrupt()
    agent.end()

    assert agent.orders(KeepTurn, DropTurn) == [DropTurn(1)]
    decides = Invoke(HandleError(ref(1), INTERRUPTED))
    assert agent.effects.index(DropTurn(1)) < agent.effects.index(decides)


def test_s023_a_synchronous_error_leaves_state_and_session() -> None:
    """No stream callback ran: nothing of the turn is kept."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.fail(dispatched=False)

    assert agent.orders(KeepTurn, DropTurn) == [DropTurn(1)]


def test_s036_the_queued_ask_of_a_dead_caller_never_runs() -> None:
    """Its caller is gone: entry and capacity gone, cancelled with caller_down."""
    agent = ScriptedAgent(Limits(max_pending_prompts=2))
    agent.ask(1, "one")
    agent.ask(2, "two", caller="dora")
    agent.ask(9, "of somebody else", caller="ed")
    agent.caller_down("dora")

    (note,) = agent.emitted("turn.cancelled")
    assert (note.ref, note.reason_kind) == (ref(2), "caller_down")
    assert agent.tell(3, "three") == Ok()
    agent.end()
    agent.end()
    assert agent.prompts == ["one", "of somebody else", "three"]


def test_s037_an_active_ask_runs_on_without_its_caller() -> None:
    """Callbacks run normally, nothing crashes."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.caller_down()
    agent.end()

    assert agent.handled("handle_response") == [HandleResponse(ref(1), response())]
    assert agent.exit is None


def test_s038_a_dispatched_ask_is_not_dropped_with_its_caller() -> None:
    """The watch on its caller ends with the dispatch."""
    agent = ScriptedAgent()
    agent.ask(1, "one")
    agent.ask(2, "two", caller="dora")
    agent.end()
    agent.caller_down("dora")
    agent.end()

    assert agent.prompts == ["one", "two"]
    assert agent.emitted("turn.cancelled") == []


def test_s040_a_snapshot_of_an_idle_agent_has_counts_and_nothing_else() -> None:
    """Exactly the documented keys, zero counts, no current request, no payload."""
    snapshot = ScriptedAgent().snapshot()

    assert {name: getattr(snapshot, name) for name in snapshot.__slots__} == {
        "phase": "idle",
        "halted": False,
        "halt_pending": False,
        "draining": False,
        "pending_prompts": 0,
        "pending_notifications": 0,
        "self_chain_pending": False,
        "current_request": None,
    }


def test_s041_a_snapshot_of_a_busy_agent_counts_what_waits() -> None:
    """Held tell, one queued tell, one notification: processing, 1, 1, ref, origin, watchdog."""
    agent = ScriptedAgent(Limits(watchdog_ms=1_234))
    agent.tell(1, "secret")
    agent.tell(2, "secret")
    agent.notify("secret")
    snapshot = agent.snapshot()
    current = snapshot.current_request

    assert (snapshot.phase, snapshot.pending_prompts) == ("processing", 1)
    assert snapshot.pending_notifications == 1
    assert current is not None
    assert (current.ref, current.origin, current.attempt) == (ref(1), "tell", 1)
    assert (current.elapsed_ms, current.watchdog_ms) == (0, 1_234)
    assert "secret" not in repr(snapshot)


def test_s042_origins_tell_where_a_prompt_came_from() -> None:
    """A held ask, then a turn of an event's prompt."""
    agent = ScriptedAgent()
    origins = []
    agent.ask(1)
    origins.append(agent.snapshot().current_request)
    agent.end()
    agent.script("handle_event", "go")
    agent.notify()
    origins.append(agent.snapshot().current_request)

    assert [current and current.origin for current in origins] == ["ask", "event"]


@pytest.mark.parametrize(("most", "answers"), [(1, [NotFound, PollCompleted]), (0, [NotFound] * 2)])
def test_s043_the_memory_of_results_is_bounded_by_count(most: int, answers: list[type]) -> None:
    """With 1 the first is forgotten; with 0 neither can be polled."""
    agent = ScriptedAgent(Limits(max_tell_results=most))
    for number in (1, 2):
        agent.tell(number)
        agent.end()

    assert [type(agent.poll(number)) for number in (1, 2)] == answers


def test_s044_the_memory_of_results_is_bounded_by_bytes() -> None:
    """Three results of 300 kB, room for 700 kB: the oldest goes, two remain, within the limit."""
    size_bytes = outcome_size(ref(1), done("x" * 300_000))
    agent = ScriptedAgent(Limits(max_tell_result_bytes=2 * size_bytes + 1_000))
    for number in (1, 2, 3):
        agent.tell(number)
        agent.end("x" * 300_000)

    assert [type(agent.poll(n)) for n in (1, 2, 3)] == [NotFound, PollCompleted, PollCompleted]
    assert agent.agent.results.bytes == 2 * size_bytes


def test_s045_a_memory_of_no_bytes_still_sends_completions() -> None:
    """Byte limit 0: the completion arrives, poll says not_found, nothing is accounted."""
    agent = ScriptedAgent(Limits(max_tell_result_bytes=0))
    agent.tell(1, to="bob")
    agent.end()

    assert agent.completions(1) == [done()]
    assert agent.poll(1) == NotFound()
    assert agent.agent.results.bytes == 0


def test_s046_a_result_larger_than_the_memory_pushes_out_the_small_ones() -> None:
    """It evicts everything older and then itself."""
    agent = ScriptedAgent(Limits(max_tell_result_bytes=1_000))
    agent.tell(1)
    agent.end("small")
    assert isinstance(agent.poll(1), PollCompleted)
    agent.tell(2)
    agent.end("x" * 5_000)

    assert [type(agent.poll(n)) for n in (1, 2)] == [NotFound, NotFound]


@pytest.mark.parametrize("value", [-1, "text", "infinity", 1.5])
@pytest.mark.parametrize("name", ["max_tell_results", "max_tell_result_bytes"])
def test_s047_invalid_memory_limits_fail_the_start(name: str, value: Plain) -> None:
    """Negative, text, infinity, fractions."""
    assert isinstance(split_options({name: value}), StartError)


def test_s048_limits_do_not_reach_the_agent_and_the_rest_does() -> None:
    """init_agent receives only what is no limit."""
    split = split_options({"max_tell_results": 1, "foo": "bar", "task_supervisor": "mine"})

    assert not isinstance(split, StartError)
    assert split[1] == {"foo": "bar", "task_supervisor": "mine"}


def test_s050_the_turn_runs_what_the_gate_made_of_the_prompt() -> None:
    """pre_turn rewrites: the backend gets the rewritten text, also in the chained turn."""
    agent = ScriptedAgent()
    agent.script("pre_turn", Run("rewritten 1"), Run("rewritten 2"))
    agent.script("handle_response", "chained")
    agent.tell(1, "original")
    agent.end()

    assert agent.prompts == ["rewritten 1", "rewritten 2"]


def test_s053_a_message_reaches_handle_info_at_once_while_idle() -> None:
    """A timer message, a monitor notice, another agent's completion."""
    agent = ScriptedAgent()
    for message in ("timer", "down", "completion"):
        agent.message(message)

    assert agent.story[1:] == [f"handle_info {m!r}" for m in ("timer", "down", "completion")]


def test_s053_without_a_handle_info_a_message_is_dropped_visibly() -> None:
    """There is no default: it is logged and dropped."""
    agent = ScriptedAgent(offers=Offers())
    agent.message("m")

    assert agent.story == ["pre_run"]
    assert len(agent.emitted("message.dropped")) == 1


def test_s054_a_message_in_a_turn_is_a_pending_notification() -> None:
    """Counted, and handled after the turn against its final state."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.message("m", size_bytes=9)
    assert agent.snapshot().pending_notifications == 1
    agent.end()

    assert agent.story.index("post_turn r1 ok") < agent.story.index("handle_info 'm'")
    assert agent.snapshot().pending_notifications == 0


def test_s055_late_and_forged_reports_of_a_finished_turn_are_swallowed() -> None:
    """A forged result, a crash and an end of the finished turn: no callback."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.end()
    before = agent.agent
    agent.forget()
    agent.end("forged")
    agent.crash()
    agent.stopped()

    assert (agent.agent, agent.effects) == (before, [])


def test_s094_the_report_of_an_earlier_turn_does_not_end_the_next() -> None:
    """Forged and late results are known by their turn number."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.interrupt()
    agent.stopped()
    agent.tell(2)
    running = agent.agent
    agent.feed(TurnEnded(turn=1, outcome=done("late")))
    agent.feed(TurnEnded(turn=3, outcome=done("forged")))

    assert agent.agent == running
    assert agent.poll(2) == PollPending()


def test_a_turn_is_abandoned_only_with_the_agent() -> None:
    """Never two turns alive, never one running on behind the agent's back."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.interrupt()
    agent.deadline("grace")

    assert agent.orders(AbandonTurn) == [AbandonTurn(1)]
    assert agent.exit is not None
    assert agent.exit.text == "turn_stuck"
    assert len(agent.orders(StartTurn)) == 1


def test_a_ref_that_is_known_already_is_refused_and_harms_nobody() -> None:
    """A ref is used once: the first request keeps its admission and its outcome."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.submit(1)
    assert [line for line in agent.story if "admission" in line] == ["admission r1 ok"]
    assert agent.tell(1) == Refused(Reason("duplicate_ref"))
    agent.end()
    agent.submit(1)

    assert agent.completions(1) == [Completed(response())]
    assert len(agent.prompts) == 1
