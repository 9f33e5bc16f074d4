"""Characters that a stream cut in two: JSON may carry one half in one delta, one in the next.

Outside the first 65,536 characters JSON writes a character as two escapes, and who
cuts text by those sends half a character at the end of a delta. It waits for the next
delta of the same text. One that the next does not complete stays what it is: no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: An escape that is half a character, or is half of one together with another.
ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
FIRST_HALF = re.compile("[\ud800-\udbff]$")


class Halves:
    """What the deltas of one stream have begun and not ended."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, str]] = {}

    def completed(self, message: object, written: str) -> None:
        """Put halves together in *message*, as a parser made it of what was *written*."""
        if isinstance(message, dict) and (self._held or ESCAPED.search(written)):
            speaker = repr(message.get("parent_tool_use_id"))
            inner = message.get("event")
            said = inner if isinstance(inner, dict) else message
            if said.get("type") == "message_start":
                self._held.pop(speaker, None)
            for holder, field, which in _deltas(said):
                self._complete(speaker, which, holder, field)

    def _complete(self, speaker: str, which: str, holder: dict[str, object], field: str) -> None:
        held = self._held.get(speaker, {})
        text = held.pop(which, "") + str(holder[field])
        if FIRST_HALF.search(text):
            text, held[which] = text[:-1], text[-1]
        self._held[speaker] = held
        if not held:
            del self._held[speaker]
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        holder[field] = whole


def _deltas(said: dict[str, object]) -> Iterator[tuple[dict[str, object], str, str]]:
    """Yield where each text of a delta is, and which text it goes on with."""
    choices = said.get("choices")
    parts = [said, *(choices if isinstance(choices, list) else ())]
    for part in parts:
        if not isinstance(part, dict):
            continue
        which = repr([part.get(name) for name in ("index", "item_id", "content_index")])
        delta = part.get("delta")
        if isinstance(delta, str):
            yield part, "delta", which
        elif isinstance(delta, dict):
            for field, text in delta.items():
                if isinstance(text, str):
                    yield delta, field, f"{which}{field}"
