"""What the caller of the daemon ignored or blocked is no business of ours, nor of an agent's."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from genagentd import kernel, testing
from genagentd.client.client import Client
from support import fleet
from support.daemons import PrivateDaemon, helper_of
from support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("nothing_left")]

EVERY: set[signal.Signals] = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
#: What the interpreter ignores in each of its processes.
PYTHONS = {signal.SIGPIPE, signal.SIGXFSZ}
#: What the daemon's own processes leave to whoever ignored it.
CALLERS = {signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}

#: Becomes the daemon as a careless parent would start it.
_CARELESS = """
import os, signal, sys
every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
if sys.argv[1] == "ignored":
    for number in every:
        signal.signal(number, signal.SIG_IGN)
else:
    signal.pthread_sigmask(signal.SIG_BLOCK, every)
os.execv(sys.argv[2], sys.argv[2:])
"""
HOWS = ["ignored", "blocked"]


class Signals(NamedTuple):
    """How a process is set up."""

    ignored: set[signal.Signals]
    blocked: set[signal.Signals]


def signals_of(pid: int) -> Signals:
    """Return what the main thread of *pid* ignores and blocks."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    said = dict(line.split(":", 1) for line in lines)
    masks = (int(said["SigIgn"], 16), int(said["SigBlk"], 16))
    ignored, blocked = ({n for n in EVERY if mask >> (n - 1) & 1} for mask in masks)
    return Signals(ignored=ignored, blocked=blocked)


@pytest.fixture(params=HOWS)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["forkserver", "spawn", "unguarded"])
def careless(request: pytest.FixtureRequest, how: str, tmp_path: Path) -> Iterator[PrivateDaemon]:
    """A daemon whose parent left every signal ignored, or every one blocked."""
    unguarded = {"NOTIFY_SOCKET": str(tmp_path / "nobody")}
    method = "spawn" if request.param == "spawn" else "forkserver"
    private = PrivateDaemon(
        {"GENAGENT_START_METHOD": method, "GENAGENT_GRACE_MS": "0"}
        | (unguarded if request.param == "unguarded" else {})
    )
    private.command = [sys.executable, "-c", _CARELESS, how, *private.command]
    try:
        yield private.start()
    finally:
        private.stop()
        private.cleanup()


def test_each_process_of_ours_has_the_signals_that_it_is_made_for(careless: PrivateDaemon) -> None:
    """Each signal, ignored or blocked at the start: no process of ours blocks it or ignores it.

    What an agent and its programs get is what they would get from a daemon that a login began.
    """
    assert careless.guardian is not None
    first, daemon = careless.guardian.pid, careless.pid
    with Client(careless.run) as client:
        handle = fleet.start(client, "a", [{"spawn": "child"}, {"hang": "idle"}])
        _, ((program, _), *_) = fleet.begin(client, handle)
        found = {"guardian": first, "daemon": daemon, "agent": handle.pid, "program": program}
        if careless.environment["GENAGENT_START_METHOD"] == "forkserver":
            found["helper"] = helper_of(careless)
        signals = {who: signals_of(pid) for who, pid in found.items()}

    assert [who for who, of in signals.items() if of.blocked] == []
    assert signals["guardian"].ignored - CALLERS == PYTHONS
    assert signals["daemon"].ignored - CALLERS == PYTHONS
    assert signals["agent"].ignored == PYTHONS
    assert signals["program"].ignored == set()
    if "helper" in signals:
        assert signals["helper"].ignored - CALLERS == {*PYTHONS, signal.SIGINT}


@pytest.mark.parametrize("careless", ["forkserver"], indirect=True)
def test_a_killed_daemon_leaves_nothing_whoever_began_it(careless: PrivateDaemon) -> None:
    """Also what is in a session of its own; and the guardian says how the daemon ended."""
    with Client(careless.run) as client:
        handle = fleet.start(client, "a", fleet.BUSY_WITH_ORPHAN)
        _, begun = fleet.begin(client, handle, spawns=2)
        careless.kill()
        assert careless.wait() == 128 + signal.SIGKILL
    fleet.gone(begun, within_s=5)
    assert "Traceback" not in careless.log


@pytest.mark.parametrize("careless", ["forkserver"], indirect=True)
def test_a_killed_helper_is_followed_by_another_whoever_began_it(careless: PrivateDaemon) -> None:
    """That it ended is heard by SIGCHLD."""
    with Client(careless.run) as client:
        fleet.start(client, "a")
        helper = helper_of(careless)
        os.kill(helper, signal.SIGKILL)

        until(lambda: helper_of(careless) != helper, "there is another helper")
        fleet.start(client, "b")


def test_a_private_daemon_of_a_test_does_not_have_its_signals(how: str) -> None:
    """A test runner may ignore or block what it likes."""
    numbers = [signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGRTMAX]
    if how == "blocked":
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    else:
        for number in numbers[1:]:
            signal.signal(number, signal.SIG_IGN)
    try:
        with testing.PrivateDaemon() as private:
            guardian = kernel.stat(private.pid)
            assert guardian is not None
            with Client(private.run_dir) as client:
                agent = fleet.start(client, "a")
                signals = [signals_of(pid) for pid in (guardian.parent, private.pid, agent.pid)]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
    assert [of.blocked for of in signals] == [set()] * 3
    assert [of.ignored & set(numbers) for of in signals] == [set()] * 3
