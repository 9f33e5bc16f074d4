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
from genagentd.sendable import agent_name
from genagentd.socket_path import UnusablePlace
from genagentd.unusable import OTHER, NoRoom, unusable

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
def logs(name: object, lines: int, follow: bool) -> None:
    """Show what an agent printed (its standard output and error).

    \b
    genagent logs coder -n 20 -f
    """
    # As the daemon has it: its list and its map are no others than these, but of other types.
    name = agent_name(name)
    path = newest(name)
    file = _opened(path)
    if file is None:
        raise _none(name, path.parent)
    with file:
        for line in _last(path, file, lines):
            _show(name, line)
        if follow:
            _follow(name, path, file)


def newest(name: Plain) -> Path:
    """Return the log of the newest incarnation of that name.

    Raises:
        Failure: there is none.
        UnusablePlace: we may not look.
    """
    directory = places().logs / directory_name(name)
    found: list[tuple[int, Path]] = []
    try:
        for path in directory.iterdir():
            # The daemon forgets the oldest ones meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if path.suffix == ".log":
                    found.append((path.stat().st_mtime_ns, path))
    except (FileNotFoundError, NotADirectoryError):
        pass  # It never printed anything here.
    except OSError as error:
        raise _unreadable(directory, error) from None
    if not found:
        raise _none(name, directory)
    return max(found)[1]


def _none(name: Plain, directory: Path) -> Failure:
    return Failure(
        exits.NO_SUCH_AGENT,
        "not_found",
        f"no agent named {shown(name)} has a log in {directory}",
        "see which agents there are with: genagent list",
    )


def _opened(path: Path) -> BinaryIO | None:
    """Return the file, or None if it is not there any more.

    Raises:
        UnusablePlace: we may not read it.
    """
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> UnusablePlace | NoRoom:
    return unusable(f"{path} cannot be read", error, f"look there as its owner, or {OTHER}")


def _last(path: Path, file: BinaryIO, count: int) -> deque[bytes]:
    kept: deque[bytes] = deque(maxlen=count)
    older = _opened(path.with_suffix(".log.1"))
    if older is not None:
        with older:
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
                new = _opened(path)
                if new is None:
                    return
                file = opened.enter_context(new)
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
