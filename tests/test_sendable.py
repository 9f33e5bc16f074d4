"""What is handed over to be sent is checked before anything exists or is sent (C1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from genagent_protocol import codec
from genagent_protocol.answers import AgentRow, Listing
from genagent_protocol.codec import MAX_PAYLOAD_BYTES, name_key
from genagent_protocol.envelopes import Reply, Telemetry
from genagent_protocol.errors import TooLarge, UsageError
from genagent_protocol.plain import FrozenDict, Plain
from genagentd import sendable
from support.peer import handle


@pytest.mark.parametrize("name", ["a", 1, 1.0, True, None, b"x", (1, ("two",)), {"k": [1]}])
def test_anything_that_can_be_sent_can_be_a_name(name: object) -> None:
    """Any term is a name; sequences come back as tuples (D29)."""
    found = sendable.agent_name(name)

    assert hash(found) is not None


def test_one_and_true_and_one_point_zero_are_three_names() -> None:
    """Names are compared by their encoding, not by Python's idea of equality."""
    keys = {name_key(sendable.agent_name(name)) for name in (1, True, 1.0)}

    assert len(keys) == 3


def test_a_handle_is_a_name_like_any_other() -> None:
    """Name functions treat their target as a name even when it is a handle."""
    name = sendable.agent_name(handle(3))

    assert isinstance(name, FrozenDict)
    assert sendable.agent_name(handle(3)) == name != sendable.agent_name(handle(4))


@pytest.mark.parametrize("name", [{1, 2}, object(), 2**64, "\ud800", ["x" * 2000]])
def test_what_cannot_be_a_name_is_refused(name: object) -> None:
    """A typed error of the caller, not a broken frame (E067)."""
    with pytest.raises(UsageError, match="name"):
        sendable.agent_name(name)


def nested(levels: int) -> Plain:
    """Return a value of so many levels."""
    value: Plain = 1
    for _ in range(levels):
        value = (value,)
    return value


def test_a_name_of_any_allowed_depth_can_stand_wherever_names_do() -> None:
    """In a record of the daemon, in a row, and in a handle that is the name of another agent."""
    name = sendable.agent_name(nested(sendable.MAX_NAME_DEPTH))
    theirs = replace(handle(3), name=nested(sendable.MAX_NAME_DEPTH - 1))

    assert codec.encode(Telemetry(event="agent.down", agent=name, metadata=FrozenDict(agent=name)))
    assert codec.encode(Reply(call=1, answer=Listing(rows=(AgentRow(name=name, state="failed"),))))
    assert sendable.agent_name(theirs)
    with pytest.raises(UsageError, match="name: nested deeper than 32 levels"):
        sendable.agent_name(nested(sendable.MAX_NAME_DEPTH + 1))


@pytest.mark.parametrize("prompt", [None, 1, b"bytes", ["list"], "lone \udc80 surrogate"])
def test_a_prompt_is_text(prompt: object) -> None:
    """Non-text prompts are programming errors, raised where they are made."""
    with pytest.raises(UsageError, match="prompt"):
        sendable.prompt(prompt)


def test_a_prompt_at_the_limit_passes_and_one_byte_more_says_size_and_limit() -> None:
    """Sizes are checked at the sender; an oversize frame would drop the connection (D7)."""
    fits = "x" * (MAX_PAYLOAD_BYTES - 5)
    assert sendable.prompt(fits) == fits

    with pytest.raises(TooLarge) as error:
        sendable.prompt(fits + "x")
    assert error.value.reason.code == "payload_too_large"
    assert error.value.reason.size_bytes == MAX_PAYLOAD_BYTES + 1
    assert error.value.reason.limit_bytes == MAX_PAYLOAD_BYTES


@pytest.mark.parametrize(
    ("event", "path"),
    [
        ({"a": [1, {2, 3}]}, r"event: a\[1\]"),
        ({"deep": {"b": 2**64}}, r"event: deep\.b"),
        ({1: "key"}, "event: the value"),
        (-(2**63) - 1, "event: the value"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_path(event: object, path: str) -> None:
    """In a nested event the error says where."""
    with pytest.raises(UsageError, match=path):
        sendable.payload(event, "event")


def test_a_name_that_is_too_long_is_told_what_to_do() -> None:
    """The limit includes what msgpack adds; the message says what, where and what to do."""
    assert sendable.agent_name("x" * 1021) == "x" * 1021
    said = r"^name: 1025 bytes, the limit is 1024; use a shorter one$"
    with pytest.raises(UsageError, match=said):
        sendable.agent_name("x" * 1022)
