"""Which lines of the `claude` program belong to the turn that was asked for.

When a background command ends, the program runs a turn of its own, with a result of
its own, before it takes up the prompt that waits. In duplex mode it repeats each
prompt as it takes it up: what came before is nobody's, and the first result after it
is the prompt's, whatever it says of its origin, for a prompt may be taken up in the
middle of a turn that has begun. Otherwise nothing but the origin of a result tells.

A prompt is repeated with the id that it was given; versions that give it another are
known by its text. Once a program has repeated one prompt it is known to do so, and
whatever ends a turn before the next one is repeated ended an earlier turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_backends.foreign import at, text_at
from genagent_protocol.plain import FrozenDict

#: How a program repeats prompts, as far as it has shown; "never": it was not asked to.
Repeats: TypeAlias = Literal["never", "not yet", "by text", "by id"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it was given to the program, with an id that no other one has."""

    text: str
    id: str


class Asked:
    """The lines of one turn, which begins with *prompt* or is all that the program is run for."""

    def __init__(self, prompt: Prompt | None = None, repeats: Repeats = "never") -> None:
        self._prompt = prompt
        self._taken_up = False
        #: What the program's next turn shall know.
        self.repeats: Repeats = repeats
        # Some versions repeat a prompt a little late, when its first words were streamed.
        self._beginning: list[FrozenDict] = []

    def own(self, line: FrozenDict) -> Iterator[FrozenDict]:
        """Yield the lines that are known to be the turn's once *line* has come."""
        if line.get("isReplay") is True and not self._taken_up:
            self._taken_up = self._is_repeated(line)
            if self._taken_up:
                yield from self._beginning
            self._beginning = []
        elif line.get("type") == "result":
            # One without an origin answers a prompt, and no other prompt is waiting.
            if self._taken_up or (line.get("origin") is None and not self._awaits_repetition):
                yield line
        elif line.get("type") == "error":
            if self._taken_up or not self._awaits_repetition:
                yield line
        elif self._taken_up or self._prompt is None or line.get("type") == "system":
            yield line
        elif line.get("type") != "stream_event":
            self._beginning = []
        elif text_at(line, "event", "type") == "message_start":
            self._beginning = [line]
        elif at(line, "event", "type") != "message_stop":
            self._beginning.append(line)

    @property
    def _awaits_repetition(self) -> bool:
        # A blank prompt is answered at once, and not repeated.
        blank = self._prompt is None or not self._prompt.text.strip()
        return self.repeats in ("by text", "by id") and not blank

    def _is_repeated(self, line: FrozenDict) -> bool:
        """Return whether *line*, which repeats some prompt, repeats ours."""
        if self._prompt is None:
            return False
        if text_at(line, "uuid") == self._prompt.id:
            self.repeats = "by id"
            return True
        if self.repeats == "by id":
            return False
        content = at(line, "message", "content")
        # The program's own commands are repeated in its own words.
        said = self._prompt.text
        if isinstance(content, str) and content != said and said.strip()[:1] not in ("", "/"):
            return False
        self.repeats = "by text"
        return True
