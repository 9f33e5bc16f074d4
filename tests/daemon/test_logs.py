"""What an agent prints is kept within bounds, whatever becomes of the file meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from genagentd.daemon import logs
from genagentd.daemon.logs import Log
from genagentd.paths import make_private


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
    for number in range(logs.MAX_LIVES + 3):
        (tmp_path / f"{number}.log").touch()
    lstat, unlink = Path.lstat, Path.unlink

    def looked_at(log: Path) -> os.stat_result:
        if log.name == "0.log":
            unlink(log, missing_ok=True)
        return lstat(log)

    def removed(log: Path, missing_ok: bool = False) -> None:
        unlink(log, missing_ok=True)
        unlink(log, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "lstat", looked_at)
    monkeypatch.setattr(Path, "unlink", removed)
    log = Log(tmp_path / "new.log")
    log.handed_over()
    log.close()

    assert log.path.exists()
    assert len(list(tmp_path.glob("*.log"))) == logs.MAX_LIVES
