"""Agent processes: started from a preloaded helper, watched by pidfd, reaped exactly.

The only file that knows multiprocess. One starter thread talks to the helper, for
a helper that hangs blocks whoever talks to it, until it is replaced. Liveness is
the kernel's word alone: the end of a process is its pidfd turning readable, its
status is what `waitid` says of exactly that pidfd.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import multiprocess
from multiprocess import forkserver, reduction, resource_tracker

from genagentd import kernel
from genagentd.daemon import birth

#: How long the helper may take for one launch before it is replaced, at first.
LAUNCH_TIMEOUT_S = 5.0
StartMethod = Literal["forkserver", "spawn"]
#: What the helper imports once, for all agents. The last one freezes the heap.
_PRELOAD = ["genagentd.daemon.birth", birth.ENTRY, "genagentd.agent.preload"]

reduction.register(birth.Descriptor, lambda handed: (birth.arrived, (reduction.DupFd(handed.fd),)))


class LaunchLost(Exception):
    """The helper died or hung over a launch; a newborn of it that still comes is an orphan."""


class Starter:
    """Launches newborns, one at a time, from a thread of its own that lives as long as we do.

    Parent-death signals follow the thread that is the parent, and the helper's
    parent is this thread.
    """

    def __init__(self, method: StartMethod, helper_directory: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = multiprocess.get_context(method)
        self._uses_helper = method == "forkserver"
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._turn = asyncio.Lock()
        #: When the launch in hand began, in the kernel's ticks; None between launches.
        self._busy_since: int | None = None
        self._middle: Any = None
        #: Called after every launch: what was spared during it can be judged now.
        self.on_launched: Callable[[], None] = lambda: None
        _forget_main()
        # The helper's socket belongs beside ours, not into a TMPDIR of any length.
        multiprocess.process.current_process()._config["tempdir"] = str(helper_directory)
        if self._uses_helper:
            self._context.set_forkserver_preload(_PRELOAD)
        self._thread = threading.Thread(target=self._work, name="starter", daemon=True)
        self._thread.start()

    def warm(self) -> None:
        """Start the helper now, so that the first agent does not wait for it."""
        if self._uses_helper:
            self._orders.put(forkserver.ensure_running)

    async def launch(self, newborn: birth.Newborn, patience_s: float) -> None:
        """Have *newborn* born: when this returns, its pid has been said on its pipe.

        Raises:
            LaunchLost: the helper died over it, or did not answer within *patience_s*
                and was killed; the next launch starts another one.
            OSError: the system does not allow it.
        """
        async with self._turn:
            self._busy_since = kernel.ticks_now()
            try:
                await self._launched(newborn, patience_s)
            except (EOFError, ConnectionError):
                raise LaunchLost("the helper that agents are started from died") from None
            finally:
                self._busy_since = None
                self.on_launched()

    async def _launched(self, newborn: birth.Newborn, patience_s: float) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._orders.put(lambda: self._settle(done, newborn))
        try:
            await asyncio.wait_for(asyncio.shield(done), patience_s)
        except TimeoutError:
            self._end_what_hangs()
            await done

    def _end_what_hangs(self) -> None:
        middle = self._middle
        pid = self.helper_pid if self._uses_helper else middle and middle.pid
        if pid is not None:
            kernel.kill_exactly(pid)

    @property
    def helper_pid(self) -> int | None:
        """The helper's pid, while there is one."""
        pid: int | None = forkserver._forkserver._forkserver_pid
        return pid

    def owns(self, pid: int) -> bool:
        """Whether *pid*, a child of ours, is the helper, its tracker, or may become one of them.

        A process that began during a launch may be a new helper whose pid the
        thread has not learned yet.
        """
        if pid in (self.helper_pid, resource_tracker._resource_tracker._pid):
            return True
        return self._busy_since is not None and kernel.started_ticks(pid) >= self._busy_since

    def look_after(self) -> None:
        """Some child of ours ended: if it was the helper or its tracker, have it reaped."""
        for pid in (self.helper_pid, resource_tracker._resource_tracker._pid):
            found = None if pid is None else kernel.stat(pid)
            if found is not None and found.state == "Z":
                self._orders.put(_bury_the_dead)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            order()

    def _settle(self, done: asyncio.Future[None], newborn: birth.Newborn) -> None:
        try:
            self._start(newborn)
        except BaseException as error:  # noqa: BLE001  # handed to the one who waits
            self._loop.call_soon_threadsafe(_fail, done, error)
        else:
            self._loop.call_soon_threadsafe(_succeed, done)

    def _start(self, newborn: birth.Newborn) -> None:
        middle: Any = self._context.Process(target=birth.be_born, args=(newborn,))
        self._middle = middle
        middle.start()
        middle.join()
        status = middle.exitcode
        self._middle = None
        middle.close()
        if status != 0:
            # It may live on without the helper that was to tell us its status.
            raise EOFError

    def close(self) -> None:
        """End the thread, the helper and the tracker, and reap them."""
        self._orders.put(None)
        if self._busy_since is not None:
            self._end_what_hangs()
        self._thread.join(LAUNCH_TIMEOUT_S)
        for pid in (self.helper_pid, resource_tracker._resource_tracker._pid):
            if pid is not None and kernel.kill_exactly(pid):
                os.waitpid(pid, 0)


def _bury_the_dead() -> None:
    """Reap helper and tracker if they ended, and have multiprocess forget them.

    It would do so itself, but only at the next start, and until then they would be zombies.
    """
    helper, tracker = forkserver._forkserver, resource_tracker._resource_tracker
    with helper._lock:
        if _reaped(helper._forkserver_pid):
            os.close(helper._forkserver_alive_fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(helper._forkserver_address)
            helper._forkserver_pid = None
            helper._forkserver_alive_fd = helper._forkserver_address = None
    with tracker._lock:
        if _reaped(tracker._pid):
            os.close(tracker._fd)
            tracker._pid = tracker._fd = None


def _reaped(pid: int | None) -> bool:
    return pid is not None and os.waitpid(pid, os.WNOHANG)[0] == pid


def _succeed(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.set_result(None)


def _fail(done: asyncio.Future[None], error: BaseException) -> None:
    if not done.cancelled():
        done.set_exception(error)


def _forget_main() -> None:
    """Keep multiprocess from running our own main module again in every agent."""
    main = sys.modules["__main__"]
    main.__spec__ = None
    if hasattr(main, "__file__"):
        del main.__file__


class BirthPipe:
    """What is said on a newborn's pipe: its pid, then that it is ready to be connected to."""

    def __init__(
        self,
        on_pid: Callable[[int], None],
        on_bound: Callable[[bool], None],
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
                case [b"pid", pid]:
                    self.announced = True
                    self._on_pid(int(pid))
                case [b"ready", *cold]:
                    self._on_bound(bool(cold))

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
        try:
            found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            # Its middle parent has not left yet, so it is not ours to reap for a moment.
            return
        if found is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self._on_exit(found.si_status, found.si_code != os.CLD_EXITED)


class Orphans:
    """Ends and reaps every direct child of ours that is not one we know.

    Such a child was left behind by a dead agent. Killing one may hand us its
    children, so each reaping looks again; it ends when none is left.
    """

    def __init__(self, known: Callable[[], Collection[int]], owns: Callable[[int], bool]) -> None:
        self._known = known
        self._owns = owns
        self._dying: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._settled = asyncio.Event()
        self.ended = 0

    def sweep_soon(self) -> None:
        """Sweep in this loop turn, once, however often it is asked for."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.sweep)

    def sweep(self) -> None:
        """Kill what does not belong to us, and reap it when it is dead."""
        self._scheduled = False
        children = kernel.children(os.getpid())
        # Asked after: an agent is announced before it becomes a child of ours.
        known = self._known()
        for pid in children:
            if pid not in known and pid not in self._dying and not self._owns(pid):
                self._end(pid)
        if not self._dying:
            self._settled.set()

    def _end(self, pid: int) -> None:
        pidfd = kernel.open_pidfd(pid)
        if pidfd is None:
            return
        self.ended += 1
        self._dying[pid] = pidfd
        kernel.signal_pidfd(pidfd, signal.SIGKILL)
        self._loop.add_reader(pidfd, self._reap, pid)

    def _reap(self, pid: int) -> None:
        pidfd = self._dying.pop(pid)
        self._loop.remove_reader(pidfd)
        try:
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            pass  # Somebody else's child by now; its parent reaps it.
        finally:
            os.close(pidfd)
        self.sweep_soon()

    async def settled(self) -> None:
        """Sweep until nothing is left, and everything killed is reaped."""
        self._settled.clear()
        self.sweep_soon()
        await self._settled.wait()


def enlarge(fd: int, size_bytes: int) -> None:
    """Give a pipe a larger buffer, as far as the system allows."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size_bytes)
    except OSError:
        return
