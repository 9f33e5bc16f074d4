"""Whatever is wrong with an argument is told before anything exists or is sent (C1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from genagent_protocol.errors import UsageError
from genagent_protocol.refs import BootId, MonitorRef
from genagentd import arguments
from genagentd.client.client import Client
from support.peer import OWN, PLACE, a_ref, handle


class AMailbox:
    address = OWN


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"client": -1},
        {"client": 0},
        {"client": "1"},
        {"client": 10**40},
        {"client": 10**5_000},
        {"client": None},
        {"boot": 5},
        {"boot": "there"},
        {"box": True},
        {"box": False},
        {"box": -1},
    ],
    ids=lambda wrong: str([*wrong]),
)
def test_an_address_that_somebody_made_up_is_refused(wrong: Any) -> None:
    """The far end could not read it, and would be silent about the whole prompt."""
    made_up = replace(OWN, **wrong)

    with pytest.raises(UsageError, match="recipient"):
        arguments.recipient(made_up, "recipient", PLACE)
    with pytest.raises(UsageError, match="stream_to"):
        arguments.stream_target(made_up, PLACE)


@pytest.mark.parametrize(
    "wrong",
    [
        {"incarnation": None},
        {"incarnation": replace(handle().incarnation, number=0)},
        {"incarnation": replace(handle().incarnation, boot=BootId("x"))},
        {"pid": 2**80},
        {"pid": -1},
        {"pid": "1"},
        {"started_ticks": -1},
        {"started_ticks": True},
        {"place": None},
        {"name": {1, 2}},
    ],
    ids=str,
)
def test_a_handle_that_somebody_made_up_is_refused(wrong: Any) -> None:
    """Its fields decide where things go, and which process is looked at."""
    with pytest.raises(UsageError, match="handle"):
        arguments.captured(replace(handle(), **wrong), PLACE)


def test_a_ref_or_monitor_that_somebody_made_up_is_refused() -> None:
    """As its text would be."""
    with pytest.raises(UsageError, match="ref"):
        arguments.request_ref(replace(a_ref(), token="x"))
    with pytest.raises(UsageError, match="monitor"):
        arguments.monitor_ref(MonitorRef(-1))


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


@pytest.mark.parametrize("given", [-1, 1.5, True, "5", None])
def test_connecting_and_closing_take_a_limit_too(given: Any) -> None:
    """A connection has always one; nothing is connected before it is checked."""
    with pytest.raises(UsageError, match="timeout_ms"):
        Client("/no/such/place").connect(given)
    with pytest.raises(UsageError, match="linger_ms"):
        Client("/no/such/place").close(given)


def test_no_time_limit_and_none_at_all_are_two_things() -> None:
    """Zero looks once; None waits."""
    assert arguments.timeout(0) == 0
    assert arguments.timeout(None) is None


def test_a_time_limit_may_be_as_long_as_one_likes() -> None:
    """Whoever means "practically for ever" gets that, whatever number a clock can hold."""
    for given in (2**31 - 1, 2**31, 2**53):
        assert arguments.timeout(given) == given
    assert arguments.timeout(10**400) == 2**53


@pytest.mark.parametrize("given", [5, None, "m", a_ref()])
def test_a_monitor_is_what_monitor_returned(given: object) -> None:
    """Its number alone would be another kind of number, too."""
    assert arguments.monitor_ref(MonitorRef(3)) == MonitorRef(3)
    with pytest.raises(UsageError, match="monitor"):
        arguments.monitor_ref(given)
