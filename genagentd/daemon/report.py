"""The daemon's log: one line per event on standard error, and never any content.

On a terminal a person reads it; elsewhere it is JSON. Identities, sizes, durations
and reasons only: no prompt, no event body, no reply, no option.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog


def configure(log_format: Literal["auto", "console", "json"]) -> None:
    """Set up where and how this process's log is written."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def report(event: str, /, **facts: object) -> None:
    """Write one line."""
    structlog.get_logger().info(event, **facts)


def warn(event: str, /, **facts: object) -> None:
    """Write one line about something an operator should look at."""
    structlog.get_logger().warning(event, **facts)
