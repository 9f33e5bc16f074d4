"""`genagent logs`: what one agent printed, and what it prints from now on.

The files are read directly, so that the last words of an agent can be read when it,
or the daemon, is gone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

import click

from genagent_protocol.plain import Plain
from genagentd.cli import exits
from genagentd.cli.agents import app, name_argument
from genagentd.cli.exits import Failure
from genagentd.cli.program import command, output
from genagentd.cli.values import shown
from genagentd.paths import directory_name, places

#: How often a followed file is looked at.
_LOOK_S = 0.2


@command(app, "logs")
@name_argument()
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="INTEGER",
    help="How many lines of its end.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes; Ctrl-C ends it.")
def logs(name: Plain, lines: int, follow: bool) -> None:
    """Show what an agent printed (its standard output and error).

    \b
    genagent logs coder -n 20 -f
    """
    path = newest(name)
    with path.open("rb") as file:
        for line in _last(path, file, lines):
            _show(name, line)
        if follow:
            _follow(name, path, file)


def newest(name: Plain) -> Path:
    """Return the log of the newest incarnation of that name.

    Raises:
        Failure: there is none.
    """
    directory = places().logs / directory_name(name)
    found = sorted(directory.glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        raise Failure(
            exits.NO_SUCH_AGENT,
            "not_found",
            f"no agent named {shown(name)} has a log in {directory}",
            "see which agents there are with: genagent list",
        )
    return found[-1]


def _last(path: Path, file: BinaryIO, count: int) -> deque[bytes]:
    kept: deque[bytes] = deque(maxlen=count)
    before = path.with_suffix(".log.1")
    if before.exists():
        with before.open("rb") as older:
            kept.extend(older)
    kept.extend(file)
    return kept


def _show(name: Plain, line: bytes) -> None:
    text = line.decode("utf-8", "replace")
    if output().as_json:
        output().object({"agent": name, "line": text.rstrip("\n")})
    else:
        output().text(text)


def _follow(name: Plain, path: Path, file: BinaryIO) -> None:
    """Show what is appended; when the file was moved aside, go on with the new one."""
    with contextlib.ExitStack() as opened:
        while True:
            moved = not _is_there(path, file)
            _show_complete(name, file)
            if moved:
                if not path.exists():
                    return
                file = opened.enter_context(path.open("rb"))
            else:
                time.sleep(_LOOK_S)


def _is_there(path: Path, file: BinaryIO) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _show_complete(name: Plain, file: BinaryIO) -> None:
    while line := file.readline():
        if not line.endswith(b"\n"):
            # The rest of this line is not written yet.
            file.seek(-len(line), os.SEEK_CUR)
            return
        _show(name, line)
