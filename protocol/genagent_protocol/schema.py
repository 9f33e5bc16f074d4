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
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, NewType

from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.refs import (
    Address,
    Incarnation,
    MailboxAddress,
    MalformedIdentity,
    RequestRef,
    parse_address,
)

TAG = "t"


class Mismatch(ValueError):
    """A plain value that is not the record it was read as; the path says where."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path or 'the body'}: {problem}")


class UnknownTag(Mismatch):
    """A member of a union that this version does not know; `tag` is what it calls itself."""

    def __init__(self, path: str, tag: str) -> None:
        self.tag = tag
        super().__init__(path, f"unknown type {tag!r}")


class Shape(NamedTuple):
    """How one annotation is written and read."""

    dump: Callable[[Any], Any]
    load: Callable[[Any, str], Any]


def tag_of(record: Any) -> str:
    """Return the tag of a record class: `PollPending` is `poll_pending`."""
    return _snake_case(record.__name__)


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def dump(value: object) -> dict[str, Any]:
    """Return *value*, a record, as a plain map with its tag."""
    record: Any = type(value)
    return {TAG: tag_of(record), **_record(record).dump(value)}


def load(union: Any, raw: Plain, path: str = "") -> Any:
    """Return the member of *union* that the plain map *raw* spells.

    Raises:
        UnknownTag: the map says it is something that *union* does not have.
        Mismatch: the map is not what its tag says.
    """
    return _tagged(_members(union)).load(raw, path)


@cache
def _members(union: Any) -> tuple[Any, ...]:
    found = typing.get_args(union) or (union,)
    return tuple(member for member in found if isinstance(member, type))


@cache
def _record(record: Any) -> Shape:
    """Return the shape of one dataclass, without a tag."""
    # Plain is recursive, which the evaluation of hints is not made for.
    hints = typing.get_type_hints(record, localns={"Plain": object})
    fields = [(f.name, shape_of(hints[f.name]), _default(f)) for f in dataclasses.fields(record)]

    def write(value: object) -> dict[str, Any]:
        found = ((name, shape, getattr(value, name), default) for name, shape, default in fields)
        return {name: shape.dump(v) for name, shape, v, default in found if v != default}

    def read(raw: object, path: str) -> object:
        if not isinstance(raw, Mapping):
            raise Mismatch(path, f"expected a map for {tag_of(record)}, not {_kind(raw)}")
        values = {}
        for name, shape, default in fields:
            if name in raw:
                values[name] = shape.load(raw[name], f"{path}.{name}")
            elif default is _REQUIRED:
                raise Mismatch(path, f"{tag_of(record)} lacks {name}")
        try:
            return record(**values)
        except ValueError as error:
            raise Mismatch(path, str(error)) from None

    return Shape(write, read)


_REQUIRED = object()


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _REQUIRED


@cache
def _tagged(members: tuple[Any, ...]) -> Shape:
    by_tag = {tag_of(member): _record(member) for member in members}

    def read(raw: object, path: str) -> object:
        if not isinstance(raw, Mapping):
            raise Mismatch(path, f"expected a map, not {_kind(raw)}")
        tag = raw.get(TAG)
        if not isinstance(tag, str):
            raise Mismatch(path, f"expected text under {TAG!r}")
        shape = by_tag.get(tag)
        if shape is None:
            raise UnknownTag(path, tag)
        return shape.load(raw, path)

    return Shape(dump, read)


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
        return _text_identity(parse_address)
    return _tagged(args)


def _optional(shape: Shape) -> Shape:
    return Shape(
        lambda value: None if value is None else shape.dump(value),
        lambda raw, path: None if raw is None else shape.load(raw, path),
    )


def _sequence(shape: Shape) -> Shape:
    def read(raw: object, path: str) -> tuple[object, ...]:
        if not isinstance(raw, (tuple, list)):
            raise Mismatch(path, f"expected a sequence, not {_kind(raw)}")
        return tuple(shape.load(item, f"{path}[{i}]") for i, item in enumerate(raw))

    return Shape(lambda value: [shape.dump(item) for item in value], read)


def _literal(allowed: tuple[object, ...]) -> Shape:
    def read(raw: object, path: str) -> object:
        if raw not in allowed:
            raise Mismatch(path, f"{raw!r} is none of {', '.join(map(repr, allowed))}")
        return raw

    return Shape(_same, read)


def _same(value: Any) -> Any:
    return value


def _scalar(kind: type) -> Shape:
    def read(raw: object, path: str) -> object:
        # bool is an int to Python and never to us.
        if type(raw) is not kind and not (kind is FrozenDict and type(raw) is dict):
            raise Mismatch(path, f"expected {kind.__name__}, not {_kind(raw)}")
        return raw

    return Shape(_same, read)


def _text_identity(parse: Callable[[str], Any]) -> Shape:
    def read(raw: object, path: str) -> object:
        if not isinstance(raw, str):
            raise Mismatch(path, f"expected text, not {_kind(raw)}")
        try:
            return parse(raw)
        except MalformedIdentity as error:
            raise Mismatch(path, str(error)) from None

    return Shape(str, read)


def _kind(raw: object) -> str:
    return "nothing" if raw is None else type(raw).__name__


_SCALARS: dict[Any, Shape] = {
    object: Shape(_same, lambda raw, _path: raw),
    **{kind: _scalar(kind) for kind in (str, int, float, bool, bytes, FrozenDict)},
    RequestRef: _text_identity(RequestRef.parse),
    Incarnation: _text_identity(Incarnation.parse),
    MailboxAddress: _text_identity(MailboxAddress.parse),
}
