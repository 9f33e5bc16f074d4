"""What a start asks for is complete and checked before anything is sent."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.errors import TooLarge, UsageError
from genagent_protocol.supervision.terms import RestartPolicy
from genagentd.client.spec import AgentSpec, spec_of, start_request
from genagentd.starting import agent_path


class AnAgent:
    """A class that agents could be made of."""


def spec(**changes: Any) -> AgentSpec:
    return AgentSpec(**({"agent": None, "name": "a", "backend": "echo"} | changes))


def test_a_class_is_sent_as_the_path_to_it() -> None:
    """The agent process imports it; nothing of the class itself travels."""
    path = agent_path(AnAgent, "/somewhere")

    assert path == f"{__name__}:AnAgent"


def test_a_path_is_sent_as_it_is() -> None:
    """Whether it can be imported only the agent process knows."""
    assert agent_path("package.module:Class", "/") == "package.module:Class"
    assert agent_path(None, "/") is None


@pytest.mark.parametrize("agent", ["no_colon", ":Class", "module:", 7, AnAgent()])
def test_what_is_no_agent_is_refused(agent: Any) -> None:
    """A typo is told here and not by an agent process that ends at once."""
    with pytest.raises(UsageError, match="agent"):
        agent_path(agent, "/")


def test_a_class_inside_a_function_cannot_be_imported() -> None:
    """The agent process would not find it."""

    class Local:
        pass

    with pytest.raises(UsageError, match="local"):
        agent_path(Local, "/")


def test_a_class_of_the_running_script_is_found_next_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A one-file example works; a script somewhere else is told what to do."""
    main = types.ModuleType("__main__")
    main.__file__ = str(tmp_path / "script.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(AnAgent, "__module__", "__main__")

    assert agent_path(AnAgent, str(tmp_path)) == "script:AnAgent"
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(UsageError, match=f"cwd: there is no directory {elsewhere}"):
        agent_path(AnAgent, str(elsewhere))
    elsewhere.mkdir()
    with pytest.raises(UsageError, match="give the script's directory as cwd"):
        agent_path(AnAgent, str(elsewhere))


def test_limits_and_options_travel_together() -> None:
    """`init_agent` gets what is not a limit; the daemon tells them apart by name."""
    request = start_request(spec(options={"model": "m"}, limits={"watchdog_ms": 5}), None)

    assert request.options == {"model": "m", "watchdog_ms": 5}


def test_a_limit_that_does_not_exist_names_the_one_that_was_meant() -> None:
    """A misspelt limit would otherwise be an option nobody reads."""
    with pytest.raises(UsageError, match="max_pending_prompts"):
        start_request(spec(limits={"max_pending_prompt": 5}), None)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"options": {"x": object()}}, r"options: x"),
        ({"options": [1]}, "options"),
        ({"env": {"A": 1}}, "env: the value of A"),
        ({"env": {"GENAGENT_RUN_DIR": "/x"}}, "env: GENAGENT_RUN_DIR: no agent gets"),
        ({"env": {"NOTIFY_SOCKET": "/x"}}, "env: NOTIFY_SOCKET: no agent gets"),
        ({"backend": ""}, "backend"),
        ({"backend": None}, "backend"),
        ({"restart": "always"}, "restart"),
        ({"start_timeout_ms": 0}, "start_timeout_ms"),
        ({"start_timeout_ms": True}, "start_timeout_ms"),
    ],
)
def test_a_bad_field_is_named(changes: dict[str, Any], named: str) -> None:
    """Nothing is started half."""
    with pytest.raises(UsageError, match=named):
        start_request(spec(**changes), None)


def test_options_over_the_limit_are_refused_with_their_size() -> None:
    """E066: typed, before anything is sent."""
    with pytest.raises(TooLarge):
        start_request(spec(options={"x": "y" * 9_000_000}), None)


def test_the_working_directory_is_absolute() -> None:
    """It becomes the agent's, whatever directory the daemon runs in (D41)."""
    assert start_request(spec(), None).cwd == str(Path.cwd())
    assert start_request(spec(cwd="sub"), None).cwd == str(Path.cwd() / "sub")


def test_a_restart_policy_may_be_given_by_its_kind() -> None:
    """Agents are temporary unless asked otherwise."""
    assert start_request(spec(), None).restart == RestartPolicy()
    assert start_request(spec(restart="permanent"), None).restart.kind == "permanent"
    policy = RestartPolicy(kind="transient", max_restarts=1)
    assert start_request(spec(restart=policy), None).restart == policy


@pytest.mark.parametrize("missing", ["name", "backend"])
def test_name_and_backend_are_required(missing: str) -> None:
    """S049: a missing one raises in the caller. None is a name; only leaving it out is not."""
    terms = {"name": None, "backend": "echo"}
    del terms[missing]

    with pytest.raises(UsageError, match=missing):
        spec_of(None, terms)


def test_an_unknown_field_is_named() -> None:
    """Options of the agent go into `options`, so a typo cannot hide among them."""
    with pytest.raises(UsageError, match="start_timout_ms"):
        spec_of(None, {"name": "a", "backend": "echo", "start_timout_ms": 5})
    with pytest.raises(UsageError, match="option: there is no such field; did you mean options"):
        spec_of(None, {"name": "a", "backend": "echo", "option": {}})
    with pytest.raises(UsageError, match="colour: there is no such field; known are agent, name"):
        spec_of(None, {"name": "a", "backend": "echo", "colour": "red"})


def test_a_spec_says_everything_itself() -> None:
    """Two sources for one field would need a rule."""
    assert spec_of(spec(), {}) == spec()
    with pytest.raises(UsageError, match="backend"):
        spec_of(spec(), {"backend": "echo"})
