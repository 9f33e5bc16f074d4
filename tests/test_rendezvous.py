"""A place where one peer finds us, and nobody after it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from genagentd import kernel
from genagentd.arrivals import Message
from genagentd.rendezvous import Rendezvous
from genagentd.socket_path import peer_of
from genagentd.sockets import Event, News, Side, Socket
from support.wires import Mouth, until


class Place:
    """One of them, and what came there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.heard: list[Message] = []
        self.gone: list[bytes] = []
        self.there = Rendezvous(path, self.heard.append, self.gone.append, os.getpid())

    async def meet(self, mouth: Mouth) -> bytes:
        """Hear a first word of *mouth*, be found no more, and return its route."""
        mouth.connection.send(b"h", b"here I am")
        await until(lambda: self.heard, "its word came")
        self.there.met()
        return self.heard.pop().route


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(str(tmp_path / "s"))
    yield made
    made.there.close()


async def test_who_is_waited_for_is_heard_and_answered(place: Place) -> None:
    mouth = await Mouth(place.path).opened()
    route = await place.meet(mouth)

    assert place.there.send(route, b"h", b"welcome")
    await until(lambda: mouth.bodies == [b"welcome"], "the answer came")
    mouth.connection.close()
    await until(lambda: place.gone == [route], "its end was told")


async def test_after_it_nobody_finds_us(place: Place) -> None:
    """Whoever cannot connect can neither flood nor forge."""
    mouth = await Mouth(place.path).opened()
    assert place.there.is_there()
    await place.meet(mouth)

    assert not place.there.is_there()
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(FileNotFoundError):
        late.connect(place.path)
    mouth.connection.close()


#: Connects, says when it has, and prints all that it hears.
_STRANGER = """
import socket, sys
stranger = socket.socket(socket.AF_UNIX)
stranger.connect(sys.argv[1])
print(stranger.recv(64), flush=True)
"""


@pytest.mark.process
async def test_another_process_is_turned_away_and_keeps_nobody_out(place: Place) -> None:
    """It hears nothing, not even a greeting, and takes none of our descriptors."""
    before = kernel.open_descriptors()
    for _ in range(3):
        said = subprocess.run(
            [sys.executable, "-c", _STRANGER, place.path], capture_output=True, check=True
        )
        assert said.stdout == b"b''\n"
    assert kernel.open_descriptors() == before

    mouth = await Mouth(place.path).opened()
    route = await place.meet(mouth)

    assert place.there.send(route, b"h", b"welcome")
    await until(lambda: mouth.bodies, "the answer came")
    assert place.gone == []
    mouth.connection.close()


async def test_where_nobody_listens_a_connection_ends_at_once(tmp_path: Path) -> None:
    """Nobody has to wait for what cannot come."""
    mouth = Mouth(str(tmp_path / "nobody"))

    await until(lambda: mouth.news, "its end was told")
    assert mouth.news == ["gone"]
    assert mouth.connection.listener_pid == 0
    mouth.connection.close()


async def test_the_end_of_a_connection_is_told_once(place: Place) -> None:
    """To ZeroMQ it is a miss as well, of a connection that it would try again."""
    mouth = await Mouth(place.path).opened()
    await place.meet(mouth)
    place.there.close()

    await until(lambda: "gone" in mouth.news, "its end was told")
    # However late that news comes.
    mouth.connection._begun(Event(News.MISSED, -1, ""))
    assert mouth.news == ["open", "gone"]
    mouth.connection.close()


async def test_a_file_that_somebody_else_put_there_stays(place: Place) -> None:
    os.unlink(place.path)
    assert not place.there.is_there()
    Path(place.path).write_text("somebody's")

    place.there.met()

    assert Path(place.path).read_text() == "somebody's"


async def test_where_nobody_can_be_found_nothing_stays_open(tmp_path: Path) -> None:
    Socket(Side.ONE, News.ENDED).close(0)  # The context has its descriptors now.
    before, missing = kernel.open_descriptors(), str(tmp_path / "missing" / "s")

    # More of them than the descriptors that the first socket of all still has to give back.
    for _ in range(20):
        with pytest.raises(FileNotFoundError):
            Rendezvous(missing, lambda _message: None, lambda _route: None, 1)

    await until(lambda: kernel.open_descriptors() <= before, "all came back")


def test_whoever_asks_for_the_peer_of_no_connection_leaves_nothing_open() -> None:
    """The number of a connection that ended may be a pipe's by the time that it is asked about."""
    read_end, write_end = os.pipe()
    before = kernel.open_descriptors()

    with pytest.raises(OSError, match="socket"):
        peer_of(read_end)

    assert kernel.open_descriptors() == before
    os.close(read_end)
    os.close(write_end)


_WAITER = """
import asyncio, os, sys
from genagentd.rendezvous import Rendezvous
async def wait():
    there = Rendezvous(sys.argv[1], print, print, os.getppid())
    print("there", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    there.close()
asyncio.run(wait())
"""


@pytest.mark.process
async def test_a_connection_knows_who_listens_by_the_kernels_word(tmp_path: Path) -> None:
    """What an agent is greeted with may be secret; the greeting is for that process alone."""
    path = str(tmp_path / "s")
    waiter = subprocess.Popen(
        [sys.executable, "-c", _WAITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert waiter.stdout is not None
    assert waiter.stdout.readline() == b"there\n"

    mouth = await Mouth(path).opened()

    assert mouth.connection.listener_pid == waiter.pid
    mouth.connection.close()
    waiter.communicate()
