"""What the service manager did not take is told again, and nothing else twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagentd.daemon import notify
from genagentd.daemon.notify import ServiceManager


class Listener:
    """The socket that systemd would have."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(path))

    def hear(self) -> list[str]:
        """Return what waits."""
        told = []
        with contextlib.suppress(BlockingIOError):
            while True:
                told.append(self.socket.recv(4096).decode())
        return told


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(tmp_path / "notify")
    yield made
    made.socket.close()


def fill(path: Path) -> int:
    """Let too much wait for whoever listens at *path*, from others; return how much that is."""
    count = 0
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as other,
        contextlib.suppress(BlockingIOError),
    ):
        while True:
            other.sendto(b"X=1", str(path))
            count += 1
    return count


async def test_what_did_not_fit_is_told_when_it_does(
    tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status that was lost would stay wrong, and a start without READY fails."""
    monkeypatch.setattr(notify, "RETRY_S", 0.01)
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    others = fill(tmp_path / "notify")

    manager.ready()
    manager.status(1, 0)
    manager.status(2, 0)
    manager.status(2, 0)
    assert listener.hear() == ["X=1"] * others

    told: list[str] = []
    async with asyncio.timeout(60):
        while len(told) < 2:
            await asyncio.sleep(0)
            told += listener.hear()
    manager.status(2, 0)
    manager.close()
    assert [*told, *listener.hear()] == ["READY=1", "STATUS=2 agents, 0 clients"]


async def test_a_reload_that_was_not_heard_is_told_before_its_end(
    tmp_path: Path, listener: Listener
) -> None:
    """READY alone ends no reload that the service manager does not know of."""
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    others = fill(tmp_path / "notify")
    manager.ready()
    manager.reloading()
    manager.ready()
    manager.stopping()
    manager.stopping()
    assert listener.hear() == ["X=1"] * others

    manager.close()

    told = [message.partition("\n")[0] for message in listener.hear()]
    assert told == ["RELOADING=1", "READY=1", "STOPPING=1"]


async def test_a_watchdog_ping_is_an_occasion_and_is_never_told_late(
    tmp_path: Path, listener: Listener
) -> None:
    """A ping from before would say that a loop which is stuck now runs."""
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3600000000"}
    manager = ServiceManager(environ)
    others = fill(tmp_path / "notify")
    manager.keep_watchdog_fed()
    manager.ready()
    assert listener.hear() == ["X=1"] * others

    manager.keep_watchdog_fed()
    manager.close()

    assert listener.hear() == ["WATCHDOG=1", "READY=1"]


@pytest.mark.parametrize(
    "usec", ["", "0", "000", "-1", "1.5", "\u00b2", "\u0661", "9" * 5000, " 1"]
)
async def test_a_watchdog_of_no_such_time_is_none(
    tmp_path: Path, listener: Listener, usec: str
) -> None:
    """A variable that was left over keeps no daemon from beginning."""
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": usec})

    manager.keep_watchdog_fed()
    manager.close()

    assert listener.hear() == []


@given(st.lists(st.one_of(st.integers(0, 9), st.just("hears"), st.just("stops")), max_size=60))
async def test_whoever_hears_in_the_end_knows_how_it_is(
    steps: list[int | str],
) -> None:
    """Whatever was lost meanwhile."""
    address = f"\0genagentd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as there:
        there.bind(address)
        manager = ServiceManager({"NOTIFY_SOCKET": "@" + address[1:]})
        told: list[str] = []
        shown, stopped = "", False

        def hear() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    told.append(there.recv(4096).decode())

        for step in steps:
            match step:
                case "hears":
                    hear()
                case "stops":
                    manager.stopping()
                    stopped = True
                case int(agents):
                    manager.status(agents, 2)
                    ending = "stopping: " if stopped else ""
                    shown = f"STATUS={ending}{agents} agent{'s' * (agents != 1)}, 2 clients"
        hear()
        manager.close()
        hear()

    assert [message for message in told if message.startswith("STATUS")][-1:] == [shown] * (
        shown != ""
    )
    assert told.count("STOPPING=1") == stopped
