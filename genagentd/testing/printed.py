"""What agents printed since a moment: the end of what came to each log after it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: How much of the end of one log is shown.
MAX_BYTES = 8_000


def lengths(logs: Path) -> dict[Path, int]:
    """Return how long each log below *logs* is now."""
    found = {}
    for path in logs.glob("*/*.log"):
        try:
            found[path] = path.stat().st_size
        except OSError:
            continue  # It was moved aside just now.
    return found


def printed_since(logs: Path, before: Mapping[Path, int]) -> list[tuple[str, str]]:
    """Return a title and the text of what came to each log since it was as long as *before* says.

    The log that was written to first is first. This does not say which of several tests
    at a time it belongs to.
    """
    found = []
    for path, length in lengths(logs).items():
        known = before.get(path, 0)
        try:
            # One that is shorter was begun anew.
            text = path.read_bytes()[known if known <= length else 0 :]
            written_s = path.stat().st_mtime
        except OSError:
            continue
        if text:
            life = path.stem.rpartition("-")[2]
            found.append((written_s, f"printed by {path.parent.name} ({life})", _end_of(text)))
    return [(title, text) for _, title, text in sorted(found)]


def _end_of(text: bytes) -> str:
    shown = text[-MAX_BYTES:].decode("utf-8", "replace")
    return shown if len(text) <= MAX_BYTES else f"…{shown}"
