"""The unit says what the daemon needs, and a person's changes are not overwritten."""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

import pytest

from genagentd.cli import service_unit
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


@pytest.mark.parametrize(
    ("path", "word"), [("/a/b", "/a/b"), ("/a b/c", '"/a b/c"'), ("/50%$", "/50%%$$")]
)
def test_the_interpreter_is_one_word(path: str, word: str) -> None:
    """Blanks and specifiers of systemd are kept from their meaning."""
    assert service_unit._escaped(path) == word


def test_places_that_the_environment_names_are_those_of_the_service(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client in the same environment would otherwise look elsewhere than its daemon."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path / '50% "a"'))
    monkeypatch.setenv("GENAGENT_LOG_FORMAT", "json")

    unit = genagentd("install-service", "--user", "--print").out

    assert f'Environment="GENAGENT_RUN_DIR={tmp_path}/50%% \\"a\\""\n' in unit
    assert "LOG_FORMAT" not in unit


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GENAGENT_RUN_DIR", "relative"),
        ("GENAGENT_RUN_DIR", "/x" * 80),
        ("GENAGENT_STATE_DIR", "/two\nlines"),
        ("GENAGENT_CONFIG", "/no/such/file"),
        ("GENAGENT_GRACE_MS", "soon"),
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


def test_a_relative_directory_of_configurations_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its specification says: otherwise the current directory would decide."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")

    assert service_unit.unit_path().is_absolute()


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
    path.write_text("mine")
    refused = genagentd("install-service", "--json")
    assert (refused.code, refused.error, path.read_text()) == (4, "exists", "mine")
    assert genagentd("install-service", "--force").code == 0
    assert path.read_text() == service_unit.unit()
