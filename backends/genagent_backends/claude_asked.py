"""Which lines of the `claude` program belong to the turn that was asked for.

When a background command ends, the program runs a turn of its own, with a result of
its own, before it takes up the prompt that waits. In duplex mode it repeats each
prompt as it takes it up: what came before is nobody's, and the first result after it
is the prompt's, whatever it says of its origin, for a prompt may be taken up in the
middle of a turn that has begun. Otherwise nothing but the origin of a result tells.

A prompt is repeated with the id that it was given; versions that give it another are
known by its text. Once a program has repeated one prompt it is known to do so, and
whatever ends a turn before the next one is repeated ended an earlier turn.

Not every prompt is repeated: a hook may block it, a budget be used up. Newer versions
tell of each prompt that it is started, which counts as its repetition, and that it is
completed, which may come before its result. Of older ones, and of a prompt that is
completed and has no result, nothing more can be known than that no line comes any more:
after such a silence the last ending that came is taken for the prompt's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_backends.foreign import Held, at, text_at
from genagent_backends.lines import MAX_LINE_BYTES
from genagent_protocol.plain import FrozenDict

#: How much is kept of what comes before a prompt is repeated, as much as of a line.
MAX_BEGINNING_BYTES = MAX_LINE_BYTES
#: How a program repeats prompts, as far as it has shown; "never": it was not asked to.
Repeats: TypeAlias = Literal["never", "not yet", "by text", "by id"]


#: How long a prompt that is not repeated may go unmentioned after a result without an origin.
UNREPEATED_MS = 3_000
#: How long the result of a completed prompt may take; the program's hooks run meanwhile.
UNTOLD_MS = 30_000


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
        self._held = Held()
        #: Whether the program has told of this prompt; then it will also tell that it is started.
        self._told_of = False
        self._ending: FrozenDict | None = None

    def own(self, line: FrozenDict) -> Iterator[FrozenDict]:
        """Yield the lines that are known to be the turn's once *line* has come."""
        if line.get("type") == "command_lifecycle":
            yield from self._lived(line)
        elif line.get("isReplay") is True and not self._taken_up:
            if self._is_repeated(line):
                yield from self._take_up()
            self._begin()
        elif line.get("type") == "result":
            # One without an origin answers a prompt, and no other prompt is waiting.
            if self._taken_up:
                yield line
            elif line.get("origin") is None:
                yield from self._unless_early(line)
        elif line.get("type") == "error":
            if self._taken_up:
                yield line
            else:
                yield from self._unless_early(line)
        elif self._taken_up or self._prompt is None or line.get("type") == "system":
            yield line
        elif line.get("type") != "stream_event":
            self._begin()
        elif text_at(line, "event", "type") == "message_start":
            self._begin()
            self._hold(line)
        elif at(line, "event", "type") != "message_stop":
            self._hold(line)

    @property
    def quiet_ms(self) -> int | None:
        """After how long a silence `presumed` is the end of the turn; None is never."""
        if self._ending is None:
            return None
        return UNTOLD_MS if self._taken_up else UNREPEATED_MS

    def presumed(self) -> FrozenDict | None:
        """Return the line that ends the turn, since nothing has come that belies it."""
        self._taken_up = self._taken_up or self._ending is not None
        return self._ending

    def _unless_early(self, line: FrozenDict) -> Iterator[FrozenDict]:
        if not self._awaits_repetition:
            yield line
        elif not self._told_of:
            self._ending = line

    def _lived(self, line: FrozenDict) -> Iterator[FrozenDict]:
        """Yield what belongs to the turn now that the program tells of a prompt's life."""
        if self._prompt is None or text_at(line, "command_uuid") != self._prompt.id:
            return
        self._told_of, self._ending = True, None
        match line.get("state"):
            case "started" if not self._taken_up:
                self.repeats = "by id"
                yield from self._take_up()
            case "completed" | "cancelled" as state:
                self._taken_up = True
                self._ending = FrozenDict({"type": "error", "error": _untold(str(state))})

    def _begin(self) -> None:
        self._beginning, self._held = [], Held()

    def _hold(self, line: FrozenDict) -> None:
        self._held.add(line)
        self._beginning.append(line)
        if self._held.bytes > MAX_BEGINNING_BYTES:
            # Nobody can say what was in it, should it turn out to be the prompt's.
            self._beginning = [FrozenDict({"type": "error", "error": TOO_MUCH})]

    def _take_up(self) -> Iterator[FrozenDict]:
        self._taken_up, self._ending = True, None
        yield from self._beginning
        self._begin()

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


TOO_MUCH = f"the program said more than {MAX_BEGINNING_BYTES} bytes before it took up the prompt"


def _untold(state: str) -> str:
    return f"the program says that the prompt is {state}, and gives no result"
