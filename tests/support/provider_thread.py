"""The fake provider in a thread of its own, for tests that wait for something else."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from support.fake_provider import Answer, FakeProvider, Received
from support.waiting import DEADLINE_S

T = TypeVar("T")


class Loopback:
    """A fake provider as a test's own thread sees it."""

    def __init__(self, provider: FakeProvider, loop: asyncio.AbstractEventLoop) -> None:
        self._provider = provider
        self._loop = loop
        self.origin = provider.origin
        self.base_url = provider.base_url

    @property
    def requests(self) -> list[Received]:
        """What it was asked since the latest `answers`."""
        return list(self._provider.requests)

    def answers(self, *answers: Answer) -> None:
        """Answer so from now on, the last one repeated; what was asked before is forgotten."""
        self._run(self._answer(answers))

    async def _answer(self, answers: tuple[Answer, ...]) -> None:
        self._provider.answers = list(answers)
        self._provider.requests.clear()
        self._provider.asked.clear()
        self._provider.left.clear()

    def wait_asked(self) -> None:
        """Return when a request has come since the latest `answers`."""
        self._run(self._provider.asked.wait())

    def wait_left(self) -> None:
        """Return when the other side has left an answer that had fallen silent."""
        self._run(self._provider.left.wait())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)


@contextmanager
def loopback(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Loopback]:
    """Run a fake provider in a thread, with *tls* over https; yields what the test uses of it."""
    ready, ended = threading.Event(), asyncio.Event()
    made: list[Loopback] = []

    async def serve() -> None:
        async with FakeProvider(*answers, tls=tls) as provider:
            made.append(Loopback(provider, asyncio.get_running_loop()))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(DEADLINE_S)
        yield made[0]
    finally:
        made[0]._loop.call_soon_threadsafe(ended.set)
        thread.join()
