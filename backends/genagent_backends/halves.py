"""Characters that a stream cut in two: JSON may carry one half in one delta, one in the next.

Outside the first 65,536 characters JSON writes a character as two escapes, and who
cuts text by those sends half a character at the end of a delta. It waits for the next
delta of the same text. One that the next does not complete stays what it is: no text.
No more of them wait than a stream begins at a time; the oldest is given up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from genagent_backends.latest import Latest

#: An escape that is half a character, or is half of one together with another.
ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
#: So many speakers may have begun something, and so many texts each of them.
MAX_SPEAKERS = 64
MAX_TEXTS = 64
FIRST_HALF = re.compile("[\ud800-\udbff]$")


class Halves:
    """What the deltas of one stream have begun and not ended."""

    def __init__(self) -> None:
        self._held: Latest[Latest[str]] = Latest(MAX_SPEAKERS)

    def completed(self, message: object, written: str) -> None:
        """Put halves together in *message*, as a parser made it of what was *written*."""
        if isinstance(message, dict) and (self._held or ESCAPED.search(written)):
            speaker = message.get("parent_tool_use_id")
            inner = message.get("event")
            said = inner if isinstance(inner, dict) else message
            held = self._held.pop(speaker)
            if held is None or said.get("type") == "message_start":
                held = Latest(MAX_TEXTS)
            for holder, field, which in _deltas(said):
                _complete(held, which, holder, field)
            if held:
                self._held.put(held, speaker)


def _complete(
    held: Latest[str], which: tuple[object, ...], holder: dict[str, object], field: str
) -> None:
    text = (held.pop(field, *which) or "") + str(holder[field])
    if FIRST_HALF.search(text):
        held.put(text[-1], field, *which)
        text = text[:-1]
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    holder[field] = whole


def _deltas(
    said: dict[str, object],
) -> Iterator[tuple[dict[str, object], str, tuple[object, ...]]]:
    """Yield where each text of a delta is, and which text it goes on with."""
    choices = said.get("choices")
    parts = [said, *(choices if isinstance(choices, list) else ())]
    for part in parts:
        if not isinstance(part, dict):
            continue
        which = tuple(part.get(name) for name in ("index", "item_id", "content_index"))
        delta = part.get("delta")
        if isinstance(delta, str):
            yield part, "delta", which
        elif isinstance(delta, dict):
            for field, text in delta.items():
                if isinstance(text, str):
                    yield delta, field, which
