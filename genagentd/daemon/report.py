"""The daemon's log: one line per event on standard error, and never any content.

On a terminal a person reads it; elsewhere it is JSON, and systemd's journal is told how
much each line matters. Identities, sizes, durations
and reasons only: no prompt, no event body, no reply, no option. Writing it never
fails and never waits: what a stuck or full standard error does not take is dropped,
and counted in the next line that it does take.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Literal

import structlog

from genagent_protocol.errors import UsageError
from genagentd.daemon.standard_error import StandardError
from genagentd.paths import make_private, open_log


def _opened(own: str) -> int:
    path = Path(own)
    try:
        # Somebody may have removed it with its directory, and another one made that anew.
        make_private(path.parent)
        return open_log(path)
    except UsageError as error:
        raise OSError(str(error)) from None


_stream = StandardError(_opened)


def keep_log(own: Path) -> None:
    """Keep the log file *own* small, if standard error goes there."""
    _stream.keep(str(own))


def reopen() -> None:
    """Open our own log file anew: somebody moved it away, or removed it with its directory.

    Where that cannot be, the log goes on as it was, and says so.
    """
    try:
        _stream.reopen()
    except OSError as error:
        warn("log.lost", message=str(error))


def configure(log_format: Literal["auto", "console", "json"]) -> None:
    """Set up how this process's log is written; may be called again."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = (
        # The log is a file as well, and there nobody wants what a terminal shows as colours.
        structlog.dev.ConsoleRenderer(colors=False)
        if console
        else structlog.processors.JSONRenderer()
    )
    if goes_to_the_journal(os.environ):
        renderer = _with_priority(renderer)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _count_dropped,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(_stream),  # type: ignore[arg-type]  # it only writes and flushes
    )


def goes_to_the_journal(environ: Mapping[str, str]) -> bool:
    """Whether standard error is the stream to systemd's journal that *environ* names.

    Whoever was started with the one may have the other elsewhere: systemd.exec(5), $JOURNAL_STREAM.
    """
    found = os.fstat(2)
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _with_priority(renderer: Any) -> Any:
    """Have the journal read the level of each line, which it takes away: sd-daemon(3)."""

    def rendered(logger: object, method: str, line: MutableMapping[str, Any]) -> str:
        return f"<{4 if method == 'warning' else 6}>{renderer(logger, method, line)}"

    return rendered


def report(event: str, /, **facts: object) -> None:
    """Write one line."""
    structlog.get_logger().info(event, **facts)
    _tell_emptied()


def warn(event: str, /, **facts: object) -> None:
    """Write one line about something an operator should look at."""
    structlog.get_logger().warning(event, **facts)
    _tell_emptied()


def _tell_emptied() -> None:
    """Say, behind the first line in it, that what was in our log file is lost, if it is."""
    why, _stream.emptied = _stream.emptied, None
    if why is not None:
        warn("log.emptied", message=why)


def _count_dropped(
    _logger: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Have the line say how many were lost before it, if there are any."""
    return {**line, "lines_dropped": _stream.dropped} if _stream.dropped else line
