"""Channels between processes: what the kernel and libzmq do when one end dies."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import support.channel_peer
from genagent_protocol.errors import NotReachable
from genagentd.channels import BlockingConnection
from genagentd.socket_path import probe
from support.waiting import until as blocked_until
from support.wires import Wires, received, until

pytestmark = pytest.mark.process

#: How often something is tried that depends on a choice of the kernel.
ATTEMPTS = 30
PROGRAM = support.channel_peer.__file__


@pytest.fixture
def wires(nothing_left: None) -> Iterator[Wires]:
    with tempfile.TemporaryDirectory(prefix="wires-") as directory:
        made = Wires(f"{directory}/s")
        yield made
        made.close()


@contextmanager
def started(verb: str, path: str, count: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that is ready to do *verb*, and is gone at the end in any case."""
    process = subprocess.Popen(
        [sys.executable, PROGRAM, verb, path, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    with process:
        try:
            assert heard(process) == "ready"
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    """Wait for its next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    """Let it do what it is for, and wait until it is done."""
    assert process.stdin is not None
    process.stdin.write("\n")
    assert heard(process)


@contextmanager
def peer(verb: str, path: str, count: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that has done what *verb* says."""
    with started(verb, path, count) as process:
        go(process)
        yield process


async def test_a_peer_hands_over_everything_and_exits_although_nobody_reads(wires: Wires) -> None:
    """What waits in the kernel when its sender dies is lost, so nothing may wait there."""
    ear = wires.ear()

    # The loop does not run here: nobody reads until the peer has left.
    with peer("say", wires.path, 5_000) as process:
        process.wait(60)

    await until(lambda: ear.gone, "its end was told")
    assert ear.bodies == [b"%d" % number for number in range(5_000)]
    assert len(ear.gone) == 1


async def test_a_killed_peer_is_drained_and_then_gone_once(wires: Wires) -> None:
    """There is no gap in what it said, and nothing after the news."""
    ear = wires.ear()

    with peer("stay", wires.path, 1_000) as process:
        await until(lambda: ear.messages, "it was heard")
        process.kill()
        process.wait(60)

    await until(lambda: ear.gone, "its end was told")
    assert ear.bodies == [b"%d" % number for number in range(len(ear.bodies))]
    assert len(ear.gone) == 1
    assert ear.messages[0].peer.pid == process.pid


async def test_a_listener_that_is_killed_wakes_a_reader_without_a_limit(wires: Wires) -> None:
    """A client in an endless wait must learn that its daemon is dead."""
    with peer("listen", wires.path) as process:
        connection = await wires.blocking()
        waiting = asyncio.create_task(asyncio.to_thread(received, connection, None))
        process.kill()
        process.wait(60)

        assert await waiting == []
        assert not connection.open


async def test_the_socket_of_a_killed_listener_is_stale_and_can_be_bound_again(
    wires: Wires,
) -> None:
    """A crash must not block the next start."""
    with peer("listen", wires.path) as process:
        probe(wires.path)
        process.kill()
        process.wait(60)

    assert Path(wires.path).is_socket()
    with pytest.raises(NotReachable):
        probe(wires.path)
    with pytest.raises(NotReachable):
        BlockingConnection(wires.path, 60_000)
    ear = wires.ear()
    mouth = await wires.mouth().opened()
    mouth.connection.send(b"", b"again")
    await until(lambda: ear.messages, "it was heard")


async def test_a_descriptor_used_by_a_look_does_not_end_the_client_that_gets_it_next(
    wires: Wires,
) -> None:
    """A client dies, another one looks first and then connects, all while the loop is busy.

    Which number a connection gets is the kernel's choice, so this is done until it is the same.
    """
    for attempt in range(ATTEMPTS):
        again = Wires(f"{wires.path}{attempt}")
        try:
            if await _second_client_is_spared(again):
                return
        finally:
            again.close()
    pytest.fail(f"in {ATTEMPTS} attempts no second client got the descriptor of the first")


async def _second_client_is_spared(wires: Wires) -> bool:
    """Do it once; False if the descriptors were not the same, which shows nothing."""
    ear = wires.ear()
    with (
        started("stay", wires.path, 1) as first,
        started("look", wires.path) as looking,
        started("stay", wires.path, 1) as second,
        filled_descriptors(),
    ):
        go(first)
        await until(lambda: ear.messages, "the first one was heard")
        # From here on the loop does not run.
        first.kill()
        blocked_until(lambda: not is_open(ear.messages[0].fd), "its descriptor is free")
        go(looking)
        # Not before it was accepted, too: an end that still waits for that has no descriptor.
        blocked_until(lambda: not ends_at(wires.path), "the end of the look is closed")
        go(second)

        await until(lambda: len(ear.messages) == 2, "the second one was heard")
        await until(lambda: ear.gone, "the end of the first one was told")
        mouth = await wires.mouth().opened()
        mouth.connection.send(b"", b"later")
        await until(lambda: len(ear.messages) == 3, "another one was heard")
        assert ear.gone == [ear.messages[0].route]
        assert ear.listener.send(ear.messages[1].route, b"", b"still there")

        second.kill()
        await until(lambda: len(ear.gone) == 2, "the end of the second one was told")
    return ear.messages[0].fd == ear.messages[1].fd


def is_open(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").is_symlink()


def ends_at(path: str) -> list[str]:
    """Return the listener's ends of connections to *path*, those not yet accepted too."""
    sockets = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    # A socket that listens has a flag, the others have none.
    return [words[0] for words in sockets if words[-1] == path and words[3] == "00000000"]


@contextmanager
def filled_descriptors() -> Iterator[None]:
    """Use up the free numbers below the highest one in use: the next is given again at once."""
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    fillers: list[int] = []
    while not fillers or fillers[-1] < highest:
        fillers.append(os.open("/dev/null", os.O_RDONLY))
    try:
        yield
    finally:
        for filler in fillers:
            os.close(filler)


async def test_a_fork_leaves_the_parents_connection_alone(wires: Wires) -> None:
    """The child gets a context of its own, and its end says nothing about the parent's."""
    ear = wires.ear()

    with peer("fork", wires.path) as process:
        await until(lambda: len(ear.messages) == 3, "all were heard")
        process.wait(60)

    await until(lambda: len(ear.gone) == 2, "both ends were told")
    assert sorted(ear.bodies) == [b"child", b"parent", b"parent again"]
    assert len({message.peer.pid for message in ear.messages}) == 2
