"""Which lines of the `claude` program belong to the turn that was asked for.

When a background command ends, the program runs a turn of its own, with a result of
its own, before it takes up the prompt that waits. In duplex mode it repeats each
prompt as it takes it up: what came before is nobody's, and the first result after it
is the prompt's, whatever it says of its origin, for a prompt may be taken up in the
middle of a turn that has begun. Otherwise nothing but the origin of a result tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from genagent_backends.foreign import at, text_at
from genagent_protocol.plain import FrozenDict

#: What says something of the program, and not of one of its turns.
ANYBODYS = frozenset({"system", "error"})


class Asked:
    """The lines of one turn; *repeated* says whether the program repeats its prompt."""

    def __init__(self, *, repeated: bool) -> None:
        self._repeated = repeated
        self._taken_up = False
        # Some versions repeat a prompt a little late, when its first words were streamed.
        self._beginning: list[FrozenDict] = []

    def own(self, line: FrozenDict) -> Iterator[FrozenDict]:
        """Yield the lines that are known to be the turn's once *line* has come."""
        if line.get("isReplay") is True and not self._taken_up:
            self._taken_up = self._repeated
            yield from self._beginning
            self._beginning = []
        elif line.get("type") == "result":
            # One without an origin answers a prompt, and no other prompt is waiting.
            if self._taken_up or line.get("origin") is None:
                yield line
        elif self._taken_up or not self._repeated or line.get("type") in ANYBODYS:
            yield line
        elif line.get("type") != "stream_event":
            self._beginning = []
        elif text_at(line, "event", "type") == "message_start":
            self._beginning = [line]
        elif at(line, "event", "type") != "message_stop":
            self._beginning.append(line)
