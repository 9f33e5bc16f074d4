"""The claude backend: its options on every turn, its sessions, and one process for many turns."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from genagent_backends import claude_duplex
from genagent_backends.base import Failed
from genagent_backends.claude import ClaudeBackend, ClaudeSession
from genagent_backends.claude_asked import Prompt
from genagent_backends.claude_options import DECLARED
from genagent_backends.failures import failure_of
from genagent_backends.options import Unsupported
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, rehearse
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import BackendError
from support.backend_cli import Step, StubCli

UUID = "00000000-0000-4000-8000-000000000001"
INIT: Step = {"line": {"type": "system", "subtype": "init", "session_id": "s-1", "model": "large"}}
RESULT: Step = {"line": {"type": "result", "result": "done", "session_id": "s-1"}}
FAILED: Step = {"line": {"type": "result", "is_error": True, "result": "no", "session_id": "s-1"}}
SAY: Step = {
    "line": {
        "type": "assistant",
        "message": {"id": "m", "content": [{"type": "text", "text": "hi"}]},
    }
}
HEAR: Step = {"hear": True}
SILENCE: Step = {"silence": True}


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubCli]:
    made = StubCli(tmp_path)
    made.plays([INIT, RESULT])
    yield made
    made.end_helpers()


def start(stub: StubCli, **options: object) -> ClaudeSession | Failed:
    frozen = freeze({**stub.options, **options})
    assert isinstance(frozen, FrozenDict)
    return ClaudeBackend().start_session(frozen)


def started(stub: StubCli, **options: object) -> ClaudeSession:
    session = start(stub, **options)
    assert not isinstance(session, Failed), session
    return session


def refusal(stub: StubCli, **options: object) -> tuple[object, object]:
    answer = start(stub, **options)
    assert isinstance(answer, Failed), answer
    assert isinstance(answer.reason, FrozenDict)
    return answer.reason["code"], answer.reason.get("option")


async def two_turns(stub: StubCli, **options: object) -> tuple[list[str], list[str]]:
    """Return the flags of a first and of a resumed turn, but for those that every turn has."""
    session = started(stub, **options)
    for _ in range(2):
        session = (await rehearse(ClaudeBackend(), session, "go")).session
    first, second = (run.argv for run in stub.runs)
    always = ["--print", "--output-format=stream-json", "--verbose"]
    assert first[:3] == second[:3] == always
    return first[3:], second[3:]


@pytest.mark.parametrize(
    ("option", "value", "flags"),
    [
        ("model", "large", ["--model=large"]),
        ("model", "--evil", ["--model=--evil"]),
        ("fallback_model", "small", ["--fallback-model=small"]),
        ("system_prompt", "be brief", ["--system-prompt=be brief"]),
        ("append_system_prompt", "and kind", ["--append-system-prompt=and kind"]),
        ("max_turns", 3, ["--max-turns=3"]),
        ("max_budget_usd", 0.5, ["--max-budget-usd=0.5"]),
        ("max_budget_usd", 1234567.5, ["--max-budget-usd=1234567.5"]),
        ("max_budget_usd", 3, ["--max-budget-usd=3.0"]),
        ("max_thinking_tokens", 0, ["--max-thinking-tokens=0"]),
        ("permission_mode", "accept_edits", ["--permission-mode=acceptEdits"]),
        ("effort", "high", ["--effort=high"]),
        ("json_schema", {"type": "object"}, ['--json-schema={"type": "object"}']),
        ("tools", ["Bash", "Read"], ["--tools=Bash", "--tools=Read"]),
        ("tools", [], ["--tools="]),
        ("allowed_tools", ["Bash(git *)"], ["--allowedTools=Bash(git *)"]),
        ("disallowed_tools", "Bash", ["--disallowedTools=Bash"]),
        ("mcp_config", ["/m.json"], ["--mcp-config=/m.json"]),
        ("strict_mcp_config", True, ["--strict-mcp-config"]),
        ("settings", "/s.json", ["--settings=/s.json"]),
        ("setting_sources", ["project", "local"], ["--setting-sources=project,local"]),
        ("setting_sources", [], ["--setting-sources="]),
        ("add_dir", ["/tmp"], ["--add-dir=/tmp"]),
        ("agent", "reviewer", ["--agent=reviewer"]),
        ("agents", {"a": {"prompt": "ä"}}, ['--agents={"a": {"prompt": "ä"}}']),
        ("bare", True, ["--bare"]),
        ("safe_mode", True, ["--safe-mode"]),
        (
            "hermetic",
            True,
            [
                "--setting-sources=",
                "--strict-mcp-config",
                "--exclude-dynamic-system-prompt-sections",
            ],
        ),
    ],
)
async def test_every_option_is_on_the_first_turn_and_on_a_resumed_one(
    stub: StubCli, option: str, value: object, flags: list[str]
) -> None:
    """An option that is lost on resume is lost silently, model and safety alike."""
    first, second = await two_turns(stub, **{option: value})

    partial = ["--include-partial-messages"]
    assert sorted(first) == sorted(flags + partial)
    assert sorted(second) == sorted([*flags, *partial, "--resume=s-1"])


async def test_partial_messages_can_be_switched_off(stub: StubCli) -> None:
    """They are on unless somebody does not want them."""
    first, _ = await two_turns(stub, include_partial_messages=False)

    assert first == []


@pytest.mark.parametrize(
    ("options", "flag"),
    [({"session_id": UUID}, f"--session-id={UUID}"), ({"continue_session": True}, "--continue")],
)
async def test_what_chooses_the_conversation_is_for_its_first_turn_only(
    stub: StubCli, options: dict[str, object], flag: str
) -> None:
    """Together with --resume the program refuses it."""
    first, second = await two_turns(stub, **options)

    assert flag in first
    assert flag not in second
    assert "--resume=s-1" in second


def resumed(stub: StubCli, which: str, /, **options: object) -> ClaudeSession | Failed:
    frozen = freeze({**stub.options, **options})
    assert isinstance(frozen, FrozenDict)
    return ClaudeBackend().resume_session(which, frozen)


@pytest.mark.parametrize("option", [{"session_id": UUID}, {"continue_session": True}])
def test_a_resumed_session_cannot_be_another_one_too(
    stub: StubCli, option: dict[str, object]
) -> None:
    """One of the two would be forgotten without a word."""
    answer = resumed(stub, "s-0", **option)

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert (answer.reason["code"], [answer.reason["option"]]) == ("conflicting_options", [*option])
    assert not isinstance(resumed(stub, UUID, session_id=UUID), Failed)


async def test_a_fork_branches_off_once(stub: StubCli) -> None:
    """Every turn would otherwise begin a branch of its own."""
    session = resumed(stub, "s-0", fork_session=True)
    assert not isinstance(session, Failed)
    for _ in range(2):
        session = (await rehearse(ClaudeBackend(), session, "go")).session

    first, second = (run.argv for run in stub.runs)
    assert {"--resume=s-0", "--fork-session"} <= set(first)
    assert "--resume=s-1" in second
    assert "--fork-session" not in second


async def test_limits_without_a_flag_go_through_the_environment(stub: StubCli) -> None:
    """The program reads them there."""
    await two_turns(stub, max_output_tokens=100, max_retries=0)

    names = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_MAX_RETRIES"}
    assert all(names <= set(run.env) for run in stub.runs)


async def test_the_environment_is_inherited_changed_and_unset(
    stub: StubCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A key of another provider can be taken away from the program."""
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("TAKEN_AWAY", "1")
    key = tmp_path / "key"
    key.write_text("secret\n")
    stub.plays([INIT, RESULT])
    session = started(
        stub, env={**stub.env, "TAKEN_AWAY": False, "ADDED": "x"}, env_files={"KEY": str(key)}
    )
    await rehearse(ClaudeBackend(), session, "go")

    env = set(stub.runs[0].env)
    assert {"KEPT", "ADDED", "KEY", "PATH"} <= env
    assert "TAKEN_AWAY" not in env


async def test_the_program_runs_where_it_is_told(stub: StubCli, tmp_path: Path) -> None:
    """A session is found again only from the same directory."""
    place = tmp_path / "place"
    place.mkdir()
    await two_turns(stub, working_dir=str(place))

    assert [run.cwd for run in stub.runs] == [str(place)] * 2


@pytest.mark.parametrize(
    ("options", "code", "option"),
    [
        ({"permision_mode": "plan"}, "unknown_option", "permision_mode"),
        ({"permission_mode": "acceptEdits"}, "invalid_option", "permission_mode"),
        ({"effort": "enormous"}, "invalid_option", "effort"),
        ({"max_turns": 0}, "invalid_option", "max_turns"),
        ({"session_id": "not a uuid"}, "invalid_option", "session_id"),
        ({"working_dir": "/no/such/place"}, "invalid_option", "working_dir"),
        ({"mcp_config": '{"mcpServers": {}}'}, "invalid_option", "mcp_config"),
        ({"settings": '{"env": {}}'}, "invalid_option", "settings"),
        ({"json_schema": "text"}, "invalid_option", "json_schema"),
        ({"json_schema": {"a": b"bytes"}}, "invalid_option", "json_schema"),
        ({"env_files": {"KEY": "/no/such/file"}}, "invalid_option", "env_files"),
        (
            {"env": {"KEY": "k"}, "env_files": {"KEY": "/etc/hostname"}},
            "conflicting_options",
            "env_files",
        ),
        (
            {"env": {"KEY": None}, "env_files": {"KEY": "/etc/hostname"}},
            "conflicting_options",
            "env_files",
        ),
        ({"env_files": {"A=B": "/etc/hostname"}}, "invalid_option", "env_files"),
        ({"env_files": {"": "/etc/hostname"}}, "invalid_option", "env_files"),
        ({"env_files": {"A\0": "/etc/hostname"}}, "invalid_option", "env_files"),
        ({"env_files": {"A": ""}}, "invalid_option", "env_files"),
        ({"env": {"A=B": "x"}}, "invalid_option", "env"),
        ({"timeout_ms": 0}, "invalid_option", "timeout_ms"),
        ({"mode": "telepathy"}, "invalid_option", "mode"),
        ({"no_session_persistence": True}, "unsupported_option", "no_session_persistence"),
        ({"worktree": "x"}, "unsupported_option", "worktree"),
        ({"api_key": "sk-secret"}, "unsupported_option", "api_key"),
        (
            {"system_prompt": "a", "system_prompt_file": "/b"},
            "conflicting_options",
            "system_prompt_file",
        ),
        ({"hermetic": True, "setting_sources": ["user"]}, "conflicting_options", "setting_sources"),
        ({"session_id": UUID, "continue_session": True}, "conflicting_options", "continue_session"),
    ],
)
def test_a_bad_option_refuses_the_start_before_anything_runs(
    stub: StubCli, options: dict[str, object], code: str, option: str
) -> None:
    """A mistake must not cost a turn, and never be ignored."""
    assert refusal(stub, **options) == (code, option)
    assert "sk-secret" not in repr(start(stub, **options))
    assert stub.runs == []


def test_an_explicit_false_asks_for_nothing(stub: StubCli) -> None:
    """Profiles write switches out in full."""
    off = {option.name: False for option in DECLARED if isinstance(option, Unsupported)}

    assert isinstance(start(stub, **off), ClaudeSession)


@pytest.mark.parametrize("binary", [None, "/no/such/program"])
def test_a_program_that_is_nowhere_refuses_the_start(
    stub: StubCli, binary: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says where was looked."""
    monkeypatch.setattr("genagent_backends.programs.find_spec", lambda _name: None)
    answer = start(stub, binary=binary, env={"PATH": "/nowhere"})

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert answer.reason["code"] == "program_not_found"
    expected = "option binary" if binary else "pip install 'genagentd[claude-cli]'"
    assert expected in str(answer.reason["message"])
    assert "/no/such/program" not in repr(answer), "the value of an option may be secret"


def test_the_program_is_found_on_the_path_and_then_in_its_package(
    stub: StubCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has it installed should not have to say where."""
    package = tmp_path / "site" / "claude_agent_sdk"
    bundled = package / "_bundled" / "claude"
    bundled.parent.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is heavy, and must not be run')")
    bundled.write_text("")
    bundled.chmod(0o700)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    packaged = started(stub, binary=None, env={"PATH": "/nowhere"})
    on_path = tmp_path / "bin" / "claude"
    on_path.parent.mkdir()
    on_path.symlink_to(stub.path)
    named = started(stub, binary=None, env={"PATH": str(on_path.parent)})

    assert packaged.settings.setting.program == str(bundled)
    assert named.settings.setting.program == str(on_path)


@pytest.mark.parametrize("given", [{"binary": "./stub"}, {"binary": None, "on_path": "."}])
async def test_a_program_that_was_found_is_the_one_that_is_run(
    stub: StubCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str | None]
) -> None:
    """A relative path is meant from where the agent is, and not from where the program runs."""
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "claude").symlink_to(stub.path)
    monkeypatch.chdir(tmp_path)
    path = f"{given.get('on_path', '/nowhere')}:{os.environ['PATH']}"
    env = {**stub.env, "PATH": path}
    session = started(stub, binary=given["binary"], env=env, working_dir=str(place))
    done = await rehearse(ClaudeBackend(), session, "go")

    assert done.text == "done"
    assert stub.runs[0].cwd == str(place)


@pytest.mark.parametrize("mode", ["process", "duplex"])
async def test_a_directory_that_is_gone_is_named(stub: StubCli, tmp_path: Path, mode: str) -> None:
    """It was there at the start; that something is not found says too little."""
    place = tmp_path / "place"
    place.mkdir()
    session = started(stub, mode=mode, working_dir=str(place))
    place.rmdir()
    done = await rehearse(ClaudeBackend(), session, "go")

    assert done.terminal is not None
    failure = failure_of(done.terminal)
    assert isinstance(failure, BackendError)
    assert failure.kind == "not_started"
    assert failure.message.endswith(f"No such file or directory: {place}")


async def test_e094_nothing_secret_is_in_the_session_or_on_the_command_line(
    stub: StubCli, tmp_path: Path
) -> None:
    """Sessions are printed in errors; command lines are readable for every user."""
    key = tmp_path / "key"
    key.write_text("canary-file")
    session = started(
        stub,
        env={**stub.env, "TOKEN": "canary-env"},
        env_files={"KEY": str(key)},
        system_prompt="canary-system",
    )
    done = await rehearse(ClaudeBackend(), session, "canary-prompt")

    shown = repr(session) + repr(done.session) + repr(done.events)
    assert "canary" not in shown
    assert not [word for word in stub.runs[0].argv if "canary" in word and "system" not in word]


async def test_a_failed_or_killed_turn_can_be_resumed(stub: StubCli) -> None:
    """The id is kept from the first line that shows it, not from the last."""
    stub.plays([INIT, FAILED], [INIT, RESULT])
    first = await rehearse(ClaudeBackend(), started(stub), "go")
    await rehearse(ClaudeBackend(), first.session, "again")

    assert first.terminal is not None
    assert first.terminal.kind == "error"
    assert "--resume=s-1" in stub.runs[1].argv


@pytest.mark.parametrize("content", [b"caf\xe9", b"a\0b"])
async def test_a_secret_that_no_variable_can_hold_is_no_crash(
    stub: StubCli, tmp_path: Path, content: bytes
) -> None:
    """Not at the start, and not if the file changes later."""
    key = tmp_path / "key"
    key.write_bytes(content)
    assert refusal(stub, env_files={"KEY": str(key)}) == ("invalid_option", "env_files")

    key.write_text("good")
    session = started(stub, env_files={"KEY": str(key)})
    key.write_bytes(content)
    done = await rehearse(ClaudeBackend(), session, "go")

    assert done.terminal is not None
    failure = failure_of(done.terminal)
    assert isinstance(failure, BackendError)
    assert failure.kind == "not_started"


@pytest.mark.parametrize("session_id", ["", "a\0b", "a\nb", "x" * 1_025])
def test_an_id_that_no_program_can_be_asked_for_is_refused(stub: StubCli, session_id: str) -> None:
    """It would crash every turn, and look like a fault of the program."""
    answer = ClaudeBackend().resume_session(session_id, FrozenDict())

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert answer.reason["code"] == "invalid_session_id"


async def test_a_session_that_is_not_there_is_not_told_as_one(stub: StubCli) -> None:
    """Its id came back only because it was asked for."""
    missing: Step = {
        "line": {
            "type": "result",
            "subtype": "error_during_execution",
            "is_error": True,
            "session_id": "gone",
            "errors": ["No conversation found with session ID: gone"],
        }
    }
    stub.plays([missing, {"exit": 1}])
    frozen = freeze(stub.options)
    assert isinstance(frozen, FrozenDict)
    session, turn = ClaudeBackend().resume_session("gone", frozen), RehearsalTurn()
    done = await rehearse(ClaudeBackend(), session, "go", turn)

    assert done.terminal is not None
    failure = failure_of(done.terminal)
    assert isinstance(failure, BackendError)
    assert failure.kind == "conversation_lost"
    assert turn.checkpoints == []


async def test_a_reset_begins_a_new_conversation(stub: StubCli) -> None:
    """And keeps every option."""
    backend = ClaudeBackend()
    session = (await rehearse(backend, started(stub, model="large"), "go")).session
    await rehearse(backend, await backend.reset_session(session), "go")

    assert not any(word.startswith("--resume") for word in stub.runs[1].argv)
    assert "--model=large" in stub.runs[1].argv


@pytest.mark.parametrize("mode", ["process", "duplex"])
@pytest.mark.parametrize(
    "options", [{"session_id": UUID}, {"continue_session": True}, {"fork_session": True}]
)
async def test_a_reset_is_not_undone_by_what_chose_the_first_conversation(
    stub: StubCli, mode: str, options: dict[str, object]
) -> None:
    """The old conversation would go on, or its id would be refused as taken."""
    stub.plays([INIT, RESULT])
    backend, turn = ClaudeBackend(), RehearsalTurn(grace_ms=50)
    session = (await rehearse(backend, started(stub, mode=mode, **options), "one", turn)).session
    session = await backend.reset_session(session)
    session = (await rehearse(backend, session, "two", turn)).session
    await rehearse(backend, session, "three", turn)
    await backend.terminate_session(session)
    await turn.end_session()

    chosen = ("--resume", "--continue", "--session-id", "--fork-session")
    told = [[word for word in run.argv if word.startswith(chosen)] for run in stub.runs]
    assert told[0]
    assert told[1] == []
    assert all(words == ["--resume=s-1"] for words in told[2:])


# -- one process for every turn ----------------------------------------------------------------


class Talk:
    """A duplex session on a stub, turn by turn, with its process."""

    def __init__(self, stub: StubCli, *steps: Step, **options: object) -> None:
        stub.plays(list(steps), [HEAR, INIT, RESULT, HEAR, INIT, RESULT, HEAR])
        self.backend = ClaudeBackend()
        self.session = started(stub, mode="duplex", **options)
        self.turn = RehearsalTurn(grace_ms=50)
        self.events: list[Event] = []

    async def say(self, prompt: str) -> Rehearsed:
        self.events.clear()
        done = await rehearse(
            self.backend, self.session, prompt, self.turn, on_event=self.events.append
        )
        self.session = done.session
        return done

    async def interrupted(self, prompt: str, events: int = 1) -> None:
        running = asyncio.create_task(self.say(prompt))
        while len(self.events) < events:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    async def close(self) -> None:
        await self.backend.terminate_session(self.session)
        await self.turn.end_session()


async def test_duplex_serves_every_turn_with_one_process(stub: StubCli) -> None:
    """Later turns start at once; the session still knows its id."""
    talk = Talk(stub, HEAR, INIT, RESULT, HEAR, INIT, RESULT, HEAR)
    answers = [await talk.say("one"), await talk.say("two")]
    await talk.close()

    assert [answer.text for answer in answers] == ["done", "done"]
    [run] = stub.runs
    assert run.argv[3] == "--input-format=stream-json"
    assert [heard and heard["message"] for heard in run.heard] == [
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two"},
        None,
    ]
    assert [process.returncode for process in talk.turn.session_processes] == [0]


async def test_duplex_interrupts_by_a_message_and_keeps_the_process(stub: StubCli) -> None:
    """The turn is over when the program has answered with the result of what it had begun."""
    talk = Talk(stub, HEAR, INIT, {"until": "interrupt"}, SAY, FAILED, HEAR, INIT, RESULT, HEAR)
    await talk.interrupted("one")
    after = await talk.say("two")
    await talk.close()

    assert after.kinds == ["session", "result"]
    assert len(stub.runs) == 1


async def test_duplex_ends_a_process_that_does_not_answer_and_resumes_in_another(
    stub: StubCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E087: nothing of the old turn may be read in the next, so the process has to go."""
    monkeypatch.setattr(claude_duplex, "INTERRUPT_ANSWER_MS", 50)
    talk = Talk(stub, {"ignore": ["SIGINT", "SIGTERM"]}, HEAR, INIT, SILENCE)
    await talk.interrupted("one")
    talk.session = talk.backend.checkpoint_session(talk.session, talk.turn.checkpoints[0])
    after = await talk.say("two")
    await talk.close()

    assert after.kinds == ["session", "result"]
    assert "--resume=s-1" in stub.runs[1].argv
    assert [process.returncode for process in talk.turn.session_processes] == [-9, 0]


async def test_duplex_interrupted_before_the_prompt_was_said_ends_the_process(
    stub: StubCli,
) -> None:
    """Half a prompt is on its way; whatever came next would be glued to it."""
    talk = Talk(stub, INIT, SILENCE)
    await talk.interrupted("x" * 1_000_000)
    after = await talk.say("two")
    await talk.close()

    assert after.text == "done"
    assert len(stub.runs) == 2


@pytest.mark.parametrize("clock", ["idle_timeout_ms", "timeout_ms"])
async def test_duplex_clocks_interrupt_the_turn_and_name_themselves(
    stub: StubCli, clock: str
) -> None:
    """The process is innocent and stays."""
    talk = Talk(
        stub, HEAR, INIT, {"until": "interrupt"}, FAILED, HEAR, INIT, RESULT, HEAR, **{clock: 300}
    )
    done = await talk.say("one")
    after = await talk.say("two")
    await talk.close()

    assert done.terminal is not None
    failure = failure_of(done.terminal)
    assert isinstance(failure, BackendError)
    assert failure.kind == clock.removesuffix("_ms")
    assert after.text == "done"
    assert len(stub.runs) == 1


async def test_duplex_survives_the_death_of_its_process(stub: StubCli) -> None:
    """The turn fails with what is known, and the next one starts a process that resumes."""
    talk = Talk(stub, HEAR, INIT, RESULT, HEAR, {"complain": "out of memory"}, {"exit": 137})
    await talk.say("one")
    done = await talk.say("two")
    after = await talk.say("three")
    await talk.close()

    assert done.terminal is not None
    failure = failure_of(done.terminal)
    assert isinstance(failure, BackendError)
    assert failure.message == "out of memory"
    assert after.text == "done"
    assert "--resume=s-1" in stub.runs[1].argv


async def test_duplex_starts_another_process_for_another_key(stub: StubCli, tmp_path: Path) -> None:
    """A running program never hears of a new one; what it was given is shown to nobody."""
    key = tmp_path / "key"
    key.write_text("sk-canary-old-1")
    told: Step = {"line": {"type": "result", "is_error": True, "result": "bad sk-canary-old-1, no"}}
    talk = Talk(stub, HEAR, INIT, RESULT, HEAR, INIT, RESULT, HEAR, env_files={"KEY": str(key)})
    await talk.say("one")
    await talk.say("two")
    key.write_text("sk-canary-new-2")
    stub.plays([HEAR], [HEAR, INIT, told, HEAR, INIT, told, HEAR])
    failed = await talk.say("three")
    await talk.say("four")
    await talk.close()

    assert [len(run.heard) for run in stub.runs] == [3, 3]
    assert "--resume=s-1" in stub.runs[1].argv
    assert failed.terminal is not None
    failure = failure_of(failed.terminal)
    assert isinstance(failure, BackendError)
    assert failure.message == "bad (a key), no"
    assert [process.returncode for process in talk.turn.session_processes] == [0, 0]


async def test_duplex_answers_questions_that_nobody_can_answer(stub: StubCli) -> None:
    """The program would wait for ever for a permission."""
    question: Step = {
        "line": {
            "type": "control_request",
            "request_id": "q-1",
            "request": {"subtype": "can_use_tool"},
        }
    }
    talk = Talk(stub, HEAR, INIT, question, HEAR, RESULT, HEAR)
    done = await talk.say("one")
    await talk.close()

    assert done.text == "done"
    answer = stub.runs[0].heard[1]["response"]
    assert isinstance(answer, dict)
    assert (answer["subtype"], answer["request_id"]) == ("error", "q-1")


async def test_duplex_reports_the_cost_of_each_turn(stub: StubCli) -> None:
    """The program adds it up over the life of its process."""
    first: Step = {"line": {"type": "result", "result": "a", "total_cost_usd": 0.25}}
    second: Step = {"line": {"type": "result", "result": "b", "total_cost_usd": 0.75}}
    talk = Talk(stub, HEAR, INIT, first, HEAR, INIT, second, HEAR)
    costs = []
    for prompt in ("one", "two"):
        done = await talk.say(prompt)
        assert done.terminal is not None
        costs.append(done.terminal.data["cost_usd"])
    await talk.close()

    assert costs == [0.25, 0.5]


async def test_duplex_reset_ends_the_process_and_forgets_the_conversation(
    stub: StubCli,
) -> None:
    """The next prompt begins another."""
    talk = Talk(stub, HEAR, INIT, RESULT, HEAR)
    await talk.say("one")
    talk.session = await talk.backend.reset_session(talk.session)
    await talk.say("two")
    await talk.close()

    assert len(stub.runs) == 2
    assert not any(word.startswith("--resume") for word in stub.runs[1].argv)


async def test_duplex_that_ignores_the_end_of_its_input_is_ended(
    stub: StubCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminating a session may not hang."""
    monkeypatch.setattr(claude_duplex, "LEAVE_MS", 50)
    talk = Talk(stub, HEAR, INIT, RESULT, SILENCE)
    await talk.say("one")
    await talk.close()
    await talk.backend.terminate_session(talk.session)

    assert [process.returncode for process in talk.turn.session_processes] == [-2]


def test_the_recorded_prompt_message_is_what_the_program_takes() -> None:
    """One line, whatever the prompt holds."""
    message = claude_duplex._message(Prompt('two\nlines "quoted" ä', "p-1"))

    assert message.count(b"\n") == 1
    assert json.loads(message)["message"]["content"] == 'two\nlines "quoted" ä'
