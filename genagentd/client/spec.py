"""What a start asks for: one agent, ready to be started by whoever holds a client.

An `AgentSpec` is a value and starts nothing. It can be started as often as there
are names for it, in a group or globally.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from genagent_protocol.errors import UsageError
from genagent_protocol.requests import StartAgent
from genagent_protocol.supervision.terms import RestartKind, RestartPolicy
from genagentd import starting


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


_FOR_INSTANCE = {
    "name": 'give the name that it is to have, such as name="a"',
    "backend": 'give one, such as backend="echo", which needs no provider',
}
_FIELDS = tuple(known.name for known in dataclasses.fields(AgentSpec))


def start_request(spec: AgentSpec, group: int | None) -> StartAgent:
    """Return the request that starts *spec*.

    Raises:
        UsageError: something in the spec cannot be sent or is not known.
    """
    terms = {term: getattr(spec, term) for term in _FIELDS}
    return starting.start_request(**terms, group=group)


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
            raise UsageError(f"start_agent: {name} is missing; {_FOR_INSTANCE[name]}")
    unknown = terms.keys() - set(_FIELDS)
    if unknown:
        raise UsageError(f"start_agent: {_not_known(sorted(unknown))}")
    return AgentSpec(agent=agent, **terms)  # type: ignore[arg-type]  # `start_request` checks them


def _not_known(fields: list[str]) -> str:
    near = {name: difflib.get_close_matches(name, _FIELDS, n=1) for name in fields}
    meant = [f"{found[0]} instead of {name}" for name, found in near.items() if found]
    hint = f"; did you mean {', '.join(meant)}?" if meant else f"; known are {', '.join(_FIELDS)}"
    return f"{', '.join(fields)}: there is no such field{hint}"
