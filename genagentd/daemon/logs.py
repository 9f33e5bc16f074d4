"""What agents print: taken from a pipe, written to a file that can never fill the disk.

Each incarnation has a file of at most `MAX_BYTES`, and the one before it; of each name
the latest `MAX_LIVES` incarnations keep theirs. The daemon
reads a little at a time, so that an agent that prints without end slows nobody
else; an agent that prints faster than that waits for its own pipe. What could not be
written is lost, and a line of ours says how much.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from genagent_protocol.refs import Incarnation, MalformedIdentity
from genagentd.daemon.children import enlarge
from genagentd.leftovers import own_directory
from genagentd.log_line import log_line
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
        self._printed = self._size > 0
        #: How many bytes were lost of which the log does not say so yet.
        self._lost_bytes = 0
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
        """Write *said*; what cannot be is lost: a full disk must not take the agents with it."""
        fits = self._size + len(said) <= MAX_BYTES or self._begin_anew()
        done = self._append(said) if fits and self._tell_lost() else 0
        self._printed = self._printed or done > 0
        self._lost_bytes += len(said) - done

    def _append(self, data: bytes) -> int:
        """Write *data* as far as that goes, and return how far."""
        done = 0
        with contextlib.suppress(OSError):
            while done < len(data):
                done += os.write(self._file, data[done:])
        self._size += done
        if done:
            self._within_line = data[done - 1 : done] != b"\n"
        return done

    def _begin_anew(self) -> bool:
        """Move the file aside and go on in a new one, or empty it; False if neither can be."""
        try:
            # Somebody may have removed it, or its directory: then there is nothing to keep.
            make_all(self.path.parent)
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.path, self.path.with_suffix(".log.1"))
            new = open_log(self.path)
        except (OSError, UnusablePlace):
            return self._empty()
        os.close(self._file)
        self._file, self._size, self._within_line = new, 0, False
        return True

    def _empty(self) -> bool:
        # Whatever stands in the way: what is printed last says most of how it ended.
        try:
            os.ftruncate(self._file, 0)
        except OSError:
            return False
        self._lost_bytes += self._size
        self._size, self._within_line = 0, False
        return True

    def _tell_lost(self) -> bool:
        """Say how much was lost, if anything was; False if that cannot be said yet."""
        if self._lost_bytes:
            if not self._write_own(log_line("output.lost", {"bytes": self._lost_bytes})):
                return False
            self._lost_bytes = 0
        return True

    def has_lines(self) -> bool:
        """Whether anything was printed, counting what still waits in the pipe."""
        if not self._closed:
            self._take_the_rest()
        return self._printed

    def _take_the_rest(self) -> None:
        """Take what the pipe held at most: whoever prints without end has no end to wait for."""
        for _ in range(PIPE_BYTES // STEP_BYTES + 1):
            if not self._read():
                break

    def close(self, last_line: str = "") -> None:
        """Take what is left, at most what the pipe held, write *last_line*, and close."""
        self._take_the_rest()
        self._tell_lost()
        if last_line:
            self._write_own(last_line)
        self._closed = True
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        os.close(self._file)

    def _write_own(self, line: str) -> bool:
        """Write a line of ours, which begins as one; it is nothing that the agent printed."""
        own = (f"\n{line}" if self._within_line else line).encode("utf-8", "backslashreplace")
        return self._append(own) == len(own)


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
