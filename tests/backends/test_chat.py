"""Chat Completions: servers differ, and every one of them is understood."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.anthropic_messages import AnthropicFold
from genagent_backends.base import Failed
from genagent_backends.chat import ChatBackend
from genagent_backends.chat_completions import ChatFold
from genagent_backends.failures import failure_of
from genagent_backends.openai_responses import OpenAIFold
from genagent_backends.rehearsal import Rehearsed, rehearse
from genagent_protocol.plain import FrozenDict, Plain, freeze
from genagent_protocol.reasons import BackendError
from support.fake_provider import Answer, FakeProvider, Received, Says, Sends, stream_of


async def asked(
    *answers: Answer, prompts: tuple[str, ...] = ("hi",), **options: Any
) -> tuple[list[Rehearsed], list[Received]]:
    async with FakeProvider(*answers) as provider:
        frozen = freeze({"model": "m", "base_url": provider.base_url, **options})
        assert isinstance(frozen, FrozenDict)
        session = ChatBackend().start_session(frozen)
        assert not isinstance(session, Failed), session
        done: list[Rehearsed] = []
        for prompt in prompts:
            done.append(await rehearse(ChatBackend(), session, prompt))
            session = done[-1].session
        return done, provider.requests


def failure(done: Rehearsed) -> BackendError:
    assert done.terminal is not None
    reason = failure_of(done.terminal)
    assert isinstance(reason, BackendError), done.terminal
    return reason


def chunk(content: str | None = None, stop: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": stop}], **more}


@pytest.mark.parametrize("last", [{}, None, {"prompt_tokens": None, "completion_tokens": 5}])
async def test_usage_is_not_forgotten_for_a_chunk_that_knows_none(last: object) -> None:
    """Some servers send it early, and every chunk after it has the field."""
    used = {"prompt_tokens": 7, "completion_tokens": 5}
    [done], _ = await asked(stream_of(chunk("hi", usage=used), chunk(stop="stop", usage=last)))

    assert done.usage == {"input_tokens": 7, "output_tokens": 5}


async def test_an_answer_in_one_piece_need_not_say_why_it_stopped() -> None:
    """An empty reason is none, as it is in a stream."""
    body = {"choices": [{"message": {"content": "hi"}, "finish_reason": ""}]}
    answer = Sends(headers={"content-type": "application/json"}, body=json.dumps(body).encode())
    [done], _ = await asked(answer)

    assert done.text == "hi"
    assert done.kinds[-1] == "result"


@pytest.mark.parametrize("then", ["close", "reset", "silence"])
async def test_a_finished_answer_is_one_however_the_connection_ends(then: Any) -> None:
    """The closing mark is missing, and so is the end of the body, or any end at all."""
    whole = stream_of(chunk("hi"), chunk(stop="stop"), then=then, unfinished=True)
    [done], _ = await asked(whole, receive_timeout_ms=300)

    assert done.text == "hi"
    assert done.kinds[-1] == "result"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("says", "kind"),
    [
        (Says(stop="stop"), None),
        (Says(stop="length"), "response_incomplete"),
        (Says(stop="content_filter"), "refusal"),
        (Says(refusal="I will not", pieces=()), "refusal"),
        (Says(stop="tool_calls"), "unexpected_stop_reason"),
        (Says(stop="something_new"), "unexpected_stop_reason"),
    ],
    ids=lambda value: getattr(value, "stop", value) or "refused",
)
async def test_only_a_finished_answer_is_one(says: Says, kind: str | None, stream: bool) -> None:
    """Half an answer, or a refusal, must not pass for one."""
    [done], _ = await asked(says, stream=stream)

    assert done.kinds[-2:] == ["usage", "error" if kind else "result"]
    if kind:
        assert failure(done).kind == kind


@pytest.mark.parametrize(
    "events",
    [
        [chunk("hi"), chunk(stop="stop"), "[DONE]"],
        [chunk("hi", "stop"), "[DONE]"],
        [chunk("hi", "stop")],
        [chunk("hi"), "[DONE]"],
        [chunk("hi", "eos"), "[DONE]"],
        [chunk("hi", "stop"), {"choices": [], "usage": {"prompt_tokens": 1}}, "[DONE]"],
        [chunk("hi", "stop", usage={"prompt_tokens": 1}), "[DONE]"],
        [chunk("hi", "stop", usage=None), "[DONE]"],
        ["not json", chunk("hi", "stop"), "[DONE]"],
    ],
    ids=range(9),
)
async def test_every_way_to_end_a_stream_is_understood(events: list[Any]) -> None:
    """With or without a reason, a closing mark, or a chunk of its own for usage."""
    [done], _ = await asked(stream_of(*events))

    assert done.text == "hi"
    assert done.terminal is not None
    assert done.terminal.kind == "result"


async def test_only_the_first_choice_counts() -> None:
    """Two answers at once would be mixed up."""
    both = {
        "choices": [
            {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"},
            {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"},
        ]
    }
    apart = [
        {"choices": [{"index": index, "delta": {"content": piece}, "finish_reason": stop}]}
        for index, piece, stop in [
            (1, "b", None),
            (0, "a", None),
            (1, "", "length"),
            (0, "", "stop"),
        ]
    ]
    whole = {
        "choices": [
            {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
            {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
        ]
    }
    in_one = Sends(headers={"content-type": "application/json"}, body=json.dumps(whole).encode())
    for answer in (stream_of(both, "[DONE]"), stream_of(*apart, "[DONE]"), in_one):
        [done], _ = await asked(answer)
        assert done.text == "a"


@pytest.mark.parametrize("nothing", [None, "", {}, False])
async def test_an_error_that_says_nothing_is_none(nothing: Any) -> None:
    """Some servers send the field with every chunk."""
    [done], _ = await asked(stream_of(chunk("hi", error=nothing), chunk(stop="stop"), "[DONE]"))

    assert done.kinds == ["text", "result"]


@pytest.mark.parametrize(
    ("error", "kind", "retryable", "message"),
    [
        ({"code": 429, "message": "slow down"}, "rate_limited", True, "slow down"),
        ({"status": 503, "message": "busy"}, "server_error", True, "busy"),
        ({"code": "odd", "message": "m"}, "provider_error", False, "m"),
        ("just text", "provider_error", False, "just text"),
    ],
)
async def test_an_error_in_the_stream_ends_it(
    error: Any, kind: str, retryable: bool, message: str
) -> None:
    """Servers that fail in the middle say so in the stream."""
    [done], _ = await asked(stream_of(chunk("par"), {"error": error}, chunk("tial", "stop")))

    assert (failure(done).kind, failure(done).retryable) == (kind, retryable)
    assert failure(done).message == message
    assert done.kinds == ["text", "error"]


async def test_options_of_its_own_are_on_every_request() -> None:
    """And servers that know neither can be spared both."""
    _, usual = await asked(Says(), prompts=("one", "two"), max_output_tokens=9)
    _, spared = await asked(
        Says(), stream_usage=False, max_output_tokens=9, max_tokens_field="max_completion_tokens"
    )
    _, whole = await asked(Says(), stream=False)

    for request in usual:
        assert request.path == "/v1/chat/completions"
        assert request.body["stream_options"] == {"include_usage": True}
        assert request.body["max_tokens"] == 9
    assert "stream_options" not in spared[0].body
    assert spared[0].body["max_completion_tokens"] == 9
    assert "stream_options" not in whole[0].body


async def test_the_system_prompt_comes_first_and_is_no_part_of_the_history() -> None:
    """It would be repeated with every turn."""
    _, requests = await asked(
        Says(), prompts=("one", "two"), system_prompt="be brief", max_history_turns=0
    )

    assert requests[1].body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "two"},
    ]


async def test_an_answer_that_calls_itself_an_error_is_one() -> None:
    """Some servers report their failures with the status 200."""
    body = json.dumps({"object": "error", "message": "no such model"}).encode()
    [done], _ = await asked(Sends(headers={"content-type": "application/json"}, body=body))

    assert (failure(done).kind, failure(done).message) == ("provider_error", "no such model")


VALUES: st.SearchStrategy[Plain] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda children: (
        st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(
            st.sampled_from(["delta", "message", "content", "finish_reason", "refusal"]),
            children,
            max_size=4,
        ).map(FrozenDict)
    ),
    max_leaves=10,
)
ANSWERS = st.dictionaries(
    st.sampled_from(["choices", "usage", "error", "model", "id", "type"]), VALUES
).map(FrozenDict)


@given(said=st.lists(ANSWERS, max_size=4), whole=ANSWERS)
def test_any_answer_becomes_events_and_never_an_exception(
    said: list[FrozenDict], whole: FrozenDict
) -> None:
    """There are many servers, and many mistakes."""
    fold = ChatFold("s")
    events = [event for each in said for event in fold.said(each)]
    events += fold.ending()
    other = list(ChatFold("s").whole(whole))

    assert [event.terminal for event in events].count(True) == 1
    assert events[-1].terminal
    assert other[-1].terminal


PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "text", "text": "Hello "},
    {"type": "text", "text": "there"},
]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_message_in_parts_is_read(stream: bool) -> None:
    """Some servers give a list where others give a text; its thoughts are no answer."""
    if stream:
        first: Any = {"choices": [{"delta": {"content": PARTS[:2]}}]}
        second: Any = {"choices": [{"delta": {"content": PARTS[2:]}, "finish_reason": "stop"}]}
        answer = stream_of(first, second, "[DONE]")
    else:
        message = {"message": {"content": PARTS}, "finish_reason": "stop"}
        body = json.dumps({"choices": [message]}).encode()
        answer = Sends(headers={"content-type": "application/json"}, body=body)
    [done], _ = await asked(answer, stream=stream)

    assert (done.text, done.kinds[-1]) == ("Hello there", "result")


async def test_an_error_that_is_the_whole_event_ends_the_stream_too() -> None:
    """It has no field of that name, and the stream ends without another word."""
    error = {"object": "error", "message": "context too long", "code": 400}
    [done], _ = await asked(stream_of(chunk("par"), error))

    assert (failure(done).kind, failure(done).message) == ("invalid_request", "context too long")


BOOM = {"message": "boom", "code": 400, "param": None}
GONE = {"detail": "model is gone"}
BUSY = {"object": "error", "message": "overloaded", "code": 429}
SLOW = {"error": {"message": "slow", "code": "429"}}
SLOWER = {"error": "slow down", "code": 429}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("says", "told"),
    [
        (BOOM, ("invalid_request", False, 400, "boom")),
        (GONE, ("invalid_response", False, None, "model is gone")),
        (BUSY, ("rate_limited", True, 429, "overloaded")),
        (SLOW, ("rate_limited", True, 429, "slow")),
        (SLOWER, ("rate_limited", True, 429, "slow down")),
        ({"id": "x"}, ("invalid_response", False, None, "the answer has no choices")),
    ],
)
async def test_an_answer_without_a_choice_is_none(
    stream: bool, says: dict[str, Any], told: tuple[object, ...]
) -> None:
    """Proxies say in many ways what went wrong, and with a status of success."""
    body = json.dumps(says).encode()
    whole = Sends(headers={"content-type": "application/json"}, body=body)
    [done], _ = await asked(stream_of(says, "[DONE]") if stream else whole, stream=stream)

    said = failure(done)
    assert (said.kind, said.retryable, said.status, said.message) == told


def test_a_stream_that_says_nothing_is_no_answer() -> None:
    """The closing mark alone is no answer, and no empty one."""
    fold = ChatFold("s")
    assert list(fold.said(FrozenDict({"type": "[DONE]"}))) == []

    assert [event.kind for event in fold.ending()] == ["error"]


@pytest.mark.parametrize("said", [BUSY, SLOW, SLOWER])
def test_the_other_providers_folds_know_the_same_errors(said: dict[str, Any]) -> None:
    """A proxy that speaks their dialect has its own words for what went wrong."""
    frozen = freeze(said)
    assert isinstance(frozen, FrozenDict)
    folds = (
        lambda: AnthropicFold("s"),
        lambda: OpenAIFold("s", established=False, lose=lambda: None),
    )
    for made in folds:
        streamed, whole = made(), made()
        assert list(streamed.said(frozen)) == []
        assert streamed.finished()
        for ending in (list(streamed.ending())[-1], list(whole.whole(frozen))[-1]):
            reason = failure_of(ending)
            assert isinstance(reason, BackendError)
            assert (reason.kind, reason.status) == ("rate_limited", 429)


FIELDS = st.sampled_from(["message", "detail", "code", "id", "usage", "object", "status"])
VALUE: st.SearchStrategy[Plain] = st.none() | st.integers(0, 999) | st.text(max_size=3)
SAID = st.dictionaries(FIELDS, VALUE, max_size=4).map(FrozenDict)


@given(chunks=st.lists(SAID, max_size=4))
def test_whatever_is_said_without_a_choice_is_no_result(chunks: list[FrozenDict]) -> None:
    """An empty answer would be taken for one, and a failure for its absence."""
    fold = ChatFold("s")
    for said in (*chunks, FrozenDict({"type": "[DONE]"})):
        assert list(fold.said(said)) == []

    assert fold.finished()
    assert [event.kind for event in fold.ending()][-1] == "error"
    for said in chunks:
        assert [event.kind for event in ChatFold("s").whole(said)][-1] == "error"
