"""The shell for asyncio: one connection on one running loop, read as it arrives.

What arrives goes into the mailboxes whether or not anyone waits, until they are full;
then the daemon gets no more credit and keeps the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from genagent_protocol.envelopes import Welcome
from genagent_protocol.errors import CallError, CallTimeout, UsageError
from genagentd.arrivals import Message as Arrived
from genagentd.channels import Connection
from genagentd.client import calls, forks, liveness
from genagentd.client.boxes import Box, Matching, Message
from genagentd.client.conversation import Conversation
from genagentd.client.waiting import Script, Waiting
from genagentd.socket_path import probe, unanswered

T = TypeVar("T")


class LoopedShell:
    """One connection to the daemon, for the tasks of one loop."""

    def __init__(self, path: str) -> None:
        self._generation = forks.generation()
        self._path = path
        self._loop = asyncio.get_running_loop()
        self.closed = False
        self.talk = Conversation()
        self.local = False
        self._connection = Connection(path, self._arrived, self._opened, self._ended)

    @classmethod
    async def open(cls, path: str, timeout_ms: int) -> LoopedShell:
        """Connect and introduce ourselves.

        Raises:
            NotReachable: no daemon answers there in time.
            VersionMismatch: we share no version with it.
        """
        probe(path)
        shell = cls(path)
        try:
            await shell._welcomed(timeout_ms)
        except BaseException:
            await shell.close(linger_ms=0)
            raise
        return shell

    async def _welcomed(self, timeout_ms: int) -> Welcome:
        if await self.wait(self.talk.welcome, timeout_ms) and not self.talk.ended:
            return self.talk.welcome.value()
        raise unanswered(self._path, timeout_ms, ended=self.talk.ended)

    def _opened(self) -> None:
        self.talk.hello()
        self._flush()

    def _arrived(self, message: Arrived) -> None:
        if not self.talk.welcome.done:
            self.local = liveness.same_pid_namespace(message.peer.pid)
        self.talk.take(message.header, message.body)
        self._flush()

    def _ended(self) -> None:
        self.talk.end()
        self._connection.close()

    def _make_room(self) -> None:
        """Hear what the daemon has taken in, before something is refused for the want of it."""
        # A task that only sends may never let the loop read.
        if self.talk.crowded:
            self._connection.read_to_end()

    def _flush(self) -> None:
        for frames in self.talk.outgoing():
            self._connection.send(frames.header, frames.body)

    # --- what callers use

    @property
    def owned(self) -> bool:
        """Whether this process made the connection (and not one that forked it off)."""
        return self._generation == forks.generation()

    @property
    def open_here(self) -> bool:
        """Whether something of it can be closed: it is open, and this process made it.

        What leaves a `with` in a forked child leaves the parent's things alone.
        """
        return self.owned and not self.closed

    def check(self) -> None:
        """Refuse a use that cannot work.

        Raises:
            UsageError: the client is closed, or belongs to another process or loop.
        """
        if not self.owned:
            raise UsageError("this client was made before a fork; make a new one in the child")
        if self.closed:
            raise UsageError("this client is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("this client belongs to another event loop; make one in this loop")

    def do(self, action: Callable[[Conversation], T]) -> T:
        """Do something that waits for nothing."""
        self.check()
        self._make_room()
        try:
            return action(self.talk)
        finally:
            self._flush()

    async def run(self, script: Script[T], timeout_ms: int | None) -> T:
        """Run one call to its end.

        Raises:
            CallTimeout: it took longer than *timeout_ms*; its `fate` is what is known of it.
        """
        self.check()
        deadline = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000
        while True:
            try:
                waiting = self._step(script)
            except StopIteration as end:
                value: T = end.value
                return value
            in_time = False
            try:
                in_time = await self._wait_until(waiting, deadline)
            finally:
                if not in_time:
                    self.talk.give_up(waiting)
                    waiting.fail(CallTimeout(waiting.what, timeout_ms or 0, fate=waiting.fate))

    def _step(self, script: Script[T]) -> Waiting[Any]:
        self._make_room()
        try:
            return next(script)
        finally:
            self._flush()

    async def receive(self, box: Box, matching: Matching, timeout_ms: int | None) -> Message | None:
        """Return the first message that matches, or None when none came in time."""
        self.check()
        waiting = box.expect(matching, "receive")
        self.talk.looked()
        self._flush()
        try:
            if not await self.wait(waiting, timeout_ms):
                return None
            message = waiting.value()
            box.taken(waiting)
            return message
        finally:
            box.give_up(waiting)

    async def wait(self, waiting: Waiting[Any], timeout_ms: int | None) -> bool:
        """Wait until *waiting* is settled; False when *timeout_ms* passed first."""
        deadline = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000
        return await self._wait_until(waiting, deadline)

    async def _wait_until(self, waiting: Waiting[Any], deadline: float | None) -> bool:
        if waiting.done:
            return True
        woken: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        waiting.wake = wake
        timer = None if deadline is None else self._loop.call_at(deadline, wake)
        try:
            await woken
        finally:
            if timer is not None:
                timer.cancel()
        return waiting.done

    # --- the end

    async def close(self, linger_ms: int) -> None:
        """End the connection, when the daemon has read what was sent or *linger_ms* passed."""
        if not self.owned or self.closed:
            return
        if linger_ms and self.talk.unconfirmed:
            # An answer proves that all of it was read. Without one there is nothing to wait for.
            with contextlib.suppress(CallError):
                await self.run(calls.ping(self.talk), linger_ms)
        self.closed = True
        self.talk.end()
        self._connection.close()
