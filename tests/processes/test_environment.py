"""What an agent was started with is its own: not in its variables, and not in `/proc` either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from genagentd import Client
from genagentd.daemon.starter import StartMethod
from support.daemons import PrivateDaemon

pytestmark = pytest.mark.process


@pytest.fixture(params=["forkserver", "spawn"])
def secretive(request: pytest.FixtureRequest, nothing_left: None) -> Iterator[PrivateDaemon]:
    """A daemon that holds a secret in a variable, by each way of starting agents."""
    method: StartMethod = request.param
    daemon = PrivateDaemon(
        environment={"SOME_PROVIDER_KEY": "canary-3f9d", "GENAGENT_START_METHOD": method}
    )
    try:
        yield daemon.start()
    finally:
        daemon.stop()
        daemon.cleanup()


def test_what_proc_shows_of_an_agent_holds_nothing_of_the_daemons(secretive: PrivateDaemon) -> None:
    """A process that clears its variables still shows those of its exec to every ps."""
    with Client(secretive.run) as client:
        handle = client.start_agent(None, name="a", backend="echo", env={"ADDED": "shown"})
        shown = Path(f"/proc/{handle.pid}/environ").read_bytes()
        client.stop("a")

    assert b"canary-3f9d" not in shown
    assert b"GENAGENT_" not in shown
    assert b"PATH=" in shown
