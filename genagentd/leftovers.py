"""Sockets that nobody holds any more, removed from directories of ours, and behind no link.

A directory may be exchanged while we run, for a link to what is dear to somebody. So it is
opened first, which follows no link, and what goes is named within what was opened.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def own_directory(path: Path, within: int | None = None) -> Iterator[int]:
    """Open the directory *path*, which may be one in the open directory *within*; close it after.

    Raises:
        OSError: it is not there, is a link or no directory, or belongs to somebody else.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(path, flags, dir_fd=within)
    try:
        if os.fstat(directory).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to somebody else")
        yield directory
    finally:
        os.close(directory)


def remove_socket(name: str, within: int) -> None:
    """Remove the file *name* of the open directory *within*, if it is a socket.

    Raises:
        OSError: the directory does not allow it.
    """
    # Someone may clean up beside us.
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=within)
