"""A shutdown ends every agent within its grace and is complete exactly once."""

from __future__ import annotations

import pytest

from genagent_protocol.reasons import SHUTDOWN, ExitReason
from genagent_protocol.supervision.effects import (
    ArmDeadline,
    AskToStop,
    DisarmDeadline,
    Finished,
    Kill,
    Launch,
    NotStarted,
    Stopped,
)
from genagent_protocol.supervision.inputs import (
    AgentReady,
    Input,
    ShutdownForced,
    ShutdownRequested,
    Timer,
)
from support.supervision_phases import (
    NEVER,
    ONCE,
    born,
    dies,
    drained,
    exits,
    monitor,
    passes,
    start,
    stop,
)
from support.supervision_rehearsal import Rehearsal
from support.supervision_world import life

GRACEFUL = ShutdownRequested(grace_ms=9_000)
DRAINING = ShutdownRequested(grace_ms=9_000, drains=True)
GRACE = Timer("shutdown")


def test_a_shutdown_of_nothing_is_complete_at_once() -> None:
    """An idle daemon stops without waiting."""
    orders = Rehearsal().tell(GRACEFUL)

    assert orders == [ArmDeadline(GRACE, 9_000), DisarmDeadline(GRACE), Finished()]


def test_every_agent_is_asked_and_has_its_own_window() -> None:
    """A slow one does not shorten the others' time, nor the grace lengthen its own."""
    daemon = Rehearsal()
    daemon.run_agent(start("a", name="a", shutdown_ms=50))
    daemon.run_agent(start("b", name="b", shutdown_ms=None))

    orders = daemon.tell(GRACEFUL)

    assert orders == [
        ArmDeadline(GRACE, 9_000),
        AskToStop(life(1), SHUTDOWN),
        ArmDeadline(Timer("stop", life(1)), 50),
        AskToStop(life(2), SHUTDOWN),
    ]


def test_a_draining_shutdown_gives_every_agent_the_whole_grace() -> None:
    """The turn it is in may take longer than a cleanup."""
    daemon = Rehearsal()
    daemon.run_agent(start(shutdown_ms=50))

    assert daemon.tell(DRAINING) == [
        ArmDeadline(GRACE, 9_000),
        AskToStop(life(1), SHUTDOWN, drain=True),
    ]


def test_the_end_of_a_drain_for_the_shutdown_is_shutdown() -> None:
    """The same exit status after a drain of its own would be normal."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    daemon.tell(monitor(), DRAINING, exits(), drained())

    assert daemon.downs() == [(1, ExitReason("shutdown"))]


def test_a_stop_may_overtake_the_drain_of_the_shutdown() -> None:
    """Somebody decided that this agent's turn is not worth the wait."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(DRAINING)

    orders = daemon.tell(stop())

    assert orders == [
        AskToStop(life(1), SHUTDOWN, drain=False),
        ArmDeadline(Timer("stop", life(1)), 5_000),
    ]


def test_an_agent_that_is_being_stopped_is_not_asked_to_drain() -> None:
    """It would take back what was asked of it before."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(stop())

    assert daemon.tell(DRAINING) == [ArmDeadline(GRACE, 9_000)]


def test_at_the_end_of_the_grace_everything_left_is_killed() -> None:
    """Also what has no window of its own, and what outlives its channel."""
    daemon = Rehearsal()
    daemon.run_agent(start("a", name="a", shutdown_ms=None))
    daemon.run_agent(start("b", name="b"))
    daemon.tell(drained(2), DRAINING)

    orders = daemon.tell(passes("shutdown", None))

    assert [o for o in orders if isinstance(o, Kill)] == [Kill(life(1)), Kill(life(2))]


def test_starting_agents_are_killed_at_once_and_answered_shutting_down() -> None:
    """A daemon that waits for twenty slow starts does not stop in time."""
    daemon = Rehearsal()
    for number in range(1, 21):
        daemon.tell(start(f"start {number}", name=number))
    daemon.tell(*(born(number) for number in range(1, 11)))

    daemon.tell(GRACEFUL)
    assert daemon.count(Kill) == 10
    daemon.tell(*(born(number) for number in range(11, 21)))
    assert daemon.count(Kill) == 20
    for number in range(1, 21):
        daemon.tell(dies(number=number), drained(number))

    for number in range(1, 21):
        answer = daemon.answer(f"start {number}")
        assert isinstance(answer, NotStarted)
        assert answer.error.kind == "shutting_down"
    assert daemon.count(Finished) == 1


def test_a_start_during_the_shutdown_is_refused() -> None:
    """It would be killed before it is ready."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    daemon.tell(GRACEFUL, start("late", name="b"))

    answer = daemon.answer("late")
    assert isinstance(answer, NotStarted)
    assert answer.error.kind == "shutting_down"
    assert daemon.count(Launch) == 1


@pytest.mark.parametrize("restart", [ONCE, NEVER])
def test_the_shutdown_does_not_wait_for_what_has_no_process(restart: object) -> None:
    """A restart to come, or a failure kept for show, ends with the daemon."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=restart))
    daemon.tell(exits(1), drained())

    assert daemon.tell(GRACEFUL)[-1] == Finished()
    assert daemon.tell(passes("restart")) == []


def test_nothing_is_restarted_during_the_shutdown() -> None:
    """Whatever kills it: the daemon's end is the end of every wish."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=ONCE))

    orders = daemon.tell(GRACEFUL, dies(), drained())

    assert orders[-1] == Finished()
    assert daemon.count(Launch) == 1


def test_the_shutdown_is_complete_when_the_last_agent_is_gone_and_only_then() -> None:
    """The shell ends the process on that order."""
    daemon = Rehearsal()
    daemon.run_agent(start("a", name="a"))
    daemon.run_agent(start("b", name="b"))
    daemon.tell(GRACEFUL, exits(), drained(), exits(number=2))
    assert daemon.count(Finished) == 0

    orders = daemon.tell(drained(2))

    assert orders[-2:] == [DisarmDeadline(GRACE), Finished()]


def test_forcing_kills_at_once_with_or_without_a_grace_before() -> None:
    """The second Ctrl-C means now."""
    graceful = Rehearsal()
    graceful.run_agent(start())
    graceful.tell(GRACEFUL)
    direct = Rehearsal()
    direct.run_agent(start())

    assert graceful.tell(ShutdownForced()) == [
        DisarmDeadline(GRACE),
        DisarmDeadline(Timer("stop", life(1))),
        Kill(life(1)),
    ]
    assert direct.tell(ShutdownForced()) == [Kill(life(1))]


def test_forcing_an_empty_daemon_is_complete_at_once() -> None:
    """There is nobody to kill."""
    assert Rehearsal().tell(ShutdownForced()) == [Finished()]


def test_ready_does_not_save_an_agent_from_a_forced_shutdown() -> None:
    """Its kill is ordered already."""
    daemon = Rehearsal(start(), born(), ShutdownForced())

    assert daemon.tell(AgentReady(life(1))) == []


@pytest.mark.parametrize("first", [GRACEFUL, DRAINING, ShutdownForced()])
@pytest.mark.parametrize("second", [GRACEFUL, DRAINING])
def test_a_second_request_to_shut_down_changes_nothing(first: Input, second: Input) -> None:
    """An operator who asks twice has not asked for less time."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(first)
    before = daemon.table

    assert daemon.tell(second) == []
    assert daemon.table == before


@pytest.mark.parametrize("late", [GRACEFUL, ShutdownForced(), passes("shutdown", None)])
def test_nothing_is_ordered_after_the_shutdown_is_complete(late: Input) -> None:
    """Finished comes exactly once."""
    daemon = Rehearsal(GRACEFUL)

    assert daemon.tell(late) == []


def test_a_stop_during_the_shutdown_is_answered() -> None:
    """The caller waits for the agent, not for the daemon."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    daemon.tell(GRACEFUL, stop(), exits(), drained())

    assert daemon.answer("stop") == Stopped(ExitReason("shutdown"))
