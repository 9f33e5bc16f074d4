"""The daemon as a service: alone by lock, in a private directory, ended by signals.

The order matters: directories are checked before anything is touched, the lock is
taken after the last plain fork (a forked child would hold it too), stale sockets go
only once the lock is ours, and readiness is told after the bind.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from genagent_protocol.errors import GenAgentError
from genagent_protocol.refs import BootId
from genagentd import channels, kernel
from genagentd.config import Config
from genagentd.daemon.control import Daemon
from genagentd.daemon.report import configure, report
from genagentd.paths import Places, make_private
from genagentd.socket_path import check_path

#: How long a reader waits for a lock holder to write its pid.
_PID_WAIT_S = 2.0


class AlreadyRunning(GenAgentError):
    """Another daemon holds the lock of this runtime directory; `pid` is its process."""

    def __init__(self, places: Places, pid: int | None) -> None:
        self.pid = pid
        who = "pid unknown" if pid is None else f"pid {pid}"
        super().__init__(
            f"a daemon is already running in {places.run} ({who}); stop it with: genagentd stop"
        )


def serve(places: Places, config: Config) -> int:
    """Run one daemon until it is told to end and its last agent is gone; return the exit code.

    The caller has forked its guardian already, if there is to be one.

    Raises:
        UsageError: a directory cannot be used.
        AlreadyRunning: another daemon is there; nothing was changed.
    """
    make_private(places.run)
    check_path(places.socket)
    make_private(places.state)
    with _locked(places):
        for directory in (places.agents, places.logs):
            make_private(directory)
        _remove_stale(places)
        _raise_descriptor_limit()
        configure(config.log_format)
        kernel.adopt_orphans()
        code = asyncio.run(_run(places, config))
        channels.end_context()
        _remove_stale(places)
    return code


@contextlib.contextmanager
def _locked(places: Places) -> Iterator[None]:
    fd = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(places, lock_holder(places)) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {kernel.started_ticks(os.getpid())}\n".encode(), 0)
        yield
        # The file stays, for removing it would let two daemons lock two files of one name.
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def lock_holder(places: Places) -> int | None:
    """Return the pid of the daemon that holds the lock, None if nobody does."""
    deadline = time.monotonic() + _PID_WAIT_S
    while is_locked(places):
        found = _written_pid(places.lock)
        if found is not None:
            return found
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)
    return None


def is_locked(places: Places) -> bool:
    """Whether a daemon holds the lock of this runtime directory."""
    try:
        fd = os.open(places.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _written_pid(path: Path) -> int | None:
    fields = path.read_text().split()
    return int(fields[0]) if fields else None


def _remove_stale(places: Places) -> None:
    """Remove sockets that nobody can hold any more: the lock is ours."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(places.socket)
    for path in places.agents.iterdir():
        path.unlink()


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # An unlimited or enormous hard limit would make every child walk it.
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted and "GENAGENT_KEEP_NOFILE" not in os.environ:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _run(places: Places, config: Config) -> int:
    daemon = Daemon(BootId(secrets.token_hex(8)), places, config)
    interrupted = False

    def asked(number: signal.Signals) -> None:
        nonlocal interrupted
        interrupted = interrupted or (number == signal.SIGINT and daemon.stopping)
        report("signal", name=number.name, forced=daemon.stopping)
        manager.say("STOPPING=1")
        daemon.shut_down(force=False)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)
    loop.add_signal_handler(signal.SIGCHLD, daemon.shell.sweep)
    manager = ServiceManager(os.environ.get("NOTIFY_SOCKET"))
    daemon.shell.on_change = lambda: manager.status(*daemon.counts)
    daemon.shell.warm()
    report("ready", pid=os.getpid(), run=str(places.run))
    manager.say("READY=1")
    manager.keep_watchdog_fed(os.environ)
    await daemon.shell.finished.wait()
    manager.close()
    await daemon.close()
    report("stopped")
    return 130 if interrupted else 0


class ServiceManager:
    """What systemd is told, if it listens. Silent everywhere else."""

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        self._status = ""
        self._timer: asyncio.TimerHandle | None = None

    def say(self, state: str) -> None:
        """Send one notification; a service manager that went away is no error."""
        if self._socket is not None and self._address is not None:
            # A leading @ names an abstract socket.
            address = self._address.replace("@", "\0", 1) if self._address[0] == "@" else None
            with contextlib.suppress(OSError):
                self._socket.sendto(state.encode(), address or self._address)

    def status(self, agents: int, clients: int) -> None:
        """Say how many agents and clients there are, if that changed."""
        status = f"STATUS={agents} agents, {clients} clients"
        if status != self._status:
            self._status = status
            self.say(status)

    def keep_watchdog_fed(self, environ: os._Environ[str]) -> None:
        """Ping at half the period, from the loop itself: a blocked loop stops pinging."""
        usec = environ.get("WATCHDOG_USEC", "")
        if self._socket is not None and usec.isdigit():
            self._feed(int(usec) / 2_000_000)

    def _feed(self, every_s: float) -> None:
        self.say("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(every_s, self._feed, every_s)

    def close(self) -> None:
        """Stop pinging."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
