"""Gates hold a scripted turn until a test lets it go, also in another process.

A gate is two FIFOs in a directory. The turn writes one byte to `TAG.blocked` when
it has arrived and then waits for one byte from `TAG.release`. Both sides create
the FIFOs if they are missing and hold them open for reading and writing, so
neither arrival nor release can be missed, whoever comes first, and nobody polls.
From a shell: `head -c1 TAG.blocked` waits, `printf . > TAG.release` releases.

One byte lets one turn through, so a tag may be used again.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from genagent_backends.timeouts import timeout

#: How long a turn waits for its release, and a test for its turn, unless told otherwise.
GATE_TIMEOUT_MS = 5_000
SAFE_TAG = re.compile(r"[A-Za-z0-9._-]{1,100}")

Side = Literal["blocked", "release"]


class GateTimeout(Exception):
    """Nobody came: a turn was not released, or a test's turn did not arrive, in time."""


def open_side(directory: str, tag: str, side: str) -> int:
    """Return a descriptor of one FIFO of the gate *tag*, made if it is missing.

    Raises:
        OSError: the directory is missing or not writable.
    """
    path = os.path.join(directory, f"{tag}.{side}")
    with suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # Reading and writing at once: Linux then opens a FIFO without waiting for a peer.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


async def pass_gate(directory: str, tag: str, timeout_ms: int = GATE_TIMEOUT_MS) -> None:
    """Announce arrival at the gate *tag* and wait until it is released.

    Raises:
        GateTimeout: nobody released it within *timeout_ms*.
        OSError: the directory is missing or not writable.
    """
    blocked = open_side(directory, tag, "blocked")
    try:
        release = open_side(directory, tag, "release")
        try:
            os.write(blocked, b".")
            await _take_byte(release, f"gate {tag} was not released", timeout_ms)
        finally:
            os.close(release)
    finally:
        os.close(blocked)


async def _take_byte(descriptor: int, complaint: str, timeout_ms: int) -> None:
    loop = asyncio.get_running_loop()
    taken: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _try_to_take, descriptor, taken)
    try:
        async with timeout(timeout_ms / 1000):
            await taken
    except TimeoutError:
        raise GateTimeout(f"{complaint} within {timeout_ms} ms") from None
    finally:
        loop.remove_reader(descriptor)


def _try_to_take(descriptor: int, taken: asyncio.Future[None]) -> None:
    # Another turn at the same gate may have been faster; then this one waits on.
    with suppress(BlockingIOError):
        if not taken.done() and os.read(descriptor, 1):
            taken.set_result(None)


class Gates:
    """The side of a test: wait until a turn has arrived, and let it go.

    Give `directory` to scripted agents as their option `gate_dir`. Without one, a
    temporary directory is made, and removed by `close`. Use it as a context manager.
    """

    def __init__(self, directory: str | None = None) -> None:
        self.directory = directory or tempfile.mkdtemp(prefix="gates-")
        self._remove: Callable[[], None] | None = None
        if directory is None:
            made = self.directory
            self._remove = lambda: shutil.rmtree(made, ignore_errors=True)
        self._open: dict[tuple[str, str], int] = {}

    def _side(self, tag: str, side: Side) -> int:
        # Both at once: a turn that was released in advance may be through before anybody
        # waits for its arrival, and a FIFO that nobody holds open forgets what was written.
        for each in ("blocked", "release"):
            if (tag, each) not in self._open:
                self._open[tag, each] = open_side(self.directory, tag, each)
        return self._open[tag, side]

    async def until_blocked(self, tag: str, timeout_ms: int = GATE_TIMEOUT_MS) -> None:
        """Return once a turn has arrived at the gate *tag*.

        Raises:
            GateTimeout: none came within *timeout_ms*.
        """
        await _take_byte(self._side(tag, "blocked"), f"nobody came to gate {tag}", timeout_ms)

    def wait_blocked(self, tag: str, timeout_ms: int = GATE_TIMEOUT_MS) -> None:
        """Do the same without an event loop; blocks this thread.

        Raises:
            GateTimeout: none came within *timeout_ms*.
        """
        descriptor = self._side(tag, "blocked")
        ready, _, _ = select.select([descriptor], [], [], timeout_ms / 1000)
        if not ready:
            raise GateTimeout(f"nobody came to gate {tag} within {timeout_ms} ms")
        os.read(descriptor, 1)

    def release(self, tag: str) -> None:
        """Let one turn through the gate *tag*, also one that has not arrived yet."""
        os.write(self._side(tag, "release"), b".")

    def close(self) -> None:
        """Close the gates, and remove the directory if it was made here. Twice is fine."""
        while self._open:
            os.close(self._open.popitem()[1])
        if self._remove is not None:
            self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()
