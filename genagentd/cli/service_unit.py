"""`genagentd install-service`: the daemon under the user's systemd, which starts and watches it.

The unit's control group does what the guardian does elsewhere: whatever the daemon
leaves behind ends with it.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from genagentd.cli import exits
from genagentd.cli.exits import Failure
from genagentd.cli.program import output
from genagentd.config import BadConfiguration, absolute, config_home, load
from genagentd.paths import make_all, places

#: What an end may take beside the grace that agents get, which must not be cut short.
STOP_TIMEOUT_S = 35
WATCHDOG_S = 30

#: What says where the daemon is found, and must say the same to it and to its clients; and what
#: says how it runs, which would be something else under the service manager.
_KEPT = (
    *("GENAGENT_RUN_DIR", "GENAGENT_STATE_DIR", "GENAGENT_CONFIG"),
    *("GENAGENT_GRACE_MS", "GENAGENT_PASS_ENV", "GENAGENT_START_METHOD"),
    *("XDG_STATE_HOME", "XDG_CONFIG_HOME"),
)
#: What stands for itself in a command line of systemd, and in the name of a program there.
_PLAIN = re.compile(r"[A-Za-z0-9_./+,=@:-]+")

_UNIT = """\
[Unit]
Description=Supervisor of LLM agents (genagentd)

[Service]
Type=notify
# Only the daemon itself may say that it is ready; agents are its children.
NotifyAccess=main
{environment}ExecStart={python} -P -m genagentd run --log-format json
SyslogIdentifier=genagentd
ExecReload=kill -HUP $MAINPID
# The ping comes from the daemon's loop: when that is stuck, it is started anew.
WatchdogSec={watchdog}
# TERM goes to the daemon, which ends its agents in order; what is left is killed.
KillMode=mixed
TimeoutStopSec={stop_timeout}
Restart=on-failure
# Already running, and a configuration that cannot be used: trying again helps neither.
RestartPreventExitStatus={already_running} {bad_configuration}
RuntimeDirectory=genagentd
RuntimeDirectoryMode=0700
# A daemon that was begun by hand may live there: this one ends then, and nothing of that goes.
RuntimeDirectoryPreserve=yes
LimitNOFILE=65536
# An agent that is killed for its memory does not take the others with it.
OOMPolicy=continue
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def unit() -> str:
    """Return the unit of the daemon of this interpreter."""
    return _UNIT.format(
        environment="".join(_lines_of_environment()),
        python=_program(sys.executable),
        watchdog=WATCHDOG_S,
        stop_timeout=STOP_TIMEOUT_S + math.ceil(_grace_ms() / 1000),
        already_running=exits.REFUSED,
        bad_configuration=exits.BAD_CONFIGURATION,
    )


def _grace_ms() -> int:
    try:
        return load().grace_ms
    except BadConfiguration as error:
        raise Failure(exits.BAD_CONFIGURATION, "bad_configuration", str(error)) from None


def _lines_of_environment() -> Iterator[str]:
    """Yield what tells the daemon the places that its clients here are told.

    Raises:
        Failure: the daemon would refuse one of them.
    """
    places()
    for name in _KEPT:
        value = os.environ.get(name)
        # A relative directory of the XDG kind is none, as its specification says.
        if not value or (name.startswith("XDG_") and not os.path.isabs(value)):
            continue
        if name == "GENAGENT_CONFIG":
            # It is not run from here.
            try:
                value = os.path.normpath(absolute(Path(value)))
            except BadConfiguration as error:
                raise Failure(exits.BAD_CONFIGURATION, "bad_configuration", str(error)) from None
        if not value.isprintable():
            message = f"{name} holds what cannot stand in a unit: {value!r}"
            raise Failure(exits.BAD_CONFIGURATION, "bad_configuration", message)
        yield f'Environment="{name}={_within_quotes(value)}"\n'


def _within_quotes(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _program(path: str) -> str:
    """Return the beginning of a command line of systemd that runs the program *path*.

    Raises:
        Failure: no line of a unit can hold it.
    """
    if _PLAIN.fullmatch(path):
        return path
    # `env` takes a word with an equals sign for a variable.
    if "=" in path or not path.replace("\t", "").isprintable():
        message = f"the path of the interpreter cannot stand in a unit: {path!r}"
        raise Failure(exits.BAD_CONFIGURATION, "bad_configuration", message)
    # The first word is taken as it is in some respects, and may not hold a quote in any
    # notation; any other word may be anything.
    word = _within_quotes(path).replace("$", "$$").replace("\t", "\\t")
    return f'/usr/bin/env "{word}"'


def unit_path() -> Path:
    """Return where the user's service manager looks for it.

    Raises:
        Failure: there is no such place.
    """
    base = config_home()
    if base is None:
        message = "there is no place for a unit: no home directory is known"
        raise Failure(exits.BAD_CONFIGURATION, "bad_configuration", message, "set HOME")
    return base / "systemd/user/genagentd.service"


@click.option(
    "--user", is_flag=True, help="For this user, as it is without: the service is a user's."
)
@click.option("--print", "only_print", is_flag=True, help="Print the unit and write nothing.")
@click.option("--force", is_flag=True, help="Replace a unit that was changed.")
def install_service(user: bool, only_print: bool, force: bool) -> None:  # noqa: ARG001  # it is without
    """Write a systemd unit that runs the daemon for this user.

    Directories, a configuration and settings that the environment names are written into it.

    \b
    genagentd install-service
    systemctl --user daemon-reload
    systemctl --user enable --now genagentd
    """
    text, path = unit(), unit_path()
    if only_print:
        output().result(text.rstrip("\n"), unit=text, path=str(path), written=False)
        return
    right = _is_right(path, text)
    if not right:
        if not force and os.path.lexists(path):
            raise Failure(
                exits.REFUSED,
                "exists",
                f"{path} exists and is another one{_where_it_leads(path)}",
                "look at the difference, or replace it with --force",
                {"path": str(path)},
            )
        _write(path, text)
    said = f"{path} is right already; nothing was written" if right else f"wrote {path}"
    output().result(said, unit=text, path=str(path), written=not right)
    output().note(
        "now: systemctl --user daemon-reload && systemctl --user enable --now genagentd\n"
        "to run it without a login: loginctl enable-linger"
    )


def _is_right(path: Path, text: str) -> bool:
    """Whether the unit is there, directly or by a link; what is there need not be text."""
    try:
        return path.is_file() and path.read_bytes() == text.encode()
    except OSError as error:
        raise _not_written(path, error) from None


def _where_it_leads(path: Path) -> str:
    """Return a word on a link, such as the one of a unit that is masked."""
    return f" (a link to {path.readlink()})" if path.is_symlink() else ""


def _write(path: Path, text: str) -> None:
    """Write the file whole or not at all, in the place of what is there, and touch no other."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        make_all(path.parent)
        new.touch(exist_ok=False)
    except OSError as error:
        raise _not_written(path, error) from None
    try:
        # Whatever the umask, the service manager of this user has to read it.
        new.chmod(stat.S_IMODE(new.stat().st_mode) | 0o600)
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> Failure:
    text = f"{path} cannot be written: {error.strerror}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            hint = "free some space there"
        case errno.EROFS:
            hint = "put it where systemd looks, too: genagentd install-service --print"
        case _:
            # It may be a directory above it.
            text = f"{text} ({error.filename or path})"
            hint = "put it there yourself from: genagentd install-service --print"
    return Failure(exits.FAILED, "not_written", text, hint)
