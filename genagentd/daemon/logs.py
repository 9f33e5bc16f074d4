"""What agents print: taken from a pipe, written to a file that can never fill the disk.

Each incarnation has a file of at most `MAX_BYTES`, and the one before it; of each name
the latest `MAX_LIVES` incarnations keep theirs. The daemon
reads a little at a time, so that an agent that prints without end slows nobody
else; an agent that prints faster than that waits for its own pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from genagent_protocol.refs import Incarnation, MalformedIdentity
from genagentd.daemon.children import enlarge
from genagentd.leftovers import own_directory
from genagentd.paths import make_all, open_log
from genagentd.socket_path import UnusablePlace
from genagentd.unusable import OTHER, unusable

#: The size at which a log is moved aside; two of them are kept.
MAX_BYTES = 10 * 1024 * 1024
#: How many incarnations of one name keep their logs.
MAX_LIVES = 10
#: How much is taken from one agent in one loop turn.
STEP_BYTES = 65_536
#: How much an agent can print before it has to wait for us.
PIPE_BYTES = 1024 * 1024


class Log:
    """The log of one incarnation. Its file exists from the start, so that it can be named."""

    def __init__(self, path: Path) -> None:
        """Make it.

        Raises:
            UnusablePlace: what is there is in its way.
            OSError: there is no room for it; of the disk, that is a NoRoom.
        """
        try:
            make_all(path.parent)
        except OSError as error:
            raise unusable(f"the directory {path.parent} cannot be made", error, OTHER) from None
        self.path = path
        self._file = open_log(path)
        _forget_oldest(path.parent)
        self._size = os.fstat(self._file).st_size
        try:
            self._pipe, self.write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            os.close(self._file)
            raise
        os.set_blocking(self.write_fd, True)
        enlarge(self._pipe, PIPE_BYTES)
        self._closed = False
        #: Whether what was written last is no whole line.
        self._within_line = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._read)

    def handed_over(self) -> None:
        """The agent has its end now; ours would keep the pipe from ending."""
        os.close(self.write_fd)

    def _read(self) -> bool:
        """Take one step; True when there may be more."""
        try:
            said = os.read(self._pipe, STEP_BYTES)
        except BlockingIOError:
            return False
        if not said:
            self._loop.remove_reader(self._pipe)
            return False
        self._write(said)
        return True

    def _write(self, said: bytes) -> None:
        try:
            if self._size + len(said) > MAX_BYTES:
                self._move_aside()
            self._size += os.write(self._file, said)
            self._within_line = not said.endswith(b"\n")
        except (OSError, UnusablePlace):
            return  # A full disk, or what somebody planted, must not take the agents with it.

    def _move_aside(self) -> None:
        # Somebody may have removed it, or its directory: then there is nothing to keep.
        make_all(self.path.parent)
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path, self.path.with_suffix(".log.1"))
        new = open_log(self.path)
        os.close(self._file)
        self._file, self._size = new, 0

    def has_lines(self) -> bool:
        """Whether anything was printed, counting what still waits in the pipe."""
        if not self._closed:
            self._take_the_rest()
        return self._size > 0

    def _take_the_rest(self) -> None:
        """Take what the pipe held at most: whoever prints without end has no end to wait for."""
        for _ in range(PIPE_BYTES // STEP_BYTES + 1):
            if not self._read():
                break

    def close(self, last_line: str = "") -> None:
        """Take what is left, at most what the pipe held, write *last_line*, and close."""
        self._take_the_rest()
        if last_line:
            self._write_own(last_line)
        self._closed = True
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        os.close(self._file)

    def _write_own(self, line: str) -> None:
        # It counts for nothing: `has_lines` is about what the agent printed.
        with contextlib.suppress(OSError):
            own = f"\n{line}" if self._within_line else line
            os.write(self._file, own.encode("utf-8", "backslashreplace"))


def _forget_oldest(directory: Path) -> None:
    """Keep the logs of the latest incarnations of that name only, and whatever is no log of one."""
    # Somebody may tidy up as well: what is gone already is forgotten.
    with contextlib.suppress(OSError), own_directory(directory) as opened:
        names = filter(_is_log, os.listdir(opened))
        found = sorted((_written(name, opened), name) for name in names)
        for _, name in found[: max(0, len(found) - MAX_LIVES)]:
            for each in (name, f"{name}.1"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(each, dir_fd=opened)


def _is_log(name: str) -> bool:
    """Whether a file is called as the log of an incarnation is: nobody else's is called so."""
    try:
        Incarnation.parse(name.removesuffix(".log"))
    except MalformedIdentity:
        return False
    return name.endswith(".log")


def _written(name: str, within: int) -> int:
    try:
        return os.stat(name, dir_fd=within, follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0
