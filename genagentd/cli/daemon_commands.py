"""The program `genagentd`: run, start, stop and look at the daemon.

The frozen core of the protocol is all that `stop` and `status` need, so that they
work on a daemon of any version.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genagent_protocol.envelopes import CoreState
from genagent_protocol.errors import (
    CallTimeout,
    DaemonLost,
    GenAgentError,
    NotReachable,
    UsageError,
)
from genagentd import kernel
from genagentd.cli import exits
from genagentd.cli.exits import Failure
from genagentd.cli.output import duration
from genagentd.cli.program import CONTEXT, command, flags, output
from genagentd.cli.service_unit import install_service
from genagentd.cli.standing import in_trouble, troubles
from genagentd.cli.values import seconds, seconds_or_none
from genagentd.cli.versions import show_version, version_option
from genagentd.paths import Places, check_private, make_private, open_log, places

if TYPE_CHECKING:
    from genagent_protocol.answers import AgentRow
    from genagentd.daemon.lock import Holder

#: How often a detached daemon or its end is looked for.
_LOOK_S = 0.02
#: How long a daemon that may be there is asked for at least, however little time is left.
_ASK_S = 0.1
#: How long after the first signal the second one is no echo of it any more.
_FORCE_AFTER_S = 0.5
#: Lines of the daemon's log that explain why it did not start.
_TAIL_LINES = 12


@click.group(context_settings=CONTEXT, no_args_is_help=False)
@version_option
def app() -> None:
    """Supervise long-running LLM agents, one process for each.

    \b
    genagentd start          start the daemon in the background
    genagentd status         who it is and how it is
    genagentd stop           let it end, and its agents with it
    """


flags(app)


@command(app, "run")
@click.option("--config", type=click.Path(path_type=Path), help="Configuration (TOML).")
@click.option(
    "--log-format", type=click.Choice(["auto", "console", "json"]), help="How to log to stderr."
)
@click.option(
    "--grace",
    type=seconds_or_none,
    metavar="S",
    help="Seconds the end may take; the last 2 (or half) are for stopping who is still in a turn.",
)
@click.option("--start-method", type=click.Choice(["forkserver", "spawn"]), hidden=True)
def run(config: Path | None, log_format: Any, grace: float | None, start_method: Any) -> int:
    """Run the daemon in the foreground until it is told to end (SIGTERM, Ctrl-C).

    \b
    genagentd run --log-format console
    """
    from genagentd.config import BadConfiguration, Config, load
    from genagentd.daemon.service import AlreadyRunning, serve

    flags = {
        "log_format": log_format,
        "grace_ms": None if grace is None else round(grace * 1000),
        "start_method": start_method,
    }
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}

    def configured() -> Config:
        return dataclasses.replace(load(config), **given)

    try:
        return serve(places(), configured(), configured)
    except AlreadyRunning as error:
        raise Failure(
            exits.REFUSED, "already_running", error.fact, error.hint, {"pid": error.pid}
        ) from None
    except (BadConfiguration, UsageError) as error:
        raise Failure(exits.BAD_CONFIGURATION, "bad_configuration", str(error)) from None


@command(app, "start")
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
    from genagentd.daemon.lock import holder, listener

    where = places()
    # Also where somebody listens already: in a directory of another user that is none of ours.
    for directory in (where.run, where.state):
        check_private(directory)
    deadline = time.monotonic() + timeout
    begun: subprocess.Popen[bytes] | None = None
    state: CoreState | None = None
    ending: Holder | None = None
    while True:
        # One that found another daemon there ends; and that one may have ended since.
        if (begun is None or begun.poll() == exits.REFUSED) and _is_free(where, deadline):
            begun, state, ending = _spawn(where, config), None, None
        # One that is known to end is looked at only; it has better things to do than to say so.
        if ending is None or not ending.alive:
            state = _ask_core(where, max(_left_s(deadline), _ASK_S))
            if state is not None and not state.draining:
                break
            if state is not None:
                # Another one may have taken its place already; that one is asked.
                found = holder(where, within_s=0) or listener(where, _left_s(deadline))
                ending = found if _pid(found) == state.pid else None
            elif _was_hidden(where, begun):
                raise _silent(where, deadline)
        code = None if begun is None else begun.poll()
        if code is not None and code != exits.REFUSED:
            raise _ended(where, code)
        if time.monotonic() >= deadline:
            raise (
                _late(where, deadline, begun)
                if state is None
                else _ending(where, state.pid, timeout)
            )
        time.sleep(_LOOK_S)
    ours = begun is not None and begun.pid in (state.pid, _parent(state.pid))
    text = f"{'running' if ours else 'already running'} (pid {state.pid})"
    output().done = text
    output().result(text, pid=state.pid, started=ours, run_dir=str(where.run))


def _is_free(where: Places, deadline: float) -> bool:
    """Whether no daemon is there, not even one whose lock somebody removed."""
    from genagentd.daemon.lock import is_locked, listener

    return not is_locked(where) and listener(where, _left_s(deadline)) is None


def _was_hidden(where: Places, begun: subprocess.Popen[bytes] | None) -> bool:
    """Whether who holds the lock listens where nobody finds it: waiting would change nothing."""
    from genagentd.cli.unseen import listens_unseen
    from genagentd.daemon.lock import holder

    if begun is not None and begun.poll() is None:
        return False
    return listens_unseen(where.socket, _pid(holder(where, within_s=0)))


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


def _ended(where: Places, code: int) -> Failure:
    tail = _tail(where.daemon_log)
    return Failure(
        exits.BAD_CONFIGURATION if code == exits.BAD_CONFIGURATION else exits.FAILED,
        "start_failed",
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


def _late(where: Places, deadline: float, begun: subprocess.Popen[bytes] | None) -> Failure:
    """Return why no daemon answered in time; who is named is there."""
    if begun is not None and begun.poll() is None:
        return _slow(where, begun.pid)
    if _is_free(where, deadline):
        return Failure(
            exits.NOT_REACHABLE,
            "not_reachable",
            f"no daemon runs in {where.run}: the one that was there ended, and no time was left "
            "to start another",
            "try it again; --timeout gives it more",
        )
    return _silent(where, deadline)


def _slow(where: Places, begun: int) -> Failure:
    """Return how a start ends that was too slow; the process *begun* becomes the guardian."""
    from genagentd.daemon.lock import holder

    found = _pid(holder(where, within_s=0))
    if found is not None and begun not in (found, _parent(found)):
        found = None  # It is another one's.
    who = f"its guardian is pid {begun}" if found is None else f"pid {found}"
    return Failure(
        exits.PENDING,
        "starting",
        f"the daemon in {where.run} does not answer yet; it goes on starting ({who})",
        f"look at it with: genagentd status; see {where.daemon_log}",
        {"pid": found, "guardian": begun, "log": _tail(where.daemon_log)},
    )


def _silent(where: Places, deadline: float) -> Failure:
    from genagentd.cli.unseen import listens_unseen
    from genagentd.daemon.lock import holder

    pid = _pid(holder(where, _left_s(deadline)))
    if pid is not None and listens_unseen(where.socket, pid):
        return _hidden(where, pid, "genagentd stop")
    return _not_answering(
        where, pid, "does not answer", f"see {where.daemon_log}{_last_resort(pid)}"
    )


def _hidden(where: Places, pid: int, end: str) -> Failure:
    """Return how a command fails whose daemon runs where nobody finds it; *end* ends that."""
    why = f"cannot be reached: its socket {where.socket} was removed"
    again = f"have it make that anew with: kill -HUP {pid}, or end it with: {end}"
    return _not_answering(where, pid, why, again)


def _not_answering(where: Places, pid: int | None, why: str, hint: str) -> Failure:
    return Failure(
        exits.NOT_REACHABLE,
        "not_answering",
        f"the daemon in {where.run} ({_who(pid)}) {why}; nothing was changed",
        hint,
        {"pid": pid, "log": _tail(where.daemon_log)},
    )


def _lost(where: Places) -> Failure | None:
    """Return that a daemon runs whose lock is gone with its socket, if that is so."""
    from genagentd.cli.unseen import unseen_listener

    pid = _pid(unseen_listener(where.socket))
    return None if pid is None else _hidden(where, pid, f"kill {pid}")


def _last_resort(pid: int | None) -> str:
    """Return how to be rid of a daemon that listens to no request, if it is known who it is."""
    if pid is None:
        return ""
    return f"; if nothing happens there, end it with: kill -9 {pid}; then: genagentd start"


def _left_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0)


def _who(pid: int | None) -> str:
    return "whose pid is not known" if pid is None else f"pid {pid}"


def _ask_core(where: Places, within_s: float) -> CoreState | None:
    from genagentd.client.core import core_state

    try:
        return core_state(where.socket, round(within_s * 1000))
    except (NotReachable, DaemonLost, CallTimeout):
        return None


def _tail(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return []


@command(app, "stop")
@click.option(
    "--timeout", type=seconds, default=60.0, metavar="S", help="Seconds to wait for its end."
)
@click.option("--force", is_flag=True, help="Do not let agents finish what they do.")
def stop(timeout: float, force: bool) -> None:
    """Let the daemon end, and its agents with it, and wait until it is gone."""
    from genagentd.client.core import stop_daemon
    from genagentd.daemon.lock import holder, is_locked, listener

    where = places()
    deadline = time.monotonic() + timeout
    locked = is_locked(where)
    # Somebody may have removed the lock of one that can be reached, or written into it.
    named = holder(where, within_s=0)
    found = named or listener(where, _left_s(deadline))
    if not locked and found is None:
        raise _lost(where) or Failure(
            exits.NOT_REACHABLE,
            "not_reachable",
            f"no daemon runs in {where.run}; there is nothing to stop",
        )
    signals = []
    try:
        stop_daemon(where.socket, round(_left_s(deadline) * 1000), force=force)
    except DaemonLost:
        pass  # If it ends before it can answer, that is what was wanted.
    except CallTimeout:
        pass  # It was asked; that it is still there is said below.
    except NotReachable:
        if not locked:
            raise
        if time.monotonic() > deadline:
            raise _silent(where, deadline) from None
        found = named = named or holder(where, _left_s(deadline))
        if named is None:
            raise _silent(where, deadline) from None
        # It holds the lock, so it is there. A second signal means force, if it is no echo.
        signals = [time.monotonic() + after_s for after_s in (0.0, _FORCE_AFTER_S)[: 1 + force]]
    pid = _pid(found)
    # Of one that is known, only its own end counts: another one may have the lock already.
    known = pid is not None
    while (found := _look_again(where, found)) is not None or (not known and is_locked(where)):
        pid = _pid(found) or pid
        if named is not None and signals and time.monotonic() >= signals[0]:
            del signals[0]
            _ask_to_end(named.pid, named.started_ticks)
        if time.monotonic() > deadline:
            raise _ending(where, pid, timeout, forced=force)
        time.sleep(_LOOK_S)
    output().result(f"stopped ({_who(pid)})", pid=pid, forced=force)


def _ending(where: Places, pid: int | None, after_s: float, *, forced: bool = False) -> Failure:
    at_once = "end it at once with: genagentd stop --force"
    return Failure(
        exits.PENDING,
        "stopping",
        f"the daemon ({_who(pid)}) is still ending after {after_s:g} s",
        f"see {where.daemon_log}{_last_resort(pid)}" if forced else at_once,
        {"pid": pid},
    )


def _pid(found: Holder | None) -> int | None:
    return None if found is None else found.pid or None


def _look_again(where: Places, found: Holder | None) -> Holder | None:
    """Return who was found there if it still is; one of unknown number is who listens there."""
    from genagentd.daemon.lock import listener

    if found is not None and found.pid == 0:
        return listener(where, within_s=0)
    return found if found is not None and found.alive else None


def _ask_to_end(pid: int, ticks: int) -> None:
    """Send SIGTERM to exactly that process."""
    pidfd = kernel.open_pidfd(pid)
    if pidfd is not None:
        try:
            if kernel.started_ticks(pid) == ticks:
                kernel.signal_pidfd(pidfd, signal.SIGTERM)
        finally:
            os.close(pidfd)


@command(app, "status")
@click.option(
    "--timeout", type=seconds, default=5.0, metavar="S", help="Seconds to wait for an answer."
)
def status(timeout: float) -> None:
    """Say who the daemon is and how it is; exit 7 when there is none."""
    from genagentd.client.core import core_state
    from genagentd.daemon.lock import is_locked

    where = places()
    deadline = time.monotonic() + timeout
    try:
        state = core_state(where.socket, round(timeout * 1000))
    except (NotReachable, CallTimeout):
        if is_locked(where):
            raise _silent(where, deadline) from None
        lost = _lost(where)
        if lost is not None:
            raise lost from None
        raise
    rows = _rows(where, deadline)
    removed = kernel.writes_removed(state.pid)
    how = "draining" if state.draining else "ready" if state.ready else "not ready"
    output().result(
        f"{how}, pid {state.pid}, up {duration(state.uptime_ms)}, "
        f"{_counted(state.agents, 'agent')}{in_trouble(rows)}, "
        f"{_counted(state.clients, 'client')}, genagentd {state.software}\n"
        f"directory {where.run}, logs {where.logs}"
        + (f"\nits log was removed; have it begin anew with: kill -HUP {state.pid}" * removed),
        pid=state.pid,
        ready=state.ready,
        draining=state.draining,
        agents=state.agents,
        **troubles(rows),
        clients=state.clients,
        uptime_ms=state.uptime_ms,
        bad_frames=state.bad_frames,
        boot=state.boot,
        software=state.software,
        run_dir=str(where.run),
        log_dir=str(where.logs),
        log_removed=removed,
    )


def _rows(where: Places, deadline: float) -> tuple[AgentRow, ...] | None:
    """Return what the daemon knows of its agents, if it speaks our version and says so in time."""
    from genagentd.client.client import Client

    try:
        with Client(where.run).connect(_left_ms(deadline)) as client:
            return client.list(_left_ms(deadline))
    except GenAgentError:
        return None


def _left_ms(deadline: float) -> int:
    return max(round(_left_s(deadline) * 1000), 1)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@command(app, "version")
def version() -> None:
    """Say which version this is, and which the daemon is."""
    show_version()


command(app, "install-service")(install_service)
