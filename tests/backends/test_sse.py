"""A stream of events is the same however its bytes are cut."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.sse import SseEvent, SseReader, SseTooLong


def read(data: bytes, size: int = 1_000, limit_bytes: int = 10_000) -> list[SseEvent]:
    reader = SseReader(limit_bytes)
    return [
        event
        for start in range(0, len(data), size)
        for event in reader.feed(data[start : start + size])
    ]


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=8)


@given(
    texts=st.lists(st.lists(LINE, min_size=1, max_size=3), max_size=4),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(1, 9),
)
def test_events_are_whole_however_the_bytes_are_cut(
    texts: list[list[str]], newline: str, size: int
) -> None:
    """A chunk may end inside a character, inside a CRLF, or inside a field's name."""
    data = "".join("".join(f"data: {line}{newline}" for line in lines) + newline for lines in texts)

    assert read(data.encode(), size) == [SseEvent("message", "\n".join(lines)) for lines in texts]


def test_names_comments_and_unknown_fields() -> None:
    """Only data and the name of an event mean anything here."""
    data = b": hi\nevent: ping\ndata:x\ndata: y\nid: 7\nretry: 5\nnonsense\n\ndata: z\n\n"

    assert read(data) == [SseEvent("ping", "x\ny"), SseEvent("message", "z")]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_byte_order_mark_is_no_part_of_the_first_field(size: int) -> None:
    """Some servers begin with one."""
    assert read(b"\xef\xbb\xbfdata: x\n\n", size) == [SseEvent("message", "x")]


def test_an_event_that_is_cut_short_is_dropped() -> None:
    """Half an event would be read as a whole one that says something else."""
    assert read(b"data: whole\n\ndata: ha") == [SseEvent("message", "whole")]


def test_an_event_without_data_says_nothing() -> None:
    """A name alone is no event."""
    assert read(b"event: ping\n\n\n\ndata: x\n\n") == [SseEvent("message", "x")]


def test_an_event_that_ends_in_cr_is_not_kept_back() -> None:
    """The last one would never come, and every other one only with the next."""
    reader = SseReader()

    assert list(reader.feed(b"data: a\r\r")) == [SseEvent("message", "a")]
    assert list(reader.feed(b"\ndata: b\r\n\r")) == [SseEvent("message", "b")]
    assert list(reader.feed(b"\n")) == []


@pytest.mark.parametrize(
    "data",
    [
        b"data: " + b"x" * 200,
        b"data: xxxxxxxxxx\n" * 20,
        b"data\n" * 200,
        b"data:\r" * 200,
        b"event: " + b"x" * 80 + b"\ndata: " + b"x" * 80,
        b"x" * 200,
    ],
    ids=lambda data: data[:12].decode(),
)
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_an_event_over_the_limit_ends_the_stream(data: bytes, size: int) -> None:
    """Neither one line, nor many lines, nor a line of nonsense may grow without end."""
    with pytest.raises(SseTooLong):
        read(data, size, limit_bytes=100)


@given(
    lines=st.lists(
        st.sampled_from([b"data", b"data: xx", b"event: yyy", b": no", b"id: 7"]), max_size=60
    ),
    size=st.integers(1, 40),
)
def test_nothing_over_the_limit_is_ever_held(lines: list[bytes], size: int) -> None:
    """Whatever the fields of an event are."""
    reader, data = SseReader(limit_bytes=30), b"".join(line + b"\n" for line in lines)

    with suppress(SseTooLong):
        for start in range(0, len(data), size):
            list(reader.feed(data[start : start + size]))
            assert len(reader._data) + len(reader._name) + len(reader._begun) <= 30


def test_many_small_events_are_no_long_one() -> None:
    """What counts is what has to be held."""
    assert len(read(b"data: xxxxxxxxxx\n\n" * 50, limit_bytes=100)) == 50
