"""A daemon that listens and is not found: somebody removed its socket, or all of its directory.

A listening socket keeps the path that it was bound to for as long as it is open, and the kernel
shows that, with or without a file there. Only processes that we may look into are found, and of
our own network namespace; where none is found, there may be one all the same.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from genagentd import kernel
from genagentd.daemon.lock import Holder
from genagentd.entrance import is_abandoned, is_leftover

#: What the kernel shows of a socket that accepts connections.
_LISTENS = 0x10000
#: A socket in its list, which has a line each: flags, inode, and the path, if it has one. A path
#: stands there as it is, with line breaks of its own.
_SOCKET = re.compile(
    rb"^[0-9a-fA-F]+: \S+ \S+ (\S+) \S+ \S+ +([0-9]+) (.*?)\n(?=[0-9a-fA-F]+: |\Z)", re.M | re.S
)


def listens_unseen(path: str, pid: int | None) -> bool:
    """Whether *pid* listens at a socket that was bound to *path*, where no file is any more."""
    return pid is not None and _leads_nowhere(path) and _holds(pid, _bound_to(path))


def unseen_listener(path: str) -> Holder | None:
    """Return who listens at a socket that was bound to *path*, where no file is any more."""
    sockets = _bound_to(path) if _leads_nowhere(path) else set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc")) if sockets else ()):
        if _holds(pid, sockets):
            return Holder(pid, kernel.started_ticks(pid))
    return None


def _leads_nowhere(path: str) -> bool:
    """Whether there is no file, or one that somebody left who was killed."""
    return not os.path.lexists(path) or is_abandoned(path)


def _bound_to(path: str) -> set[str]:
    """Return the listening sockets of that path, as the kernel calls them in `/proc/PID/fd`."""
    found = set()
    with contextlib.suppress(OSError):
        for flags, inode, bound in _SOCKET.findall(Path("/proc/net/unix").read_bytes()):
            if int(flags, 16) & _LISTENS and _is_of(os.fsdecode(bound), path):
                found.add(f"socket:[{int(inode)}]")
    return found


def _is_of(bound: str, path: str) -> bool:
    """Whether a daemon at *path* binds to that: what is put there later is bound beside it.

    The daemon may have been told another way to its directory, as far as that still leads there.
    """
    directory, name = os.path.split(bound)
    if name != os.path.basename(path) and not is_leftover(name):
        return False
    return os.path.realpath(directory) == os.path.realpath(os.path.dirname(path))


def _holds(pid: int, sockets: Iterable[str]) -> bool:
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{fd}") in sockets:
                    return True
    return False
