"""Start options: which are limits, which limits can be, and what is left for the agent."""

from __future__ import annotations

from dataclasses import fields

import pytest

from genagent_protocol.bounds import MAX_EVENT_BYTES, MAX_EVENTS, Limits
from genagent_protocol.limits import CHECKS, split_options
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import StartError

NATURAL = [name for name in CHECKS if name.startswith(("max_pending", "max_tell", "interrupt"))]
POSITIVE = ["watchdog_ms", "max_events_per_turn", "max_event_bytes_per_turn"]
ENDLESS = ["watchdog_ms", "shutdown_ms"]


def limits_of(**options: Plain) -> Limits:
    split = split_options(options)
    assert not isinstance(split, StartError), split
    return split[0]


def refusal_of(**options: Plain) -> StartError:
    split = split_options(options)
    assert isinstance(split, StartError)
    return split


def test_every_limit_has_a_check_and_nothing_else_has() -> None:
    """A limit without a check would be taken for an option of the agent."""
    assert set(CHECKS) == {field.name for field in fields(Limits)}


def test_no_options_mean_the_documented_defaults() -> None:
    """The defaults are promises: they are written out here once more."""
    assert limits_of() == Limits(
        watchdog_ms=600_000,
        max_pending_prompts=1_000,
        max_pending_prompt_bytes=1_048_576,
        max_pending_notifications=1_000,
        max_pending_notification_bytes=1_048_576,
        max_events_per_turn=1_000,
        max_event_bytes_per_turn=1_048_576,
        event_retention="fail",
        max_tell_results=100,
        max_tell_result_bytes=8_388_608,
        shutdown_ms=5_000,
        interrupt_grace_ms=5_000,
    )


@pytest.mark.parametrize("name", CHECKS)
def test_an_explicit_none_means_the_default(name: str) -> None:
    """Who passes options through from elsewhere need not leave out the empty ones."""
    assert limits_of(**{name: None}) == Limits()


@pytest.mark.parametrize("name", ENDLESS)
def test_no_limit_is_spelled_infinity(name: str) -> None:
    """None is taken by the default, and a large number is a guess."""
    assert getattr(limits_of(**{name: "infinity"}), name) is None


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in ENDLESS])
def test_what_has_to_be_bounded_cannot_be_endless(name: str) -> None:
    """An unbounded queue is how a daemon dies."""
    assert refusal_of(**{name: "infinity"}).code == "invalid_limits"


@pytest.mark.parametrize("name", [*NATURAL, "shutdown_ms"])
def test_zero_is_a_limit_of_its_own(name: str) -> None:
    """Zero disables a queue, or means at once."""
    assert getattr(limits_of(**{name: 0}), name) == 0


@pytest.mark.parametrize("name", POSITIVE)
def test_a_turn_has_to_have_some_room(name: str) -> None:
    """A turn of no time, no events or no bytes could never succeed."""
    assert getattr(limits_of(**{name: 1}), name) == 1
    assert refusal_of(**{name: 0}).detail == name


@pytest.mark.parametrize("value", [-1, 1.5, "5", True, False, (1,), b"1"], ids=repr)
@pytest.mark.parametrize("name", CHECKS)
def test_what_is_no_whole_number_is_refused(name: str, value: Plain) -> None:
    """A boolean is no number, and text that looks like one is text."""
    refusal = refusal_of(**{name: value})

    assert refusal.kind == "invalid_limits"
    assert refusal.detail == name
    assert name in refusal.message


def test_a_refusal_repeats_no_long_text() -> None:
    """A start option may be a secret that got under the wrong name."""
    assert "sk-" not in refusal_of(watchdog_ms="sk-0123456789abcdef").message


@pytest.mark.parametrize("retention", ["fail", "compact"])
def test_retention_is_one_of_two(retention: str) -> None:
    """Failing is the rule; a prefix is what somebody has to ask for."""
    assert limits_of(event_retention=retention).event_retention == retention
    assert refusal_of(event_retention="lossless").detail == "event_retention"


def test_limits_whose_completion_could_not_be_sent_are_refused() -> None:
    """There is exactly one completion, so it has to fit into one message."""
    most = limits_of(max_event_bytes_per_turn=MAX_EVENT_BYTES, max_events_per_turn=MAX_EVENTS)
    assert (most.max_event_bytes_per_turn, most.max_events_per_turn) == (
        MAX_EVENT_BYTES,
        MAX_EVENTS,
    )
    assert (
        "fits into one message" in refusal_of(max_event_bytes_per_turn=MAX_EVENT_BYTES + 1).message
    )
    assert refusal_of(max_events_per_turn=MAX_EVENTS + 1).detail == "max_events_per_turn"


def test_everything_else_is_left_for_the_agent() -> None:
    """Limits never reach `init_agent`, and nothing else is looked at."""
    options: dict[str, Plain] = {"foo": "bar", "max_tell_results": 3, "task_supervisor": None}
    split = split_options(options)
    assert not isinstance(split, StartError)

    assert split == (Limits(max_tell_results=3), {"foo": "bar", "task_supervisor": None})
    with pytest.raises(TypeError):
        split[1]["foo"] = "changed"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"event_retention": "keep"}, "not 'keep';"),
        ({"watchdog_ms": "abc"}, "not 'abc';"),
        ({"watchdog_ms": "a\nb"}, r"not 'a\nb';"),
        ({"watchdog_ms": "x" * 1_000}, "not a text of 1000 characters;"),
        ({"watchdog_ms": -5}, "not -5;"),
        ({"watchdog_ms": True}, "not True;"),
        ({"watchdog_ms": b"1"}, "not a bytes;"),
    ],
)
def test_what_was_given_is_told_in_short(options: dict[str, Plain], shown: str) -> None:
    """A typing error is seen at once when it is shown."""
    assert shown in refusal_of(**options).message
