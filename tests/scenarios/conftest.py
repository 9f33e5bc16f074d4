"""The stage of the process scenarios: one daemon for a module, a scene for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from genagent_backends.gates import Gates
from genagentd.client.client import Client
from support import fleet
from support.daemons import PrivateDaemon, living_below
from support.scenes import Scene
from support.waiting import until


@pytest.fixture(scope="module")
def house() -> Iterator[PrivateDaemon]:
    """One daemon; when its module is done, nothing of it may be left."""
    before = set(living_below(os.getpid()))
    private = PrivateDaemon().start()
    try:
        yield private
    finally:
        private.stop()
        sockets = [path for path in Path(private.run).rglob("*") if path.is_socket()]
        private.cleanup()
    assert sockets == []
    until(lambda: not set(living_below(os.getpid())) - before, "no process is left")


@pytest.fixture
def scene(house: PrivateDaemon, tmp_path: Path) -> Iterator[Scene]:
    """A scene; the agents that a scenario leaves are stopped."""
    with Client(house.run) as client, Gates() as gates:
        yield Scene(house, client, gates, tmp_path)
        fleet.stop_all(client)
