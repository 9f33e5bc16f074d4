"""Ends of connections: one socket is one connection, and nothing is resent.

A `Bound` socket hears many peers, and a `Listener` is one with a gate; a `Connection`
reaches one. All live in an asyncio loop by their file descriptor, which is
edge-triggered: read until nothing is left, at most a share of it a loop turn, and look
again after every send. A `BlockingConnection` is the same for code without a loop.

No connection ever reconnects: a peer that is gone is gone, what it had sent is read
to the end, and then, once, `on_gone` is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable

from genagent_protocol.errors import NotReachable
from genagentd.arrivals import Message, OnMessage
from genagentd.connections import Connections
from genagentd.entrance import Entrance
from genagentd.gate import Gate
from genagentd.socket_path import check_path, peer_of, probe
from genagentd.sockets import Event, News, Side, Socket

#: Messages taken from one socket before the loop gets its turn again.
BATCH = 256
#: And at most for so long: what one peer says may be dear to hear.
SLICE_S = 0.002
#: Before it is tried again to reach who is there and was missed.
AGAIN_S = 0.01
_ALL = 2**62


class _Looped:
    """What a socket needs to live in an asyncio loop."""

    def __init__(self, side: Side, on_message: OnMessage, news: News) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = Socket(side, news)
        self._on_message = on_message
        self._scheduled = False
        #: Connections that ended, and whose last messages may still wait to be read.
        self._gone: list[int] = []
        self.closed = False
        #: Since when more arrives than is read; None if all of it was read the last time.
        self.behind_since: float | None = None
        #: Messages that were not two frames; counted, dropped, and the connection lives.
        self.bad_frames = 0
        messages, events = self._socket.descriptors
        self._loop.add_reader(messages, self._read)
        self._loop.add_reader(events, self._watch)
        self._look_again()

    def _look_again(self) -> None:
        # The descriptor is edge-triggered: it may stay silent about what came meanwhile.
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._rearm)

    def _rearm(self) -> None:
        self._scheduled = False
        if not self.closed:
            self._watch()
            self._read()

    def _read(self) -> None:
        if self.closed:
            return
        # What is known to be gone was known before this batch: when nothing is left to
        # read now, everything that the gone peer had sent has been handed over.
        gone, self._gone = self._gone, []
        more = True
        try:
            more = self._take()
        finally:
            # Also when whoever hears a message raised: what comes after it is not lost.
            if more:
                self._gone = gone + self._gone
                self._look_again()
        if more:
            self.behind_since = self.behind_since or time.monotonic()
            return
        self.behind_since = None
        for connection in gone:
            if not self._is_closed():
                self._tell_gone(connection)

    def _take(self) -> bool:
        """Hand over one turn's share of what has arrived; True when there may be more."""
        until = time.monotonic() + SLICE_S
        taken = 0
        for message in self._socket.messages(BATCH):
            taken += 1
            if message is None:
                self.bad_frames += 1
            else:
                self._hear(message)
            if self._is_closed() or time.monotonic() > until:
                return True
        return taken == BATCH

    def _hear(self, message: Message) -> None:
        self._on_message(message)

    def read_to_end(self) -> None:
        """Hand over everything that has arrived, however much it is."""
        while not self._is_closed() and self._take():
            pass

    def _watch(self) -> None:
        if self.closed:
            return
        for event in self._socket.news():
            if event.kind == News.ENDED:
                self._gone.append(self._ended(event))
                self._look_again()
            else:
                self._begun(event)
            if self._is_closed():
                return

    def _is_closed(self) -> bool:
        """Ask anew: whoever was just told something may have closed the socket."""
        return self.closed

    def _begun(self, event: Event) -> None:
        raise NotImplementedError

    def _ended(self, event: Event) -> int:
        """Return the number of the connection that ended."""
        raise NotImplementedError

    def _tell_gone(self, connection: int) -> None:
        raise NotImplementedError

    def _send(self, *frames: bytes) -> bool:
        sent = self._socket.send(*frames)
        # Sending may have swallowed the edge that announced something to read.
        if not self._scheduled and self._socket.has_messages():
            self._look_again()
        return sent

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket; with a linger, what was sent has that long to leave."""
        if self.closed:
            return
        self.closed = True
        for fd in self._socket.descriptors:
            self._loop.remove_reader(fd)
        self._socket.close(linger_ms)


class Bound(_Looped):
    """A bound socket that hears many peers and knows when one of them is gone.

    `on_gone(route)` is called once for each connection that a message came by, after
    the last one. Whoever comes to an `Entrance` that it accepts from is let in at once.
    """

    def __init__(self, path: str, on_message: OnMessage, on_gone: Callable[[bytes], None]) -> None:
        """Nobody can come yet.

        Raises:
            UsageError: the path is too long.
            OSError: this process may open no more.
        """
        check_path(path)
        self.path = path
        self._on_gone = on_gone
        self._connections = Connections()
        super().__init__(Side.MANY, on_message, News.ACCEPTED | News.ENDED)

    def accept_from(self, entrance: Entrance) -> None:
        """Let in whoever comes there; its descriptor is ours from now on."""
        self._socket.accept_from(entrance.fd, entrance.name)

    def _begun(self, event: Event) -> None:
        self._connections.accepted(event.fd)

    def _ended(self, event: Event) -> int:
        return self._connections.ended(event.fd)

    def _hear(self, message: Message) -> None:
        if not self._connections.knows(message.route):
            # The news of an acceptance is written before the first message, and read here.
            self._watch()
            over = self._connections.heard(message.route, message.fd)
            if over is not None:
                self._gone.append(over)
                self._look_again()
        self._on_message(message)

    def _tell_gone(self, connection: int) -> None:
        route = self._connections.forget(connection)
        if route is not None:
            self._on_gone(route)

    def send(self, route: bytes, header: bytes, body: bytes) -> bool:
        """Send to one peer; False when it is gone, and then nothing was sent."""
        return not self.closed and self._send(route, header, body)


class Listener(Bound):
    """One that lets people in through a `Gate`, only while there are descriptors for them.

    `on_crowd(free)` is called when peers have to wait, because too few are free.
    """

    def __init__(
        self,
        path: str,
        on_message: OnMessage,
        on_gone: Callable[[bytes], None],
        on_crowd: Callable[[int], None] = lambda _free: None,
    ) -> None:
        """Be reachable at *path*.

        Raises:
            UsageError: the path is too long.
            OSError: the directory, or what this process may open, does not allow it.
        """
        super().__init__(path, on_message, on_gone)
        try:
            self.gate = Gate(path, self.accept_from, self._leave, self._watch, on_crowd)
        except OSError:
            super().close()
            raise

    def _leave(self, entrance: Entrance) -> None:
        self._socket.leave(entrance.name)

    def _begun(self, event: Event) -> None:
        super()._begun(event)
        self.gate.accepted(event.name)

    def _ended(self, event: Event) -> int:
        self.gate.ended(event.name)
        return super()._ended(event)

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket; with a linger, what was sent has that long to leave."""
        self.gate.close()
        super().close(linger_ms)


class Connection(_Looped):
    """A connection to one listener. It never reconnects.

    `on_open` is called once when the peer has shaken hands; sends before that and
    after the end are refused. `on_gone` is called once, after everything the peer
    had sent was handed over.
    """

    def __init__(
        self,
        path: str,
        on_message: OnMessage,
        on_open: Callable[[], None],
        on_gone: Callable[[], None],
    ) -> None:
        """Begin to connect. If nobody listens there, that is the end of it.

        Raises:
            UsageError: the path is too long.
            OSError: this process may open no more.
        """
        check_path(path)
        self._on_open = on_open
        self._on_gone = on_gone
        self._reached = False
        self.open = False
        #: Who listens there, by the kernel's word; 0 while that is not known.
        self.listener_pid = 0
        super().__init__(
            Side.ONE,
            on_message,
            News.CONNECTED | News.MISSED | News.OPEN | News.ENDED,
        )
        self._socket.connect(path)

    def _begun(self, event: Event) -> None:
        if event.kind == News.CONNECTED:
            self._reached = True
            # If it is over by now, the descriptor may be closed, or be something else's.
            with contextlib.suppress(OSError):
                self.listener_pid, _ = peer_of(event.fd)
        elif event.kind == News.OPEN:
            self.open = True
            self._on_open()
        elif not self._reached:
            self._on_gone()

    def _ended(self, event: Event) -> int:
        self.open = False
        return event.fd

    def _tell_gone(self, connection: int) -> None:  # noqa: ARG002  # there is only one peer
        self._on_gone()

    def send(self, header: bytes, body: bytes) -> bool:
        """Send; False when there is no live connection, and then nothing was sent."""
        if not self.open or self.closed:
            return False
        return self._send(header, body)


def _left_ms(deadline: float) -> int:
    return max(math.ceil((deadline - time.monotonic()) * 1000), 0)


class BlockingConnection:
    """A connection for code without a loop: whoever calls `take` reads for all.

    Not for use by two threads at once; not usable after a fork.
    """

    def __init__(self, path: str, timeout_ms: int) -> None:
        """Connect and shake hands.

        Raises:
            NotReachable: nothing listens there, or it did not answer in time.
        """
        self.bad_frames = 0
        self.open = False
        self.closed = False
        deadline = time.monotonic() + timeout_ms / 1000
        while not self._shaken(path, timeout_ms, deadline):
            # Who listened has ended, or let nobody more in; whoever does now is another try.
            time.sleep(AGAIN_S)
        #: What becomes readable when `take` may find something. Edge-triggered: wait for
        #: them only after `take`, and take again after every send.
        self.descriptors = self._socket.descriptors

    def _shaken(self, path: str, timeout_ms: int, deadline: float) -> bool:
        """Try once; False if it was missed.

        Raises:
            NotReachable: as the constructor says.
        """
        probe(path, _left_ms(deadline))
        self._socket = Socket(Side.ONE, News.OPEN | News.MISSED | News.ENDED)
        try:
            self._socket.connect(path)
            # The daemon does not speak first, so there can be no news but these.
            if not self._socket.has_news(_left_ms(deadline)):
                raise NotReachable(
                    f"the daemon at {path} did not shake hands within {timeout_ms} ms",
                    hint="look at it with: genagentd status",
                )
            self._watch()
        finally:
            if not self.open:
                self._socket.close(0)
        return self.open

    def _watch(self) -> None:
        """Take the news: the handshake, and once, that the peer is gone."""
        for event in self._socket.news():
            self.open = event.kind == News.OPEN

    def send(self, header: bytes, body: bytes) -> bool:
        """Send; False when there is no live connection, and then nothing was sent."""
        if not self.open or self.closed:
            return False
        return self._socket.send(header, body)

    def take(self, on_message: OnMessage) -> bool:
        """Hand over all that has arrived, without waiting; True if it was anything.

        Once `open` is False, that is all that ever will. One by one, so that a Ctrl-C
        in between does not lose what was read and not yet handed over.
        """
        if self.closed:
            return False
        if self._socket.has_news():
            self._watch()
        took = False
        for message in self._socket.messages(_ALL):
            took = True
            if message is None:
                self.bad_frames += 1
            else:
                on_message(message)
        return took

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket; with a linger, what was sent has that long to leave."""
        if self.closed:
            return
        self.closed = True
        self.open = False
        self._socket.close(linger_ms)
