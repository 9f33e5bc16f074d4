"""A client of a private daemon, for tests that kill what they talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from genagentd import channels
from genagentd.client.client import Client
from support.daemons import PrivateDaemon


@pytest.fixture(scope="session", autouse=True)
def _context() -> None:
    """This process's ZeroMQ context stays open; its descriptors are no test's leak."""
    channels._context().socket(zmq.DEALER).close(0)


@pytest.fixture
def client(daemon: PrivateDaemon) -> Iterator[Client]:
    """A connected client of the private daemon."""
    with Client(daemon.run) as connected:
        yield connected
