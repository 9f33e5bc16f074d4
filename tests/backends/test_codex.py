"""The codex backend: two command lines for every option, threads, and running totals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from genagent_backends.base import Failed
from genagent_backends.codex import CodexBackend, CodexSession
from genagent_backends.codex_options import DECLARED
from genagent_backends.failures import failure_of
from genagent_backends.options import Unsupported
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, rehearse
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import BackendError
from support.backend_cli import Step, StubCli

THREAD: Step = {"line": {"type": "thread.started", "thread_id": "t-1"}}


def completed(total: int) -> Step:
    return {"line": {"type": "turn.completed", "usage": {"input_tokens": total}}}


FAILED: Step = {"line": {"type": "turn.failed", "error": {"message": "no"}}}
SILENT: Step = {"line": {"type": "turn.completed"}}


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubCli]:
    made = StubCli(tmp_path)
    made.plays([THREAD, completed(10)])
    yield made
    made.end_helpers()


def options_of(stub: StubCli, **options: object) -> FrozenDict:
    frozen = freeze({**stub.options, **options})
    assert isinstance(frozen, FrozenDict)
    return frozen


def started(stub: StubCli, **options: object) -> CodexSession:
    session = CodexBackend().start_session(options_of(stub, **options))
    assert not isinstance(session, Failed), session
    return session


async def turns(stub: StubCli, session: CodexSession, count: int) -> list[Rehearsed]:
    done: list[Rehearsed] = []
    for _ in range(count):
        done.append(await rehearse(CodexBackend(), session, "go"))
        session = done[-1].session
    return done


@pytest.mark.parametrize(
    ("option", "value", "fresh", "resumed"),
    [
        ("model", "large", ["--model=large"], ["--model=large"]),
        ("sandbox", "read_only", ["--sandbox=read-only"], ['--config=sandbox_mode="read-only"']),
        (
            "approval_policy",
            "on_request",
            ['--config=approval_policy="on-request"'],
            ['--config=approval_policy="on-request"'],
        ),
        (
            "full_auto",
            True,
            ["--sandbox=workspace-write"],
            ['--config=sandbox_mode="workspace-write"'],
        ),
        (
            "bypass",
            True,
            ["--dangerously-bypass-approvals-and-sandbox"],
            ["--dangerously-bypass-approvals-and-sandbox"],
        ),
        ("skip_git_repo_check", True, ["--skip-git-repo-check"], ["--skip-git-repo-check"]),
        ("ignore_user_config", True, ["--ignore-user-config"], ["--ignore-user-config"]),
        (
            "config_overrides",
            {"a.b": "x", "c": [1, True, 0.5]},
            ['--config=a.b="x"', "--config=c=[1, true, 0.5]"],
            ['--config=a.b="x"', "--config=c=[1, true, 0.5]"],
        ),
        ("enabled_features", ["x"], ["--enable=x"], ["--enable=x"]),
        ("disabled_features", "y", ["--disable=y"], ["--disable=y"]),
        ("images", ["/a.png", "/b.png"], *[["--image=/a.png", "--image=/b.png"]] * 2),
        ("output_schema", "/s.json", ["--output-schema=/s.json"], ["--output-schema=/s.json"]),
    ],
)
async def test_every_option_is_kept_when_the_thread_is_resumed(
    stub: StubCli, option: str, value: object, fresh: list[str], resumed: list[str]
) -> None:
    """A sandbox that is lost on the second turn is no sandbox."""
    await turns(stub, started(stub, **{option: value}), 2)
    first, second = (run.argv for run in stub.runs)

    assert first == ["exec", *fresh, "--json", "-"]
    assert second == ["exec", "resume", *resumed, "--json", "--", "t-1", "-"]


async def test_the_profile_is_given_before_the_subcommand_that_does_not_know_it(
    stub: StubCli,
) -> None:
    """It was gone from the second turn on, and the model with it."""
    await turns(stub, started(stub, profile="work"), 2)
    first, second = (run.argv for run in stub.runs)

    assert first == ["exec", "--profile=work", "--json", "-"]
    assert second == ["exec", "--profile=work", "resume", "--json", "--", "t-1", "-"]


async def test_safety_overrides_come_after_the_users_own(stub: StubCli) -> None:
    """The last one wins in the program."""
    session = started(
        stub,
        config_overrides={"sandbox_mode": "danger-full-access"},
        sandbox="read_only",
        approval_policy="never",
    )
    await turns(stub, session, 2)

    overrides = [word for word in stub.runs[1].argv if word.startswith("--config")]
    assert overrides == [
        '--config=sandbox_mode="danger-full-access"',
        '--config=sandbox_mode="read-only"',
        '--config=approval_policy="never"',
    ]


@pytest.mark.parametrize("prompt", ["--help", "-", "x" * 200_000])
async def test_the_prompt_is_on_standard_input(stub: StubCli, prompt: str) -> None:
    """On the command line one that begins with a dash, or is long, would break it."""
    stub.plays([{"read_stdin": True}, THREAD, completed(1)])
    session = started(stub)
    for _ in range(2):
        session = (await rehearse(CodexBackend(), session, prompt)).session

    assert [run.stdin for run in stub.runs] == [prompt] * 2


@pytest.mark.parametrize(
    ("options", "code", "option"),
    [
        ({"sandbx": "read_only"}, "unknown_option", "sandbx"),
        ({"sandbox": "none"}, "invalid_option", "sandbox"),
        ({"approval_policy": "untrusted"}, "invalid_option", "approval_policy"),
        ({"images": ["/a,b.png"]}, "invalid_option", "images"),
        ({"config_overrides": {"a b": 1}}, "invalid_option", "config_overrides"),
        ({"config_overrides": {"a": {}}}, "invalid_option", "config_overrides"),
        ({"cd": "/tmp"}, "unsupported_option", "cd"),
        ({"add_dirs": ["/tmp"]}, "unsupported_option", "add_dirs"),
        ({"search": True}, "unsupported_option", "search"),
        ({"ephemeral": True}, "unsupported_option", "ephemeral"),
        ({"system_prompt": "x"}, "unsupported_option", "system_prompt"),
        ({"max_output_tokens": 5}, "unsupported_option", "max_output_tokens"),
        ({"bypass": True, "sandbox": "read_only"}, "conflicting_options", "bypass"),
        ({"full_auto": True, "sandbox": "read_only"}, "conflicting_options", "full_auto"),
    ],
)
def test_a_bad_option_refuses_the_start(
    stub: StubCli, options: dict[str, object], code: str, option: str
) -> None:
    """What the thread cannot keep must be said before the first turn."""
    answer = CodexBackend().start_session(options_of(stub, **options))

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert (answer.reason["code"], answer.reason["option"]) == (code, option)


def test_an_explicit_false_asks_for_nothing(stub: StubCli) -> None:
    """Profiles write switches out in full."""
    off = {option.name: False for option in DECLARED if isinstance(option, Unsupported)}

    assert started(stub, **off).thread_id is None


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_two_directories_conflict(stub: StubCli, tmp_path: Path) -> None:
    """`cwd` is an old name of `working_dir`."""
    answer = CodexBackend().start_session(options_of(stub, cwd="/tmp", working_dir=str(tmp_path)))

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert answer.reason["code"] == "conflicting_options"


@pytest.mark.parametrize(
    ("runs", "used"),
    [
        ([[THREAD, completed(10)], [THREAD, completed(25)], [THREAD, completed(25)]], [10, 15, 0]),
        ([[THREAD, completed(10)], [THREAD, FAILED], [THREAD, completed(40)]], [10, None, 30]),
        ([[THREAD, FAILED], [THREAD, completed(10)], [THREAD, completed(11)]], [None, 10, 1]),
        ([[THREAD, completed(10)], [THREAD, SILENT], [THREAD, completed(40)]], [10, None, None]),
        ([[THREAD, completed(10)], [THREAD, completed(4)], [THREAD, completed(5)]], [10, None, 1]),
    ],
    ids=["growing", "failed-between", "failed-first", "silent-between", "began-anew"],
)
async def test_usage_is_counted_per_turn(
    stub: StubCli, runs: list[list[Step]], used: list[int | None]
) -> None:
    """The thread's total would be counted again and again."""
    stub.plays(*runs)
    done = await turns(stub, started(stub), 3)

    assert [turn.usage and turn.usage["input_tokens"] for turn in done] == used


async def test_a_thread_from_elsewhere_has_no_known_past(stub: StubCli) -> None:
    """Its first turn would report everything that was used before."""
    stub.plays([THREAD, completed(1_000)], [THREAD, completed(1_010)])
    session = CodexBackend().resume_session("t-1", options_of(stub))
    assert not isinstance(session, Failed)
    first, second = await turns(stub, session, 2)

    assert "t-1" in stub.runs[0].argv
    assert first.usage is None
    assert second.usage == {"input_tokens": 10}


async def test_a_thread_that_silently_became_another_is_a_lost_conversation(stub: StubCli) -> None:
    """For a mistyped id the program begins a new thread; it must not go on working in it."""
    stub.plays([THREAD, {"silence": True}])
    session = CodexBackend().resume_session("t-2", options_of(stub))
    assert not isinstance(session, Failed)
    turn = RehearsalTurn()
    done = await rehearse(CodexBackend(), session, "where were we?", turn)

    assert done.terminal is not None
    failure = failure_of(done.terminal)
    assert isinstance(failure, BackendError)
    assert (failure.kind, failure.retryable) == ("conversation_lost", False)
    assert done.session.thread_id == "t-2"
    assert turn.checkpoints == []
    assert turn.processes[0].returncode == -2


async def test_an_id_is_the_same_in_capitals(stub: StubCli) -> None:
    """The program writes it in small letters, and finds it all the same."""
    session = CodexBackend().resume_session("T-1", options_of(stub))
    assert not isinstance(session, Failed)
    [done] = await turns(stub, session, 1)

    assert done.kinds == ["result"]


async def test_a_reset_begins_a_new_thread_that_counts_from_zero(stub: StubCli) -> None:
    """And a thread's id never outlives it."""
    [done] = await turns(stub, started(stub), 1)
    fresh = CodexBackend().reset_session(done.session)
    [again] = await turns(stub, fresh, 1)

    assert stub.runs[1].argv[:2] == ["exec", "--json"]
    assert again.usage == {"input_tokens": 10}


async def test_printing_a_session_shows_no_values(stub: StubCli) -> None:
    """E094: it may be in an error message."""
    session = started(stub, env={**stub.env, "KEY": "canary"}, model="large")

    assert "canary" not in repr(session)


async def test_a_key_that_is_repeated_before_the_end_is_in_no_event(
    stub: StubCli, tmp_path: Path
) -> None:
    """The program tells of an error in an item, too; and standard error is kept from anywhere."""
    key = "sk-canary-0123456789"
    (tmp_path / "key").write_text(key)
    said = f"401 wrong key: {key}"
    item = {"id": "i", "type": "error", "message": said}
    stub.plays(
        [
            THREAD,
            {"line": {"type": "item.completed", "item": item}},
            {"line": {"type": "turn.failed", "error": {"message": said}}},
        ],
        # Standard error is kept from within the key on.
        [{"complain": key + "." * (8_192 - len(key) + 3)}, {"exit": 1}],
    )
    done = await turns(stub, started(stub, env_files={"CODEX_API_KEY": str(tmp_path / "key")}), 2)

    assert [turn.kinds for turn in done] == [["tool_result", "error"], ["error"]]
    assert key[8:] not in repr([turn.events for turn in done])
