"""What an agent prints is kept within bounds, whatever becomes of the file meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagentd.daemon import logs
from genagentd.daemon.logs import Log
from genagentd.paths import make_private
from support.full_disk import at_most

_BOOT = "0123456789abcdef"


@pytest.mark.parametrize("removed", ["nothing", "file", "directory"])
async def test_a_log_goes_on_whatever_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """At its size it moves aside what is there, and goes on in a new file in any case."""
    monkeypatch.setattr(logs, "MAX_BYTES", 100)
    log = Log(tmp_path / "a" / "x.log")
    os.write(log.write_fd, b"a" * 60)
    assert log.has_lines()
    if removed == "file":
        log.path.unlink()
    elif removed == "directory":
        shutil.rmtree(log.path.parent)

    for _ in range(3):
        os.write(log.write_fd, b"b" * 60)
        assert log.has_lines()

    log.handed_over()
    log.close()
    assert log.path.read_bytes() == b"b" * 60
    assert log.path.with_suffix(".log.1").read_bytes() == b"b" * 60


@pytest.mark.parametrize(
    ("printed", "kept"), [(b"", b""), (b"a\n", b"a\n"), (b"cut o", b"cut o\n")]
)
async def test_the_last_line_stands_alone_and_is_nothing_that_was_printed(
    tmp_path: Path, printed: bytes, kept: bytes
) -> None:
    """Whoever was killed in the middle of a line may have said nothing else."""
    log = Log(tmp_path / "a" / "x.log")
    os.write(log.write_fd, printed)
    log.handed_over()

    log.close("agent.down reason=signal:9\n")

    assert log.path.read_bytes() == kept + b"agent.down reason=signal:9\n"
    assert log.has_lines() is bool(printed)


async def test_a_directory_of_logs_that_was_removed_is_made_anew_as_private_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next daemon refuses one that others may look into."""
    monkeypatch.setattr(logs, "MAX_BYTES", 1)
    log = Log(tmp_path / "logs" / "a" / "x.log")
    make_private(tmp_path / "logs")

    shutil.rmtree(tmp_path / "logs")
    os.write(log.write_fd, b"more than fits")
    log.handed_over()
    log.close()

    make_private(tmp_path / "logs")
    make_private(tmp_path / "logs" / "a")


async def test_a_start_outlives_whoever_tidies_up_the_logs_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was listed may be gone when it is looked at, or when it is removed."""
    for number in range(1, logs.MAX_LIVES + 4):
        (tmp_path / f"{_BOOT}-{number}.log").touch()
    stat, unlink = os.stat, os.unlink

    def looked_at(path: Any, **more: Any) -> os.stat_result:
        if path == f"{_BOOT}-1.log":
            unlink(tmp_path / path)
        return stat(path, **more)

    def removed(path: Any, **more: Any) -> None:
        (tmp_path / path).exists() and unlink(tmp_path / path)
        unlink(path, **more)

    monkeypatch.setattr(os, "stat", looked_at)
    monkeypatch.setattr(os, "unlink", removed)
    log = Log(tmp_path / f"{_BOOT}-99.log")
    log.handed_over()
    log.close()

    assert log.path.exists()
    assert len(list(tmp_path.glob("*.log"))) == logs.MAX_LIVES


async def test_of_old_logs_only_those_of_incarnations_are_forgotten(tmp_path: Path) -> None:
    """Whatever else somebody keeps there is theirs, and counts for nothing."""
    kept = {"notes.log", f"{_BOOT}-1.txt", f"{_BOOT}-1.log.gz"}
    for name in kept:
        (tmp_path / name).touch()
    for number in range(1, logs.MAX_LIVES + 4):
        (tmp_path / f"{_BOOT}-{number}.log").touch()
        (tmp_path / f"{_BOOT}-{number}.log.1").touch()

    log = Log(tmp_path / f"{_BOOT}-99.log")
    log.handed_over()
    log.close()

    left = {path.name for path in tmp_path.iterdir()}
    assert kept <= left
    lives = left - kept
    assert len([name for name in lives if name.endswith(".log")]) == logs.MAX_LIVES
    assert len([name for name in lives if name.endswith(".1")]) == logs.MAX_LIVES - 1


async def test_what_a_full_disk_did_not_take_is_told_and_nothing_is_glued_to_what_it_cut(
    tmp_path: Path,
) -> None:
    """Two lines would be one otherwise, and nobody would know of those between them."""
    log = Log(tmp_path / "a" / "x.log")
    with at_most(10):
        for _ in range(3):
            os.write(log.write_fd, b"printed\n")
            log.has_lines()
    os.write(log.write_fd, b"after\n")
    log.handed_over()
    log.close("agent.down\n")

    first, cut, lost, *rest = log.path.read_text().splitlines()
    assert (first, cut, rest) == ("printed", "pr", ["after", "agent.down"])
    assert lost.endswith("output.lost bytes=14")


async def test_what_was_lost_at_the_very_end_is_told_before_the_last_line(tmp_path: Path) -> None:
    """A disk may have room again for the end alone."""
    log = Log(tmp_path / "a" / "x.log")
    with at_most(4):
        os.write(log.write_fd, b"printed\n")
        log.has_lines()
    log.handed_over()
    log.close("agent.down\n")

    cut, lost, last = log.path.read_text().splitlines()
    assert (cut, last) == ("prin", "agent.down")
    assert lost.endswith("output.lost bytes=4")


async def test_a_log_that_cannot_be_moved_aside_goes_on_with_what_is_printed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stopped at its size, and how the agent ended was in no log."""
    monkeypatch.setattr(logs, "MAX_BYTES", 100)
    log = Log(tmp_path / "a" / "x.log")
    (log.path.with_suffix(".log.1") / "full").mkdir(parents=True)

    for number in range(3):
        os.write(log.write_fd, b"%d" % number * 59 + b"\n")
        assert log.has_lines()
    log.handed_over()
    log.close()

    lost, kept = log.path.read_text().splitlines()
    assert "output.lost bytes=" in lost
    assert kept == "2" * 59


@given(
    st.lists(st.tuples(st.integers(1, 60), st.one_of(st.none(), st.integers(0, 300))), max_size=30)
)
async def test_every_byte_is_written_or_counted(printed: list[tuple[int, int | None]]) -> None:
    """However often the disk is full meanwhile, and wherever it cuts."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory) / "a" / "x.log")
        for size, room in printed:
            with contextlib.nullcontext() if room is None else at_most(room):
                os.write(log.write_fd, b"x" * size + b"\n")
                log.has_lines()
        log.handed_over()
        log.close()
        written = log.path.read_text().split("\n")

    own = [line for line in written if re.search(r"output\.lost bytes=\d+$", line)]
    lost = sum(int(line.rpartition("=")[2]) for line in own)
    xs = sum(len(line) for line in written if line.strip("x") == "")
    assert sum(size for size, _ in printed) - lost <= xs <= sum(size for size, _ in printed)
    assert all(line.strip("x") == "" or line in own or _cut_off(line) for line in written)


def _cut_off(line: str) -> bool:
    """Whether a line of ours was cut by the disk; what follows it is on a line of its own."""
    return line[:1].isdigit() and "x" not in line
