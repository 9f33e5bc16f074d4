"""What `protocol/SPEC.md` has to say about the code, and what it says."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NewType

from genagent_protocol import answers, envelopes, events, reasons, requests
from genagent_protocol.plain import FrozenDict
from genagent_protocol.refs import Address, BootId, Incarnation, MailboxAddress, RequestRef
from genagent_protocol.schema import tag_of
from support.wire_values import ENVELOPES, hints_of, members

SPEC = Path(__file__).parents[2] / "protocol" / "SPEC.md"

#: Families: fields that hold one of several records, which says which by its tag.
FAMILIES: dict[str, Any] = {
    "daemon request": requests.DaemonRequest,
    "agent request": requests.AgentRequest,
    "answer": answers.AgentAnswer | envelopes.DaemonAnswer,
    "outcome": events.Outcome,
    "failure": reasons.Failure,
}
_SCALARS: dict[Any, str] = {
    str: "text",
    int: "int",
    bool: "bool",
    float: "float",
    bytes: "bytes",
    object: "plain",
    FrozenDict: "map",
    BootId: "boot",
    RequestRef: "ref",
    Incarnation: "incarnation",
    MailboxAddress: "mailbox",
}


class Row(NamedTuple):
    """One field of a record, as its table has to show it."""

    field: str
    type: str
    default: str


@dataclass(frozen=True)
class Section:
    """What the document says about one record."""

    #: Who says it to whom, for a message.
    ways: frozenset[tuple[str, str]]
    since: int
    rows: tuple[Row, ...]
    meanings: tuple[str, ...]
    text: str


# --- from the code


def rows_of(record: Any) -> tuple[Row, ...]:
    """Return what a record's table has to show, from its annotations."""
    hints = hints_of(record)
    return tuple(
        Row(field.name, type_name(hints[field.name]), _default(field.default))
        for field in dataclasses.fields(record)
    )


def type_name(hint: Any) -> str:
    """Return what the document calls a type."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, NewType):
        return type_name(hint.__supertype__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        # A long vocabulary has a table of its own.
        return "a code" if len(args) > 8 else " or ".join(f"`{value}`" for value in args)
    if origin is tuple:
        return f"list of {type_name(args[0])}"
    if origin in (typing.Union, types.UnionType):
        return _union_name(args)
    return tag_of(hint)


def _union_name(args: tuple[Any, ...]) -> str:
    some = [arg for arg in args if arg is not type(None)]
    name = type_name(some[0]) if len(some) == 1 else _family(set(some))
    return name if len(some) == len(args) else f"{name} or nil"


def _family(records: set[Any]) -> str:
    if records == set(members(Address)):
        return "address"
    (name,) = (name for name, union in FAMILIES.items() if set(members(union)) == records)
    return name


def _default(value: object) -> str:
    if value is dataclasses.MISSING:
        return ""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]" if value == () else str(value)
    if isinstance(value, dict) or dataclasses.is_dataclass(value):
        return "{}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def records() -> tuple[type, ...]:
    """Return every record that travels: the messages and all that is in them, each once."""
    found: dict[type, None] = {}
    waiting: list[Any] = list(ENVELOPES)
    while waiting:
        hint = waiting.pop(0)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            if hint not in found and hint not in _SCALARS:
                found[hint] = None
                waiting += hints_of(hint).values()
        else:
            waiting += typing.get_args(hint)
    return tuple(found)


def hearers(envelope: Any) -> frozenset[str]:
    """Return who may hear a message, by the unions it is in."""
    every = {
        "daemon": envelopes.ToDaemon,
        "agent": envelopes.ToAgent,
        "client": envelopes.ToClient,
    }
    return frozenset(name for name, union in every.items() if envelope in members(union))


# --- from the document


def sections() -> dict[str, Section]:
    """Return what the document says about each record, by its tag."""
    parts = re.split(r"^#### `(\w+)`$", SPEC.read_text(encoding="utf-8"), flags=re.M)
    found: dict[str, Section] = {}
    for tag, text in zip(parts[1::2], parts[2::2], strict=True):
        assert tag not in found, f"{tag} has two sections"
        found[tag] = _section(re.split(r"^#", text, maxsplit=1, flags=re.M)[0])
    return found


def _section(text: str) -> Section:
    first = text.strip().splitlines()[0]
    since = re.fullmatch(r"(?:.* · )?since (\d+)", first)
    assert since is not None, f"{first!r} does not say since which version"
    cells = table(text, "field")
    return Section(
        ways=frozenset((one, other) for one, other in re.findall(r"(\w+) → (\w+)", first)),
        since=int(since[1]),
        rows=tuple(Row(field.strip("`"), kind, default) for field, kind, default, _ in cells),
        meanings=tuple(row[3] for row in cells),
        text=text,
    )


def table(text: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose first column is called *first*."""
    found = re.search(rf"^\| {first} \|.*\n\|[-| ]+\|\n((?:\|.*\n)*)", text + "\n", flags=re.M)
    if found is None:
        return []
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in found[1].splitlines()
    ]


def chapter(title: str) -> str:
    """Return the text under a heading of the second level."""
    found = re.search(
        rf"^## (?:\d+\. )?{re.escape(title)}\n(.*?)(?=^## |\Z)",
        SPEC.read_text(encoding="utf-8"),
        flags=re.M | re.S,
    )
    assert found is not None, f"the document has no chapter {title!r}"
    return found[1]
