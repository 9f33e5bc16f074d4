"""Descriptors kept back, so that whoever has used up all others can still be cleaned up after.

To look at `/proc` and to hold a process takes a descriptor for a moment, and an agent
whose code has leaked them until there is none left ends its turns all the same. So a few
are opened at the start, lent for the length of one look, and taken back behind it.

This does not help against a thread that opens whatever becomes free at that very moment.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

#: One for a file of `/proc` and one for the process meanwhile, and one for each process that
#: is being waited for: by the end of a turn, by that of the agent, and by the turn itself.
SIZE = 5


class _Reserve:
    def __init__(self) -> None:
        #: How many there should be: none in a process that is no agent.
        self.size = 0
        self.held: list[int] = []
        #: Processes are ended from the coordinator and from the turn's thread.
        self.lock = threading.Lock()

    def fill(self) -> None:
        """Keep as many back as there should be, or as can be had now."""
        with contextlib.suppress(OSError):
            while len(self.held) < self.size:
                self.held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def clear(self) -> None:
        while self.held:
            os.close(self.held.pop())


_reserve = _Reserve()


def hold(size: int = SIZE) -> None:
    """Keep *size* descriptors back in this process from now on; with 0, let go of all."""
    with _reserve.lock:
        _reserve.size = size
        _reserve.clear()
        _reserve.fill()


def restore() -> None:
    """Take what became free just now into the reserve, if it lacks any."""
    with _reserve.lock:
        _reserve.fill()


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """Have the reserve free inside. Nothing may be awaited there, nor this be entered again."""
    with _reserve.lock:
        _reserve.clear()
        try:
            yield
        finally:
            _reserve.fill()
