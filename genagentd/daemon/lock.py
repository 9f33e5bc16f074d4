"""The lock that makes a daemon the only one of its runtime directory.

That it is held is the kernel's word. Who holds it stands in the file, as a pid and the
tick that process started at, and is believed only where such a process runs: what a
daemon that was killed left there may be a stranger's number by now.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import shlex
import stat
import time
from pathlib import Path
from typing import NamedTuple

from genagentd import kernel
from genagentd.paths import Places
from genagentd.private_files import open_private
from genagentd.socket_path import UnusablePlace, listener_pid
from genagentd.unusable import OTHER, NoRoom, unusable

#: A planted link is not followed, and a planted pipe blocks nobody.
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: How long a reader waits for a lock holder to write who it is, and a daemon for readers.
_WAIT_S = 2.0
_PAUSE_S = 0.005
_WRITTEN = re.compile(rb"([0-9]{1,10}) ([0-9]{1,20})\n")


class Holder(NamedTuple):
    """One process, which no other one with its number is; 0 is one of unknown number."""

    pid: int
    started_ticks: int

    @property
    def alive(self) -> bool:
        """Whether exactly this process runs."""
        return kernel.is_alive(self.pid, self.started_ticks)


class Lock:
    """The lock, held until it is released, or by the kernel's doing until this process ends."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @property
    def is_there(self) -> bool:
        """Whether the file that we hold still has its name.

        Somebody may have removed the directory, and another daemon may live in its successor.
        """
        return self._is(self._path)

    def is_in(self, directory: int) -> bool:
        """Whether that is so in the open directory *directory*, wherever its own name leads now."""
        return self._is(Path(self._path.name), directory)

    def _is(self, path: Path, within: int | None = None) -> bool:
        with contextlib.suppress(OSError):
            found = os.stat(path, dir_fd=within, follow_symlinks=False)
            return os.path.samestat(found, os.fstat(self._fd))
        return False

    def renew(self) -> bool:
        """Hold a new file, if somebody removed ours; False if another daemon holds that.

        Raises:
            UnusablePlace, NoRoom: there can be no such file.
        """
        if self.is_there:
            return True
        new = _opened(self._path)
        if new is None:
            return False
        os.close(self._fd)
        self._fd = new
        return True

    def release(self) -> None:
        """Let go of it, with nobody's name in it.

        The file stays: removing it would let two daemons lock two files of one name.
        """
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def take(places: Places) -> Lock | None:
    """Return the lock of this runtime directory, or None if another daemon holds it.

    Raises:
        UnusablePlace: the file cannot be used as one, or somebody keeps it locked for reading.
        NoRoom: it cannot be written for want of room on the disk.
    """
    fd = _opened(places.lock)
    return None if fd is None else Lock(places.lock, fd)


def _opened(path: Path) -> int | None:
    """Return the file of that name, locked and with our name in it, or None if it is taken."""
    try:
        fd = open_private(path, _FLAGS | os.O_RDWR)
    except OSError as error:
        raise unusable(f"{path} cannot be used as a lock", error, "remove it") from None
    try:
        held = _hold(fd, path)
    except (UnusablePlace, NoRoom):
        os.close(fd)
        raise
    except OSError as error:
        os.close(fd)
        raise unusable(f"{path} cannot be locked", error, OTHER) from None
    if held:
        return fd
    os.close(fd)
    return None


def _hold(fd: int, path: Path) -> bool:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise UnusablePlace(f"{path} is no plain file; remove it")
    deadline = time.monotonic() + _WAIT_S
    while not _got(fd, fcntl.LOCK_EX):
        # Whoever only looks whether it is locked holds it for a moment, too.
        if not _got(fd, fcntl.LOCK_SH):
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
        if time.monotonic() > deadline:
            raise UnusablePlace(
                f"somebody else holds a shared lock on {path}, which is the daemon's alone; "
                f"see who with: fuser {shlex.quote(str(path))}"
            )
        time.sleep(_PAUSE_S)
    _write_holder(fd, path)
    return True


def _write_holder(fd: int, path: Path) -> None:
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {kernel.started_ticks(os.getpid())}\n".encode(), 0)
    except OSError as error:
        raise unusable(f"{path} cannot be written", error, OTHER) from None


def _got(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(places: Places) -> bool:
    """Whether a daemon holds the lock of this runtime directory."""
    try:
        fd = os.open(places.lock, _FLAGS | os.O_RDONLY)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and not _got(fd, fcntl.LOCK_SH)
    except OSError:
        return False  # Nothing there can be locked.
    finally:
        os.close(fd)


def holder(places: Places, within_s: float = math.inf) -> Holder | None:
    """Return the daemon that holds the lock; None if nobody does, or the file does not say who.

    This does not wait for long for that to be written, however long it may.
    """
    deadline = time.monotonic() + min(within_s, _WAIT_S)
    while is_locked(places):
        found = _written(places.lock)
        if found is not None and found.alive:
            return found
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE_S)
    return None


def _written(path: Path) -> Holder | None:
    try:
        said = _WRITTEN.fullmatch(path.read_bytes())
    except OSError:
        return None
    return None if said is None else Holder(int(said[1]), int(said[2]))


def listener(places: Places, within_s: float = math.inf) -> Holder | None:
    """Return who listens at the daemon's socket, as a daemon does whose lock was removed.

    Its pid is 0 if it is there, and who it is cannot be known in that time, or at all. This
    does not wait for long, however long it may.
    """
    pid = listener_pid(places.socket, round(min(within_s, _WAIT_S) * 1000))
    return None if pid is None else Holder(pid, kernel.started_ticks(pid))
