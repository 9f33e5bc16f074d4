"""A daemon that is killed takes every provider's process with it, and nobody has to ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genagent_protocol.refs import AgentHandle
from genagentd.client.client import Client
from support.backend_cli import Step, StubCli
from support.daemons import PrivateDaemon
from support.fleet import Identity, alive, gone, identities
from support.provider_turns import first_event, program, start, submit, turn

pytestmark = pytest.mark.process

INIT: Step = {"line": {"type": "system", "subtype": "init", "session_id": "s-1"}}
RESULT: Step = {"line": {"type": "result", "result": "done", "session_id": "s-1"}}


def in_a_turn(client: Client, stub: StubCli) -> tuple[AgentHandle, int]:
    """Begin a turn whose program and three tools work for ever."""
    stub.plays([{"helpers": 3}, INIT, {"silence": True}])
    handle = start(client, "claude", stub.options)
    first_event(client, submit(client, handle), "session")
    return handle, 4


def between_turns(client: Client, stub: StubCli) -> tuple[AgentHandle, int]:
    """Run a turn of a process that serves all turns, and has one helper."""
    hear: Step = {"hear": True}
    stub.plays([{"helpers": 1}, hear, INIT, RESULT, hear])
    handle = start(client, "claude", {**stub.options, "mode": "duplex"})
    turn(client, handle)
    return handle, 2


@pytest.mark.parametrize("moment", [in_a_turn, between_turns])
def test_the_programs_of_a_daemon_that_was_killed_go_with_it(
    daemon: PrivateDaemon, stub: StubCli, moment: Callable[..., tuple[AgentHandle, int]]
) -> None:
    """In a turn and between turns, also what is in a session of its own."""
    with Client(daemon.run) as client:
        handle, count = moment(client, stub)
        tree: list[Identity] = identities(program(stub))
        assert len(alive(tree)) == count

        daemon.kill()

        gone([(handle.pid, handle.started_ticks), *tree], within_s=20)
