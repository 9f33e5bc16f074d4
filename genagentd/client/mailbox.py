"""Mailboxes as callers hold them, in both shells.

A mailbox dies with its connection. What arrived before that can still be received;
then `receive` raises instead of waiting for ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType

from genagent_protocol.errors import UsageError
from genagent_protocol.refs import MailboxAddress
from genagentd import arguments
from genagentd.client.blocking import BlockingShell
from genagentd.client.boxes import Box, Matching, Message, anything
from genagentd.client.looped import LoopedShell


class Mailbox:
    """A further mailbox of one client: messages in the order in which they arrived."""

    def __init__(self, shell: BlockingShell, box: Box) -> None:
        self._shell = shell
        self.box = box
        self.address: MailboxAddress = shell.talk.address(box)

    def receive(
        self, timeout_ms: int | None = None, *, matching: Matching = anything
    ) -> Message | None:
        """Return and remove the first message, or the first that matches; None after the limit.

        The others keep their order. *matching* is called while the client is locked:
        it looks at the message and does nothing else.

        Raises:
            DaemonLost: the connection is over and nothing that matches is left.
            UsageError: the mailbox is closed.
        """
        return self._shell.receive(self.box, matching, arguments.timeout(timeout_ms))

    def __iter__(self) -> Iterator[Message]:
        """Yield what arrives, in that order, without end; raises as `receive`."""
        while (message := self.receive()) is not None:
            yield message

    @property
    def count(self) -> int:
        """How many messages are here now."""
        return len(self.box)

    def close(self) -> None:
        """Drop what is here and what will come."""
        if not self.box.closed and self._shell.open_here:
            self._shell.do(lambda talk: talk.close_box(self.box))

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncMailbox:
    """`Mailbox` for asyncio: the same calls, awaited."""

    def __init__(self, shell: LoopedShell, box: Box) -> None:
        self._shell = shell
        self.box = box
        self.address: MailboxAddress = shell.talk.address(box)

    async def receive(
        self, timeout_ms: int | None = None, *, matching: Matching = anything
    ) -> Message | None:
        """As `Mailbox.receive`."""
        return await self._shell.receive(self.box, matching, arguments.timeout(timeout_ms))

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yield what arrives, in that order, without end; raises as `receive`."""
        while (message := await self.receive()) is not None:
            yield message

    @property
    def count(self) -> int:
        """How many messages are here now."""
        return len(self.box)

    async def close(self) -> None:
        """As `Mailbox.close`; it suspends nobody."""
        if not self.box.closed and self._shell.open_here:
            self._shell.do(lambda talk: talk.close_box(self.box))

    async def __aenter__(self) -> AsyncMailbox:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def box_of(mailbox: object, shell: BlockingShell | LoopedShell) -> Box:
    """Return what *mailbox* holds its messages in, if it is one of this connection.

    Raises:
        UsageError: it is no mailbox, or one of another client.
    """
    if not isinstance(mailbox, Mailbox | AsyncMailbox):
        raise UsageError(
            f"mailbox: a mailbox is wanted, not {type(mailbox).__name__}: "
            "client.mailbox() returns one"
        )
    # Whoever receives there sleeps on another connection and would not be woken.
    if mailbox._shell is not shell:
        raise UsageError("mailbox: it belongs to another client; monitor with that one")
    return mailbox.box
