"""The daemon as a service: what it tells systemd, what it hears from an operator, where it logs."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.errors import NotReachable
from genagentd import kernel
from genagentd.client.client import Client
from genagentd.socket_path import probe
from support import fleet
from support.commands import ran
from support.daemons import PrivateDaemon, zombies_below
from support.figures import Figures
from support.waiting import until

pytestmark = pytest.mark.process

PERIOD_S = 0.4


@dataclass
class ServiceManager:
    """The end of the notification socket that systemd would have."""

    path: str
    told: list[tuple[float, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(self.path)

    def hear(self, within_s: float) -> str | None:
        """Return the next notification; note when it came, and from which process."""
        if not select.select([self.socket], [], [], within_s)[0]:
            return None
        data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(12))
        pid, _, _ = struct.unpack("3i", ancillary[0][2])
        self.told.append((time.monotonic(), pid, data.decode()))
        return data.decode()

    def hear_until(self, wanted: str) -> None:
        """Hear until it is told *wanted*."""
        deadline = time.monotonic() + 30
        while self.told[-1:] == [] or wanted not in self.told[-1][2]:
            assert self.hear(deadline - time.monotonic()) is not None, f"{wanted} was not told"

    def times(self, wanted: str) -> list[float]:
        """Return when *wanted* was told."""
        return [at for at, _, told in self.told if told == wanted]


@pytest.fixture
def manager(nothing_left: None, tmp_path: Path) -> Iterator[ServiceManager]:
    made = ServiceManager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


@pytest.fixture
def service(manager: ServiceManager) -> Iterator[PrivateDaemon]:
    """A daemon as a unit of Type=notify runs it: its first process is the daemon itself."""
    private = PrivateDaemon(
        environment={
            "NOTIFY_SOCKET": manager.path,
            "WATCHDOG_USEC": str(int(PERIOD_S * 1_000_000)),
        }
    )
    try:
        yield private
    finally:
        private.stop()
        private.cleanup()


def lines(daemon: PrivateDaemon, event: str) -> list[dict[str, Any]]:
    """Return the lines of its log about *event*."""
    found = [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def test_F034_E036_readiness_is_told_once_and_the_watchdog_stops_with_the_loop(
    service: PrivateDaemon, manager: ServiceManager, figures: Figures
) -> None:
    """F034, E036: READY after the bind and from the main process; no ping from a stuck loop."""
    service.start(wait=False)
    manager.hear_until("READY=1")
    probe(service.places.socket)
    for _ in range(8):
        manager.hear_until("WATCHDOG=1")
        manager.hear(10)
    pings = manager.times("WATCHDOG=1")
    widest = max(after - before for before, after in pairwise(pings))

    with fleet.stopped(service.pid):
        while manager.hear(0):
            pass
        silent = manager.hear(2 * PERIOD_S) is None
    manager.hear_until("WATCHDOG=1")
    service.signal(signal.SIGTERM)
    manager.hear_until("STOPPING=1")
    assert service.wait() == 0

    assert len(manager.times("READY=1")) == 1
    assert {pid for _, pid, _ in manager.told} == {service.guardian and service.guardian.pid}
    assert silent
    assert widest < PERIOD_S
    figures.note(
        "F034",
        "widest gap between pings of a watchdog of 400 ms",
        f"{widest * 1000:.0f} ms",
        "about 200 ms, below 400 ms",
        met=widest < PERIOD_S,
    )


def test_E036_nobody_below_inherits_the_line_to_the_service_manager(
    service: PrivateDaemon, manager: ServiceManager
) -> None:
    """E036: an agent that told READY would be believed by a careless unit."""
    service.start()
    with Client(service.run) as client:
        fleet.start(client, "a", agent="ShowsEnvironment")
        shown = client.status("a").agent_state
        assert isinstance(shown, dict)
        below = kernel.children(service.pid)
        assert len(below) >= 2
        for pid in below:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            for name in ("NOTIFY_SOCKET", "WATCHDOG_"):
                assert name.encode() not in environ
    assert not [n for n in shown if n.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_", "GENAGENT"))]


def test_status_tells_how_many_there_are(service: PrivateDaemon, manager: ServiceManager) -> None:
    """`systemctl status` shows it."""
    service.start()
    manager.hear_until("STATUS=0 agents, 0 clients")
    with Client(service.run) as client:
        fleet.start(client, "a")
        manager.hear_until("STATUS=1 agent, 1 client")
        os.kill(service.pid, signal.SIGTERM)
        manager.hear_until("STATUS=stopping: 1 agent, 1 client")


def test_a_service_manager_that_does_not_read_holds_up_nothing(
    service: PrivateDaemon, manager: ServiceManager
) -> None:
    """Its queue is short, and the daemon has more to do than to wait for it."""
    service.start()
    with Client(service.run) as client:
        for number in range(30):
            fleet.start(client, f"a{number}")
        assert client.ask("a0", "still there").text == "done"


def test_hup_reads_the_configuration_again(
    service: PrivateDaemon, manager: ServiceManager, tmp_path: Path
) -> None:
    """What it says of environments holds for later starts; a bad one changes nothing."""
    config = tmp_path / "config.toml"
    config.write_text('pass_env = ["KEPT"]\n')
    service.environment = {
        **service.environment,
        "GENAGENT_CONFIG": str(config),
        "KEPT": "1",
        "ADDED": "2",
    }
    service.start()
    with Client(service.run) as client:
        fleet.start(client, "a", agent="ShowsEnvironment")
        config.write_text('pass_env = ["KEPT", "ADDED"]\n')
        service.signal(signal.SIGHUP)
        manager.hear_until("RELOADING=1")
        manager.hear_until("READY=1")
        fleet.start(client, "b", agent="ShowsEnvironment")
        config.write_text("pass_evn = 3\n")
        service.signal(signal.SIGHUP)
        until(lambda: lines(service, "config.rejected"), "the bad one is rejected")
        fleet.start(client, "c", agent="ShowsEnvironment")
        seen = {name: _environment(client, name) for name in "abc"}
    assert "pass_env" in lines(service, "config.rejected")[0]["message"]
    assert [("KEPT" in seen[name], "ADDED" in seen[name]) for name in "abc"] == [
        (True, False),
        (True, True),
        (True, True),
    ]


def _environment(client: Client, name: str) -> dict[str, str]:
    shown = client.status(name).agent_state
    assert isinstance(shown, dict)
    return {key: str(value) for key, value in shown.items()}


def test_whatever_goes_wrong_with_a_reload_the_service_manager_hears_that_it_is_over(
    service: PrivateDaemon, manager: ServiceManager, tmp_path: Path
) -> None:
    """It waits for READY, and would call the service failed."""
    config = tmp_path / "config.toml"
    config.write_text("")
    service.environment = {**service.environment, "GENAGENT_CONFIG": str(config)}
    service.start()
    manager.hear_until("READY=1")
    config.write_text("x = " + "[" * 3_000 + "]" * 3_000)

    service.signal(signal.SIGHUP)
    manager.hear_until("RELOADING=1")
    manager.hear_until("READY=1")

    assert "nested" in lines(service, "config.rejected")[0]["message"]


def test_a_reload_while_it_ends_is_none(service: PrivateDaemon, manager: ServiceManager) -> None:
    """READY after STOPPING would be that of a service which goes on."""
    service.start()
    with Client(service.run) as client:
        fleet.begin(client, fleet.start(client, "a", fleet.BUSY_WITH_ORPHAN), spawns=2)
        service.signal(signal.SIGTERM)
        manager.hear_until("STOPPING=1")

        service.signal(signal.SIGHUP)
        until(lambda: lines(service, "reload.ignored"), "it says so")

        service.stop()
    while manager.hear(0):
        pass
    assert len(manager.times("READY=1")) == 1
    assert not any("RELOADING" in told for _, _, told in manager.told)


@pytest.mark.parametrize("how", [["stop"], ["stop", "--force"], []])
def test_an_end_is_told_once_whoever_asked_for_it(
    service: PrivateDaemon, manager: ServiceManager, how: list[str]
) -> None:
    """A service that ends without it looks like one that crashed."""
    service.start()
    with Client(service.run) as client:
        fleet.start(client, "a")

    # Its queue is short: what is told while nobody reads may be lost.
    with ThreadPoolExecutor(1) as pool:
        if how:
            pool.submit(ran, service, "genagentd", *how)
        else:
            service.signal(signal.SIGTERM)
        manager.hear_until("STOPPING=1")
    assert service.wait() == 0
    while manager.hear(0):
        pass

    assert len(manager.times("STOPPING=1")) == 1


def test_usr1_writes_what_is_known_and_no_payload(daemon: PrivateDaemon, client: Client) -> None:
    """An operator's look inside, also when no client gets an answer."""
    handle = fleet.start(client, "a", fleet.HANGS)
    client.at(handle).submit_with_completion("a secret prompt")

    daemon.signal(signal.SIGUSR1)

    (found,) = until(lambda: lines(daemon, "dump.agent"), "it is written")
    assert (found["agent"], found["pid"], found["state"]) == ("a", handle.pid, "running")
    assert lines(daemon, "dump")[0]["agents"] == 1
    assert "secret" not in daemon.log


def test_the_daemons_own_log_is_moved_aside_before_it_fills_the_disk(
    nothing_left: None,
) -> None:
    """Nobody has to set up a rotation; and who does is heard with SIGHUP."""
    place = PrivateDaemon()
    log = place.places.daemon_log
    log.parent.mkdir(mode=0o700)
    with log.open("wb") as full:
        full.write(b"x" * (10 * 1024 * 1024 - 100) + b"\n")
    started = subprocess.run(
        [sys.executable, "-m", "genagentd", "start"], env=place.environ, capture_output=True
    )
    try:
        assert started.returncode == 0
        until(lambda: log.with_name("genagentd.log.1").exists(), "it was moved aside")
        assert log.stat().st_size < 10_000
        log.rename(log.with_name("moved"))
        os.kill(int(place.places.lock.read_text().split()[0]), signal.SIGHUP)
        until(lambda: log.exists() and "config.reloaded" in log.read_text(), "a new one is written")
    finally:
        subprocess.run(
            [sys.executable, "-m", "genagentd", "stop", "--force"],
            env=place.environ,
            capture_output=True,
            check=True,
        )
        place.cleanup()


def test_a_reload_names_what_waits_for_the_next_start(tmp_path: Path, nothing_left: None) -> None:
    """Whoever edits the file finds out what counts now; a log that is a file has no colours."""
    config = tmp_path / "config.toml"
    config.write_text("")
    place = PrivateDaemon(environment={"GENAGENT_CONFIG": str(config)})
    try:
        place.start()
        config.write_text('start_method = "spawn"\nlog_format = "console"\n')
        place.signal(signal.SIGHUP)
        until(lambda: "config.reloaded" in place.log, "it says so")
        [said] = [line for line in place.log.splitlines() if "config.reloaded" in line]
        assert "at_next_start=['start_method']" in said
        assert "log_format=console" in said
        assert "\x1b" not in place.log
    finally:
        place.stop()
        place.cleanup()


def _listens(path: str) -> bool:
    try:
        probe(path)
    except NotReachable:
        return False
    return True


def _held(read: int) -> int:
    """Return how many bytes wait in the pipe."""
    return int.from_bytes(fcntl.ioctl(read, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("stderr", ["full", "closed_pipe", "stuck_pipe", "pipe_with_a_page"])
def test_a_log_that_cannot_be_written_stops_nobody(nothing_left: None, stderr: str) -> None:
    """A full disk, and a reader that went away, or does not read a line that is longer than room.

    A pipe that is nearly full takes a page, and the line about the reload has more.
    """
    names = ",".join(f"NAME_{number}" for number in range(1_000))
    place = PrivateDaemon(environment={"GENAGENT_PASS_ENV": names})
    read, write = os.pipe()
    if stderr in ("stuck_pipe", "pipe_with_a_page"):
        os.set_blocking(write, False)
        while select.select([], [write], [], 0)[1]:
            os.write(write, b"x" * 4096)
        os.set_blocking(write, True)
    if stderr == "closed_pipe":
        os.close(read)
    target = os.open("/dev/full", os.O_WRONLY) if stderr == "full" else os.dup(write)
    running = subprocess.Popen(
        [sys.executable, "-m", "genagentd", "run"],
        env=place.environ,
        stdout=target,
        stderr=target,
        stdin=subprocess.DEVNULL,
    )
    os.close(target)
    os.close(write)
    try:
        until(lambda: _listens(place.places.socket), "it is there")
        with Client(place.run) as client:
            if stderr == "pipe_with_a_page":
                left = len(os.read(read, 4096)) and _held(read)
                running.send_signal(signal.SIGHUP)
                until(lambda: _held(read) > left, "the page is taken")
            for number in range(3):
                fleet.start(client, f"a{number}")
            assert client.ask("a0", "hello").text == "done"
            os.kill(client.list()[0].handle.pid, signal.SIGKILL)  # type: ignore[union-attr]  # it runs
            until(lambda: len(client.list()) == 2, "the end was noticed")
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        if stderr != "closed_pipe":
            os.close(read)
        place.cleanup()


@pytest.fixture(params=["guarded", "bare"])
def pid_1(
    request: pytest.FixtureRequest, nothing_left: None, tmp_path: Path
) -> Iterator[PrivateDaemon]:
    """A daemon in a pid namespace of its own: the guardian is pid 1 there, or it is itself."""
    possible = subprocess.run(["unshare", "-pf", "--mount-proc", "true"], capture_output=True)
    if possible.returncode:
        pytest.skip("this user may not make a pid namespace (unshare -pf --mount-proc)")
    bare = {"NOTIFY_SOCKET": str(tmp_path / "nobody")} if request.param == "bare" else {}
    private = PrivateDaemon(environment=bare)
    private.command = ["unshare", "-pf", "--mount-proc", "--kill-child", *private.command]
    try:
        private.start()
        yield private
    finally:
        assert private.guardian is not None
        (first,) = kernel.children(private.guardian.pid)
        os.kill(first, signal.SIGTERM)
        assert private.guardian.wait(30) == 0
        private.cleanup()


def test_pid_1_of_a_container_reaps_whatever_becomes_its_child(pid_1: PrivateDaemon) -> None:
    """There every orphan of the namespace ends up with it, and nobody else reaps them."""
    assert pid_1.guardian is not None
    outer = pid_1.guardian.pid
    with Client(pid_1.run) as client:
        handles = [fleet.start(client, f"a{n}", fleet.BUSY_WITH_ORPHAN) for n in range(5)]
        for handle in handles:
            client.at(handle).monitor()
            ref = client.at(handle).submit_with_completion("go", stream_to=client.address).ref
            fleet.event(client, ref, "spawned")
            fleet.event(client, ref, "spawned")
        theirs = {handle.pid for handle in handles}
        agents = [pid for pid, _ in fleet.tree(outer) if _pid_inside(pid) in theirs]
        tools = [tool for pid in agents for tool in fleet.tree(pid)]
        assert len(tools) == 5 * 3
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
        assert {fleet.down(client, handle).reason.text for handle in handles} == {"signal:9"}
        fleet.gone(tools, within_s=2)
        until(lambda: not zombies_below(outer), "there is no zombie", within_s=2)
        fleet.start(client, "again")
        assert client.ask("again", "hello").text == "done"


def test_what_a_stranger_leaves_to_pid_1_lives_or_is_named(pid_1: PrivateDaemon) -> None:
    """The guardian is nobody's judge; a daemon that is pid 1 itself cannot tell whose it was."""
    assert pid_1.guardian is not None
    (first,) = kernel.children(pid_1.guardian.pid)
    leaves = "setsid sleep 1000 > /dev/null 2>&1 &"
    enter = ["nsenter", "-t", str(first), "-p", "-m", "sh", "-c", leaves]
    subprocess.run(enter, check=True, timeout=60)
    with Client(pid_1.run) as client:
        fleet.start(client, "a")
        client.stop("a")
    if pid_1.environment:
        until(lambda: '"event": "orphan.killed"' in pid_1.log, "it is named")
        until(lambda: "sleep" not in _names_below(first), "it is gone")
    else:
        until(lambda: "sleep" in _names_below(first), "it lives")
        assert "orphan.killed" not in pid_1.log


def _names_below(pid: int) -> set[str]:
    return {kernel.command_of(below) for below in kernel.descendants(pid)}


def _pid_inside(pid: int) -> int:
    """Return the number of that process in the innermost pid namespace it is in."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid"))
