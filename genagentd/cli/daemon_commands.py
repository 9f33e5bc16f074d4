"""The program `genagentd`: run, start, stop and look at the daemon.

The frozen core of the protocol is all that `stop` and `status` need, so that they
work on a daemon of any version.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genagent_protocol.errors import (
    CallTimeout,
    DaemonLost,
    GenAgentError,
    NotReachable,
    UsageError,
)
from genagentd import kernel
from genagentd.cli import exits
from genagentd.cli.beginning import start
from genagentd.cli.exits import Failure
from genagentd.cli.output import duration
from genagentd.cli.program import CONTEXT, command, flags, output
from genagentd.cli.service_unit import install_service
from genagentd.cli.standing import in_trouble, troubles
from genagentd.cli.unanswered import left_s, lost, pid_of, silent, still_ending, unseen, who
from genagentd.cli.values import seconds, seconds_or_none
from genagentd.cli.versions import show_version, version_option
from genagentd.paths import Places, places

if TYPE_CHECKING:
    from genagent_protocol.answers import AgentRow
    from genagent_protocol.envelopes import CoreState
    from genagentd.daemon.lock import Holder

#: How often the end of a daemon is looked for.
_LOOK_S = 0.02
#: How long after the first signal the second one is no echo of it any more.
_FORCE_AFTER_S = 0.5


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


command(app, "start")(start)


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
    found = named or listener(where, left_s(deadline))
    if not locked and found is None:
        raise lost(where) or Failure(
            exits.NOT_REACHABLE,
            "not_reachable",
            f"no daemon runs in {where.run}; there is nothing to stop",
        )
    signals = []
    try:
        stop_daemon(where.socket, round(left_s(deadline) * 1000), force=force)
    except DaemonLost:
        pass  # If it ends before it can answer, that is what was wanted.
    except CallTimeout:
        pass  # It was asked; that it is still there is said below.
    except NotReachable:
        if not locked:
            raise
        if time.monotonic() > deadline:
            raise silent(where, deadline) from None
        found = named = named or holder(where, left_s(deadline))
        if named is None:
            raise silent(where, deadline) from None
        # It holds the lock, so it is there. A second signal means force, if it is no echo.
        signals = [time.monotonic() + after_s for after_s in (0.0, _FORCE_AFTER_S)[: 1 + force]]
    pid = pid_of(found)
    # Of one that is known, only its own end counts: another one may have the lock already.
    known = pid is not None
    while (found := _look_again(where, found)) is not None or (not known and is_locked(where)):
        pid = pid_of(found) or pid
        if named is not None and signals and time.monotonic() >= signals[0]:
            del signals[0]
            _ask_to_end(named.pid, named.started_ticks)
        if time.monotonic() > deadline:
            raise still_ending(where, pid, timeout, forced=force)
        time.sleep(_LOOK_S)
    output().result(f"stopped ({who(pid)})", pid=pid, forced=force)


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
    where = places()
    deadline = time.monotonic() + timeout
    state = _core_state(where, deadline)
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


def _core_state(where: Places, deadline: float) -> CoreState:
    """Return who the daemon is; one that holds the lock may be about to listen, or to end."""
    from genagentd.client.core import core_state
    from genagentd.daemon.lock import holder, is_locked

    while True:
        try:
            return core_state(where.socket, round(left_s(deadline) * 1000))
        except (NotReachable, CallTimeout):
            if not is_locked(where):
                if (found := lost(where)) is not None:
                    raise found from None
                raise
            if (found := unseen(where, pid_of(holder(where, 0)))) is not None:
                raise found from None
            if left_s(deadline) == 0:
                raise silent(where, deadline) from None
        time.sleep(_LOOK_S)


def _rows(where: Places, deadline: float) -> tuple[AgentRow, ...] | None:
    """Return what the daemon knows of its agents, if it speaks our version and says so in time."""
    from genagentd.client.client import Client

    try:
        with Client(where.run).connect(_left_ms(deadline)) as client:
            return client.list(_left_ms(deadline))
    except GenAgentError:
        return None


def _left_ms(deadline: float) -> int:
    return max(round(left_s(deadline) * 1000), 1)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@command(app, "version")
def version() -> None:
    """Say which version this is, and which the daemon is."""
    show_version()


command(app, "install-service")(install_service)
