"""Where a provider's program is, and the environment it is given.

A program is looked for in three places: the option, then PATH, then the pip
package that carries it. A package is located, never imported: it may be heavy.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from genagent_backends.base import Failed
from genagent_backends.import_path import without_working_directory
from genagent_backends.redaction import secrets_in
from genagent_backends.secret_files import read_secret
from genagent_protocol.plain import FrozenDict


@dataclass(frozen=True, slots=True)
class Program:
    """A program's name, the path of it inside a pip package that has it, what was tried."""

    name: str
    package: str
    path_in_package: str
    #: What to install to get it.
    extra: str
    #: The oldest and the newest version that this product was tried with.
    tested: tuple[str, str]


CLAUDE = Program(
    "claude",
    "claude_agent_sdk",
    "_bundled/claude",
    "genagentd[claude-cli]",
    ("2.1.197", "2.1.332"),
)
CODEX = Program(
    "codex", "codex_cli_bin", "bin/codex", "genagentd[codex-cli]", ("0.163.0", "0.171.0")
)


def find_program(program: Program, chosen: str | None, env: Mapping[str, str]) -> str | Failed:
    """Return the path of *program*: *chosen* if given, else from PATH, else from its package.

    The path is absolute: a turn may run in another directory. The refusal has the code
    `program_not_found` and says where was looked.
    """
    if chosen is not None:
        found = shutil.which(os.path.expanduser(chosen), path=env.get("PATH"))
        if found is None:
            return _missing(program, "option binary names no program that can be run")
    else:
        found = shutil.which(program.name, path=env.get("PATH")) or _in_package(program)
    if found is None:
        return _missing(
            program,
            f"{program.name} is neither on PATH nor in the package {program.package}; "
            f"install it, or pip install '{program.extra}', or set the option binary",
        )
    return os.path.abspath(found)


def _in_package(program: Program) -> str | None:
    with without_working_directory():
        spec = find_spec(program.package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        if found := shutil.which(os.path.join(folder, program.path_in_package)):
            return found
    return None


def _missing(program: Program, message: str) -> Failed:
    return Failed(
        FrozenDict({"code": "program_not_found", "program": program.name, "message": message})
    )


@dataclass(frozen=True, slots=True, repr=False)
class Environment:
    """What a program's environment is made of; printing it shows names only.

    `changes` sets variables, or unsets them with None. `files` sets variables to the
    content of a file, read each time a process is started, without the newline at
    its end: so a secret need not be in any option.
    """

    changes: Mapping[str, str | None]
    files: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Environment({', '.join(sorted({*self.changes, *self.files}))})"

    def build(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return *base* with the changes made.

        Raises:
            OSError: a file could not be read, or holds what no variable can.
        """
        built = {**base, **{name: text for name, text in self.changes.items() if text is not None}}
        for name, text in self.changes.items():
            if text is None:
                built.pop(name, None)
        for name, path in self.files.items():
            built[name] = _secret_in(path)
        return built

    def secrets(self, built: Mapping[str, str]) -> frozenset[str]:
        """Return the values in an environment that was *built* which nobody should be shown."""
        return secrets_in(built, self.files)


def _secret_in(path: str) -> str:
    content = read_secret(path).rstrip(b"\r\n")
    try:
        secret = content.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError(errno.EINVAL, "it is not UTF-8", path) from None
    if "\0" in secret:
        raise OSError(errno.EINVAL, "it has a NUL byte in it", path)
    return secret
