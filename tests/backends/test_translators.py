"""Translators are total: no JSON makes them raise, and what they say can be carried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.claude_lines import ClaudeLines
from genagent_backends.codex_lines import NOTHING_USED, CodexLines, used_by
from genagent_backends.failures import failure_of
from genagent_backends.subprocesses import Ended, Translator
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict, Plain, freeze
from genagent_protocol.reasons import BackendError

TYPES = [
    "system",
    "assistant",
    "user",
    "stream_event",
    "content_block_delta",
    "tool_use",
    "tool_result",
    "result",
    "error",
    "rate_limit_event",
    "thread.started",
    "turn.started",
    "item.started",
    "item.completed",
    "item.updated",
    "turn.failed",
    "turn.completed",
    "message_start",
    "init",
    "success",
    "error_max_turns",
    "text",
    "text_delta",
    "agent_message",
    "command_execution",
    "reasoning",
    "todo_list",
    "thinking",
]
KEYS = [
    "type",
    "subtype",
    "message",
    "content",
    "text",
    "delta",
    "event",
    "id",
    "name",
    "input",
    "tool_use_id",
    "is_error",
    "usage",
    "input_tokens",
    "output_tokens",
    "result",
    "errors",
    "error",
    "session_id",
    "thread_id",
    "item",
    "parent_tool_use_id",
    "total_cost_usd",
    "cost_usd",
    "model",
    "tools",
    "isSynthetic",
    "api_error_status",
    "stop_reason",
    "status",
]
VALUES: st.SearchStrategy[Plain] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.sampled_from(TYPES)
    | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(KEYS), children, max_size=5).map(FrozenDict)
    ),
    max_leaves=12,
)
LINES = st.builds(
    lambda line, kind: FrozenDict({**line, "type": kind}),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    st.sampled_from(TYPES),
)


def line(**fields: object) -> FrozenDict:
    frozen = freeze(fields)
    assert isinstance(frozen, FrozenDict)
    return frozen


def said(translator: Translator, *lines: FrozenDict) -> list[Event]:
    return [event for each in lines for event in translator.translate(each)]


def texts(events: list[Event]) -> list[object]:
    return [event.data["text"] for event in events if event.kind == "text"]


@pytest.mark.parametrize("make", [ClaudeLines, CodexLines])
@given(lines=st.lists(LINES, max_size=6))
def test_any_lines_become_events_and_never_an_exception(
    make: type[ClaudeLines | CodexLines], lines: list[FrozenDict]
) -> None:
    """A new version of a program may send anything; the turn must outlive it."""
    translator = make()
    events = said(translator, *lines)
    events.append(translator.abandoned(Ended(1, "stderr")))

    for event in events:
        assert freeze(event.data) is event.data
    assert events[-1].kind == "error"
    assert translator.session_id is None or translator.session_id


# -- claude ------------------------------------------------------------------------------------


def delta(text: str, parent: str | None = None) -> FrozenDict:
    return line(
        type="stream_event",
        event={"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}},
        parent_tool_use_id=parent,
    )


def started(message: str, parent: str | None = None) -> FrozenDict:
    event = {"type": "message_start", "message": {"id": message}}
    return line(type="stream_event", event=event, parent_tool_use_id=parent)


def finished(message: str | None, *blocks: object, parent: str | None = None) -> FrozenDict:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    return line(
        type="assistant", message={"id": message, "content": content}, parent_tool_use_id=parent
    )


def test_what_was_streamed_is_not_said_again() -> None:
    """The finished message repeats every delta of it."""
    events = said(
        ClaudeLines(), started("m"), delta("Hel"), delta("lo"), finished("m", "Hello there")
    )

    assert texts(events) == ["Hel", "lo", " there"]


def test_finished_blocks_come_one_by_one_and_still_match_what_was_streamed() -> None:
    """Each block of a message is finished on a line of its own."""
    events = said(
        ClaudeLines(),
        started("m"),
        delta("one"),
        finished("m", "one"),
        delta("two"),
        finished("m", "two"),
    )

    assert texts(events) == ["one", "two"]


def test_a_block_may_be_finished_after_the_next_one_began_to_stream() -> None:
    """What is unfinished may be longer than what is finished now."""
    events = said(
        ClaudeLines(),
        started("m"),
        delta("one"),
        delta("two"),
        finished("m", "one"),
        finished("m", "two"),
        finished("m", "three"),
    )

    assert texts(events) == ["one", "two", "three"]


def test_the_text_of_interleaved_subagents_is_kept_apart() -> None:
    """One shared buffer would take one speaker's text for another's repetition."""
    events = said(
        ClaudeLines(),
        started("a"),
        started("b", "sub"),
        delta("main"),
        delta("side", "sub"),
        finished("b", "side", parent="sub"),
        finished("a", "main"),
    )

    assert texts(events) == ["main", "side"]
    assert [e.data.get("parent_tool_use_id") for e in events] == [None, "sub"]


def test_text_that_was_given_up_and_said_anew_is_a_new_message() -> None:
    """After a lost connection the finished message is no continuation of what was streamed."""
    events = said(ClaudeLines(), started("m"), delta("Once up"), finished("m", "A new start"))

    assert texts(events) == ["Once up", "A new start"]
    assert events[1].data["message_boundary"] is True


CUT = line(
    type="stream_event", event={"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}
)


@pytest.mark.parametrize("result", [" world", "Hello world"])
def test_an_answer_that_was_cut_off_is_put_together(result: str) -> None:
    """The program goes on in the middle of a word; its result holds the last part only."""
    lines = [started("m"), delta("Hello"), finished("m", "Hello"), CUT, started("n")]
    events = said(
        ClaudeLines(),
        *lines,
        delta(" world"),
        finished("n", " world"),
        line(type="result", result=result),
    )

    assert events[-1].data["text"] == "Hello world"
    assert [e.data.get("message_boundary") for e in events[:2]] == [True, None]


def test_what_was_cut_off_before_another_message_is_not_part_of_it() -> None:
    """After a tool the model begins a message of its own."""
    lines = [started("m"), delta("Hello"), CUT, started("n"), delta(" world"), started("o")]
    events = said(ClaudeLines(), *lines, delta("Bye"), line(type="result", result="Bye"))

    assert events[-1].data["text"] == "Bye"


def test_a_message_that_was_cut_off_before_it_said_anything_opens_with_the_next() -> None:
    """A model may think until it is cut off; what comes then goes on with nothing."""
    lines = [started("m"), delta("I look."), started("n"), CUT, started("o"), delta("Found")]
    events = said(ClaudeLines(), *lines, line(type="result", result="Found"))

    assert [e.data.get("message_boundary") for e in events[:2]] == [True, True]
    assert events[-1].data["text"] == "Found"


def test_each_message_opens_with_a_boundary() -> None:
    """Without it, two messages would be glued together in the fallback text."""
    events = said(ClaudeLines(), started("m"), delta("a"), delta("b"), started("n"), delta("c"))

    assert [e.data.get("message_boundary") for e in events] == [True, None, True]


def test_bare_deltas_count_as_wrapped_ones() -> None:
    """Some versions leave the envelope out."""
    bare = line(type="content_block_delta", delta={"type": "text_delta", "text": "hi"})

    assert texts(said(ClaudeLines(), bare, finished("m", "hi"))) == ["hi"]


def test_tool_calls_are_taken_whole_and_once() -> None:
    """Partial tool input is never shown; the same call may come on two lines."""
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    result = line(
        type="user",
        message={"content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]},
    )
    partial = line(
        type="stream_event",
        event={
            "type": "content_block_delta",
            "delta": {"type": "input_json_delta", "partial_json": '{"comm'},
        },
    )
    events = said(ClaudeLines(), partial, finished("m", call), finished("m", call), result, result)

    assert [(e.kind, e.data["id"]) for e in events] == [("tool_use", "t"), ("tool_result", "t")]
    assert events[0].data["input"] == FrozenDict({"command": "ls"})


def test_adjacent_text_blocks_are_one_text() -> None:
    """How a message is cut into blocks says nothing."""
    call = {"type": "tool_use", "id": "t", "name": "x", "input": {}}
    events = said(ClaudeLines(), finished("m", "a", "b", call, "c"))

    assert texts(events) == ["ab", "c"]
    assert [e.kind for e in events] == ["text", "tool_use", "text"]


def test_what_a_user_line_says_is_never_the_answer() -> None:
    """Tool output and synthetic messages come as if a user had spoken."""
    plain = line(type="user", message={"content": [{"type": "text", "text": "no"}]})
    synthetic = line(
        type="user",
        isSynthetic=True,
        message={"content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
    )

    assert said(ClaudeLines(), plain, synthetic) == []


def test_an_error_shown_as_a_message_is_no_answer_and_names_the_kind() -> None:
    """Without a status, the made-up message is all that tells a bad key from a bad day."""
    made_up = line(
        type="assistant",
        error="authentication_failed",
        message={"id": "m", "content": [{"type": "text", "text": "Please log in"}]},
    )
    result = line(type="result", subtype="success", is_error=True, result="Please log in")
    [ending] = said(ClaudeLines(), made_up, result)
    failure = failure_of(ending)

    assert isinstance(failure, BackendError)
    assert (failure.kind, failure.message) == ("authentication", "Please log in")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"subtype": "error_during_execution", "errors": ["a", "b"]}, "a; b"),
        ({"subtype": "error", "error": "bad"}, "bad"),
        ({"is_error": True, "result": "said", "errors": ["listed"]}, "said"),
        ({"is_error": True, "result": "", "errors": ["listed"]}, "listed"),
    ],
)
def test_a_failed_result_is_never_an_answer(fields: dict[str, object], message: str) -> None:
    """The subtype alone is not to be trusted, and an empty text hides the real one."""
    [ending] = said(ClaudeLines(), line(type="result", **fields))
    failure = failure_of(ending)

    assert ending.kind == "error"
    assert isinstance(failure, BackendError)
    assert failure.message == message


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"subtype": "error_max_turns"}, "response_incomplete"),
        ({"subtype": "error_max_budget_usd"}, "response_incomplete"),
        ({"is_error": True, "stop_reason": "refusal"}, "refusal"),
        ({"is_error": True, "api_error_status": 529}, "server_error"),
        ({"is_error": True, "api_error_status": 429}, "rate_limited"),
        (
            {"subtype": "error_x", "errors": ["No conversation found with session ID: x"]},
            "conversation_lost",
        ),
        ({"subtype": "error_during_execution"}, "provider_error"),
    ],
)
def test_a_failure_is_classified(fields: dict[str, object], kind: str) -> None:
    """Callers branch on the kind."""
    [ending] = said(ClaudeLines(), line(type="result", **fields))
    failure = failure_of(ending)

    assert isinstance(failure, BackendError)
    assert failure.kind == kind
    assert failure.retryable == (kind in ("server_error", "rate_limited"))


def test_an_empty_result_does_not_hide_what_was_streamed() -> None:
    """The fallback is the streamed text, so an empty one must not be there at all."""
    events = said(ClaudeLines(), finished("m", "answer"), line(type="result", result=""))

    assert "text" not in events[-1].data


def test_an_error_line_ends_the_turn() -> None:
    """Older versions end so."""
    [ending] = said(ClaudeLines(), line(type="error", error={"message": "gone"}))
    failure = failure_of(ending)

    assert isinstance(failure, BackendError)
    assert failure.message == "gone"


def test_a_session_id_counts_only_if_there_is_such_a_session() -> None:
    """A resume of an unknown id fails with the very id that was asked for."""
    missing = ClaudeLines()
    said(missing, line(type="result", subtype="error_during_execution", session_id="asked"))
    begun = ClaudeLines()
    said(
        begun,
        line(type="system", subtype="init", session_id="real"),
        line(type="result", is_error=True, session_id="real"),
    )

    assert missing.session_id is None
    assert begun.session_id == "real"


def test_the_cost_of_a_turn_is_told_by_newer_versions() -> None:
    """Their total runs on over a resumed session, also in a process per turn."""
    told = {"large": {"costUSD": 0.25}, "small": {"costUSD": 0.125}}
    counted = line(type="result", total_cost_usd=5, model_usage_since_last_result=told)
    nothing = line(type="result", total_cost_usd=5, model_usage_since_last_result={})

    assert said(ClaudeLines(), counted)[-1].data["cost_usd"] == 0.375
    assert said(ClaudeLines(), nothing)[-1].data["cost_usd"] == 0.0


def test_the_cost_of_a_turn_is_what_it_added_to_its_process() -> None:
    """In a process that serves many turns the reported cost runs on."""
    lines = ClaudeLines(cost_before_usd=0.25)
    [result] = said(lines, line(type="result", total_cost_usd=0.75))
    older = said(ClaudeLines(), line(type="result", cost_usd=0.5))

    assert result.data["cost_usd"] == 0.5
    assert lines.cost_total_usd == 0.75
    assert older[0].data["cost_usd"] == 0.5


# -- codex -------------------------------------------------------------------------------------


def completed(**usage: object) -> FrozenDict:
    return line(type="turn.completed", usage=usage)


def test_usage_is_the_difference_to_the_last_completed_turn() -> None:
    """The program counts from the beginning of the thread."""
    before = {**NOTHING_USED, "input_tokens": 100, "output_tokens": 7}
    events = said(CodexLines(used_before=before), completed(input_tokens=130, output_tokens=7))

    assert events[0].data == {"input_tokens": 30, "output_tokens": 0}
    assert used_by(events[-1].data) == {"input_tokens": 130, "output_tokens": 7}


@pytest.mark.parametrize(
    ("before", "usage", "used"),
    [
        ({"input_tokens": 10}, {"input_tokens": 9}, None),
        ({"input_tokens": 10}, {"input_tokens": -1}, None),
        ({"input_tokens": 10}, {"input_tokens": "12"}, None),
        ({"input_tokens": 10}, {"output_tokens": 5}, None),
        (None, {"input_tokens": 12}, None),
        (NOTHING_USED, {}, None),
        ({"input_tokens": 10}, {"input_tokens": 12, "output_tokens": 5}, {"input_tokens": 2}),
    ],
)
def test_a_counter_without_a_sound_baseline_is_not_reported(
    before: dict[str, int] | None, usage: dict[str, object], used: dict[str, int] | None
) -> None:
    """A wrong number is worse than none: it enters somebody's sum."""
    events = said(CodexLines(used_before=before), completed(**usage))

    assert [e.data for e in events if e.kind == "usage"] == ([used] if used else [])


def test_a_completed_turn_without_usage_leaves_no_baseline() -> None:
    """What came after it could not be told from what it used."""
    [result] = said(CodexLines(), line(type="turn.completed"))

    assert used_by(result.data) is None


@pytest.mark.parametrize("only", [False, True])
def test_the_last_message_can_be_the_whole_text(only: bool) -> None:
    """`response_text=final_message` leaves the narration out of the answer."""
    message = {"type": "agent_message", "text": "done"}
    events = said(
        CodexLines(final_message_only=only),
        line(type="item.completed", item={**message, "text": "I will"}),
        line(type="item.completed", item=message),
        completed(input_tokens=1),
    )

    assert events[-1].data.get("text") == ("done" if only else None)
    assert all(e.data["message_boundary"] is True for e in events if e.kind == "text")


def test_the_reported_model_wins_over_the_requested_one() -> None:
    """Only the program knows what really answered."""
    asked = said(CodexLines(requested_model="a"), completed())[-1].data
    told = said(CodexLines(requested_model="a"), line(type="turn.started", model="b"), completed())[
        -1
    ].data

    assert (asked["model"], asked["model_source"]) == ("a", "requested")
    assert (told["model"], told["model_source"]) == ("b", "reported")


def test_a_notification_is_no_end_unless_nothing_else_comes() -> None:
    """The program announces that it reconnects with the same line that announces the end."""
    notice = line(type="error", message="Reconnecting... 1/5")
    gone_on = CodexLines()
    assert said(gone_on, notice, completed())[-1].kind == "result"

    given_up = CodexLines()
    assert said(given_up, notice) == []
    failure = failure_of(given_up.abandoned(Ended(1, "stderr")))
    assert isinstance(failure, BackendError)
    assert failure.message == "Reconnecting... 1/5"


def failed_lines() -> Iterator[tuple[FrozenDict, str]]:
    yield line(type="turn.failed", error={"message": "a"}), "a"
    yield line(type="turn.failed", error="b"), "b"
    yield line(type="turn.failed", message="c"), "c"
    yield line(type="turn.failed"), "noticed"


@pytest.mark.parametrize(("failed", "message"), list(failed_lines()))
def test_a_failed_turn_says_why_wherever_the_reason_stands(
    failed: FrozenDict, message: str
) -> None:
    """Its own reason first, then the last notification."""
    lines = CodexLines()
    [ending] = said(lines, line(type="error", message="noticed"), failed)
    failure = failure_of(ending)

    assert isinstance(failure, BackendError)
    assert failure.message == message


def test_an_error_without_a_status_is_classified_by_its_name() -> None:
    """The program passes on what the provider called it."""
    inside = '{"error": {"type": "invalid_request_error", "message": "bad thing"}}'
    [ending] = said(CodexLines(), line(type="turn.failed", error={"message": inside}))
    failure = failure_of(ending)

    assert isinstance(failure, BackendError)
    assert (failure.kind, failure.message) == ("invalid_request", "bad thing")


def test_a_thread_that_is_not_there_is_a_lost_conversation() -> None:
    """The program tells it on standard error alone."""
    stderr = "Error: thread/resume failed: no rollout found for thread id x (code -32600)"
    failure = failure_of(CodexLines().abandoned(Ended(1, stderr)))

    assert isinstance(failure, BackendError)
    assert failure.kind == "conversation_lost"


def test_json_inside_a_reason_is_read() -> None:
    """The provider's status is in there, and with it whether trying again may help."""
    inside = '{"status": 503, "error": {"message": "try later"}}'
    [ending] = said(CodexLines(), line(type="turn.failed", error={"message": inside}))
    failure = failure_of(ending)

    assert isinstance(failure, BackendError)
    assert (failure.kind, failure.status, failure.retryable) == ("server_error", 503, True)
    assert failure.message == "try later"


def test_standard_error_is_the_reason_of_last_resort() -> None:
    """An unknown thread is reported nowhere else; the greeting there is no error."""
    noise = "Reading additional input from stdin...\nError: thread not found\n"
    failure = failure_of(CodexLines().abandoned(Ended(1, noise)))
    silent = failure_of(CodexLines().abandoned(Ended(-9, "")))

    assert isinstance(failure, BackendError)
    assert isinstance(silent, BackendError)
    assert failure.message == "Error: thread not found"
    assert silent.message == "codex ended by signal 9 without a result"
