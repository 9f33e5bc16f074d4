"""Configuration is strict: what is not known or not meant is said, with its place and a hint."""

from __future__ import annotations

import errno
import os
import pwd
import tempfile
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagentd.config import (
    BadConfiguration,
    Config,
    load,
)
from genagentd.environment import agent_environment
from genagentd.socket_path import UnusablePlace


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def loaded(file: Path, text: str, **environ: str) -> Config:
    file.write_text(text, encoding="utf-8")
    return load(file, environ)


# --- what there is


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    """Nobody has to write one."""
    assert load(None, {"XDG_CONFIG_HOME": str(tmp_path)}) == Config()
    assert load(None, {"HOME": str(tmp_path)}) == Config()


def test_a_file_says_what_it_says_and_the_rest_stays(file: Path) -> None:
    """One line is a configuration."""
    assert loaded(file, "grace_ms = 5") == Config(grace_ms=5)


def test_every_key_can_be_set_in_the_file(file: Path) -> None:
    """A key that only the code knows could not be configured."""
    text = """
    grace_ms = 0
    start_method = "spawn"
    log_format = "json"
    pass_env = ["A", "B"]
    """

    found = loaded(file, text)

    assert found == Config(grace_ms=0, start_method="spawn", log_format="json", pass_env=("A", "B"))
    assert all(getattr(found, field.name) != field.default for field in fields(Config))


def test_every_key_can_be_set_in_the_environment(tmp_path: Path) -> None:
    """For one run, and for containers."""
    environ = {
        "HOME": str(tmp_path),
        "GENAGENT_GRACE_MS": "7",
        "GENAGENT_START_METHOD": "spawn",
        "GENAGENT_LOG_FORMAT": "console",
        "GENAGENT_PASS_ENV": "A, B,,C ",
    }

    assert load(None, environ) == Config(
        grace_ms=7, start_method="spawn", log_format="console", pass_env=("A", "B", "C")
    )


def test_the_environment_wins_over_the_file(file: Path) -> None:
    """What is nearer to the run is meant more."""
    found = loaded(file, 'grace_ms = 5\nlog_format = "json"', GENAGENT_GRACE_MS="6")

    assert found == Config(grace_ms=6, log_format="json")


@pytest.mark.parametrize("where", ["XDG_CONFIG_HOME", "HOME", "GENAGENT_CONFIG"])
def test_the_file_is_found_where_the_environment_says(tmp_path: Path, where: str) -> None:
    """As every other program finds its own."""
    below = {"XDG_CONFIG_HOME": "genagentd", "HOME": ".config/genagentd", "GENAGENT_CONFIG": ""}
    directory = tmp_path / below[where]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.toml").write_text("grace_ms = 3")
    value = directory / "config.toml" if where == "GENAGENT_CONFIG" else tmp_path

    assert load(None, {where: str(value)}) == Config(grace_ms=3)


@pytest.mark.parametrize("listed", [None, "", "home"])
def test_whoever_has_no_home_needs_none(
    monkeypatch: pytest.MonkeyPatch, listed: str | None
) -> None:
    """A container runs any number as its user, whether or not that is listed there."""

    def found(_uid: int) -> SimpleNamespace:
        if listed is None:
            raise KeyError
        return SimpleNamespace(pw_dir=listed)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", found)

    assert load(None, {}) == Config()


def test_a_home_that_is_no_absolute_path_is_no_place_to_look(tmp_path: Path) -> None:
    """It would be another file for each directory that the daemon is started in."""
    with pytest.raises(UnusablePlace, match="HOME=some/where is not an absolute path"):
        load(None, {"HOME": "some/where"})
    assert load(None, {"HOME": "some/where", "XDG_CONFIG_HOME": str(tmp_path)}) == Config()


def test_where_we_may_not_look_is_named_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """`HOME` may be left over from the user who became us."""

    def denied(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", denied)

    with pytest.raises(BadConfiguration, match=r"/h/.*denied; .*GENAGENT_CONFIG.* HOME"):
        load(None, {"HOME": "/h"})


def test_a_named_file_wins_over_every_other(file: Path, tmp_path: Path) -> None:
    """The flag, then the variable, then the place everybody uses."""
    (tmp_path / "genagentd").mkdir()
    (tmp_path / "genagentd" / "config.toml").write_text("grace_ms = 1")
    variable = tmp_path / "variable.toml"
    variable.write_text("grace_ms = 2")
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "GENAGENT_CONFIG": str(variable)}

    assert load(None, environ).grace_ms == 2
    assert loaded(file, "grace_ms = 3", **environ).grace_ms == 3


# --- what is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grace = 5", "unknown key 'grace'; did you mean grace_ms?"),
        ("pass_environment = []", "did you mean pass_env?"),
        ("colour = 1", "known are grace_ms, start_method, log_format, pass_env"),
        ("[grace_ms]", "grace_ms is a number of milliseconds"),
        ("grace_ms = -1", "grace_ms is a number of milliseconds, at most 1000000000000, not -1"),
        ("grace_ms = 1.0", "not 1.0"),
        ("grace_ms = true", "not True"),
        ('grace_ms = "5"', "not '5'"),
        ('start_method = "fork"', "start_method is one of forkserver, spawn"),
        ("start_method = 1", "start_method is one of"),
        ('log_format = ["json"]', "log_format is one of auto, console, json"),
        ('pass_env = "A"', "pass_env is a list of variable names"),
        ("pass_env = [1]", "pass_env is a list of variable names"),
        ('pass_env = ["A", "FOO BAR"]', "pass_env: 'FOO BAR' is not the name of a variable"),
        ('pass_env = [""]', "pass_env: '' is not the name of a variable"),
        ('pass_env = ["A=B"]', "pass_env: 'A=B' is not"),
        ('pass_env = ["LC_*"]', "pass_env: 'LC_*' is not"),
        ('pass_env = ["GENAGENT_RUN_DIR"]', "pass_env: GENAGENT_RUN_DIR: no agent gets"),
        ('pass_env = ["NOTIFY_SOCKET"]', "pass_env: NOTIFY_SOCKET: no agent gets"),
        ("grace_ms = ", "cannot be read"),
        ("grace_ms = 1\ngrace_ms = 2", "cannot be read"),
    ],
)
def test_a_mistake_is_said_with_its_place_and_a_hint(file: Path, text: str, said: str) -> None:
    """A key that is silently ignored is found months later."""
    with pytest.raises(BadConfiguration) as refused:
        loaded(file, text)

    assert said in str(refused.value)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    "value", ["-1", "", "ten", "1.5", "5 s", "²", "٣", "9" * 5_000, "true", "0x10"]
)
def test_a_variable_that_is_no_number_is_said_by_its_name(tmp_path: Path, value: str) -> None:
    """Some digits are none to anyone but Python."""
    with pytest.raises(BadConfiguration, match="GENAGENT_GRACE_MS"):
        load(None, {"HOME": str(tmp_path), "GENAGENT_GRACE_MS": value})


def test_a_list_of_one_number_is_a_list_of_names(tmp_path: Path) -> None:
    """A variable may be called as it likes."""
    environ = {"HOME": str(tmp_path), "GENAGENT_PASS_ENV": "123"}

    assert load(None, environ).pass_env == ("123",)


def test_a_file_that_is_not_there_is_refused_if_it_was_named(tmp_path: Path) -> None:
    """Running on with the defaults would be the opposite of what was asked."""
    missing = tmp_path / "no.toml"

    with pytest.raises(BadConfiguration, match=r"there is no configuration at .*no\.toml"):
        load(missing, {})
    with pytest.raises(BadConfiguration, match=r"there is no configuration at .*no\.toml"):
        load(None, {"GENAGENT_CONFIG": str(missing)})


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_refused(file: Path, content: bytes | None) -> None:
    """Wherever it was found."""
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)

    with pytest.raises(BadConfiguration, match="cannot be read"):
        load(file, {})


@pytest.mark.parametrize("text", ["x = " + "[" * 3_000 + "]" * 3_000, "grace_ms = " + "1" * 5_000])
def test_what_is_too_much_for_the_reader_is_refused(file: Path, text: str) -> None:
    """A daemon reads it while it runs, and its service manager waits."""
    with pytest.raises(BadConfiguration, match=f"{file} cannot be read"):
        loaded(file, text)


def test_a_file_that_does_not_end_is_refused_before_the_memory_does() -> None:
    """A daemon that was told to read it anew would be ended with all its agents."""
    with pytest.raises(
        BadConfiguration, match="/dev/zero cannot be read: it has more than 1048576"
    ):
        load(Path("/dev/zero"))


def test_a_pipe_is_no_configuration(file: Path) -> None:
    """To open it would wait for its writer, and nobody would hear of it."""
    os.mkfifo(file)

    with pytest.raises(BadConfiguration, match="cannot be read: it is a pipe"):
        load(file)


@pytest.mark.parametrize("value", ["A B", '["A","B"]', "A;B", "'A'", "A:B", "A,GENAGENT_X"])
def test_names_that_are_not_separated_by_commas_are_refused(tmp_path: Path, value: str) -> None:
    """They would pass nothing, and the agent would be the first to notice."""
    with pytest.raises(BadConfiguration, match="GENAGENT_PASS_ENV: pass_env: "):
        load(None, {"HOME": str(tmp_path), "GENAGENT_PASS_ENV": value})


@given(name=st.text(max_size=8) | st.sampled_from(["GENAGENT_X", "LISTEN_FDS", "A_B"]))
def test_what_is_accepted_is_what_an_agent_gets(name: str) -> None:
    """Whatever variable a configuration names: it is refused, or it is passed."""
    with tempfile.TemporaryDirectory() as home:
        try:
            found = load(None, {"HOME": home, "GENAGENT_PASS_ENV": name})
        except BadConfiguration:
            return

    for passed in found.pass_env:
        assert agent_environment(found.pass_env, {}, {passed: "x"}) == {passed: "x"}
