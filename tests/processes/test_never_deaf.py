"""Whatever an agent's own code raises or breaks, the agent goes on, or it ends and says why.

A process that lives and answers nobody is the one thing that no caller can deal with.
"""

from __future__ import annotations

import pytest

from genagent_protocol.errors import ProcessDown
from genagent_protocol.refs import AgentHandle
from genagentd.client.client import Client
from support import fleet
from support.daemons import PrivateDaemon
from support.rude_agents import INTERFERES, PLACES, RAISES, STREAMS

pytestmark = pytest.mark.process


def begun(client: Client, name: str, agent: str, **options: object) -> AgentHandle:
    """Start one of the rude agents, watched by *client*."""
    handle = client.start_agent(
        f"support.rude_agents:{agent}",
        name=name,
        backend="scripted",
        options={"script": [fleet.SAYS], "repeat": True, **options},
        cwd=fleet.HERE,
    )
    client.at(handle).monitor()
    return handle


def written(daemon: PrivateDaemon, name: str) -> str:
    """Return the log of the agent *name*."""
    return "".join(path.read_text() for path in (daemon.places.logs / name).glob("*.log"))


def test_a_state_that_cannot_be_shown_costs_nobody_anything(
    daemon: PrivateDaemon, client: Client
) -> None:
    """An exception that is no `Exception` is a failure of the callback like any other."""
    for name in RAISES:
        handle = begun(client, name, "RaisesWhenShown", raises=name)

        assert client.status(name).agent_state == "NoneType"
        assert client.ask(name, "go").text == "done"
        client.stop(name)

        assert fleet.down(client, handle).reason.text == "shutdown"
        assert f"callback=show_state error={name}" in written(daemon, name)


def test_a_telemetry_handler_that_raises_costs_the_agent_nothing(
    daemon: PrivateDaemon, client: Client
) -> None:
    """It is detached, once and with one line, whatever it raises."""
    for name in RAISES:
        handle = begun(client, name, "WatchedBadly", raises=name)

        assert client.ask(name, "go").text == "done"
        client.stop(name)

        assert fleet.down(client, handle).reason.text == "shutdown"
        said = written(daemon, name)
        assert said.count("telemetry.handler_detached") == 1
        assert f"handler=WatchedBadly.watch error={name}" in said


def test_when_what_drives_an_agent_ends_the_process_ends(
    daemon: PrivateDaemon, client: Client
) -> None:
    """The invariant behind all of these: a fault of ours ends in a status and a line."""
    for name in RAISES:
        handle = begun(client, name, "BreaksUs", raises=name)

        with pytest.raises(ProcessDown):
            client.status(name)

        assert fleet.down(client, handle).reason.text == "exit:1"
        assert f"agent.broke error={name}" in written(daemon, name)


def test_an_agent_that_can_do_nothing_any_more_ends_all_the_same(
    daemon: PrivateDaemon, client: Client
) -> None:
    """What broke it may break its last steps too; each of them is one that can be left out."""
    handle = begun(client, "a", "BreaksPython")

    client.notify("a", None)

    assert fleet.down(client, handle).reason.text == "exit:1"
    assert "agent.broke error=TypeError" in written(daemon, "a")


def test_an_agent_without_its_standard_streams_goes_on_and_ends_in_order(
    daemon: PrivateDaemon, client: Client
) -> None:
    """What is to be logged is, and what was to be flushed does not change how it ends."""
    for number, what in enumerate(STREAMS):
        name = f"a{number}"
        handle = begun(client, name, "BreaksStreams")

        client.notify_ack(name, what)
        assert client.ask(name, "go").text == "done"
        client.stop(name)

        assert "callback=handle_event error=LookupError" in written(daemon, name), what
        assert fleet.down(client, handle).reason.text == "shutdown", what


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("returns", 0),
        ("raises", 1),
        ("exits", 7),
        ("awaits", None),
        ("returns into the turn", 0),
    ],
)
def test_a_child_that_an_agent_forked_ends_when_it_comes_back_to_us(
    daemon: PrivateDaemon, client: Client, how: str, status: int | None
) -> None:
    """Its parent waits for it, and goes on as if nothing had been."""
    begun(client, "forks", "Forks", how=how)

    assert client.ask("forks", "go", 30_000).text == "done"
    ended = client.status("forks").agent_state
    assert client.ask("forks", "again", 30_000).text == "done"

    assert ended == status or (status is None and ended in (0, 1))
    assert written(daemon, "forks").count("fork.returned") == 2


def test_a_child_that_was_forked_ends_wherever_it_comes_back(
    daemon: PrivateDaemon, client: Client
) -> None:
    """Nothing of ours goes on in it, from the start to the end of a turn: it has copies of all."""
    for place in PLACES:
        client.start_agent(
            "support.rude_agents:ForksAnywhere",
            name=place,
            backend="support.rude_agents:ForkingBackend",
            options={"place": place},
            cwd=fleet.HERE,
        )

        assert client.ask(place, "go", 30_000).text == "done"
        assert client.status(place).agent_state == 0

        said = written(daemon, place)
        assert said.count("the child ended with 0") == 1, place
        assert "the child went on" not in said
        assert said.count("fork.returned") == 1


@pytest.mark.parametrize("how", INTERFERES)
def test_no_callback_can_stop_what_drives_its_agent(
    daemon: PrivateDaemon, client: Client, how: str
) -> None:
    """It reaches its own task at most: no request is lost, and the end is in order."""
    handle = begun(client, "a", "Interferes", how=how)

    for _ in "12":
        client.notify_ack("a", None)
        client.notify_ack("a", "later")
        assert client.ask("a", "go", 30_000).text == "done"
        assert client.status("a").agent_state == "shown"
    client.stop("a")

    assert fleet.down(client, handle).reason.text == "shutdown"
