"""A listener whose backlog is full: it is there, and lets nobody in."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def crowded(path: str) -> Iterator[socket.socket]:
    """Listen at *path* with as many waiting to be let in as may."""
    with contextlib.ExitStack() as opened:
        busy = opened.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(path)
        busy.listen(0)
        for _ in range(3):
            one = opened.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            one.connect_ex(path)
        yield busy
