"""One real daemon for the tests of a module; after each, no process of an agent is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from genagentd.client.client import Client
from support.backend_cli import StubCli
from support.daemons import PrivateDaemon
from support.provider_turns import agents_end


@pytest.fixture(scope="module")
def house(wire: None) -> Iterator[PrivateDaemon]:
    """A real daemon for the tests of a module."""
    private = PrivateDaemon().start()
    try:
        yield private
    finally:
        private.stop()
        private.cleanup()


@pytest.fixture
def client(house: PrivateDaemon) -> Iterator[Client]:
    """A client of the module's daemon."""
    with Client(house.run) as connected, agents_end(connected, house):
        yield connected


@pytest.fixture
def stub(tmp_path: Path) -> StubCli:
    """A stub program that has no scenario yet."""
    return StubCli(tmp_path)
