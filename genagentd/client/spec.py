"""What a start asks for: one agent, ready to be started by whoever holds a client.

An `AgentSpec` is a value and starts nothing. It can be started as often as there
are names for it, in a group or globally.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from genagent_protocol.bounds import Limits
from genagent_protocol.errors import UsageError
from genagent_protocol.plain import FrozenDict
from genagent_protocol.requests import StartAgent
from genagent_protocol.supervision.terms import RestartKind, RestartPolicy
from genagentd import sendable

_LIMITS = tuple(limit.name for limit in dataclasses.fields(Limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent as its starter wants it.

    `agent` is an `Agent` class or `package.module:Class`; None is the plain agent,
    which keeps its transcript and nothing else. `backend` is a registered name or
    `package.module:Class`. `options` go to `init_agent`; `limits` are the bounds of
    `genagent_protocol.bounds.Limits` by name, None meaning the default and
    "infinity" no limit where that is allowed. `cwd` becomes the agent's working
    directory and the head of its import path (default: the caller's). `env` is
    added to the allow-listed environment. `session` names a recorded session of
    the backend to resume. With `may_start` the agent may start others.
    """

    agent: type | str | None
    name: object
    backend: str
    options: Mapping[str, object] = field(default_factory=dict)
    limits: Mapping[str, object] = field(default_factory=dict)
    cwd: str | Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    restart: RestartPolicy | RestartKind = "temporary"
    start_timeout_ms: int = 60_000
    session: str | None = None
    may_start: bool = False


def start_request(spec: AgentSpec, group: int | None) -> StartAgent:
    """Return the request that starts *spec*.

    Raises:
        UsageError: something in the spec cannot be sent or is not known.
    """
    cwd = working_directory(spec.cwd)
    return StartAgent(
        name=sendable.agent_name(spec.name),
        agent=agent_path(spec.agent, cwd),
        backend=_backend(spec.backend),
        options=_options(spec.options, spec.limits),
        cwd=cwd,
        env=sendable.environment(spec.env),
        group=group,
        restart=_restart(spec.restart),
        start_timeout_ms=_start_timeout(spec.start_timeout_ms),
        session=spec.session,
        may_start=spec.may_start,
    )


def working_directory(cwd: str | Path | None) -> str:
    """Return *cwd*, or the caller's working directory, as an absolute path."""
    return str(Path.cwd() if cwd is None else Path(cwd).absolute())


def agent_path(agent: type | str | None, cwd: str) -> str | None:
    """Return how an agent process that starts in *cwd* finds that class.

    Raises:
        UsageError: it could not find it.
    """
    if agent is None:
        return None
    if isinstance(agent, str):
        module, _, name = agent.partition(":")
        if not module or not name:
            raise UsageError(f"agent: {agent!r} is not of the form package.module:Class")
        return agent
    if not isinstance(agent, type):
        raise UsageError(
            f"agent: a class or 'package.module:Class' is wanted, not {type(agent).__name__}"
        )
    if "<locals>" in agent.__qualname__:
        raise UsageError(f"agent: {agent.__qualname__} is local; move it to the top of a module")
    module = _main_module(cwd) if agent.__module__ == "__main__" else agent.__module__
    return f"{module}:{agent.__qualname__}"


def _main_module(cwd: str) -> str:
    """Return the name under which another process can import what runs as `__main__` here."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name.removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    if file is None or os.path.dirname(os.path.abspath(file)) != cwd:
        raise UsageError(
            "agent: its class is defined in __main__, which the agent process cannot import: "
            "move it to a module, or give the script's directory as cwd"
        )
    return Path(file).stem


def _backend(backend: object) -> str:
    if not isinstance(backend, str) or not backend:
        raise UsageError("backend: the name of a backend is wanted, such as 'echo'")
    return backend


def _options(options: Mapping[str, object], limits: Mapping[str, object]) -> FrozenDict:
    for name in sendable.mapping(limits, "limits"):
        if name not in _LIMITS:
            near = difflib.get_close_matches(name, _LIMITS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_LIMITS)}"
            raise UsageError(f"limits: {name} is not a limit{hint}")
    return sendable.mapping({**sendable.mapping(options, "options"), **limits}, "options")


def _restart(restart: RestartPolicy | RestartKind) -> RestartPolicy:
    if isinstance(restart, RestartPolicy):
        return restart
    if restart not in ("temporary", "transient", "permanent"):
        raise UsageError(
            f"restart: 'temporary', 'transient' or 'permanent' is wanted, not {restart!r}"
        )
    return RestartPolicy(kind=restart)


def _start_timeout(timeout_ms: object) -> int:
    if type(timeout_ms) is not int or timeout_ms <= 0:
        raise UsageError(f"start_timeout_ms: positive milliseconds are wanted, not {timeout_ms!r}")
    return timeout_ms


def spec_of(agent: AgentSpec | type | str | None, terms: Mapping[str, object]) -> AgentSpec:
    """Return the spec that the arguments of `start_agent` spell.

    Raises:
        UsageError: a field is unknown or missing, or given beside a spec.
    """
    if isinstance(agent, AgentSpec):
        if terms:
            raise UsageError(f"start_agent: {', '.join(terms)}: a spec says everything itself")
        return agent
    for name in ("name", "backend"):
        if name not in terms:
            raise UsageError(f"start_agent: {name} is missing")
    unknown = terms.keys() - {known.name for known in dataclasses.fields(AgentSpec)}
    if unknown:
        raise UsageError(f"start_agent: {', '.join(sorted(unknown))}: there is no such field")
    return AgentSpec(agent=agent, **terms)  # type: ignore[arg-type]  # `start_request` checks them
