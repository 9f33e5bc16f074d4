"""`genagentd install-service`: the daemon under the user's systemd, which starts and watches it.

The unit's control group does what the guardian does elsewhere: whatever the daemon
leaves behind ends with it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from genagentd.cli import exits
from genagentd.cli.exits import Failure
from genagentd.cli.program import output

#: More than the grace agents get, or the service manager would cut it short.
STOP_TIMEOUT_S = 45
WATCHDOG_S = 30

_UNIT = """\
[Unit]
Description=Supervisor of LLM agents (genagentd)

[Service]
Type=notify
# Only the daemon itself may say that it is ready; agents are its children.
NotifyAccess=main
ExecStart={python} -P -m genagentd run --log-format json
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
UMask=0077
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
        python=_escaped(sys.executable),
        watchdog=WATCHDOG_S,
        stop_timeout=STOP_TIMEOUT_S,
        already_running=exits.REFUSED,
        bad_configuration=exits.BAD_CONFIGURATION,
    )


def _escaped(path: str) -> str:
    """Return *path* as one word of a command line of systemd."""
    doubled = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{doubled}"' if " " in doubled else doubled


def unit_path() -> Path:
    """Return where the user's service manager looks for it."""
    base = os.environ.get("XDG_CONFIG_HOME")
    config = Path(base) if base else Path.home() / ".config"
    return config / "systemd/user/genagentd.service"


@click.option("--print", "only_print", is_flag=True, help="Print the unit and write nothing.")
@click.option("--force", is_flag=True, help="Replace a unit that was changed.")
def install_service(only_print: bool, force: bool) -> None:
    """Write a systemd unit that runs the daemon for this user.

    \b
    genagentd install-service
    systemctl --user daemon-reload
    systemctl --user enable --now genagentd
    """
    text, path = unit(), unit_path()
    if only_print:
        output().result(text.rstrip("\n"), unit=text, path=str(path), written=False)
        return
    if path.exists() and path.read_text(encoding="utf-8") != text and not force:
        raise Failure(
            exits.REFUSED,
            "exists",
            f"{path} exists and is another one",
            "look at the difference, or replace it with --force",
            {"path": str(path)},
        )
    _write(path, text)
    output().result(f"wrote {path}", unit=text, path=str(path), written=True)
    output().note(
        "now: systemctl --user daemon-reload && systemctl --user enable --now genagentd\n"
        "to run it without a login: loginctl enable-linger"
    )


def _write(path: Path, text: str) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
