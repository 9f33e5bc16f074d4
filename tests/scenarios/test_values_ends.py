"""Draining, resetting, stopping: how an agent goes, and who hears of it."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import Ok, PollPending, Refused
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Failed
from genagent_protocol.limits import split_options
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import (
    DRAINING,
    NORMAL,
    SHUTDOWN,
    SHUTTING_DOWN,
    TURN_STUCK,
    AgentTerminated,
    BackendFailed,
    ExitReason,
    Reason,
    ResetFailed,
    StartError,
)
from genagent_protocol.turns.decisions import Declined, Halt, Invalid
from genagent_protocol.turns.effects import (
    AbandonTurn,
    ArmDeadline,
    CancelTurn,
    DropTurn,
    Emit,
    Exit,
    SendAdmission,
    SendCompletion,
    Terminate,
)
from genagent_protocol.turns.state import Offers
from support.turns_scripted import ScriptedAgent, raises
from support.turns_values import done, ref


def test_s215_a_drain_finishes_the_turn_and_refuses_the_rest() -> None:
    """Queued ask and tell get draining, new work too; the turn completes; exit normal."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.ask(2)
    agent.submit(3)
    agent.notify("kept")
    assert agent.drain() == Ok()
    assert agent.reply(ref(2)) == Failed(DRAINING)
    assert agent.completions(3) == [Failed(DRAINING)]
    snapshot = agent.snapshot()
    assert (snapshot.pending_prompts, snapshot.pending_notifications) == (0, 0)
    assert agent.tell(4) == agent.ask(5) == agent.notify_ack() == Refused(DRAINING)
    agent.notify("ignored")
    agent.message("ignored")
    agent.script("handle_response", "never")
    agent.end()

    assert agent.completions(1) == [done()]
    assert agent.prompts == ["p"]
    assert agent.handled("handle_event") == agent.handled("handle_info") == []
    assert agent.exit == NORMAL


def test_s215_a_failing_last_turn_is_not_tried_again() -> None:
    """While draining, the prompt of handle_error is no retry."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.drain()
    agent.script("handle_error", "again")
    agent.fail("r")

    assert agent.reply(ref(1)) == Failed(BackendFailed("r"))
    assert agent.exit == NORMAL


def test_s215_a_halting_last_turn_still_runs_its_post_run() -> None:
    """A halt decision in the last turn."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.drain()
    agent.script("handle_response", Halt())
    agent.end()

    assert len(agent.handled("post_run")) == 1
    assert agent.exit == NORMAL


def test_s216_an_idle_agent_drains_at_once() -> None:
    """Cleanup ran, answered ok."""
    agent = ScriptedAgent()

    assert agent.drain() == Ok()
    assert agent.orders(Terminate, Exit) == [Terminate(NORMAL, within_ms=5_000), Exit(NORMAL)]


def test_s217_a_caller_that_gives_up_does_not_undo_a_drain() -> None:
    """Held turn: the agent is still draining, and exits after release; asking twice is harmless."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.drain()
    assert agent.snapshot().draining
    assert agent.drain() == Ok()
    agent.end()

    assert agent.exit == NORMAL


def test_a_drain_of_a_daemon_that_shuts_down_ends_as_shutdown() -> None:
    """The exit reason is the one of whoever asked first."""
    agent = ScriptedAgent()
    agent.drain(SHUTDOWN)

    assert agent.exit == SHUTDOWN


def test_s220_a_reset_between_turns_leaves_queue_and_memory() -> None:
    """The conversation restarts; what waits stays."""
    agent = ScriptedAgent()
    agent.halt()
    agent.tell(1)

    assert agent.reset() == Ok()
    assert agent.poll(1) == PollPending()
    assert len(agent.handled("reset_session")) == 1


def test_s221_a_reset_is_refused_with_the_reason() -> None:
    """Without reset: unsupported; active turn: busy; draining; raising: backend_reset_failed."""
    without = ScriptedAgent(offers=Offers())
    assert without.reset() == Refused(Reason("unsupported"))

    agent = ScriptedAgent()
    agent.script("reset_session", raises("reset_session", "OSError"), Declined("no"), Invalid())
    answers = [agent.reset() for _ in range(3)]
    assert answers == [
        Refused(ResetFailed("OSError")),
        Refused(BackendFailed("no")),
        Refused(Reason("invalid_reset_result")),
    ]
    agent.tell(1)
    assert agent.reset() == Refused(Reason("busy"))
    agent.drain()
    assert agent.reset() == Refused(DRAINING)


def test_s225_a_stop_stops_the_turn_before_the_callbacks_of_the_end() -> None:
    """Turn stopped, both termination callbacks, exit; in that order."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.stop()
    assert agent.orders(CancelTurn) == [CancelTurn(1)]
    assert agent.exit is None
    agent.stopped()

    assert agent.orders(DropTurn, Terminate, Exit) == [
        DropTurn(1),
        Terminate(SHUTDOWN, (ref(1),), 5_000),
        Exit(SHUTDOWN),
    ]
    assert agent.handled("handle_error") == []


@pytest.mark.parametrize("value", [-1, 1.5, "soon", True])
def test_s234_the_shutdown_window_is_a_whole_number_or_infinite(value: Plain) -> None:
    """Invalid: refused; infinity allowed; default 5,000."""
    assert isinstance(split_options({"shutdown_ms": value}), StartError)
    assert not isinstance(split_options({"shutdown_ms": "infinity"}), StartError)
    assert Limits().shutdown_ms == 5_000


def test_s235_the_loss_of_the_daemon_ends_the_agent_and_answers_nobody() -> None:
    """registry_lost: cleanup runs, active turn stopped, asker gets no answer."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.stop("registry_lost")
    agent.stopped()

    assert agent.reply(ref(1)) is None
    assert agent.orders(Terminate) == [Terminate(ExitReason("registry_lost"), (ref(1),), 5_000)]


def test_a_stop_answers_active_queued_and_draining_asks_alike() -> None:
    """Each once, also if a drain was under way."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.drain()
    agent.stop()
    agent.stop()
    agent.stopped()

    assert agent.reply(ref(1)) == Failed(AgentTerminated(SHUTDOWN))
    assert agent.exit == SHUTDOWN


def test_a_leaving_agent_admits_nothing_and_says_so() -> None:
    """A refusal is better news than silence: it is known that nothing was accepted."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.stop()
    agent.submit(2)

    assert SendAdmission("bob", ref(2), Refused(SHUTTING_DOWN)) in agent.effects
    assert agent.notify_ack() == Refused(SHUTTING_DOWN)
    assert agent.reset() == Refused(SHUTTING_DOWN)


def test_the_grace_of_a_stop_leaves_time_for_the_callbacks() -> None:
    """The daemon kills at the end of the window: a stuck turn may use half of it."""
    agent = ScriptedAgent(Limits(shutdown_ms=1_000, interrupt_grace_ms=5_000))
    agent.tell(1)
    agent.stop()

    assert ArmDeadline("grace", 500, 1) in agent.effects
    agent.deadline("grace")
    assert agent.orders(AbandonTurn, Terminate, Exit) == [
        AbandonTurn(1),
        Terminate(SHUTDOWN, (ref(1),), 1_000),
        Exit(SHUTDOWN),
    ]


def test_a_stop_without_a_window_gives_the_whole_grace() -> None:
    """Nobody will kill it."""
    agent = ScriptedAgent(Limits(shutdown_ms=None, interrupt_grace_ms=700))
    agent.tell(1)
    agent.stop()

    assert ArmDeadline("grace", 700, 1) in agent.effects


def test_a_stop_during_an_interrupt_takes_over() -> None:
    """No outcome is delivered any more; the agent exits as soon as the turn has ended."""
    agent = ScriptedAgent()
    agent.submit(1)
    call = agent.interrupt_request(1)
    agent.stop()
    agent.stopped()

    assert agent.exit == SHUTDOWN
    assert agent.reply(call) is None
    assert agent.orders(SendCompletion) == []


def test_a_turn_that_does_not_end_takes_the_agent_with_it() -> None:
    """Never two turns alive, never an abandoned one running on."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.interrupt()
    agent.deadline("grace")

    assert agent.orders(AbandonTurn, Terminate, Exit) == [
        AbandonTurn(1),
        Terminate(TURN_STUCK, (ref(1),), 5_000),
        Exit(TURN_STUCK),
    ]
    assert agent.completions(1) == []


@pytest.mark.parametrize("how", ["running", "interrupted", "leaving"])
def test_a_turn_that_cannot_be_looked_through_takes_the_agent_with_it(how: str) -> None:
    """What it began may run on, and an outcome would say that it does not."""
    agent = ScriptedAgent()
    agent.submit(1)
    if how == "interrupted":
        agent.interrupt()
    if how == "leaving":
        agent.stop()
    agent.not_swept()

    reason = SHUTDOWN if how == "leaving" else TURN_STUCK
    assert agent.orders(AbandonTurn, Exit) == [AbandonTurn(1), Exit(reason)]
    assert agent.completions(1) == []


def test_s247_terminated_is_told_after_both_callbacks() -> None:
    """stop: terminated with its reason, between the callbacks and the end."""
    agent = ScriptedAgent()
    agent.stop()

    assert agent.effects[-3:] == [
        Terminate(SHUTDOWN, within_ms=5_000),
        Emit(name="terminated", reason=SHUTDOWN),
        Exit(SHUTDOWN),
    ]
