"""What waits for the coordinator: everything in the order in which it became known.

Frames come unopened from the channel, facts from deadlines and from the turn's
thread. Whoever takes from here takes one thing, deals with it, and only then takes
the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from genagent_protocol.header import Header
from genagent_protocol.turns.inputs import Input


class Frame(NamedTuple):
    """One message, unopened."""

    header: Header
    body: bytes
    #: Whether the daemon was given credit for it when it came.
    credited: bool = False


class Swept(NamedTuple):
    """The report of a turn whose code has ended, and has been cleaned up after."""

    report: Input


Item: TypeAlias = Frame | Swept | Input


class Inbox:
    """The queue of one coordinator; made inside its loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._posted: deque[Item] = deque()
        self._noticed = False
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Append *item*; from the coordinator's thread."""
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def sort(self, arrived: Callable[[Header, bytes], None]) -> None:
        """Have *arrived* put away anew the frames that wait already, the rest in its place."""
        for _ in range(len(self._items)):
            item = self._items.popleft()
            if isinstance(item, Frame):
                arrived(item.header, item.body)
            else:
                self._items.append(item)

    def post(self, item: Item) -> None:
        """Append *item* from any thread; many posts wake the coordinator once."""
        self._posted.append(item)
        if not self._noticed:
            self._noticed = True
            self._loop.call_soon_threadsafe(self._take_posted)

    def _take_posted(self) -> None:
        # The mark first: a post in between then wakes us once too often, never too seldom.
        self._noticed = False
        while self._posted:
            self.put(self._posted.popleft())

    def take(self) -> Item | None:
        """Return the oldest item, or None if there is none."""
        return self._items.popleft() if self._items else None

    async def filled(self) -> None:
        """Return when there is something to take."""
        if self._items:
            return
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
