"""The daemon's configuration: strict TOML, then the environment, then flags.

A key that is not known is an error that names the nearest one that is. Secrets never
stand here: agents name an environment variable or a file instead.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genagent_protocol.errors import GenAgentError
from genagentd.environment import why_withheld, withheld
from genagentd.paths import home

#: More than this is no configuration, and might not end.
_MAX_BYTES = 1024 * 1024


class BadConfiguration(GenAgentError):
    """The configuration cannot be used; the message says which key, where, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How one daemon runs.

    `grace_ms` is how long agents may finish their turns at shutdown;
    `start_method` how agents are started (`spawn` needs no helper and is slower);
    `pass_env` which more variables agents get from the daemon's environment.
    """

    grace_ms: int = 10_000
    start_method: Literal["forkserver", "spawn"] = "forkserver"
    log_format: Literal["auto", "console", "json"] = "auto"
    pass_env: tuple[str, ...] = ()


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration of this user: defaults, then the file, then the environment.

    Raises:
        BadConfiguration: the file or a variable cannot be used.
        UnusablePlace: no file is named, and `HOME` is no place to look for one.
    """
    named = path or (Path(environ["GENAGENT_CONFIG"]) if environ.get("GENAGENT_CONFIG") else None)
    path = named or _default_path(environ)
    found = None if path is None else _read(path)
    if found is None and named is not None:
        raise BadConfiguration(f"there is no configuration at {named}")
    return Config(**{**(found or {}), **_from_environ(environ)})


def absolute(named: Path) -> Path:
    """Return where *named* is, for whoever works in another directory.

    Raises:
        BadConfiguration: it is relative to a directory that is gone.
    """
    try:
        return named.absolute()
    except FileNotFoundError:
        raise BadConfiguration(
            f"the configuration {named} is named from a directory that is gone; name it by a path "
            "that starts with /"
        ) from None


def _default_path(environ: Mapping[str, str]) -> Path | None:
    base = config_home(environ)
    return None if base is None else base / "genagentd/config.toml"


def config_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return where this user's configurations lie; None if no home is known.

    A relative `XDG_CONFIG_HOME` is none.

    Raises:
        UnusablePlace: it is not set, and `HOME` is not absolute.
    """
    base = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):
        return Path(base)
    found = home(environ)
    return None if found is None else found / ".config"


def _read(path: Path) -> dict[str, Any] | None:
    """Return what the file says, or None if there is none."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            # Opening it would wait for its writer, and with it the daemon.
            raise BadConfiguration(f"{path} cannot be read: it is a pipe; name a file of TOML")
        found = tomllib.loads(_text_of(path))
    except FileNotFoundError:
        return None
    except RecursionError:
        raise BadConfiguration(f"{path} cannot be read: it is nested too deep") from None
    except OSError as error:
        home = ", or set HOME, if that is somebody else's"
        raise BadConfiguration(
            f"{path} cannot be read: {error.strerror}; name another one with GENAGENT_CONFIG"
            f"{home if isinstance(error, PermissionError) else ''}"
        ) from None
    except ValueError as error:  # Not only TOML's own: what int() refuses, too.
        raise BadConfiguration(f"{path} cannot be read: {error}") from None
    return {key: _checked(key, value, str(path)) for key, value in found.items()}


def _text_of(path: Path) -> str:
    """Return the text of the file, which need not be one that ends."""
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise BadConfiguration(
            f"{path} cannot be read: it has more than {_MAX_BYTES} bytes; name a file of TOML"
        )
    return data.decode("utf-8")


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in _kinds():
        variable = f"GENAGENT_{key.upper()}"
        if variable in environ:
            values[key] = _checked(key, _parsed(key, environ[variable]), variable)
    return values


def _parsed(key: str, text: str) -> Any:
    """Return the text of a variable as the file would have it."""
    if key == "pass_env":
        return [name.strip() for name in text.split(",") if name.strip()]
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else text


def _kinds() -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(Config)}


#: As much as the command line takes; more is a slip, and overflows clocks.
LONGEST_MS = 1_000_000_000_000
_ALLOWED = {
    "start_method": ("forkserver", "spawn"),
    "log_format": ("auto", "console", "json"),
}


def _checked(key: str, value: Any, where: str) -> Any:
    """Return *value* as the field wants it, or say what is wrong with it and where."""
    if key not in _kinds():
        near = difflib.get_close_matches(key, _kinds(), 1)
        hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_kinds())}"
        raise BadConfiguration(f"{where}: unknown key {key!r}{hint}")
    if key in _ALLOWED:
        if value not in _ALLOWED[key]:
            raise BadConfiguration(f"{where}: {key} is one of {', '.join(_ALLOWED[key])}")
    elif key == "pass_env":
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise BadConfiguration(f"{where}: {key} is a list of variable names")
        for name in value:
            _check_variable(name, f"{where}: {key}")
        return tuple(value)
    elif type(value) is not int or not 0 <= value <= LONGEST_MS:
        raise BadConfiguration(
            f"{where}: {key} is a number of milliseconds, at most {LONGEST_MS}, not {value!r}"
        )
    return value


#: What no variable that is meant has in its name: what separates names, quotes and patterns.
_NO_NAME = re.compile(r"[\s=,;:\"'\[\](){}*?\0]")


def _check_variable(name: str, where: str) -> None:
    """Refuse a name that no agent would get a variable by."""
    if withheld(name):
        raise BadConfiguration(f"{where}: {why_withheld(name)}")
    if not name or _NO_NAME.search(name):
        raise BadConfiguration(
            f"{where}: {name!r} is not the name of a variable; in the file it is a list, "
            'pass_env = ["A", "B"], in the environment GENAGENT_PASS_ENV=A,B'
        )
