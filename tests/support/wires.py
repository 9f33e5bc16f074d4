"""Real channels inside one loop: a listener, its peers, and a record of what reached whom."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from genagentd.arrivals import Message
from genagentd.channels import BlockingConnection, Connection, Listener


class Gone(NamedTuple):
    """The news that the peer of this route is gone."""

    route: bytes


def nothing(_message: Message) -> None:
    """Do no more than record a message."""


async def until(fact: Callable[[], object], what: str) -> None:
    """Let the loop run until *fact* holds."""
    try:
        async with asyncio.timeout(60):
            while not fact():
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"it is still not so: {what}") from None


class Ear:
    """A listener and everything it reported, in order."""

    def __init__(self, path: str) -> None:
        self.news: list[Message | Gone] = []
        self.then: Callable[[Message], object] = nothing
        self.listener = Listener(path, self._hear, lambda route: self.news.append(Gone(route)))

    def _hear(self, message: Message) -> None:
        self.news.append(message)
        self.then(message)

    @property
    def messages(self) -> list[Message]:
        return [item for item in self.news if isinstance(item, Message)]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def gone(self) -> list[bytes]:
        return [item.route for item in self.news if isinstance(item, Gone)]


class Mouth:
    """A connection and everything it reported, in order."""

    def __init__(self, path: str) -> None:
        self.news: list[Message | str] = []
        self.then: Callable[[Message], object] = nothing
        self.connection = Connection(
            path,
            self._hear,
            lambda: self.news.append("open"),
            lambda: self.news.append("gone"),
        )

    def _hear(self, message: Message) -> None:
        self.news.append(message)
        self.then(message)

    @property
    def bodies(self) -> list[bytes]:
        return [item.body for item in self.news if isinstance(item, Message)]

    async def opened(self) -> Mouth:
        await until(lambda: self.connection.open, "it shook hands")
        return self


def received(connection: BlockingConnection, within_ms: int | None = 30_000) -> list[Message]:
    """Wait until something arrives, as a program without a loop does; empty when nothing did."""
    found: list[Message] = []
    poll = select.poll()
    for descriptor in connection.descriptors:
        poll.register(descriptor, select.POLLIN)
    while not connection.take(found.append) and connection.open:
        if not poll.poll(within_ms):
            break
    return found


@dataclass
class Wires:
    """Makes ends and closes them all."""

    path: str
    ends: list[Listener | Connection | BlockingConnection] = field(default_factory=list)

    def ear(self, path: str | None = None) -> Ear:
        made = Ear(path or self.path)
        self.ends.append(made.listener)
        return made

    def mouth(self, path: str | None = None) -> Mouth:
        made = Mouth(path or self.path)
        self.ends.append(made.connection)
        return made

    async def pair(self) -> tuple[Ear, Mouth]:
        """Return a listener and a connection to it that has shaken hands."""
        ear = self.ear()
        return ear, await self.mouth().opened()

    async def blocking(self) -> BlockingConnection:
        """Return a blocking connection, made by a thread because it blocks."""
        made = await asyncio.to_thread(BlockingConnection, self.path, 30_000)
        self.ends.append(made)
        return made

    def close(self) -> None:
        for end in self.ends:
            end.close()
