"""A disk that is full or takes no writes is named as that, whatever was to be made there."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from genagentd.daemon import lock
from genagentd.daemon.logs import Log
from genagentd.paths import Places, make_private, open_log
from genagentd.socket_path import UnusablePlace
from genagentd.unusable import NoRoom

FULL = "free some space there"
OTHER = "choose another directory with GENAGENT_RUN_DIR or GENAGENT_STATE_DIR"
MORE = "allow more (ulimit -n)"


async def _directory(run: Path) -> None:
    make_private(run / "made")


async def _log(run: Path) -> None:
    open_log(run / "a.log")


async def _lock(run: Path) -> None:
    lock.take(Places(run, run))


async def _agents_log(run: Path) -> None:
    Log(run / "logs" / "a" / "1.log")


#: What is made, and the call of the system that fails then.
MADE: dict[str, tuple[Callable[[Path], Awaitable[None]], Any, str]] = {
    "a directory": (_directory, Path, "mkdir"),
    "a log": (_log, os, "open"),
    "a lock": (_lock, os, "open"),
    "what a lock says": (_lock, os, "pwrite"),
    "the lock on a lock": (_lock, fcntl, "flock"),
    "the directory of a log": (_agents_log, Path, "mkdir"),
}


@pytest.mark.parametrize("what", MADE)
@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.ENOSPC, NoRoom, FULL),
        (errno.EDQUOT, NoRoom, FULL),
        (errno.EMFILE, NoRoom, MORE),
        (errno.ENFILE, NoRoom, MORE),
        (errno.EROFS, UnusablePlace, OTHER),
    ],
)
async def test_what_the_disk_is_to_blame_for_is_not_blamed_on_what_is_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    number: int,
    kind: type[Exception],
    remedy: str,
) -> None:
    """'Remove what is there' was said of a full disk, and would have removed the log."""
    make, module, call = MADE[what]

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, call, refuse)

    with pytest.raises(kind) as refused:
        await make(tmp_path)

    monkeypatch.undo()
    told = str(refused.value)
    assert told.startswith((str(tmp_path), f"the directory {tmp_path}"))
    assert told.endswith(f": {os.strerror(number)}; {remedy}") or remedy == MORE
    assert remedy in told
    assert "remove" not in told
