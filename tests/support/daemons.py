"""A private daemon for a test: real guardian, real daemon, and nothing left afterwards.

The test process adopts orphans, so that whatever a daemon leaves behind becomes its
child and can be seen, counted by state, and reaped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from genagent_protocol.errors import NotReachable
from genagentd import kernel
from genagentd.paths import Places
from genagentd.socket_path import probe
from support.waiting import until

REPOSITORY = Path(__file__).parents[2]


def living_below(pid: int) -> list[int]:
    """Return the descendants of *pid* that run; zombies do not."""
    found = (kernel.stat(child) for child in kernel.descendants(pid))
    return [stat.pid for stat in found if stat is not None and not stat.ended]


def zombies_below(pid: int) -> list[int]:
    """Return the descendants of *pid* that are dead and not reaped."""
    found = (kernel.stat(child) for child in kernel.descendants(pid))
    return [stat.pid for stat in found if stat is not None and stat.ended]


@dataclass
class PrivateDaemon:
    """One daemon in a runtime directory of its own; `start` may be called again after an end."""

    environment: Mapping[str, str] = field(default_factory=dict)
    guarded: bool = True
    #: What its standard input is.
    stdin: int = subprocess.DEVNULL
    run: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ga")))
    guardian: subprocess.Popen[bytes] | None = None
    #: What runs it.
    command: list[str] = field(default_factory=lambda: [sys.executable, "-m", "genagentd", "run"])
    #: Whether its latest life was ended by SIGKILL, which leaves its sockets behind.
    killed: bool = False

    @property
    def places(self) -> Places:
        """Its files."""
        return Places(self.run, self.run)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its commands and clients."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GENAGENT_", "XDG_"))}
        return kept | {"GENAGENT_RUN_DIR": str(self.run), **self.environment}

    @property
    def log(self) -> str:
        """What it wrote."""
        return (self.run / "stderr").read_text()

    def start(self, *, wait: bool = True) -> PrivateDaemon:
        """Run it, and wait until it answers."""
        self.killed = False
        with (self.run / "stderr").open("ab") as log:
            self.guardian = subprocess.Popen(
                self.command,
                env=self.environ,
                stdin=self.stdin,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        if wait:
            until(self._answers, "the daemon answers")
        return self

    def _answers(self) -> bool:
        assert self.guardian is not None
        assert self.guardian.poll() is None, f"the daemon ended: {self.log}"
        try:
            probe(self.places.socket)
        except NotReachable:
            return False
        return '"event": "ready"' in self.log

    @property
    def pid(self) -> int:
        """The daemon's own process."""
        assert self.guardian is not None
        return until(lambda: int(self.places.lock.read_text().split()[0]), "its pid is written")

    def signal(self, number: signal.Signals) -> None:
        """Signal it the way a service manager or a terminal would: through its first process."""
        assert self.guardian is not None
        self.guardian.send_signal(number)

    def kill(self) -> None:
        """SIGKILL the daemon itself; its guardian cleans up."""
        self.killed = True
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return the exit code of its first process."""
        assert self.guardian is not None
        return self.guardian.wait(60)

    def stop(self) -> int:
        """End it, by force if it must be, and return its exit code."""
        assert self.guardian is not None
        if self.guardian.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                return self.guardian.wait(30)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGTERM)
                return self.guardian.wait(30)
        return self.guardian.returncode

    def cleanup(self) -> None:
        """Remove its directory."""
        shutil.rmtree(self.run)


def helper_of(daemon: PrivateDaemon) -> int:
    """Return the helper's pid, once it is ready."""
    return until(lambda: next(iter(helpers_of(daemon)), None), "there is a helper")


def helpers_of(daemon: PrivateDaemon) -> set[int]:
    """Return the pid of the helper, if there is one and it is ready.

    Agents are forks of it and have its command line, but they stop to ignore SIGINT before
    they lead a session, as it does.
    """
    found = set()
    for pid in kernel.children(daemon.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            leads = os.getsid(pid) == pid
            if b"multiprocess.spawn" in command and leads and _ignores(pid, signal.SIGINT):
                found.add(pid)
    return found


def waiting_in(daemon: PrivateDaemon) -> set[int]:
    """Return the newborns that are nobody yet: they still speak where the helper does."""
    (helper,) = helpers_of(daemon) or {0}
    return {
        pid
        for pid in kernel.children(daemon.pid)
        if pid != helper and helper and _log_of(pid) == _log_of(helper)
    }


def only_who_waits_can_be_found(daemon: PrivateDaemon) -> bool:
    """Whether the next newborn waits, and nobody else is bound in the directory of sockets."""
    found = {int(path.name.split("-")[0]) for path in daemon.places.agents.iterdir()}
    return bool(found) and found == waiting_in(daemon)


def _log_of(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/fd/2")
    except FileNotFoundError:
        return None


def _ignores(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored, 16) >> (number - 1) & 1)
