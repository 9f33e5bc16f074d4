"""Why a file or a directory cannot be used, by what the system says: what, where, what to do.

A disk that is full says nothing against what is there, and nobody is told to remove that;
nor is one told to mend what stands on a disk that takes no writes.
"""

from __future__ import annotations

import errno

from genagentd.socket_path import UnusablePlace

#: What to do about a directory that cannot be used.
OTHER = "choose another directory with GENAGENT_RUN_DIR or GENAGENT_STATE_DIR"

_FULL = (errno.ENOSPC, errno.EDQUOT)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)


class NoRoom(OSError):
    """The system has no more of something now; the place is right. The message says what to do."""

    def __str__(self) -> str:
        return self.strerror or ""


def unusable(what: str, error: OSError, remedy: str) -> UnusablePlace | NoRoom:
    """Return what to raise of *error*, which says of *what* why it cannot be used.

    *what* is the beginning of a sentence, and *remedy* helps where the place itself is wrong.
    """
    said = f"{what}: {error.strerror}"
    if error.errno in _FULL:
        return NoRoom(error.errno, f"{said}; free some space there")
    if error.errno in _TOO_MANY:
        return NoRoom(error.errno, f"{said}; close some, or allow more (ulimit -n)")
    if error.errno == errno.EROFS:
        remedy = OTHER
    return UnusablePlace(f"{said}; {remedy}")
