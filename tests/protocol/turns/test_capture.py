"""What a turn keeps of its events: exact, or a strict prefix, or a turn that failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import schema
from genagent_protocol.bounds import LARGEST_OUTCOME_BYTES, MAX_EVENT_BYTES, MAX_EVENTS, Limits
from genagent_protocol.events import Completed, Event, Failed, event
from genagent_protocol.plain import MAX_DEPTH, Plain, encoded_size, freeze
from genagent_protocol.reasons import (
    NO_TERMINAL_EVENT,
    UNKNOWN,
    BackendFailed,
    EventCaptureOverflow,
    Failure,
    TaskCrashed,
)
from genagent_protocol.turns.capture import Capture, Transcript

CHUNKS = st.builds(
    lambda text, boundary: event("text", {"text": text, "message_boundary": boundary}),
    st.text(max_size=8),
    st.booleans(),
)
OTHERS = st.sampled_from([event("usage", input_tokens=1), event("tool_use", name="ls")])
STREAMS = st.lists(st.one_of(CHUNKS, OTHERS), max_size=12)


def response_of(capture: Capture) -> Completed:
    outcome = capture.outcome(prompt="p", duration_ms=3)
    assert isinstance(outcome, Completed)
    return outcome


@given(
    stream=STREAMS,
    max_events=st.integers(1, 14),
    max_bytes=st.integers(1, 300),
    keep=st.sampled_from(["fail", "compact"]),
)
def test_a_capture_agrees_with_adding_up_the_list(
    stream: list[Event], max_events: int, max_bytes: int, keep: str
) -> None:
    """The running totals must mean what counting the whole list would."""
    limits = Limits(
        max_events_per_turn=max_events,
        max_event_bytes_per_turn=max_bytes,
        event_retention="compact" if keep == "compact" else "fail",
    )
    capture, stream = Capture(limits), [*stream, event("result")]
    fitting = 0
    while fitting < len(stream) and _fits(stream[: fitting + 1], limits):
        fitting += 1

    said = []
    for shown in stream:
        said.append(capture.accept(shown))
        if capture.over:
            break

    if fitting == len(stream) or keep == "compact":
        kept = response_of(capture).response
        assert kept.events == tuple(stream[:fitting])
        assert said == ["retained"] * fitting + ["omitted"] * (len(stream) - fitting)
        assert kept.event_coverage.observed_events == len(stream)
        assert kept.event_coverage.retained_bytes == sum(e.size_bytes for e in stream[:fitting])
        assert kept.event_coverage.mode == ("exact" if fitting == len(stream) else "compact")
    else:
        assert said[:-1] == ["retained"] * fitting
        assert isinstance(said[-1], EventCaptureOverflow)
        assert said[-1].rejected_event_kind == stream[fitting].kind
        assert capture.outcome(prompt="p", duration_ms=3) == Failed(said[-1])


def _fits(stream: list[Event], limits: Limits) -> bool:
    total = sum(shown.size_bytes for shown in stream)
    return len(stream) <= limits.max_events_per_turn and total <= limits.max_event_bytes_per_turn


def test_nothing_is_shown_to_a_capture_that_is_over() -> None:
    """Elements after the terminal event are never pulled; showing one is a mistake."""
    capture = Capture(Limits())
    capture.accept(event("result"))

    with pytest.raises(AssertionError, match="over"):
        capture.accept(event("text", text="more"))


def test_a_stream_that_just_ends_has_no_terminal_event() -> None:
    """Silence is not success."""
    capture = Capture(Limits())
    capture.accept(event("text", text="half a"))

    assert not capture.over
    assert capture.outcome(prompt="p", duration_ms=1) == Failed(NO_TERMINAL_EVENT)


@pytest.mark.parametrize(
    ("data", "reason"),
    [({}, UNKNOWN), ({"reason": "quota"}, BackendFailed("quota"))],
)
def test_a_terminal_error_fails_the_turn_with_its_own_reason(
    data: dict[str, Plain], reason: Failure
) -> None:
    """The backend knows why; nothing is put in the place of what it said."""
    capture = Capture(Limits())
    capture.accept(event("error", data))

    assert capture.outcome(prompt="p", duration_ms=1) == Failed(reason)


def test_a_reason_in_normal_form_can_be_read_by_who_knows_the_form() -> None:
    """The capture does not know the providers' form; its maker does."""
    capture = Capture(Limits(), lambda reason: TaskCrashed(str(reason)))
    capture.accept(event("error", reason="form"))

    assert capture.outcome(prompt="p", duration_ms=1) == Failed(TaskCrashed("form"))


def test_a_response_says_what_was_asked_and_how_long_it_took() -> None:
    """`prompt` is what the backend was given, after its gate."""
    capture = Capture(Limits())
    capture.accept(event("result", text="t", session_id="s"))
    response = response_of(capture).response

    assert (response.prompt, response.duration_ms, response.session_id) == ("p", 3, "s")
    assert response.metadata == {}


@pytest.mark.parametrize("text", [7, None, ["a"]])
def test_text_that_is_no_text_says_nothing(text: object) -> None:
    """A backend's odd data must not crash the turn, nor appear as text."""
    capture = Capture(Limits())
    capture.accept(event("text", text=text))
    capture.accept(event("result", text=text))

    assert response_of(capture).response.text == ""


@given(st.lists(st.tuples(st.text(max_size=4), st.booleans()), max_size=8))
def test_a_transcript_is_its_messages_set_off_by_blank_lines(
    chunks: list[tuple[str, bool]],
) -> None:
    """Joining by hand, message by message, must read the same."""
    transcript = Transcript()
    messages = [""]
    for text, boundary in chunks:
        transcript.add(event("text", text=text, message_boundary=boundary).data)
        if boundary and text and "".join(messages):
            messages[-1] += "\n\n"
        if boundary:
            messages.append("")
        messages[-1] += text

    assert transcript.text == "".join(messages)
    assert transcript.final_message == messages[-1]


#: What surrounds a response and each of its events, at most.
AROUND_BYTES, AROUND_EVENT_BYTES = 1_024, 16
TERMINALS = st.builds(
    lambda kind, text, session: event(kind, {"text": text, "session_id": session}),
    st.just("result"),
    st.none() | st.text(max_size=400),
    st.none() | st.text(max_size=20),
)
SAID = st.builds(
    lambda kind, text, boundary: event(kind, {"text": text, "message_boundary": boundary}),
    st.sampled_from(["text", "usage", "tool_use"]),
    st.text(max_size=200),
    st.booleans(),
)


@given(stream=st.lists(SAID, max_size=6), terminal=TERMINALS)
def test_an_outcome_is_no_larger_than_four_times_its_events(
    stream: list[Event], terminal: Event
) -> None:
    """That is what the largest limit reckons with; the prompt comes to it."""
    capture = Capture(Limits())
    for one in [*stream, terminal]:
        capture.accept(one)
    kept = sum(one.size_bytes for one in [*stream, terminal])

    size = encoded_size(freeze(schema.dump(response_of(capture)), max_depth=MAX_DEPTH))

    assert size <= 4 * kept + AROUND_EVENT_BYTES * (len(stream) + 2) + AROUND_BYTES


@pytest.mark.parametrize("terminal", [True, False], ids=["in the result", "as it comes"])
def test_the_completion_of_the_largest_turn_fits_into_a_message(terminal: bool) -> None:
    """With as many events and bytes as a start allows, and the prompts that a queue holds."""
    limits = Limits(max_event_bytes_per_turn=MAX_EVENT_BYTES, max_events_per_turn=MAX_EVENTS)
    capture = Capture(limits)
    small, end = event("x"), event("result")
    room = MAX_EVENT_BYTES - 1_000
    number = min(MAX_EVENTS - 2, room // (2 * small.size_bytes)) if not terminal else 0
    for _ in range(number):
        capture.accept(small)
    text = "x" * (room - number * small.size_bytes)
    if not terminal:
        capture.accept(event("text", text=text))
    capture.accept(event("result", text=text) if terminal else end)

    outcome = capture.outcome(prompt="p" * Limits().max_pending_prompt_bytes, duration_ms=1)

    assert isinstance(outcome, Completed)
    size = encoded_size(freeze(schema.dump(outcome), max_depth=MAX_DEPTH))
    assert 3 * len(text) < size <= LARGEST_OUTCOME_BYTES
