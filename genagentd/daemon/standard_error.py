"""Standard error as a log writes it: whole lines, at once or not at all, and never waiting.

Its open file description may belong to a terminal or to whoever started us as well, so
that O_NONBLOCK cannot simply be set there: a pipe and a terminal are opened once more
for us alone. A line of which only a part went out is lost, and what comes next
begins on a line of its own. A file of our own is kept small.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
from collections.abc import Callable

#: The size at which our own log file is moved aside; two of them are kept.
MAX_BYTES = 10 * 1024 * 1024


class StandardError:
    """Where lines go: descriptor 2, perhaps a file of our own, which never fills a disk."""

    def __init__(self, opened: Callable[[str], int]) -> None:
        """Open our own file with *opened*, which raises OSError, whenever it is to be anew."""
        self._opened = opened
        self._own: str | None = None
        self._size = 0
        #: Whether what was written last is no whole line.
        self._cut = False
        #: How many lines were lost since the last one that was written.
        self.dropped = 0
        #: Why the file could not be moved aside when it was emptied, until somebody has said so.
        self.emptied: str | None = None
        self._poll = select.poll()
        self._poll.register(2, select.POLLOUT)
        #: What descriptor 2 was when it was looked at, and our own way there.
        self._seen: tuple[int, int] | None = None
        self._way: int | None = None

    def write(self, text: str) -> None:
        """Write *text*, a line with its end, if that is possible at once; count it otherwise."""
        line = text.encode("utf-8", "backslashreplace")
        if self._own is not None and self._size + len(line) > MAX_BYTES:
            self._begin_anew(self._own)
        data = b"\n" + line if self._cut else line
        done = self._write_at_once(data)
        self._size += done
        if done:
            # A newline alone has ended the cut line and begun none.
            self._cut = len(data) - len(line) < done < len(data)
        # One of which only the newline is missing can be read, and gets that with the next one.
        self.dropped = 0 if done >= len(data) - 1 else self.dropped + 1

    def flush(self) -> None:
        """Do nothing: every line was written at once."""

    def keep(self, own: str) -> None:
        """Look after the file *own*, if that is where standard error goes."""
        with contextlib.suppress(OSError):
            ours, there = os.fstat(2), os.stat(own)
            if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
                self._own = own
                self._look()

    def reopen(self) -> None:
        """Go on in our own file of that name as it is now, made if it is not there.

        Raises:
            OSError: it cannot be opened; everything is as before.
        """
        if self._own is None:
            return
        fd = self._opened(self._own)
        _stand(fd)
        self._look()

    def let_go(self) -> None:
        """Hold our own file no more: until `reopen`, nothing is written anywhere."""
        if self._own is not None:
            _stand(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))

    def _look(self) -> None:
        """See how much is in our own file, and whether it ends within a line."""
        assert self._own is not None
        self._size, self._cut = os.fstat(2).st_size, False
        if self._size:
            with contextlib.suppress(OSError):
                fd = os.open(self._own, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    self._cut = os.pread(fd, 1, self._size - 1) != b"\n"
                finally:
                    os.close(fd)

    def _begin_anew(self, own: str) -> None:
        """Move our own file aside and begin another one; where that fails, empty it."""
        try:
            # Somebody may have removed it: then there is nothing to keep.
            with contextlib.suppress(FileNotFoundError):
                os.replace(own, f"{own}.1")
            self.reopen()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(2, 0)
                self._size, self._cut = 0, False
                self.emptied = str(error)

    def _write_at_once(self, data: bytes) -> int:
        """Return how many bytes of *data* went out without waiting."""
        done = 0
        with contextlib.suppress(OSError):
            found = os.fstat(2)
            self._find_a_way(found)
            while done < len(data):
                if self._way is not None:
                    done += os.write(self._way, data[done:])
                elif stat.S_ISREG(found.st_mode):
                    done += os.write(2, data[done:])
                else:
                    done += self._write_a_page(data[done:])
        return done

    def _write_a_page(self, data: bytes) -> int:
        # Whatever says that it takes something takes as much as a pipe does: one page of it.
        ready = self._poll.poll(0)
        if not ready or not ready[0][1] & select.POLLOUT:
            raise BlockingIOError
        return os.write(2, data[: select.PIPE_BUF])

    def _find_a_way(self, found: os.stat_result) -> None:
        """Have our own way to what descriptor 2 is now, if it can be had: one that never waits."""
        if self._seen == (found.st_dev, found.st_ino):
            return
        self._seen = (found.st_dev, found.st_ino)
        if self._way is not None:
            os.close(self._way)
            self._way = None
        if stat.S_ISFIFO(found.st_mode) or os.isatty(2):
            # It may be another user's, and then only looking first is left.
            with contextlib.suppress(OSError):
                self._way = _once_more()


def _once_more() -> int:
    """Return a descriptor of our own, which never waits, of what standard error is."""
    return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _stand(fd: int) -> None:
    """Have *fd* be standard output and standard error from now on."""
    for standard in (1, 2):
        os.dup2(fd, standard)
    os.close(fd)
