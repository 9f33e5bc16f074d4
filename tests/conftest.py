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
from support.figures import Figure, Figures, page
from support.waiting import until

_NOTED = pytest.StashKey[list[Figure]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-page", metavar="FILE", help="write the figures of the run there")


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
    # A daemon that serves the whole run is there before, with processes of its own.
    children = {*kernel.children(os.getpid()), *living_below(os.getpid())}
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


# Fault tests note figures; the run prints them in one table and can write them as a page.


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Where a test notes what it measured."""
    mine = Figures(long=request.node.get_closest_marker("slow") is not None)
    yield mine
    request.config.stash.setdefault(_NOTED, []).extend(mine.noted)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    noted = config.stash.get(_NOTED, [])
    if not noted:
        return
    terminalreporter.section("figures")
    for figure in sorted(noted, key=lambda f: (f.case, f.what)):
        verdict = "met" if figure.met else "MISSED"
        terminalreporter.line(
            f"{figure.case} {figure.what}: {figure.found} (target {figure.target}) {verdict}"
        )
    path = config.getoption("--faults-page")
    if path:
        Path(path).write_text(page([figure for figure in noted if figure.long]), encoding="utf-8")
