"""An agent comes back as its policy says, as another incarnation, and not for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.supervision.effects import (
    Answer,
    ArmDeadline,
    Launch,
    NotStarted,
    SendDown,
)
from genagent_protocol.supervision.inputs import (
    AgentReady,
    AgentRefused,
    Input,
    LaunchFailed,
    ShutdownRequested,
    Timer,
)
from genagent_protocol.supervision.table import whereis
from genagent_protocol.supervision.terms import RestartKind, RestartPolicy
from genagent_protocol.supervision.verdicts import Restart, next_restart
from support.supervision_phases import (
    born,
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
from support.supervision_world import NO_PROCESS, REFUSAL, captured, life


def policy(kind: RestartKind = "permanent", max_restarts: int = 3) -> RestartPolicy:
    """Return a policy with round numbers."""
    return RestartPolicy(
        kind=kind, max_restarts=max_restarts, period_ms=10_000, delay_ms=100, max_delay_ms=300
    )


@pytest.mark.parametrize(
    ("kind", "ends", "back"),
    [
        ("temporary", (exits(0),), False),
        ("temporary", (exits(1),), False),
        ("temporary", (dies(9),), False),
        ("transient", (exits(0),), False),
        ("transient", (exits(1),), True),
        ("transient", (dies(9),), True),
        ("transient", (exits(70),), True),
        ("transient", (stop(), exits(0)), False),
        ("transient", (stop(), passes("stop"), dies(9)), False),
        ("permanent", (exits(0),), True),
        ("permanent", (exits(1),), True),
        ("permanent", (dies(9),), True),
        ("permanent", (stop(), exits(0)), False),
        ("permanent", (stop(), passes("stop"), dies(9)), False),
        ("permanent", (dies(9), stop()), False),
        ("permanent", (ShutdownRequested(grace_ms=9), exits(0)), False),
        ("permanent", (ShutdownRequested(grace_ms=9), exits(1)), False),
    ],
)
def test_whether_an_agent_comes_back_follows_from_policy_and_reason(
    kind: RestartKind, ends: tuple[Input, ...], back: bool
) -> None:
    """An end that somebody asked for is never undone, whatever the policy."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=policy(kind)))

    daemon.tell(*ends, drained())

    waits = [child.phase for child in daemon.table.children.values()]
    assert waits == (["restarting"] if back else [])


def test_a_restart_is_another_incarnation_under_the_same_name() -> None:
    """No ref, handle or monitor of the old life ever means the new one."""
    daemon = Rehearsal()
    request = start(restart=policy())
    daemon.run_agent(request)
    daemon.tell(monitor(), dies(), drained())

    orders = daemon.tell(passes("restart"))

    assert orders[-1] == Launch(life(2), request.terms, previous=life(1))
    daemon.tell(born(2), AgentReady(life(2)))
    assert whereis(daemon.table, key_of("a")) == captured(2)
    daemon.tell(monitor(9, number=1))
    assert [reason.text for _, reason in daemon.downs()] == ["signal:9", "noproc"]


def test_the_down_of_the_old_life_goes_out_before_anything_of_the_new_one() -> None:
    """A client must be able to let go of the old handle first."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=policy()))
    daemon.tell(monitor(), dies())

    orders = daemon.tell(drained())

    assert position(orders, SendDown) < len(orders) - 1
    assert orders[-1] == ArmDeadline(Timer("restart", life(1)), 100)
    assert daemon.count(Launch) == 1


def test_the_wait_before_a_restart_doubles_up_to_its_ceiling() -> None:
    """A crash loop must not keep two cores busy with starting."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=policy(max_restarts=4)))
    waits = []
    for number in range(1, 5):
        orders = daemon.tell(dies(number=number), drained(number))
        waits += [o.after_ms for o in orders if isinstance(o, ArmDeadline)][-1:]
        daemon.tell(passes("restart", number), born(number + 1), AgentReady(life(number + 1)))

    assert waits == [100, 200, 300, 300]


def test_one_end_too_many_within_the_period_is_final_and_visible() -> None:
    """Somebody has to look, and finds what to look at."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=policy(max_restarts=1)))
    daemon.tell(dies(now_ms=0), drained(), passes("restart"), born(2), AgentReady(life(2)))

    daemon.tell(dies(11, number=2, now_ms=9_999), drained(2))

    found = daemon.table.children.get(key_of("a"))
    assert found is not None
    assert found.phase == "failed"
    assert str(found.reason) == "signal:11"
    assert len(found.restarts) == 1
    assert found.ended_at_ms == 9_999
    assert daemon.reports()[-1] == "agent.failed"
    assert daemon.tell(passes("restart", 2)) == []


def test_ends_that_are_a_period_old_do_not_count_any_more() -> None:
    """An agent that dies once an hour is restarted once an hour."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=policy(max_restarts=1)))
    for number in range(1, 6):
        now_ms = number * 10_000
        orders = daemon.tell(dies(number=number, now_ms=now_ms), drained(number))
        assert ArmDeadline(Timer("restart", life(number)), 100) in orders
        daemon.tell(passes("restart", number), born(number + 1), AgentReady(life(number + 1)))


@pytest.mark.parametrize(
    "ends",
    [
        (born(2), exits(0, number=2), drained(2)),
        (born(2), AgentRefused(life(2), REFUSAL), exits(1, number=2), drained(2)),
        (born(2), passes("start", 2), dies(number=2), drained(2)),
        (LaunchFailed(incarnation=life(2), error=NO_PROCESS, now_ms=0),),
    ],
)
def test_a_restart_that_is_not_ready_again_counts_and_is_tried_again(
    ends: tuple[Input, ...],
) -> None:
    """Whatever its status: an agent that should run does not."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=policy("transient", max_restarts=2)))
    daemon.tell(dies(), drained(), passes("restart"))

    daemon.tell(*ends)

    found = daemon.table.children.get(key_of("a"))
    assert found is not None
    assert (found.phase, len(found.restarts)) == ("restarting", 2)
    assert found.error is not None
    daemon.tell(passes("restart", 2), LaunchFailed(incarnation=life(3), error=NO_PROCESS, now_ms=1))
    found = daemon.table.children.get(key_of("a"))
    assert found is not None
    assert (found.phase, found.error) == ("failed", NO_PROCESS)


def test_a_failed_restart_answers_nobody() -> None:
    """The starter was told long ago that its agent had started."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=policy()))
    daemon.tell(dies(), drained(), passes("restart"))

    orders = daemon.tell(born(2), exits(1, number=2), drained(2))

    assert not [o for o in orders if isinstance(o, Answer)]
    assert not any(isinstance(a, NotStarted) for a in daemon.answers("start"))


def test_the_restart_deadline_of_a_name_taken_anew_is_late() -> None:
    """It belongs to a child that is gone, whatever its successor waits for."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=policy()))
    daemon.tell(dies(), drained(), stop(), start("again", restart=policy()))
    daemon.tell(born(2), AgentReady(life(2)), dies(number=2), drained(2))

    assert daemon.tell(passes("restart", 1)) == []
    assert len(daemon.tell(passes("restart", 2))) == 2


@given(
    gaps_ms=st.lists(st.integers(0, 400), max_size=40),
    max_restarts=st.integers(0, 5),
    period_ms=st.integers(1, 1_000),
)
def test_intensity_agrees_with_counting_by_hand(
    gaps_ms: list[int], max_restarts: int, period_ms: int
) -> None:
    """The kept times never lose an end that counts nor keep one that does not."""
    limits = RestartPolicy(
        kind="permanent",
        max_restarts=max_restarts,
        period_ms=period_ms,
        delay_ms=3,
        max_delay_ms=40,
    )
    now_ms, kept, all_ends = 0, tuple[int, ...](), list[int]()
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        recent = [end for end in all_ends if end > now_ms - period_ms]
        plan = next_restart(limits, kept, now_ms)
        if len(recent) >= max_restarts:
            assert plan is None
            return
        all_ends.append(now_ms)
        assert plan == Restart(min(3 * 2 ** len(recent), 40), (*recent, now_ms))
        kept = plan.times_ms


def test_a_policy_of_very_many_restarts_keeps_its_ceiling() -> None:
    """The doubling must not grow numbers without end."""
    limits = RestartPolicy(kind="permanent", max_restarts=10**6, period_ms=10**9)

    plan = next_restart(limits, tuple(range(5_000)), 5_000)

    assert plan is not None
    assert plan.after_ms == limits.max_delay_ms
