"""Streamed text fits into what a turn may keep, and nothing of it is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.anthropic import AnthropicBackend
from genagent_backends.base import Backend, Failed
from genagent_backends.chat import ChatBackend
from genagent_backends.claude import ClaudeBackend
from genagent_backends.joining import EVENTS_AS_THEY_COME, MAX_SPEAKERS, Joiner, joined
from genagent_backends.openai import OpenAIBackend
from genagent_backends.rehearsal import rehearse, settled
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, Event, Response, event
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.turns.capture import Capture
from support.backend_cli import StubCli
from support.fake_provider import FakeProvider, Received, Says, Sends, rendered


def fed(events: Iterable[Event]) -> list[Event]:
    joiner = Joiner()
    return [gone for said in events for gone in joiner.feed(said)] + joiner.rest()


def piece(text: str, **more: object) -> Event:
    return event("text", {"text": text, **more})


def spoken(events: Sequence[Event], speaker: object) -> list[object]:
    """Return one speaker's messages and whatever is no text, in order, text put together."""
    said: list[object] = [""]
    for each in events:
        if each.kind != "text":
            said += [each, ""]
        elif each.data.get("parent_tool_use_id") == speaker:
            said += ["|"] if each.data.get("message_boundary") is True else []
            last = said.pop()
            said.append(f"{last}{each.data['text']!s}")
    return said


PIECES = st.one_of(
    st.builds(piece, st.text(max_size=3)),
    st.builds(piece, st.text(max_size=3), parent_tool_use_id=st.sampled_from(["a", "b"])),
    st.builds(piece, st.text(max_size=3), message_boundary=st.just(True)),
    st.just(event("tool_use", {"id": "t"})),
)


@given(runs=st.lists(st.tuples(PIECES, st.sampled_from([1, 2, 300])), max_size=12))
def test_nothing_is_lost_and_nothing_passes_what_its_speaker_said(
    runs: list[tuple[Event, int]],
) -> None:
    """Each speaker's messages are the same, and so is the place of everything else in them."""
    events = [said for said, times in runs for _ in range(times)]
    gone = fed(events)

    for speaker in (None, "a", "b"):
        assert spoken(gone, speaker) == spoken(events, speaker)


@given(
    runs=st.lists(st.tuples(st.integers(1, 2_000), st.integers(1, 400)), max_size=12),
    speakers=st.integers(1, 3),
)
def test_any_stream_of_text_fits_into_a_turn(runs: list[tuple[int, int]], speakers: int) -> None:
    """Up to the bytes that a turn keeps, in pieces of any size, of several speakers at a time."""
    events, left = list[Event](), Limits().max_event_bytes_per_turn
    for times, size in runs:
        for number in range(min(times, left // size)):
            who = number % speakers
            events.append(piece("x" * size, **({"parent_tool_use_id": str(who)} if who else {})))
            left -= size

    assert len(fed(events)) < 900


def test_a_mebibyte_in_pieces_of_one_byte_fits_into_a_turn() -> None:
    """The worst that a provider can do."""
    gone = fed(repeat(piece("x"), 1_048_576))

    assert len(gone) < 900
    assert sum(len(str(said.data["text"])) for said in gone) == 1_048_576


def test_something_is_held_of_so_many_speakers_and_no_more() -> None:
    """However many a provider names; what the oldest said goes out."""
    joiner = Joiner()
    said = [piece("x" * 1_000)] * EVENTS_AS_THEY_COME
    said += [piece("y", parent_tool_use_id=f"{number}") for number in range(1_000)]
    gone = [gone for each in said for gone in joiner.feed(each)]

    assert len(joiner._held) == MAX_SPEAKERS
    assert gone + joiner.rest() == said


def test_the_first_pieces_go_out_at_once() -> None:
    """Whoever watches sees every word of a short answer when it comes."""
    joiner = Joiner()

    assert all(joiner.feed(piece("w")) for _ in range(EVENTS_AS_THEY_COME))
    assert [bool(joiner.feed(piece("w"))) for _ in range(4)] == [False, False, False, True]


@given(runs=st.lists(st.tuples(st.text(min_size=1, max_size=3), st.integers(1, 400)), max_size=6))
def test_a_pause_shows_everything_that_came(runs: list[tuple[str, int]]) -> None:
    """Nobody thinks that the provider stopped in the middle of a word."""
    joiner, gone, came = Joiner(), list[Event](), ""
    for text, times in runs:
        for _ in range(times):
            gone += joiner.feed(piece(text))
            came += text
        if joiner.pause_ms is not None:
            gone += joiner.paused()

        assert "".join(str(said.data["text"]) for said in gone) == came
        assert joiner.pause_ms is None


def test_a_provider_that_pauses_after_every_word_does_not_fill_the_turn() -> None:
    """Every pause has to be longer than the last one that showed something."""
    joiner, events, two_hours_ms = Joiner(), 0, 2 * 3_600_000
    for _ in range(two_hours_ms // 150):
        events += len(joiner.feed(piece("word ")))
        if joiner.pause_ms is not None and joiner.pause_ms < 150:
            events += len(joiner.paused())

    assert events < 900
    waited_ms = 0.0
    for _ in range(200):
        events += len(joiner.feed(piece("w")))
        waited_ms += joiner.pause_ms or 0.0
        events += len(joiner.paused())
    assert waited_ms > two_hours_ms


async def scripted(gate: asyncio.Event, closed: asyncio.Event) -> AsyncGenerator[Event, None]:
    """Say what is held, and after the gate the end."""
    try:
        for _ in range(EVENTS_AS_THEY_COME):
            yield piece("w")
        yield piece("hi")
        await gate.wait()
        yield piece("more")
        yield event("result", {})
    finally:
        closed.set()


async def test_what_is_held_goes_out_while_the_provider_pauses() -> None:
    """Nothing that is still to come is lost by not being waited for."""
    gate, closed = asyncio.Event(), asyncio.Event()
    events = joined(scripted(gate, closed))
    for _ in range(EVENTS_AS_THEY_COME):
        await anext(events)
    held = await anext(events)
    gate.set()
    rest = [said async for said in events]

    assert held == piece("hi")
    assert rest == [piece("more"), event("result", {})]
    assert closed.is_set()


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_a_turn_that_ends_in_a_pause_leaves_nobody_waiting(how: str) -> None:
    """An interrupt must reach the connection also when what was held has just been shown."""
    closed = asyncio.Event()
    events = joined(scripted(asyncio.Event(), closed))
    for _ in range(EVENTS_AS_THEY_COME + 1):
        await anext(events)
    if how == "closed":
        await events.aclose()
    else:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()

    assert closed.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_the_joined_events_closes_the_others() -> None:
    """An interrupt must reach the connection."""
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[Event, None]:
        try:
            while True:
                yield piece("w")
        finally:
            closed.set()

    events = joined(endless())
    await anext(events)
    await events.aclose()

    assert closed.is_set()


async def test_events_still_arrive_while_the_answer_is_being_said() -> None:
    """A provider that falls silent after five thousand pieces has been heard nearly whole."""
    request = Received("POST", "/chat/completions", {}, {"stream": True})
    whole = rendered(Says(pieces=("word ",) * 5_000), request)
    half = whole.body[: whole.body.rindex(b"data: ", 0, whole.body.rindex(b"word "))]
    said, enough = list[Event](), asyncio.Event()

    def hear(event: Event) -> None:
        said.append(event)
        if sum(len(str(each.data["text"])) for each in said) > 5 * 4_900:
            enough.set()

    silent = Sends(headers=whole.headers, body=half, then="silence")
    async with FakeProvider(silent) as provider:
        session = await _started(provider)
        running = asyncio.create_task(rehearse(ChatBackend(), session, "hi", on_event=hear))
        await asyncio.wait_for(enough.wait(), 60)
        running.cancel()
        await asyncio.wait({running})

    assert EVENTS_AS_THEY_COME < len(said) < 1_000


@pytest.mark.parametrize("backend", [AnthropicBackend, OpenAIBackend, ChatBackend])
async def test_an_answer_in_many_pieces_is_kept_whole(backend: type[Backend]) -> None:
    """It failed with `event_capture_overflow` from the thousandth piece on."""
    async with FakeProvider(Says(pieces=("word ",) * 5_000)) as provider:
        session = await _started(provider, backend)
        done = await rehearse(backend(), session, "write a page")

    assert kept(done.events).text == done.text == "word " * 5_000


async def test_a_program_that_streams_many_pieces_is_kept_whole(tmp_path: Path) -> None:
    """The same of partial messages."""
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "word "}}
    piece = json.dumps({"type": "stream_event", "event": delta})
    result = json.dumps({"type": "result", "result": "word " * 5_000})
    stub = StubCli(tmp_path)
    stub.plays([{"raw": f"{piece}\n" * 5_000 + f"{result}\n"}])
    options = freeze(stub.options)
    assert isinstance(options, FrozenDict)
    session = ClaudeBackend().start_session(options)
    done = await rehearse(ClaudeBackend(), session, "write a page")

    assert kept(done.events).text == "word " * 5_000


def kept(events: Sequence[Event]) -> Response:
    """Return what a turn that keeps as much as turns do by default has of *events*."""
    capture = Capture(Limits())
    for said in events:
        assert capture.accept(said) == "retained"
    outcome = capture.outcome(prompt="", duration_ms=0)
    assert isinstance(outcome, Completed)
    return outcome.response


async def _started(provider: FakeProvider, backend: type[Backend] = ChatBackend) -> object:
    options = freeze({"model": "m", "base_url": provider.base_url})
    assert isinstance(options, FrozenDict)
    session = await settled(backend().start_session(options))
    assert not isinstance(session, Failed), session
    return session
