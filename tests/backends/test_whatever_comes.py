"""Whatever JSON a provider sends, and however much of it: events come of it, and no exception."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genagent_backends.anthropic_messages import AnthropicFold
from genagent_backends.chat_completions import ChatFold
from genagent_backends.claude_lines import ClaudeLines
from genagent_backends.codex_lines import CodexLines
from genagent_backends.foreign import json_object
from genagent_backends.http_turns import Fold
from genagent_backends.openai_responses import LAST_EVENTS, OpenAIFold
from genagent_backends.subprocesses import Ended, Translator
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict, Plain, freeze
from support.narrow_bounds import FOREIGN_ITEMS, KEY_CHARS, narrow_bounds

JSON: TypeAlias = object
TYPES = [
    *("system", "assistant", "user", "stream_event", "tool_use", "tool_result", "result", "error"),
    *("thread.started", "item.started", "item.completed", "turn.failed", "turn.completed"),
    *("command_execution", "file_change", "agent_message", "init", "success", "text", "text_delta"),
    *("message_start", "content_block_start", "content_block_delta", "message_delta"),
    *("message_stop", "citations_delta", "end_turn", "completed", "output_text", "message"),
    *("response.output_item.done", "response.output_text.delta", *sorted(LAST_EVENTS), "[DONE]"),
]
KEYS = [
    *("type", "subtype", "message", "content", "text", "delta", "event", "id", "name", "input"),
    *("tool_use_id", "usage", "input_tokens", "result", "errors", "error", "session_id", "item"),
    *("thread_id", "parent_tool_use_id", "total_cost_usd", "cost_usd", "model", "tools", "status"),
    *("model_usage_since_last_result", "costUSD", "stop_reason", "index", "content_block"),
    *("citation", "citations", "response", "output", "choices", "finish_reason", "changes"),
]
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.sampled_from([0, 1, 1e308, -1e308, 0.5])
    | st.sampled_from(TYPES)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=FOREIGN_ITEMS + 2)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(min_size=KEY_CHARS - 1, max_size=KEY_CHARS + 2),
            inner,
            max_size=FOREIGN_ITEMS + 2,
        )
    ),
    max_leaves=2 * FOREIGN_ITEMS,
)
MESSAGES = st.builds(
    lambda fields, kind: {**fields, "type": kind},
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    st.sampled_from(TYPES),
)
TOO_MANY = [0] * (2 * FOREIGN_ITEMS)
BOTH_COST = {"a": {"costUSD": 1e308}, "b": {"costUSD": 1e308}}


def openai() -> OpenAIFold:
    return OpenAIFold("s", established=True, lose=lambda: None)


def lines_said(make: Callable[[], Translator], lines: Sequence[FrozenDict]) -> Iterator[Event]:
    translator = make()
    for line in lines:
        yield from translator.translate(line)
    yield translator.abandoned(Ended(1, "stderr"))


def answer_said(make: Callable[[], Fold], sent: Sequence[FrozenDict]) -> Iterator[Event]:
    fold = make()
    for each in sent:
        yield from fold.said(each)
    yield from fold.ending()
    for each in sent:
        yield from make().whole(each)


@pytest.mark.parametrize("make", [ClaudeLines, CodexLines])
@settings(max_examples=50)
@given(sent=st.lists(MESSAGES, max_size=4))
@example(sent=[{"type": "tool_result", "content": TOO_MANY}])
@example(sent=[{"type": "item.completed", "item": {"type": "file_change", "changes": TOO_MANY}}])
@example(sent=[{"type": "turn.failed", "error": {"message": "m", "k" * (KEY_CHARS + 1): 1}}])
@example(sent=[{"type": "result", "total_cost_usd": 1, "model_usage_since_last_result": BOTH_COST}])
@example(sent=[{"type": "result", "total_cost_usd": cost} for cost in (-1e308, 1e308)])
def test_lines_of_any_size_become_events(make: type[Translator], sent: list[JSON]) -> None:
    """What is too much for one message is left out, and the turn goes on."""
    with narrow_bounds():
        for event in lines_said(make, [read(each) for each in sent]):
            carried(event)


def test_a_process_that_has_cost_less_than_nothing_costs_no_infinity() -> None:
    """The difference of two numbers may be none any more."""
    line = FrozenDict({"type": "result", "result": "hi", "total_cost_usd": 1.7e308})

    [result] = ClaudeLines(cost_before_usd=-1.7e308).translate(line)

    assert result.kind == "result"
    assert "cost_usd" not in result.data


@pytest.mark.parametrize("make", [AnthropicFold, openai, ChatFold])
@settings(max_examples=50)
@given(sent=st.lists(MESSAGES, max_size=5))
@example(sent=[{"error": {"message": "m", "details": TOO_MANY}}])
@example(sent=[{"content": [], "stop_reason": "end_turn", "k" * (KEY_CHARS + 1): 1}])
@example(sent=[{"type": "message_start", "message": {f"{n}": n for n in range(FOREIGN_ITEMS)}}])
@example(
    sent=[
        {"type": "content_block_start", "index": n, "content_block": {"type": "text"}}
        for n in range(4 * FOREIGN_ITEMS)
    ]
)
@example(
    sent=[
        {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": n}}
        for n in range(4 * FOREIGN_ITEMS)
    ]
)
@example(
    sent=[
        *[{"type": "response.output_item.done", "item": {"id": n}} for n in range(50)],
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
)
@example(
    sent=[
        {
            "type": kind,
            "message": {f"{kind}{n}": n for n in range(FOREIGN_ITEMS)},
            "delta": {"a": n},
        }
        for n, kind in enumerate(("message_start", "message_start", "message_start"))
    ]
)
def test_answers_of_any_size_become_events(make: Callable[..., Fold], sent: list[JSON]) -> None:
    """Also what a stream says in many pieces, none of which is too long."""

    def made() -> Fold:
        return make() if make is openai else make("s")

    with narrow_bounds():
        for event in answer_said(made, [read(each) for each in sent]):
            carried(event)


def read(sent: JSON) -> FrozenDict:
    """Return what became of a message on its way from the provider."""
    found = json_object(json.dumps(sent))
    assert found is not None
    return found


def carried(event: Event) -> None:
    """Assert that *event* can be sent, and repeated as JSON."""
    assert freeze(event.data) is event.data
    json.dumps(_printed(event.data), allow_nan=False)


def _printed(value: Plain) -> JSON:
    match value:
        case FrozenDict():
            return {key: _printed(item) for key, item in value.items()}
        case tuple():
            return [_printed(item) for item in value]
        case _:
            return value
