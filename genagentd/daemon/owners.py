"""The processes behind clients: a connection can outlive its process, what it owns must not.

A process that a client's process forked off holds a copy of the connection, which stays
open as long as that one lives. The kernel knows better: the daemon watches the process
itself, and gives the connection a moment to end on its own, so that what was sent last
is heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from genagentd import kernel
from genagentd.daemon.switchboard import Client

#: How long a connection may outlive its process; by then what it had sent has been read.
LAST_READ_S = 1.0


class Owners:
    """Watches one process for each client."""

    def __init__(self, on_lost: Callable[[Client], None]) -> None:
        """Call *on_lost*, once, for a client that outlives its process and was not forgotten."""
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._watched: dict[Client, int] = {}

    def watch(self, client: Client) -> None:
        """Watch the process that made *client*'s connection; if that can be."""
        pidfd = None
        with contextlib.suppress(OSError):
            pidfd = kernel.open_pidfd(client.pid) if client.pid > 0 else None
        if pidfd is not None:
            self._watched[client] = pidfd
            self._loop.add_reader(pidfd, self._ended, client)

    def forget(self, client: Client) -> None:
        """The connection is gone, too; again is fine."""
        pidfd = self._watched.pop(client, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def _ended(self, client: Client) -> None:
        self._loop.remove_reader(self._watched[client])
        self._loop.call_later(LAST_READ_S, self._judge, client)

    def _judge(self, client: Client) -> None:
        if client in self._watched:
            self.forget(client)
            self._on_lost(client)

    def close(self) -> None:
        """Watch nobody any more."""
        for client in list(self._watched):
            self.forget(client)
