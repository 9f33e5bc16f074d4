"""The daemon is killed: nothing of it lives on, everyone hears of it, and the next one starts.

No process may survive that nobody supervises, and nobody may wait for an answer that
cannot come.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from genagent_protocol.envelopes import Down
from genagent_protocol.errors import CallTimeout, DaemonLost
from genagent_protocol.refs import AgentHandle
from genagentd.client.calls import Lost
from genagentd.client.client import Client
from support import fleet
from support.daemons import PrivateDaemon
from support.figures import Figures, counts
from support.waiting import until

pytestmark = pytest.mark.process


def _all_of(daemon: PrivateDaemon) -> list[fleet.Identity]:
    """Everything that exists because of this daemon: its guardian, itself, and all below."""
    assert daemon.guardian is not None
    guardian = daemon.guardian.pid
    return [*fleet.identities([guardian]), *fleet.tree(guardian)]


def _busy(client: Client, count: int) -> list[AgentHandle]:
    handles = [fleet.start(client, f"a{n}", fleet.BUSY_WITH_ORPHAN) for n in range(count)]
    for handle in handles:
        fleet.begin(client, handle, spawns=2)
    return handles


@counts(short=2, full=20)
def test_F001_F002_E001_a_killed_daemon_leaves_nothing_and_the_next_is_ready(
    daemon: PrivateDaemon, figures: Figures, count: int
) -> None:
    """F001, F002, E001: agents and the programs of their turns end, also in sessions of their own.

    The next daemon finds the socket and the lock of the dead one and needs no help.
    """
    gone_ms, ready_ms, survivors = list[float](), list[float](), 0
    for _ in range(count):
        with Client(daemon.run) as client:
            _busy(client, 10)
            everything = _all_of(daemon)
            assert len(everything) > 10 * 4
            daemon.kill()
            gone_ms.append(fleet.gone(everything))
            survivors += gone_ms[-1] > 5_000
        assert daemon.wait() == 128 + signal.SIGKILL
        again = time.monotonic()
        daemon.start()
        ready_ms.append((time.monotonic() - again) * 1000)
    figures.note(
        "F001",
        f"rounds of {count} with a survivor 5 s after the kill (10 busy agents; "
        f"last one gone after {max(gone_ms):.0f} ms)",
        survivors,
        "0",
        met=survivors == 0,
    )
    figures.note(
        "F002",
        f"slowest of {count} starts after it",
        f"{max(ready_ms):.0f} ms",
        "2000 ms",
        met=max(ready_ms) <= 2_000,
    )


def test_E031_E038_what_the_dead_daemon_left_stops_nobody_and_old_refs_read_lost(
    daemon: PrivateDaemon,
) -> None:
    """E031, E038: an old turn is never shown as running, an old agent never as alive."""
    with Client(daemon.run) as client:
        handle = fleet.start(client, "a", fleet.HANGS)
        ref = client.at(handle).submit_with_completion("go").ref
        fleet.admission(client, ref)
        daemon.kill()
        daemon.wait()
    assert os.path.exists(daemon.places.socket)

    daemon.start()

    with Client(daemon.run) as client:
        assert client.list() == ()
        assert client.poll("a", ref) == Lost(ref)
        replacement = fleet.start(client, "a", fleet.HANGS)
        assert client.poll("a", ref) == Lost(ref)
        assert client.whereis("a") == replacement != handle


def test_E050_whoever_waits_hears_that_the_daemon_is_lost(daemon: PrivateDaemon) -> None:
    """E050: a call without a limit raises, and each monitor gets exactly one DOWN."""
    with Client(daemon.run) as client:
        handle = fleet.start(client, "a", fleet.HANGS)
        for _ in range(3):
            client.at(handle).monitor()
        raised: list[Exception] = []

        def ask() -> None:
            try:
                client.ask("a", "never answered")
            except DaemonLost as lost:
                raised.append(lost)

        waiting = threading.Thread(target=ask)
        waiting.start()
        until(lambda: client.status("a").state == "processing", "the turn runs")

        daemon.kill()

        waiting.join(30)
        assert len(raised) == 1
        downs = [client.receive(5_000) for _ in range(3)]
        assert [d.reason.text for d in downs if isinstance(d, Down)] == ["noconnection"] * 3
        with pytest.raises(DaemonLost):
            client.receive(0)
        daemon.wait()


def test_the_daemon_is_killed_while_an_agent_holds_the_interpreter(daemon: PrivateDaemon) -> None:
    """An agent in a C call that never lets go cannot notice anything; the kernel ends it."""
    with Client(daemon.run) as client:
        handle = fleet.start(
            client,
            "a",
            [{"spawn": "grandchild"}, {"pause_ms": 100}, {"hang": "held", "for_ms": 60_000}],
        )
        _, begun = fleet.begin(client, handle)
        until(lambda: _silent(client, "a"), "the agent does not answer")
        everything = [*_all_of(daemon), *begun]

        daemon.kill()

        fleet.gone(everything, within_s=5)
        daemon.wait()


def _silent(client: Client, name: str) -> bool:
    try:
        client.status(name, timeout_ms=200)
    except CallTimeout:
        return True
    return False


@counts(short=5, full=40)
def test_the_daemon_is_killed_while_agents_are_being_born(
    daemon: PrivateDaemon, figures: Figures, count: int
) -> None:
    """Between a fork and the first instruction there is no death signal yet."""
    slowest_ms = 0.0
    for round_number in range(count):
        with Client(daemon.run) as client:
            starters = [
                threading.Thread(target=_start_and_lose, args=(client, f"a{n}")) for n in range(8)
            ]
            for starter in starters:
                starter.start()
            # Each round a little later into the eight births.
            assert client.receive(round_number % 40 + 1) is None
            everything = _all_of(daemon)
            daemon.kill()
            killed = time.monotonic()
            for starter in starters:
                starter.join(30)
        daemon.wait()
        fleet.gone(everything)
        until(lambda: not _of_run(daemon), "nobody uses the directory", within_s=30)
        slowest_ms = max(slowest_ms, (time.monotonic() - killed) * 1000)
        daemon.start()
    figures.note(
        "F001",
        f"last one gone, slowest of {count} kills in the middle of births",
        f"{slowest_ms:.0f} ms",
        "5000 ms",
        met=slowest_ms <= 5_000,
    )


def _start_and_lose(client: Client, name: str) -> None:
    try:
        fleet.start(client, name)
    except DaemonLost:
        return


def _of_run(daemon: PrivateDaemon) -> list[int]:
    """Return the processes that have a file of the runtime directory open."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                fds = [
                    os.readlink(f"/proc/{name}/fd/{fd}") for fd in os.listdir(f"/proc/{name}/fd")
                ]
            except OSError:
                continue
            if any(path.startswith(str(daemon.run)) for path in fds):
                found.append(int(name))
    return found
