"""What JSON can hold: every value is checked and copied when it enters, and again when it leaves.

A copy shares nothing with its original, so nobody can change a handler, a
message or a data model from outside. A copy is made only of what both JSON and
msgpack carry unchanged: no NaN, no infinity, no integer beyond 64 bits, no bytes,
no key that is not text, no lone surrogate, and no list, object or key that is longer
than the wire takes. What is too deep or too large is refused while it is read, so a
cycle ends like any other deep value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_protocol.plain import (
    MAX_DEPTH,
    MAX_INT,
    MAX_ITEMS,
    MAX_KEY_CHARS,
    MIN_INT,
    FrozenDict,
    Plain,
    encoded_size,
)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Arguments: TypeAlias = "dict[str, Json]"

#: How deep lists and objects may nest in arguments and results. The rest of the
#: depth that the wire allows belongs to the envelopes around them.
MAX_NESTING = MAX_DEPTH - 16

_MAX_SHOWN_KEY = 40


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a value is not taken: what is wrong with it, and where."""

    kind: Literal["not_json", "too_deep", "too_large"]
    problem: str


class _Stop(Exception):
    """Carries an `Unfit` out of the recursion, collecting the path on the way up."""

    def __init__(self, kind: Literal["not_json", "too_deep", "too_large"], problem: str) -> None:
        super().__init__(problem)
        self.kind = kind
        self.problem = problem
        self.path: list[str] = []

    def unfit(self) -> Unfit:
        where = "".join(reversed(self.path))
        return Unfit(self.kind, f"at {where}: {self.problem}" if where else self.problem)


class _Copier:
    """One copy in the making, and the bytes it may still take."""

    __slots__ = ("bytes_left",)

    def __init__(self, max_bytes: int) -> None:
        self.bytes_left = max_bytes

    def copy(self, value: object, depth: int) -> Json:
        match value:
            case None | bool():
                self._spend(1)
                return value
            case str():
                return self._text(value)
            case int():
                return self._integer(value)
            case float():
                return self._float(value)
            case dict() | list() | tuple():
                return self._container(value, depth)
            case _:
                raise _Stop("not_json", f"JSON has no {type(value).__name__}")

    def _container(
        self, value: dict[object, object] | list[object] | tuple[object, ...], depth: int
    ) -> Json:
        if depth <= 0:
            raise _Stop("too_deep", "nested too deeply")
        if len(value) > MAX_ITEMS:
            raise _Stop("too_large", f"{len(value)} items, and the limit is {MAX_ITEMS}")
        self._spend(1)
        if isinstance(value, dict):
            return {
                self._key(key): self._inside(item, f"/{_shown(key)}", depth)
                for key, item in value.items()
            }
        return [self._inside(item, f"/{place}", depth) for place, item in enumerate(value)]

    def _inside(self, item: object, step: str, depth: int) -> Json:
        try:
            return self.copy(item, depth - 1)
        except _Stop as stop:
            stop.path.append(step)
            raise

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise _Stop("not_json", f"the key {_shown(key)} is not text")
        if len(key) > MAX_KEY_CHARS:
            problem = f"a key of {len(key)} characters, and the limit is {MAX_KEY_CHARS}"
            raise _Stop("too_large", problem)
        return self._text(key)

    def _text(self, value: str) -> str:
        plain = plain_text(value)
        if not is_sendable(plain):
            raise _Stop("not_json", "the text has a lone surrogate")
        self._spend(encoded_size(plain))
        return plain

    def _integer(self, value: int) -> int:
        plain = int(value)
        if not MIN_INT <= plain <= MAX_INT:
            raise _Stop("not_json", "the integer does not fit into 64 bits")
        self._spend(encoded_size(plain))
        return plain

    def _float(self, value: float) -> float:
        plain = float(value)
        if not math.isfinite(plain):
            raise _Stop("not_json", "the number is not finite")
        self._spend(encoded_size(plain))
        return plain

    def _spend(self, size_bytes: int) -> None:
        self.bytes_left -= size_bytes
        if self.bytes_left < 0:
            raise _Stop("too_large", "too large")


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of its own, and at least how many bytes its encoding takes."""

    value: Json
    size_bytes: int


def copied(value: object, *, max_bytes: int, max_depth: int = MAX_NESTING) -> Copied | Unfit:
    """Return a copy of *value* that shares nothing with it, or why JSON cannot hold it.

    Tuples become lists, and subclasses of text and numbers become what they
    stand for. The size leaves out the length fields of large lists and objects:
    it stops a value that grows without end, and `measured` is the exact figure.
    """
    copier = _Copier(max_bytes)
    try:
        copy = copier.copy(value, max_depth)
    except _Stop as stop:
        return stop.unfit()
    except RecursionError:
        # The stack may be nearly used up where this is called.
        return Unfit("too_deep", "nested too deeply")
    return Copied(copy, max_bytes - copier.bytes_left)


def measured(value: Json) -> int:
    """Return how many bytes the msgpack encoding of *value* takes; `copied` made it."""
    return encoded_size(frozen(value))


def plain_text(text: str) -> str:
    """Return *text* as a `str`, whatever class of its own it has, and whatever that prints."""
    return str.__str__(text)


def plain_object(value: object) -> dict[str, object]:
    """Return what *value* holds under texts if it is an object, without asking its class."""
    if not isinstance(value, dict):
        return {}
    return {plain_text(key): item for key, item in dict.items(value) if isinstance(key, str)}


def is_sendable(text: str) -> bool:
    """Tell whether *text* has a UTF-8 form, which a lone surrogate has not."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def frozen(value: Json) -> Plain:
    """Return *value*, which `copied` made, as a value that never changes."""
    match value:
        case dict():
            return FrozenDict({key: frozen(item) for key, item in value.items()})
        case list():
            return tuple(frozen(item) for item in value)
        case _:
            return value


def frozen_object(value: dict[str, Json]) -> FrozenDict:
    """Return an object that `copied` made as a value that never changes."""
    return FrozenDict({key: frozen(item) for key, item in value.items()})


def thawed(value: Plain) -> Json:
    """Return what `frozen` froze as lists and dicts that belong to the caller alone."""
    match value:
        case FrozenDict():
            return thawed_object(value)
        case tuple():
            return [thawed(item) for item in value]
        case bytes():
            raise AssertionError("JSON has no bytes, and none were frozen")
        case _:
            return value


def thawed_object(value: FrozenDict) -> dict[str, Json]:
    """Return a frozen object as a dict that belongs to the caller alone."""
    return {key: thawed(item) for key, item in value.items()}


def _shown(key: object) -> str:
    text = key if isinstance(key, str) else repr(key)
    return ascii(text)[1:-1][:_MAX_SHOWN_KEY]
