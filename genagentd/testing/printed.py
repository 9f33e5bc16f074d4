"""What agents printed lately: the end of each log that was written since a moment."""

from __future__ import annotations

from pathlib import Path

#: How much of the end of one log is shown.
MAX_BYTES = 8_000


def printed_since(logs: Path, moment_s: float) -> list[tuple[str, str]]:
    """Return a title and the text of each log below *logs* written since *moment_s*.

    The oldest is first. This does not say which of several tests at a time it belongs to.
    """
    found = []
    for path in logs.glob("*/*.log"):
        try:
            written_s = path.stat().st_mtime
            text = path.read_bytes()
        except OSError:
            continue  # It was moved aside just now.
        # A file system may keep coarser times than the clock tells.
        if text and written_s >= moment_s - 1:
            found.append((written_s, f"printed by {path.parent.name}", _end_of(text)))
    return [(title, text) for _, title, text in sorted(found)]


def _end_of(text: bytes) -> str:
    shown = text[-MAX_BYTES:].decode("utf-8", "replace")
    return shown if len(text) <= MAX_BYTES else f"…{shown}"
