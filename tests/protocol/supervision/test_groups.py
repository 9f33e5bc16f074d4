"""A group belongs to one client, ends with it, and is invisible to everyone else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from genagent_protocol.reasons import NOT_FOUND, SHUTDOWN, ExitReason
from genagent_protocol.supervision.effects import (
    Answer,
    AskToStop,
    Done,
    GroupRunning,
    Kill,
    Launch,
    NotStarted,
    Refused,
    RefuseTurns,
    SendDown,
    Started,
    Stopped,
)
from genagent_protocol.supervision.inputs import (
    ClientGone,
    GroupCloseRequested,
    GroupOpenRequested,
    Input,
    ShutdownRequested,
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
from support.supervision_rehearsal import Rehearsal, position
from support.supervision_world import captured, life

OPEN = GroupOpenRequested(call="open", client=1)


def close(call: str | None = "close", client: int = 1, group: int = 1) -> GroupCloseRequested:
    """Return the close of a group by *client*."""
    return GroupCloseRequested(call=call, client=client, group=group)


def opened() -> Rehearsal:
    """Return a daemon in which client 1 has opened group 1."""
    return Rehearsal(OPEN)


def test_group_numbers_are_never_used_again() -> None:
    """A stop that comes late must not reach another group's agent."""
    daemon = Rehearsal(OPEN, close(), GroupOpenRequested(call="second", client=1))

    assert daemon.answer("open") == GroupRunning(1)
    assert daemon.answer("second") == GroupRunning(2)


@pytest.mark.parametrize(
    ("before", "client", "group"),
    [
        ((), 1, 1),
        ((OPEN,), 1, 2),
        ((OPEN,), 2, 1),
        ((OPEN, close()), 1, 1),
        ((OPEN, ClientGone(1)), 1, 1),
    ],
)
def test_a_start_in_a_group_that_is_not_running_starts_nothing(
    before: tuple[Input, ...], client: int, group: int
) -> None:
    """Unknown, closed, or another client's: for the starter there is no such group."""
    daemon = Rehearsal(*before, start(client=client, group=group))

    answer = daemon.answer("start")
    assert isinstance(answer, NotStarted)
    assert answer.error.kind == "group_not_running"
    assert daemon.count(Launch) == 0


def test_a_closing_group_takes_no_more_starts() -> None:
    """What starts now would be stopped before it is ready."""
    daemon = opened()
    daemon.run_agent(start(group=1))

    daemon.tell(close(), start("late", name="b", group=1))

    answer = daemon.answer("late")
    assert isinstance(answer, NotStarted)
    assert answer.error.kind == "group_not_running"


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ([close()], "closed"),
        ([ClientGone(1)], "owner_gone"),
        ([close(), ClientGone(1)], "closed"),
    ],
)
def test_the_reports_tell_why_a_group_ended_and_whose_it_was(ends: list[Input], cause: str) -> None:
    """An operator sees agents end, and would not know of a stop from the death of a program."""
    daemon = Rehearsal(replace(OPEN, owner_pid=77))
    member = daemon.run_agent(start(group=1))

    daemon.tell(*ends, dies(number=member), drained(member))

    about = {"group": 1, "owner_pid": 77}
    assert daemon.told("group.opened") == [about]
    assert daemon.told("group.closed") == [{**about, "cause": cause}]
    [begun], [ended] = daemon.told("agent.started"), daemon.told("agent.stopping")
    assert (begun["group"], ended["group"], ended["cause"]) == (1, 1, "group")


def test_the_reports_tell_a_stop_from_the_end_of_a_group_and_of_the_daemon() -> None:
    """Outside of a group none is named."""
    daemon = opened()
    daemon.run_agent(start(group=1))
    daemon.run_agent(start(name="b"))

    daemon.tell(stop(group=1), ShutdownRequested(grace_ms=1_000))

    first, second = daemon.told("agent.stopping")
    assert (first["cause"], first["group"]) == ("stop", 1)
    assert second["cause"] == "shutdown"
    assert "group" not in second


def test_names_are_unique_across_groups() -> None:
    """Every name function finds agents of every group, so a name must be one agent."""
    daemon = opened()
    daemon.run_agent(start(group=1))

    daemon.tell(start("global"))

    answer = daemon.answer("global")
    assert isinstance(answer, NotStarted)
    assert answer.error.kind == "already_started"
    assert answer.holder == captured(1)


def test_all_agents_refuse_new_turns_before_the_first_is_asked_to_stop() -> None:
    """Otherwise one would begin work because of what a dying neighbour sent it."""
    daemon = opened()
    daemon.run_agent(start("a", name="a", group=1))
    daemon.run_agent(start("b", name="b", group=1))

    orders = daemon.tell(close())

    kinds = [type(o) for o in orders if isinstance(o, RefuseTurns | AskToStop)]
    assert kinds == [RefuseTurns, RefuseTurns, AskToStop, AskToStop]
    assert AskToStop(life(1), SHUTDOWN) in orders


def test_a_close_is_answered_when_the_last_agent_is_gone() -> None:
    """Behind its DOWN, so that nothing of the group is heard of afterwards."""
    daemon = opened()
    daemon.run_agent(start("a", name="a", group=1))
    daemon.run_agent(start("b", name="b", group=1))
    daemon.tell(monitor(1, number=2), close(), exits(), drained(), exits(number=2))
    assert daemon.answers("close") == []

    orders = daemon.tell(drained(2))

    assert position(orders, SendDown) < position(orders, Answer)
    assert daemon.answer("close") == Done()
    assert not daemon.table.children


def test_an_empty_group_closes_at_once() -> None:
    """There is nothing to wait for."""
    daemon = opened()

    assert daemon.tell(close()) == [Answer("close", Done())]


def test_a_second_close_waits_for_the_same_end() -> None:
    """Two threads may both leave the same with-block."""
    daemon = opened()
    daemon.run_agent(start(group=1))
    daemon.tell(close("first"), close("second"), exits())

    daemon.tell(drained())

    assert daemon.answer("first") == daemon.answer("second") == Done()
    assert daemon.count(RefuseTurns) == 1


def test_closing_a_group_that_is_not_ones_own_is_not_found() -> None:
    """A number may be guessed; ownership may not."""
    daemon = opened()
    daemon.run_agent(start(group=1))

    daemon.tell(close("foreign", client=2), close("unknown", group=2))

    assert daemon.answer("foreign") == daemon.answer("unknown") == Refused(NOT_FOUND)
    assert daemon.count(AskToStop) == 0


def test_a_group_ends_with_its_owner() -> None:
    """Nobody is left who could stop these agents, or knows of them."""
    daemon = opened()
    daemon.run_agent(start("ours", name="a", group=1))
    daemon.run_agent(start("global", name="b"))

    orders = daemon.tell(ClientGone(1))

    asked = [o.incarnation for o in orders if isinstance(o, AskToStop)]
    assert asked == [life(1)]
    daemon.tell(exits(), drained())
    assert [child.terms.name for child in daemon.table.children.values()] == ["b"]
    assert daemon.reports()[-1] == "group.closed"


def test_another_clients_end_leaves_a_group_alone() -> None:
    """Only its owner carries it."""
    daemon = opened()
    daemon.run_agent(start(group=1))

    assert daemon.tell(ClientGone(2)) == []


def test_a_starting_agent_of_a_closing_group_is_killed() -> None:
    """Its starter hears that the group is not running, which is why."""
    daemon = opened()
    daemon.tell(start(group=1), born())

    assert Kill(life(1)) in daemon.tell(close())
    daemon.tell(dies(), drained())

    answer = daemon.answer("start")
    assert isinstance(answer, NotStarted)
    assert answer.error.kind == "group_not_running"
    assert daemon.answer("close") == Done()


@pytest.mark.parametrize("restart", [ONCE, NEVER])
def test_a_group_does_not_wait_for_what_has_no_process(restart: object) -> None:
    """Waiting for its restart or failed for good, it is gone at once, and stays gone."""
    daemon = opened()
    daemon.run_agent(start(group=1, restart=restart))
    daemon.tell(exits(1), drained())

    daemon.tell(close())

    assert daemon.answer("close") == Done()
    assert daemon.tell(passes("restart")) == []
    assert not daemon.table.children


def test_no_restart_brings_an_agent_back_into_a_closing_group() -> None:
    """Closing is an end that somebody asked for."""
    daemon = opened()
    daemon.run_agent(start(group=1, restart=ONCE))

    daemon.tell(close(), dies(), drained())

    assert daemon.answer("close") == Done()
    assert not daemon.table.children


def test_a_stop_during_the_close_is_answered_too() -> None:
    """Both wait for the same end; neither is forgotten."""
    daemon = opened()
    daemon.run_agent(start(group=1))

    daemon.tell(close(), stop(group=1), exits(), drained())

    assert daemon.answer("stop") == Stopped(ExitReason("shutdown"))
    assert daemon.answer("close") == Done()


def test_a_close_during_the_daemons_drain_stops_the_agents_now() -> None:
    """A drain lets a turn finish; the owner says that it need not."""
    daemon = opened()
    daemon.run_agent(start(group=1))
    daemon.tell(ShutdownRequested(grace_ms=9))

    orders = daemon.tell(close())

    assert AskToStop(life(1), SHUTDOWN, drain=False) in orders


def test_no_group_opens_during_the_shutdown() -> None:
    """Nothing could be started in it."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    daemon.tell(ShutdownRequested(grace_ms=9), OPEN)

    answer = daemon.answer("open")
    assert isinstance(answer, Refused)
    assert answer.reason.code == "shutting_down"


def test_a_group_goes_on_after_its_last_agent() -> None:
    """It is open until it is closed."""
    daemon = opened()
    daemon.run_agent(start(group=1))
    daemon.tell(exits(), drained())

    daemon.run_agent(start("again", group=1))

    assert daemon.answer("again") == Started(captured(2))
