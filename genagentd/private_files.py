"""Files that nobody else chooses: no link is followed, and what is made is for its owner alone.

Imports nothing of ours, and little of Python's: the guardian opens its log with this.
"""

from __future__ import annotations

import contextlib
import os
import stat

#: The name of a detached daemon's own log.
DAEMON_LOG = "genagentd.log"


class Planted(OSError):
    """What stands in the place of a file chooses, or could choose, what is written instead."""


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open the file *path*; one that is missing is made, with mode 0600 for any umask.

    This does not look at what is there already, and follows no link.

    Raises:
        OSError: it can be neither opened nor made.
    """
    flags |= os.O_NOFOLLOW
    while True:
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            # Somebody may remove it right now.
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, flags)
        else:
            try:
                os.fchmod(fd, 0o600)
            except OSError:
                os.close(fd)
                raise
            return fd


def open_appending(path: str | os.PathLike[str]) -> int:
    """Return a descriptor that appends to the plain file *path*, which is made if it is missing.

    Raises:
        Planted: its directory or the one above is a link, somebody else's, or open to others; or
            it is no plain file, or somebody else's.
        OSError: it can be neither opened nor made; a link is ELOOP.
    """
    directory = os.path.dirname(path)
    for level in (directory, os.path.dirname(directory)):
        _check_level(level)
    fd = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise Planted("is no plain file and cannot be used as a log; remove it")
    if found.st_uid != os.getuid():
        os.close(fd)
        raise Planted(f"belongs to uid {found.st_uid} and cannot be used as a log; remove it")
    return fd


def _check_level(directory: str) -> None:
    """Refuse a directory that others chose, or choose what is in: they may read what is written."""
    found = os.lstat(directory)
    if stat.S_ISLNK(found.st_mode):
        wrong = "is a link"
    elif found.st_uid != os.getuid():
        wrong = f"belongs to uid {found.st_uid}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = "may be written by others"
    else:
        return
    raise Planted(f"cannot be used as a log: {directory} {wrong}; remove it")
