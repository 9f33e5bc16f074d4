"""The Responses API: chains there, histories here, and conversations that get lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.base import Failed
from genagent_backends.failures import failure_of
from genagent_backends.openai import OpenAIBackend
from genagent_backends.openai_responses import LAST_EVENTS, OpenAIFold
from genagent_backends.rehearsal import Rehearsed, rehearse
from genagent_protocol.plain import FrozenDict, Plain, freeze
from genagent_protocol.reasons import BackendError
from support.fake_provider import Answer, FakeProvider, Received, Says, refuses, stream_of


async def asked(
    *answers: Answer, prompts: tuple[str, ...] = ("hi",), **options: Any
) -> tuple[list[Rehearsed], list[Received]]:
    async with FakeProvider(*answers) as provider:
        frozen = freeze({"model": "m", "base_url": provider.base_url, **options})
        assert isinstance(frozen, FrozenDict)
        session = OpenAIBackend().start_session(frozen)
        assert not isinstance(session, Failed), session
        done: list[Rehearsed] = []
        for prompt in prompts:
            done.append(await rehearse(OpenAIBackend(), session, prompt))
            session = done[-1].session
        return done, provider.requests


def failure(done: Rehearsed) -> BackendError:
    assert done.terminal is not None
    reason = failure_of(done.terminal)
    assert isinstance(reason, BackendError), done.terminal
    return reason


def previous(requests: list[Received]) -> list[object]:
    return [request.body.get("previous_response_id") for request in requests]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_stored_response_without_an_id_is_no_answer(stored: bool) -> None:
    """Nothing could go on from it, and the conversation would begin anew without a word."""
    message = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    nameless = {"status": "completed", "output": [message]}
    answers = Says(), stream_of({"type": "response.completed", "response": nameless}), Says()
    done, requests = await asked(*answers, prompts=("one", "two", "three"), store=stored)

    if stored:
        assert failure(done[1]).kind == "invalid_response"
        assert previous(requests) == [None, "resp_fake", "resp_fake"]
    else:
        assert done[1].text == "hi"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("says", "kind"),
    [
        (Says(), None),
        (Says(stop="failed"), "response_failed"),
        (Says(stop="incomplete"), "response_incomplete"),
        (Says(refusal="I will not"), "refusal"),
        (Says(stop="queued"), "unexpected_response_status"),
        (Says(stop="cancelled"), "unexpected_response_status"),
    ],
    ids=lambda value: getattr(value, "stop", value) or "",
)
async def test_only_a_completed_response_is_an_answer(
    says: Says, kind: str | None, stream: bool
) -> None:
    """A refusal, half an answer or a failure is none, even with text."""
    [done], _ = await asked(says, stream=stream)

    assert done.kinds[-2:] == ["usage", "error" if kind else "result"]
    if kind:
        assert failure(done).kind == kind


async def test_a_stored_conversation_names_the_response_before() -> None:
    """The provider has the rest; the instructions it does not keep."""
    _, requests = await asked(Says(), prompts=("one", "two"), system_prompt="be brief")

    assert previous(requests) == [None, "resp_fake"]
    assert requests[1].body["input"] == [{"role": "user", "content": "two"}]
    assert [request.body["instructions"] for request in requests] == ["be brief"] * 2
    assert [request.body["store"] for request in requests] == [True, True]


async def test_an_unstored_conversation_is_sent_again_with_what_was_thought() -> None:
    """All output items, and a request for the thoughts in a form that can be returned."""
    _, requests = await asked(Says(thinking="hm"), prompts=("one", "two"), store=False)
    again: Any = requests[1].body["input"]

    assert previous(requests) == [None, None]
    assert requests[0].body["include"] == ["reasoning.encrypted_content"]
    assert [item.get("type", item.get("role")) for item in again] == [
        "user",
        "reasoning",
        "message",
        "user",
    ]
    assert again[1]["encrypted_content"] == "enc"


def _part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": []}


ANSWER = {"type": "message", "role": "assistant", "content": [_part("Hello there")]}
REASONING = {"type": "reasoning", "encrypted_content": "enc"}


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(
    ("done_items", "output"),
    [([], []), ([REASONING, ANSWER], []), ([REASONING, ANSWER], [REASONING]), ([ANSWER], [ANSWER])],
    ids=["deltas-alone", "items-too", "half-an-output", "all"],
)
async def test_what_was_streamed_is_the_answer_where_the_last_event_has_none(
    store: bool, done_items: list[object], output: list[object]
) -> None:
    """Servers differ; the text was said, and the conversation goes on from it."""
    response = {"id": "resp_1", "status": "completed", "model": "m", "output": output}
    answer = stream_of(
        {"type": "response.output_text.delta", "delta": "Hello "},
        {"type": "response.output_text.delta", "delta": "there"},
        *({"type": "response.output_item.done", "item": item} for item in done_items),
        {"type": "response.completed", "response": response},
    )
    done, requests = await asked(answer, Says(), prompts=("one", "two"), store=store)

    assert done[0].text == "Hello there"
    assert previous(requests) == [None, "resp_1" if store else None]
    told = json.dumps(requests[1].body["input"])
    assert ("Hello there" in told) != store
    assert ("enc" in told) == (not store and REASONING in (output or done_items))


async def test_a_refusal_that_was_streamed_is_one_without_an_output_too() -> None:
    """It must not pass for an empty answer."""
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not"}]}
    answer = stream_of(
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    )
    [done], _ = await asked(answer)

    assert failure(done).kind == "refusal"


async def test_the_chain_continues_from_the_last_answer_only() -> None:
    """A failed or refused response may not exist there, or should not be built on."""
    _, requests = await asked(
        Says(),
        refuses(500, "boom"),
        Says(refusal="no"),
        Says(pieces=("",)),
        Says(),
        prompts=("a", "b", "c", "d", "e"),
    )

    assert previous(requests) == [None, "resp_fake", "resp_fake", "resp_fake", "resp_fake"]


LOST = "previous_response_not_found"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, LOST),
        (404, LOST),
        (400, "context_length_exceeded"),
        (400, "context_window_exceeded"),
    ],
)
@pytest.mark.parametrize("store", [True, False])
async def test_a_lost_conversation_is_given_up_once(status: int, code: str, store: bool) -> None:
    """Every later prompt would fail the same way for ever."""
    done, requests = await asked(
        Says(),
        refuses(status, "gone", code=code),
        Says(),
        prompts=("one", "two", "three"),
        store=store,
    )

    assert (failure(done[1]).kind, failure(done[1]).status) == ("conversation_lost", status)
    assert not failure(done[1]).retryable
    assert done[2].text == "Hello there"
    assert requests[2].body["input"] == [{"role": "user", "content": "three"}]
    assert "previous_response_id" not in requests[2].body


async def test_that_a_conversation_is_lost_is_told_however_much_is_said_of_it() -> None:
    """What is ours in a message is not what is cut."""
    refused = refuses(404, "x" * 100_000, code=LOST)
    done, _ = await asked(Says(), refused, prompts=("one", "two"))

    assert failure(done[1]).message.startswith("the next prompt begins a new conversation: x")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, LOST, "rate_limited"),
        (429, "context_length_exceeded", "rate_limited"),
        (404, "context_length_exceeded", "invalid_request"),
        (400, "other", "invalid_request"),
    ],
)
async def test_other_refusals_leave_the_chain_alone(status: int, code: str, kind: str) -> None:
    """A conversation is not thrown away for a passing trouble."""
    done, requests = await asked(
        Says(), refuses(status, "no", code=code), Says(), prompts=("one", "two", "three")
    )

    assert failure(done[1]).kind == kind
    assert previous(requests) == [None, "resp_fake", "resp_fake"]


async def test_a_first_prompt_that_is_too_long_loses_nothing() -> None:
    """There is no conversation yet that could be lost."""
    [done], _ = await asked(refuses(400, "too long", code="context_length_exceeded"))

    assert failure(done).kind == "invalid_request"


async def test_a_conversation_may_be_lost_in_the_stream_too() -> None:
    """Some servers notice only then."""
    failed = {
        "id": "resp_bad",
        "status": "failed",
        "error": {"code": "context_length_exceeded", "message": "too long"},
    }
    done, requests = await asked(
        Says(),
        stream_of({"type": "response.failed", "response": failed}),
        Says(),
        prompts=("one", "two", "three"),
    )

    assert failure(done[1]).kind == "conversation_lost"
    assert previous(requests) == [None, "resp_fake", None]


@pytest.mark.parametrize(
    ("event", "kind", "retryable"),
    [
        ({"type": "error", "code": "server_error", "message": "m"}, "server_error", True),
        ({"type": "error", "error": {"code": "rate_limit_exceeded"}}, "rate_limited", True),
        ({"type": "error", "message": "m"}, "provider_error", False),
    ],
)
async def test_an_error_in_the_stream_is_classified(
    event: dict[str, Any], kind: str, retryable: bool
) -> None:
    """Both shapes of it."""
    [done], _ = await asked(stream_of(event))

    assert (failure(done).kind, failure(done).retryable) == (kind, retryable)


async def test_options_of_its_own_are_on_every_request() -> None:
    """And left out where nothing was chosen."""
    _, chosen = await asked(
        Says(), prompts=("one", "two"), truncation="auto", reasoning_effort="enormous"
    )
    _, plain = await asked(Says())

    for request in chosen:
        assert request.body["truncation"] == "auto"
        assert request.body["reasoning"] == {"effort": "enormous"}
    assert not {"truncation", "reasoning", "max_output_tokens"} & set(plain[0].body)


async def test_usage_names_the_cached_part_of_the_input() -> None:
    """Here it is a part of the input, not besides it."""
    [done], _ = await asked(Says(usage=(7, 3)))

    assert done.usage == {
        "input_tokens": 7,
        "output_tokens": 3,
        "total_tokens": 10,
        "reasoning_tokens": 1,
        "cached_input_tokens": 2,
    }


def test_a_stored_conversation_cannot_be_trimmed() -> None:
    """The provider keeps it; pretending otherwise would cost money in silence."""
    options = FrozenDict({"model": "m", "base_url": "http://localhost", "max_history_turns": 3})
    answer = OpenAIBackend().start_session(options)

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert answer.reason["code"] == "unsupported_option"


VALUES: st.SearchStrategy[Plain] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda children: (
        st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "output", "error", "code", "message"]),
            children,
            max_size=4,
        ).map(FrozenDict)
    ),
    max_leaves=10,
)


@given(
    kind=st.sampled_from([*LAST_EVENTS, "error", "response.output_text.delta"]),
    fields=st.dictionaries(st.sampled_from(["response", "delta", "error", "message"]), VALUES),
    whole=st.dictionaries(st.sampled_from(["status", "output", "error", "usage"]), VALUES),
)
def test_any_answer_becomes_events_and_never_an_exception(
    kind: str, fields: dict[str, Plain], whole: dict[str, Plain]
) -> None:
    """A provider may change the shape of anything."""
    fold = OpenAIFold("s", established=True, lose=lambda: None)
    events = [*fold.said(FrozenDict({**fields, "type": kind})), *fold.ending()]
    other = list(OpenAIFold("s", established=True, lose=lambda: None).whole(FrozenDict(whole)))

    assert not fold.finished() or events[-1].terminal
    assert other[-1].terminal


@given(
    pieces=st.lists(st.text(min_size=1, max_size=3), max_size=3),
    items=st.lists(VALUES, max_size=2),
    output=VALUES | st.lists(st.just(freeze(ANSWER)), max_size=1).map(tuple),
)
def test_text_that_was_streamed_never_vanishes_from_a_result(
    pieces: list[str], items: list[Plain], output: Plain
) -> None:
    """Whatever the last event has in its place."""
    fold = OpenAIFold("s", established=False, lose=lambda: None)
    for piece in pieces:
        list(fold.said(FrozenDict({"type": "response.output_text.delta", "delta": piece})))
    for item in items:
        list(fold.said(FrozenDict({"type": "response.output_item.done", "item": item})))
    response = FrozenDict({"status": "completed", "output": output})
    list(fold.said(FrozenDict({"type": "response.completed", "response": response})))
    *_, last = fold.ending()

    if last.kind == "result":
        assert last.data["text"] or not pieces
