"""Bytes of a program's output, cut into lines of JSON, with a bound on every line.

Bytes may be cut anywhere and the last line may lack its newline. A line that is
no JSON object is noise: skipped and counted, as blank ones are. A line over the
limit is reported once and never held; nothing after it is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from genagent_backends.foreign import json_object
from genagent_backends.halves import Halves
from genagent_protocol.plain import FrozenDict

MAX_LINE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LineTooLong:
    """One line was longer than the limit; what it said is lost."""

    limit_bytes: int


Line: TypeAlias = FrozenDict | LineTooLong


class LineSplitter:
    """Cuts what is fed into lines. It holds at most one line, and never more than the limit."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        #: Lines that were skipped because they were no JSON object, and because they were empty.
        self.noise_lines = 0
        self.blank_lines = 0
        #: Lines that no reader has taken yet, for the next one that reads the same output.
        self.ready: deque[Line] = deque()
        self._begun = bytearray()
        self._overlong = False
        self._halves = Halves()

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that *data* completes, in order."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            yield from self._line(data[start:end])
            start = end + 1
        self._keep(data[start:])

    def finish(self) -> Iterator[Line]:
        """Yield the last line, if the output ended without a newline."""
        yield from self._line(b"")

    def whole(self) -> Line | None:
        """Return the line that has begun if it is an object already: its newline may never come."""
        if self._overlong or json_object(self._begun.decode("utf-8", "replace")) is None:
            return None
        return next(self._line(b""), None)

    def _keep(self, data: bytes) -> None:
        if len(self._begun) + len(data) > self.limit_bytes:
            self._overlong = True
        if self._overlong:
            self._begun = bytearray()
        else:
            self._begun += data

    def _line(self, end: bytes) -> Iterator[Line]:
        self._keep(end)
        line, overlong = self._begun, self._overlong
        self._begun, self._overlong = bytearray(), False
        if overlong:
            yield LineTooLong(self.limit_bytes)
        elif not line.strip():
            self.blank_lines += 1
        elif (value := json_object(line.decode("utf-8", "replace"), self._halves)) is not None:
            yield value
        else:
            self.noise_lines += 1
