"""Fault tests note figures; the run prints them in one table and can write them as a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from genagentd import channels
from genagentd.client.client import Client
from support.daemons import PrivateDaemon
from support.figures import Figure, Figures, page

_NOTED = pytest.StashKey[list[Figure]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-page", metavar="FILE", help="write the figures of the run there")


@pytest.fixture(scope="session", autouse=True)
def _context() -> None:
    """This process's ZeroMQ context stays open; its descriptors are no test's leak."""
    channels._context().socket(zmq.DEALER).close(0)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Where a test notes what it measured."""
    mine = Figures(long=request.node.get_closest_marker("slow") is not None)
    yield mine
    request.config.stash.setdefault(_NOTED, []).extend(mine.noted)


@pytest.fixture
def client(daemon: PrivateDaemon) -> Iterator[Client]:
    """A connected client of the private daemon."""
    with Client(daemon.run) as connected:
        yield connected


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
