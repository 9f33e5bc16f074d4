"""What the claude program does of its own accord: no answer of ours is taken from it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends import claude_asked
from genagent_backends.base import Failed
from genagent_backends.claude import ClaudeBackend, ClaudeSession
from genagent_backends.claude_asked import Asked, Prompt
from genagent_backends.foreign import Held
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, rehearse
from genagent_protocol.plain import FrozenDict, freeze
from support.backend_cli import Step, StubCli

RECORDED = sorted(Path(__file__).parent.glob("fixtures/claude/*-duplex/*.jsonl"))


def started(stub: StubCli, **options: object) -> ClaudeSession:
    frozen = freeze({**stub.options, **options})
    assert isinstance(frozen, FrozenDict)
    session = ClaudeBackend().start_session(frozen)
    assert not isinstance(session, Failed), session
    return session


async def talked(stub: StubCli, *prompts: str) -> list[Rehearsed]:
    """Run one turn for each prompt in one process, and end it."""
    backend, turn = ClaudeBackend(), RehearsalTurn(grace_ms=50)
    session, done = started(stub, mode="duplex"), list[Rehearsed]()
    for prompt in prompts:
        done.append(await rehearse(backend, session, prompt, turn))
        session = done[-1].session
    await backend.terminate_session(session)
    await turn.end_session()
    return done


@pytest.mark.parametrize("path", RECORDED, ids=[f"{p.parent.name}-{p.stem}" for p in RECORDED])
async def test_every_answer_belongs_to_its_prompt(path: Path, tmp_path: Path) -> None:
    """Recorded: a background command ended between two prompts, or in the middle of a turn."""
    stub = StubCli(tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    steps: list[Step] = [{"hear": True} if "heard" in line else {"line": line} for line in lines]
    stub.plays([*steps, {"hear": True}])

    done = await talked(stub, "Q1Q", "Q2Q", "Q3Q")

    assert [turn.text for turn in done] == ["after tool", "re Q2Q", "re Q3Q"]
    texts = [[e.data["text"] for e in turn.events if e.kind == "text"] for turn in done]
    assert texts == [["I start it. ", "after tool"], ["re ", "Q2Q"], ["re ", "Q3Q"]]
    assert [turn.kinds.count("session") for turn in done] == [1, 1, 1]
    assert len(stub.runs) == 1


def result(text: str, **more: object) -> Step:
    return {"line": {"type": "result", "result": text, "session_id": "s-1", **more}}


INIT: Step = {"line": {"type": "system", "subtype": "init", "session_id": "s-1", "model": "large"}}
UNASKED = result("done by itself", origin={"kind": "task-notification"})


async def test_a_question_between_two_turns_is_answered_in_the_next(tmp_path: Path) -> None:
    """It came with the end of a turn, and the program would wait for its answer for ever."""
    question = json.dumps({"type": "control_request", "request_id": "q-1"})
    ended = json.dumps({"type": "result", "result": "one"})
    stub = StubCli(tmp_path)
    hear: Step = {"hear": True}
    stub.plays([hear, {"raw": f"{ended}\n{question}\n"}, hear, hear, INIT, result("two"), hear])

    done = await talked(stub, "one", "two")

    assert [turn.text for turn in done] == ["one", "two"]
    assert "control_response" in [heard and heard["type"] for heard in stub.runs[0].heard]


async def test_an_interrupt_before_the_prompt_was_taken_up_ends_the_process(tmp_path: Path) -> None:
    """The turn it would end is not ours; ours would only begin, and answer the next prompt."""
    stub = StubCli(tmp_path)
    stub.plays(
        [{"hear": True}, INIT, {"until": "interrupt"}, UNASKED, INIT, result("one")],
        [{"hear": True}, INIT, result("two"), {"hear": True}],
    )
    backend, turn = ClaudeBackend(), RehearsalTurn(grace_ms=50)
    session, said = started(stub, mode="duplex"), asyncio.Event()
    running = asyncio.create_task(
        rehearse(backend, session, "one", turn, on_event=lambda _event: said.set())
    )
    await asyncio.wait_for(said.wait(), 10)
    running.cancel()
    await asyncio.wait({running})
    after = await rehearse(backend, session, "two", turn)
    await backend.terminate_session(after.session)
    await turn.end_session()

    assert after.text == "two"
    assert len(stub.runs) == 2


async def test_a_turn_that_nobody_asked_for_is_no_answer_without_duplex_either(
    tmp_path: Path,
) -> None:
    """A resumed conversation begins with the news of what ended meanwhile; then comes ours."""
    stub = StubCli(tmp_path)
    empty = result("", num_turns=0, origin={"kind": "task-notification"})
    stub.plays([INIT, empty, INIT, result("ours")])
    done = await rehearse(ClaudeBackend(), started(stub), "go")

    assert done.text == "ours"
    assert done.kinds == ["session", "result"]


WORDS = st.lists(st.sampled_from("abc"), max_size=3)


@given(
    before=st.lists(WORDS, max_size=3),
    words=WORDS,
    late=st.integers(0, 3),
    inside=st.none() | WORDS,
)
def test_only_what_follows_the_repeated_prompt_is_ours(
    before: list[list[str]], words: list[str], late: int, inside: list[str] | None
) -> None:
    """However many turns come first, and wherever in one the prompt is taken up."""
    origin = FrozenDict({"kind": "task-notification"})
    echo = FrozenDict({"type": "user", "isReplay": True})
    lines = [line for spoken in before for line in (*message(spoken), ending(origin))]
    ours = message(words)
    if inside is not None:
        lines += message(inside)
    lines += [*ours[: min(late, len(words))], echo, *ours[min(late, len(words)) :]]
    last = ending(origin if inside is not None else None)
    asked = Asked(Prompt("go", "p-1"), "not yet")

    heard = [own for line in (*lines, last) for own in asked.own(line)]

    assert heard == [*ours, last]


def message(words: list[str]) -> list[FrozenDict]:
    """Return a streamed message; only its first lines may come before the repeated prompt."""
    return [
        streamed("message_start"),
        *(streamed(f"delta {word}") for word in words),
        FrozenDict({"type": "assistant", "message": FrozenDict({"content": "".join(words)})}),
        streamed("message_stop"),
    ]


def streamed(kind: str, text: str = "") -> FrozenDict:
    return FrozenDict({"type": "stream_event", "event": FrozenDict({"type": kind, "text": text})})


def ending(origin: FrozenDict | None) -> FrozenDict:
    return FrozenDict({"type": "result", "origin": origin})


@given(
    said=st.lists(
        st.tuples(
            st.sampled_from(["message_start", "content_block_delta", "message_stop"]),
            st.sampled_from([1, 300, 3_000]),
        ),
        max_size=30,
    )
)
def test_the_beginning_of_an_answer_is_whole_or_an_error(said: list[tuple[str, int]]) -> None:
    """It is held until the prompt is repeated; so much of it is, and never a part of it."""
    asked = Asked(Prompt("hi", "u-1"), "by id")
    message: list[FrozenDict] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claude_asked, "MAX_BEGINNING_BYTES", 2_000)
        for kind, length in said:
            line = streamed(kind, "t" * length)
            assert list(asked.own(line)) == []
            message = [] if kind == "message_start" else message
            message += [] if kind == "message_stop" else [line]
        repeated = FrozenDict({"type": "user", "isReplay": True, "uuid": "u-1"})
        begun = list(asked.own(repeated))

    whole = begun == message
    assert whole or [line["type"] for line in begun] == ["error"]
    assert whole == (_bytes_of(message) <= 2_000)


def _bytes_of(lines: list[FrozenDict]) -> int:
    held = Held()
    held.add(*lines)
    return held.bytes


async def test_a_program_that_says_too_much_before_it_takes_up_its_prompt_fails_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was held of it is gone, and nobody can say what it was."""
    monkeypatch.setattr(claude_asked, "MAX_BEGINNING_BYTES", 1_000)
    stub = StubCli(tmp_path)
    begins: list[Step] = [{"line": {**streamed("content_block_delta", "t" * 900)}}] * 3
    hear: Step = {"hear": True}
    replay: Step = {"replay": "id"}
    stub.plays([hear, INIT, *begins, replay, result("one"), hear], [hear, INIT, result("two")])

    done = await talked(stub, "one", "two")

    assert done[0].terminal is not None
    reason = done[0].terminal.data["reason"]
    assert isinstance(reason, FrozenDict)
    assert "before it took up the prompt" in str(reason["message"])
    assert done[1].text == "two"
