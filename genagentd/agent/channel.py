"""The agent's one connection: it can be found until the daemon has come, and by nobody else.

The daemon is the process that is our parent, by the kernel's word on every frame;
its first frame fixes the connection. When that is gone it never comes back.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from genagent_protocol.errors import RemoteWireError
from genagent_protocol.header import Header, decode_header
from genagentd.agent import forked
from genagentd.arrivals import Message
from genagentd.rendezvous import Rendezvous


class Channel:
    """Made inside the coordinator's loop."""

    def __init__(
        self,
        path: str,
        on_frame: Callable[[Header, bytes], None],
        on_lost: Callable[[], None],
        daemon_pid: int,
    ) -> None:
        """Be there for the daemon.

        Raises:
            UsageError: the path is too long.
            OSError: the directory, or what this process may open, does not allow it.
        """
        self.on_frame = on_frame
        self._on_lost = on_lost
        self._daemon_pid = daemon_pid
        self._route: bytes | None = None
        self.lost = False
        #: Frames of strangers, and frames without a header that could be read. The daemon gets no
        #: credit for them: strangers have no window, and it writes every header anew itself.
        self.bad_frames = 0
        self._rendezvous = Rendezvous(path, self._heard, self._gone, daemon_pid)

    def is_there(self) -> bool:
        """Whether the daemon finds us at the path."""
        return self._rendezvous.is_there()

    def _heard(self, message: Message) -> None:
        peer = message.peer
        if (peer.uid, peer.pid) != (os.getuid(), self._daemon_pid):
            self.bad_frames += 1
            return
        if self._route is None:
            self._route = message.route
            self._rendezvous.met()
        try:
            header = decode_header(message.header)
        except RemoteWireError:
            self.bad_frames += 1
            return
        if message.route == self._route:
            self.on_frame(header, message.body)

    def _gone(self, route: bytes) -> None:
        if route == self._route and not self.lost:
            self.lost = True
            self._on_lost()

    def send(self, header: bytes, body: bytes) -> bool:
        """Send to the daemon; False when it is gone, and then nothing was sent."""
        # The connection is the agent's: what a child of it writes here is nobody's word.
        forked.leave()
        return self._route is not None and self._rendezvous.send(self._route, header, body)

    def close(self, linger_ms: int) -> None:
        """Close; what was said has *linger_ms* to leave, unless the daemon is gone."""
        self._rendezvous.close(0 if self.lost else linger_ms)
