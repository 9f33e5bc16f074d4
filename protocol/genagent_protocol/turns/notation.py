"""How the values of the turn machine are written down on one line, and read back.

A record is written like the call that makes it, with everything left out that has
its default; a request ref as `ref('…')`. What is read back are only these records
and plain values: reading runs no code. Values the machine only carries (calls,
messages of a kind that is not known here) are written as the text of themselves,
which is enough to recognise them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import ModuleType

from genagent_protocol import answers, bounds, events, reasons
from genagent_protocol.plain import FrozenDict
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns import decisions, effects, inputs, state

_MODULES: tuple[ModuleType, ...] = (answers, bounds, decisions, effects, events, inputs, reasons)
_OFFERED: tuple[type, ...] = (state.Offers,)


def _records() -> dict[str, type]:
    found = {record.__name__: record for record in _OFFERED}
    for module in _MODULES:
        for name, value in vars(module).items():
            ours = getattr(value, "__module__", None) == module.__name__
            if ours and isinstance(value, type) and (is_dataclass(value) or _named_tuple(value)):
                found[name] = value
    return found


def _named_tuple(record: type) -> bool:
    return issubclass(record, tuple) and hasattr(record, "_fields")


#: The records that can be written and read, by name.
RECORDS: Mapping[str, type] = _records()
#: Floats that have no literal.
_FLOATS = {"nan": math.nan, "inf": math.inf}


class Unreadable(ValueError):
    """A line that is not written in this notation."""


# Writing


def write(value: object, names: Mapping[object, str] | None = None) -> str:
    """Return *value* on one line. Whatever *names* has is written as its name."""
    known = names or {}
    return _write(value, known)


def _write(value: object, names: Mapping[object, str]) -> str:
    match value:
        case RequestRef():
            return names.get(value) or f"ref({value.text!r})"
        case FrozenDict():
            items = (f"{key!r}: {_write(item, names)}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        case _ if type(value).__name__ in RECORDS:
            return names.get(value) or _write_record(value, names)
        case tuple():
            inside = ", ".join(_write(item, names) for item in value)
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        case None | bool() | int() | float() | str() | bytes():
            return repr(value)
        case _:
            return repr(repr(value))


def _write_record(value: object, names: Mapping[object, str]) -> str:
    written: list[str] = []
    for name, default, keyword in _fields(type(value)):
        held = getattr(value, name)
        if default is not MISSING and held == default:
            continue
        text = _write(held, names)
        written.append(f"{name}={text}" if keyword else text)
    return f"{type(value).__name__}({', '.join(written)})"


def _fields(record: type) -> Iterator[tuple[str, object, bool]]:
    """Yield the fields of a record: name, default, and whether it is written by its name."""
    if issubclass(record, tuple):
        defaults = record._field_defaults  # type: ignore[attr-defined]  # a named tuple has them
        for name in record._fields:  # type: ignore[attr-defined]
            yield name, defaults.get(name, MISSING), True
        return
    for field in fields(record):  # type: ignore[arg-type]  # RECORDS has nothing else
        default: object = field.default
        yield field.name, default, field.kw_only is True or default is not MISSING


# Reading


def read(text: str, names: Mapping[str, object] | None = None) -> object:
    """Return the value that *text* spells; *names* stand for what they are mapped to.

    Raises:
        Unreadable: *text* is not written in this notation.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise Unreadable(f"{text!r} is no value: {error.msg}") from None
    return _read(tree.body, {**_FLOATS, **(names or {})})


def _read(node: ast.expr, names: Mapping[str, object]) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=items):
            return tuple(_read(item, names) for item in items)
        case ast.Dict(keys=keys, values=values):
            return _read_mapping(keys, values, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negative(_read(operand, names))
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Call(func=ast.Name(id="ref"), args=[ast.Constant(value=str(text))]):
            return RequestRef.parse(text)
        case ast.Call(func=ast.Name(id=name)) if name in RECORDS:
            return _read_record(RECORDS[name], node, names)
        case _:
            raise Unreadable(f"{ast.unparse(node)} cannot be part of a value")


def _read_mapping(
    keys: list[ast.expr | None], values: list[ast.expr], names: Mapping[str, object]
) -> FrozenDict:
    pairs = [
        (key.value, _read(value, names))
        for key, value in zip(keys, values, strict=True)
        if isinstance(key, ast.Constant)
    ]
    return FrozenDict(pairs)  # type: ignore[arg-type]  # written by us: text to plain values


def _negative(value: object) -> object:
    if isinstance(value, (int, float)):
        return -value
    raise Unreadable(f"-{value!r} is no number")


def _read_record(record: type, node: ast.Call, names: Mapping[str, object]) -> object:
    positional = [_read(item, names) for item in node.args]
    named = {item.arg: _read(item.value, names) for item in node.keywords if item.arg}
    try:
        return record(*positional, **named)
    except TypeError as error:
        raise Unreadable(f"{record.__name__} cannot be made so: {error}") from None
