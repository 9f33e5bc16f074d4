"""Fixtures of the client's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from genagentd import sockets
from genagentd.client.client import Client
from support import fleet
from support.daemons import PrivateDaemon
from support.fake_daemon import FakeDaemon, fake_daemon


@pytest.fixture(scope="session", autouse=True)
def _zmq_is_warm() -> Iterator[None]:
    """ZeroMQ's own threads and descriptors exist before anything is counted."""
    with fake_daemon() as fake, Client(fake.run):
        pass
    yield
    sockets.end_context()


@pytest.fixture
def fake(nothing_left: None) -> Iterator[FakeDaemon]:
    """A fake daemon; the test fails if a descriptor or a thread is left."""
    with fake_daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def house() -> Iterator[PrivateDaemon]:
    """One real daemon for the tests of a module, which share nothing else."""
    private = PrivateDaemon().start()
    try:
        yield private
    finally:
        private.stop()
        private.cleanup()


@pytest.fixture
def client(house: PrivateDaemon) -> Iterator[Client]:
    """A client of the module's daemon; every agent it left is stopped."""
    with Client(house.run) as connected:
        yield connected
        fleet.stop_all(connected)
