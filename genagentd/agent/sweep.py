"""Ending what is left below this process: found by what was there before, never by name.

This process adopts the orphans below it, so whatever a turn began, in whatever
session, is a descendant. What was there when the turn began is spared with all its
own descendants, and with those that it orphaned since: nobody else can be in a session
that there was then, but for our own. The rest is asked to end, then killed, and looked for
again until nothing is left. Only what is ours to reap is reaped, each by its exact pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from genagent_backends.timeouts import timeout
from genagentd import kernel
from genagentd.agent import reserve

#: How long what is asked to end may take before it is killed, unless somebody is in a hurry.
POLITE_MS = 500
#: How long one round of killing waits for the dead, and how many rounds there are.
ROUND_MS = 500
ROUNDS = 20

#: A process for certain: its pid, and the tick it started at.
Identity: TypeAlias = tuple[int, int]


def childless() -> bool:
    """Whether this process has no child at all, and so no descendant; one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def hear_of_ends(loop: asyncio.AbstractEventLoop) -> None:
    """Have *loop*, the one of the main thread, reap what we adopted whenever a child ends."""
    loop.add_signal_handler(signal.SIGCHLD, reap_adopted)
    kernel.wake_in_silence()


def hear_of_ends_again(loop: asyncio.AbstractEventLoop) -> None:
    """Do that where code of the agent has the ends of children ignored: no status is kept then.

    It may have done so behind Python's back. A handler of its own stays, beside ours.
    """
    handler = signal.getsignal(signal.SIGCHLD)
    if not callable(handler):
        hear_of_ends(loop)
        return
    signal.signal(signal.SIGCHLD, handler)
    signal.siginterrupt(signal.SIGCHLD, False)


def reap_adopted() -> None:
    """Reap what is dead below us and was for certain not started by this process.

    A process is born into its parent's session and can only leave it for one of its own;
    a child in anybody else's session was somebody else's child first. This does not find
    an adopted process in our session or in one of its own: it looks like a child of the
    agent's code, whose status is that code's to collect.
    """
    if not _something_dead():
        return
    ours = os.getsid(0)
    # Where it cannot be looked for now, it is found by the next look, or the end of the turn.
    with contextlib.suppress(OSError), reserve.lent():
        for pid in kernel.children(os.getpid()):
            found = kernel.stat(pid)
            if found is not None and found.ended and found.session not in (ours, pid):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _something_dead() -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return False


def below() -> frozenset[Identity]:
    """Return every descendant there is now, zombies too.

    Raises:
        OSError: not even the reserve of descriptors was enough to look.
    """
    return frozenset() if childless() else tree_of(os.getpid())


def tree_of(pid: int) -> frozenset[Identity]:
    """Return every descendant of *pid*.

    Raises:
        OSError: as above.
    """
    with reserve.lent():
        return frozenset((one, kernel.started_ticks(one)) for one in kernel.descendants(pid))


def sessions_of(some: Iterable[Identity]) -> frozenset[int]:
    """Return the sessions that *some* of our descendants are in, but for our own.

    Raises:
        OSError: as above.
    """
    with reserve.lent():
        found = (kernel.stat(pid) for pid, _ in some)
        return frozenset(stat.session for stat in found if stat) - {os.getsid(0)}


def unspared(
    spared: frozenset[Identity], roots: frozenset[int], sessions: frozenset[int] = frozenset()
) -> Iterator[kernel.Stat]:
    """Yield the descendants that are not *spared*, in *roots*, in *sessions*, or below of those."""
    waiting = kernel.children(os.getpid())
    while waiting:
        found = kernel.stat(waiting.pop())
        if found is None or found.pid in roots or found.session in sessions:
            continue
        if (found.pid, found.started_ticks) in spared:
            continue
        waiting += kernel.children(found.pid)
        yield found


class Sweep:
    """One clean-up. `reaps_itself` tells the pids that somebody here waits for already."""

    def __init__(
        self,
        spared: frozenset[Identity],
        roots: frozenset[int],
        reaps_itself: Callable[[int], bool],
        polite_ms: int = POLITE_MS,
        sessions: frozenset[int] = frozenset(),
    ) -> None:
        self._polite_ms = polite_ms
        self._sessions = sessions
        self._spared = spared
        self._roots = roots
        self._reaps_itself = reaps_itself
        #: What lives and may not be signalled.
        self.immune: set[Identity] = set()

    async def end(self) -> int:
        """End everything that is not spared; return how many processes there were.

        What cannot be killed is given up: a process stuck in the kernel in the end, one
        that runs as another user at once. `immune` names the latter.

        Raises:
            OSError: they cannot be looked for, and may live on.
        """
        if childless():
            return 0
        found = self.left()
        if found:
            await signalled(found, signal.SIGTERM, self._polite_ms)
        ended = set(found)
        for _ in range(ROUNDS):
            left = [found for found in self.left() if found not in self.immune]
            if not left:
                break
            ended.update(left)
            self.immune |= await signalled(left, signal.SIGKILL, ROUND_MS)
        return len(ended - self.immune)

    def kill(self) -> None:
        """Kill everything that is not spared, now, and wait for nothing.

        Raises:
            OSError: they cannot be looked for, and may live on.
        """
        for one in self.left():
            _signal(one, signal.SIGKILL)

    def left(self) -> list[Identity]:
        """Return what lives and is not spared, after reaping what is dead and ours."""
        with reserve.lent():
            return [*self._living()]

    def _candidates(self) -> Iterator[kernel.Stat]:
        return unspared(self._spared, self._roots, self._sessions)

    def _living(self) -> Iterator[Identity]:
        for found in self._candidates():
            if not found.ended:
                yield found.pid, found.started_ticks
            elif found.parent == os.getpid() and not self._reaps_itself(found.pid):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(found.pid, os.WNOHANG)


class Remains(Sweep):
    """The clean-up after one process: what was below it, in a session with that, or below that."""

    def __init__(
        self,
        noted: frozenset[Identity],
        session: int,
        reaps_itself: Callable[[int], bool],
        polite_ms: int = POLITE_MS,
    ) -> None:
        """Look at once: *session* is the dead process's own only until others may have its number.

        *noted* is what was seen below it while it lived.

        Raises:
            OSError: as for `below`.
        """
        super().__init__(frozenset(), frozenset(), reaps_itself, polite_ms)
        self._remains = noted
        with reserve.lent():
            self._note({session})

    def _candidates(self) -> Iterator[kernel.Stat]:
        return iter(self._note(set()))

    def _note(self, sessions: set[int]) -> list[kernel.Stat]:
        """Return what is there of it now; *sessions* are known to be its own, too."""
        tree = kernel.tree_below(os.getpid())
        # None of it was ever in our session: whoever is in one with it, was begun by it.
        sessions |= {found.session for found in tree if _identity(found) in self._remains}
        there: dict[int, kernel.Stat] = {}
        for found in tree:
            known = _identity(found) in self._remains or found.session in sessions
            if known or found.parent in there:
                there[found.pid] = found
        self._remains = frozenset(map(_identity, there.values()))
        return [*there.values()]


def _identity(found: kernel.Stat) -> Identity:
    return found.pid, found.started_ticks


async def signalled(
    found: Iterable[Identity], number: signal.Signals, within_ms: int
) -> set[Identity]:
    """Signal each of *found*, and return when all of them are dead, or after *within_ms*.

    Those that may not be signalled are returned, and not waited for. However many there
    are, each is held only as long as it is looked at: descriptors may be all but used up.

    Raises:
        OSError: one cannot be looked at, and may live on.
    """
    asked = [*found]
    immune = {one for one in asked if not _signal(one, number)}
    with contextlib.suppress(TimeoutError):
        async with timeout(within_ms / 1000):
            for one in asked:
                if one not in immune:
                    await _end_of(one)
    return immune


def _signal(one: Identity, number: signal.Signals) -> bool:
    """Signal exactly that process; False if it lives and may not be signalled."""
    with reserve.lent():
        pidfd = _hold(one)
        if pidfd is None:
            return True
        try:
            return kernel.signal_pidfd(pidfd, number) or not kernel.is_alive(*one)
        finally:
            os.close(pidfd)


async def _end_of(one: Identity) -> None:
    """Return when exactly that process has ended."""
    with reserve.lent():
        pidfd = _hold(one)
    if pidfd is None:
        return
    try:
        await readable(pidfd)
    finally:
        os.close(pidfd)
        # It took the place of one in the reserve, if all others are used up.
        reserve.restore()


def _hold(one: Identity) -> int | None:
    """Return a pidfd of exactly that process, or None if it is gone."""
    pid, ticks = one
    pidfd = kernel.open_pidfd(pid)
    if pidfd is None:
        return None
    try:
        if kernel.started_ticks(pid) == ticks:
            return pidfd
    except OSError:
        os.close(pidfd)
        raise
    os.close(pidfd)
    return None


async def readable(descriptor: int) -> None:
    """Return when *descriptor* can be read; a pidfd can be when its process has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
