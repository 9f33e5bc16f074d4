"""Nobody is let in without room for all who can be waiting, whatever room there is when."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagentd import gate, kernel
from genagentd.entrance import Entrance
from genagentd.gate import BACKLOG, PORTION, ROOMY, SPARE, Gate

LEAST = 2 * PORTION + SPARE
_FREE = st.sampled_from([0, LEAST - 1, LEAST, ROOMY, ROOMY + 1, 10_000])
_STEPS = st.lists(st.tuples(_FREE, st.integers(0, PORTION + 3), st.booleans()), max_size=8)


class Inside:
    """Lets people in as libzmq does: whoever waits, from every entrance that it was given."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.free = 10_000
        self.given: dict[str, socket.socket] = {}
        self.came: list[tuple[str, socket.socket]] = []
        self.gate = Gate(path, self._accept_from, self._leave, lambda: None, lambda _free: None)

    def _accept_from(self, entrance: Entrance) -> None:
        assert self.free >= LEAST
        assert self.free > ROOMY or not entrance.is_there()
        self.given[entrance.endpoint] = socket.socket(fileno=entrance.fd)

    def _leave(self, entrance: Entrance) -> None:
        assert not [endpoint for endpoint, _ in self.came if endpoint == entrance.endpoint]
        self.given.pop(entrance.endpoint).close()

    def take(self) -> int:
        """Let in whoever waits; return how many there were at one entrance at most."""
        most = 0
        for endpoint, listening in list(self.given.items()):
            count = 0
            while True:
                try:
                    connection, _ = listening.accept()
                except BlockingIOError:
                    break
                count += 1
                self.came.append((endpoint, connection))
                self.gate.accepted(endpoint)
            most = max(most, count)
        return most

    def lose_all(self) -> None:
        """Everybody leaves."""
        while self.came:
            endpoint, connection = self.came.pop()
            connection.close()
            self.gate.ended(endpoint)

    def close(self) -> None:
        """Close everything."""
        self.gate.close()
        self.lose_all()
        for listening in self.given.values():
            listening.close()


@settings(max_examples=60, deadline=None)
@given(steps=_STEPS)
def test_nobody_is_let_in_without_room_for_all_who_wait(steps: list[tuple[int, int, bool]]) -> None:
    """Whoever comes when, and however much room there is by then; and in the end all are in."""
    with tempfile.TemporaryDirectory(prefix="gate") as directory, pytest.MonkeyPatch.context() as m:
        m.setattr(gate, "LOOK_AGAIN_S", 0.0)
        m.setattr(gate, "RETIRED_S", 0.0)
        m.setattr(gate, "RECOUNT_S", 0.0)
        before = kernel.open_descriptors()
        asyncio.run(_live(f"{directory}/s", steps, m))
        assert kernel.open_descriptors() == before
        assert os.listdir(directory) == []


async def _live(path: str, steps: list[tuple[int, int, bool]], m: pytest.MonkeyPatch) -> None:
    # The gate counts before the first step, too.
    m.setattr(kernel, "free_descriptors", lambda: 10_000)
    inside = Inside(path)
    m.setattr(kernel, "free_descriptors", lambda: inside.free)
    outside: list[socket.socket] = []
    entered = wanted = 0
    for free, count, lost in steps:
        inside.free = free
        for _ in range(count):
            visitor = socket.socket(socket.AF_UNIX)
            visitor.setblocking(False)
            outside.append(visitor)
            try:
                visitor.connect(path)
            except BlockingIOError:
                break
            wanted += 1
        for _ in range(4):
            await asyncio.sleep(0)
            assert inside.take() <= BACKLOG + 1
        entered += len(inside.came) if lost else 0
        if lost:
            inside.lose_all()
    inside.free = 10_000
    async with asyncio.timeout(60):
        while entered + len(inside.came) < wanted:
            await asyncio.sleep(0)
            inside.take()
    inside.close()
    for visitor in outside:
        visitor.close()
