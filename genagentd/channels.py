"""ZeroMQ as this product uses it: one socket is one connection, and nothing is resent.

A `Listener` binds and hears many peers; a `Connection` reaches one. Both live in an
asyncio loop by their file descriptor, which is edge-triggered: read until nothing is
left, at most a share of it a loop turn, and look again after every send. A
`BlockingConnection` is the same for code without a loop. Every message is two
frames, `[header, body]`, and comes with the kernel's word on who sent it.

No connection ever reconnects: a peer that is gone is gone, what it had sent is read
to the end, and then, once, `on_gone` is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import zmq

from genagent_protocol.bounds import MAX_FRAME_BYTES
from genagent_protocol.errors import NotReachable
from genagentd.arrivals import Message, OnMessage, Peer
from genagentd.connections import Connections
from genagentd.entrance import Entrance
from genagentd.gate import Gate
from genagentd.socket_path import check_path, probe

#: Messages taken from one socket before the loop gets its turn again.
BATCH = 256
#: And at most for so long: what one peer says may be dear to hear.
SLICE_S = 0.002
_ALL = 2**62
#: For ever, to libzmq: a value of 0 or less would discard what was received and not read.
_NEVER_MS = 86_400_000
#: How many of our sockets one process may hold (three for each agent, in the daemon).
_MAX_SOCKETS = 65_000
#: As many as a process needs that has one connection; a table for more costs it 1 MiB.
FEW_SOCKETS = 16


_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


def hold_few() -> None:
    """Make this process's context one for few sockets, and start its threads.

    Call it before the first socket.
    """
    _make_context(FEW_SOCKETS)
    _prepare(zmq.ROUTER).close()


def _make_context(max_sockets: int) -> None:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made.set(zmq.MAX_SOCKETS, max_sockets)
    _contexts[os.getpid()] = made


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return this process's ZeroMQ context; a forked child never gets its parent's."""
    pid = os.getpid()
    if pid not in _contexts:
        _make_context(_MAX_SOCKETS)
    return _contexts[pid]


def end_context() -> None:
    """End this process's context: waits until what was sent with a linger has left."""
    context = _contexts.pop(os.getpid(), None)
    if context is not None:
        context.term()


@contextlib.contextmanager
def _errors_of_the_system() -> Iterator[None]:
    """Raise what libzmq could not get from the kernel as the `OSError` it is."""
    try:
        yield
    except zmq.ZMQError as error:
        raise OSError(error.errno, error.strerror) from error


def _prepare(kind: int) -> zmq.Socket[bytes]:
    with _errors_of_the_system():
        made = _context().socket(kind)
    made.set(zmq.LINGER, 0)
    made.set(zmq.IMMEDIATE, 0)
    made.set(zmq.RECONNECT_IVL, _NEVER_MS)
    made.set(zmq.RCVHWM, 0)
    made.set(zmq.SNDHWM, 0)
    made.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    if kind == zmq.ROUTER:
        made.set(zmq.ROUTER_MANDATORY, 1)
    return made


def _messages(source: zmq.Socket[bytes], *, routed: bool, most: int) -> Iterator[Message | None]:
    """Yield what waits on *source*, at most *most*; None stands for frames that are no message."""
    for _ in range(most):
        try:
            frames = source.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return
        yield _message(frames, routed=routed)


def _message(frames: list[zmq.Frame], *, routed: bool) -> Message | None:
    if len(frames) != (3 if routed else 2):
        return None
    header, body = frames[-2], frames[-1]
    return Message(
        bytes(frames[0].buffer) if routed else b"",
        int(header.get(zmq.SRCFD)),
        _peer(header),
        bytes(header.buffer),
        bytes(body.buffer),
    )


def _peer(frame: zmq.Frame) -> Peer:
    _, uid, gid, pid = str(frame.get("Peer-Address")).rsplit(":", 3)
    return Peer(int(uid), int(gid), int(pid))


class _Event(NamedTuple):
    kind: int
    fd: int
    endpoint: str


class _Monitor:
    """The connection events of one socket, in order."""

    def __init__(self, watched: zmq.Socket[bytes], events: int) -> None:
        self._watched = watched
        try:
            with _errors_of_the_system():
                self.pair = watched.get_monitor_socket(events)
        except OSError:
            watched.close(0)
            raise
        self.pair.set(zmq.LINGER, 0)

    def events(self) -> Iterator[_Event]:
        with contextlib.suppress(zmq.Again):
            while True:
                frames = self.pair.recv_multipart(zmq.NOBLOCK)
                kind = int.from_bytes(frames[0][:2], "little")
                fd = int.from_bytes(frames[0][2:6], "little", signed=True)
                yield _Event(kind, fd, os.fsdecode(frames[1]))

    def close(self) -> None:
        self._watched.disable_monitor()
        self.pair.close(0)


class _Looped:
    """What a socket needs to live in an asyncio loop."""

    def __init__(self, kind: int, on_message: OnMessage, events: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = made = _prepare(kind)
        self._routed = kind == zmq.ROUTER
        self._on_message = on_message
        self._monitor = _Monitor(made, events)
        self._scheduled = False
        #: Connections that ended, and whose last messages may still wait to be read.
        self._gone: list[int] = []
        self.closed = False
        #: Since when more arrives than is read; None if all of it was read the last time.
        self.behind_since: float | None = None
        #: Messages that were not two frames; counted, dropped, and the connection lives.
        self.bad_frames = 0
        self._fds = (int(made.get(zmq.FD)), int(self._monitor.pair.get(zmq.FD)))
        self._loop.add_reader(self._fds[0], self._read)
        self._loop.add_reader(self._fds[1], self._watch)
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
        for message in _messages(self._socket, routed=self._routed, most=BATCH):
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
        for event in self._monitor.events():
            if event.kind == zmq.EVENT_DISCONNECTED:
                self._gone.append(self._ended(event))
                self._look_again()
            else:
                self._begun(event)
            if self._is_closed():
                return

    def _is_closed(self) -> bool:
        """Ask anew: whoever was just told something may have closed the socket."""
        return self.closed

    def _begun(self, event: _Event) -> None:
        raise NotImplementedError

    def _ended(self, event: _Event) -> int:
        """Return the number of the connection that ended."""
        raise NotImplementedError

    def _tell_gone(self, connection: int) -> None:
        raise NotImplementedError

    def _send(self, frames: list[bytes]) -> None:
        # Copied: without, pyzmq starts a thread of its own for large frames.
        self._socket.send_multipart(frames, zmq.NOBLOCK)
        # Sending may have swallowed the edge that announced something to read.
        if not self._scheduled and int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            self._look_again()

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket; with a linger, what was sent has that long to leave."""
        if self.closed:
            return
        self.closed = True
        for fd in self._fds:
            self._loop.remove_reader(fd)
        self._monitor.close()
        self._socket.close(linger_ms)


class Listener(_Looped):
    """A bound socket that hears many peers and knows when one of them is gone.

    `on_gone(route)` is called once for each connection that a message came by, after
    the last one; `on_crowd(free)` when peers have to wait, because too few descriptors
    are free.
    """

    def __init__(
        self,
        path: str,
        on_message: OnMessage,
        on_gone: Callable[[bytes], None],
        on_crowd: Callable[[int], None] = lambda _free: None,
        *,
        cautious: bool = False,
    ) -> None:
        """Bind; *cautious*, if descriptors go elsewhere and nobody tells `gate.recounted`.

        Raises:
            UsageError: the path is too long.
            OSError: the directory, or what this process may open, does not allow it.
        """
        check_path(path)
        self.path = path
        self._on_gone = on_gone
        self._connections = Connections()
        super().__init__(zmq.ROUTER, on_message, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        try:
            self.gate = Gate(
                path, self._accept_from, self._leave, self._watch, on_crowd, cautious=cautious
            )
        except OSError:
            super().close()
            raise

    def _accept_from(self, entrance: Entrance) -> None:
        with _errors_of_the_system():
            self._socket.set(zmq.USE_FD, entrance.fd)
            self._socket.bind(entrance.endpoint)

    def _leave(self, entrance: Entrance) -> None:
        self._socket.unbind(entrance.endpoint)

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket; with a linger, what was sent has that long to leave."""
        self.gate.close()
        super().close(linger_ms)

    def _begun(self, event: _Event) -> None:
        self._connections.accepted(event.fd)
        self.gate.accepted(event.endpoint)

    def _ended(self, event: _Event) -> int:
        self.gate.ended(event.endpoint)
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
        if self.closed:
            return False
        try:
            self._send([route, header, body])
        except zmq.ZMQError as error:
            if error.errno in (errno.EHOSTUNREACH, errno.EAGAIN):
                return False
            raise
        return True


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
        """Begin to connect. Nothing ever happens if nobody listens there: `probe` first.

        Raises:
            UsageError: the path is too long.
            OSError: this process may open no more.
        """
        check_path(path)
        self._on_open = on_open
        self._on_gone = on_gone
        self.open = False
        super().__init__(
            zmq.DEALER, on_message, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        self._socket.connect(f"ipc://{path}")

    def _begun(self, event: _Event) -> None:  # noqa: ARG002  # there is only one peer
        self.open = True
        self._on_open()

    def _ended(self, event: _Event) -> int:
        self.open = False
        return event.fd

    def _tell_gone(self, connection: int) -> None:  # noqa: ARG002  # there is only one peer
        self._on_gone()

    def send(self, header: bytes, body: bytes) -> bool:
        """Send; False when there is no live connection, and then nothing was sent."""
        if not self.open or self.closed:
            return False
        self._send([header, body])
        return True


#: ZeroMQ keeps the milliseconds of a poll in an int.
_MAX_POLL_MS = 2**30


class BlockingConnection:
    """A connection for code without a loop: whoever calls `take` reads for all.

    Not for use by two threads at once; not usable after a fork.
    """

    def __init__(self, path: str, timeout_ms: int) -> None:
        """Connect and shake hands.

        Raises:
            NotReachable: nothing listens there, or it did not answer in time.
        """
        probe(path, timeout_ms)
        self._socket = _prepare(zmq.DEALER)
        self._monitor = _Monitor(
            self._socket, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        self.bad_frames = 0
        self.open = False
        self.closed = False
        #: What becomes readable when `take` may find something. Edge-triggered: wait for
        #: them only after `take`, and take again after every send.
        self.descriptors = (int(self._socket.get(zmq.FD)), int(self._monitor.pair.get(zmq.FD)))
        self._socket.connect(f"ipc://{path}")
        self._shake_hands(path, timeout_ms)

    def _shake_hands(self, path: str, timeout_ms: int) -> None:
        # The daemon does not speak first, so the only news can be the handshake.
        if self._monitor.pair.poll(min(timeout_ms, _MAX_POLL_MS)):
            self._watch()
        if not self.open:
            self.close()
            raise NotReachable(
                f"the daemon at {path} did not shake hands within {timeout_ms} ms; "
                "look at it with: genagentd status"
            )

    def _watch(self) -> None:
        """Take the news: the handshake, and once, that the peer is gone."""
        for event in self._monitor.events():
            self.open = event.kind == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def send(self, header: bytes, body: bytes) -> bool:
        """Send; False when there is no live connection, and then nothing was sent."""
        if not self.open or self.closed:
            return False
        self._socket.send_multipart([header, body], zmq.NOBLOCK)
        return True

    def take(self, on_message: OnMessage) -> bool:
        """Hand over all that has arrived, without waiting; True if it was anything.

        Once `open` is False, that is all that ever will. One by one, so that a Ctrl-C
        in between does not lose what was read and not yet handed over.
        """
        if self.closed:
            return False
        if int(self._monitor.pair.get(zmq.EVENTS)) & zmq.POLLIN:
            self._watch()
        took = False
        for message in _messages(self._socket, routed=False, most=_ALL):
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
        self._monitor.close()
        self._socket.close(linger_ms)
