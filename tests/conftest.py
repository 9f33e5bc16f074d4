"""What every test may rely on: process tests leave no process, thread, descriptor or socket."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from genagentd import kernel, sockets
from support.daemons import PrivateDaemon, living_below, zombies_below
from support.figures import Figures, Report, length_of, trial
from support.waiting import until

_REPORT = pytest.StashKey[Report]()


def pytest_configure(config: pytest.Config) -> None:
    """Let no property fail for being slow: what a busy machine takes is not what is asked."""
    from hypothesis import settings  # pytest wants to be the first to import it

    config.stash[_REPORT] = report = Report()
    config.pluginmanager.register(report)
    settings.register_profile("any machine", settings.default, deadline=None)
    settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-page", metavar="FILE", help="write the figures of the run there")


@pytest.fixture(scope="session", autouse=True)
def _adopt() -> None:
    """Orphans of a test's daemon become our children, where they can be counted and reaped."""
    kernel.adopt_orphans()


@pytest.fixture(scope="session", autouse=True)
def _hear_ctrl_c() -> None:
    """A shell that runs us in the background has SIGINT ignored, by the programs we start too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _descriptors() -> dict[int, str]:
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
    return found


def _hold_the_wire() -> None:
    sockets.Socket(sockets.Side.ONE, sockets.News.ENDED).close(0)


@pytest.fixture(scope="session")
def wire() -> None:
    """Have this process's ZeroMQ context; it stays open, and its descriptors are no test's leak."""
    _hold_the_wire()


@pytest.fixture
def nothing_left(wire: None) -> Iterator[None]:
    """Fail the test if a process, a thread, a descriptor or a zombie is left behind."""
    # A test before may have lived the life of an agent to its end, which ends the context.
    _hold_the_wire()
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
    """A running private daemon; the test fails if anything of it is left.

    Turns that a test left hanging keep it from ending for a short while only.
    """
    private = PrivateDaemon(environment={"GENAGENT_GRACE_MS": "2000"})
    try:
        private.start()
        yield private
    finally:
        if private.guardian is not None:
            private.stop()
        sockets = [path for path in Path(private.run).rglob("*") if path.is_socket()]
        log = private.log
        private.cleanup()
    assert sockets == [] or private.killed
    assert "internal.error" not in log
    assert "Traceback" not in log


# Fault tests note figures; the run prints them in one table and can write them as a page.


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Where a test notes what it measured."""
    mine = Figures(length_of(request.node))
    yield mine
    request.node.user_properties.extend(mine.as_properties())


def pytest_itemcollected(item: pytest.Item) -> None:
    planned = trial(item, "not tried")
    if planned is not None:
        item.config.stash[_REPORT].trials[item.nodeid] = planned


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        tried = trial(item, report.outcome)
        if tried is not None:
            item.config.stash[_REPORT].trials[item.nodeid] = tried
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    report = config.stash[_REPORT]
    if report.figures:
        terminalreporter.section("figures")
        for line in report.lines():
            terminalreporter.line(line)
    path = config.getoption("--faults-page")
    if path:
        Path(path).write_text(report.page(), encoding="utf-8")
