"""`genagent logs`: what one agent printed, in which of its lives, and what it prints from now on.

The files are read directly, so that the last words of an agent can be read when it,
or the daemon, is gone.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from genagent_protocol.errors import GenAgentError
from genagent_protocol.plain import Plain
from genagentd.cli import exits
from genagentd.cli.agents import app, connected, known_rows, name_argument
from genagentd.cli.exits import Failure
from genagentd.cli.program import command, output
from genagentd.cli.values import shown
from genagentd.paths import directory_name, places
from genagentd.sendable import agent_name
from genagentd.socket_path import UnusablePlace
from genagentd.unusable import OTHER, NoRoom, unusable

#: How often a followed file is looked at.
_LOOK_S = 0.2
#: More lines, or lives, than any log has; what is still more overflows a queue.
_MOST = 1_000_000_000
#: How long the daemon is asked who the latest life is.
_ASK_S = 1.0


@command(app, "logs")
@name_argument()
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0, max=_MOST),
    default=100,
    show_default=True,
    metavar="INTEGER",
    help="How many lines of its end.",
)
@click.option(
    "--lives",
    type=click.IntRange(min=1, max=_MOST),
    default=1,
    show_default=True,
    metavar="INTEGER",
    help="Of how many of its latest lives; a restart begins one, and each has a log.",
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Go on with what comes, also from the next life; Ctrl-C ends it.",
)
def logs(name: object, lines: int, lives: int, follow: bool) -> None:
    """Show what an agent printed (its standard output and error).

    That is its latest life that said anything, which a note names where a later one was silent.
    With --lives a silent life counts as any other.

    \b
    genagent logs coder -n 20 -f
    genagent logs coder --lives 2
    """
    # As the daemon has it: its list and its map are no others than these, but of other types.
    name = agent_name(name)
    every = _logs_of(name)
    spoken = [path for path in every if _said_anything(path)]
    chosen = every[-lives:] if lives > 1 else (spoken or every)[-1:]
    if not chosen:
        raise _none(name, _directory(name))
    *before, latest = chosen
    kept: deque[tuple[Path, bytes]] = deque(maxlen=lines)
    for path in before:
        # The daemon forgets the oldest ones meanwhile.
        if (file := _opened(path)) is not None:
            with file:
                kept.extend((path, line) for line in _lines(path, file))
    file = _opened(latest)
    if file is None:
        raise _none(name, latest.parent)
    with file:
        kept.extend((latest, line) for line in _lines(latest, file))
        _show_kept(name, kept, chosen)
        _say_which(name, every, spoken, chosen)
        if follow:
            _follow(name, latest, file)


def _say_which(name: Plain, every: list[Path], spoken: list[Path], chosen: list[Path]) -> None:
    """Say it where the latest of the lives shown is none that anybody would take it for."""
    if output().as_json:
        return  # Each line has its life there.
    shown_last, latest = chosen[-1], every[-1]
    if shown_last != latest:
        pid = _pid_of(latest)
        silent = (
            f"the latest, {latest.stem}, printed nothing"
            if pid is None
            else f"the present one, {latest.stem} (pid {pid}), has printed nothing"
        )
        output().note(f"this is an earlier life, {shown_last.stem}; {silent}")
    earlier = [path for path in spoken if path not in chosen]
    if earlier and (len(chosen) == 1 or not set(spoken) & set(chosen)):
        # Why it was started again is not in the log of the life that followed.
        told = f"--lives {len(every) - every.index(earlier[-1])} {shlex.quote(shown(name))}"
        output().note(f"an earlier life has a log, too; see: genagent logs {told}")


def _pid_of(latest: Path) -> int | None:
    """Return the process of the life of that log, if the daemon knows it and says so at once."""
    with contextlib.suppress(GenAgentError), connected(_ASK_S) as client:
        for row in known_rows(client):
            if row.handle is not None and str(row.handle.incarnation) == latest.stem:
                return row.handle.pid
    return None


def _directory(name: Plain) -> Path:
    return places().logs / directory_name(name)


def _logs_of(name: Plain) -> list[Path]:
    """Return the log of each incarnation of that name that has one, the newest last."""
    directory = _directory(name)
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
    # Of two at the same moment, the one with the higher number; of one daemon, numbers are alike.
    return [path for _, path in sorted(found, key=lambda each: (each[0], len(each[1].name), each))]


def _said_anything(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size > 0 or path.with_suffix(".log.1").exists()
    return False


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


def _opened_later(path: Path) -> BinaryIO | None:
    """Between two looks the log was moved aside, and its successor may be a moment away."""
    time.sleep(_LOOK_S)
    return _opened(path)


def _unreadable(path: Path, error: OSError) -> UnusablePlace | NoRoom:
    return unusable(f"{path} cannot be read", error, f"look there as its owner, or {OTHER}")


def _lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    before = path.with_suffix(".log.1")
    # Where something else stands in its place there is none; the log itself says what was lost.
    older = None if before.is_dir() else _opened(before)
    if older is not None:
        with older:
            yield from older
    yield from file


def _show_kept(name: Plain, kept: deque[tuple[Path, bytes]], chosen: list[Path]) -> None:
    """Show the lines, and a border before each further life, also before a silent one."""
    if not kept:
        return
    before = kept[0][0]
    for path in chosen[chosen.index(before) :]:
        if path != before:
            _show_border(path)
        for _, line in filter(lambda each: each[0] == path, kept):
            _show(name, path, line)


def _show_border(path: Path) -> None:
    """Say that what follows was printed in another life. In JSON each line says in which."""
    if not output().as_json:
        output().text(f"--- the next life: {path.stem}\n")


def _show(name: Plain, path: Path, line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip("\n")
    if output().as_json:
        output().object({"agent": name, "line": text, "incarnation": path.stem})
    else:
        output().text(f"{text}\n")


def _follow(name: Plain, path: Path, file: BinaryIO) -> None:
    """Show what is appended; go on where the log began anew, and with the next life."""
    with contextlib.ExitStack() as opened:
        while True:
            # Looked for before the rest is read: who has a successor writes no more.
            after = _next(name, path)
            moved = not _is_there(path, file)
            _show_complete(name, path, file)
            if after is None and not moved:
                time.sleep(_LOOK_S)
                continue
            if after is not None:
                _show_cut(name, path, file)
                path = after
                _show_border(path)
            new = _opened(path) or _opened_later(path)
            if new is None:
                output().note(f"{path} was removed; nothing more can be shown")
                return
            # A file that was moved aside takes room on the disk for as long as it is open.
            opened.close()
            file = opened.enter_context(new)


def _next(name: Plain, path: Path) -> Path | None:
    """Return the log of the life after the one of *path*, if there is one."""
    every = _logs_of(name)
    behind = every[every.index(path) + 1 :] if path in every else []
    return behind[0] if behind else None


def _is_there(path: Path, file: BinaryIO) -> bool:
    """Whether what is read is still the log: it may be moved aside, or emptied."""
    try:
        now = path.stat()
        return now.st_ino == os.fstat(file.fileno()).st_ino and now.st_size >= file.tell()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from None


def _show_complete(name: Plain, path: Path, file: BinaryIO) -> None:
    while line := file.readline():
        if not line.endswith(b"\n"):
            # The rest of this line is not written yet.
            file.seek(-len(line), os.SEEK_CUR)
            return
        _show(name, path, line)


def _show_cut(name: Plain, path: Path, file: BinaryIO) -> None:
    """Show what a daemon that was killed left of a line."""
    for line in file:
        _show(name, path, line)
