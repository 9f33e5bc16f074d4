"""What an agent prints is kept within bounds, whatever becomes of the file meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from genagentd.daemon import logs
from genagentd.daemon.logs import Log


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
