"""What is said to a process: whole lines in their order, and nobody waits for their being read."""

from __future__ import annotations

import asyncio
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.base import Process
from genagent_backends.saying import Saying


class Slow:
    """A process that takes a few bytes at a time, and so many in all."""

    def __init__(self, takes: int, piece: int = 1) -> None:
        self.taken = b""
        self._left = takes
        self._piece = piece

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), self._piece):
            await asyncio.sleep(0)
            if self._left <= 0:
                await asyncio.Event().wait()
            self._left -= self._piece
            self.taken += data[start : start + self._piece]


@given(
    lines=st.lists(st.binary(min_size=1, max_size=6), max_size=6),
    pauses=st.lists(st.integers(0, 8), max_size=6),
    piece=st.integers(1, 4),
    takes=st.integers(0, 40),
)
def test_lines_are_written_whole_and_in_order(
    lines: list[bytes], pauses: list[int], piece: int, takes: int
) -> None:
    """Whenever they are added, and however slowly they are taken."""

    async def said() -> None:
        process = Slow(takes, piece)
        async with Saying(cast("Process", process)) as saying:
            for number, line in enumerate(lines, 1):
                assert saying.add(line) == number
                for _ in range(pauses[number - 1] if number <= len(pauses) else 0):
                    await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
            whole = b"".join(lines)
            assert whole.startswith(process.taken)
            assert saying.done == (process.taken == whole)
            for number in range(1, len(lines) + 1):
                written = len(process.taken) >= len(b"".join(lines[:number]))
                assert saying.has_said(number) == written

    asyncio.run(said())


async def test_what_a_process_does_not_take_is_bounded() -> None:
    """But for the first line, which is a prompt and may be long."""
    async with Saying(cast("Process", Slow(0)), limit_bytes=10) as saying:
        saying.add(b"x" * 1_000)
        saying.add(b"y" * 10)
        before = saying.full
        saying.add(b"z")
        assert (before, saying.full) == (False, True)
        assert not await saying.settled(1)
