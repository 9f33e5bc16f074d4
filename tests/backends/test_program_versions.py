"""The version of a provider's program: asked once per life of an agent, never in a turn's way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from genagent_backends import program_versions
from genagent_backends.base import Failed
from genagent_backends.claude import ClaudeBackend
from genagent_backends.codex import CodexBackend
from genagent_backends.rehearsal import RehearsalTurn, rehearse
from genagent_protocol.plain import FrozenDict, freeze
from support.backend_cli import Step, StubCli

CLAUDE_TURN: list[Step] = [
    {"line": {"type": "system", "subtype": "init", "session_id": "s-1"}},
    {"line": {"type": "result", "result": "done", "session_id": "s-1"}},
]
CODEX_TURN: list[Step] = [
    {"line": {"type": "thread.started", "thread_id": "t-1"}},
    {"line": {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}}},
    {"line": {"type": "turn.completed", "usage": {}}},
]
#: It never answers, and nothing but the last signal ends it.
DEAF = "trap '' INT TERM; sleep 600"
HOUR_MS = 3_600_000
TESTED = "tested=2.1.197-2.1.332"


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubCli]:
    made = StubCli(tmp_path)
    made.plays(CLAUDE_TURN)
    yield made
    made.end_helpers()


def opened(backend: ClaudeBackend | CodexBackend, stub: StubCli, **more: object) -> object:
    options = freeze({**stub.options, **more})
    assert isinstance(options, FrozenDict)
    session = backend.start_session(options)
    assert not isinstance(session, Failed), session
    return session


@pytest.mark.parametrize("options", [{}, {"mode": "duplex"}], ids=["per turn", "duplex"])
async def test_it_is_logged_once_for_all_turns(
    stub: StubCli, capsys: pytest.CaptureFixture[str], options: dict[str, str]
) -> None:
    hear: Step = {"hear": True}
    stub.plays([hear, *CLAUDE_TURN, hear, *CLAUDE_TURN] if options else CLAUDE_TURN)
    backend, turn = ClaudeBackend(), RehearsalTurn()
    session = opened(backend, stub, **options)
    for _ in range(2):
        session = (await rehearse(backend, session, "go", turn=turn)).session
    await turn.end_session()

    assert capsys.readouterr().err == f"program.version program=claude version=2.1.332 {TESTED}\n"


async def test_codex_is_asked_too(stub: StubCli, capsys: pytest.CaptureFixture[str]) -> None:
    stub.plays(CODEX_TURN)
    stub.answers_version("echo codex-cli 0.163.0")
    backend = CodexBackend()
    await rehearse(backend, opened(backend, stub), "go")

    said = "program.version program=codex version=0.163.0 tested=0.163.0-0.171.0\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("echo '2.1.197 (Claude Code)'", "program.version program=claude version=2.1.197"),
        ("echo 2.1.196", "program.untested program=claude version=2.1.196"),
        ("echo 2.1.333", "program.untested program=claude version=2.1.333"),
        ("echo 10.0.0", "program.untested program=claude version=10.0.0"),
        ("echo none of your business", "program.untested program=claude version=unknown"),
        ("exit 2", "program.untested program=claude version=unknown"),
        ("exec 1>&-; sleep 0.1; exit 2", "program.untested program=claude version=unknown"),
        ("head -c 1000000 /dev/zero", "program.untested program=claude version=unknown"),
        ("sleep 600", "program.untested program=claude version=unknown"),
        (DEAF, "program.untested program=claude version=unknown"),
    ],
)
async def test_whatever_the_program_answers_the_turn_is_the_same_and_one_line_is_written(
    stub: StubCli,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    said: str,
) -> None:
    """No turn waits for one that does not answer: it gets no grace."""
    stub.answers_version(answer)
    backend, turn = ClaudeBackend(), RehearsalTurn(grace_ms=HOUR_MS)
    session = opened(backend, stub)
    for _ in range(program_versions.TURNS + 1):
        done = await rehearse(backend, session, "go", turn=turn)
        session = done.session
        assert [event.kind for event in done.events][-1] == "result"

    assert capsys.readouterr().err == f"{said} {TESTED}\n"
    assert all(process.returncode is not None for process in turn.processes)


async def test_a_program_that_does_not_answer_in_a_long_turn_is_given_up(
    stub: StubCli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_versions, "PATIENCE_MS", 1)
    stub.answers_version(DEAF)
    backend, turn = ClaudeBackend(), RehearsalTurn(grace_ms=HOUR_MS)
    session = opened(backend, stub)
    for _ in range(program_versions.TURNS):
        session = (await rehearse(backend, session, "go", turn=turn)).session

    said = f"program.untested program=claude version=unknown {TESTED}\n"
    assert capsys.readouterr().err == said


async def test_a_turn_that_is_stopped_does_not_wait_for_the_version(stub: StubCli) -> None:
    stub.plays([CLAUDE_TURN[0], {"silence": True}])
    stub.answers_version(DEAF)
    backend, turn = ClaudeBackend(), RehearsalTurn(grace_ms=HOUR_MS)
    begun = asyncio.Event()

    async def read() -> None:
        session = opened(backend, stub)
        await rehearse(backend, session, "go", turn=turn, on_event=lambda _: begun.set())

    reading = asyncio.create_task(read())
    await begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert [process.returncode is not None for process in turn.processes] == [True, True]
    await turn.end()
