"""S269: hooks in their order, one commit a turn, and no summary of what failed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from examples.patterns.company import Voice, Watch, shown
from examples.patterns.workspace import begin, git
from genagentd import Client, StartFailed
from genagentd.testing import Gates, Heard, breaks, echoes, holds, says, scripted

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


def _log(repository: Path) -> list[str]:
    return asyncio.run(git(repository, "log", "--format=%s", "--reverse")).splitlines()


def test_s269_every_turn_is_a_commit_and_knows_the_ones_before(
    genagent_client: Client, watch: Watch, tmp_path: Path
) -> None:
    """The gate adds what is there, the hook after the turn writes and commits."""
    voice = Voice("scripted", scripted(says("first"), echoes(), says("third")))
    begin(genagent_client, "w", "begin", voice, root=tmp_path, run="r1", turns=3)

    watch.until_halted(["w"])

    repository = tmp_path / "r1"
    assert _log(repository) == ["Begin", "Turn 1", "Turn 2", "Turn 3"]
    written = [(repository / f"{n:03}.md").read_text() for n in (1, 2, 3)]
    assert written[1] == "Add one more sentence.\nSo far:\nfirst\n"
    assert (repository / "SUMMARY").read_text() == "3 turns, 3 commits\n"
    assert len(shown(genagent_client, "w")["commits"]) == 3


def test_a_failed_commit_halts_at_the_next_gate_without_a_summary(
    genagent_client: Client, watch: Watch, tmp_path: Path, genagent_gates: Gates
) -> None:
    """`post_turn` cannot change what follows; the gate can."""
    script = scripted(holds("turn", "first"), says("second"), gates=genagent_gates)
    voice = Voice("scripted", script)
    begin(genagent_client, "w", "begin", voice, root=tmp_path, run="r1", turns=3)
    genagent_gates.wait_blocked("turn")
    # A lock that somebody forgot: git refuses to add.
    (tmp_path / "r1/.git/index.lock").touch()
    genagent_gates.release("turn")

    watch.until_halted(["w"])

    state = shown(genagent_client, "w")
    assert state["failure"].startswith("git add:")
    assert (len(state["written"]), state["commits"]) == (1, ())
    assert not (tmp_path / "r1/SUMMARY").exists()


def test_a_failed_turn_leaves_no_commit_and_no_summary(
    genagent_client: Client, watch: Watch, tmp_path: Path
) -> None:
    """There is nothing to write down."""
    voice = Voice("scripted", scripted(says("first"), breaks("away")))
    begin(genagent_client, "w", "begin", voice, root=tmp_path, run="r1", turns=3)

    watch.until_halted(["w"])

    assert _log(tmp_path / "r1") == ["Begin", "Turn 1"]
    assert not (tmp_path / "r1/SUMMARY").exists()


def test_a_setup_that_fails_is_the_reason_of_the_end(
    genagent_client: Client, genagent_heard: Heard, tmp_path: Path
) -> None:
    """An id that was used is never used again, and what is there stays as it is."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used/precious").touch()
    voice = Voice("scripted", scripted(says("first")))
    handle = begin(genagent_client, "w", "begin", voice, root=tmp_path, run="used", turns=1)

    reason = genagent_heard.down(handle).reason

    if reason.text != "noproc":  # it may have ended before it was watched
        assert reason.text == "pre_run_failed"
        assert "used" in str(reason.detail)
    assert os.listdir(tmp_path / "used") == ["precious"]


@pytest.mark.parametrize("run", ["../out", "a/b", "", ".git", "a" * 65, "-rf", "a\n"])
def test_a_hostile_id_is_no_path(genagent_client: Client, tmp_path: Path, run: str) -> None:
    """It is refused before any path is built."""
    with pytest.raises(StartFailed) as refused:
        begin(genagent_client, "w", "x", Voice("echo"), root=tmp_path, run=run, turns=1)

    assert refused.value.reason.detail == "bad_run_id"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_no_summary_when_it_was_ended(
    genagent_client: Client, tmp_path: Path, genagent_gates: Gates, end: str
) -> None:
    """`post_run` belongs to a halt."""
    voice = Voice("scripted", scripted(holds("turn", "first"), gates=genagent_gates))
    handle = begin(genagent_client, "w", "begin", voice, root=tmp_path, run="r1", turns=1)
    genagent_gates.wait_blocked("turn")

    if end == "kill":
        os.kill(handle.pid, signal.SIGKILL)
    else:
        genagent_client.stop("w")
    Heard(genagent_client).down(handle)

    assert not (tmp_path / "r1/SUMMARY").exists()
