"""The header is all a switchboard reads: strict about what it needs, deaf to the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagent_protocol import codec
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.header import (
    DROPPABLE,
    MAX_HEADER_BYTES,
    MAX_REF_CHARS,
    Header,
    decode_header,
    encode_header,
)
from support.plain_values import plain, texts

counts = st.integers(0, 2**63)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    """Draw any header that may be sent."""
    first = draw(st.integers(1, 2**62))
    droppable = draw(st.booleans())
    numbered = droppable or draw(st.booleans())
    return Header(
        kind=draw(st.sampled_from(sorted(DROPPABLE)) if droppable else texts),
        to=draw(texts),
        sender=draw(texts),
        delivery="droppable" if droppable else "must_keep",
        ref=draw(st.none() | texts),
        first=first if numbered else 0,
        last=first + draw(counts) if numbered else 0,
        bodies=draw(st.integers(1, 2**62)),
        size=draw(counts),
        version=draw(st.integers(1, 2**62)),
        answers=draw(st.booleans()),
        behind=draw(counts),
    )


def raw(**fields: object) -> bytes:
    """Return a good header with these fields changed; None leaves a field out."""
    good: dict[str, object] = {"v": 1, "kind": "submit", "to": "daemon", **fields}
    return codec.pack({key: value for key, value in good.items() if value is not None})


@given(headers())
def test_a_header_is_read_as_it_was_written(header: Header) -> None:
    """Every field, whatever it holds."""
    assert decode_header(encode_header(header)) == header


@pytest.mark.parametrize("character", ["x", "\N{SNOWMAN}", "\U0001f600"])
def test_whoever_may_say_a_header_may_have_it_handed_on(character: str) -> None:
    """The daemon writes the sender and more into it; what it sends, its receiver can read."""
    said = decode_header(raw(to="x" * 64, kind="x" * 64, ref=character * MAX_REF_CHARS))
    last = 2**63
    stamped = said._replace(sender="x" * 64, first=last, last=last, size=last, behind=last)

    assert decode_header(encode_header(stamped)) == stamped


def test_the_least_a_header_says_is_version_kind_and_recipient() -> None:
    """Everything else has a meaning when it is not there."""
    assert decode_header(raw()) == Header("submit", "daemon")


@given(st.dictionaries(texts, plain, max_size=3))
def test_unknown_fields_are_ignored(more: dict[str, Any]) -> None:
    """A later version may say more to whoever understands it."""
    known = {"v", "kind", "to", "from", "class", "ref", "seq", "bodies", "size"}
    known |= {"answers", "behind"}
    unknown = {key: value for key, value in more.items() if key not in known}

    assert decode_header(raw(**unknown)) == Header("submit", "daemon")


def test_fields_that_say_nothing_are_not_sent() -> None:
    """A header goes with every message."""
    said = codec.unpack_map(encode_header(Header("submit", "daemon")))

    assert set(said) == {"v", "kind", "class", "to", "from", "size"}


@pytest.mark.parametrize(
    "fields",
    [
        {"v": None},
        {"v": "1"},
        {"v": 0},
        {"v": True},
        {"v": -1},
        {"kind": None},
        {"kind": 1},
        {"kind": b"submit"},
        {"to": None},
        {"to": 7},
        {"from": 7},
        {"from": b"x"},
        {"ref": 7},
        {"ref": "x" * (MAX_REF_CHARS + 1)},
        {"class": "later"},
        {"class": ""},
        {"class": 1},
        {"class": ["must_keep"]},
        {"bodies": 0},
        {"bodies": "1"},
        {"bodies": True},
        {"size": -1},
        {"size": 1.0},
        {"behind": -1},
        {"behind": True},
        {"behind": "1"},
        {"answers": 1},
        {"answers": "yes"},
        {"seq": 1},
        {"seq": [1]},
        {"seq": [0, 1]},
        {"seq": [2, 1]},
        {"seq": [1, 2, 3]},
        {"seq": [True, 2]},
        {"seq": [1, True]},
        {"seq": ["1", "2"]},
        {"seq": {"first": 1, "last": 2}},
    ],
)
def test_a_field_that_is_not_what_it_should_be_is_refused(fields: dict[str, object]) -> None:
    """A switchboard that guessed would deliver to the wrong one."""
    with pytest.raises(RemoteWireError):
        decode_header(raw(**fields))


@pytest.mark.parametrize("kind", ["completion", "admission", "submit", "down", "batch", ""])
def test_only_events_may_be_called_droppable(kind: str) -> None:
    """A completion that could be dropped would break the one promise everything rests on."""
    with pytest.raises(RemoteWireError, match="droppable"):
        decode_header(raw(**{"kind": kind, "class": "droppable", "seq": [1, 1]}))


@pytest.mark.parametrize("kind", sorted(DROPPABLE))
def test_what_may_be_dropped_is_numbered(kind: str) -> None:
    """Without a number nobody could say what is missing."""
    assert decode_header(raw(**{"kind": kind, "class": "droppable", "seq": [3, 5]})).last == 5
    with pytest.raises(RemoteWireError, match="numbered"):
        decode_header(raw(**{"kind": kind, "class": "droppable"}))


@pytest.mark.parametrize(
    "frame", [b"", b"\xc0", b"\x90", b"\xa5hello", b"\x01", codec.pack({"v": 1}) + b"\xc0"]
)
def test_what_is_no_map_is_no_header(frame: bytes) -> None:
    """Whatever it is."""
    with pytest.raises(RemoteWireError):
        decode_header(frame)


def test_a_header_at_the_limit_is_read_and_one_above_is_refused() -> None:
    """A switchboard that read headers without end could be kept busy by one peer."""
    room = MAX_HEADER_BYTES - len(raw(more="")) - 2
    assert len(raw(more="x" * room)) == MAX_HEADER_BYTES

    assert decode_header(raw(more="x" * room)) == Header("submit", "daemon")
    with pytest.raises(RemoteWireError, match=str(MAX_HEADER_BYTES)):
        decode_header(raw(more="x" * (room + 1)))


def read_or_refuse(frame: bytes) -> None:
    try:
        header = decode_header(frame)
    except RemoteWireError:
        return
    assert decode_header(encode_header(header)) == header


@given(st.binary(max_size=100))
def test_random_frames_are_refused_or_are_headers(frame: bytes) -> None:
    """And nothing else is ever raised."""
    read_or_refuse(frame)


@settings(max_examples=300)
@given(headers(), st.integers(0), st.integers(1, 255), st.integers(0, 3))
def test_mutated_headers_are_refused_or_are_headers(
    header: Header, place: int, change: int, cut: int
) -> None:
    """One byte another, some bytes missing."""
    frame = bytearray(encode_header(header))
    frame[place % len(frame)] ^= change
    del frame[place % len(frame) : place % len(frame) + cut]

    read_or_refuse(bytes(frame))
