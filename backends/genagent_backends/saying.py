"""What is said to a process, line after line, beside the listening to it.

One writer for each process and turn: a line is never written into the middle of
another, and a process that does not read holds up nobody who listens to it. What waits
to be written is bounded, because a process may ask on and on without taking an answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

from genagent_backends.base import Process
from genagent_backends.timeouts import timeout

#: So much may wait to be written besides the first line, which is as long as it is.
MAX_UNSAID_BYTES = 256 * 1024


class Saying:
    """The writer of one turn. Use it as a context manager.

    Leaving it gives up what is not written yet, which may be the rest of a line: look
    at `done` first, and end a process that is left with half of one.
    """

    def __init__(self, process: Process, limit_bytes: int = MAX_UNSAID_BYTES) -> None:
        self._process = process
        self._limit_bytes = limit_bytes
        self._unsaid: deque[bytes] = deque()
        self._unsaid_bytes = 0
        self._added = 0
        self._said = 0
        self._more = asyncio.Event()
        self._nothing_left = asyncio.Event()
        self._nothing_left.set()

    async def __aenter__(self) -> Self:
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            await self._more.wait()
            while self._unsaid:
                await self._process.write(self._unsaid[0])
                self._unsaid_bytes -= len(self._unsaid.popleft())
                self._said += 1
            self._more.clear()
            self._nothing_left.set()

    def add(self, line: bytes) -> int:
        """Have *line* written after all that was added before; return which one it is."""
        self._unsaid.append(line)
        self._unsaid_bytes += len(line)
        self._added += 1
        self._nothing_left.clear()
        self._more.set()
        return self._added

    def has_said(self, which: int) -> bool:
        """Return whether the line that `add` numbered so has been written."""
        return self._said >= which

    @property
    def full(self) -> bool:
        """Whether more waits to be written than may."""
        waiting = self._unsaid_bytes - (len(self._unsaid[0]) if self._unsaid else 0)
        return waiting > self._limit_bytes

    @property
    def done(self) -> bool:
        """Whether everything has been written."""
        return self._said == self._added

    async def settled(self, within_ms: int) -> bool:
        """Return whether everything has been written, at the latest then."""
        with suppress(TimeoutError):
            async with timeout(within_ms / 1000):
                await self._nothing_left.wait()
        return self.done
