"""Running commands in this process, against one real daemon for a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from genagentd.cli import agents, daemon_commands
from genagentd.cli.main import load_commands
from genagentd.client.client import Client
from support.commands import Command, runner
from support.daemons import PrivateDaemon


@pytest.fixture(scope="module")
def house() -> Iterator[PrivateDaemon]:
    """One real daemon for the tests of a module."""
    private = PrivateDaemon().start()
    try:
        yield private
    finally:
        private.stop()
        private.cleanup()


@pytest.fixture
def genagent(
    house: PrivateDaemon, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """Run `genagent`; every agent that is left is stopped."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(house.run))
    load_commands()
    yield runner(agents.app, "genagent", capsysbinary, monkeypatch)
    with Client(house.run) as client:
        for row in client.list():
            client.stop(row.name)


@pytest.fixture
def genagentd(capsysbinary: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `genagentd` in the environment as it is."""
    return runner(daemon_commands.app, "genagentd", capsysbinary, monkeypatch)
