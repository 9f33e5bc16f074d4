"""What every test may rely on: process tests leave no process, thread, descriptor or socket."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from genagentd import kernel
from support.daemons import PrivateDaemon, living_below, zombies_below
from support.waiting import until


@pytest.fixture(scope="session", autouse=True)
def _adopt() -> None:
    """Orphans of a test's daemon become our children, where they can be counted and reaped."""
    kernel.adopt_orphans()


def _descriptors() -> dict[int, str]:
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
    return found


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail the test if a process, a thread, a descriptor or a zombie is left behind."""
    gc.collect()
    children = set(kernel.children(os.getpid()))
    threads = set(threading.enumerate())
    descriptors = _descriptors()
    yield
    gc.collect()
    until(
        lambda: not set(living_below(os.getpid())) - children,
        f"no process is left: {living_below(os.getpid())}",
        within_s=10,
    )
    for pid in set(zombies_below(os.getpid())) - children:
        os.waitpid(pid, 0)
    until(
        lambda: set(threading.enumerate()) <= threads,
        f"no thread is left: {threading.enumerate()}",
        within_s=10,
    )

    def left() -> dict[int, str]:
        return {fd: what for fd, what in _descriptors().items() if fd not in descriptors}

    # ZeroMQ closes descriptors in a thread of its own, a moment after the socket.
    until(lambda: not left(), f"no descriptor is left: {left()}", within_s=10)


@pytest.fixture
def daemon(nothing_left: None) -> Iterator[PrivateDaemon]:
    """A running private daemon; the test fails if anything of it is left."""
    private = PrivateDaemon()
    try:
        private.start()
        yield private
    finally:
        if private.guardian is not None:
            private.stop()
        sockets = [path for path in Path(private.run).rglob("*") if path.is_socket()]
        private.cleanup()
    assert sockets == [] or private.killed
