"""ZeroMQ as this product uses it, and the only file that knows it: a socket and its news.

A socket never reconnects, and nothing that it has in memory is dropped by itself;
whoever uses it sees to it that this has bounds. Every message is two frames, and
comes with the kernel's word on who sent it. What becomes of connections is told as
news, in order. A process has one context, and a forked child never its parent's.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

import zmq

from genagent_protocol.bounds import MAX_FRAME_BYTES
from genagentd.arrivals import Message, Peer

#: For ever, to libzmq: a value of 0 or less would discard what was received and not read.
_NEVER_MS = 86_400_000
#: How many of our sockets one process may hold (three for each agent, in the daemon).
_MAX_SOCKETS = 65_000
#: As many as a process needs that has one connection; a table for more costs it 1 MiB.
FEW_SOCKETS = 16
#: ZeroMQ keeps the milliseconds of a poll in an int.
_MAX_POLL_MS = 2**30

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


def hold_few() -> None:
    """Make this process's context one for few sockets, and start its threads.

    Call it before the first socket.
    """
    _make_context(FEW_SOCKETS)
    Socket(Side.MANY, News.ENDED).close(0)


def _make_context(max_sockets: int) -> None:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made.set(zmq.MAX_SOCKETS, max_sockets)
    _contexts[os.getpid()] = made


def _context() -> zmq.Context[zmq.Socket[bytes]]:
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


class Side(enum.Enum):
    """Which end of a connection a socket is, and so with how many it talks."""

    MANY = zmq.ROUTER
    ONE = zmq.DEALER


class News(enum.IntFlag):
    """What a socket tells of its connections."""

    ACCEPTED = zmq.EVENT_ACCEPTED
    CONNECTED = zmq.EVENT_CONNECTED
    #: Nobody listens where we wanted to connect to, or what we were connected to has ended.
    MISSED = zmq.EVENT_CONNECT_RETRIED
    OPEN = zmq.EVENT_HANDSHAKE_SUCCEEDED
    ENDED = zmq.EVENT_DISCONNECTED


class Event(NamedTuple):
    """One of the `News`, of a connection by the listening socket of that name.

    `fd` was the connection's descriptor at that moment; `OPEN` and `MISSED` do not say it.
    """

    kind: int
    fd: int
    name: str


class Socket:
    """One socket. Not for two threads at once.

    `descriptors` become readable when there are messages, and news. They are
    edge-triggered: wait for them only after everything was taken, and take again
    after every send.
    """

    def __init__(self, side: Side, news: News) -> None:
        """Make one that tells *news*.

        Raises:
            OSError: this process may open no more.
        """
        self._routed = side is Side.MANY
        with _errors_of_the_system():
            self._zmq = made = _context().socket(side.value)
        made.set(zmq.LINGER, 0)
        made.set(zmq.IMMEDIATE, 0)
        made.set(zmq.RECONNECT_IVL, _NEVER_MS)
        made.set(zmq.RCVHWM, 0)
        made.set(zmq.SNDHWM, 0)
        made.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        if self._routed:
            made.set(zmq.ROUTER_MANDATORY, 1)
        try:
            with _errors_of_the_system():
                self._monitor = made.get_monitor_socket(int(news))
        except OSError:
            made.close(0)
            raise
        self._monitor.set(zmq.LINGER, 0)
        self.descriptors = (int(made.get(zmq.FD)), int(self._monitor.get(zmq.FD)))

    def connect(self, path: str) -> None:
        """Begin to connect to whoever listens at *path*."""
        self._zmq.connect(f"ipc://{path}")

    def hear_only(self, pid: int) -> None:
        """Let in nobody but that process, by the kernel's word; before anybody is let in."""
        self._zmq.set(zmq.IPC_FILTER_PID, pid)

    def accept_from(self, fd: int, name: str) -> None:
        """Let in whoever comes to the listening socket *fd*, which is ours from now on.

        Raises:
            OSError: this process may open no more.
        """
        with _errors_of_the_system():
            self._zmq.set(zmq.USE_FD, fd)
            self._zmq.bind(f"ipc://{name}")

    def leave(self, name: str) -> None:
        """Close the listening socket of that name, and every connection that came by it."""
        self._zmq.unbind(f"ipc://{name}")

    def messages(self, most: int) -> Iterator[Message | None]:
        """Yield what has arrived, at most *most*; None stands for frames that are no message."""
        for _ in range(most):
            try:
                frames = self._zmq.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            yield _message(frames, routed=self._routed)

    def has_messages(self) -> bool:
        """Whether there is something to read."""
        return bool(int(self._zmq.get(zmq.EVENTS)) & zmq.POLLIN)

    def news(self) -> Iterator[Event]:
        """Yield what became of connections."""
        with contextlib.suppress(zmq.Again):
            while True:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
                kind = int.from_bytes(frames[0][:2], "little")
                fd = int.from_bytes(frames[0][2:6], "little", signed=True)
                yield Event(kind, fd, os.fsdecode(frames[1]).removeprefix("ipc://"))

    def has_news(self, within_ms: int = 0) -> bool:
        """Whether there are news; wait for them *within_ms* at most."""
        if within_ms:
            return bool(self._monitor.poll(min(within_ms, _MAX_POLL_MS)))
        return bool(int(self._monitor.get(zmq.EVENTS)) & zmq.POLLIN)

    def send(self, *frames: bytes) -> bool:
        """Send; False when the peer that the first frame names is gone: nothing was sent then."""
        try:
            # Copied: without, pyzmq starts a thread of its own for large frames.
            self._zmq.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if self._routed and error.errno in (errno.EHOSTUNREACH, errno.EAGAIN):
                return False
            raise
        return True

    def close(self, linger_ms: int) -> None:
        """Close it; what was sent has *linger_ms* to leave."""
        self._zmq.disable_monitor()
        self._monitor.close(0)
        self._zmq.close(linger_ms)


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
