"""A stop asks, waits its window, kills, and is answered when the name is free."""

from __future__ import annotations

from genagent_protocol.reasons import NOT_FOUND, SHUTDOWN, ExitReason
from genagent_protocol.supervision.effects import (
    Answer,
    ArmDeadline,
    AskToStop,
    Kill,
    Launch,
    Refused,
    SendDown,
    Stopped,
)
from genagent_protocol.supervision.inputs import GroupOpenRequested, Timer
from support.supervision_phases import (
    NEVER,
    ONCE,
    dies,
    drained,
    exits,
    key_of,
    monitor,
    passes,
    start,
    stop,
)
from support.supervision_rehearsal import Rehearsal, position
from support.supervision_world import life


def test_a_stop_asks_first_and_arms_the_agents_own_window() -> None:
    """The window is for callbacks that clean up; each agent knows how long its take."""
    daemon = Rehearsal()
    daemon.run_agent(start(shutdown_ms=700))

    assert daemon.tell(stop()) == [
        AskToStop(life(1), SHUTDOWN),
        ArmDeadline(Timer("stop", life(1)), 700),
    ]


def test_an_agent_without_a_window_is_never_killed_by_a_stop() -> None:
    """Infinity is what its starter asked for."""
    daemon = Rehearsal()
    daemon.run_agent(start(shutdown_ms=None))

    assert daemon.tell(stop()) == [AskToStop(life(1), SHUTDOWN)]


def test_a_stop_is_answered_behind_the_down_with_its_reason() -> None:
    """A caller that returns from a stop has its DOWN in the mailbox already."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(monitor(), stop(), exits())

    orders = daemon.tell(drained())

    assert position(orders, SendDown) < position(orders, Answer)
    assert daemon.answer("stop") == Stopped(ExitReason("shutdown"))


def test_a_stop_that_had_to_kill_says_so() -> None:
    """No cleanup ran, and the caller may want to know."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    daemon.tell(stop())
    assert daemon.tell(passes("stop")) == [Kill(life(1))]
    daemon.tell(dies(), drained())

    assert daemon.answer("stop") == Stopped(ExitReason("signal:9"))


def test_every_caller_of_a_stop_is_answered_once() -> None:
    """However many ask, and whenever they do, the agent is asked once."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(stop("first"), stop("second"), exits(), stop("third"))

    daemon.tell(drained())

    assert daemon.count(AskToStop) == 1
    for call in ("first", "second", "third"):
        assert daemon.answer(call) == Stopped(ExitReason("shutdown"))


def test_a_stop_without_a_caller_is_not_answered() -> None:
    """Nobody waits, so there is no one to tell."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    request = stop()
    daemon.tell(type(request)(call=None, client=1, key=request.key), exits(), drained())

    assert daemon.answers("stop") == []
    assert daemon.table.children.get(key_of("a")) is None


def test_a_stop_of_an_unknown_name_is_not_found() -> None:
    """It may be gone already; the caller decides whether that is what it wanted."""
    daemon = Rehearsal(stop())

    assert daemon.answer("stop") == Refused(NOT_FOUND)


def test_a_stop_after_the_exit_does_not_rewrite_the_reason() -> None:
    """Nobody had asked when it exited."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=ONCE))

    daemon.tell(exits(), stop(), drained())

    assert daemon.answer("stop") == Stopped(ExitReason("normal"))
    assert daemon.count(Launch) == 1
    assert "agent.restarting" not in daemon.reports()


def test_a_stop_of_an_unreachable_agent_asks_nobody_and_still_ends_it() -> None:
    """There is no channel to ask over; its own deadline runs already."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(drained())

    assert daemon.tell(stop()) == []
    daemon.tell(passes("leave"), dies())

    assert daemon.answer("stop") == Stopped(ExitReason("signal:9"))


def test_a_stop_during_the_wait_for_a_restart_frees_the_name_at_once() -> None:
    """There is no process to wait for, and none comes any more."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=ONCE))
    daemon.tell(exits(1), drained())

    daemon.tell(stop())

    assert daemon.answer("stop") == Stopped(ExitReason("exit:1"))
    assert daemon.tell(passes("restart")) == []
    assert daemon.count(Launch) == 1


def test_a_stop_of_a_failed_agent_answers_why_it_ended_and_frees_the_name() -> None:
    """That is how an operator acknowledges the failure."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=NEVER))
    daemon.tell(exits(1), drained(), stop())

    assert daemon.answer("stop") == Stopped(ExitReason("exit:1"))
    assert daemon.table.children.get(key_of("a")) is None


def test_a_stop_reaches_only_the_group_that_it_names() -> None:
    """Stopping by a name that means something else elsewhere must not kill a stranger's agent."""
    daemon = Rehearsal(GroupOpenRequested(call="open", client=1))
    daemon.run_agent(start("ours", name="a", group=1))
    daemon.run_agent(start("global", name="b"))

    daemon.tell(
        stop("globally", name="a"),
        stop("b in the group", name="b", group=1),
        stop("by another client", client=2, name="a", group=1),
        stop("in no group", name="a", group=2),
    )

    for call in ("globally", "b in the group", "by another client", "in no group"):
        assert daemon.answer(call) == Refused(NOT_FOUND)
    assert daemon.count(AskToStop) == 0
    assert daemon.tell(stop("right", name="a", group=1))[0] == AskToStop(life(1), SHUTDOWN)
