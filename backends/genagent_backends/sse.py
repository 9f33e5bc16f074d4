"""Server-sent events, read from bytes that may be cut anywhere.

Lines end in LF, CR or CRLF; an event ends at a blank line; comments and unknown
fields are skipped; an event that the end of the stream cuts short is dropped, as
the standard says. An event over the limit is an error of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from genagent_backends.lines import MAX_LINE_BYTES

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event: its name (`message` if it has none) and its data lines put together."""

    name: str
    data: str


class SseTooLong(Exception):
    """An event was longer than the limit; the stream cannot be trusted any further."""


class SseReader:
    """Makes events of what is fed. It holds at most one event, and never more than the limit."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._begun = bytearray()
        self._name = ""
        self._data: list[bytes] = []
        self._held_bytes = 0
        self._half = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Yield the events that *chunk* completes.

        Raises:
            SseTooLong: an event is longer than the limit.
        """
        plain = b"\n" not in chunk and b"\r" not in chunk and not self._half
        self._begun += chunk
        if not plain:  # else a long line that arrives in pieces would be split again and again
            for line in self._whole_lines():
                yield from self._line(line)
        if self._held_bytes + len(self._begun) > self.limit_bytes:
            raise SseTooLong(f"an event is longer than {self.limit_bytes} bytes")

    def _whole_lines(self) -> list[bytes]:
        if self._first and len(self._begun) >= len(BOM):
            self._begun, self._first = self._begun.removeprefix(BOM), False
        # A CR at the very end may be half of a CRLF.
        self._half = self._begun.endswith(b"\r")
        whole = bytes(self._begun[:-1] if self._half else self._begun)
        *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._begun = bytearray(rest + b"\r" * self._half)
        return lines

    def _line(self, line: bytes) -> Iterator[SseEvent]:
        if not line:
            if self._data:
                text = b"\n".join(self._data).decode("utf-8", "replace")
                yield SseEvent(self._name or "message", text)
            self._name, self._data, self._held_bytes = "", [], 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._held_bytes += len(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
