"""Agents that reach each other through a real daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from genagent_protocol.errors import Refused
from genagent_protocol.plain import Plain
from genagentd.client.client import Client
from genagentd.sockets import end_context
from support.daemons import PrivateDaemon
from support.fleet import HERE
from support.waiting import until

pytestmark = pytest.mark.process

TALK = {"script": [[{"echo": True}, {"kind": "result"}]], "repeat": True}


@pytest.fixture
def client(daemon: PrivateDaemon) -> Iterator[Client]:
    """A connected client of the private daemon; nothing of it is left."""
    with Client(daemon.run) as connected:
        yield connected
    end_context()


def talker(client: Client, name: str, *, may_start: bool = False) -> None:
    """Start an agent that does with its peers what its events say."""
    client.start_agent(
        "support.recorders:Talker",
        name=name,
        backend="scripted",
        options=TALK,
        cwd=HERE,
        may_start=may_start,
    )


def heard(client: Client, name: str) -> tuple[Plain, ...]:
    """Return what that agent has heard."""
    shown = client.status(name).agent_state
    assert isinstance(shown, tuple)
    return shown


def do(client: Client, name: str, *event: object) -> Plain:
    """Have that agent do something, and return what it heard of it."""
    client.notify_ack(name, event, timeout_ms=30_000)
    return heard(client, name)[-1]


def test_two_agents_ask_tell_notify_and_watch_each_other(client: Client) -> None:
    """By name, over their own channels, under their own identities."""
    for name in ("anna", "bob"):
        talker(client, name)

    assert do(client, "anna", "whereis", "bob") == "found True"
    assert do(client, "anna", "ask", "bob", "hello") == "answer hello"
    assert do(client, "anna", "ask", "nobody", "hello") == "Refused not_found"
    assert do(client, "anna", "ask", "anna", "hello") == "Refused self_call"
    assert do(client, "anna", "notify_ack", "bob", ["whereis", "anna"]) == "acknowledged"
    assert heard(client, "bob") == ("found True",)

    client.notify_ack("anna", ["tell", "bob", "done?"])
    until(lambda: heard(client, "anna")[-1] == "completion done?", "the completion arrives")
    client.notify_ack("anna", ["notify", "bob", ["whereis", "nobody"]])
    until(lambda: heard(client, "bob")[-1] == "found False", "the notification arrives")

    client.notify_ack("anna", ["watch", "bob"])
    client.stop("bob")
    until(lambda: heard(client, "anna")[-1] == "down shutdown", "the DOWN arrives")


def test_an_agent_starts_and_stops_others_if_it_may(client: Client) -> None:
    """What it started is an agent like any other, and outlives it."""
    talker(client, "anna", may_start=True)
    talker(client, "bob")

    assert do(client, "bob", "start", "carl") == "StartFailed not_allowed"
    assert str(do(client, "anna", "start", "carl")).startswith("started ")
    assert client.ask("carl", "hello").text == "hello"
    client.stop("anna")
    assert client.ask("carl", "hello").text == "hello"
    assert do(client, "bob", "stop", "carl") == "stopped"
    assert do(client, "bob", "stop", "carl") == "Refused not_found"
    assert do(client, "bob", "stop", "bob") == "Refused self_stop"
    with pytest.raises(Refused):
        client.ask("carl", "hello")


def test_a_peer_that_dies_while_it_is_asked_ends_the_wait(client: Client) -> None:
    """The asking agent hears it from the daemon, and goes on."""
    talker(client, "anna")
    script = {"script": [[{"kill": "SIGKILL"}]]}
    client.start_agent(None, name="bob", backend="scripted", options=script, cwd=HERE)

    assert do(client, "anna", "ask", "bob", "die") == "ProcessDown signal:9"
