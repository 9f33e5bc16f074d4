"""What the start of an agent asks for, checked field by field before anything is sent.

Whatever is wrong with a field is a `UsageError` that names it; whatever passes here is
read by every daemon of this version. Clients and agents start others by the same rules.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from pathlib import Path

from genagent_protocol import codec
from genagent_protocol.bounds import Limits
from genagent_protocol.errors import TooLarge, UsageError
from genagent_protocol.plain import FrozenDict, encoded_size
from genagent_protocol.reasons import PayloadTooLarge
from genagent_protocol.requests import StartAgent
from genagent_protocol.supervision.terms import RestartPolicy
from genagentd import sendable
from genagentd.arguments import MAX_TIMEOUT_MS

_LIMITS = tuple(limit.name for limit in dataclasses.fields(Limits))
_NUMBERS = tuple(field.name for field in dataclasses.fields(RestartPolicy) if field.name != "kind")


def start_request(
    *,
    name: object,
    agent: object,
    backend: object,
    options: object,
    limits: object,
    cwd: object,
    env: object,
    restart: object,
    start_timeout_ms: object,
    session: object,
    may_start: object,
    group: int | None = None,
) -> StartAgent:
    """Return the request that starts such an agent.

    This does not say that it can be started: whether there are such a class, backend,
    directory and session only the agent's process knows.

    Raises:
        UsageError: something of it cannot be sent or is not known.
    """
    directory = working_directory(cwd)
    return _of_a_size(
        StartAgent(
            name=sendable.agent_name(name),
            agent=agent_path(agent, directory),
            backend=_backend(backend),
            options=_options(options, limits),
            cwd=directory,
            env=sendable.environment(env),
            group=group,
            restart=_restart(restart),
            start_timeout_ms=_start_timeout(start_timeout_ms),
            session=None if session is None else sendable.text(session, "session"),
            may_start=_yes_or_no(may_start, "may_start"),
        )
    )


def working_directory(cwd: object) -> str:
    """Return *cwd*, or where the caller is, as an absolute path.

    Raises:
        UsageError: it is no path, or one that cannot be sent.
    """
    try:
        path = Path.cwd() if cwd is None else Path(cwd).absolute()  # type: ignore[arg-type]  # that is what is tried
    except TypeError:
        raise UsageError(f"cwd: a path is wanted, not {type(cwd).__name__}") from None
    except FileNotFoundError:
        raise UsageError("cwd: the directory of this process is gone; give another one") from None
    if not _is_utf8(str(path)):
        raise UsageError(f"cwd: the name {str(path)!a} is no UTF-8; rename it or give another one")
    found = sendable.text(str(path), "cwd")
    if "\0" in found:
        raise UsageError("cwd: a path holds no NUL character")
    return found


def _is_utf8(path: str) -> bool:
    """Whether that is so of what Python shows of it: bytes that are not are lone surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def agent_path(agent: object, cwd: str) -> str | None:
    """Return how an agent process that starts in *cwd* finds that class.

    Raises:
        UsageError: it could not find it.
    """
    if agent is None:
        return None
    if isinstance(agent, str):
        spelled = sendable.text(agent, "agent")
        module, _, name = spelled.partition(":")
        named = all(step.isidentifier() for step in module.split("."))
        if not name or not named or os.path.isfile(os.path.join(cwd, module)):
            raise UsageError(
                f"agent: {spelled!r} is not of the form package.module:Class{_meant(module, name)}"
            )
        return spelled
    if not isinstance(agent, type):
        raise UsageError(
            f"agent: a class or 'package.module:Class' is wanted, not an instance of "
            f"{type(agent).__name__}"
        )
    if "<locals>" in agent.__qualname__:
        raise UsageError(f"agent: {agent.__qualname__} is local; move it to the top of a module")
    module = _main_module(cwd) if agent.__module__ == "__main__" else agent.__module__
    return sendable.text(f"{module}:{agent.__qualname__}", "agent")


def _meant(module: str, name: str) -> str:
    """Return what to write instead of a module that was spelled as a file."""
    steps = module.removeprefix("./").removesuffix(".py").split("/")
    dotted = module.removesuffix(".py")
    if not name and all(step.isidentifier() for step in dotted.split(".")):
        # `todo`, or `todo.Todo`: by custom a class begins with a capital, and a module does not.
        above, _, last = dotted.rpartition(".")
        meant = f"{above}:{last}" if above and last[:1].isupper() else f"{dotted}:CLASS"
        return f"; write {meant}"
    if steps == [module] or not name or not all(step.isidentifier() for step in steps):
        return ""
    return f"; write {'.'.join(steps)}:{name}"


def _main_module(cwd: str) -> str:
    """Return the name under which another process can import what runs as `__main__` here."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name.removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    if not os.path.isdir(cwd):
        raise UsageError(f"cwd: there is no directory {cwd}")
    # The script, or its directory, may be reached through a link, and cwd be named without one.
    for spelled in () if file is None else (os.path.abspath(file), os.path.realpath(file)):
        if _is_same(os.path.dirname(spelled), cwd):
            return Path(spelled).stem
    raise UsageError(
        "agent: its class is defined in __main__, which the agent process cannot import: "
        f"move it to a module, {_as_a_module(file, cwd)}or give the script's directory as cwd"
    )


def _is_same(directory: str, cwd: str) -> bool:
    try:
        return os.path.samefile(directory, cwd)
    except OSError:
        return False  # The script may be gone, or this process elsewhere by now.


def _as_a_module(file: str | None, cwd: str) -> str:
    """Return the advice to run *file* as a module, if it can be one of those found in *cwd*."""
    below = Path(cwd).resolve()
    if file is None or not Path(file).resolve().is_relative_to(below):
        return ""
    parts = Path(file).resolve().relative_to(below).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        return ""
    return f"run the script with python -m {'.'.join(parts)}, "


def _backend(backend: object) -> str:
    if not isinstance(backend, str) or not backend:
        raise UsageError("backend: the name of a backend is wanted, such as 'echo'")
    return sendable.text(backend, "backend")


def _options(options: object, limits: object) -> FrozenDict:
    bounds = sendable.mapping(limits, "limits")
    for name in bounds:
        if name not in _LIMITS:
            near = difflib.get_close_matches(name, _LIMITS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_LIMITS)}"
            raise UsageError(f"limits: {name} is not a limit{hint}")
    return sendable.mapping({**sendable.mapping(options, "options"), **bounds}, "options")


def _restart(restart: object) -> RestartPolicy:
    policy = restart if isinstance(restart, RestartPolicy) else None
    kind = restart if policy is None else policy.kind
    # Compared one by one, for it may be anything: also what cannot be hashed.
    for known in ("temporary", "transient", "permanent"):
        if isinstance(kind, str) and kind == known:
            numbers = {} if policy is None else {name: _number(policy, name) for name in _NUMBERS}
            return RestartPolicy(kind=known, **numbers)
    raise UsageError(f"restart: 'temporary', 'transient' or 'permanent' is wanted, not {kind!r}")


def _number(policy: RestartPolicy, name: str) -> int:
    value: object = getattr(policy, name)
    if type(value) is not int or not 0 <= value <= MAX_TIMEOUT_MS:
        raise UsageError(
            f"restart: {name}: a whole number from 0 to {MAX_TIMEOUT_MS} is wanted, not {value!r}"
        )
    return value


def _start_timeout(timeout_ms: object) -> int:
    if type(timeout_ms) is not int or timeout_ms <= 0:
        raise UsageError(f"start_timeout_ms: positive milliseconds are wanted, not {timeout_ms!r}")
    return min(timeout_ms, MAX_TIMEOUT_MS)


def _yes_or_no(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{what}: True or False is wanted, not {value!r}")
    return value


def _of_a_size(request: StartAgent) -> StartAgent:
    """Return *request*, if it fits a message as a whole."""
    fields = (request.options, request.env, request.cwd, request.agent, request.backend)
    size = sum(map(encoded_size, (*fields, request.session)))
    if size > codec.MAX_PAYLOAD_BYTES:
        raise TooLarge(
            f"start_agent: {size} bytes of options, env and so on, "
            f"the limit is {codec.MAX_PAYLOAD_BYTES}",
            PayloadTooLarge(size_bytes=size, limit_bytes=codec.MAX_PAYLOAD_BYTES),
        )
    return request
