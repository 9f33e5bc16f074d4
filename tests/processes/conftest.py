"""A client of a private daemon, for tests that kill what they talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from genagentd.client.client import Client
from support.daemons import PrivateDaemon


@pytest.fixture
def client(daemon: PrivateDaemon) -> Iterator[Client]:
    """A connected client of the private daemon."""
    with Client(daemon.run) as connected:
        yield connected
