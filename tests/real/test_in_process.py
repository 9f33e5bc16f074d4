"""The real programs against a provider on loopback: nothing here needs a network.

A real program is slow to start and changes with every version; what holds for ours
is what these tests ask of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from genagent_backends.base import Backend, Failed, Session
from genagent_backends.claude import ClaudeBackend
from genagent_backends.codex import CodexBackend
from genagent_backends.failures import failure_of
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, rehearse, settled
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import BackendError
from support.fake_provider import Answer, FakeProvider, Says, Sends, refuses
from support.real_programs import claude, codex, duplex

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]
PATIENCE_S = 60.0

PROGRAMS = [claude, duplex, codex]


class Talk:
    """A session with a real program, turn by turn."""

    def __init__(self, backend: Backend, session: Session, provider: FakeProvider) -> None:
        self.backend = backend
        self.session = session
        self.provider = provider
        self.turn = RehearsalTurn()

    async def say(self, prompt: str, *answers: Answer) -> Rehearsed:
        self.expect(*answers)
        done = await rehearse(self.backend, self.session, prompt, self.turn)
        self.session = done.session
        return done

    def expect(self, *answers: Answer) -> None:
        self.provider.answers = list(answers) or [Says()]
        self.provider.requests.clear()
        self.provider.asked.clear()

    @property
    def conversation(self) -> str:
        """What the provider was last told, as it came."""
        return repr(self.provider.requests[-1].body)


@asynccontextmanager
async def talking(program: Any, home: Path, **more: Any) -> AsyncIterator[Talk]:
    backend: Backend = CodexBackend() if program is codex else ClaudeBackend()
    async with FakeProvider() as provider:
        options = program(home, provider, **more)
        frozen = freeze({"working_dir": str(home), "timeout_ms": 60_000, **options})
        assert isinstance(frozen, FrozenDict)
        session = await settled(backend.start_session(frozen))
        assert not isinstance(session, Failed), session
        talk = Talk(backend, session, provider)
        try:
            yield talk
        finally:
            await settled(backend.terminate_session(talk.session))
            await talk.turn.end_session()


def succeeded(done: Rehearsed) -> Rehearsed:
    assert done.terminal is not None
    assert done.terminal.kind == "result", done.terminal.data.get("reason")
    return done


def failure(done: Rehearsed) -> BackendError:
    assert done.terminal is not None
    reason = failure_of(done.terminal)
    assert isinstance(reason, BackendError), done.terminal
    return reason


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_conversation_goes_on_over_two_turns(program: Any, home: Path) -> None:
    """The second turn is told what was said in the first."""
    async with talking(program, home) as talk:
        first = succeeded(await talk.say("apples", Says(pieces=("pears",), usage=(7, 3))))
        second = succeeded(await talk.say("--plums", Says(pieces=("Grüße",), usage=(9, 4))))

        assert (first.text, second.text) == ("pears", "Grüße")
        assert all(word in talk.conversation for word in ("apples", "pears", "--plums"))
        assert [turn.usage and turn.usage["input_tokens"] for turn in (first, second)] == [7, 9]
        assert len(set(talk.turn.checkpoints)) == 1


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_refusal_of_the_provider_fails_the_turn_only(program: Any, home: Path) -> None:
    """And says of which kind it was; the conversation lives."""
    async with talking(program, home) as talk:
        succeeded(await talk.say("one"))
        failed = await talk.say("two", refuses(400, "bad thing", code="invalid_request_error"))
        after = succeeded(await talk.say("three", Says(pieces=("after",))))

        assert failure(failed).kind == "invalid_request"
        assert "bad thing" in failure(failed).message
        assert after.text == "after"


@pytest.mark.parametrize("program", PROGRAMS)
async def test_an_interrupted_turn_leaves_no_process_and_can_be_followed(
    program: Any, home: Path
) -> None:
    """The program is asked politely, and does end."""
    async with talking(program, home) as talk:
        succeeded(await talk.say("one"))
        talk.expect(Sends(then="silence", unfinished=True))
        running = asyncio.create_task(rehearse(talk.backend, talk.session, "two", talk.turn))
        await asyncio.wait_for(talk.provider.asked.wait(), PATIENCE_S)
        running.cancel()
        await asyncio.wait({running}, timeout=PATIENCE_S)
        after = succeeded(await talk.say("three", Says(pieces=("after",))))

        assert running.cancelled()
        assert all(process.returncode is not None for process in talk.turn.processes)
        assert len(talk.turn.session_processes) == (1 if program is duplex else 0)
        assert after.text == "after"


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_long_prompt_arrives_whole(program: Any, home: Path) -> None:
    """Longer than any command line may be."""
    prompt = "begin" + " word" * 40_000 + " end"
    async with talking(program, home) as talk:
        succeeded(await talk.say(prompt))

        assert prompt in talk.conversation


@pytest.mark.parametrize(
    ("program", "missing"),
    [
        (claude, "00000000-0000-4000-8000-000000000000"),
        (codex, "00000000-0000-4000-8000-000000000000"),
        (codex, "00000000-0000-4000-8000-00000000000"),
    ],
)
async def test_a_session_that_is_not_there_is_a_lost_conversation(
    program: Any, missing: str, home: Path
) -> None:
    """One of the programs says so on standard error alone, or begins another if it is no UUID."""
    async with talking(program, home) as talk:
        checkpoint = talk.backend.checkpoint_session  # type: ignore[attr-defined]
        talk.session = await settled(checkpoint(talk.session, missing))
        done = await talk.say("anything")

        assert failure(done).kind == "conversation_lost"


async def test_codex_keeps_its_profile_on_every_turn(home: Path) -> None:
    """The subcommand that resumes does not know the flag."""
    async with talking(codex, home, profile="other") as talk:
        (home / "config" / "other.config.toml").write_text('model = "another"\n')
        models = []
        for prompt in ("one", "two"):
            succeeded(await talk.say(prompt))
            models.append(talk.provider.requests[-1].body["model"])

    assert models == ["another", "another"]


async def test_claude_shows_text_as_it_comes_and_tools_whole(home: Path) -> None:
    """Streamed text is not repeated by the finished message."""
    tool = ("Bash", {"command": "printf real-tool", "description": "run it"})
    async with talking(claude, home, allowed_tools=["Bash(printf:*)"]) as talk:
        done = succeeded(
            await talk.say(
                "run it", Says(pieces=("Run", "ning."), tool=tool), Says(pieces=("It", " ran."))
            )
        )

    shown = [event for event in done.events if event.kind in ("text", "tool_use", "tool_result")]
    assert [event.kind for event in shown] == [
        "text",
        "text",
        "tool_use",
        "tool_result",
        "text",
        "text",
    ]
    assert shown[3].data["content"] == "real-tool"
    assert done.text == "It ran."


@pytest.mark.parametrize(("tools", "offered"), [([], []), (["Read"], ["Read"])])
async def test_claude_offers_the_tools_that_were_named(
    tools: list[str], offered: list[str], home: Path
) -> None:
    """An empty list is none at all, on every turn."""
    async with talking(claude, home, tools=tools) as talk:
        for prompt in ("one", "two"):
            succeeded(await talk.say(prompt))
            given: Any = talk.provider.requests[-1].body.get("tools") or []
            names = [tool["name"] for tool in given]
            assert [name for name in names if name != "DeferredToolPlaceholder"] == offered


@pytest.mark.parametrize("program", [claude, duplex])
@pytest.mark.parametrize("partial", [True, False])
async def test_claude_says_the_whole_of_an_answer_that_was_cut_off(
    program: Any, partial: bool, home: Path
) -> None:
    """The program asks the model to go on, and its own result is the last part."""
    cut = Says(pieces=("FIRST ", "half "), stop="max_tokens")
    async with talking(program, home, include_partial_messages=partial) as talk:
        done = succeeded(await talk.say("long", cut, Says(pieces=("SECOND half.",))))

        assert done.text == "FIRST half SECOND half."


def background(command: str) -> Says:
    """Return the wish to run *command* and not to wait for it."""
    given = {"command": command, "run_in_background": True, "description": "x"}
    return Says(tool=("Bash", given))


ALLOWED = ["Bash(python3:*)"]


async def test_claude_answers_each_prompt_whatever_it_does_in_between(home: Path) -> None:
    """When the background command has ended it takes a turn of its own, which nobody asked for."""
    command = background('python3 -c "print(1)"')
    async with talking(duplex, home, allowed_tools=ALLOWED) as talk:
        words = ("one", "unasked", "two", "three")
        done = [succeeded(await talk.say("1", command, *(Says(pieces=(word,)) for word in words)))]
        async with asyncio.timeout(PATIENCE_S):
            while len(talk.provider.requests) < 3:
                await asyncio.sleep(0)
        for prompt in "23":
            done.append(await rehearse(talk.backend, done[-1].session, prompt, talk.turn))

        assert [turn.text for turn in done] == ["one", "two", "three"]
        assert len(talk.turn.session_processes) == 1


@pytest.mark.parametrize("program", [claude, duplex])
async def test_claude_has_its_whole_budget_in_every_turn(program: Any, home: Path) -> None:
    """It is enough for one of these turns, and not for two."""
    async with talking(program, home, max_budget_usd=0.00012) as talk:
        for prompt in ("one", "two", "three"):
            succeeded(await talk.say(prompt))


@pytest.mark.parametrize("program", [claude, duplex])
async def test_claude_ends_a_prompt_that_goes_to_no_model(program: Any, home: Path) -> None:
    """A hook of the user's blocks it, or there is nothing in it: it is not repeated then."""
    hook = home / "hook.sh"
    hook.write_text("#!/bin/sh\nif grep -q BLOCK; then echo not here >&2; exit 2; fi\n")
    hook.chmod(0o700)
    by_hook = {"hooks": [{"type": "command", "command": str(hook)}]}
    chosen = home / "hooks.json"
    chosen.write_text(json.dumps({"hooks": {"UserPromptSubmit": [by_hook]}}))
    async with talking(program, home, settings=str(chosen), timeout_ms=60_000) as talk:
        succeeded(await talk.say("one", Says(pieces=("first",))))
        blocked = succeeded(await talk.say("BLOCK"))
        if program is duplex:
            succeeded(await talk.say("\ufeff"))
        after = succeeded(await talk.say("three", Says(pieces=("third",))))

        assert "not here" in blocked.text
        assert after.text == "third"
        assert len(talk.turn.session_processes) == (1 if program is duplex else 0)


async def test_claude_answers_after_a_command_was_left_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resumed program first reports what was lost, with a result that is no answer."""
    monkeypatch.setattr("genagent_backends.subprocesses.EXIT_GRACE_MS", 100)
    command = background('python3 -c "import time; time.sleep(600)"')
    async with talking(claude, home, allowed_tools=ALLOWED) as talk:
        first = succeeded(await talk.say("1", command, Says(pieces=("one",))))
        second = succeeded(await talk.say("2", Says(pieces=("two",))))

        assert (first.text, second.text) == ("one", "two")


async def test_claude_tells_the_cost_of_each_turn(home: Path) -> None:
    """Its own total runs on over a resumed session."""
    async with talking(claude, home) as talk:
        costs = []
        for prompt in ("one", "two"):
            done = succeeded(await talk.say(prompt, Says(usage=(7, 3))))
            assert done.terminal is not None
            costs.append(done.terminal.data["cost_usd"])

    assert costs[0] == pytest.approx(costs[1])


@pytest.mark.parametrize(
    ("prompt", "for_the_model"),
    [("/cost", False), (" \n", False), ("", True), ("apples", True), ("--plums", True)],
)
async def test_in_one_process_every_prompt_has_its_own_answer(
    prompt: str, for_the_model: bool, home: Path
) -> None:
    """The program repeats a prompt by its id, whatever it makes of it; a blank one it answers."""
    async with talking(duplex, home) as talk:
        succeeded(await talk.say("one", Says(pieces=("first",))))
        own = succeeded(await talk.say(prompt, Says(pieces=("second",))))
        after = succeeded(await talk.say("three", Says(pieces=("third",))))

        assert (own.text == "second") == for_the_model
        assert after.text == "third"
        assert len(talk.turn.session_processes) == 1
