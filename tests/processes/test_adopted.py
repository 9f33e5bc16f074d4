"""What an agent adopts is reaped when it ends; what its own code started is left to that."""

from __future__ import annotations

import pytest

from genagentd import kernel
from genagentd.client.client import Client
from support import fleet
from support.daemons import PrivateDaemon, zombies_below
from support.waiting import until

pytestmark = pytest.mark.process


def test_an_orphan_is_reaped_while_its_agent_lives_and_nobody_elses_child_is(
    daemon: PrivateDaemon, client: Client
) -> None:
    """Outside of turns nothing else would; a status that is stolen cannot be given back."""
    handle = client.start_agent(
        "support.rude_agents:Reaps",
        name="a",
        backend="scripted",
        options={"script": [fleet.SAYS], "repeat": True},
        cwd=fleet.HERE,
    )
    pids = client.status("a").agent_state
    assert isinstance(pids, tuple)
    orphan, *own = (pid for pid in pids if isinstance(pid, int))

    until(lambda: kernel.stat(orphan) is None, "the orphan is reaped")
    until(lambda: sorted(zombies_below(handle.pid)) == sorted(own), "its own have ended")
    client.notify_ack("a", None)
    client.status("a")

    assert zombies_below(handle.pid) == []
    (log,) = (daemon.places.logs / "a").glob("*.log")
    assert "codes [7, 7]" in log.read_text()
