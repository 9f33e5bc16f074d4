"""A provider's process: pipes for all three streams, exit by pidfd, ended with its tree.

It belongs to the coordinator's loop, which drains its standard error and reaps it;
its methods may be awaited from that loop and from the turn's. Each pipe is read or
written by one of them at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from genagent_backends.base import FirstSignal
from genagent_backends.timeouts import timeout
from genagentd import kernel
from genagentd.agent import log
from genagentd.agent.sweep import Identity, readable, signalled, tree_of

STDERR_TAIL_BYTES = 8_192
#: Between SIGINT and SIGTERM, and again between SIGTERM and SIGKILL, at most.
GRACE_MS = 1_000
#: A pipe holds 64 KiB; more than this comes from a grandchild that writes on and on.
MAX_READS_AT_EXIT = 4
#: The exit code of a process whose own was taken by somebody else; asyncio has the same.
LOST_STATUS = 255
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ChildProcess:
    """One process in a session of its own. Made in the coordinator's loop.

    Raises:
        OSError: the program could not be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
        on_exit: Callable[[ChildProcess], None],
        grace_ms: int = GRACE_MS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._grace_ms = grace_ms
        self._popen = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        pipes = (self._popen.stdin, self._popen.stdout, self._popen.stderr)
        self._stdin, self._stdout, self._stderr = (_descriptor(pipe) for pipe in pipes)
        self._stderr_tail = b""
        self._returncode: int | None = None
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._stdin_open = True
        self._loop.add_reader(self._stderr, self._drain)
        pidfd = kernel.open_pidfd(self.pid)
        if pidfd is None:
            self._loop.call_soon(self._lost)
        else:
            self._loop.add_reader(pidfd, self._reap, pidfd)

    @property
    def pid(self) -> int:
        """The process id; also of one that has ended."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, None while it runs."""
        return self._returncode

    @property
    def stderr_tail(self) -> str:
        """The last 8 KiB of standard error, control characters removed."""
        return _CONTROL.sub("", self._stderr_tail.decode("utf-8", "replace"))

    def _drain(self) -> None:
        try:
            data = os.read(self._stderr, 65_536)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._stderr)
        self._stderr_tail = (self._stderr_tail + data)[-STDERR_TAIL_BYTES:]

    def _reap(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        try:
            code = kernel.end_of_child(self.pid, pidfd)
        except ChildProcessError:
            os.close(pidfd)
            self._lost()
            return
        if code is None:
            # Better late than wrong.
            self._loop.call_later(kernel.UNTOLD_S, self._reap, pidfd)
            return
        os.close(pidfd)
        self._over(code)

    def _lost(self) -> None:
        """Say that code of the agent has waited for any child, or has none of them kept."""
        log.line("process.status_lost", pid=self.pid)
        self._over(LOST_STATUS)

    def _over(self, code: int) -> None:
        # What it printed before it ended must be in the tail by the time `wait` returns.
        for _ in range(MAX_READS_AT_EXIT):
            self._drain()
        self._returncode = self._popen.returncode = code
        waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            loop.call_soon_threadsafe(_wake, future)
        self._on_exit(self)

    async def write(self, data: bytes) -> None:
        """Write all of *data*, or as much as the process wants before it closes the pipe."""
        rest = memoryview(data)
        while rest and self._stdin_open:
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                await _writable(self._stdin)
            except BrokenPipeError:
                return

    async def close_stdin(self) -> None:
        """Close standard input; twice is fine."""
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_open and self._popen.stdin is not None:
            self._stdin_open = False
            self._popen.stdin.close()

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        """Return the next bytes of standard output; empty at its end."""
        while True:
            try:
                return os.read(self._stdout, limit_bytes)
            except BlockingIOError:
                await readable(self._stdout)

    async def wait(self) -> int:
        """Return the exit code once the process has ended."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        waiter = loop, ended
        self._waiters.append(waiter)
        try:
            # Asked after it was appended: another thread may be waking the waiters just now.
            if self._returncode is None:
                await ended
        finally:
            # One that is tired of waiting must not be kept as long as the process lives.
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)
        assert self._returncode is not None
        return self._returncode

    async def end(self, first: FirstSignal = "SIGINT") -> int:
        """End the process and its tree and return the exit code; at once if it has ended."""
        tree: set[Identity] = set()
        if first == "SIGINT":
            await self._signalled(tree, os.kill, signal.SIGINT)
        last = signal.SIGKILL if first == "SIGKILL" else signal.SIGTERM
        await self._signalled(tree, os.killpg, last)
        # Also if the process has ended: its group may hold children that have not.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await signalled(tree, signal.SIGKILL, self._grace_ms)
        return await self.wait()

    async def _signalled(
        self, tree: set[Identity], send: Callable[[int, int], None], number: signal.Signals
    ) -> None:
        """Note the tree as it is, signal, and give the process its grace to end."""
        if self._returncode is not None:
            return
        # Once its parent is dead, a process in a session of its own is in nobody's tree.
        tree.update(tree_of(self.pid))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(self.pid, number)
        with contextlib.suppress(TimeoutError):
            async with timeout(self._grace_ms / 1000):
                await self.wait()

    def close(self) -> None:
        """Close its pipes: nothing more can be read. In the coordinator, when nobody uses it."""
        self._close_stdin()
        self._loop.remove_reader(self._stderr)
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()


def _descriptor(pipe: object) -> int:
    descriptor: int = pipe.fileno()  # type: ignore[attr-defined]  # all three are pipes
    os.set_blocking(descriptor, False)
    return descriptor


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)
