"""The unit says what the daemon needs, and a person's changes are not overwritten."""

from __future__ import annotations

import configparser
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from genagentd.cli import service_unit
from genagentd.cli.exits import Failure
from support.commands import Command


def parsed() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    parser.read_string(service_unit.unit())
    return parser["Service"]


def test_the_unit_keeps_the_conventions() -> None:
    """Readiness and watchdog from the daemon itself; TERM to it, KILL to what is left (E036)."""
    service = parsed()

    assert service["ExecStart"] == f"{sys.executable} -P -m genagentd run --log-format json"
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > 10
    assert service["RuntimeDirectoryMode"] == "0700"
    assert service["RestartPreventExitStatus"] == "4 78"
    assert service["SyslogIdentifier"] == "genagentd"


def test_agents_make_files_as_they_do_where_the_daemon_was_begun_by_hand() -> None:
    """Our own are private for any umask; an agent's files are for whoever works beside it."""
    assert "UMask" not in parsed()


def test_the_end_of_the_service_leaves_the_directory_of_a_daemon_begun_by_hand() -> None:
    """It ends with 4 where one runs already, and socket and lock of that one were removed then."""
    assert parsed()["RuntimeDirectory"] == "genagentd"
    assert parsed()["RuntimeDirectoryPreserve"] == "yes"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/a/b", "/a/b"),
        ("/a=b", "/a=b"),
        ("/a b/c", '/usr/bin/env "/a b/c"'),
        ("/50%$", '/usr/bin/env "/50%%$$"'),
        ("/it's", '/usr/bin/env "/it\'s"'),
        ('/a"\\\t', '/usr/bin/env "/a\\"\\\\\\t"'),
    ],
)
def test_the_interpreter_is_one_word(path: str, words: str) -> None:
    """Blanks, quotes and specifiers of systemd are kept from their meaning."""
    assert service_unit._program(path) == words


@pytest.mark.parametrize("path", ["/a\nb", "/a=b c"])
def test_an_interpreter_that_no_line_can_hold_is_refused(path: str) -> None:
    """A unit that can never start would be found out by the next one who needs it."""
    with pytest.raises(Failure):
        service_unit._program(path)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", ["plain", "a b", "it's", "50%$HOME", 'a"b', "a\\b", "a\tb", "é;"])
def test_the_service_manager_takes_the_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever directory the interpreter is in."""
    program = tmp_path / name / "python"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(program))
    unit = tmp_path / "genagentd.service"
    unit.write_text(service_unit.unit())

    found = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )

    assert str(unit) not in found.stderr
    assert unit.name not in found.stderr


def test_places_that_the_environment_names_are_those_of_the_service(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client in the same environment would otherwise look elsewhere than its daemon."""
    # Short, wherever tests have their directories: a socket is to have room below it.
    monkeypatch.setenv("GENAGENT_RUN_DIR", '/run/50% "a"')
    monkeypatch.setenv("GENAGENT_LOG_FORMAT", "json")
    monkeypatch.setenv("GENAGENT_GRACE_MS", "5000")
    monkeypatch.setenv("GENAGENT_PASS_ENV", "API_KEY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")

    unit = genagentd("install-service", "--user", "--print").out

    assert 'Environment="GENAGENT_RUN_DIR=/run/50%% \\"a\\""\n' in unit
    assert 'Environment="GENAGENT_GRACE_MS=5000"\n' in unit
    assert 'Environment="GENAGENT_PASS_ENV=API_KEY"\n' in unit
    assert f'Environment="XDG_STATE_HOME={tmp_path}"\n' in unit
    assert "XDG_CONFIG_HOME" not in unit
    assert "LOG_FORMAT" not in unit


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GENAGENT_RUN_DIR", "relative"),
        ("GENAGENT_RUN_DIR", "/x" * 80),
        ("GENAGENT_STATE_DIR", "/two\nlines"),
        ("GENAGENT_CONFIG", "/no/such/file"),
        ("GENAGENT_GRACE_MS", "soon"),
        ("HOME", "some/where"),
    ],
)
def test_what_the_daemon_would_refuse_is_not_written(
    genagentd: Command, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A unit that can never start would be found out by the next one who needs it."""
    monkeypatch.setenv(name, value)

    assert genagentd("install-service", "--print").code == 78


def test_the_service_manager_waits_for_the_whole_grace(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a configuration is named so that it is found from anywhere."""
    (tmp_path / "c.toml").write_text("grace_ms = 120_000")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENAGENT_CONFIG", "c.toml")

    unit = genagentd("install-service", "--print").out

    assert "TimeoutStopSec=155\n" in unit
    assert f'Environment="GENAGENT_CONFIG={tmp_path}/c.toml"\n' in unit


def test_a_place_that_cannot_be_written_is_named(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what to do instead."""
    (tmp_path / "systemd").write_text("in the way")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    refused = genagentd("install-service")

    assert refused.code == 1
    assert refused.err.startswith(f"genagentd: {tmp_path}/systemd/user/genagentd.service cannot be")
    assert "--print" in refused.err


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "(free some space there)"),
        (errno.EROFS, "(put it where systemd looks, too: genagentd install-service --print)"),
    ],
)
def test_a_disk_that_takes_no_unit_is_named_and_keeps_no_half_of_one(
    genagentd: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    remedy: str,
) -> None:
    """No unit by hand fits on a full disk either."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def half(path: Path, *_: object, **__: object) -> None:
        path.touch()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_text", half)

    refused = genagentd("install-service")

    assert refused.code == 1
    assert refused.err.endswith(f"cannot be written: {os.strerror(number)} {remedy}\n")
    assert list((tmp_path / "systemd/user").iterdir()) == []


def test_a_relative_directory_of_configurations_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its specification says: otherwise the current directory would decide."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")

    assert service_unit.unit_path().is_absolute()


def test_the_unit_can_be_read_whatever_the_umask(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service manager would not find what nobody may read."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    before = os.umask(0o777)
    try:
        assert genagentd("install-service").code == 0
    finally:
        os.umask(before)

    assert (tmp_path / "systemd/user").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "systemd/user/genagentd.service").stat().st_mode & 0o777 == 0o600


def test_it_is_written_where_the_service_manager_looks(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once more is fine; a changed one is kept unless that is forced."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "systemd/user/genagentd.service"

    assert genagentd("install-service", "--print").out == service_unit.unit()
    assert not path.exists()
    assert genagentd("install-service").code == 0
    assert genagentd("install-service", "--json").json["path"] == str(path)
    for other in (b"mine", b"\xff"):
        path.write_bytes(other)
        refused = genagentd("install-service", "--json")
        assert (refused.code, refused.error, path.read_bytes()) == (4, "exists", other)
        assert genagentd("install-service", "--force").code == 0
        assert path.read_text() == service_unit.unit()


def test_a_unit_that_is_right_is_not_written_again(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks at its date, or at `written`, would reload the service manager for nothing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "systemd/user/genagentd.service"
    assert genagentd("install-service", "--json").json["written"] is True
    before = path.stat()
    path.with_suffix(".new").write_text("mine")

    again = genagentd("install-service", "--json")

    assert (again.code, again.json["written"]) == (0, False)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    path.write_text("changed")
    assert genagentd("install-service", "--force", "--json").json["written"] is True
    assert path.with_suffix(".new").read_text() == "mine"
    assert {each.name for each in path.parent.iterdir()} == {path.name, "genagentd.new"}


@pytest.mark.parametrize("leads", ["/dev/null", "nowhere", "mine"])
def test_a_link_is_replaced_by_force_only(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leads: str
) -> None:
    """A unit that is masked is one that nobody wants to run; and what a link leads to stays."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "systemd/user/genagentd.service"
    path.parent.mkdir(parents=True)
    (path.parent / "mine").write_text("mine")
    path.symlink_to(leads)

    refused = genagentd("install-service")

    assert refused.code == 4
    assert f"is another one (a link to {leads})" in refused.err
    assert os.readlink(path) == leads
    assert genagentd("install-service", "--force").code == 0
    assert not path.is_symlink()
    assert (path.parent / "mine").read_text() == "mine"


def test_a_link_to_the_right_unit_is_right(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some keep all that they configure in one place, and links to it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "systemd/user/genagentd.service"
    path.parent.mkdir(parents=True)
    (tmp_path / "kept").write_text(service_unit.unit())
    path.symlink_to(tmp_path / "kept")

    assert genagentd("install-service").code == 0
    assert path.is_symlink()
