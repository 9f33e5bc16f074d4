"""Frozen dataclasses to plain maps and back, from nothing but their annotations.

A record becomes a map from field name to value; a field that equals its default
is left out. A member of a union carries its tag, the class name in snake case,
under `t`. Reading ignores unknown fields, refuses unknown tags, missing fields and
values of another type, and never guesses.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, NewType

from genagent_protocol.plain import MAX_DEPTH, FrozenDict, Plain, deeper_than
from genagent_protocol.refs import (
    Address,
    Incarnation,
    MailboxAddress,
    MalformedIdentity,
    RequestRef,
    parse_address,
)

TAG = "t"
#: No tag of ours is longer, and a longer one is not worth repeating to its sender.
MAX_TAG_CHARS = 64


class Mismatch(ValueError):
    """A value that is not what its place asks for; `path` says which place."""

    def __init__(self, problem: str) -> None:
        self.path = ""
        self.problem = problem
        super().__init__(problem)

    def inside(self, place: str) -> Mismatch:
        """Return this error, seen from one level further out."""
        self.path = place + self.path
        return self

    def __str__(self) -> str:
        return f"{self.path or 'the body'}: {self.problem}"


class UnknownTag(Mismatch):
    """A member of a union that this version does not know; `tag` is what it calls itself."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(f"unknown type {tag!r}")


class Shape(NamedTuple):
    """How one annotation is written and read; both raise `Mismatch`."""

    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def tag_of(record: Any) -> str:
    """Return the tag of a record class: `PollPending` is `poll_pending`."""
    return _snake_case(record.__name__)


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def dump(value: object) -> dict[str, Any]:
    """Return *value*, a record, as a plain map with its tag.

    Raises:
        Mismatch: it holds a record where its union has no such member, or a plain
            value that is nested too deep.
    """
    record: Any = type(value)
    written: dict[str, Any] = _tagged_dump(record)(value)
    return written


def load(union: Any, raw: Plain) -> Any:
    """Return the member of *union* that the plain map *raw* spells.

    Raises:
        UnknownTag: the map says it is something that *union* does not have.
        Mismatch: the map is not what its tag says.
    """
    return _loader(union)(raw)


@cache
def _loader(union: Any) -> Callable[[Any], Any]:
    return _tagged(typing.get_args(union) or (union,)).load


# --- records ------------------------------------------------------------------------------


class _Field(NamedTuple):
    name: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]
    default: object


_REQUIRED = object()


@cache
def _record(record: Any) -> Shape:
    """Return the shape of one dataclass, without a tag."""
    fields = _fields(record)
    return Shape(_record_dump(fields), _record_load(record, fields))


def _fields(record: Any) -> tuple[_Field, ...]:
    # Plain is recursive, which the evaluation of hints is not made for.
    hints = typing.get_type_hints(record, localns={"Plain": object})
    return tuple(
        _Field(field.name, *shape_of(hints[field.name]), _default(field))
        for field in dataclasses.fields(record)
    )


def _default(field: dataclasses.Field[Any]) -> object:
    return _REQUIRED if field.default is dataclasses.MISSING else field.default


def _record_dump(fields: tuple[_Field, ...]) -> Callable[[Any], Any]:
    def write(value: object) -> dict[str, Any]:
        written = {}
        for name, dump_field, _, default in fields:
            item = getattr(value, name)
            if item is default or item == default:
                continue
            try:
                written[name] = dump_field(item)
            except Mismatch as mismatch:
                raise mismatch.inside(f".{name}") from None
        return written

    return write


def _record_load(record: Any, fields: tuple[_Field, ...]) -> Callable[[Any], Any]:
    def read(raw: object) -> object:
        if not isinstance(raw, dict):
            raise Mismatch(f"expected a map for {tag_of(record)}, not {_kind(raw)}")
        values = {}
        for name, _, load_field, default in fields:
            if name in raw:
                try:
                    values[name] = load_field(raw[name])
                except Mismatch as mismatch:
                    raise mismatch.inside(f".{name}") from None
            elif default is _REQUIRED:
                raise Mismatch(f"{tag_of(record)} lacks {name}")
        return record(**values)

    return read


@cache
def _tagged_dump(record: Any) -> Callable[[Any], Any]:
    tag, write = tag_of(record), _record(record).dump
    return lambda value: {TAG: tag, **write(value)}


@cache
def _tagged(members: tuple[Any, ...]) -> Shape:
    """Return the shape of a union of records."""
    writers = {member: _tagged_dump(member) for member in members}
    readers = {tag_of(member): _record(member).load for member in members}

    def write(value: object) -> dict[str, Any]:
        writer = writers.get(type(value))
        if writer is None:
            raise Mismatch(f"a {type(value).__name__} has no place here")
        written: dict[str, Any] = writer(value)
        return written

    def read(raw: object) -> object:
        if not isinstance(raw, dict):
            raise Mismatch(f"expected a map, not {_kind(raw)}")
        tag = raw.get(TAG)
        if not isinstance(tag, str) or len(tag) > MAX_TAG_CHARS:
            raise Mismatch(f"expected the name of a type under {TAG!r}")
        reader = readers.get(tag)
        if reader is None:
            raise UnknownTag(tag)
        return reader(raw)

    return Shape(write, read)


# --- annotations --------------------------------------------------------------------------


def shape_of(hint: Any) -> Shape:
    """Return how values of the annotation *hint* are written and read."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, NewType):
        return shape_of(hint.__supertype__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return _literal(args)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _sequence(shape_of(args[0]))
    if origin in (typing.Union, types.UnionType):
        return _union(args)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _record(hint)
    raise TypeError(f"{hint!r} has no shape on the wire")


def _union(args: tuple[Any, ...]) -> Shape:
    if type(None) in args:
        return _optional(_union(tuple(arg for arg in args if arg is not type(None))))
    if len(args) == 1:
        return shape_of(args[0])
    if set(args) == set(typing.get_args(Address)):
        return _text_identity(parse_address, "an address")
    return _tagged(args)


def _optional(shape: Shape) -> Shape:
    return Shape(
        lambda value: None if value is None else shape.dump(value),
        lambda raw: None if raw is None else shape.load(raw),
    )


def _sequence(shape: Shape) -> Shape:
    return Shape(
        lambda value: _each(shape.dump, value),
        lambda raw: tuple(_each(shape.load, _checked_sequence(raw))),
    )


def _each(convert: Callable[[Any], Any], items: tuple[Any, ...]) -> list[Any]:
    done: list[Any] = []
    try:
        for item in items:
            done.append(convert(item))
    except Mismatch as mismatch:
        raise mismatch.inside(f"[{len(done)}]") from None
    return done


def _checked_sequence(raw: object) -> tuple[Any, ...]:
    if not isinstance(raw, tuple):
        raise Mismatch(f"expected a sequence, not {_kind(raw)}")
    return raw


def _literal(allowed: tuple[object, ...]) -> Shape:
    def read(raw: object) -> object:
        if raw not in allowed:
            shown = repr(raw) if isinstance(raw, str) and len(raw) <= MAX_TAG_CHARS else _kind(raw)
            raise Mismatch(f"{shown} is none of {', '.join(map(repr, allowed))}")
        return raw

    return Shape(_same, read)


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    if deeper_than(value, MAX_DEPTH):
        raise Mismatch(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _plain_map(raw: Any) -> Any:
    if type(raw) is not FrozenDict:
        raise Mismatch(f"expected a map, not {_kind(raw)}")
    return _plain(raw)


def _scalar(kind: type) -> Shape:
    def read(raw: object) -> object:
        # bool is an int to Python and never to us.
        if type(raw) is not kind:
            raise Mismatch(f"expected {kind.__name__}, not {_kind(raw)}")
        return raw

    return Shape(_same, read)


def _text_identity(parse: Callable[[str], Any], what: str) -> Shape:
    # Every event of a turn names the same ref, and identities are values.
    parsed = lru_cache(maxsize=256)(parse)

    def read(raw: object) -> object:
        if not isinstance(raw, str):
            raise Mismatch(f"expected {what}, not {_kind(raw)}")
        try:
            return parsed(raw)
        except MalformedIdentity:
            raise Mismatch(f"the text is not {what}") from None

    return Shape(str, read)


def _kind(raw: object) -> str:
    return "nothing" if raw is None else type(raw).__name__


_SCALARS: dict[Any, Shape] = {
    object: Shape(_plain, _plain),
    FrozenDict: Shape(_plain, _plain_map),
    **{kind: _scalar(kind) for kind in (str, int, float, bool, bytes)},
    RequestRef: _text_identity(RequestRef.parse, "a request ref"),
    Incarnation: _text_identity(Incarnation.parse, "an incarnation"),
    MailboxAddress: _text_identity(MailboxAddress.parse, "a mailbox address"),
}
