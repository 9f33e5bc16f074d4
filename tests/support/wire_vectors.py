"""The golden frames of the protocol: what they hold, and the files they are kept in.

Run it to write `protocol/vectors` anew, or with `--check` to say whether it is current.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genagent_protocol import codec
from genagent_protocol import header as headers
from genagent_protocol.envelopes import Submit
from genagent_protocol.header import Header
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.schema import tag_of
from support.wire_examples import (
    ANSWERED,
    ASKED,
    BOX,
    FAILURES,
    HEADERS,
    MAILBOX,
    MESSAGES,
    REF,
)
from support.wire_spec import hearers

DIRECTORY = Path(__file__).parents[2] / "protocol" / "vectors"

README = """# Golden frames

One file is one frame, as it stands on the wire: `NAME.msgpack` are its bytes, `NAME.json` says what
they mean. `scripts/vectors` writes them and the tests compare them. For a reader in any language:

1. Where `"frame"` is `"body"`, the bytes are a body that holds `messages`, in this order.
2. Where it is `"header"`, they are a header that holds `header`; what is not there has its default.
3. Where `"refused"` is true, the frame has to be refused, and the connection lives. `unknown_type`
   is the type to name to its sender, and `call` the number under which that one waits. Where
   `"malformed_request"` is true, that one is told so.

In JSON, bytes are `{"$bytes": "<base64>"}`. Numbers keep their type: `1.0` is a float, `1` is an
int, and some ints need 64 bits. `heard_by` says who has to understand the message. The bytes are
what this implementation writes; another order of keys, or a longer form of a number, is as good
(SPEC.md, section 4).

| file | what it is |
| --- | --- |
"""


@dataclass(frozen=True)
class Vector:
    """One frame, and what a reader has to make of it."""

    name: str
    what: str
    frame: bytes
    meaning: dict[str, Any]

    @property
    def described(self) -> str:
        """The text of its JSON file."""
        return json.dumps({"what": self.what, **self.meaning}, indent=1, ensure_ascii=True) + "\n"


def vectors() -> Iterator[Vector]:
    """Yield every vector, in the order of the README."""
    for message in MESSAGES:
        yield _message(tag_of(type(message)), "A message.", message)
    for message in ASKED:
        kind, inner = tag_of(type(message)), tag_of(type(message.request))
        yield _message(f"{kind}.{inner}", f"A {kind} that asks for `{inner}`.", message)
    for message in ANSWERED:
        inner = tag_of(type(message.answer))
        yield _message(f"reply.{inner}", f"A reply that says `{inner}`.", message)
    for message in FAILURES:
        inner = tag_of(type(message.outcome.reason))
        yield _message(f"failure.{inner}", f"A completion that failed with `{inner}`.", message)
    yield from _special_bodies()
    for name, what, header in HEADERS:
        yield _header(name, what, header)
    yield from _refused()


def _message(name: str, what: str, message: Any) -> Vector:
    return _body(name, what, codec.encode(message), [type(message)])


def _body(name: str, what: str, frame: bytes, types: list[type]) -> Vector:
    heard = frozenset.intersection(*(hearers(kind) for kind in types))
    return Vector(
        name,
        what,
        frame,
        {
            "frame": "body",
            "heard_by": sorted(heard),
            "messages": [as_json(raw) for raw in codec.unpack_each(frame)],
        },
    )


def _special_bodies() -> Iterator[Vector]:
    several = [m for m in MESSAGES if tag_of(type(m)) in ("admission", "completion", "gap")]
    yield _body(
        "body.several",
        "Several messages one after another, as one turn of a loop produced them.",
        codec.join(codec.encode(message) for message in several),
        [type(message) for message in several],
    )
    least = Submit(ref=REF, prompt="review this", recipient=MAILBOX)
    yield _body(
        "body.defaults",
        "A submit of which every field that has a default is left out.",
        codec.encode(least),
        [Submit],
    )
    (ping,) = (m for m in MESSAGES if tag_of(type(m)) == "ping")
    yield _body(
        "body.unknown_fields",
        "A ping of a later version: the fields it does not know, a reader ignores.",
        codec.pack({"later": {"t": "more"}, "call": ping.call, "t": "ping", "also": [1, None]}),
        [type(ping)],
    )
    yield _body(
        "body.long_forms",
        "A ping whose map, texts and number are written in forms longer than needed.",
        b"\xdf\x00\x00\x00\x02\xd9\x01t\xda\x00\x04ping\xdb\x00\x00\x00\x04call\xcf"
        + bytes(7)
        + b"\x07",
        [type(ping)],
    )


def _header(name: str, what: str, header: Header) -> Vector:
    frame = headers.encode_header(header)
    meaning = {"frame": "header", "header": as_json(codec.unpack(frame))}
    return Vector(f"header.{name}", what, frame, meaning)


def _refused() -> Iterator[Vector]:
    def refused(name: str, what: str, frame: bytes, kind: str = "body", **more: object) -> Vector:
        meaning = {"frame": kind, "refused": True, "heard_by": ["daemon"], **more}
        return Vector(f"refuse.{name}", what, frame, meaning)

    ping = codec.pack({"t": "ping", "call": 7})
    yield refused("nothing", "An empty body.", b"")
    yield refused("cut", "A message that ends in the middle.", ping[:-1])
    yield refused("trailing", "A message with half of another one behind it.", ping + ping[:3])
    yield refused("no_map", "A body that is no map.", codec.pack(["ping", 7]))
    yield refused("no_tag", "A map without a name.", codec.pack({"call": 7}))
    yield refused("missing_field", "A ping without its call.", codec.pack({"t": "ping"}))
    yield refused("wrong_type", "A call that is a bool.", codec.pack({"t": "ping", "call": True}))
    yield refused(
        "double_key", "A key that comes twice.", b"\x83\xa1t\xa4ping\xa4call\x07\xa4call\x07"
    )
    yield refused(
        "bytes_key", "A key that is bytes.", b"\x83\xa1t\xa4ping\xa4call\x07\xc4\x01a\x01"
    )
    yield refused("number_key", "A key that is a number.", b"\x83\xa1t\xa4ping\xa4call\x07\x01\x01")
    yield refused("extension", "An extension type.", b"\x82\xa1t\xa4ping\xa4call\xd4\x05\x00")
    yield refused("timestamp", "A timestamp.", b"\x82\xa1t\xa4ping\xa4call\xd6\xff\x00\x00\x00\x00")
    yield refused(
        "bad_utf8", "Text that is not UTF-8.", b"\x83\xa1t\xa4ping\xa4call\x07\xa1a\xa2\xff\xfe"
    )
    yield refused(
        "surrogate", "A lone surrogate.", b"\x83\xa1t\xa4ping\xa4call\x07\xa1a\xa3\xed\xa0\x80"
    )
    yield refused("lying_length", "A list that lies about its length.", b"\xdd\xff\xff\xff\xff")
    yield refused(
        "deep",
        "65 lists in each other, as a name.",
        _whereis(b"\x91" * 65 + b"\xc0"),
        malformed_request=True,
        call=7,
    )
    yield refused(
        "unknown_type",
        "A message of a type that no version has yet.",
        codec.pack({"t": "later", "call": 7}),
        unknown_type="later",
        call=7,
    )
    yield refused(
        "unknown_request",
        "A request of a type that no version has yet.",
        codec.pack({"t": "request", "call": 8, "request": {"t": "later"}}),
        unknown_type="later",
        call=8,
    )
    yield refused(
        "malformed_request",
        "A request with a field of another type.",
        codec.pack({"t": "request", "call": 9, "request": {"t": "close_group", "group": "one"}}),
        malformed_request=True,
        call=9,
    )

    yield refused(
        "header_without_kind",
        "A header that does not say what the body is.",
        codec.pack({"v": 1, "to": "daemon"}),
        "header",
    )
    yield refused(
        "header_droppable_completion",
        "A completion that calls itself droppable.",
        codec.pack(
            {"v": 1, "kind": "completion", "to": BOX.text, "class": "droppable", "seq": (1, 1)}
        ),
        "header",
    )


def _whereis(name: bytes) -> bytes:
    return b"\x83\xa1t\xa7request\xa4call\x07\xa7request\x82\xa1t\xa7whereis\xa4name" + name


def as_json(value: Plain) -> Any:
    """Return *value* as JSON can say it."""
    match value:
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case FrozenDict():
            return {key: as_json(item) for key, item in value.items()}
        case tuple():
            return [as_json(item) for item in value]
        case _:
            return value


def from_json(value: Any) -> Plain:
    """Return what `as_json` wrote."""
    match value:
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case dict():
            return FrozenDict({key: from_json(item) for key, item in value.items()})
        case list():
            return tuple(from_json(item) for item in value)
        case _:
            plain: Plain = value
            return plain


def files() -> dict[str, bytes]:
    """Return every file of the directory as it should be."""
    found: dict[str, bytes] = {}
    rows = ""
    for vector in vectors():
        assert f"{vector.name}.json" not in found, f"two vectors are called {vector.name}"
        found[f"{vector.name}.msgpack"] = vector.frame
        found[f"{vector.name}.json"] = vector.described.encode()
        rows += f"| `{vector.name}` | {vector.what} |\n"
    found["README.md"] = (README + rows).encode()
    return found


def differences() -> list[str]:
    """Return what is missing, stray or not current."""
    wanted = files()
    there = {path.name: path.read_bytes() for path in DIRECTORY.iterdir()}
    return sorted(
        [f"{name} is missing" for name in wanted.keys() - there.keys()]
        + [f"{name} is stray" for name in there.keys() - wanted.keys()]
        + [
            f"{name} differs"
            for name in wanted.keys() & there.keys()
            if wanted[name] != there[name]
        ]
    )


def write() -> None:
    """Make the directory what it should be."""
    DIRECTORY.mkdir(exist_ok=True)
    wanted = files()
    for path in DIRECTORY.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, data in wanted.items():
        (DIRECTORY / name).write_bytes(data)


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare; the status says whether all is current."""
    if arguments not in ([], ["--check"]):
        print("usage: vectors [--check]", file=sys.stderr)
        return 2
    if not arguments:
        write()
        return 0
    found = differences()
    for one in found:
        print(f"protocol/vectors/{one}: run scripts/vectors and look at the diff", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
