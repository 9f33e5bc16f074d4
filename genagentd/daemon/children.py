"""Agent processes as the kernel shows them: announced on a pipe, held by pidfd, reaped exactly.

Liveness is the kernel's word alone: the end of a process is its pidfd turning
readable, its status is what `waitid` says of exactly that pidfd. What is nobody's
is ended and reaped too.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass

from genagentd import kernel
from genagentd.daemon.report import report, warn

#: So many orphans are named in the log before those that follow are only counted.
NAMED = 5


class BirthPipe:
    """What is said on a newborn's pipe: its pid, then that it is ready to be connected to.

    The pid may be said twice, and is told once.
    """

    def __init__(
        self,
        on_pid: Callable[[int], None],
        on_bound: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.write_fd, True)
        self._on_pid = on_pid
        self._on_bound = on_bound
        self._on_end = on_end
        self._rest = b""
        #: Whether a pid was said.
        self.announced = False
        #: Whether everyone who could say something is gone.
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_fd, self.read)

    def sent(self) -> None:
        """The newborn has its end now; ours would keep the pipe from ending."""
        os.close(self.write_fd)

    def read(self) -> None:
        """Take what was said so far."""
        if self._read_fd < 0:
            return
        try:
            said = os.read(self._read_fd, 4096)
        except BlockingIOError:
            return
        if not said:
            self.ended = True
            self.close()
            self._on_end()
            return
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            match line.split():
                case [b"pid", pid] if not self.announced:
                    self.announced = True
                    self._on_pid(int(pid))
                case [b"ready"]:
                    self._on_bound()

    def close(self) -> None:
        """Stop listening."""
        if self._read_fd >= 0:
            self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1


class Watched:
    """One agent process, held by pidfd from its announcement to its reaping."""

    def __init__(self, pid: int, on_exit: Callable[[int, bool], None]) -> None:
        """Watch *pid*; `on_exit(number, signalled)` is called once.

        Raises:
            ProcessLookupError: there is no such process.
        """
        self.pid = pid
        self.started_ticks = kernel.started_ticks(pid)
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(pid)
        self._loop.add_reader(self._pidfd, self._exited)

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to exactly this process; nothing happens if it is gone."""
        if self._pidfd >= 0:
            kernel.signal_pidfd(self._pidfd, number)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        code = kernel.end_of_child(self.pid, self._pidfd)
        if code is None:
            # Better late than wrong.
            self._loop.call_later(kernel.UNTOLD_S, self._exited)
            return
        os.close(self._pidfd)
        self._pidfd = -1
        self._on_exit(abs(code), code < 0)


class Earlier:
    """What was below us before we began anything ourselves: whose it is, is not for us to judge."""

    def __init__(self) -> None:
        there = [kernel.stat(pid) for pid in kernel.descendants(os.getpid())]
        self._there = {(found.pid, found.started_ticks) for found in there if found}
        # No process of an agent is in one of these: each agent has a session of its own, and
        # nobody can go back into another one.
        self._sessions = {found.session for found in there if found}

    def spares(self, pid: int) -> bool:
        """Whether the child *pid* is one of those, or of theirs; if it is dead, reap it."""
        found = kernel.stat(pid)
        if found is None or not self.holds(found):
            return False
        if found.ended:
            os.waitpid(pid, os.WNOHANG)
        return True

    def holds(self, found: kernel.Stat) -> bool:
        """Whether that is one of those, or of theirs."""
        return (found.pid, found.started_ticks) in self._there or found.session in self._sessions


@dataclass(slots=True, eq=False)
class _Waiter:
    """Who waits for the end of what one sweep found."""

    gone: Callable[[], None]
    limit: asyncio.TimerHandle | None = None


class Orphans:
    """Ends every direct child of ours that is not one we know, with all that is below it.

    Such a child was left behind by a dead agent. Killing one hands us its children, so each
    reaping looks again; it ends when none is left. They are killed at once all the same:
    however deep they are nested, no level waits for the one above to be reaped.

    Whoever is our child when this is made was begun before us, by a program that became
    this one, and is spared. So is what that leaves behind in the sessions that there were.

    Of those that are killed the log names the first ones, and counts the others: as pid 1 of a
    container we get what others leave, too. Newborns that nobody wants any more are not told.

    One that runs as another user cannot be killed. It is named in the log once, tried
    again at each sweep, reaped when it ends, and waited for by nobody. Nor is one that is dead
    and kept by a tracer: the kernel sends SIGCHLD when that lets go, and it is tried again.

    `on_end(pid, started_ticks)` is called for each that has ended, before anybody else can
    have its number.
    """

    def __init__(
        self,
        known: Callable[[], Collection[int]],
        owns: Callable[[int], bool],
        was_ours: Callable[[int], bool] = lambda _pid: False,
        on_end: Callable[[int, int], None] = lambda _pid, _ticks: None,
    ) -> None:
        self._known = known
        self._owns = owns
        self._was_ours = was_ours
        self._on_end = on_end
        self._dying: dict[int, int] = {}
        #: Those that may not be signalled.
        self._immune: dict[int, int] = {}
        #: Those that are dead, and whose tracer has not been told yet.
        self._traced: dict[int, int] = {}
        self._earlier = Earlier()
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._settled = asyncio.Event()
        self._waiters: list[_Waiter] = []
        #: Those that were waited for in vain.
        self._stuck: set[int] = set()
        #: Strangers that were killed since there was last nothing to kill.
        self._killed = 0
        self.ended = 0

    def sweep_soon(self) -> None:
        """Sweep in this loop turn, once, however often it is asked for."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.sweep)

    def sweep(self) -> None:
        """Kill what does not belong to us, and reap it when it is dead."""
        self._scheduled = False
        for pid, pidfd in tuple(self._traced.items()):
            if self._is_reaped(pidfd):
                del self._traced[pid]
        children = kernel.children(os.getpid())
        # Asked after: what was announced meanwhile is known, what is being born is owned.
        known = self._known()
        for pid in children:
            if pid in self._immune:
                self._try_again(pid)
            elif pid in known or pid in self._dying or pid in self._traced or self._owns(pid):
                continue
            elif not self._earlier.spares(pid):
                self._end(pid)
        if not self._dying:
            if self._killed > NAMED:
                report("orphans.killed", count=self._killed)
            self._killed = 0
            self._settled.set()
        # Whoever is let go of may have us sweep again, and that lets go of others.
        while self._waiters and not self._awaited():
            self._let_go(self._waiters[0])

    def sweep_for(self, gone: Callable[[], None], within_s: float) -> None:
        """Sweep, and call *gone* when what that found has ended, and what became ours of it.

        At once if there is nothing, and after *within_s* if it does not end: a process that
        hangs in the kernel does not. One that somebody waited so long for is nobody's wait again.
        """
        self.sweep()
        if not self._awaited():
            gone()
            return
        waiter = _Waiter(gone)
        self._waiters.append(waiter)
        waiter.limit = self._loop.call_later(within_s, self._give_up, waiter)

    def _awaited(self) -> bool:
        self._stuck &= self._dying.keys()
        return bool(self._dying.keys() - self._stuck)

    def _give_up(self, waiter: _Waiter) -> None:
        self._stuck |= self._dying.keys()
        self._let_go(waiter)

    def _let_go(self, waiter: _Waiter) -> None:
        assert waiter.limit is not None
        waiter.limit.cancel()
        self._waiters.remove(waiter)
        waiter.gone()

    def _kill(self, pid: int, pidfd: int) -> bool:
        """Kill it and say so, if that is allowed."""
        lives = kernel.is_alive(pid, kernel.started_ticks(pid))
        if not kernel.signal_pidfd(pidfd, signal.SIGKILL):
            return False
        self._dying[pid] = pidfd
        if not self._was_ours(pid) and lives:
            self._say_killed(pid)
        return True

    def _say_killed(self, pid: int) -> None:
        self._killed += 1
        if self._killed <= NAMED:
            report("orphan.killed", pid=pid, command=kernel.command_of(pid))

    def _end(self, pid: int) -> None:
        pidfd = kernel.open_pidfd(pid)
        if pidfd is None:
            return
        self.ended += 1
        self._loop.add_reader(pidfd, self._reap, pid)
        below = kernel.tree_below(pid)
        if not self._kill(pid, pidfd):
            self._immune[pid] = pidfd
            if kernel.is_alive(pid, kernel.started_ticks(pid)):
                warn("orphan.immune", pid=pid, uid=kernel.user_of(pid))
        self._end_below(below)

    def _try_again(self, pid: int) -> None:
        """It may have become one of ours; what lives below it may be ours anyhow."""
        below = kernel.tree_below(pid)
        if self._kill(pid, self._immune[pid]):
            del self._immune[pid]
        self._end_below(below)

    def _end_below(self, tree: list[kernel.Stat]) -> None:
        for below in tree:
            if below.ended or self._earlier.holds(below):
                continue
            if kernel.kill_exactly(below.pid, below.started_ticks):
                self._say_killed(below.pid)

    def _reap(self, pid: int) -> None:
        pidfd = (self._dying if pid in self._dying else self._immune).pop(pid)
        self._loop.remove_reader(pidfd)
        try:
            self._on_end(pid, kernel.started_ticks(pid))
        finally:
            if not self._is_reaped(pidfd):
                self._traced[pid] = pidfd
        self.sweep_soon()

    def _is_reaped(self, pidfd: int) -> bool:
        """Reap the dead child *pidfd* and close that, unless a tracer still keeps it."""
        try:
            if os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is None:
                return False
        except ChildProcessError:
            pass  # Somebody else's child by now; its parent reaps it.
        os.close(pidfd)
        return True

    async def settled(self, within_s: float) -> list[int]:
        """Sweep until nothing is left; return what was killed and did not die in time.

        A process that hangs in the kernel cannot be killed until it comes out of there; one
        of another user cannot be killed at all, and is not waited for.
        """
        self._settled.clear()
        self.sweep_soon()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), within_s)
        return [*self._dying, *self._immune]


def enlarge(fd: int, size_bytes: int) -> None:
    """Give a pipe a larger buffer, as far as the system allows."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size_bytes)
    except OSError:
        return
