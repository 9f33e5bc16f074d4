"""Recorded runs of the real programs, replayed by a stub: each becomes what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from genagent_backends.base import Backend, Failed
from genagent_backends.claude import ClaudeBackend
from genagent_backends.codex import CodexBackend
from genagent_backends.failures import failure_of
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, rehearse, settled
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import BackendError
from support.backend_cli import StubCli
from support.recordings import Recording, agrees, recordings

BACKENDS: dict[str, type[Backend]] = {"claude": ClaudeBackend, "codex": CodexBackend}


async def replayed(recording: Recording, stub: StubCli, **step: object) -> Rehearsed:
    """Play the recording once, as the program would."""
    stub.plays(
        [
            {"read_stdin": True},
            {"file": str(recording.path), **step},
            {"exit": recording.expected["exit_status"]},
        ]
    )
    backend, options = BACKENDS[recording.provider](), freeze(stub.options)
    assert isinstance(options, FrozenDict)
    session = await settled(backend.start_session(options))
    assert not isinstance(session, Failed), session
    return await rehearse(backend, session, "go", RehearsalTurn())


@pytest.mark.parametrize("recording", list(recordings()))
@pytest.mark.parametrize("cut", [None, 7], ids=["whole", "in-pieces"])
async def test_a_recording_becomes_the_events_it_should(
    recording: Recording, cut: int | None, tmp_path: Path
) -> None:
    """However the pipe cuts the bytes, kinds, text, usage, id and ending are right."""
    done = await replayed(recording, StubCli(tmp_path), **({} if cut is None else {"cut": cut}))
    expected, terminal = recording.expected, done.terminal

    assert done.kinds == recording.kinds
    assert [e.data["text"] for e in done.events if e.kind == "text"] == recording.texts
    assert done.usage == expected["usage"]
    assert terminal is not None
    assert terminal.data.get("session_id") == expected["session_id"]
    assert terminal.data.get("model") == expected["model"]
    assert done.text == (expected["final_text"] if terminal.kind == "result" else "")


@pytest.mark.parametrize("recording", list(recordings()))
async def test_a_recording_ends_as_it_should(recording: Recording, tmp_path: Path) -> None:
    """Success and failure are told apart by what the program says, not by its exit status."""
    done = await replayed(recording, StubCli(tmp_path))
    expected, terminal = recording.expected, done.terminal

    assert terminal is not None
    assert terminal.kind == expected["terminal"]
    if terminal.kind == "result":
        told = expected.get("result", FrozenDict())
        assert isinstance(told, FrozenDict)
        assert {name: terminal.data.get(name) for name in told} == told
        assert terminal.data.get("usage_total") == expected.get("usage_total")
        return
    agrees(failure_of(terminal), recording)


@pytest.mark.parametrize("recording", list(recordings()))
async def test_a_recording_without_its_end_still_ends_once(
    recording: Recording, tmp_path: Path
) -> None:
    """A killed program leaves half a line; the turn ends in one error that says so."""
    lines = recording.path.read_bytes().splitlines(keepends=True)
    ending = "turn." if recording.provider == "codex" else '"type":"result"'
    kept = b"".join(line for line in lines if ending.encode() not in line[:200] + line[-2000:])
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(kept + lines[-1][: len(lines[-1]) // 2])
    done = await replayed(Recording(recording.provider, cut, recording.expected), StubCli(tmp_path))

    assert [event.kind for event in done.events if event.terminal] == ["error"]
    failure = failure_of(done.events[-1])
    assert isinstance(failure, BackendError)
    assert not failure.retryable
