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
    """Makes events of what is fed. It holds at most one event, and never more than the limit.

    An event is as long as its name and its data, with a line end after each line of it.
    """

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._begun = bytearray()
        self._name = ""
        self._data = bytearray()
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Yield the events that *chunk* completes.

        Raises:
            SseTooLong: an event is longer than the limit.
        """
        if chunk and self._after_cr:
            # The line has ended with the CR: who waits for the LF may wait for ever.
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        self._begun += chunk
        if b"\n" in chunk or b"\r" in chunk:
            # Else a long line that arrives in pieces would be split again and again.
            self._after_cr = chunk.endswith(b"\r")
            for line in self._whole_lines():
                yield from self._line(line)
        if len(self._name) + len(self._data) + len(self._begun) > self.limit_bytes:
            raise SseTooLong(f"an event is longer than {self.limit_bytes} bytes")

    def _whole_lines(self) -> list[bytes]:
        whole = bytes(self._begun)
        if self._first:
            whole, self._first = whole.removeprefix(BOM), False
        *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._begun = bytearray(rest)
        return lines

    def _line(self, line: bytes) -> Iterator[SseEvent]:
        if not line:
            if self._data:
                text = self._data[:-1].decode("utf-8", "replace")
                yield SseEvent(self._name or "message", text)
            self._name, self._data = "", bytearray()
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data += value + b"\n"
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
