"""A turn's events: complete or failed, and a prefix only for who asked for one."""

from __future__ import annotations

from itertools import count

import pytest

from genagent_protocol.answers import PollFailed
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, Event, Failed, Omission, Outcome, Response, event
from genagent_protocol.limits import split_options
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import (
    INTERRUPTED,
    NO_TERMINAL_EVENT,
    UNKNOWN,
    BackendFailed,
    EventCaptureOverflow,
    Failure,
    StartError,
)
from genagent_protocol.turns.capture import Capture
from genagent_protocol.turns.effects import KeepTurn
from support.turns_scripted import ScriptedAgent
from support.turns_values import DEFAULTS

COMPACT = Limits(event_retention="compact")


class Stream:
    """A turn's code, as far as the capture is concerned."""

    def __init__(self, limits: Limits = DEFAULTS) -> None:
        self.capture = Capture(limits)
        self.seen_by_callback: list[Event] = []

    def run(self, *events: Event) -> Outcome:
        for shown in events:
            if isinstance(self.capture.accept(shown), EventCaptureOverflow):
                break
            self.seen_by_callback.append(shown)
            if self.capture.over:
                break
        return self.capture.outcome(prompt="p", duration_ms=1)


def response_of(outcome: Outcome) -> Response:
    assert isinstance(outcome, Completed)
    return outcome.response


def reason_of(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Failed)
    return outcome.reason


def overflow_of(outcome: Outcome) -> EventCaptureOverflow:
    reason = reason_of(outcome)
    assert isinstance(reason, EventCaptureOverflow)
    return reason


def text(said: str = "t", *, boundary: bool = False) -> Event:
    return event("text", {"text": said, "message_boundary": boundary})


def test_s011_a_terminal_error_without_a_reason_is_unknown() -> None:
    """Terminal error without a reason."""
    assert reason_of(Stream().run(event("error"))) == UNKNOWN


def test_s012_a_stream_without_a_terminal_event_fails() -> None:
    """The stream ends without one."""
    assert reason_of(Stream().run(text())) == NO_TERMINAL_EVENT


def test_s015_what_follows_the_terminal_event_appears_nowhere() -> None:
    """Elements after it are never looked at."""
    stream = Stream()
    outcome = stream.run(text("a"), event("result"), text("never"))

    assert [e.kind for e in response_of(outcome).events] == ["text", "result"]
    assert len(stream.seen_by_callback) == 2


def test_s024_a_terminal_text_wins_even_if_it_is_empty() -> None:
    """Result text "" after text chunks."""
    assert response_of(Stream().run(text("said"), event("result", text=""))).text == ""


def test_s025_chunks_are_joined_directly() -> None:
    """Chunks "hel", "lo" and a result without text."""
    assert response_of(Stream().run(text("hel"), text("lo"), event("result"))).text == "hello"


def test_s026_messages_are_set_off_by_one_blank_line() -> None:
    """Two messages, the first in two chunks; the last one is the final message."""
    response = response_of(
        Stream().run(
            text("first ", boundary=True),
            text("message"),
            text("second", boundary=True),
            event("result"),
        )
    )

    assert response.text == "first message\n\nsecond"
    assert response.final_message == "second"


def test_s027_the_last_usage_counts() -> None:
    """Two usage events: the later one; with none it is None."""
    usage = [event("usage", input_tokens=n) for n in (1, 2)]

    assert response_of(Stream().run(*usage, event("result"))).usage == {"input_tokens": 2}
    assert response_of(Stream().run(event("result"))).usage is None


def test_s141_one_event_too_many_fails_the_turn() -> None:
    """Default limits, 1,000 texts and a result: overflow by events, the callback saw 1,000."""
    stream = Stream()
    overflow = overflow_of(stream.run(*[text()] * 1_000, event("result")))

    assert (overflow.limit, overflow.max_events, overflow.retained_events) == (
        "events",
        1_000,
        1_000,
    )
    assert overflow.rejected_event_kind == "result"
    assert len(stream.seen_by_callback) == 1_000


def test_s141_a_poll_shows_the_overflow() -> None:
    """The reason of the completion and of a poll are the same."""
    overflow = overflow_of(Stream(Limits(max_events_per_turn=1)).run(text(), text()))
    agent = ScriptedAgent()
    agent.tell(1)
    agent.fail(overflow)

    assert agent.poll(1) == PollFailed(overflow)


def test_s142_one_event_too_large_fails_the_turn() -> None:
    """Byte limit 256 and a text of 1,000 bytes: overflow bytes, nothing retained or seen."""
    stream = Stream(Limits(max_event_bytes_per_turn=256))
    overflow = overflow_of(stream.run(text("x" * 1_000)))

    assert (overflow.limit, overflow.retained_events, overflow.retained_bytes) == ("bytes", 0, 0)
    assert stream.seen_by_callback == []


def test_s143_an_error_too_large_leaves_no_secret() -> None:
    """Overflow with kind error; the reason appears nowhere."""
    first = text("t")
    stream = Stream(Limits(max_event_bytes_per_turn=first.size_bytes + 1))
    outcome = stream.run(first, event("error", reason="the secret reason"))

    assert overflow_of(outcome).rejected_event_kind == "error"
    assert "secret" not in repr(outcome)


def test_s144_an_error_that_fits_keeps_its_reason() -> None:
    """Its own reason."""
    assert reason_of(Stream().run(event("error", reason="r"))) == BackendFailed("r")


def test_s145_an_endless_stream_is_cut_off() -> None:
    """Limit 3: three events reach the callback, and the stream is not asked for more."""
    stream = Stream(Limits(max_events_per_turn=3))
    pulled = count(1)

    outcome = stream.run(*(text(str(next(pulled))) for _ in range(50)))

    assert overflow_of(outcome).retained_events == 3
    assert len(stream.seen_by_callback) == 3


def test_s146_an_interrupt_before_the_overflow_wins() -> None:
    """Interrupted; the late overflow is discarded and the next turn unaffected."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.interrupt()
    agent.fail(overflow_of(Stream(Limits(max_events_per_turn=1)).run(text(), text())))
    agent.submit(2)
    agent.end()

    assert agent.completions(1) == [Failed(INTERRUPTED)]
    assert isinstance(agent.completions(2)[0], Completed)


@pytest.mark.parametrize("value", [0, -1, "text"])
@pytest.mark.parametrize("name", ["max_events_per_turn", "max_event_bytes_per_turn"])
def test_s147_capture_limits_are_positive(name: str, value: Plain) -> None:
    """Anything else fails the start."""
    assert isinstance(split_options({name: value}), StartError)


def test_s148_the_rejected_event_reaches_nobody() -> None:
    """The completion carries the overflow; the callback's state is kept."""
    stream = Stream(Limits(max_events_per_turn=1))
    outcome = stream.run(text("kept"), text("rejected"))
    agent = ScriptedAgent()
    agent.submit(1, stream_to="bob")
    for seen in stream.seen_by_callback:
        agent.event(seen)
    agent.fail(overflow_of(outcome))

    assert agent.story.count("event r1 text") == 1
    assert agent.completions(1) == [outcome]
    assert agent.orders(KeepTurn) == [KeepTurn(1)]


def test_s149_compact_keeps_a_prefix_and_the_whole_meaning() -> None:
    """1,500 texts, usage, result: 1,000 kept, coverage 1,502/1,000/502, meaning intact."""
    stream = Stream(COMPACT)
    response = response_of(
        stream.run(*[text()] * 1_500, event("usage", n=1), event("result", session_id="s"))
    )
    coverage = response.event_coverage

    assert len(response.events) == 1_000
    assert (coverage.observed_events, coverage.retained_events) == (1_502, 1_000)
    assert coverage.omitted_events == 502
    assert coverage.first_omission == Omission(limit="events", event_kind="text")
    assert (response.text, response.usage, response.session_id) == ("t" * 1_500, {"n": 1}, "s")
    assert len(stream.seen_by_callback) == 1_502


def test_s150_compact_keeps_within_the_bytes_and_the_terminal_apart() -> None:
    """Large tool results: retained bytes within the cap, the terminal kept separately."""
    limits = Limits(event_retention="compact", max_event_bytes_per_turn=1_000)
    large = event("tool_result", output="x" * 900)
    response = response_of(Stream(limits).run(large, large, event("result", text="done")))

    assert response.event_coverage.retained_bytes <= 1_000
    assert response.event_coverage.first_omission == Omission(
        limit="bytes", event_kind="tool_result"
    )
    assert response.terminal == event("result", text="done")
    assert response.terminal not in response.events


def test_s151_compact_keeps_nothing_after_the_first_omission() -> None:
    """An omitted big event followed by a tiny one: the tiny one is omitted too."""
    limits = Limits(event_retention="compact", max_event_bytes_per_turn=100)
    response = response_of(
        Stream(limits).run(text("a"), text("x" * 500), text("b"), event("result"))
    )

    assert [e.data.get("text") for e in response.events] == ["a"]


def test_s152_an_unknown_retention_fails_the_start() -> None:
    """Unknown retention mode."""
    assert isinstance(split_options({"event_retention": "lossless"}), StartError)
