"""A path that a socket lives at: whether it can be one, and whether someone listens there.

libzmq neither says that a path is too long before it is used nor that nobody
listens: it would try for ever. Nothing here sends anything.
"""

from __future__ import annotations

import os
import socket
import struct

from genagent_protocol.errors import NotReachable, UsageError

#: A path that the kernel and libzmq accept may be at most this long, in bytes.
MAX_PATH_BYTES = 107

#: Longer than anybody waits, and short enough for the kernel.
_MAX_WAIT_MS = 86_400_000


class UnusablePlace(UsageError):
    """The directory of a daemon cannot be one; the message says which, why, and what to do."""


def check_path(path: str) -> None:
    """Refuse a socket path that the kernel, or a message, could not hold.

    Raises:
        UnusablePlace: it is no text, or too long: the path, its length and the limit are named.
    """
    check_text(path)
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise UnusablePlace(
            f"the socket path {path} has {length} bytes, and the limit is {MAX_PATH_BYTES}: "
            "choose a shorter runtime directory (GENAGENT_RUN_DIR)"
        )


def check_text(path: str) -> None:
    """Refuse a path that is no text: it is told in messages, and written into logs.

    Raises:
        UnusablePlace: it holds bytes that are not UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UnusablePlace(
            f"the path {path!r} is not UTF-8; choose another one with GENAGENT_RUN_DIR or "
            "GENAGENT_STATE_DIR"
        ) from None


def probe(path: str, within_ms: int = 0) -> None:
    """Make sure that something listens at *path*, without saying a word to it.

    Where many wait to be let in already, this waits for a place, *within_ms* at most.

    Raises:
        UnusablePlace: the path is too long to be one.
        NotReachable: nothing does, or somebody else does, who may have planted it there.
    """
    check_path(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        try:
            _connect(tried, path, within_ms)
        except BlockingIOError:
            return  # Its backlog is full: it is there, and busy.
        except OSError as error:
            raise NotReachable(
                f"no daemon answers at {path} ({os.strerror(error.errno or 0)})",
                hint="start one with: genagentd start",
            ) from None
        _check_owner(tried, path)


def unanswered(path: str, timeout_ms: int, *, ended: bool) -> NotReachable:
    """Return the error of a daemon that listened at *path* and did not introduce itself in time."""
    if ended:
        return NotReachable(
            f"the daemon at {path} ended before it answered",
            hint="start one with: genagentd start",
        )
    return NotReachable(
        f"the daemon at {path} did not answer within {timeout_ms} ms",
        hint="look at it with: genagentd status",
    )


def _connect(tried: socket.socket, path: str, within_ms: int) -> None:
    """Connect; raises BlockingIOError if as many wait to be let in as may, for *within_ms*."""
    if within_ms > 0:
        # The kernel's own limit: one of Python's would not wait for a place at all.
        limit = struct.pack("ll", *divmod(min(within_ms, _MAX_WAIT_MS) * 1_000, 1_000_000))
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    else:
        tried.setblocking(False)
    tried.connect(path)


def of_agent(directory: str, pid: int, started_ticks: int) -> str:
    """Return where exactly that process is found, if it becomes an agent."""
    return os.path.join(directory, f"{pid}-{started_ticks}.sock")


def listener_pid(path: str, within_ms: int) -> int | None:
    """Return the pid of the process that listens at *path*, by the kernel's word, or None.

    It is 0 for one that is there and of which the kernel does not say more: it lets nobody
    in for *within_ms*, or is in a pid namespace that we do not see into.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        try:
            _connect(asked, path, within_ms)
            pid, _ = peer_of(asked.fileno())
        except BlockingIOError:
            return 0
        except OSError:
            return None
    return pid


def peer_of(fd: int) -> tuple[int, int]:
    """Return pid and uid of who called `listen` on the other side of a connection.

    Raises:
        OSError: it is none.
    """
    own = os.dup(fd)
    try:
        connected = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
    with connected:
        raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return pid, uid


def _check_owner(connected: socket.socket, path: str) -> None:
    _, uid = peer_of(connected.fileno())
    # Root is trusted, and may look after the daemons of others.
    if uid not in (0, os.getuid()) and os.getuid() != 0:
        raise NotReachable(
            f"who listens at {path} is another user (uid {uid}); nothing was said to it"
        )
