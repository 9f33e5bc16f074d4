"""Processes that may not be signalled, as if they ran as another user.

A real one needs a program that changes its user; what the kernel says of it is all
that matters here.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: The kernel's own, before anything is put in its place.
_send = signal.pidfd_send_signal


@contextmanager
def refused(immune: Callable[[int], bool]) -> Iterator[None]:
    """Have this process's signals to every pid for which *immune* is true refused."""

    def send(pidfd: int, number: int, *more: object) -> None:
        info = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        pid = int(info.split("Pid:")[1].split()[0])
        if immune(pid):
            raise PermissionError(1, "Operation not permitted")
        _send(pidfd, number)

    signal.pidfd_send_signal = send
    try:
        yield
    finally:
        signal.pidfd_send_signal = _send
