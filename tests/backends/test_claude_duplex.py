"""One `claude` process for every turn: nothing of one turn is read, or written, in the next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagent_backends import claude_asked, claude_duplex
from genagent_backends.base import Failed, FirstSignal, Process
from genagent_backends.claude import ClaudeBackend
from genagent_backends.claude_asked import Asked, Prompt, Repeats
from genagent_backends.claude_lines import ClaudeLines
from genagent_backends.failures import failure_of
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, rehearse
from genagent_backends.subprocesses import Clocks, Command
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import BackendError
from support.backend_cli import Step, StubCli

INIT: Step = {"line": {"type": "system", "subtype": "init", "session_id": "s-1"}}
HEAR: Step = {"hear": True}
REPLAY: Step = {"replay": "id"}
SILENCE: Step = {"silence": True}
HICCUP: Step = {"line": {"type": "error", "error": "hiccup"}}
each_way = pytest.mark.parametrize("how", ["id", "text"])


def result(text: str, **more: object) -> Step:
    return {"line": {"type": "result", "result": text, "session_id": "s-1", **more}}


def answers(*texts: str, how: str = "id") -> list[Step]:
    """Return the steps of a program that answers so many prompts, and then waits."""
    each: list[list[Step]] = [[HEAR, INIT, {"replay": how}, result(text)] for text in texts]
    return [*(step for steps in each for step in steps), HEAR]


class Talk:
    """A session on a stub, turn by turn."""

    def __init__(self, directory: Path, *runs: list[Step], **options: object) -> None:
        self.stub = StubCli(directory)
        self.stub.plays(*runs)
        frozen = freeze({**self.stub.options, "mode": "duplex", **options})
        assert isinstance(frozen, FrozenDict)
        self.backend = ClaudeBackend()
        session = self.backend.start_session(frozen)
        assert not isinstance(session, Failed), session
        self.session = session
        self.turn = RehearsalTurn(grace_ms=50)

    async def say(self, prompt: str) -> Rehearsed:
        done = await rehearse(self.backend, self.session, prompt, self.turn)
        self.session = done.session
        return done

    async def said(self, *prompts: str) -> list[str]:
        """Say each of *prompts* and end; return what came of them."""
        done = [outcome(await self.say(prompt)) for prompt in prompts]
        await self.close()
        return done

    async def close(self) -> None:
        await self.backend.terminate_session(self.session)
        await self.turn.end_session()


def outcome(done: Rehearsed) -> str:
    assert done.terminal is not None
    if done.terminal.kind == "result":
        return done.text
    failure = failure_of(done.terminal)
    assert isinstance(failure, BackendError)
    return f"{failure.kind}: {failure.message}"


async def test_an_error_that_is_no_result_ends_the_process(tmp_path: Path) -> None:
    """The turn may still come to its result, and every later answer would be one prompt late."""
    begun = answers("1")[:-1]
    first = [*begun, HEAR, INIT, REPLAY, HICCUP, SILENCE]
    talk = Talk(tmp_path, first, answers("3", "4", "5"))

    said = await talk.said("one", "two", "three", "four", "five")

    assert said == ["1", "provider_error: hiccup", "3", "4", "5"]
    assert len(talk.stub.runs) == 2
    assert "--resume=s-1" in talk.stub.runs[1].argv


@each_way
@pytest.mark.parametrize(
    "stale", [result("1"), HICCUP, result("", subtype="error_during_execution", is_error=True)]
)
@pytest.mark.parametrize("when", ["between", "after the next prompt"])
async def test_what_comes_after_the_end_of_a_turn_ends_no_other(
    tmp_path: Path, how: str, stale: Step, when: str
) -> None:
    """A result that is printed twice, a late error: the next prompt has its own answer."""
    one, two, three = (answers(text, how=how)[:-1] for text in "123")
    second = [stale, *two] if when == "between" else [two[0], stale, *two[1:]]
    talk = Talk(tmp_path, [*one, *second, *three, HEAR])

    assert await talk.said("one", "two", "three") == ["1", "2", "3"]
    [run] = talk.stub.runs
    heard = [line and line["message"] for line in run.heard]
    assert heard == [{"role": "user", "content": text} for text in ("one", "two", "three")] + [None]


async def test_a_prompt_is_written_although_something_stale_is_there(tmp_path: Path) -> None:
    """The end of another turn was read before the first byte of the prompt was written."""
    came = tmp_path / "came"
    first = answers("1")[:-1]
    talk = Talk(tmp_path, [*first, result("1"), {"touch": str(came)}, *answers("2", "3")])
    await talk.say("one")
    while not came.exists():
        await asyncio.sleep(0)

    assert await talk.said("two", "three") == ["2", "3"]
    assert len(talk.stub.runs[0].heard) == 4


async def test_a_result_before_the_whole_prompt_was_taken_ends_the_process(tmp_path: Path) -> None:
    """The next prompt would be glued to what is left of this one."""
    early: list[Step] = [{"peek": True}, result("of nothing"), SILENCE]
    talk = Talk(tmp_path, early, answers("2"))

    assert (await talk.said("x" * 500_000, "two"))[1:] == ["2"]
    assert len(talk.stub.runs) == 2


async def test_one_more_result_after_an_interrupt_answers_nothing(tmp_path: Path) -> None:
    """The program had answered the interrupt, and then said how the turn went after all."""
    failed = result("", subtype="error_during_execution", is_error=True)
    given_up: list[Step] = [HEAR, INIT, REPLAY, {"until": "interrupt"}, failed, result("1")]
    talk = Talk(tmp_path, [*given_up, *answers("2", "3")])
    said = asyncio.Event()
    running = asyncio.create_task(
        rehearse(talk.backend, talk.session, "one", talk.turn, on_event=lambda _event: said.set())
    )
    await asyncio.wait_for(said.wait(), 30)
    running.cancel()
    await asyncio.wait({running})

    assert await talk.said("two", "three") == ["2", "3"]


@pytest.mark.parametrize(
    ("clock", "named"), [("idle_timeout_ms", "idle_timeout"), ("timeout_ms", "timeout")]
)
async def test_a_process_that_reads_no_refusal_does_not_stop_the_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str, named: str
) -> None:
    """It asked more than a pipe has room for the answers to, and nobody heard it any more."""
    monkeypatch.setattr(claude_duplex, "INTERRUPT_ANSWER_MS", 50)
    deaf: list[Step] = [HEAR, INIT, REPLAY, {"asks": 1_000}, SILENCE]
    talk = Talk(tmp_path, deaf, answers("2"), **{clock: 1_000})

    first, second = await asyncio.wait_for(talk.said("one", "two"), 60)

    assert first.startswith(f"{named}: ")
    assert second == "2"


async def test_a_process_that_asks_without_end_and_reads_nothing_is_ended(tmp_path: Path) -> None:
    """What waits to be written would grow for ever."""
    deaf: list[Step] = [HEAR, INIT, REPLAY, {"asks": 10_000}, SILENCE]
    talk = Talk(tmp_path, deaf, answers("2"))

    first, second = await asyncio.wait_for(talk.said("one", "two"), 60)

    assert first == "provider_error: claude asks and asks, and reads no answer"
    assert second == "2"


@pytest.mark.parametrize("when", ["in the turn", "as it is given up"])
async def test_a_line_that_breaks_its_reader_is_followed_by_no_stale_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Whatever went wrong: what ends the one turn must not be taken for the other's end."""
    odd: Step = {"line": {"type": "odd"}}
    until: Step = {"until": "interrupt"}
    breaks = [odd, until, odd] if when == "in the turn" else [until, odd]
    late = [HEAR, result("1"), SILENCE]
    talk = Talk(tmp_path, [HEAR, INIT, REPLAY, *breaks, *late], answers("2"))
    translate = ClaudeLines.translate

    def breaking(lines: ClaudeLines, line: FrozenDict) -> Iterator[Event]:
        if line.get("type") == "odd":
            raise ValueError("a line that nobody expected")
        return translate(lines, line)

    monkeypatch.setattr(ClaudeLines, "translate", breaking)
    said = asyncio.Event()
    running = asyncio.create_task(
        rehearse(talk.backend, talk.session, "one", talk.turn, on_event=lambda _event: said.set())
    )
    await asyncio.wait_for(said.wait(), 30)
    if when == "as it is given up":
        running.cancel()
    await asyncio.wait({running})

    assert isinstance(running.exception(), ValueError)
    assert await talk.said("two") == ["2"]
    assert all(process.returncode is not None for process in talk.turn.session_processes)


async def test_a_process_that_reads_no_refusal_can_be_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt has to be written, too, and may wait for that no longer than for its answer."""
    monkeypatch.setattr(claude_duplex, "INTERRUPT_ANSWER_MS", 50)
    came = tmp_path / "came"
    deaf: list[Step] = [HEAR, INIT, REPLAY, {"asks": 1_000}, {"touch": str(came)}, SILENCE]
    talk = Talk(tmp_path, deaf, answers("2"))
    running = asyncio.create_task(rehearse(talk.backend, talk.session, "one", talk.turn))
    while not came.exists():
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running}, timeout=30)

    assert running.done()
    assert await talk.said("two") == ["2"]


async def _interrupted(talk: Talk) -> asyncio.Task[Rehearsed]:
    """Begin a turn, interrupt it at its first event, and return it when it is over."""
    said = asyncio.Event()
    running = asyncio.create_task(
        rehearse(talk.backend, talk.session, "one", talk.turn, on_event=lambda _event: said.set())
    )
    await asyncio.wait_for(said.wait(), 30)
    running.cancel()
    await asyncio.wait({running}, timeout=30)
    return running


async def test_a_process_that_makes_noise_without_a_pause_can_be_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer comes among the noise, and the wait for it has to end all the same."""
    monkeypatch.setattr(claude_duplex, "INTERRUPT_ANSWER_MS", 50)
    talk = Talk(tmp_path, [HEAR, INIT, REPLAY, {"noise": True}], answers("2"))
    running = await _interrupted(talk)

    assert running.done()
    assert await talk.said("two") == ["2"]


async def test_a_process_that_is_interrupted_can_say_much_and_then_save_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told to end since it answers nothing; the next one resumes what it wrote down."""
    monkeypatch.setattr(claude_duplex, "INTERRUPT_ANSWER_MS", 50)
    saved = tmp_path / "saved"
    leaving: list[Step] = [{"long": 300_000}, {"touch": str(saved)}]
    talk = Talk(tmp_path, [{"on_interrupt": leaving}, HEAR, INIT, REPLAY, SILENCE])
    talk.turn.grace_ms = 2_000
    await _interrupted(talk)

    assert saved.exists()
    await talk.close()


async def test_a_process_that_is_left_can_say_much_and_then_save_its_session(
    tmp_path: Path,
) -> None:
    """Its input is closed and it leaves by itself; it must not have to be told."""
    saved = tmp_path / "saved"
    leaving: list[Step] = [{"read_stdin": True}, {"long": 300_000}, {"touch": str(saved)}]
    talk = Talk(tmp_path, [*answers("1")[:-1], *leaving])

    assert await talk.said("one") == ["1"]
    assert saved.exists()
    assert talk.turn.session_processes[0].returncode == 0


async def test_the_wait_for_an_answer_is_a_part_of_the_agents_grace(tmp_path: Path) -> None:
    """With what ending the process takes (three fifths) it is no longer than the whole."""
    shares = claude_duplex.INTERRUPT_ANSWER_PERCENT + claude_duplex.SETTLE_PERCENT
    talk = Talk(tmp_path, [HEAR, INIT, REPLAY, SILENCE], answers("2"))
    talk.turn.interrupt_grace_ms = 0
    running = await _interrupted(talk)

    assert running.cancelled()
    assert shares + 60 <= 100
    assert talk.turn.session_processes[0].returncode is not None
    await talk.close()


async def test_a_process_that_makes_noise_between_two_turns_does_not_hold_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads no prompt either, and the clock says so."""
    monkeypatch.setattr(claude_duplex, "INTERRUPT_ANSWER_MS", 50)
    noise: Step = {"noise": True}
    first = [*answers("1")[:-1], noise]
    talk = Talk(tmp_path, first, answers("3"), idle_timeout_ms=2_000)

    one, two, three = await asyncio.wait_for(talk.said("one", "two", "three"), 60)

    assert (one, three) == ("1", "3")
    assert two.startswith("idle_timeout: ")


async def test_a_refusal_is_never_written_into_the_middle_of_a_prompt(tmp_path: Path) -> None:
    """Both would be lost: a line that is half one and half the other is no JSON."""
    asked = 50
    steps: list[Step] = [{"peek": True}, {"asks": asked}, *[HEAR] * (asked + 1)]
    talk = Talk(tmp_path, [*steps, INIT, REPLAY, result("1"), HEAR])
    prompt = "x" * 300_000

    assert await talk.said(prompt) == ["1"]
    heard = talk.stub.runs[0].heard
    assert heard[0]["message"] == {"role": "user", "content": prompt}
    assert {line and line["type"] for line in heard[1:-1]} == {"control_response"}


async def test_a_process_that_ended_between_two_turns_is_replaced_before_the_prompt(
    tmp_path: Path,
) -> None:
    """The prompt was not said to it, so nothing is lost by saying it to another."""
    talk = Talk(tmp_path, [*answers("1")[:-1], {"exit": 3}], answers("2"))
    await talk.say("one")
    await talk.turn.session_processes[0].wait()

    assert await talk.said("two") == ["2"]


async def test_with_a_budget_no_process_serves_two_turns(tmp_path: Path) -> None:
    """The program counts what its process has cost; the promise is about a turn."""
    talk = Talk(tmp_path, *(answers(text) for text in "123"), max_budget_usd=0.5)

    assert await talk.said("one", "two", "three") == ["1", "2", "3"]
    assert len(talk.stub.runs) == 3
    assert "--resume=s-1" in talk.stub.runs[2].argv


async def test_a_blank_prompt_is_answered_without_being_repeated(tmp_path: Path) -> None:
    """The program sends nothing to the model, and says so at once."""
    blank: list[Step] = [HEAR, result("nothing was sent", num_turns=0)]
    talk = Talk(tmp_path, [*answers("1")[:-1], *blank, *answers("3")])

    assert await talk.said("one", " \n", "three") == ["1", "nothing was sent", "3"]


def lives(state: str) -> Step:
    return {"lives": state}


@pytest.mark.parametrize("prompt", ["two", "\ufeff"])
async def test_a_prompt_that_is_started_and_not_repeated_has_its_result(
    tmp_path: Path, prompt: str
) -> None:
    """A hook blocked it, the budget was used up, or it is blank for the program and not for us."""
    blocked: list[Step] = [HEAR, lives("queued"), result("0"), lives("started"), INIT]
    steps = [*answers("1")[:-1], lives("completed"), *blocked, result("blocked")]
    talk = Talk(tmp_path, [*steps, lives("completed"), *answers("3")])

    said = await asyncio.wait_for(talk.said("one", prompt, "three"), 60)

    assert said == ["1", "blocked", "3"]
    assert len(talk.stub.runs) == 1


@each_way
async def test_a_prompt_that_is_never_repeated_is_answered_by_the_last_result_before_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Of a version that tells nothing of prompts; else the turn would last for ever."""
    monkeypatch.setattr(claude_asked, "UNREPEATED_MS", 200)
    one, three = answers("1", how=how)[:-1], answers("3", how=how)
    talk = Talk(tmp_path, [*one, HEAR, INIT, result("0"), result("blocked"), *three])

    assert await asyncio.wait_for(talk.said("one", "two", "three"), 60) == ["1", "blocked", "3"]


@pytest.mark.parametrize("state", ["completed", "cancelled"])
async def test_a_prompt_that_is_completed_without_a_result_fails_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The program will say no more of it, and goes on living."""
    monkeypatch.setattr(claude_asked, "UNTOLD_MS", 200)
    first = [*answers("1")[:-1], HEAR, lives("started"), INIT, lives(state), SILENCE]
    talk = Talk(tmp_path, first, answers("3"))

    one, two, three = await asyncio.wait_for(talk.said("one", "two", "three"), 60)

    assert (one, three) == ("1", "3")
    assert two == (
        f"provider_error: the program says that the prompt is {state}, and gives no result"
    )


async def test_a_prompt_that_is_completed_before_its_result_has_it(tmp_path: Path) -> None:
    """So it is, recorded, with one that is taken up in the middle of a turn."""
    middle: list[Step] = [HEAR, lives("queued"), INIT, REPLAY, lives("started")]
    ending = [lives("completed"), result("2", origin={"kind": "task-notification"})]
    talk = Talk(tmp_path, [*answers("1")[:-1], *middle, *ending, *answers("3")])

    assert await asyncio.wait_for(talk.said("one", "two", "three"), 60) == ["1", "2", "3"]


# -- the rule ------------------------------------------------------------------------------------

LINES = st.sampled_from(["result", "unasked", "error", "stale replay", "words"])


@given(before=st.lists(LINES, max_size=6), how=st.sampled_from(["by id", "by text"]))
def test_no_line_before_the_repeated_prompt_ends_its_turn(before: list[str], how: Repeats) -> None:
    """Whatever an earlier turn still says, once the program is known to repeat prompts."""
    asked = Asked(Prompt("two", "p-2"), how)
    ours = replayed("two", "p-2" if how == "by id" else "other")
    last = FrozenDict({"type": "result", "result": "2"})

    heard = [own for kind in before for own in asked.own(line(kind))]
    heard += [own for each in (ours, last) for own in asked.own(each)]

    assert heard == [last]


LIVED = st.sampled_from(["queued", "started", "completed", "cancelled"])


@given(
    before=st.lists(LINES | LIVED, max_size=6),
    last=st.sampled_from([["started", "result"], ["completed"], ["cancelled"], ["result"]]),
    how=st.sampled_from(["not yet", "by id", "by text"]),
)
def test_an_ending_is_the_turns_or_is_waited_for_no_longer_than_so(
    before: list[str], last: list[str], how: Repeats
) -> None:
    """However a program ends a prompt, repeated or not: no turn is left without an end."""
    asked = Asked(Prompt("two", "p-2"), how)
    heard = [own["type"] for kind in [*before, *last] for own in asked.own(line(kind))]

    ended = "result" in heard or "error" in heard
    told_of = {"queued", "started", "completed", "cancelled"} & {*before, *last}
    if last != ["result"] or not told_of:
        assert ended or asked.quiet_ms is not None
    if asked.quiet_ms is not None:
        ending = asked.presumed()
        assert ending is not None
        assert list(asked.own(ending)) == [ending]


def line(kind: str) -> FrozenDict:
    match kind:
        case "queued" | "started" | "completed" | "cancelled":
            lived = {"type": "command_lifecycle", "state": kind, "command_uuid": "p-2"}
            return FrozenDict(lived)
        case "stale replay":
            return replayed("one", "p-1")
        case "unasked":
            return FrozenDict({"type": "result", "origin": FrozenDict({"kind": "x"})})
        case "words":
            return FrozenDict({"type": "assistant", "message": FrozenDict({"content": "w"})})
        case _:
            return FrozenDict({"type": kind, "result": "1"})


def replayed(text: str, uuid: str) -> FrozenDict:
    message = FrozenDict({"role": "user", "content": text})
    return FrozenDict({"type": "user", "isReplay": True, "uuid": uuid, "message": message})


@pytest.mark.parametrize(
    ("prompt", "repeated"),
    [("/cost", "<command-name>/usage</command-name>"), ("", "(no content)")],
)
def test_a_prompt_that_is_repeated_in_other_words_is_known_by_its_id(
    prompt: str, repeated: str
) -> None:
    """Recorded words of the program; versions that keep no id are believed."""
    for uuid, how in (("p-2", "by id"), ("other", "by text")):
        asked = Asked(Prompt(prompt, "p-2"), "by text")
        assert list(asked.own(replayed(repeated, uuid))) == []
        assert asked.repeats == how


# -- every program of a small world ---------------------------------------------------------------

#: What a program may say that belongs to no prompt, or to one before.
STALE = st.lists(st.sampled_from(["again", "error", "unasked", "question"]), max_size=3)
ENDINGS = st.sampled_from(["result", "failed", "error", "error, then result", "exit"])
Habit = tuple[list[str], str, list[str]]


class Program(Process):
    """A program in memory: it answers each prompt by its habits, and repeats it by its id."""

    def __init__(self, habits: Iterator[Habit]) -> None:
        self._habits = habits
        self._said = b""
        self._more = asyncio.Event()
        self._ended = asyncio.Event()
        self._last = ""

    pid = 0
    stderr_tail = ""

    @property
    def returncode(self) -> int | None:
        return -2 if self._ended.is_set() else None

    async def write(self, data: bytes) -> None:
        heard = json.loads(data)
        if heard["type"] != "user":
            return
        before, ending, after = next(self._habits)
        prompt = heard["message"]["content"]
        self._say(*before)
        self._print({**heard, "isReplay": True})
        if ending.startswith("error"):
            self._say("error")
        if ending in ("result", "failed", "error, then result"):
            self._last = f"answer to {prompt}"
            self._print({"type": "result", "result": self._last, "is_error": ending == "failed"})
        if ending == "exit":
            await self.end()
        else:
            self._say(*after)

    def _say(self, *kinds: str) -> None:
        for kind in kinds:
            match kind:
                case "again" if self._last:  # there is an earlier turn
                    self._print({"type": "result", "result": self._last})
                case "error":
                    self._print({"type": "error", "error": "hiccup"})
                case "unasked":
                    self._print({"type": "result", "result": "by itself", "origin": {"kind": "x"}})
                case "question":
                    self._print({"type": "control_request", "request_id": "q"})

    def _print(self, line: dict[str, object]) -> None:
        self._said += json.dumps(line).encode() + b"\n"
        self._more.set()

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        while not self._said and not self._ended.is_set():
            self._more.clear()
            await self._more.wait()
        said, self._said = self._said[:limit_bytes], self._said[limit_bytes:]
        return said

    async def wait(self) -> int:
        await self._ended.wait()
        return -2

    async def end(self, first: FirstSignal = "SIGINT") -> int:
        self._ended.set()
        self._more.set()
        return -2

    async def close_stdin(self) -> None:
        await self.end()


@settings(deadline=None)
@given(habits=st.lists(st.tuples(STALE, ENDINGS, STALE), min_size=4, max_size=4))
def test_no_prompt_is_ever_answered_with_the_answer_to_another(habits: list[Habit]) -> None:
    """Whatever a program says between its answers, before a prompt is taken up, or too late."""
    left = iter(habits)
    turn = RehearsalTurn()

    async def spawn(*_argv: object, **_how: object) -> Process:
        return Program(left)

    turn.spawn = spawn  # type: ignore[method-assign]  # nothing is started here

    async def talk() -> list[Event]:
        duplex, ends = claude_duplex.Duplex(), list[Event]()
        for number in range(len(habits)):
            command = Command(("claude",), f"prompt {number}".encode(), {})
            said = [event async for event in duplex.turn(turn, command, Clocks(None, None))]
            ends.append(said[-1])
        await duplex.close()
        return ends

    for number, end in enumerate(asyncio.run(talk())):
        wanted = habits[number][1]
        if end.kind == "result":
            assert (wanted, end.data["text"]) == ("result", f"answer to prompt {number}")
        elif wanted == "failed":
            assert "answer to" not in str(end.data) or f"answer to prompt {number}" in str(end.data)


class Slow(Program):
    """One that takes a prompt up only when it hears the next message."""

    def __init__(self) -> None:
        super().__init__(iter(()))
        self._heard: list[dict[str, Any]] = []

    async def write(self, data: bytes) -> None:
        self._take_up()
        heard = json.loads(data)
        if heard["type"] == "user":
            self._heard.append(heard)
            if heard["message"]["content"] == "last":
                self._take_up()

    def _take_up(self) -> None:
        while self._heard:
            prompt = self._heard.pop()
            self._print({**prompt, "isReplay": True})
            self._print({"type": "result", "result": prompt["message"]["content"]})


@pytest.mark.parametrize("steps", range(12))
async def test_e082_a_turn_that_was_interrupted_at_any_moment_answers_no_other(steps: int) -> None:
    """Also in the moment in which its prompt has just been said."""
    duplex, turn, started = claude_duplex.Duplex(), RehearsalTurn(), list[Process]()

    async def spawn(*_argv: object, **_how: object) -> Process:
        started.append(Slow())
        return started[-1]

    async def say(prompt: str) -> Event:
        command = Command(("claude",), prompt.encode(), {})
        said = [event async for event in duplex.turn(turn, command, Clocks(None, None))]
        return said[-1]

    turn.spawn = spawn  # type: ignore[method-assign]  # nothing is started here
    running = asyncio.create_task(say("first"))
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running}, timeout=30)

    assert running.cancelled()
    assert (await asyncio.wait_for(say("last"), 30)).data["text"] == "last"
    await duplex.close()
