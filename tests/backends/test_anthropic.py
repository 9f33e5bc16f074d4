"""The Messages API: what is an answer, what is kept, and what is sent again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.anthropic import AnthropicBackend
from genagent_backends.anthropic_messages import AnthropicFold
from genagent_backends.base import Failed
from genagent_backends.failures import failure_of
from genagent_backends.rehearsal import Rehearsed, rehearse
from genagent_protocol.plain import FrozenDict, Plain, freeze
from genagent_protocol.reasons import BackendError
from support.fake_provider import Answer, FakeProvider, Received, Says, stream_of


async def asked(
    *answers: Answer, prompts: tuple[str, ...] = ("hi",), **options: Any
) -> tuple[list[Rehearsed], list[Received]]:
    async with FakeProvider(*answers) as provider:
        frozen = freeze({"model": "m", "base_url": provider.base_url, **options})
        assert isinstance(frozen, FrozenDict)
        session = AnthropicBackend().start_session(frozen)
        assert not isinstance(session, Failed), session
        done: list[Rehearsed] = []
        for prompt in prompts:
            done.append(await rehearse(AnthropicBackend(), session, prompt))
            session = done[-1].session
        return done, provider.requests


def failure(done: Rehearsed) -> BackendError:
    assert done.terminal is not None
    reason = failure_of(done.terminal)
    assert isinstance(reason, BackendError), done.terminal
    return reason


def streamed(*blocks: dict[str, Any], usage: dict[str, Any] | None = None) -> Answer:
    """Return a finished answer of those content blocks, each a start with its `deltas`."""
    started = {"input_tokens": 10, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": started}}]
    for index, block in enumerate(blocks):
        deltas = block.pop("deltas", [])
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    return stream_of(*events, stop, {"type": "message_stop"})


def text_block(*pieces: str) -> dict[str, Any]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return {"type": "text", "text": "", "deltas": deltas}


def tool_block(use: str, *pieces: str) -> dict[str, Any]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    tool = {"type": "server_tool_use", "id": use, "name": "web_search", "input": {}}
    return {**tool, "deltas": deltas}


async def test_a_counter_that_is_null_says_nothing() -> None:
    """The last usage names every counter, and knows only some of them."""
    last = {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 5}
    [done], _ = await asked(streamed(text_block("hi"), usage=last))

    assert done.usage == {"input_tokens": 10, "output_tokens": 5}


async def test_blank_text_is_not_sent_again() -> None:
    """The provider sends it between two thoughts, and refuses it."""
    answer = streamed(text_block("\n\n"), text_block("hi"), text_block(" "))
    _, requests = await asked(answer, prompts=("one", "two"))
    messages: Any = requests[1].body["messages"]

    assert messages[1]["content"] == [{"type": "text", "text": "hi"}]


async def test_what_a_tool_of_the_provider_was_given_is_sent_again() -> None:
    """It comes in pieces, as what a text cites does; without it the conversation is refused."""
    cited = {"type": "citations_delta", "citation": {"type": "page", "number": 1}}
    text = text_block("hi")
    text["deltas"].append(cited)
    answer = streamed(tool_block("t-1", '{"qu', 'ery": "x"}'), tool_block("t-2"), text)
    _, requests = await asked(answer, prompts=("one", "two"))
    messages: Any = requests[1].body["messages"]
    tool, without, said = messages[1]["content"]

    assert (tool["input"], without["input"]) == ({"query": "x"}, {})
    assert said["citations"] == [cited["citation"]]


async def test_a_tool_whose_input_cannot_be_read_is_not_sent_again() -> None:
    """Nor is what it returned, which would belong to nothing."""
    returned = {"type": "web_search_tool_result", "tool_use_id": "t-1", "content": []}
    answer = streamed(tool_block("t-1", '{"qu'), returned, text_block("hi"))
    [done, _], requests = await asked(answer, prompts=("one", "two"))
    messages: Any = requests[1].body["messages"]

    assert messages[1]["content"] == [{"type": "text", "text": "hi"}]
    assert done.terminal is not None
    assert '{"qu' in repr(done.terminal.data["raw"])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("stop", "kind"),
    [
        ("end_turn", None),
        ("stop_sequence", None),
        ("refusal", "refusal"),
        ("max_tokens", "response_incomplete"),
        ("model_context_window_exceeded", "response_incomplete"),
        ("tool_use", "unexpected_stop_reason"),
        ("pause_turn", "unexpected_stop_reason"),
        ("something_new", "unexpected_stop_reason"),
    ],
)
async def test_only_a_finished_answer_is_one(stop: str, kind: str | None, stream: bool) -> None:
    """A refusal or half an answer must not pass for one, even with text."""
    [done], _ = await asked(Says(stop=stop), stream=stream)

    assert done.terminal is not None
    assert "text" in done.kinds
    assert done.kinds[-2:] == ["usage", "error" if kind else "result"]
    if kind:
        assert (failure(done).kind, failure(done).retryable) == (kind, False)


async def test_a_refused_answer_leaves_the_conversation_as_it_was() -> None:
    """The next prompt is the first again."""
    _, requests = await asked(Says(stop="refusal"), Says(), prompts=("one", "two"))

    assert requests[1].body["messages"] == [{"role": "user", "content": "two"}]


async def test_what_the_model_thought_is_sent_again_and_not_shown() -> None:
    """The provider checks the signature of a thought that led to an answer."""
    done, requests = await asked(Says(thinking="let me see"), prompts=("one", "two"))
    messages: Any = requests[1].body["messages"]

    assert done[0].text == "Hello there"
    assert messages[1]["content"] == [
        {"type": "thinking", "thinking": "let me see", "signature": "sig"},
        {"type": "text", "text": "Hello there"},
    ]


async def test_the_request_says_who_what_and_how() -> None:
    """Every option reaches the provider, on every turn."""
    _, requests = await asked(
        Says(),
        prompts=("one", "two"),
        api_version="2024-01-01",
        cache=True,
        max_output_tokens=9,
        system_prompt="be brief",
    )

    for request in requests:
        assert request.path == "/v1/messages"
        assert request.headers["anthropic-version"] == "2024-01-01"
        assert request.body["max_tokens"] == 9
        assert request.body["system"] == "be brief"
        assert request.body["cache_control"] == {"type": "ephemeral"}
        assert request.body["stream"] is True


async def test_usage_counts_the_cache_apart() -> None:
    """`input_tokens` does not contain what came from the cache."""
    [done], _ = await asked(Says(usage=(7, 3)))

    assert done.usage == {
        "input_tokens": 7,
        "output_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2,
    }


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ("overloaded_error", "server_error", True),
        ("api_error", "server_error", True),
        ("rate_limit_error", "rate_limited", True),
        ("authentication_error", "authentication", False),
        ("permission_error", "authentication", False),
        ("invalid_request_error", "invalid_request", False),
        ("something_new", "provider_error", False),
    ],
)
async def test_an_error_in_the_stream_is_classified_by_its_type(
    error: str, kind: str, retryable: bool
) -> None:
    """Its status was 200, long before."""
    [done], _ = await asked(
        stream_of({"type": "error", "error": {"type": error, "message": "because"}})
    )

    assert (failure(done).kind, failure(done).retryable) == (kind, retryable)
    assert (failure(done).message, failure(done).status) == ("because", None)


@pytest.mark.parametrize(
    "version", ["latest", "2023-6-1", "2023-06-01x", "2023-13-45", "２０23-06-01"]
)
def test_a_version_is_a_date(version: str) -> None:
    """The provider has no other."""
    options = FrozenDict({"model": "m", "base_url": "http://localhost", "api_version": version})

    assert isinstance(AnthropicBackend().start_session(options), Failed)


VALUES: st.SearchStrategy[Plain] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda children: (
        st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(
            st.sampled_from(["type", "text", "index", "delta", "content", "usage", "message"]),
            children,
            max_size=4,
        ).map(FrozenDict)
    ),
    max_leaves=10,
)
KINDS = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "ping",
    ]
)


@given(
    said=st.lists(
        st.builds(
            lambda fields, kind: FrozenDict({**fields, "type": kind}),
            st.dictionaries(
                st.sampled_from(["index", "delta", "content_block", "message", "usage", "error"]),
                VALUES,
            ),
            KINDS,
        ),
        max_size=6,
    ),
    whole=st.dictionaries(st.sampled_from(["content", "stop_reason", "usage"]), VALUES),
)
def test_any_answer_becomes_events_and_never_an_exception(
    said: list[FrozenDict], whole: dict[str, Plain]
) -> None:
    """A provider may change the shape of anything."""
    fold = AnthropicFold("s")
    events = [event for each in said for event in fold.said(each)]
    events += fold.ending()
    other = list(AnthropicFold("s").whole(FrozenDict(whole)))

    assert [event.terminal for event in events].count(True) == 1
    assert events[-1].terminal
    assert other[-1].terminal
