"""A character that was cut in two deltas is one character, in whatever way it is streamed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends import claude_lines, http_turns
from genagent_backends.anthropic_messages import AnthropicFold
from genagent_backends.chat_completions import ChatFold
from genagent_backends.claude_lines import ClaudeLines
from genagent_backends.halves import Halves
from genagent_backends.http_turns import Fold
from genagent_backends.lines import LineSplitter
from genagent_backends.openai_responses import OpenAIFold
from genagent_backends.sse import SseEvent
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict

GRIN = "\N{GRINNING FACE}"


def halved(text: str, cuts: Iterable[int]) -> list[str]:
    """Return *text* cut by the units that JSON escapes."""
    units = text.encode("utf-16-le")
    places = [0, *sorted({2 * cut for cut in cuts if 2 * cut < len(units)}), len(units)]
    return [
        units[start:stop].decode("utf-16-le", "surrogatepass") for start, stop in pairwise(places)
    ]


def claude(pieces: Iterable[str], **more: object) -> list[dict[str, object]]:
    return [{"type": "stream_event", "event": messages(piece, index=0), **more} for piece in pieces]


def messages(piece: str, index: int) -> dict[str, object]:
    delta = {"type": "text_delta", "text": piece}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def chat(piece: str, index: int) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": {"content": piece}}]}


def responses(piece: str, index: int) -> dict[str, object]:
    return {"type": "response.output_text.delta", "content_index": index, "delta": piece}


def translated(lines: Iterable[dict[str, object]], translator: ClaudeLines) -> list[Event]:
    splitter = LineSplitter()
    return [
        event
        for written in lines
        for line in splitter.feed(json.dumps(written).encode() + b"\n")
        if isinstance(line, FrozenDict)
        for event in translator.translate(line)
    ]


def texts(events: Iterable[Event]) -> str:
    return "".join(str(event.data["text"]) for event in events if event.kind == "text")


TEXT = st.text(st.sampled_from("aé世\U0001f600\U0001f680"), max_size=8)


@given(text=TEXT, cuts=st.lists(st.integers(1, 16)))
def test_what_was_cut_anywhere_is_whole_in_every_dialect(text: str, cuts: list[int]) -> None:
    pieces = halved(text, cuts)
    folds: list[tuple[Fold, Callable[[str, int], dict[str, object]]]] = [
        (AnthropicFold("s"), messages),
        (ChatFold("s"), chat),
        (OpenAIFold("s", established=False, lose=lambda: None), responses),
    ]
    for fold, written in folds:
        halves = Halves()
        sent = [SseEvent("message", json.dumps(written(piece, 0))) for piece in pieces]
        said = [event for sse in sent for event in http_turns._said(sse, fold, halves)]
        assert texts(said) == text
    assert texts(translated(claude(pieces), ClaudeLines())) == text


def test_a_finished_message_that_matches_is_not_told_again() -> None:
    """It was, since two halves were two marks for what cannot be read."""
    content = [{"type": "text", "text": f"Hi {GRIN} there"}]
    lines: list[dict[str, object]] = [
        *claude(["Hi \ud83d", "\ude00 there"]),
        {"type": "assistant", "message": {"id": "m", "content": content}},
    ]

    assert texts(translated(lines, ClaudeLines())) == f"Hi {GRIN} there"


def test_halves_of_two_speakers_do_not_become_one_character() -> None:
    lines: list[dict[str, object]] = [
        *claude(["a\ud83d"]),
        *claude(["b\ud83d"], parent_tool_use_id="t"),
        *claude(["\ude00c"]),
        *claude(["\ude80d"], parent_tool_use_id="t"),
    ]
    said = translated(lines, ClaudeLines())

    assert texts(event for event in said if "parent_tool_use_id" not in event.data) == f"a{GRIN}c"
    assert texts(event for event in said if "parent_tool_use_id" in event.data) == "b\U0001f680d"


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (["a\ud83d", "b"], "a\ufffdb"),
        (["\ude00b"], "\ufffdb"),
        (["a\ud83d", "\ud83d", "\ude00"], f"a\ufffd{GRIN}"),
    ],
)
def test_a_half_without_its_other_half_is_replaced(pieces: list[str], said: str) -> None:
    assert texts(translated(claude(pieces), ClaudeLines())) == said


def test_a_half_does_not_outlive_its_message() -> None:
    """A turn may be interrupted between the two."""
    begin: dict[str, object] = {"type": "message_start", "message": {"id": "m2"}}
    lines: list[dict[str, object]] = [
        *claude(["a\ud83d"]),
        {"type": "stream_event", "event": begin},
        *claude(["b"]),
    ]

    assert texts(translated(lines, ClaudeLines())) == "ab"


def nested_size(value: object) -> int:
    """Return how many bytes *value* takes with all that it holds."""
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, list | tuple | set):
        inner = value
    elif hasattr(value, "__dict__"):
        inner = vars(value).values()
    return sys.getsizeof(value) + sum(map(nested_size, inner))


@pytest.mark.parametrize("speakers", [False, True])
def test_what_waits_for_its_other_half_is_bounded(speakers: bool) -> None:
    """However many texts are begun, and however long a provider's names for them are."""
    halves = Halves()
    for number in range(3_000):
        name = f"{number}" + "n" * 10_000
        which = {"parent_tool_use_id": name} if speakers else {"item_id": name}
        halves.completed({"delta": "a\ud83d", **which}, "\\ud83d")

    assert nested_size(halves) < 100_000
    last: dict[str, object] = {"delta": "\ude00b", **which}
    halves.completed(last, "\\ude00")
    assert last["delta"] == f"{GRIN}b"


def test_what_was_told_of_subagents_and_tools_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are and whatever they are called; the answer itself is never forgotten."""
    monkeypatch.setattr(claude_lines, "MAX_SUBAGENTS", 4)
    monkeypatch.setattr(claude_lines, "MAX_TOOL_USES", 8)
    translator = ClaudeLines()
    cut = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}
    begin: list[dict[str, object]] = [
        *claude(["one "]),
        {"type": "stream_event", "event": cut},
        {"type": "stream_event", "event": {"type": "message_start", "message": {"id": "2"}}},
        *claude(["two"]),
    ]
    translated(begin, translator)
    for number in range(200):
        parent = f"{number}" + "n" * 10_000
        use = {"type": "tool_use", "id": parent, "name": "Bash"}
        of = {"parent_tool_use_id": parent}
        message = {"id": "m", "content": [use]}
        said: dict[str, object] = {"type": "assistant", "message": message, **of}
        lines: list[dict[str, object]] = [*claude(["sub"], **of), said, said]
        events = translated(lines, translator)
        assert [event.kind for event in events] == ["text", "tool_use"]

    assert nested_size(translator) < 20_000
    [*_, result] = translated([{"type": "result", "result": "two"}], translator)
    assert result.data["text"] == "one two"
