"""The golden frames are current, complete, and mean what their descriptions say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest

from genagent_protocol import codec
from genagent_protocol.codec import MalformedMessage, UnknownMessage
from genagent_protocol.envelopes import ToAgent, ToClient, ToDaemon
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.header import decode_header, encode_header
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.schema import tag_of
from support import wire_vectors
from support.wire_examples import ANSWERED, ASKED, FAILURES, MESSAGES
from support.wire_spec import FAMILIES, hearers
from support.wire_values import ANSWERS, ENVELOPES, members
from support.wire_vectors import DIRECTORY, from_json

UNIONS: dict[str, Any] = {"daemon": ToDaemon, "agent": ToAgent, "client": ToClient}
NAMES = sorted(path.stem for path in DIRECTORY.glob("*.json"))


def described(name: str) -> tuple[bytes, dict[str, Any]]:
    """Return a frame from its file, and what its description says."""
    frame = (DIRECTORY / f"{name}.msgpack").read_bytes()
    meaning = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="ascii"))
    return frame, meaning


def of(frame: str, *, refused: bool = False) -> list[str]:
    """Return the names of the vectors of one kind."""
    found = ((name, described(name)[1]) for name in NAMES)
    return [
        name
        for name, meaning in found
        if meaning["frame"] == frame and meaning.get("refused", False) == refused
    ]


def test_the_files_are_what_the_code_writes() -> None:
    """A change of the wire shows as a change of these files, and is looked at."""
    assert wire_vectors.differences() == []


def test_every_message_request_answer_and_failure_has_a_vector() -> None:
    """Also the next one."""
    assert {type(m) for m in (*MESSAGES, *ASKED, *ANSWERED, *FAILURES)} == set(ENVELOPES)
    assert {type(message.request) for message in ASKED} == {
        *members(FAMILIES["daemon request"]),
        *members(FAMILIES["agent request"]),
    }
    assert {type(message.answer) for message in ANSWERED} == set(ANSWERS)
    assert {type(message.outcome.reason) for message in FAILURES} == set(
        members(FAMILIES["failure"])
    )


@pytest.mark.parametrize("name", of("body"))
def test_a_body_is_read_as_its_description_says(name: str) -> None:
    """By everyone who is to understand it, and by nobody else."""
    frame, meaning = described(name)
    raw: list[Plain] = [from_json(message) for message in meaning["messages"]]

    assert codec.unpack_each(frame) == raw
    for who, union in UNIONS.items():
        if who in meaning["heard_by"]:
            heard = codec.decode(union, frame)
            assert [codec.read(union, one) for one in raw] == heard
            assert all(who in hearers(type(message)) for message in heard)
        else:
            with pytest.raises(UnknownMessage):
                codec.decode(union, frame)


@pytest.mark.parametrize("name", [n for n in of("body") if not n.startswith("body.")])
def test_a_message_is_written_as_its_file_holds_it(name: str) -> None:
    """Byte for byte."""
    frame, meaning = described(name)
    (message,) = codec.decode(UNIONS[meaning["heard_by"][0]], frame)

    assert codec.encode(message) == frame


@pytest.mark.parametrize("name", of("header"))
def test_a_header_is_read_as_its_description_says_and_written_again(name: str) -> None:
    """Field for field, and byte for byte."""
    frame, meaning = described(name)

    assert codec.unpack(frame) == from_json(meaning["header"])
    assert encode_header(decode_header(frame)) == frame


@pytest.mark.parametrize("name", of("body", refused=True))
def test_a_body_to_be_refused_is_refused(name: str) -> None:
    """And if its sender is to be told, what it is told and the waiting call are named."""
    frame, meaning = described(name)

    with pytest.raises(RemoteWireError) as refused:
        codec.decode(ToDaemon, frame)

    match refused.value:
        case UnknownMessage(tag=tag, call=call):
            named = {"unknown_type": tag, "call": call}
        case MalformedMessage(tag="request", call=int(call)):
            named = {"malformed_request": True, "call": call}
        case _:
            named = {}
    expected = ("unknown_type", "malformed_request", "call")
    assert named == {name: meaning[name] for name in expected if name in meaning}


@pytest.mark.parametrize("name", of("header", refused=True))
def test_a_header_to_be_refused_is_refused(name: str) -> None:
    """A switchboard in another language refuses the same."""
    with pytest.raises(RemoteWireError):
        decode_header(described(name)[0])


@pytest.mark.parametrize("name", of("body") + of("header"))
def test_a_plain_decoder_finds_the_same_in_the_file(name: str) -> None:
    """The descriptions do not lean on our own reader."""
    frame, meaning = described(name)
    decoder = msgpack.Unpacker(strict_map_key=True, max_buffer_size=0)
    decoder.feed(frame)

    found = [wire_vectors.as_json(frozen(value)) for value in decoder]

    assert found == meaning.get("messages", [meaning.get("header")])


def frozen(value: Any) -> Plain:
    """Return what a decoder made, with our kinds of lists and maps."""
    match value:
        case dict():
            return FrozenDict({key: frozen(item) for key, item in value.items()})
        case list():
            return tuple(frozen(item) for item in value)
        case _:
            plain: Plain = value
            return plain


@pytest.mark.parametrize("name", NAMES)
def test_every_file_stands_in_the_readme(name: str) -> None:
    """Whoever implements the wire finds what a file is for."""
    readme = (DIRECTORY / "README.md").read_text(encoding="utf-8")

    assert f"| `{name}` | " in readme


def test_stray_changed_and_missing_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check is what keeps the files honest, so it has to see each kind of difference."""
    monkeypatch.setattr(wire_vectors, "DIRECTORY", tmp_path / "vectors")
    assert wire_vectors.main([]) == 0
    assert wire_vectors.main(["--check"]) == 0

    ping = tag_of(ENVELOPES[1])
    (tmp_path / "vectors" / f"{ping}.msgpack").write_bytes(b"\xc0")
    (tmp_path / "vectors" / "hello.json").unlink()
    (tmp_path / "vectors" / "old.msgpack").write_bytes(b"")

    assert wire_vectors.main(["--check"]) == 1
    said = capsys.readouterr().err
    for problem in (f"{ping}.msgpack differs", "hello.json is missing", "old.msgpack is stray"):
        assert problem in said
    assert wire_vectors.main([]) == 0
    assert wire_vectors.differences() == []
    assert wire_vectors.main(["--else"]) == 2
