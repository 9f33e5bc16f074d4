"""A secret in a file: read each time it is needed, so that it can be changed.

Only a regular file of a modest size is read: whoever waits at a pipe for a writer, or
reads a device without end, holds up an agent.
"""

from __future__ import annotations

import errno
import os
import stat

#: No key is as long.
MAX_SECRET_BYTES = 64 * 1024


def read_secret(path: str) -> bytes:
    """Return what the file at *path* holds.

    Raises:
        OSError: it cannot be read, is no regular file, or is longer than any secret.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        content = file.read(MAX_SECRET_BYTES + 1)
    if len(content) > MAX_SECRET_BYTES:
        raise OSError(errno.EFBIG, f"it is longer than {MAX_SECRET_BYTES} bytes", path)
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
