"""The options that every backend of a provider's program shares, and how they are read.

What a run needs besides its own flags: which program, where, in what environment,
under which clocks. All of it is checked before a program is even looked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from genagent_backends.base import Failed
from genagent_backends.options import (
    BadValue,
    Chosen,
    Option,
    Unsupported,
    duration_ms,
    environment,
    mapping,
    refuse,
    text,
    variables,
)
from genagent_backends.programs import Environment, Program, find_program
from genagent_backends.subprocesses import Clocks
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.session_ids import MAX_SESSION_ID_BYTES


def directory(value: Plain) -> str:
    """Accept the path of a directory that exists, and make it absolute."""
    path = os.path.abspath(os.path.expanduser(text(value)))
    if not os.path.isdir(path):
        raise BadValue("names a directory that does not exist")
    return path


def file_path(value: Plain) -> str:
    """Accept the path of a file, and make it absolute; JSON in its place is refused."""
    path = text(value)
    if path.lstrip().startswith(("{", "[")):
        raise BadValue("must be the path of a file: other users can read a command line")
    return os.path.abspath(os.path.expanduser(path))


def file_paths(value: Plain) -> tuple[str, ...]:
    """Accept one path of a file or a list of them."""
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, tuple):
        raise BadValue("must be a list of paths")
    return tuple(file_path(item) for item in items)


def json_mapping(value: Plain) -> str:
    """Accept a mapping that JSON can express, and return it as JSON."""
    try:
        return json.dumps(mapping(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        raise BadValue("must be a mapping that JSON can express") from None


def secret_files(value: Plain) -> Mapping[str, str]:
    """Accept a mapping from names of environment variables to paths of files."""
    return {name: file_path(path) for name, path in variables(value).items()}


BINARY: Option[str | None] = Option("binary", text, None)
WORKING_DIR: Option[str | None] = Option("working_dir", directory, None, aliases=("cwd",))
ENV: Option[Mapping[str, str | None]] = Option("env", environment, {})
ENV_FILES: Option[Mapping[str, str]] = Option("env_files", secret_files, {})
TIMEOUT_MS: Option[int | None] = Option("timeout_ms", duration_ms, None, aliases=("timeout",))
MODEL: Option[str | None] = Option("model", text, None)
#: A key in an option would be kept wherever options are kept.
API_KEY = Unsupported("api_key", "is not taken; name a file in env_files, or log the program in")
SHARED = (BINARY, WORKING_DIR, ENV, ENV_FILES, TIMEOUT_MS, MODEL, API_KEY)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a program is run, the same for every turn of a session."""

    program: str
    working_dir: str | None
    environment: Environment
    clocks: Clocks
    model: str | None


def read_setting(
    program: Program, chosen: Chosen, *, idle_ms: int | None, more_env: Mapping[str, str]
) -> Setting | Failed:
    """Return the setting that was *chosen*, once the program has been found.

    *more_env* are variables that stand for options of the program; what the option
    `env` says about them wins.
    """
    if twice := sorted(ENV.of(chosen).keys() & ENV_FILES.of(chosen).keys()):
        said = f"options env and env_files both say what {twice[0]} is"
        return refuse("conflicting_options", ENV_FILES.name, said)
    changes = {**more_env, **ENV.of(chosen)}
    surroundings = Environment(changes, ENV_FILES.of(chosen))
    try:
        path = find_program(program, BINARY.of(chosen), surroundings.build(os.environ))
    except OSError as error:
        return refuse(
            "invalid_option",
            ENV_FILES.name,
            f"option env_files names a file that cannot be used: {error.strerror}",
        )
    if isinstance(path, Failed):
        return path
    return Setting(
        path,
        WORKING_DIR.of(chosen),
        surroundings,
        Clocks(idle_ms, TIMEOUT_MS.of(chosen)),
        MODEL.of(chosen),
    )


def refused_session_id(session_id: str) -> Failed | None:
    """Return why *session_id* cannot be resumed, or None if a program can be asked for it."""
    if session_id.isprintable() and 0 < len(session_id.encode()) <= MAX_SESSION_ID_BYTES:
        return None
    message = f"a session id is printable text of at most {MAX_SESSION_ID_BYTES} bytes"
    return Failed(FrozenDict({"code": "invalid_session_id", "message": message}))
