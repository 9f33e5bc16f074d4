"""Bytes become lines of JSON however they are cut, and no line is ever held beyond its limit."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.lines import MAX_LINE_BYTES, Line, LineSplitter, LineTooLong
from genagent_protocol.plain import FrozenDict

OBJECTS = st.dictionaries(st.text(), st.integers(-5, 5) | st.text())


def split(data: bytes, size: int, limit_bytes: int = MAX_LINE_BYTES) -> list[Line]:
    splitter = LineSplitter(limit_bytes)
    lines: list[Line] = []
    for start in range(0, len(data), size):
        lines += splitter.feed(data[start : start + size])
    return lines + list(splitter.finish())


@given(objects=st.lists(OBJECTS, max_size=5), size=st.integers(1, 9), newline=st.booleans())
def test_lines_are_whole_however_the_bytes_are_cut(
    objects: list[dict[str, object]], size: int, newline: bool
) -> None:
    """A pipe may cut inside a character, and the last newline may be missing."""
    data = b"\n".join(json.dumps(o, ensure_ascii=False).encode() for o in objects)

    assert split(data + b"\n" * newline, size) == objects


@given(pieces=st.lists(st.sampled_from([b'{"a": 1}', b'{"a": ', b"1}", b"\n", b"x"]), max_size=8))
def test_a_line_that_is_taken_without_its_newline_is_taken_once(pieces: list[bytes]) -> None:
    """What has only begun stays begun, and what comes after a taken one is another line."""
    splitter = LineSplitter()
    lines: list[Line] = []
    written = b""
    for piece in pieces:
        lines += splitter.feed(piece)
        taken = splitter.whole()
        written += piece if taken is None else piece + b"\n"
        lines += [] if taken is None else [taken]

    assert [*lines, *splitter.finish()] == split(written, 100)


def test_no_overlong_line_is_taken_before_its_end() -> None:
    """What is left of it might look like one."""
    splitter = LineSplitter(limit_bytes=8)
    assert list(splitter.feed(b'"xxxxxxx')) == list(splitter.feed(b'{"a":1}')) == []

    assert splitter.whole() is None
    assert list(splitter.finish()) == [LineTooLong(8)]


def test_blank_lines_and_noise_are_skipped_and_counted() -> None:
    """Programs print progress and warnings between their events."""
    splitter = LineSplitter()
    data = b'\n  \r\nWarning: x\n[1]\n"text"\n{"a": 1}\r\n\xff\xfe\n{broken\n'

    assert list(splitter.feed(data)) == [FrozenDict({"a": 1})]
    assert (splitter.blank_lines, splitter.noise_lines) == (2, 5)


def test_bytes_that_are_no_utf8_do_not_cost_the_line() -> None:
    """A tool may have printed a file in another encoding."""
    assert split(b'{"a": "caf\xe9"}\n', 3) == [FrozenDict({"a": "caf\ufffd"})]


@pytest.mark.parametrize("size", [70_000, 300_000, 5_000_000])
def test_a_long_line_is_a_line(size: int) -> None:
    """E073: a tool result of several megabytes is ordinary."""
    data = json.dumps({"text": "x" * size}).encode() + b'\n{"next": 1}\n'

    first, second = split(data, 65_536)

    assert isinstance(first, FrozenDict)
    assert len(str(first["text"])) == size
    assert second == FrozenDict({"next": 1})


def test_a_line_at_the_limit_is_whole_and_one_byte_more_is_too_long() -> None:
    """The limit is where it says it is."""
    line = json.dumps({"a": "x" * 100}).encode()

    assert split(line + b"\n", 7, len(line)) == [FrozenDict({"a": "x" * 100})]
    assert split(line + b"\n{}\n", 7, len(line) - 1) == [
        LineTooLong(len(line) - 1),
        FrozenDict(),
    ]


def test_an_overlong_line_is_not_held_and_the_next_one_is_read() -> None:
    """E073: forty megabytes on one line must not cost forty megabytes of memory."""
    splitter = LineSplitter(limit_bytes=1_000_000)
    chunk = b"x" * 65_536
    tracemalloc.start()
    for _ in range(40_000_000 // len(chunk)):
        assert list(splitter.feed(chunk)) == []
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert list(splitter.feed(b'\n{"a": 1}\n')) == [LineTooLong(1_000_000), FrozenDict({"a": 1})]
    assert peak_bytes < 4_000_000
