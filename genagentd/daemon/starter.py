"""The starter: has agents born, through a helper that may die or hang at any time.

The only file that knows multiprocess, which starts the helper itself (or, with the
method `spawn`, a process for each single birth). Orders go to the helper one at a time
over a socket; one that is not answered in time costs the helper its life, and the
next order meets another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import multiprocess
from multiprocess import reduction, resource_tracker

from genagentd import kernel
from genagentd.daemon import birth, nursery

#: How long the helper may take for one launch before it is replaced, at first.
LAUNCH_TIMEOUT_S = 5.0
StartMethod = Literal["forkserver", "spawn"]
_FOR_PYTHON = ("PYTHON", "LD_LIBRARY_PATH")

reduction.register(birth.Descriptor, lambda handed: (birth.arrived, (reduction.DupFd(handed.fd),)))


class LaunchLost(Exception):
    """The helper died or hung over a launch; a newborn of it that still comes is an orphan."""


class Starter:
    """Launches newborns, one at a time."""

    def __init__(self, method: StartMethod, environ: Mapping[str, str], directory: str) -> None:
        """Start children by *method*, which are found in *directory*.

        *environ* is all that `/proc` will show of theirs.
        """
        self._environ = environ
        self._directory = directory
        self._context = multiprocess.get_context("spawn")
        self._uses_helper = method == "forkserver"
        self._turn = asyncio.Lock()
        self._helper: _Helper | None = None
        #: Who waited for an order from a helper that has ended, until that is noticed.
        self._given_up: set[int] = set()
        #: What was started for the one birth under way, with the method `spawn`.
        self._midwife: Any = None
        #: When the launch under way began: whoever is younger may be its newborn.
        self._since_ticks = 0
        #: Called after every launch: what was spared during it can be judged now.
        self.on_launched: Callable[[], object] = lambda: None
        _forget_main()

    def warm(self) -> None:
        """Start the helper now, so that the first agent does not wait for it."""
        if self._uses_helper:
            self._ready_helper()

    def reconfigure(self, environ: Mapping[str, str]) -> None:
        """Let `/proc` show *environ* of every child whose launch begins from now on."""
        self._environ = environ
        # During a launch the next one will see to it. And what the system does not allow now,
        # it may allow when somebody is to be born, and then there is somebody to tell.
        if self._helper is not None and not self._turn.locked():
            with contextlib.suppress(OSError):
                self._ready_helper()

    async def launch(self, newborn: birth.Newborn, patience_s: float) -> None:
        """Have *newborn* born: when this returns, its pid has been said on its pipe.

        Raises:
            BadOrder: no process could become it.
            LaunchLost: the helper died over it, or did not answer within *patience_s*
                and was killed; the next launch starts another one.
            OSError: the system does not allow it.
        """
        # Whoever writes it in earnest may be another process, which could not say why.
        birth.write_order(newborn)
        async with self._turn:
            self._since_ticks = kernel.ticks_now()
            try:
                launch = (self._bear if self._uses_helper else self._spawn)(newborn)
                await asyncio.wait_for(launch, patience_s)
            except TimeoutError:
                self._replace_helper()
                raise LaunchLost(f"a launch took longer than {patience_s} s") from None
            finally:
                self.on_launched()

    async def _bear(self, newborn: birth.Newborn) -> None:
        helper = self._ready_helper()
        try:
            born = await helper.bear(newborn)
        except ConnectionError:
            self._replace_helper()
            raise LaunchLost("the helper that agents are started from died") from None
        except asyncio.CancelledError:
            self._end_helper()
            raise
        if not born:
            raise LaunchLost("a newborn was given up before it was announced")

    async def _spawn(self, newborn: birth.Newborn) -> None:
        self._midwife = self._start(birth.be_born_and_leave, newborn, self._directory)
        try:
            await _end_of(self._midwife.pid)
        finally:
            born = _ended(self._midwife) == 0
            self._midwife = None
        if not born:
            raise LaunchLost("a newborn was given up before it was announced")

    def _start(self, target: Callable[..., Any], *arguments: object) -> Any:
        process = self._context.Process(target=target, args=arguments)
        with _only(self._environ):
            process.start()
        _end_tracker()
        return process

    def _ready_helper(self) -> _Helper:
        if self._helper is not None and not self._helper.alive:
            self._end_helper()
        if self._helper is not None and (
            self._helper.environ != self._environ or self._helper.log != _log()
        ):
            # Whoever waits was started with the old one, too; it ends with its helper. And one
            # that speaks into a log which was moved away would keep that for ever.
            self._end_helper()
        if self._helper is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, birth.SOCKET_BYTES)
            ours.setblocking(False)
            with theirs:
                process = self._start(
                    nursery.tend, birth.Descriptor(theirs.fileno()), self._directory
                )
            self._helper = _Helper(process, ours, self._environ)
        return self._helper

    def _replace_helper(self) -> None:
        """Have another one at once: the launch is tried again, or lacked its answer alone."""
        self._end_helper()
        # What the system does not allow now is told to whoever is to be born.
        with contextlib.suppress(OSError):
            self.warm()

    def _end_helper(self) -> None:
        if self._helper is not None:
            if self._helper.waiting is not None:
                self._given_up.add(self._helper.waiting)
            self._helper.close()
            self._helper = None

    def was_ours(self, pid: int) -> bool:
        """Whether *pid*, a child that is to end, waited for an order until its helper ended.

        Asked once: another process may have the number then.
        """
        given_up = pid in self._given_up
        self._given_up.discard(pid)
        return given_up

    def owns(self, pid: int) -> bool:
        """Whether *pid*, a child of ours, is the helper, waits or may be what is being born."""
        helper = self._helper
        if helper is not None and pid in (helper.pid, helper.waiting):
            return True
        if self._midwife is not None and pid == self._midwife.pid:
            return True
        return self._turn.locked() and kernel.started_ticks(pid) >= self._since_ticks

    def look_after(self) -> None:
        """Some child of ours ended: if it was the helper, reap it and start another one.

        Unless it never did anything: the next one would end the same way, without end.
        A newborn that ended while it waited is ours no more.
        """
        helper = self._helper
        if helper is None:
            return
        if helper.waiting is not None and not _lives(helper.waiting):
            helper.waiting = None
        if not helper.alive and not self._turn.locked():
            self._end_helper()
            if helper.proven:
                self._ready_helper()

    def close(self) -> None:
        """End the helper and reap it."""
        self._end_helper()


class _Helper:
    """One life of the helper, and the socket to it."""

    def __init__(self, process: Any, channel: socket.socket, environ: Mapping[str, str]) -> None:
        self._process = process
        self.environ = environ
        self.log = _log()
        self._channel = channel
        self.pid: int = process.pid
        #: Whether it ever had something born.
        self.proven = False
        #: The newborn that waits for the next order.
        self.waiting: int | None = None

    @property
    def alive(self) -> bool:
        return _lives(self.pid)

    async def bear(self, newborn: birth.Newborn) -> bool:
        """Order one birth and return whether it was announced; the helper's end raises."""
        order, descriptors = birth.write_order(newborn)
        socket.send_fds(self._channel, [order], descriptors)
        loop = asyncio.get_running_loop()
        answer = await loop.sock_recv(self._channel, nursery.MAX_ANSWER_BYTES)
        if not answer:
            raise ConnectionResetError
        self.proven = True
        born = nursery.read_answer(answer)
        self.waiting = born.waiting
        return born.announced

    def close(self) -> None:
        self._channel.close()
        _ended(self._process)


def _ended(process: Any) -> int | None:
    """End and reap a process that multiprocess started, and return its exit code, if it is told.

    Nobody waits for a tracer that keeps it: it is an orphan from then on.
    """
    kernel.kill_exactly(process.pid)
    kernel.await_end(process.pid)
    code: int | None = process.exitcode
    if code is None:
        # multiprocess would wait for it when we exit, and until then look after its number,
        # whosever that is.
        multiprocess.process._children.discard(process)
        return kernel.exit_code(process.pid)
    process.close()
    return code


def _log() -> tuple[int, int]:
    """Return which file our standard error is, and that of whoever is started now."""
    found = os.fstat(2)
    return found.st_dev, found.st_ino


def _lives(pid: int) -> bool:
    found = kernel.stat(pid)
    return found is not None and not found.ended


async def _end_of(pid: int) -> None:
    """Return when the process has ended, without reaping it."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    pidfd = os.pidfd_open(pid)
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


@contextlib.contextmanager
def _only(environ: Mapping[str, str]) -> Iterator[None]:
    """Have nothing but *environ*, and what finds Python's modules, for the length of one exec.

    What a process was started with stays readable in `/proc` for its whole life, whatever
    it makes of it later; our own secrets are no agent's.
    """
    before = dict(os.environ)
    kept = {name: value for name, value in before.items() if name.startswith(_FOR_PYTHON)}
    try:
        os.environ.clear()
        os.environ.update({**environ, **kept})
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _end_tracker() -> None:
    """End the process that multiprocess keeps for shared memory: we share none."""
    tracker = resource_tracker._resource_tracker
    with tracker._lock:
        if tracker._pid is not None:
            os.close(tracker._fd)
            kernel.kill_exactly(tracker._pid)
            kernel.await_end(tracker._pid)
            os.waitpid(tracker._pid, os.WNOHANG)
            tracker._fd = tracker._pid = None


def _forget_main() -> None:
    """Keep multiprocess from running our own main module again in every child."""
    main = sys.modules["__main__"]
    main.__spec__ = None
    if hasattr(main, "__file__"):
        del main.__file__
