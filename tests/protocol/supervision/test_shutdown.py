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
    GroupOpenRequested,
    Input,
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
FORCED = ShutdownRequested(grace_ms=9_000, forced=True)
GRACE = Timer("shutdown")
LAST_WORDS = Timer("last_words")
GRACEFULLY = [ArmDeadline(LAST_WORDS, 7_000), ArmDeadline(GRACE, 9_000)]


def test_a_shutdown_of_nothing_is_complete_at_once() -> None:
    """An idle daemon stops without waiting."""
    orders = Rehearsal().tell(GRACEFUL)

    assert orders == [*GRACEFULLY, DisarmDeadline(LAST_WORDS), DisarmDeadline(GRACE), Finished()]


def test_a_forced_shutdown_stops_every_agent_and_has_a_short_grace() -> None:
    """Half a second to say what is left; who has a shorter window of its own keeps it."""
    daemon = Rehearsal()
    daemon.run_agent(start("a", name="a", shutdown_ms=50))
    daemon.run_agent(start("b", name="b", shutdown_ms=None))

    orders = daemon.tell(FORCED)

    assert orders == [
        ArmDeadline(GRACE, 500),
        AskToStop(life(1), SHUTDOWN),
        ArmDeadline(Timer("stop", life(1)), 50),
        AskToStop(life(2), SHUTDOWN),
    ]


def test_a_shutdown_lets_every_agent_finish_its_turn() -> None:
    """It may take longer than a cleanup, and so longer than the agent's own window."""
    daemon = Rehearsal()
    daemon.run_agent(start(shutdown_ms=50))

    assert daemon.tell(GRACEFUL) == [*GRACEFULLY, AskToStop(life(1), SHUTDOWN, drain=True)]


@pytest.mark.parametrize(
    ("grace_ms", "last_words_ms"), [(0, 0), (1, 1), (3_000, 1_500), (4_000, 2_000), (9_000, 7_000)]
)
def test_the_last_words_are_due_two_seconds_before_the_end_of_the_grace(
    grace_ms: int, last_words_ms: int
) -> None:
    """Of a short grace, turns still have half."""
    orders = Rehearsal().tell(ShutdownRequested(grace_ms=grace_ms))

    # In this order, since both may pass at the same moment.
    assert orders[:2] == [ArmDeadline(LAST_WORDS, last_words_ms), ArmDeadline(GRACE, grace_ms)]


def test_who_still_drains_when_last_words_are_due_is_stopped() -> None:
    """It would be killed with all that it knows, among it what it leaves."""
    daemon = Rehearsal()
    daemon.run_agent(start("a", name="a", shutdown_ms=50))
    daemon.run_agent(start("b", name="b", shutdown_ms=None))
    daemon.run_agent(start("c", name="c"))
    daemon.tell(GRACEFUL, exits(number=3), drained(3))

    assert daemon.tell(passes("last_words", None)) == [
        AskToStop(life(1), SHUTDOWN),
        ArmDeadline(Timer("stop", life(1)), 50),
        AskToStop(life(2), SHUTDOWN),
    ]


def test_an_agent_of_a_group_is_stopped_for_its_last_words_too() -> None:
    """Whoever owns the group was not asked."""
    daemon = Rehearsal(GroupOpenRequested(call="open", client=1))
    daemon.run_agent(start(group=1))
    daemon.tell(GRACEFUL)

    assert AskToStop(life(1), SHUTDOWN) in daemon.tell(passes("last_words", None))


def test_who_is_being_stopped_when_last_words_are_due_is_left_to_its_end() -> None:
    """Its window is open already, and who cannot hear cannot be asked."""
    daemon = Rehearsal()
    daemon.run_agent(start("a", name="a"))
    daemon.run_agent(start("b", name="b"))
    daemon.run_agent(start("c", name="c"))
    daemon.tell(GRACEFUL, stop(name="a"), drained(2), exits(number=3))

    assert daemon.tell(passes("last_words", None)) == []


def test_a_grace_that_ends_before_the_last_words_are_due_takes_that_deadline_back() -> None:
    """A loop that stood still reports both at once, in an order of its own."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(GRACEFUL)

    assert daemon.tell(passes("shutdown", None)) == [DisarmDeadline(LAST_WORDS), Kill(life(1))]
    assert daemon.tell(passes("last_words", None)) == []


def test_the_end_of_a_drain_for_the_shutdown_is_shutdown() -> None:
    """The same exit status after a drain of its own would be normal."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    daemon.tell(monitor(), GRACEFUL, exits(), drained())

    assert daemon.downs() == [(1, ExitReason("shutdown"))]


def test_a_stop_may_overtake_the_drain_of_the_shutdown() -> None:
    """Somebody decided that this agent's turn is not worth the wait."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(GRACEFUL)

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

    assert daemon.tell(GRACEFUL) == GRACEFULLY


def test_at_the_end_of_the_grace_everything_left_is_killed() -> None:
    """Also what has no window of its own, and what outlives its channel."""
    daemon = Rehearsal()
    daemon.run_agent(start("a", name="a", shutdown_ms=None))
    daemon.run_agent(start("b", name="b"))
    daemon.tell(drained(2), GRACEFUL, passes("last_words", None))

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

    assert orders[-3:] == [DisarmDeadline(LAST_WORDS), DisarmDeadline(GRACE), Finished()]


def test_forcing_an_empty_daemon_is_complete_at_once() -> None:
    """There is nobody to wait for."""
    orders = Rehearsal().tell(FORCED)

    assert orders == [ArmDeadline(GRACE, 500), DisarmDeadline(GRACE), Finished()]


@pytest.mark.parametrize("shutdown", [GRACEFUL, FORCED])
def test_ready_does_not_save_an_agent_from_a_shutdown(shutdown: Input) -> None:
    """Its kill is ordered already."""
    daemon = Rehearsal(start(), born(), shutdown)

    assert daemon.tell(AgentReady(life(1))) == []


@pytest.mark.parametrize(
    ("first", "armed"),
    [
        ((GRACEFUL,), [LAST_WORDS, GRACE]),
        ((GRACEFUL, passes("last_words", None)), [GRACE, Timer("stop", life(1))]),
        ((FORCED,), [GRACE, Timer("stop", life(1))]),
    ],
)
def test_forcing_a_shutdown_that_has_begun_kills_now(
    first: tuple[Input, ...], armed: list[Timer]
) -> None:
    """Also one that was forced before: who forces twice does not want to wait for last words."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(*first)

    before = daemon.table
    assert daemon.tell(GRACEFUL) == []
    assert daemon.table == before

    assert daemon.tell(FORCED) == [*(DisarmDeadline(timer) for timer in armed), Kill(life(1))]
    assert daemon.reports()[-2:] == ["shutdown.forced", "agent.killed"]


@pytest.mark.parametrize("third", [GRACEFUL, FORCED])
@pytest.mark.parametrize("killing", [FORCED, passes("shutdown", None)])
def test_a_request_to_shut_down_what_is_being_killed_changes_nothing(
    killing: Input, third: Input
) -> None:
    """There is no sooner than now."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(GRACEFUL, killing)
    before = daemon.table

    assert daemon.tell(third) == []
    assert daemon.table == before


LATE = [GRACEFUL, FORCED, passes("last_words", None), passes("shutdown", None)]


@pytest.mark.parametrize("late", LATE)
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
