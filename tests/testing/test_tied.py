"""A private daemon does not outlive its owner: interrupted, killed, or with its thread gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genagentd import Client, kernel
from genagentd.testing import PrivateDaemon, until

pytestmark = pytest.mark.process

_OWNER = """
import subprocess, sys, threading
from genagentd import Client
from genagentd.testing import PrivateDaemon

class Told(PrivateDaemon):
    def _answers(self):
        answers = super()._answers()
        if "starting" in sys.argv and answers:
            print(self.pid, self.run_dir, flush=True)
            return False
        return answers

    def stop(self):
        if "stopping" in sys.argv and self._tied is not None:
            with Client(self.run_dir) as client:
                # The daemon waits for a turn that hangs, and this for the daemon.
                client.start_agent(None, name="a", backend="scripted",
                    options={"script": [[{"hang": "idle"}]]})
                client.tell("a", "x")
            told = f"{self.pid} {self.run_dir}"
            wait = subprocess.Popen.wait

            def waiting(process, within_s):
                subprocess.Popen.wait = wait
                print(told, flush=True)
                return wait(process, within_s)

            subprocess.Popen.wait = waiting
        super().stop()

with Told() as daemon:
    if "running" in sys.argv:
        print(daemon.pid, daemon.run_dir, flush=True)
        threading.Event().wait()
"""


@contextmanager
def _owner(moment: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """Run a program that has a private daemon, as far as *moment*."""
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, moment], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, run_dir = owner.stdout.readline().split()
        yield owner, int(pid), Path(run_dir)


def _is_gone(pid: int) -> bool:
    found = kernel.stat(pid)
    return found is None or found.ended


@pytest.mark.parametrize("moment", ["starting", "running", "stopping"])
def test_an_interrupted_owner_leaves_neither_daemon_nor_directory(
    moment: str, nothing_left: None
) -> None:
    """Ctrl-C comes in whatever it waits for."""
    with _owner(moment) as (owner, pid, run_dir):
        owner.send_signal(signal.SIGINT)
        owner.wait(60)

        until(lambda: _is_gone(pid), "the daemon is gone", within_ms=60_000)
        assert not run_dir.exists()


def test_a_killed_owner_leaves_no_daemon(nothing_left: None) -> None:
    """It cannot clean up any more; the kernel tells the daemon."""
    with _owner("running") as (owner, pid, run_dir):
        owner.kill()
        owner.wait(60)

        until(lambda: _is_gone(pid), "the daemon is gone", within_ms=60_000)
        until(lambda: not _running_in(run_dir), "and everything of it", within_ms=60_000)
    for path in sorted(run_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run_dir.rmdir()


def _running_in(run_dir: Path) -> list[int]:
    wanted = f"GENAGENT_RUN_DIR={run_dir}".encode()
    found = []
    for pid in kernel.descendants(os.getpid()):
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def test_it_outlives_the_thread_that_started_it(
    genagent_client: Client, nothing_left: None
) -> None:
    """The kernel asks about threads, and a fixture may run in one that is gone soon."""
    daemon = PrivateDaemon()
    starter = threading.Thread(target=daemon.start)
    starter.start()
    starter.join()

    with Client(daemon.run_dir) as client:
        assert client.list() == ()
    daemon.close()


def test_one_that_cannot_start_leaves_no_directory(nothing_left: None) -> None:
    """`with` calls no `__exit__` of what was not entered."""
    daemon = PrivateDaemon({"GENAGENT_GRACE_MS": "soon"})

    with pytest.raises(AssertionError, match="GENAGENT_GRACE_MS"), daemon:
        pass

    assert not daemon.run_dir.exists()


def test_one_that_the_system_does_not_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    """Neither its directory nor the thread that was to keep it."""
    daemon = PrivateDaemon()
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    with pytest.raises(FileNotFoundError), daemon:
        pass

    assert not daemon.run_dir.exists()
