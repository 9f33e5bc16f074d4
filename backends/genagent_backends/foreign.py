"""JSON from strangers, made into plain values without ever failing.

A provider may send what no envelope of ours can carry: integers of a hundred
digits, lone surrogates, nesting without end, lists and keys without end. `plain`
keeps what it can and replaces the rest, so that one odd number never costs a turn.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from genagent_backends.halves import Halves
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

#: Deep enough for every provider seen, and leaves room for the event around it.
FOREIGN_DEPTH = MAX_DEPTH - 16
TOO_DEEP = "(nested too deeply)"
#: So many items of a list or mapping are kept, which leaves room for fields of ours beside them.
FOREIGN_ITEMS = MAX_ITEMS - 16
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
#: No integer of 64 bits has more, its sign included.
INT_DIGITS = 20

T = TypeVar("T")


def plain(value: object, depth: int = FOREIGN_DEPTH) -> Plain:
    """Return *value*, as a JSON parser gives it, as a plain value.

    Integers beyond 64 bits become text, numbers that are none null, lone surrogates
    U+FFFD, and what is nested deeper than *depth* a note that says so. So do keys that
    are too long, and the last item of a list or mapping that had too many.
    """
    match value:
        case None | bool():
            return value
        case float():
            return value if math.isfinite(value) else None
        case int():
            return value if MIN_INT <= value <= MAX_INT else str(value)
        case str():
            return _whole_text(value)
        case Mapping():
            return plain_mapping(value, depth) if depth > 0 else TOO_DEEP
        case Sequence():
            if depth <= 0:
                return TOO_DEEP
            return (*(plain(item, depth - 1) for item in _first(value)), *_left_out(value))
        case _:
            return str(type(value).__name__)


def plain_mapping(value: Mapping[str, object], depth: int = FOREIGN_DEPTH) -> FrozenDict:
    """Return *value* as `plain` does, also one that was put together of several plain ones."""
    kept: dict[str, Plain] = {}
    too_long = 0
    for name, item in _first(value.items()):
        key = str(name)
        if len(key) > MAX_KEY_CHARS:
            too_long += 1
            key = _short(key, too_long)
        kept[_whole_text(key)] = plain(item, depth - 1)
    return FrozenDict({**kept, **dict.fromkeys(_left_out(value))})


def _first(items: Collection[T]) -> Iterator[T]:
    return iter(items) if len(items) <= FOREIGN_ITEMS else islice(items, FOREIGN_ITEMS - 1)


def _left_out(items: Collection[object]) -> tuple[str, ...]:
    """Return the note that stands for all but the `_first` of *items*, if there is a rest."""
    if len(items) <= FOREIGN_ITEMS:
        return ()
    return (f"({len(items) - FOREIGN_ITEMS + 1} more items)",)


def _short(key: str, number: int) -> str:
    # Its beginning could be that of a secret, which nobody would find there.
    which = f", number {number}" if number > 1 else ""
    return f"(a key of {len(key)} characters{which})"


def _whole_text(value: str) -> str:
    return value if value.isascii() else LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)


def json_value(data: bytes | str, halves: Halves | None = None) -> Plain | ValueError:
    """Return the JSON value in *data*, or the error that says why there is none.

    *halves* is what the same stream has begun; a character's other half may be here.
    """
    try:
        value = json.loads(data, parse_int=_integer, parse_constant=lambda _name: None)
        if halves is not None and isinstance(data, str):
            halves.completed(value, data)
        return plain(value)
    except (ValueError, RecursionError) as error:
        return ValueError(f"not JSON: {type(error).__name__}")


def _integer(digits: str) -> int | str:
    # Python refuses to read thousands of digits, and the whole answer with them.
    return int(digits) if len(digits) <= INT_DIGITS else digits


def json_object(data: bytes | str, halves: Halves | None = None) -> FrozenDict | None:
    """Return the JSON object in *data*, or None if it holds anything else."""
    value = json_value(data, halves)
    return value if isinstance(value, FrozenDict) else None


def text_at(value: Plain, *path: str) -> str | None:
    """Return the text at *path* inside nested mappings, or None."""
    found = at(value, *path)
    return found if isinstance(found, str) else None


def number_at(value: Plain, *path: str) -> int | None:
    """Return the integer at *path* inside nested mappings, or None; true is no number."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def at(value: Plain, *path: str) -> Plain:
    """Return what is at *path* inside nested mappings, or None."""
    for key in path:
        if not isinstance(value, FrozenDict):
            return None
        value = value.get(key)
    return value


def updated(known: Mapping[str, Plain], news: Plain) -> FrozenDict:
    """Return *known* with what *news* says; null says nothing, and no mapping neither."""
    if not isinstance(news, FrozenDict):
        return FrozenDict(known)
    told = {name: value for name, value in news.items() if value is not None or name not in known}
    for name, value in told.items():
        before = known.get(name)
        if isinstance(value, FrozenDict) and isinstance(before, FrozenDict):
            told[name] = updated(before, value)
    both = {**known, **told}
    return FrozenDict({**dict(_first(both.items())), **dict.fromkeys(_left_out(both))})


class Held:
    """How much a fold holds of a stream, for whoever bounds that."""

    #: What a piece costs beside what is in it.
    PIECE_BYTES = 64

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, *values: Plain) -> None:
        """Count what is held from now on."""
        self.bytes += sum(self.PIECE_BYTES + encoded_size(value) for value in values)


def items_at(value: Plain, *path: str) -> tuple[FrozenDict, ...]:
    """Return the mappings in the list at *path*; other items and other shapes are left out."""
    found = at(value, *path)
    if not isinstance(found, tuple):
        return ()
    return tuple(item for item in found if isinstance(item, FrozenDict))


def counters(value: Plain, names: Mapping[str, str] | Sequence[str]) -> dict[str, Plain]:
    """Return the counters of *value* that are whole and not negative, under our names."""
    renamed = names if isinstance(names, Mapping) else {name: name for name in names}
    found = {ours: number_at(value, theirs) for theirs, ours in renamed.items()}
    return {name: count for name, count in found.items() if count is not None and count >= 0}
