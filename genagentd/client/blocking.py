"""The shell for code without a loop: no thread of its own, and one lock.

Several threads may use one client at once. Whoever has to wait while nobody reads
becomes the reader, for all: it sleeps on the descriptors without the lock, takes in
what arrives, and wakes those whose news it was. Nothing is read while nobody waits, except
before a send could be refused for what the daemon has long taken in.

A Ctrl-C may come between any two instructions. So the lock is a plain one, which
`with` takes and frees in one instruction each (a `Condition` does so in Python code),
and whoever follows the reader sleeps on a lock of its own, holding nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from genagent_protocol.envelopes import Welcome
from genagent_protocol.errors import CallError, CallTimeout, UsageError
from genagentd.arrivals import Message as Arrived
from genagentd.channels import BlockingConnection
from genagentd.client import calls, forks, liveness
from genagentd.client.boxes import Box, Matching, Message
from genagentd.client.conversation import Conversation
from genagentd.client.waiting import Script, Waiting
from genagentd.socket_path import unanswered

T = TypeVar("T")

#: The longest single sleep on descriptors: poll(2) takes no more than an int of milliseconds.
MAX_SLEEP_MS = 2**30


class BlockingShell:
    """One connection to the daemon, shared by the threads of one process."""

    def __init__(self, path: str, timeout_ms: int, *, introduce: bool = True) -> None:
        """Connect and introduce ourselves. Without that, only the core is answered.

        Raises:
            NotReachable: no daemon answers there in time.
            VersionMismatch: we share no version with it.
        """
        self._generation = forks.generation()
        self._path = path
        self._lock = threading.Lock()
        #: What each thread sleeps on that waits while another one reads.
        self._followers: dict[int, threading.Lock] = {}
        #: The thread that sleeps on the descriptors for all.
        self._reader: int | None = None
        self.closed = False
        self.talk = Conversation()
        self.local = False
        self._connection = BlockingConnection(path, timeout_ms)
        self._poke = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for descriptor in (*self._connection.descriptors, self._poke):
            self._poll.register(descriptor, select.POLLIN)
        if introduce:
            self._introduce(timeout_ms)

    def _introduce(self, timeout_ms: int) -> None:
        try:
            self.do(Conversation.hello)
            self._welcomed(timeout_ms)
        except BaseException:
            self.close(linger_ms=0)
            raise

    def _welcomed(self, timeout_ms: int) -> Welcome:
        if self.wait(self.talk.welcome, _deadline(timeout_ms)) and not self.talk.ended:
            return self.talk.welcome.value()
        raise unanswered(self._path, timeout_ms, ended=self.talk.ended)

    # --- what callers use

    @property
    def owned(self) -> bool:
        """Whether this process made the connection (and not one that forked it off)."""
        return self._generation == forks.generation()

    @property
    def open_here(self) -> bool:
        """Whether something of it can be closed: it is open, and this process made it.

        What leaves a `with` in a forked child leaves the parent's things alone.
        """
        return self.owned and not self.closed

    def check(self) -> None:
        """Refuse a use that cannot work.

        Raises:
            UsageError: the client is closed, or was made by another process.
        """
        # A forked child must not even touch the lock: some thread may have held it.
        if not self.owned:
            raise UsageError("this client was made before a fork; make a new one in the child")
        if self.closed:
            raise UsageError("this client is closed")

    def do(self, action: Callable[[Conversation], T]) -> T:
        """Do something that waits for nothing."""
        self.check()
        with self._lock:
            self._make_room()
            try:
                return action(self.talk)
            finally:
                self._flush()

    def run(self, script: Script[T], timeout_ms: int | None) -> T:
        """Run one call to its end.

        Raises:
            CallTimeout: it took longer than *timeout_ms*; its `fate` is what is known of it.
        """
        self.check()
        deadline = _deadline(timeout_ms)
        while True:
            try:
                waiting = self._step(script)
            except StopIteration as end:
                value: T = end.value
                return value
            in_time = False
            try:
                in_time = self.wait(waiting, deadline)
            finally:
                if not in_time:
                    self._give_up(waiting, timeout_ms)

    def _step(self, script: Script[T]) -> Waiting[Any]:
        with self._lock:
            self._make_room()
            try:
                return next(script)
            finally:
                self._flush()

    def _give_up(self, waiting: Waiting[Any], timeout_ms: int | None) -> None:
        with self._lock:
            self.talk.give_up(waiting)
            waiting.fail(CallTimeout(waiting.what, timeout_ms or 0, fate=waiting.fate))

    def receive(self, box: Box, matching: Matching, timeout_ms: int | None) -> Message | None:
        """Return the first message that matches, or None when none came in time."""
        self.check()
        with self._lock:
            waiting = box.expect(matching, "receive")
            self.talk.looked()
            self._flush()
        try:
            if not self.wait(waiting, _deadline(timeout_ms)):
                return None
            message = waiting.value()
            box.taken(waiting)
            return message
        finally:
            with self._lock:
                box.give_up(waiting)

    # --- waiting

    def wait(self, waiting: Waiting[Any], deadline: float | None) -> bool:
        """Wait until *waiting* is settled; False when the deadline passed first."""
        me = threading.get_ident()
        try:
            while True:
                with self._lock:
                    follows = self._another_reads()
                    if not follows and not waiting.done:
                        self._take_in()
                    if waiting.done:
                        return True
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    if self.closed:
                        raise UsageError(f"{waiting.what}: this client was closed meanwhile")
                    if follows:
                        woken = self._follow()
                    else:
                        self._reader = me
                if follows:
                    woken.acquire(timeout=-1 if left is None else min(left, threading.TIMEOUT_MAX))
                else:
                    self._sleep(left)
                    self._lead_no_more()
        finally:
            # A Ctrl-C may arrive anywhere in here, and the others must go on.
            if self._reader == me:
                self._lead_no_more()

    def _another_reads(self) -> bool:
        # This thread itself may be left as the reader, by a second Ctrl-C upon the first.
        return self._reader not in (None, threading.get_ident())

    def _follow(self) -> threading.Lock:
        """Return what is freed at the next change."""
        woken = threading.Lock()
        woken.acquire()
        self._followers[threading.get_ident()] = woken
        return woken

    def _wake_followers(self) -> None:
        for woken in self._followers.values():
            if woken.locked():
                woken.release()
        self._followers.clear()

    def _sleep(self, left_s: float | None) -> None:
        left_ms = None if left_s is None else min(left_s * 1000, MAX_SLEEP_MS)
        ready = self._poll.poll(left_ms)
        if any(descriptor == self._poke for descriptor, _ in ready):
            os.eventfd_read(self._poke)

    def _lead_no_more(self) -> None:
        """Take in what came, and let another one read."""
        with self._lock:
            try:
                self._take_in()
            finally:
                self._wake_followers()
                # Last: until then, whoever is interrupted here has to come back.
                self._reader = None

    def _take_in(self) -> None:
        """Take in all that has arrived. Who sleeps for it is woken."""
        news = True  # Until it is known: a Ctrl-C may leave what was taken in unannounced.
        try:
            took = self._connection.take(self._arrived)
            lost = not self._connection.open and not self.talk.ended
            if lost:
                self.talk.end()
            self._send_all()
            news = took or lost
        finally:
            if news:
                self._wake_followers()
                if self._another_reads():
                    os.eventfd_write(self._poke, 1)

    def _arrived(self, message: Arrived) -> None:
        if not self.talk.welcome.done:
            self.local = liveness.same_pid_namespace(message.peer.pid)
        self.talk.take(message.header, message.body)

    def _make_room(self) -> None:
        """Hear what the daemon has taken in, before something is refused for the want of it."""
        if self.talk.crowded:
            self._take_in()

    def _flush(self) -> None:
        self._send_all()
        if self._another_reads():
            # Sending may have swallowed the edge that the reader sleeps on.
            self._take_in()

    def _send_all(self) -> None:
        for frames in self.talk.outgoing():
            self._connection.send(frames.header, frames.body)

    # --- the end

    def close(self, linger_ms: int) -> None:
        """End the connection, when the daemon has read what was sent or *linger_ms* passed."""
        if not self.owned or self.closed:
            return
        if linger_ms and self.talk.unconfirmed:
            # An answer proves that all of it was read. Without one there is nothing to wait for.
            with contextlib.suppress(CallError):
                self.run(calls.ping(self.talk), linger_ms)
        self.closed = True
        while not self._ended():
            pass

    def _ended(self) -> bool:
        """Close everything if nobody reads; else wait for a change."""
        with self._lock:
            if not self._another_reads():
                self.talk.end()
                self._connection.close()
                os.close(self._poke)
                self._wake_followers()
                return True
            os.eventfd_write(self._poke, 1)
            woken = self._follow()
        woken.acquire()
        return False


def _deadline(timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
