r"""Regular expressions, read: the part of JavaScript's dialect that can be matched in linear time.

Taken are literals, `.`, classes, `\d \w \s` and their opposites (ASCII, except
for blanks), `^ $ \b \B`, groups, alternatives, quantifiers of every kind and
looking ahead. Refused are back references, looking behind, properties and
flags: `matching` could not bound the time they take. Laziness is read and means
nothing, since only whether there is a match is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

from genagent_protocol.rpc.faults import ExpressionFault

MAX_PATTERN_CHARACTERS: Final = 2_000
MAX_REPETITIONS: Final = 1_000
MAX_GROUP_DEPTH: Final = 50

Ranges: TypeAlias = "tuple[tuple[int, int], ...]"


@dataclass(frozen=True, slots=True)
class Characters:
    """One character inside one of the ranges of code points, or outside all of them."""

    ranges: Ranges
    negated: bool = False

    def admit(self, character: str) -> bool:
        """Tell whether *character* is one of them."""
        code = ord(character)
        return any(low <= code <= high for low, high in self.ranges) != self.negated


@dataclass(frozen=True, slots=True)
class Border:
    """A place between characters."""

    kind: Literal["start", "end", "word", "no_word"]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What must follow, or must not, without being taken."""

    node: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """So many of the same; without *most*, any number from *least*."""

    node: Node
    least: int
    most: int | None


Node: TypeAlias = Characters | Border | Ahead | Sequence | Choice | Repeat

_DIGITS: Final[Ranges] = ((48, 57),)
_WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_BLANK: Final[Ranges] = (
    (9, 13),
    (32, 32),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_LINE_ENDS: Final[Ranges] = ((10, 10), (13, 13), (0x2028, 0x2029))
WORD_CHARACTERS: Final = Characters(_WORD)

_CLASSES: Final = {
    "d": Characters(_DIGITS),
    "w": WORD_CHARACTERS,
    "s": Characters(_BLANK),
    "D": Characters(_DIGITS, negated=True),
    "W": Characters(_WORD, negated=True),
    "S": Characters(_BLANK, negated=True),
}
_BORDERS: Final = {"b": Border("word"), "B": Border("no_word")}
_CONTROLS: Final = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "0": 0}
_HEXADECIMAL: Final = {"x": 2, "u": 4}
_LAST_CODE_POINT: Final = 0x10FFFF
_QUANTIFIER: Final = re.compile(r"(?:([*+?])|\{([0-9]{1,9})(,([0-9]{1,9})?)?\})\??")
_SIMPLE: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_GROUP: Final = re.compile(r"\((?:\?(?:(:)|(=)|(!)|P?<([A-Za-z_][A-Za-z0-9_]*)>))?")


def read_pattern(pattern: str) -> Node:
    """Return what *pattern* says.

    Raises:
        ExpressionFault: it is too long, cannot be read, or asks for what is not
            taken here.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ExpressionFault(
            f"Invalid pattern: more than {MAX_PATTERN_CHARACTERS} characters are not taken."
        )
    reader = _Reader(pattern)
    node = reader.choice(0)
    if reader.place < len(pattern):
        reader.fail("an unmatched ')'")
    return node


@dataclass(slots=True)
class _Reader:
    """A pattern and how far it has been read."""

    text: str
    place: int = 0

    def fail(self, what: str) -> NoReturn:
        raise ExpressionFault(f"Invalid pattern: {what} at character {self.place}.")

    def choice(self, depth: int) -> Node:
        if depth > MAX_GROUP_DEPTH:
            self.fail(f"groups nest deeper than {MAX_GROUP_DEPTH}")
        options = [self._sequence(depth)]
        while self._skip("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        nodes: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            nodes.append(self._quantified(self._atom(depth)))
        return Sequence(tuple(nodes))

    def _quantified(self, node: Node) -> Node:
        match = _QUANTIFIER.match(self.text, self.place)
        if match is None:
            return node
        self.place = match.end()
        simple, least, comma, most = match.groups()
        if simple is not None:
            return Repeat(node, *_SIMPLE[simple])
        lower = int(least)
        upper = lower if comma is None else None if most is None else int(most)
        if upper is not None and upper < lower:
            self.fail("a range of repetitions that is out of order")
        if max(lower, upper or 0) > MAX_REPETITIONS:
            self.fail(f"more than {MAX_REPETITIONS} repetitions")
        return Repeat(node, lower, upper)

    def _atom(self, depth: int) -> Node:
        if _QUANTIFIER.match(self.text, self.place):
            self.fail("nothing to repeat")
        match self._peek():
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                return self._escape()
        match self._take():
            case ".":
                return Characters(_LINE_ENDS, negated=True)
            case "^":
                return Border("start")
            case "$":
                return Border("end")
            case character:
                return _just(ord(character))

    def _group(self, depth: int) -> Node:
        opening = _GROUP.match(self.text, self.place)
        assert opening is not None
        if self.text.startswith("(?", self.place) and opening.end() - self.place == 1:
            self.fail("a kind of group that is not taken")
        self.place = opening.end()
        node = self.choice(depth + 1)
        if not self._skip(")"):
            self.fail("a group that does not end")
        if opening[2] or opening[3]:
            return Ahead(node, negated=opening[3] is not None)
        return node

    def _escape(self) -> Node:
        self._skip("\\")
        if self._peek() in _BORDERS:
            return _BORDERS[self._take()]
        return self._escaped()

    def _escaped(self) -> Characters:
        """Read what follows a backslash, inside of a class or outside."""
        character = self._take()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROLS and not (character == "0" and self._peek().isdigit()):
            return _just(_CONTROLS[character])
        if character in _HEXADECIMAL:
            return _just(self._hexadecimal(_HEXADECIMAL[character]))
        if not character or (character.isascii() and character.isalnum()):
            self.fail("an escape that is not taken")
        return _just(ord(character))

    def _hexadecimal(self, count: int) -> int:
        digits = self.text[self.place : self.place + count]
        if len(digits) < count or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            self.fail("an escape that is cut short")
        self.place += count
        return int(digits, 16)

    def _class(self) -> Node:
        self._skip("[")
        negated = self._skip("^")
        ranges: list[tuple[int, int]] = []
        while self._peek() not in ("", "]"):
            ranges += self._class_range()
        if not self._skip("]"):
            self.fail("a class that does not end")
        return Characters(tuple(ranges), negated)

    def _class_range(self) -> Ranges:
        first = self._class_character()
        follows = self.text[self.place : self.place + 2]
        if len(first) != 1 or first[0][0] != first[0][1] or follows in ("-]", "-"):
            return first
        if not self._skip("-"):
            return first
        last = self._class_character()
        if len(last) != 1 or last[0][0] != last[0][1]:
            return (*first, (ord("-"), ord("-")), *last)
        if last[0][0] < first[0][0]:
            self.fail("a range of characters that is out of order")
        return ((first[0][0], last[0][0]),)

    def _class_character(self) -> Ranges:
        if not self._skip("\\"):
            return _just(ord(self._take())).ranges
        if self._skip("b"):
            return _just(8).ranges
        found = self._escaped()
        return _outside(found.ranges) if found.negated else found.ranges

    def _skip(self, wanted: str) -> bool:
        found = self.text.startswith(wanted, self.place)
        self.place += len(wanted) * found
        return found

    def _peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def _take(self) -> str:
        taken = self._peek()
        self.place += len(taken)
        return taken


def _just(code: int) -> Characters:
    return Characters(((code, code),))


def _outside(ranges: Ranges) -> Ranges:
    """Return what lies between and around *ranges*, which are in order."""
    starts = [0, *(high + 1 for _, high in ranges)]
    ends = [*(low - 1 for low, _ in ranges), _LAST_CODE_POINT]
    return tuple((start, end) for start, end in zip(starts, ends, strict=True) if start <= end)
