"""What the system does not let a command have is said in words: what, where, and what to do."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from genagentd.cli import agents
from genagentd.cli.main import load_commands
from genagentd.client import core
from support.commands import Command, runner


@pytest.fixture
def genagent(capsysbinary: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `genagent` in the environment as it is."""
    load_commands()
    return runner(agents.app, "genagent", capsysbinary, monkeypatch)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the logs of the agent a, which has one."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))
    found = tmp_path / "logs" / "a"
    found.mkdir(parents=True)
    (found / "1.log").write_text("said\n")
    return found


def _refusing(call: Any, refused: Path, number: int) -> Any:
    """Return *call* as the system answers it where *refused* is not ours, or not there."""

    def refuse(path: Path, *given: Any, **named: Any) -> Any:
        if path == refused:
            raise OSError(number, os.strerror(number), str(path))
        return call(path, *given, **named)

    return refuse


@pytest.mark.parametrize("what", ["directory", "file", "file before"])
def test_logs_that_we_may_not_read_are_named(
    genagent: Command, logs: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An error number of Python's was printed, or that there is no such log."""
    path = {"directory": logs, "file": logs / "1.log", "file before": logs / "1.log.1"}[what]
    call = "iterdir" if what == "directory" else "open"
    monkeypatch.setattr(Path, call, _refusing(getattr(Path, call), path, errno.EACCES))

    told = genagent("logs", "a", "--json")

    assert (told.code, told.error) == (78, "bad_configuration")
    message = told.json["error"]["message"]
    assert message.startswith(f"{path} cannot be read: Permission denied; look there as its owner")


@pytest.mark.parametrize("call", ["stat", "open"])
def test_a_log_that_is_forgotten_while_it_is_looked_for_is_not_there(
    genagent: Command, logs: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The daemon keeps the logs of the latest lives only."""
    gone = _refusing(getattr(Path, call), logs / "1.log", errno.ENOENT)
    monkeypatch.setattr(Path, call, gone)

    told = genagent("logs", "a", "--json")

    assert (told.code, told.error) == (3, "not_found")


@pytest.mark.parametrize(
    ("verb", "option"), [("start", ["--config", "c.toml"]), ("install-service", ["--print"])]
)
def test_a_configuration_named_from_a_directory_that_is_gone_is_refused(
    genagentd: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    option: list[str],
) -> None:
    """Nobody could find it from elsewhere."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("GENAGENT_CONFIG", "c.toml")
    here, gone = Path.cwd(), tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        told = genagentd(verb, *option)
    finally:
        os.chdir(here)

    assert told.code == 78
    assert "the configuration c.toml is named from a directory that is gone" in told.err
    assert not (tmp_path / "run").exists()


def test_a_daemon_whose_interpreter_is_gone_is_not_started_and_says_so(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody removed the environment that this command was begun from."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    told = genagentd("start", "--json")

    assert (told.code, told.error) == (1, "start_failed")
    assert told.json["error"]["message"] == (
        "/nowhere/python cannot be run: No such file or directory"
    )


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "-n"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "-u"),
        (MemoryError(), "-v"),
    ],
    ids=["files", "processes", "memory"],
)
def test_a_command_that_may_have_no_more_of_something_says_so(
    genagentd: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    limit: str,
) -> None:
    """It is no fault of the program, as it was said to be."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))

    def no_more(*_: object) -> None:
        raise error

    monkeypatch.setattr(core, "core_state", no_more)

    told = genagentd("status", "--json")

    assert (told.code, told.error) == (1, "resource_exhausted")
    assert f"ulimit {limit}" in told.json["error"]["hint"]
