"""Whatever is wrong with an argument is told before anything exists or is sent (C1)."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol.codec import MAX_PAYLOAD_BYTES, name_key
from genagent_protocol.errors import TooLarge, UsageError
from genagent_protocol.plain import FrozenDict
from genagentd.client import arguments
from support.peer import OWN, PLACE, a_ref, handle


class AMailbox:
    address = OWN


@pytest.mark.parametrize("name", ["a", 1, 1.0, True, None, b"x", (1, ("two",)), {"k": [1]}])
def test_anything_that_can_be_sent_can_be_a_name(name: object) -> None:
    """Any term is a name; sequences come back as tuples (D29)."""
    found = arguments.agent_name(name)

    assert hash(found) is not None


def test_one_and_true_and_one_point_zero_are_three_names() -> None:
    """Names are compared by their encoding, not by Python's idea of equality."""
    keys = {name_key(arguments.agent_name(name)) for name in (1, True, 1.0)}

    assert len(keys) == 3


def test_a_handle_is_a_name_like_any_other() -> None:
    """Name functions treat their target as a name even when it is a handle."""
    name = arguments.agent_name(handle(3))

    assert isinstance(name, FrozenDict)
    assert arguments.agent_name(handle(3)) == name != arguments.agent_name(handle(4))


@pytest.mark.parametrize("name", [{1, 2}, object(), 2**64, "\ud800", ["x" * 2000]])
def test_what_cannot_be_a_name_is_refused(name: object) -> None:
    """A typed error of the caller, not a broken frame (E067)."""
    with pytest.raises(UsageError, match="name"):
        arguments.agent_name(name)


@pytest.mark.parametrize("prompt", [None, 1, b"bytes", ["list"], "lone \udc80 surrogate"])
def test_a_prompt_is_text(prompt: object) -> None:
    """Non-text prompts are programming errors, raised where they are made."""
    with pytest.raises(UsageError, match="prompt"):
        arguments.prompt(prompt)


def test_a_prompt_at_the_limit_passes_and_one_byte_more_says_size_and_limit() -> None:
    """Sizes are checked at the sender; an oversize frame would drop the connection (D7)."""
    fits = "x" * (MAX_PAYLOAD_BYTES - 5)
    assert arguments.prompt(fits) == fits

    with pytest.raises(TooLarge) as error:
        arguments.prompt(fits + "x")
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
        arguments.payload(event, "event")


def test_a_ref_may_be_given_as_its_text() -> None:
    """People copy refs from one terminal to another."""
    assert arguments.request_ref(a_ref().text) == a_ref()


@pytest.mark.parametrize("ref", [None, 1, "not-a-ref", b"x"])
def test_what_is_no_ref_is_refused(ref: object) -> None:
    """A typo must not read as `not found`."""
    with pytest.raises(UsageError, match="ref"):
        arguments.request_ref(ref)


@pytest.mark.parametrize("given", ["Queue", None, True, "drop"])
def test_on_halt_is_one_of_two_words(given: object) -> None:
    """S084, S099: a bad option raises before anything is sent."""
    with pytest.raises(UsageError, match="on_halt"):
        arguments.on_halt(given)


def test_a_recipient_is_a_mailbox_its_address_or_an_agent() -> None:
    """Whoever can receive (D32)."""
    assert arguments.recipient(OWN, "recipient", PLACE) == OWN
    assert arguments.recipient(AMailbox(), "recipient", PLACE) == OWN
    assert arguments.recipient(handle(2), "recipient", PLACE) == handle(2).incarnation


@pytest.mark.parametrize("given", [None, "a", 1, OWN.text, handle(place="elsewhere:/run")])
def test_anything_else_is_no_recipient(given: object) -> None:
    """None included: it would be a message to nobody."""
    with pytest.raises(UsageError):
        arguments.recipient(given, "recipient", PLACE)


def test_no_stream_target_is_the_default() -> None:
    """Events are sent only where someone wants them (S089)."""
    assert arguments.stream_target(None, PLACE) is None


def test_a_handle_of_another_place_is_not_local() -> None:
    """Its pid means nothing here; the error names both places (D30)."""
    with pytest.raises(UsageError, match=r"other:/run.*host:/run/here"):
        arguments.captured(handle(place="other:/run"), PLACE)


@pytest.mark.parametrize("given", ["a", None, 1, a_ref()])
def test_what_is_not_a_handle_is_not_captured(given: object) -> None:
    """A name is not an address."""
    with pytest.raises(UsageError, match="handle"):
        arguments.captured(given, PLACE)


@pytest.mark.parametrize("given", [-1, 1.5, True, "5"])
def test_a_time_limit_is_milliseconds(given: Any) -> None:
    """Seconds given by mistake as a float are told, not rounded."""
    with pytest.raises(UsageError, match="timeout_ms"):
        arguments.timeout(given)


def test_no_time_limit_and_none_at_all_are_two_things() -> None:
    """Zero looks once; None waits."""
    assert arguments.timeout(0) == 0
    assert arguments.timeout(None) is None


def test_a_time_limit_may_be_as_long_as_one_likes() -> None:
    """Whoever means "practically for ever" gets that, whatever number a clock can hold."""
    for given in (2**31 - 1, 2**31, 2**53):
        assert arguments.timeout(given) == given
    assert arguments.timeout(10**400) == 2**53


def test_a_name_that_is_too_long_is_told_what_to_do() -> None:
    """The limit includes what msgpack adds; the message says what, where and what to do."""
    assert arguments.agent_name("x" * 1021) == "x" * 1021
    said = r"^name: 1025 bytes, the limit is 1024; use a shorter one$"
    with pytest.raises(UsageError, match=said):
        arguments.agent_name("x" * 1022)
