"""The agent's one connection: it binds, the daemon connects, and nobody else is heard.

The daemon is the process that is our parent, by the kernel's word on every frame;
its first frame fixes the connection. When that is gone it never comes back.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from genagent_protocol.errors import RemoteWireError
from genagent_protocol.header import Header, decode_header
from genagentd.channels import Listener, Message

#: How long after the news the connection is looked at, to tell whose end that was.
SETTLING_S = 0.05


class Channel:
    """Made inside the coordinator's loop."""

    def __init__(
        self,
        path: str,
        on_frame: Callable[[Header, bytes], None],
        on_lost: Callable[[], None],
        daemon_pid: int,
    ) -> None:
        self.on_frame = on_frame
        self._on_lost = on_lost
        self._daemon_pid = daemon_pid
        self._loop = asyncio.get_running_loop()
        self._route: bytes | None = None
        self._fd = -1
        self._inode = -1
        self.lost = False
        #: Frames of strangers, and frames without a header that could be read.
        self.bad_frames = 0
        self._listener = Listener(path, self._heard, self._gone)

    def _heard(self, message: Message) -> None:
        peer = message.peer
        if (peer.uid, peer.pid) != (os.getuid(), self._daemon_pid):
            self.bad_frames += 1
            return
        if self._route is None:
            self._route, self._fd = message.route, message.fd
            self._inode = _inode(message.fd)
        try:
            header = decode_header(message.header)
        except RemoteWireError:
            self.bad_frames += 1
            return
        if message.route == self._route:
            self.on_frame(header, message.body)

    def _gone(self, fd: int) -> None:
        # The daemon first asks who listens here, over a connection of its own whose number the
        # kernel gives to the next one: the number alone does not say which of them has ended.
        if fd == self._fd and not self.lost:
            self._loop.call_later(SETTLING_S, self._look)

    def _look(self) -> None:
        if not self.lost and _inode(self._fd) != self._inode:
            self.lost = True
            self._on_lost()

    def send(self, header: bytes, body: bytes) -> bool:
        """Send to the daemon; False when it is gone, and then nothing was sent."""
        return self._route is not None and self._listener.send(self._route, header, body)

    def close(self, linger_ms: int) -> None:
        """Close; what was sent has *linger_ms* to leave, unless the daemon is gone."""
        self._listener.close(0 if self.lost else linger_ms)


def _inode(fd: int) -> int:
    """Return what tells the socket behind *fd* from every other one, or 0 if it is closed."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return 0
