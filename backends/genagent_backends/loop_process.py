"""A provider's process on the running event loop: the contract's `Process`, plainly.

That loop reaps it, and has to run; the methods may be awaited from another one, too.
Made for rehearsals (`rehearsal.py`) and for reading how a process is begun, read
and ended. It ends the process's group, not what left it for a session of its own:
that is swept up by the agent, which is a subreaper.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from genagent_backends.base import FirstSignal

STDERR_TAIL_BYTES = 8_192
#: Between SIGINT and SIGTERM, and again between SIGTERM and SIGKILL.
GRACE_MS = 1_500
#: A pipe holds 64 KiB; more than this comes from a grandchild that writes on and on.
MAX_READS_AT_EXIT = 4
#: How often it is looked whether a dead process that is traced can be reaped.
TRACED_S = 1.0
#: How long a process that was killed may take to be gone.
KILLED_S = 5.0
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class LoopProcess:
    """One process in a session of its own, with pipes for all three streams.

    Raises:
        OSError: the program could not be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        grace_ms: int = GRACE_MS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._grace_s = grace_ms / 1000
        self._process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._stdin, self._stdout, self._stderr = _descriptors(self._process)
        self._stderr_tail = b""
        self._exited = False
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._loop.add_reader(self._stderr, self._drain)
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    @property
    def pid(self) -> int:
        """The process id; also after the end."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, None while it runs."""
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """The last 8 KiB of standard error, control characters removed."""
        return CONTROL.sub("", self._stderr_tail.decode("utf-8", "replace"))

    def _drain(self) -> None:
        data = _read(self._stderr, 65_536)
        if data == b"":
            self._loop.remove_reader(self._stderr)
        self._stderr_tail = (self._stderr_tail + (data or b""))[-STDERR_TAIL_BYTES:]

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if self._process.poll() is None:
            # A tracer is told of the end first, and the loop cannot stand still until it was.
            self._loop.call_later(TRACED_S, self._reap)
            return
        os.close(self._pidfd)
        # What it printed before it ended must be in the tail by the time `wait` returns.
        for _ in range(MAX_READS_AT_EXIT):
            self._drain()
        self._exited = True
        waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            # A loop that was closed waits no more, and must not keep the others waiting.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake, future)

    async def write(self, data: bytes) -> None:
        """Write all of *data*, or as much as the process wants before it closes the pipe."""
        rest = memoryview(data)
        while rest and self._stdin is not None:
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _ready(self._stdin, loop.add_writer, loop.remove_writer)
            except BrokenPipeError:
                return

    async def close_stdin(self) -> None:
        """Close standard input; twice is fine."""
        if self._stdin is not None and self._process.stdin is not None:
            asyncio.get_running_loop().remove_writer(self._stdin)
            self._stdin = None
            self._process.stdin.close()

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        """Return the next bytes of standard output; empty at its end."""
        while (data := _read(self._stdout, limit_bytes)) is None:
            loop = asyncio.get_running_loop()
            await _ready(self._stdout, loop.add_reader, loop.remove_reader)
        return data

    async def wait(self) -> int:
        """Return the exit code once the process has ended."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        waiter = loop, ended
        self._waiters.append(waiter)
        try:
            # Asked after it was appended: another thread may be waking the waiters just now.
            if not self._exited:
                await ended
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)
        assert self._process.returncode is not None
        return self._process.returncode

    async def end(self, first: FirstSignal = "SIGINT") -> int:
        """End the process and return its exit code; at once if it has ended."""
        if first == "SIGINT":
            self._signal(os.kill, signal.SIGINT)
            await self._exit_in_grace()
        if first != "SIGKILL":
            self._signal(os.killpg, signal.SIGTERM)
            await self._exit_in_grace()
        # Also if the process has ended: its group may hold children that have not.
        self._kill_group()
        return await self.wait()

    def _signal(self, send: Callable[[int, int], None], number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                send(self.pid, number)

    async def _exit_in_grace(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), self._grace_s)

    def kill(self) -> None:
        """Kill the process and its group, and reap it, when the loop may not run any more."""
        self._kill_group()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_S)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End the process and close its pipes, in the loop in which it was begun.

        Nothing more can be read.
        """
        await self.end()
        await self.close_stdin()
        self._loop.remove_reader(self._stdout)
        self._loop.remove_reader(self._stderr)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def _descriptors(process: subprocess.Popen[bytes]) -> tuple[int | None, int, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    found = process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()
    for descriptor in found:
        os.set_blocking(descriptor, False)
    return found


def _read(descriptor: int, limit_bytes: int) -> bytes | None:
    """Return what is there, empty at the end, None if nothing is there yet."""
    try:
        return os.read(descriptor, limit_bytes)
    except BlockingIOError:
        return None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _ready(
    descriptor: int,
    watch: Callable[[int, Callable[[], None]], None],
    unwatch: Callable[[int], bool],
) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watch(descriptor, lambda: _wake(ready))
    try:
        await ready
    finally:
        unwatch(descriptor)
