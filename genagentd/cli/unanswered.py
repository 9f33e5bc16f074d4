"""What is said of a daemon that is there and does not do in time what a command waits for.

Whoever is told so learns who it is, that nothing was changed, and what to do next; no such
answer refers to another command that does not know further either.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from genagentd.cli import exits
from genagentd.cli.exits import Failure
from genagentd.paths import Places

if TYPE_CHECKING:
    from genagentd.daemon.lock import Holder

#: Lines of the daemon's log that may explain it.
_TAIL_LINES = 12


def silent(where: Places, deadline: float) -> Failure:
    """Return how a command fails whose daemon holds the lock and says nothing."""
    from genagentd.daemon.lock import holder

    pid = pid_of(holder(where, left_s(deadline)))
    return unseen(where, pid) or _not_answering(
        where, pid, "does not answer", f"see {_said_in(where, pid)}{_last_resort(pid)}"
    )


def unseen(where: Places, pid: int | None) -> Failure | None:
    """Return that the daemon *pid*, which holds the lock, cannot be found, if that is so."""
    from genagentd.cli.unseen import listens_unseen

    if pid is None or not listens_unseen(where.socket, pid):
        return None
    return _hidden(where, pid, "genagentd stop")


def _hidden(where: Places, pid: int, end: str) -> Failure:
    """Return how a command fails whose daemon runs where nobody finds it; *end* ends that."""
    why = f"cannot be reached: its socket {where.socket} was removed"
    again = f"have it make that anew with: kill -HUP {pid}, or end it with: {end}"
    return _not_answering(where, pid, why, again)


def _not_answering(where: Places, pid: int | None, why: str, hint: str) -> Failure:
    return Failure(
        exits.NOT_REACHABLE,
        "not_answering",
        f"the daemon in {where.run} ({who(pid)}) {why}; nothing was changed",
        hint,
        {"pid": pid, "log": tail_of(where.daemon_log) if _logs_there(where, pid) else []},
    )


def lost(where: Places) -> Failure | None:
    """Return that a daemon runs whose lock is gone with its socket, if that is so."""
    from genagentd.cli.unseen import unseen_listener

    pid = pid_of(unseen_listener(where.socket))
    return None if pid is None else _hidden(where, pid, f"kill {pid}")


def _said_in(where: Places, pid: int | None) -> str:
    """Return where to look for what the daemon *pid* says: not every one has a log file."""
    if _logs_there(where, pid):
        return str(where.daemon_log)
    found = _standard_error(pid)
    if found.startswith("socket:"):
        return "its log with: journalctl --user -u genagentd"
    return found if os.path.isabs(found) else "its standard error"


def _logs_there(where: Places, pid: int | None) -> bool:
    """Whether it logs into the file that is kept for it; who cannot be asked does."""
    return _standard_error(pid) in ("", os.path.realpath(where.daemon_log))


def _standard_error(pid: int | None) -> str:
    """Return what the standard error of *pid* is, empty if that is not known."""
    try:
        return os.readlink(f"/proc/{pid}/fd/2").removesuffix(" (deleted)")
    except OSError:
        return ""


def _last_resort(pid: int | None) -> str:
    """Return how to be rid of a daemon that listens to no request, if it is known who it is."""
    if pid is None:
        return ""
    return f"; if nothing happens there, end it with: kill -9 {pid}; then: genagentd start"


def still_ending(
    where: Places, pid: int | None, after_s: float, *, forced: bool = False
) -> Failure:
    """Return how a command fails whose daemon ends, and was waited for as long as allowed."""
    at_once = "end it at once with: genagentd stop --force"
    return Failure(
        exits.PENDING,
        "stopping",
        f"the daemon ({who(pid)}) is still ending after {after_s:g} s",
        f"see {_said_in(where, pid)}{_last_resort(pid)}" if forced else at_once,
        {"pid": pid},
    )


def left_s(deadline: float) -> float:
    """Return the seconds until *deadline*, 0 at least."""
    return max(deadline - time.monotonic(), 0)


def who(pid: int | None) -> str:
    """Return how a process is named in a sentence."""
    return "whose pid is not known" if pid is None else f"pid {pid}"


def pid_of(found: Holder | None) -> int | None:
    """Return its pid, if there is one and it is known."""
    return None if found is None else found.pid or None


def tail_of(log: Path, begins_bytes: int = 0) -> list[str]:
    """Return the last lines of what stands in *log* behind its first *begins_bytes*."""
    try:
        with log.open("rb") as file:
            # One that is shorter now is another file.
            file.seek(begins_bytes if os.fstat(file.fileno()).st_size >= begins_bytes else 0)
            return file.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return []
