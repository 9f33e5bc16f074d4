"""The file that a listening socket is reached by: put there at once, removed only if it is ours.

A path may be taken over while we listen: somebody removes the directory, and another
daemon starts in a new one of that name. So a file counts as ours by its device and
number, and never by its name. Nothing here accepts a connection.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Iterator


class Entrance:
    """One listening socket at *path*, in the place of whatever was there."""

    def __init__(self, path: str, number: int, backlog: int) -> None:
        """Listen; *number* tells the entrances of one process apart, and the first is 0.

        Those after the first take the place of the one before without a moment between.

        Raises:
            OSError: the directory, or what this process may open, does not allow it.
        """
        self.path = path
        # What it is bound to is told for ever, so the first has the name that everybody knows.
        self.name = path if number == 0 else _beside(path, number)
        made = socket.socket(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        with made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.name)
            with _private_files():
                made.bind(self.name)
            try:
                self._identity = _identity(self.name)
                made.listen(backlog)
                if number:
                    os.rename(self.name, path)
            except OSError:
                # Without it nobody can be heard there, and the name would be in the way.
                with contextlib.suppress(OSError):
                    os.unlink(self.name)
                raise
            #: The listening socket; whoever takes it over closes it.
            self.fd = made.detach()

    def is_there(self) -> bool:
        """Whether who connects to the path comes to this one."""
        return _identity(self.path) == self._identity

    def remove(self) -> None:
        """Remove the file, if it is this one's."""
        if self.is_there():
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _beside(path: str, number: int) -> str:
    """Return a name in the same directory that is no longer than those of agents."""
    return os.path.join(os.path.dirname(path), f".{os.getpid()}-{number}")


def is_leftover(name: str) -> bool:
    """Whether a file is called as an entrance is until it takes its place."""
    return re.fullmatch(r"\.[0-9]+-[0-9]+", name) is not None


def is_abandoned(path: str) -> bool:
    """Whether that is a socket at which nobody listens: who did was killed, or is just beginning.

    This does not follow a link.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as knocking:
            knocking.connect(path)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass  # It is gone, or full, or not for us: nothing that we know of nobody.
    return False


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _private_files() -> Iterator[None]:
    # The socket file gets its mode from the umask and nowhere else.
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
