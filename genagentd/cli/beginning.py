"""`genagentd start`: a daemon in the background, begun where none is, that answers in the end.

Whoever is there already is asked first; one that is ending is waited for, and another one
begun then. What was begun may find that somebody was faster, and ends by itself.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genagent_protocol.envelopes import CoreState
from genagent_protocol.errors import CallTimeout, DaemonLost, NotReachable, UsageError
from genagentd import kernel
from genagentd.cli import exits
from genagentd.cli.exits import Failure
from genagentd.cli.program import output
from genagentd.cli.unanswered import left_s, lost, pid_of, silent, still_ending, tail_of
from genagentd.cli.values import seconds
from genagentd.paths import Places, check_private, make_private, open_log, places

if TYPE_CHECKING:
    from genagentd.daemon.lock import Holder

#: How often a daemon that was begun is looked for.
_LOOK_S = 0.02
#: How long a daemon that may be there is asked for at least, however little time is left.
_ASK_S = 0.1


@click.option(
    "--timeout",
    type=seconds,
    default=30.0,
    metavar="S",
    help="Seconds to wait for it to answer.",
)
@click.option("--config", type=click.Path(path_type=Path), help="Configuration (TOML).")
def start(timeout: float, config: Path | None) -> None:
    """Start the daemon in the background and wait until it answers.

    When one is running already, that is fine too. One that is ending is waited for, and another
    one is started then; if it takes longer than --timeout, that is `stopping`, exit 5.
    """
    from genagentd.daemon.lock import holder, is_locked, listener

    where = places()
    # Also where somebody listens already: in a directory of another user that is none of ours.
    for directory in (where.run, where.state):
        check_private(directory)
    deadline = time.monotonic() + timeout
    if (hidden := lost(where)) is not None and not is_locked(where):
        raise hidden
    begun: subprocess.Popen[bytes] | None = None
    #: What stood in the log before it was begun is about others.
    log_bytes = 0
    state: CoreState | None = None
    ending: Holder | None = None
    while True:
        # One that found another daemon there ends; and that one may have ended since.
        if (begun is None or begun.poll() == exits.REFUSED) and _is_free(where, deadline):
            log_bytes = _size(where.daemon_log)
            begun, state, ending = _spawn(where, config), None, None
        # One that is known to end is looked at only; it has better things to do than to say so.
        if ending is None or not ending.alive:
            state = _ask_core(where, max(left_s(deadline), _ASK_S))
            if state is not None and not state.draining:
                break
            if state is not None:
                # Another one may have taken its place already; that one is asked.
                found = holder(where, within_s=0) or listener(where, left_s(deadline))
                ending = found if pid_of(found) == state.pid else None
            elif _was_hidden(where, begun):
                raise silent(where, deadline)
        code = None if begun is None else begun.poll()
        if code is not None and code != exits.REFUSED:
            raise _ended(where, code, log_bytes)
        if time.monotonic() >= deadline:
            raise (
                _late(where, deadline, begun, log_bytes)
                if state is None
                else still_ending(where, state.pid, timeout)
            )
        time.sleep(_LOOK_S)
    ours = begun is not None and begun.pid in (state.pid, _parent(state.pid))
    text = f"{'running' if ours else 'already running'} (pid {state.pid})"
    output().done = text
    output().result(text, pid=state.pid, started=ours, run_dir=str(where.run))


def _is_free(where: Places, deadline: float) -> bool:
    """Whether no daemon is there, not even one whose lock somebody removed."""
    from genagentd.daemon.lock import is_locked, listener

    return not is_locked(where) and listener(where, left_s(deadline)) is None


def _was_hidden(where: Places, begun: subprocess.Popen[bytes] | None) -> bool:
    """Whether who holds the lock listens where nobody finds it: waiting would change nothing."""
    from genagentd.cli.unseen import listens_unseen
    from genagentd.daemon.lock import holder

    if begun is not None and begun.poll() is None:
        return False
    return listens_unseen(where.socket, pid_of(holder(where, within_s=0)))


def _parent(pid: int) -> int | None:
    found = kernel.stat(pid)
    return None if found is None else found.parent


def _spawn(where: Places, config: Path | None) -> subprocess.Popen[bytes]:
    from genagentd.config import BadConfiguration, absolute

    try:
        named = [] if config is None else ["--config", str(absolute(config))]
        make_private(where.run)
        make_private(where.state)
        make_private(where.logs)
        log = open_log(where.daemon_log)
    except (BadConfiguration, UsageError) as error:
        raise Failure(exits.BAD_CONFIGURATION, "bad_configuration", str(error)) from None
    # Safe path: what lies in the directory it runs in must not be imported.
    arguments = [sys.executable, "-P", "-m", "genagentd", "run", *named]
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            # It is nobody's service: a guardian of its own must do what a unit would.
            env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            start_new_session=True,
        )
    except OSError as error:
        raise Failure(
            exits.FAILED, "start_failed", f"{sys.executable} cannot be run: {error.strerror}"
        ) from None
    finally:
        os.close(log)


def _size(log: Path) -> int:
    try:
        return log.lstat().st_size
    except OSError:
        return 0


def _ended(where: Places, code: int, log_bytes: int) -> Failure:
    tail = tail_of(where.daemon_log, log_bytes)
    unusable = code == exits.BAD_CONFIGURATION
    return Failure(
        exits.BAD_CONFIGURATION if unusable else exits.FAILED,
        "bad_configuration" if unusable else "start_failed",
        f"the daemon ended with status {code}: {tail[-1] if tail else _why_silent(where)}",
        f"see {where.daemon_log}",
        {"exit_code": code, "log": tail},
    )


def _why_silent(where: Places) -> str:
    """Return why the log may be empty."""
    with contextlib.suppress(OSError):
        if os.statvfs(where.logs).f_bavail == 0:
            return f"no space is left in {where.logs}"
    return "it wrote nothing"


def _late(
    where: Places, deadline: float, begun: subprocess.Popen[bytes] | None, log_bytes: int
) -> Failure:
    """Return why no daemon answered in time; who is named is there."""
    if begun is not None and begun.poll() is None:
        return _slow(where, begun.pid, log_bytes)
    if _is_free(where, deadline):
        return Failure(
            exits.NOT_REACHABLE,
            "not_reachable",
            f"no daemon runs in {where.run}: the one that was there ended, and no time was left "
            "to start another",
            "try it again; --timeout gives it more",
        )
    return silent(where, deadline)


def _slow(where: Places, begun: int, log_bytes: int) -> Failure:
    """Return how a start ends that was too slow; the process *begun* becomes the guardian."""
    from genagentd.daemon.lock import holder

    found = pid_of(holder(where, within_s=0))
    if found is not None and begun not in (found, _parent(found)):
        found = None  # It is another one's.
    who = f"its guardian is pid {begun}" if found is None else f"pid {found}"
    return Failure(
        exits.PENDING,
        "starting",
        f"the daemon in {where.run} does not answer yet; it goes on starting ({who})",
        f"look at it with: genagentd status; see {where.daemon_log}",
        {"pid": found, "guardian": begun, "log": tail_of(where.daemon_log, log_bytes)},
    )


def _ask_core(where: Places, within_s: float) -> CoreState | None:
    from genagentd.client.core import core_state

    try:
        return core_state(where.socket, round(within_s * 1000))
    except (NotReachable, DaemonLost, CallTimeout):
        return None
