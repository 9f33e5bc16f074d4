"""One line of an agent's log as it is written: when (UTC), an event, and key=value after it.

The agent writes its own, and the daemon the last one of a life; both can be taken apart
again in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

#: What a value is quoted for: otherwise a line could not be taken apart again.
_SPECIAL = frozenset(" =\\'\"")


def moment() -> str:
    """Return the time of day (UTC) as the daemon's log has it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def log_line(event: str, fields: Mapping[str, object]) -> str:
    """Return the line with its end; fields that are None are left out."""
    said = "".join(f" {key}={_value(value)}" for key, value in fields.items() if value is not None)
    # As the daemon's log has it, so that both can be laid side by side.
    return f"{moment()} {event}{said}\n"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    plain = text.isprintable() and not _SPECIAL.intersection(text)
    return text if text and plain else ascii(text)
