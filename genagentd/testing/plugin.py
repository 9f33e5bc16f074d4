"""The fixtures that pytest offers once genagentd is installed. They need nothing configured.

`genagent_daemon` is one real daemon for the whole run, started when the first test asks
for it; `genagent_client`, `genagent_heard` and `genagent_gates` are new for each test. An
agent that a test leaves behind is stopped after it. What agents printed during a test
that fails is shown with its failure: the logs themselves are gone when the run is over.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

# Every run of pytest in the environment loads this module: what the fixtures need is
# imported when one is used.
if TYPE_CHECKING:
    from pathlib import Path

    from genagent_backends.gates import Gates
    from genagentd.client.client import Client
    from genagentd.testing.daemon import PrivateDaemon
    from genagentd.testing.heard import Heard


#: How long each log was when the test began.
_PRINTED: pytest.StashKey[dict[Path, int]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the agents of the test printed."""
    report = yield
    daemon = getattr(item, "funcargs", {}).get("genagent_daemon")
    if daemon is not None:
        from genagentd.testing.printed import lengths, printed_since

        if call.when == "setup" and _PRINTED not in item.stash:
            item.stash[_PRINTED] = lengths(daemon.places.logs)
        if report.failed:
            before = item.stash[_PRINTED]
            report.sections += printed_since(daemon.places.logs, before)
    return report


@pytest.fixture(scope="session")
def genagent_daemon() -> Iterator[PrivateDaemon]:
    """A running daemon of this test run alone."""
    from genagentd.testing.daemon import PrivateDaemon

    with PrivateDaemon() as daemon:
        yield daemon


@pytest.fixture
def genagent_client(
    genagent_daemon: PrivateDaemon, request: pytest.FixtureRequest
) -> Iterator[Client]:
    """A connected client; every agent it left is stopped."""
    from genagent_protocol.errors import Refused
    from genagentd.client.client import Client
    from genagentd.testing.printed import lengths

    # Before any other fixture of the test starts an agent with it.
    request.node.stash[_PRINTED] = lengths(genagent_daemon.places.logs)
    with Client(genagent_daemon.run_dir) as client:
        yield client
        for row in client.list():
            try:
                client.stop(row.name)
            except Refused:
                continue  # it was ending by itself


@pytest.fixture
def genagent_heard(genagent_client: Client) -> Heard:
    """Everything that arrives in the own mailbox of `genagent_client`."""
    from genagentd.testing.heard import Heard

    return Heard(genagent_client)


@pytest.fixture
def genagent_gates() -> Iterator[Gates]:
    """Gates for scripted turns that wait: `holds(tag, ...)`, `wait_blocked`, `release`."""
    from genagent_backends.gates import Gates

    with Gates() as gates:
        yield gates
