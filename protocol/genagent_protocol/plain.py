"""Plain values: the only data that crosses a process border, frozen on the way.

A plain value is None, a boolean, an integer of 64 bits, a float, text, bytes, a
sequence of plain values, or a mapping from text to plain values. `freeze` makes
a deeply immutable copy (sequences become tuples, mappings `FrozenDict`), so that
what was measured, stored and sent can never differ from what is read later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias

#: How deep lists and mappings may be nested; msgpack itself gives up at 1,024.
MAX_DEPTH = 64
#: The most items of one list or mapping.
MAX_ITEMS = 131_072
#: The longest key of a mapping, in characters.
MAX_KEY_CHARS = 65_536
MIN_INT = -(2**63)
MAX_INT = 2**64 - 1

Plain: TypeAlias = "bool | int | float | str | bytes | tuple[Plain, ...] | FrozenDict | None"
#: What callers may pass where a plain value is wanted; `freeze` tells what cannot be.
Loose: TypeAlias = object


class NotPlain(ValueError):
    """A value that cannot cross a process border, with the path that leads to it."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path or 'the value'}: {problem}")


class FrozenDict(dict[str, Plain]):
    """A mapping from text to plain values that never changes after it was made.

    It reads, compares, prints and encodes like a `dict`, and it hashes, so that
    values that hold one can be compared and remembered.
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("this mapping is frozen; build a new dict from it instead")

    __setitem__ = _refuse
    __delitem__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse
    __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict says None; ours never changes
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: dict[int, object]) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Plain]]]:
        return (FrozenDict, (dict(self),))


EMPTY = FrozenDict()


def freeze(value: Loose, *, max_depth: int = MAX_DEPTH) -> Plain:
    """Return a deeply immutable copy of *value*; an already frozen value is returned as it is.

    Text, numbers and bytes of a class of their own, such as the members of an enum,
    become plain ones of the same value, whatever that class prints.

    Raises:
        NotPlain: something inside cannot be carried (a set, an object, an integer
            of more than 64 bits, a key that is not text, too long or there twice, a lone
            surrogate, too many items, or nesting deeper than *max_depth*); the
            path to it is in the error.
    """
    try:
        return _freeze(value, 1, max_depth)
    except NotPlain as fault:
        # The path grows from the inside out, so that only what fails pays for it.
        raise NotPlain(fault.path.removeprefix("."), fault.problem) from None


def _freeze(value: Loose, level: int, max_depth: int) -> Plain:
    match value:
        case None | bool():
            return value
        case str():
            return _checked_text(value)
        case int():
            return _checked_int(value)
        case float():
            return float.__float__(value)
        case bytes():
            return _own_bytes(value)
        case bytearray() | memoryview():
            return memoryview(value).tobytes()
        case Mapping() | Sequence():
            if level > max_depth:
                raise NotPlain("", f"nested deeper than {max_depth} levels")
            if len(value) > MAX_ITEMS:
                raise NotPlain("", f"{len(value)} items, and the limit is {MAX_ITEMS}")
            if isinstance(value, Mapping):
                return _freeze_mapping(value, level + 1, max_depth)
            return _freeze_sequence(value, level + 1, max_depth)
        case _:
            raise NotPlain("", f"{type(value).__name__} cannot be sent between processes")


def _freeze_sequence(value: Sequence[object], level: int, max_depth: int) -> Plain:
    frozen: list[Plain] = []
    same = type(value) is tuple
    for index, item in enumerate(value):
        try:
            found = _freeze(item, level, max_depth)
        except NotPlain as fault:
            raise NotPlain(f"[{index}]{fault.path}", fault.problem) from None
        same = same and found is item
        frozen.append(found)
    return value if same and isinstance(value, tuple) else tuple(frozen)


def _freeze_mapping(value: Mapping[object, object], level: int, max_depth: int) -> Plain:
    frozen: dict[str, Plain] = {}
    same = type(value) is FrozenDict
    for key, item in value.items():
        text = _checked_key(key)
        if text in frozen:
            # A class may compare its texts as it likes: what was two keys there is one here.
            raise NotPlain(f".{text}", "two keys are this text")
        try:
            found = _freeze(item, level, max_depth)
        except NotPlain as fault:
            raise NotPlain(f".{text}{fault.path}", fault.problem) from None
        same = same and found is item and text is key
        frozen[text] = found
    return value if same and isinstance(value, FrozenDict) else FrozenDict(frozen)


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise NotPlain("", f"a key is {type(key).__name__}, not text")
    text = _checked_text(key)
    if len(text) > MAX_KEY_CHARS:
        raise NotPlain("", f"a key of {len(text)} characters; the limit is {MAX_KEY_CHARS}")
    return text


# What a value is, and not what its class says of it: `str(x)` of an enum's member is the
# member's name, and a class may print, convert and compare as it likes.


def _checked_int(value: int) -> int:
    found = int.__int__(value)
    if not MIN_INT <= found <= MAX_INT:
        raise NotPlain("", "an integer of more than 64 bits")
    return found


def _checked_text(value: str) -> str:
    text = str.__str__(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotPlain("", f"the text has a lone surrogate at position {error.start}") from None
    return text


def _own_bytes(value: bytes) -> bytes:
    return bytes.__getitem__(value, slice(None))


def deeper_than(value: Plain, levels: int) -> bool:
    """Whether *value* nests sequences and mappings deeper than *levels*."""
    match value:
        case FrozenDict():
            children: Iterable[Plain] = value.values()
        case tuple():
            children = value
        case _:
            return False
    if levels <= 0:
        return True
    return any(
        deeper_than(child, levels - 1)
        for child in children
        if isinstance(child, (tuple, FrozenDict))
    )


def encoded_size(value: Plain) -> int:
    """Return the length in bytes of *value*'s msgpack encoding, without encoding it.

    This is the one measure of the product: limits on prompts, notifications,
    events and results all count it, on admission and on release alike.
    """
    match value:
        case None | bool():
            return 1
        case int():
            return _int_size(value)
        case float():
            return 9
        case str():
            return _text_size(len(value.encode("utf-8")))
        case bytes():
            return _bytes_size(len(value))
        case FrozenDict():
            return _container_size(len(value)) + sum(
                encoded_size(key) + encoded_size(item) for key, item in value.items()
            )
        case tuple():
            return _container_size(len(value)) + sum(encoded_size(item) for item in value)


def printable(value: Plain) -> str:
    """Return *value* on one line, with control and other unprintable characters escaped.

    Text is shown as it is, everything else in Python's notation.
    """
    text = value if isinstance(value, str) else repr(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _int_size(value: int) -> int:
    if -32 <= value < 128:
        return 1
    for bits, size in ((8, 2), (16, 3), (32, 5)):
        if -(1 << (bits - 1)) <= value < (1 << bits):
            return size
    return 9


def _text_size(length: int) -> int:
    if length < 32:
        return 1 + length
    return _bytes_size(length)


def _bytes_size(length: int) -> int:
    if length < 1 << 8:
        return 2 + length
    return (3 if length < 1 << 16 else 5) + length


def _container_size(count: int) -> int:
    if count < 16:
        return 1
    return 3 if count < 1 << 16 else 5
