"""Where to look for what a daemon says that does not answer."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genagentd.cli.unanswered import _said_in, silent
from genagentd.daemon import lock
from genagentd.paths import Places, places

pytestmark = pytest.mark.process


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Places of which one is behind a link, as `/var/run` is in many systems."""
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("there")
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path / "there"))
    monkeypatch.setenv("GENAGENT_STATE_DIR", str(tmp_path / "link"))
    found = places()
    found.logs.mkdir()
    return found


@contextmanager
def speaking(stderr: int) -> Iterator[int]:
    """Run a process whose standard error that is; yield its pid."""
    with subprocess.Popen(["sleep", "3600"], stderr=stderr) as process:
        yield process.pid
        process.kill()


def test_it_is_where_the_daemon_speaks(where: Places, tmp_path: Path) -> None:
    """Whoever was sent to the file of a service found nothing there, and ended it."""
    ours, theirs = socket.socketpair()
    with ours, theirs, speaking(theirs.fileno()) as pid:
        assert _said_in(where, pid) == "its log with: journalctl --user -u genagentd"
    with speaking(subprocess.PIPE) as pid:
        assert _said_in(where, pid) == "its standard error"
    for name in (where.daemon_log, tmp_path / "another.log"):
        with name.open("ab") as log, speaking(log.fileno()) as pid:
            assert _said_in(where, pid) == str(name)
    assert _said_in(where, None) == str(where.daemon_log)


def test_what_an_earlier_daemon_logged_explains_nothing_of_one_that_logs_elsewhere(
    where: Places,
) -> None:
    """The last lines of a file are shown of a daemon that writes there alone."""
    where.daemon_log.write_text("of old\n")
    held = lock.take(where)
    assert held is not None
    try:
        assert silent(where, 0).details["log"] == []
    finally:
        held.release()
