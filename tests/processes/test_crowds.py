"""More connections than there are descriptors: they wait, and nobody else notices."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
from collections.abc import Iterator

import pytest

from genagent_protocol.envelopes import CoreState
from genagent_protocol.errors import NotReachable
from genagentd import kernel
from genagentd.client.client import Client
from genagentd.client.core import core_state
from support import fleet
from support.daemons import PrivateDaemon
from support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("nothing_left")]


@pytest.fixture
def daemon() -> Iterator[PrivateDaemon]:
    """A daemon that may open 256 files, as its agents may."""
    made = PrivateDaemon(environment={"GENAGENT_KEEP_NOFILE": "1"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        made.start(wait=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        until(made._answers, "the daemon answers")
        yield made
        assert made.stop() == 0, made.log
    finally:
        made.stop()
        made.cleanup()


#: How long who finds no place waits for one: seconds, microseconds.
_PATIENCE = struct.pack("ll", 0, 300_000)


@contextlib.contextmanager
def crowd(path: str, count: int) -> Iterator[None]:
    """So many connections at once that never say a word, or as many as find a place."""
    with contextlib.ExitStack() as came:
        for _ in range(count):
            stranger = came.enter_context(socket.socket(socket.AF_UNIX))
            # The kernel's own limit: one of Python's would not wait for a place at all.
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
            try:
                stranger.connect(path)
            except (BlockingIOError, ConnectionRefusedError):
                break
        yield


def _state(daemon: PrivateDaemon) -> CoreState | None:
    """Return what the daemon says of itself, if there is room already for who asks."""
    try:
        return core_state(daemon.places.socket, 2_000)
    except NotReachable:
        return None


@pytest.mark.parametrize("agents", [0, 100])
def test_a_crowd_of_strangers_ends_no_daemon(daemon: PrivateDaemon, agents: int) -> None:
    """Who is connected is served all along, and others are when there is room again."""
    with Client(daemon.run) as client:
        fleet.start(client, "a")
        with contextlib.suppress(Exception):
            for number in range(agents):
                fleet.start(client, f"a{number}")
        pid = daemon.pid
        with crowd(daemon.places.socket, 400):
            assert client.ask("a", "go").text
            until(lambda: "clients.wait" in daemon.log, "the log says that clients wait")
            assert kernel.stat(pid) is not None

        state = until(lambda: _state(daemon), "another one is served again")
        assert state.pid == pid
        assert client.ask("a", "go").text


def test_clients_that_are_never_closed_end_no_daemon(daemon: PrivateDaemon) -> None:
    """A program that forgets to close what it opens is nobody's but its own problem."""
    clients: list[Client] = []
    try:
        with contextlib.suppress(Exception):
            for _ in range(200):
                clients.append(Client(daemon.run).connect(3_000))
        assert len(clients) > 20
        assert clients[0].list() == ()
    finally:
        for client in clients:
            client.close()
    until(lambda: _state(daemon), "another one is served again")


def test_a_crowd_of_strangers_ends_no_agent_and_costs_no_start(daemon: PrivateDaemon) -> None:
    """Only who waits to become one can be found by others; agents that are served cannot."""
    with Client(daemon.run) as client:
        handle = fleet.start(client, "a")
        (path,) = until(lambda: list(daemon.places.agents.iterdir()), "the next one waits")
        with crowd(str(path), 400):
            fleet.start(client, "b")
            assert client.ask("b", "go").text
        assert client.ask("a", "go").text
        assert client.whereis("a") == handle
