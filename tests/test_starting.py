"""What a start is made of: either its starter is told what is wrong, or the daemon reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import codec, envelopes
from genagent_protocol.errors import TooLarge, UsageError
from genagent_protocol.requests import StartAgent
from genagent_protocol.supervision.terms import RestartPolicy
from genagentd import starting
from genagentd.arguments import MAX_TIMEOUT_MS
from genagentd.sendable import MAX_ENVIRONMENT_BYTES
from genagentd.starting import start_request
from support.plain_values import anything

GOOD: dict[str, Any] = {
    "name": "a",
    "agent": None,
    "backend": "echo",
    "options": {},
    "limits": {},
    "cwd": "/",
    "env": {},
    "restart": "temporary",
    "start_timeout_ms": 60_000,
    "session": None,
    "may_start": False,
}


NUMBERS = ("max_restarts", "period_ms", "delay_ms", "max_delay_ms")
policies = st.dictionaries(st.sampled_from(("kind", *NUMBERS)), anything, max_size=3).map(
    lambda fields: RestartPolicy(**fields)  # type: ignore[arg-type]  # that is the point
)


def wanted(**changes: Any) -> StartAgent:
    return start_request(**(GOOD | changes))


def as_the_daemon_reads(request: StartAgent) -> object:
    body = codec.encode(envelopes.Request(call=7, request=request))
    [read] = codec.decode(envelopes.ToDaemon, body)
    return read.request


@given(changes=st.dictionaries(st.sampled_from([*GOOD]), anything | policies, max_size=4))
def test_whatever_a_start_is_made_of_is_refused_or_read(changes: dict[str, Any]) -> None:
    """The daemon answers what it can read: anything else would be waited for, for ever."""
    try:
        request = wanted(**changes)
    except UsageError:
        return

    assert repr(as_the_daemon_reads(request)) == repr(request)


@pytest.mark.parametrize("field", GOOD)
@given(value=anything | policies)
def test_whatever_one_field_is_is_refused_or_read(field: str, value: object) -> None:
    """One at a time, so that no other field's error hides it."""
    try:
        request = wanted(**{field: value})
    except UsageError:
        return

    assert repr(as_the_daemon_reads(request)) == repr(request)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"session": 5}, "session: text is wanted, not int"),
        ({"session": b"x"}, "session: text is wanted, not bytes"),
        ({"session": "\ud800"}, "session: the value: the text has a lone surrogate"),
        ({"may_start": None}, "may_start: True or False is wanted, not None"),
        ({"may_start": 1}, "may_start: True or False is wanted, not 1"),
        ({"may_start": "yes"}, "may_start: True or False is wanted, not 'yes'"),
        ({"restart": RestartPolicy(kind="always")}, "restart: .* not 'always'"),  # type: ignore[arg-type]  # that is the point
        ({"restart": ["permanent"]}, "restart: .* is wanted"),
        ({"cwd": 5}, "cwd: a path is wanted, not int"),
        ({"cwd": b"/"}, "cwd: a path is wanted, not bytes"),
        ({"cwd": "/a\udcff"}, r"cwd: the name '/a\\udcff' is no UTF-8; rename it or give another"),
        ({"cwd": "/a\0b"}, "cwd: .* NUL"),
        ({"backend": "\ud800"}, "backend: .* lone surrogate"),
        ({"agent": object()}, "agent: .* not an instance of object"),
        ({"agent": "\ud800:A"}, "agent: .* lone surrogate"),
        ({"env": {"A=B": "x"}}, "env: 'A=B' is not a name"),
        ({"env": {"": "x"}}, "env: '' is not a name"),
        ({"env": {"A\0": "x"}}, r"env: 'A\\x00' is not a name"),
        ({"env": {"A": "x\0"}}, "env: the value of A holds a NUL"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(changes: dict[str, Any], named: str) -> None:
    """Before anything is sent: the daemon could only count it, and the start would hang."""
    with pytest.raises(UsageError, match=named):
        wanted(**changes)


@pytest.mark.parametrize("letter", ["x", "\n", "\N{SNOWMAN}"])
def test_an_environment_is_refused_by_what_it_takes_in_a_process(letter: str) -> None:
    """It would fit a message, but no order to start an agent, nor a program of the agent's."""
    size = len(letter.encode())
    most = (MAX_ENVIRONMENT_BYTES - len("BIG=\0")) // size

    assert wanted(env={"BIG": letter * most}).env["BIG"] == letter * most
    with pytest.raises(TooLarge, match=f"env: .* bytes, the limit is {MAX_ENVIRONMENT_BYTES}"):
        wanted(env={"BIG": letter * (most + 1)})


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("value", [200.5, float("nan"), "x", True, None, -1, 10**30, 200.0])
def test_a_number_of_the_restart_policy_is_one(number: str, value: Any) -> None:
    """Milliseconds and counts; seconds given as a float are told, not rounded."""
    with pytest.raises(UsageError, match=f"restart: {number}: a whole number"):
        wanted(restart=RestartPolicy(**{"kind": "permanent", number: value}))


def test_a_start_may_take_as_long_as_one_likes() -> None:
    """As every other time limit: practically for ever is what a clock can add up."""
    assert wanted(start_timeout_ms=10**30).start_timeout_ms == MAX_TIMEOUT_MS


def test_a_directory_that_cannot_be_sent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name need not be text, and a process may outlive its own."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(UsageError, match="cwd: the directory of this process is gone"):
        wanted(cwd=None)
    with pytest.raises(UsageError, match="cwd: the directory of this process is gone"):
        wanted(cwd="sub")


def test_fields_that_fit_alone_and_not_together_are_refused_with_their_size() -> None:
    """One message carries them all."""
    half = "x" * (codec.MAX_PAYLOAD_BYTES - 100)
    wanted(options={"a": half})

    with pytest.raises(TooLarge, match=r"start_agent: \d+ bytes of options, env"):
        wanted(options={"a": half}, env={"A": "x" * 200})


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("todo", "todo:CLASS"),
        ("todo.py", "todo:CLASS"),
        ("app.todo", "app.todo:CLASS"),
        ("todo.Todo", "todo:Todo"),
        ("app.todo.Todo", "app.todo:Todo"),
        ("app/todo.py:Todo", "app.todo:Todo"),
    ],
)
def test_an_agent_that_is_spelled_otherwise_is_respelled(spelled: str, meant: str) -> None:
    """What to write is known, as far as the class is."""
    with pytest.raises(UsageError, match=f"; write {meant}$"):
        wanted(agent=spelled)


@pytest.mark.parametrize("script", ["real/own.py", "link/own.py", "real/other.py", "link/other.py"])
@pytest.mark.parametrize("cwd", ["real", "link"])
def test_the_directory_of_a_script_is_its_own_by_whatever_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, cwd: str
) -> None:
    """A script gives `Path(__file__).resolve().parent`, and may itself be reached by a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/own.py").touch()
    (tmp_path / "real/other.py").symlink_to("own.py")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / script), raising=False)

    assert starting._main_module(str(tmp_path / cwd)) == Path(script).stem


def test_a_script_that_is_linked_to_is_found_where_it_really_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name that it has there; anywhere else nothing could import it."""
    for directory in ("real", "bin"):
        (tmp_path / directory).mkdir()
    (tmp_path / "real/own.py").touch()
    (tmp_path / "bin/short.py").symlink_to("../real/own.py")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", str(tmp_path / "bin/short.py"), raising=False
    )

    assert starting._main_module(str(tmp_path / "real")) == "own"
    assert starting._main_module(str(tmp_path / "bin")) == "short"
    with pytest.raises(UsageError, match=r"cannot import.*python -m real\.own"):
        starting._main_module(str(tmp_path))
