"""What a launch leaves behind, lost or not, without a daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from genagentd import kernel
from genagentd.daemon import starter as starters
from genagentd.daemon.birth import Descriptor, Newborn
from genagentd.daemon.starter import LaunchLost, Starter
from support.tracers import tracing


@pytest.fixture
def starter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Starter]:
    """Return one that is closed with the test."""
    # Its processes begin with what is called the main module, and it takes away what that is.
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    made = Starter("forkserver", {}, str(tmp_path))
    yield made
    made.close()


@pytest.fixture
def newborn(tmp_path: Path) -> Iterator[Newborn]:
    """Return who is to be born, whose pid nobody hears."""
    heard, said = os.pipe()
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    yield Newborn(os.getpid(), "/", {}, Descriptor(said), Descriptor(log))
    for fd in (heard, said, log):
        os.close(fd)


def _helpers(starter: Starter) -> set[int]:
    return {pid for pid in kernel.children(os.getpid()) if starter.owns(pid)}


@pytest.mark.process
@pytest.mark.parametrize("lost", ["it takes too long", "it died"])
def test_a_helper_that_is_lost_over_a_launch_has_a_successor_at_once(
    starter: Starter, newborn: Newborn, lost: str
) -> None:
    """The newborn may have been announced: nobody tries again then, and the next one waits."""

    async def launch() -> None:
        if lost == "it died":
            asyncio.get_running_loop().call_later(0.01, os.kill, min(first), signal.SIGKILL)
        await starter.launch(newborn, patience_s=0.01 if lost == "it takes too long" else 60)

    starter.warm()
    first = _helpers(starter)
    assert len(first) == 1

    with pytest.raises(LaunchLost):
        asyncio.run(launch())

    (successor,) = _helpers(starter)
    assert {successor} != first
    assert kernel.is_alive(successor, kernel.started_ticks(successor))


@pytest.mark.process
def test_what_multiprocess_keeps_for_shared_memory_is_ended_though_it_is_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The daemon waited for its tracer to let go of it, and heard nobody meanwhile."""
    theirs, ours = os.pipe()
    kept = subprocess.Popen([sys.executable, "-c", "input()"], stdin=theirs)
    os.close(theirs)
    tracker = SimpleNamespace(_lock=threading.Lock(), _pid=kept.pid, _fd=ours)
    monkeypatch.setattr(starters, "resource_tracker", SimpleNamespace(_resource_tracker=tracker))

    with tracing(kept.pid):
        starters._end_tracker()
        assert (tracker._pid, tracker._fd) == (None, None)
        found = kernel.stat(kept.pid)
        assert found is not None
        assert found.ended
    assert kept.wait() == -signal.SIGKILL
