"""The template language of formatString: text with `${...}` in it, read into parts.

A part is text or a dynamic value (`@path`, `@call`), so that whoever evaluates
it needs to know nothing of templates. Between the braces stands one expression:

    expression = string | number | true | false | null | "${" expression "}"
               | name "(" [name ":" expression {"," name ":" expression} [","]] ")"
               | path
    path       = identifier characters, "/", "." and "-"

A `\\${` in the text is a literal `${`. Depth counts both ways of nesting: an
expression inside another's braces and an argument inside a call.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from genagent_protocol.plain import MAX_INT
from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.json_values import Json
from genagent_protocol.rpc.limits import (
    MAX_TEMPLATE_CHARACTERS,
    MAX_TEMPLATE_DEPTH,
    MAX_TEMPLATE_PARTS,
)

_OPEN: Final = "${"
_ESCAPED: Final = "\\${"
_TEXT: Final = re.compile(r"(?:(?!\\?\$\{).)+", re.DOTALL)
_NUMBER_START: Final = re.compile(r"[+-]?\.?[0-9]")
#: All that belongs to a number, right or wrong, so that a wrong one is reported whole.
_NUMBER_EXTENT: Final = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]*)?")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_KEYWORDS: Final[dict[str, Json]] = {"true": True, "false": False, "null": ""}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_MAX_SHOWN: Final = 40


def template_parts(template: str) -> list[Json]:
    """Return the parts of a template in their order: text, numbers, booleans, bindings, calls.

    Raises:
        ExpressionFault: the template is too long or breaks the grammar; the text
            says how.
    """
    if len(template) > MAX_TEMPLATE_CHARACTERS:
        raise ExpressionFault(
            f"The template has {len(template)} characters; "
            f"at most {MAX_TEMPLATE_CHARACTERS} are allowed."
        )
    return _Reader(template).parts()


@dataclass(slots=True)
class _Reader:
    """A template and how far it has been read."""

    text: str
    place: int = 0

    def parts(self) -> list[Json]:
        parts: list[Json] = []
        while self.place < len(self.text):
            if len(parts) >= MAX_TEMPLATE_PARTS:
                raise ExpressionFault(f"The template has over {MAX_TEMPLATE_PARTS} parts.")
            part = self._part()
            if part != "":
                parts.append(part)
        return parts

    def _part(self) -> Json:
        if self._skip(_ESCAPED):
            return _OPEN
        if self._skip(_OPEN):
            return self._interpolation(1)
        literal = _TEXT.match(self.text, self.place)
        assert literal is not None
        self.place = literal.end()
        return literal.group()

    def _interpolation(self, depth: int) -> Json:
        """Read what follows `${` up to and with its closing brace."""
        self._skip_blanks()
        value: Json = "" if self._peek() == "}" else self._expression(depth)
        self._skip_blanks()
        if self.place >= len(self.text):
            raise ExpressionFault("Unclosed interpolation: missing '}'.")
        if not self._skip("}"):
            rest = self.text[self.place : self.place + _MAX_SHOWN]
            raise ExpressionFault(f"Unexpected characters at end of expression: {rest!r}.")
        return value

    def _expression(self, depth: int) -> Json:
        if depth > MAX_TEMPLATE_DEPTH:
            raise ExpressionFault("Max recursion depth of a template reached.")
        if self._skip(_OPEN):
            return self._interpolation(depth + 1)
        if self._peek() in ("'", '"'):
            return self._string()
        if _NUMBER_START.match(self.text, self.place):
            return self._number()
        for keyword, value in _KEYWORDS.items():
            if self._skip_keyword(keyword):
                return value
        return self._path_or_call(depth)

    def _path_or_call(self, depth: int) -> Json:
        name = self._word("/.-")
        self._skip_blanks()
        if self._peek() == "(" and name:
            return self._call(name, depth)
        return {"@path": name} if name else ""

    def _call(self, name: str, depth: int) -> Json:
        self._skip("(")
        self._skip_blanks()
        args: dict[str, Json] = {}
        while self._peek() not in ("", ")", "}"):
            argument = self._word("")
            self._skip_blanks()
            if not argument or not self._skip(":"):
                raise ExpressionFault(
                    f"Expected ':' after argument name '{argument}' in function '{name}'."
                )
            self._skip_blanks()
            args[argument] = self._expression(depth + 1)
            self._skip_blanks()
            if self._skip(","):
                self._skip_blanks()
        if not self._skip(")"):
            raise ExpressionFault(f"Expected ')' after function arguments for '{name}'.")
        return {"@call": name, "args": args}

    def _string(self) -> str:
        quote = self._take()
        read: list[str] = []
        while self._peek() not in ("", quote):
            character = self._take()
            if character == "\\":
                character = self._take()
                character = _ESCAPES.get(character, character)
            read.append(character)
        self._skip(quote)
        return "".join(read)

    def _number(self) -> int | float:
        extent = _NUMBER_EXTENT.match(self.text, self.place)
        assert extent is not None
        self.place = extent.end()
        digits = extent.group()
        if _NUMBER.fullmatch(digits) is None:
            raise ExpressionFault(f"Invalid number literal: '{digits[:_MAX_SHOWN]}'.")
        number = float(digits)
        if not math.isfinite(number):
            raise ExpressionFault(f"Number literal is out of range: '{digits[:_MAX_SHOWN]}'.")
        unsigned = digits.lstrip("+-")
        if not unsigned.isdigit() or abs(number) >= MAX_INT:
            return number
        whole = int(unsigned.lstrip("0") or "0")
        return -whole if digits.startswith("-") else whole

    def _word(self, also: str) -> str:
        start = self.place
        while self._peek() and (_is_identifier_character(self._peek()) or self._peek() in also):
            self.place += 1
        return self.text[start : self.place]

    def _skip_keyword(self, keyword: str) -> bool:
        following = self.text[self.place + len(keyword) : self.place + len(keyword) + 1]
        return not _is_identifier_character(following or " ") and self._skip(keyword)

    def _skip_blanks(self) -> None:
        while self._peek().isspace():
            self.place += 1

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


def _is_identifier_character(character: str) -> bool:
    """Tell whether a character may continue a Unicode identifier."""
    return ("a" + character).isidentifier()
