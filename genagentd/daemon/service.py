"""The daemon as a service: alone by lock, in a private directory, ended by signals.

The order matters: directories are checked before anything is touched, the lock is
taken after the last plain fork (a forked child would hold it too), stale sockets go
only once the lock is ours, and readiness is told after the bind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import signal
import stat
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from genagent_protocol.errors import GenAgentError
from genagent_protocol.refs import BootId
from genagentd import kernel, sockets
from genagentd.config import BadConfiguration, Config
from genagentd.daemon import allowance, guardian, lock
from genagentd.daemon.control import Daemon
from genagentd.daemon.notify import ServiceManager
from genagentd.daemon.report import configure, keep_log, reopen, report, warn
from genagentd.entrance import is_leftover
from genagentd.leftovers import own_directory, remove_socket
from genagentd.paths import Places, make_private
from genagentd.socket_path import UnusablePlace, check_path
from genagentd.unusable import OTHER, NoRoom, unusable

#: A second signal means force. One that comes so soon is the first one, sent to the whole tree
#: and handed on by the guardian too.
ECHO_S = 0.2


class AlreadyRunning(GenAgentError):
    """Another daemon has this runtime directory; `pid` is its process, if that is known."""

    def __init__(self, places: Places, holder: lock.Holder | None) -> None:
        self.pid = None if holder is None else holder.pid or None
        who = f"pid {self.pid or 'unknown'}"
        self.hint = "stop it with: genagentd stop"
        super().__init__(f"a daemon is already running in {places.run} ({who}); {self.hint}")


def serve(places: Places, config: Config, reload: Callable[[], Config]) -> int:
    """Run one daemon until it is told to end and its last agent is gone; return the exit code.

    *reload* returns the configuration anew, when SIGHUP asks for that. The caller has
    forked its guardian already, if there is to be one.

    Raises:
        UsageError: a directory or the lock cannot be used.
        NoRoom: nor can they be made now: the disk is full; or this process may open too little.
        AlreadyRunning: another daemon is there; nothing was changed.
    """
    _check_processes()
    _raise_descriptor_limit()
    allowance.check()
    check_path(places.socket)
    check_path(places.longest_socket)
    make_private(places.run)
    make_private(places.state)
    with _locked(places) as held:
        _meet_nobody(places)
        for directory in (places.agents, places.logs):
            make_private(directory)
        _remove_stale(places, held)
        keep_log(places.daemon_log)
        configure(config.log_format)
        kernel.adopt_orphans()
        code = asyncio.run(_run(places, held, config, reload))
        sockets.end_context()
        # What was planted meanwhile is no reason to end otherwise.
        with contextlib.suppress(UnusablePlace, NoRoom):
            _remove_stale(places, held)
    return code


def _check_processes() -> None:
    """Refuse a `/proc` of another namespace: every process that it shows would be a stranger."""
    if not kernel.sees_itself():
        raise UnusablePlace(
            f"/proc does not show this process as {os.getpid()}: mount the one of its pid "
            "namespace there (unshare --mount-proc)"
        )


@contextlib.contextmanager
def _locked(places: Places) -> Iterator[lock.Lock]:
    held = lock.take(places)
    if held is None:
        raise AlreadyRunning(places, lock.holder(places) or lock.listener(places))
    try:
        yield held
    finally:
        held.release()


def _meet_nobody(places: Places) -> None:
    """Refuse to take the socket of a living daemon whose lock somebody removed."""
    found = lock.listener(places)
    if found is not None:
        raise AlreadyRunning(places, found)


def _remove_stale(places: Places, held: lock.Lock) -> None:
    """Remove sockets that nobody can hold any more: the lock is ours.

    Whatever is no socket stays, and so does all of a directory in which our lock is not.
    """
    try:
        with own_directory(places.run) as run:
            if held.is_in(run):
                _remove_own_socket(places, run)
                _remove_leftovers(places, run)
    except OSError as error:
        raise unusable(f"{places.run} cannot be cleaned", error, OTHER) from None


def _remove_own_socket(places: Places, run: int) -> None:
    name = os.path.basename(places.socket)
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=run, follow_symlinks=False).st_mode
        if not (stat.S_ISSOCK(found) or stat.S_ISLNK(found)):
            # It may be somebody's: we never made it.
            what = "a directory" if stat.S_ISDIR(found) else "no socket"
            raise UnusablePlace(
                f"{places.socket} is {what} and has to be the daemon's socket; remove it"
            )
        os.unlink(name, dir_fd=run)


def _remove_leftovers(places: Places, run: int) -> None:
    # Whoever was killed while it put an entrance in its place left that one beside it.
    for name in filter(is_leftover, os.listdir(run)):
        remove_socket(name, run)
    # Someone may have cleaned up before us, the whole directory included.
    with (
        contextlib.suppress(FileNotFoundError),
        own_directory(Path(places.agents.name), run) as agents,
    ):
        for name in os.listdir(agents):
            remove_socket(name, agents)


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # An unlimited or enormous hard limit would make every child walk it.
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted and "GENAGENT_KEEP_NOFILE" not in os.environ:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Service:
    """One daemon and the signals and the service manager that it answers to."""

    def __init__(
        self, places: Places, held: lock.Lock, config: Config, reload: Callable[[], Config]
    ) -> None:
        self._places = places
        self._lock = held
        self._reload = reload
        self._interrupted = False
        #: When the last signal came that asked for the end.
        self._asked_at: float | None = None
        # Before anything is started that would inherit what the service manager gave us.
        self._manager = ServiceManager(os.environ)
        self._daemon = Daemon(BootId(secrets.token_hex(8)), places, config)
        self._daemon.shell.on_change = self._tell

    async def run(self) -> int:
        """Serve until the last agent is gone after an end was asked for; return the exit code."""
        self._listen()
        self._daemon.shell.warm()
        report("ready", pid=os.getpid(), run=str(self._places.run))
        self._manager.ready()
        self._tell()
        self._manager.keep_watchdog_fed()
        await self._daemon.shell.finished.wait()
        self._manager.close()
        await self._daemon.close()
        report("stopped")
        # Closing the loop takes the handlers away, and there are still files to be removed.
        guardian.hold_back()
        return 130 if self._interrupted else 0

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_unexpected)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_end, number)
        loop.add_signal_handler(signal.SIGHUP, self._asked_to_reload)
        loop.add_signal_handler(signal.SIGUSR1, self._daemon.dump)
        loop.add_signal_handler(signal.SIGCHLD, self._daemon.shell.sweep)
        kernel.wake_in_silence()
        guardian.listen()

    def _asked_to_end(self, number: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        # Whoever asked for the end in another way does not make the first signal a second one.
        forced = self._asked_at is not None
        if self._asked_at is not None and now < self._asked_at + ECHO_S:
            return
        self._asked_at = now
        self._interrupted = self._interrupted or (number == signal.SIGINT and forced)
        report("signal", name=number.name, forced=forced)
        self._daemon.shut_down(force=forced)

    def _tell(self) -> None:
        """Tell the service manager what it shows; whoever asked for the end makes no difference."""
        if self._daemon.stopping:
            self._manager.stopping()
        self._manager.status(*self._daemon.counts)

    def _asked_to_reload(self) -> None:
        if self._daemon.stopping:
            # A service manager that is told of it would take us for one that goes on.
            warn("reload.ignored", message="the daemon is stopping")
            return
        self._manager.reloading()
        try:
            reopen()
            self._renew()
            self._reconfigure()
        finally:
            # Whatever goes wrong, the service manager waits for it.
            self._manager.ready()

    def _reconfigure(self) -> None:
        try:
            config = self._reload()
        except BadConfiguration as error:
            warn("config.rejected", message=str(error))
        else:
            configure(config.log_format)
            self._daemon.reconfigure(config)

    def _renew(self) -> None:
        """Be the one daemon of this directory again, and reachable, if somebody removed it."""
        try:
            make_private(self._places.run)
            held = self._lock.renew()
        except (UnusablePlace, NoRoom) as error:
            warn("lock.lost", message=str(error))
            return
        # Without it the socket would be that of another daemon, now or later.
        if held:
            self._daemon.renew()
        else:
            warn("lock.taken", path=str(self._places.lock))


def _unexpected(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody handled: a bug of ours, which the daemon outlives."""
    error = context.get("exception")
    trace = traceback.format_exception(error) if isinstance(error, BaseException) else []
    warn("internal.error", message=context["message"], traceback="".join(trace))


async def _run(
    places: Places, held: lock.Lock, config: Config, reload: Callable[[], Config]
) -> int:
    # Whoever reaches the daemon may ask it to end, and it has no handlers yet.
    guardian.hold_back()
    return await _Service(places, held, config, reload).run()
