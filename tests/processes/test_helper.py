"""The helper that agents are forked from may die or hang: no agent is taken for dead because of it.

Agents are children of the daemon, not of the helper; it is only needed for the next start.
"""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from genagent_protocol.envelopes import Down
from genagent_protocol.errors import StartFailed
from genagent_protocol.refs import AgentHandle
from genagentd import kernel
from genagentd.client.client import Client
from support import fleet
from support.daemons import (
    PrivateDaemon,
    helper_of,
    helpers_of,
    only_who_waits_can_be_found,
    waiting_in,
    zombies_below,
)
from support.figures import counts
from support.waiting import until

pytestmark = pytest.mark.process


def test_E007_a_killed_helper_ends_no_agent(daemon: PrivateDaemon, client: Client) -> None:
    """E007: no DOWN, their turns complete, their exit status is true, new starts work."""
    turn: fleet.Turn = [{"spawn": "child"}, {"pause_ms": 500}, {"kind": "result"}]
    handles = [fleet.start(client, f"a{n}", turn, [{"os_exit": 3}]) for n in range(3)]
    for handle in handles:
        client.at(handle).monitor()
    refs = [fleet.begin(client, handle)[0] for handle in handles]
    helper = helper_of(daemon)

    os.kill(helper, signal.SIGKILL)

    for ref in refs:
        fleet.completion(client, ref)
    assert len(fleet.alive(map(fleet.of, handles))) == 3
    until(lambda: not zombies_below(daemon.pid), "the helper is reaped", within_s=2)
    fleet.start(client, "new")
    assert helper_of(daemon) != helper
    for handle in handles:
        client.at(handle).submit_with_completion("end")
        assert fleet.down(client, handle).reason.text == "exit:3"
    assert [m for m in fleet.rest(client) if isinstance(m, Down)] == []


def test_a_helper_that_dies_before_it_did_anything_waits_to_be_wanted(
    daemon: PrivateDaemon, client: Client
) -> None:
    """One that cannot live would otherwise be started again without end."""
    os.kill(helper_of(daemon), signal.SIGKILL)

    until(lambda: kernel.children(daemon.pid) == [], "it is reaped", within_s=5)
    client.list()
    assert kernel.children(daemon.pid) == []
    assert fleet.start(client, "a").name == "a"


def test_E007_a_hanging_helper_is_replaced(daemon: PrivateDaemon, client: Client) -> None:
    """E007: living agents are served on meanwhile, and each start that waited works, once."""
    handle = fleet.start(client, "a")
    helper = helper_of(daemon)
    with Client(daemon.run) as other:
        os.kill(helper, signal.SIGSTOP)
        began, starts = _start_many(other, 10)
        assert client.ask("a", "still there").text == "done"
        for start in starts:
            start.join(60)
    assert len({h.pid for h in began}) == 10
    assert sorted(str(row.name) for row in client.list()) == sorted(
        ["a", *(f"b{n}" for n in range(10))]
    )
    assert fleet.alive([fleet.of(handle)]) == [handle.pid]
    until(lambda: not zombies_below(daemon.pid), "there is no zombie", within_s=2)
    # The daemon has the helper, the eleven agents and who is to be the next, and nobody else.
    assert len(kernel.children(daemon.pid)) == 13
    assert len(waiting_in(daemon)) == 1


def _start_many(client: Client, count: int) -> tuple[list[AgentHandle], list[threading.Thread]]:
    """Begin so many starts at once; each adds to the list what it got."""
    began: list[AgentHandle] = []

    def start(number: int) -> None:
        began.append(fleet.start(client, f"b{number}"))

    starts = [threading.Thread(target=start, args=(number,)) for number in range(count)]
    for thread in starts:
        thread.start()
    return began, starts


def _has_only(daemon: PrivateDaemon, agents: list[AgentHandle]) -> bool:
    children = set(kernel.children(daemon.pid))
    others = children - helpers_of(daemon) - {handle.pid for handle in agents}
    return others == waiting_in(daemon) and len(others) <= 1


@counts(short=3, full=30)
def test_E007_starts_survive_a_helper_that_is_killed_at_any_moment(
    daemon: PrivateDaemon, client: Client, count: int
) -> None:
    """E007: every start ends with an agent, never with two, and no helper stays a zombie."""
    for round_number in range(count):
        began, starts = _start_many(client, 6)
        for _ in range(2):
            client.receive(1 + round_number * 7 % 40)
            # One that was killed before it did anything waits until it is wanted.
            for helper in helpers_of(daemon):
                kernel.kill_exactly(helper)
        for start in starts:
            start.join(60)
        assert len(began) == 6
        assert len(client.list()) == 6
        until(partial(_has_only, daemon, began), "no process too many", within_s=5)
        for handle in began:
            client.stop(handle.name)
    until(lambda: not zombies_below(daemon.pid), "there is no zombie", within_s=2)


def test_the_next_agent_is_forked_before_it_is_wanted(
    daemon: PrivateDaemon, client: Client
) -> None:
    """It waits as nobody, becomes the next agent, and another one waits in its place."""
    fleet.start(client, "a")
    (waiting,) = until(lambda: waiting_in(daemon), "one waits")

    assert fleet.start(client, "b").pid == waiting
    assert until(lambda: waiting_in(daemon), "another one waits") != {waiting}
    assert [row.name for row in client.list()] == ["a", "b"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_newborn_that_is_killed_while_it_waits_costs_no_start(
    daemon: PrivateDaemon, client: Client, number: signal.Signals
) -> None:
    """Nobody was told of it, so nobody hears of its end; it stays no zombie."""
    fleet.start(client, "a")
    (waiting,) = until(lambda: waiting_in(daemon), "one waits")

    os.kill(waiting, number)

    until(lambda: not kernel.stat(waiting), "it is reaped", within_s=5)
    assert fleet.start(client, "b").pid != waiting
    assert [row.name for row in client.list()] == ["a", "b"]
    assert list(fleet.rest(client)) == []
    until(lambda: only_who_waits_can_be_found(daemon), "its file is gone, too", within_s=5)


def test_who_waits_when_the_helper_dies_ends_with_it(daemon: PrivateDaemon, client: Client) -> None:
    fleet.start(client, "a")
    (waiting,) = until(lambda: waiting_in(daemon), "one waits")

    os.kill(helper_of(daemon), signal.SIGKILL)

    until(lambda: not kernel.stat(waiting), "it is gone", within_s=5)
    assert fleet.start(client, "b").pid != waiting
    until(lambda: only_who_waits_can_be_found(daemon), "its file is gone, too", within_s=5)


def test_an_agent_whose_file_was_removed_is_a_start_that_failed_and_says_why(
    daemon: PrivateDaemon, client: Client, tmp_path: Path
) -> None:
    """Nobody waits for a start that cannot come, and no code of the agent's is blamed."""
    fleet.start(client, "a")
    (waiting,) = until(lambda: waiting_in(daemon), "one waits")
    os.kill(waiting, signal.SIGSTOP)
    failed: list[BaseException] = []

    def begin() -> None:
        try:
            client.start_agent(None, name="b", backend="echo", cwd=str(tmp_path))
        except StartFailed as error:
            failed.append(error)

    start = threading.Thread(target=begin)
    start.start()
    until(lambda: waiting_in(daemon) - {waiting}, "the next one waits: it has its order")
    os.kill(daemon.pid, signal.SIGSTOP)
    os.kill(waiting, signal.SIGCONT)
    until(lambda: os.readlink(f"/proc/{waiting}/cwd") == str(tmp_path), "it said that it is ready")
    (place,) = daemon.places.agents.glob(f"{waiting}-*")
    place.unlink()
    os.kill(daemon.pid, signal.SIGCONT)
    start.join(60)

    (error,) = failed
    assert isinstance(error, StartFailed)
    assert error.reason.kind == "bad_directory"
    assert f"{place}, and nobody listens there" in error.reason.message
    until(lambda: not kernel.stat(waiting), "it is killed and reaped", within_s=5)
    assert fleet.start(client, "b").name == "b"


def test_a_frozen_newborn_is_a_start_that_takes_too_long(
    daemon: PrivateDaemon, client: Client
) -> None:
    """Whoever stops it stops the agent it becomes: told as any start that hangs."""
    fleet.start(client, "a")
    (waiting,) = until(lambda: waiting_in(daemon), "one waits")
    os.kill(waiting, signal.SIGSTOP)

    with pytest.raises(StartFailed) as failed:
        fleet.start(client, "b", start_timeout_ms=300)

    assert failed.value.reason.kind == "start_timeout"
    until(lambda: not kernel.stat(waiting), "it is killed and reaped", within_s=5)
    assert fleet.start(client, "b").name == "b"
