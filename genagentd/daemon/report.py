"""The daemon's log: one line per event on standard error, and never any content.

On a terminal a person reads it; elsewhere it is JSON. Identities, sizes, durations
and reasons only: no prompt, no event body, no reply, no option. Writing it never
fails and never waits: what a stuck or full standard error does not take is dropped,
and counted in the next line that it does take.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
from pathlib import Path
from typing import Any, Literal

import structlog

from genagent_protocol.errors import UsageError
from genagentd.paths import open_log
from genagentd.unusable import NoRoom

#: The size at which our own log file is moved aside; two of them are kept.
MAX_BYTES = 10 * 1024 * 1024


class _StandardError:
    """Standard error as the log writes it; perhaps a file of our own, which never fills a disk."""

    def __init__(self) -> None:
        self._own: Path | None = None
        self._size = 0
        self.dropped = 0
        self._poll = select.poll()
        self._poll.register(2, select.POLLOUT)

    def write(self, text: str) -> None:
        """Write *text* if that is possible at once."""
        data = text.encode("utf-8", "backslashreplace")
        if self._own is not None and self._size + len(data) > MAX_BYTES:
            with contextlib.suppress(OSError):
                os.replace(self._own, self._own.with_name(self._own.name + ".1"))
            self.reopen()
        try:
            ready = self._poll.poll(0)
            if not ready or not ready[0][1] & select.POLLOUT:
                raise BlockingIOError
            self._size += os.write(2, data)
        except OSError:
            self.dropped += 1

    def flush(self) -> None:
        """Do nothing: every line was written at once."""

    def keep(self, own: Path) -> None:
        """Look after the file *own*, if that is where standard error goes."""
        with contextlib.suppress(OSError):
            ours, there = os.fstat(2), os.stat(own)
            if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
                self._own, self._size = own, ours.st_size

    def reopen(self) -> None:
        """Go on in the file of that name as it is now, made if it was moved away."""
        if self._own is None:
            return
        try:
            fd = open_log(self._own)
        except (UsageError, NoRoom):
            return  # The old one is still there to be written.
        for standard in (1, 2):
            os.dup2(fd, standard)
        self._size = os.fstat(fd).st_size
        os.close(fd)


_stream = _StandardError()


def keep_log(own: Path) -> None:
    """Keep the log file *own* small, if standard error goes there."""
    _stream.keep(own)


def reopen() -> None:
    """Open our own log file anew: somebody moved it away."""
    _stream.reopen()


def configure(log_format: Literal["auto", "console", "json"]) -> None:
    """Set up how this process's log is written; may be called again."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = (
        # The log is a file as well, and there nobody wants what a terminal shows as colours.
        structlog.dev.ConsoleRenderer(colors=False)
        if console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(_stream),  # type: ignore[arg-type]  # it only writes and flushes
    )


def report(event: str, /, **facts: object) -> None:
    """Write one line."""
    structlog.get_logger().info(event, **facts, **_dropped())


def warn(event: str, /, **facts: object) -> None:
    """Write one line about something an operator should look at."""
    structlog.get_logger().warning(event, **facts, **_dropped())


def _dropped() -> dict[str, int]:
    """Return the count of the lines lost before this one, if there are any."""
    dropped, _stream.dropped = _stream.dropped, 0
    return {"lines_dropped": dropped} if dropped else {}
