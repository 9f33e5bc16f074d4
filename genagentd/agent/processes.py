"""The processes below an agent: which ones a turn began, and that they end with it.

A process for the session is spared by the end of a turn, with whatever lives below
it, and ends with the agent; but only once the turn has got it, for nobody else would
ever end one that was started for a turn that no longer wanted it. What was below it when
a turn began or ended ends with it, whenever that is.

Everything is started and reaped by the main thread: what a thread starts may die with
that thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Mapping, Sequence

from genagent_backends.base import Process
from genagent_backends.timeouts import timeout
from genagent_protocol.plain import Plain
from genagentd import kernel
from genagentd.agent import log
from genagentd.agent.child import GRACE_MS, ChildProcess
from genagentd.agent.sweep import (
    POLITE_MS,
    Identity,
    Remains,
    Sweep,
    below,
    childless,
    hear_of_ends_again,
    sessions_of,
    tree_of,
)

#: How long a process that was killed may take to be reaped.
LAST_WAIT_S = 1.0


class Processes:
    """Used in the coordinator."""

    def __init__(self) -> None:
        """Begin where this agent begins: what is below the process already is not its own."""
        self._strangers = below()
        self._before: frozenset[Identity] = frozenset()
        #: The sessions of those; what they orphan meanwhile is found in one of them.
        self._sessions: frozenset[int] = frozenset()
        self._grace_ms = GRACE_MS
        self._polite_ms = POLITE_MS
        #: The turn that may start processes now; None between turns.
        self._turn: int | None = None
        self._of_turn: dict[int, ChildProcess] = {}
        self._of_session: dict[int, ChildProcess] = {}
        #: What was seen below each of those.
        self._noted: dict[int, frozenset[Identity]] = {}
        self._endings: set[asyncio.Task[None]] = set()

    def hurry(self, interrupt_grace_ms: int) -> None:
        """Have processes end well inside the grace that an interrupted turn gets."""
        self._grace_ms = min(GRACE_MS, interrupt_grace_ms // 5)
        self._polite_ms = min(POLITE_MS, interrupt_grace_ms // 10)

    def turn_began(self, turn: int) -> None:
        """Remember what is there already: it is none of this turn's business.

        Raises:
            OSError: it cannot be looked at, so nobody could tell later what the turn began.
        """
        self._before = below()
        self._note(self._before)
        # What a session process orphans is the turn's: only what lives below it is spared.
        others = self._before.difference(*self._noted.values())
        self._sessions = sessions_of(others) - self._of_session.keys()
        self._turn = turn

    def _note(self, everything: frozenset[Identity]) -> None:
        """See what is below the processes of the session, which nobody can tell once they ended."""
        for pid in self._of_session:
            # What was orphaned meanwhile is below it no more, and still its own.
            seen = self._noted.get(pid, frozenset()) & everything
            self._noted[pid] = tree_of(pid) | seen

    async def spawn(
        self, turn: int, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | None
    ) -> ChildProcess:
        """Start a process for that turn.

        Raises:
            OSError: the program could not be started, or the turn is over.
        """
        if turn != self._turn:
            raise OSError(errno.ECANCELED, "the turn that wanted this process is over")
        hear_of_ends_again(asyncio.get_running_loop())
        child = ChildProcess(argv, env, cwd, self._exited, self._grace_ms)
        self._of_turn[child.pid] = child
        return child

    def keep(self, process: Process) -> None:
        """Have a process outlive its turn; one that has ended by now is let go of with it."""
        child = self._of_turn.get(process.pid)
        if child is process and child.returncode is None:
            self._of_session[child.pid] = self._of_turn.pop(child.pid)

    def _exited(self, child: ChildProcess) -> None:
        # One of the turn is kept until the turn is over: what it printed may still be read.
        if self._of_session.pop(child.pid, None) is not None:
            self._of_turn[child.pid] = child
            self._end_remains(child.pid)

    def _end_remains(self, pid: int) -> None:
        """End what the process of the session *pid*, which has just ended, leaves behind."""
        noted = self._noted.pop(pid, frozenset())
        try:
            remains = Remains(noted, pid, self._reaps_itself, self._polite_ms)
        except OSError as error:
            log.raised("turn.sweep_failed", error)
            return
        ending = asyncio.create_task(_end_for_good(remains))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    def turn_over(self) -> bool:
        """Let the turn start no more processes; True if there is something to look through."""
        self._turn = None
        return bool(self._of_turn) or not childless()

    async def end_turn(self) -> None:
        """End whatever the turn began and did not end itself.

        Raises:
            OSError: it cannot be looked for, and may live on.
        """
        await _end(self._sweep())
        await self._close(self._of_turn)
        if self._of_session:
            self._note(below())

    def kill_turn(self) -> None:
        """Kill whatever the turn began, now.

        Raises:
            OSError: it cannot be looked for, and may live on.
        """
        self._turn = None
        self._sweep().kill()

    async def end_all(self) -> None:
        """End everything below this process: the agent is about to exit.

        Raises:
            OSError: it cannot be looked for; whatever lives on is the daemon's to end.
        """
        self._turn = None
        for ending in self._endings:
            ending.cancel()
        await asyncio.gather(*self._endings, return_exceptions=True)
        everything = Sweep(self._strangers, frozenset(), self._reaps_itself, self._polite_ms)
        await everything.end()
        await self._close(self._of_turn | self._of_session)

    async def end_for_good(self, agent: Plain) -> None:
        """Do that for *agent*, which exits next: what goes wrong is logged, and the daemon's."""
        # In a task of its own, which its time limits cancel; the coordinator cannot be cancelled.
        # Somebody else may cancel it, too, and then the daemon ends what is left.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await asyncio.create_task(self.end_all())
            except OSError as error:
                log.raised("turn.sweep_failed", error, agent=agent)

    def _sweep(self) -> Sweep:
        roots = frozenset(self._of_session)
        return Sweep(self._before, roots, self._reaps_itself, self._polite_ms, self._sessions)

    def _reaps_itself(self, pid: int) -> bool:
        return pid in self._of_turn or pid in self._of_session

    async def _close(self, children: dict[int, ChildProcess]) -> None:
        """Let go of *children*, which have ended; one that cannot is left to the next time."""
        for child in list(children.values()):
            with contextlib.suppress(TimeoutError):
                async with timeout(LAST_WAIT_S):
                    await child.wait()
                self._of_turn.pop(child.pid, None)
                child.close()


async def _end(sweep: Sweep) -> None:
    """End what *sweep* finds, and log that there was something.

    Raises:
        OSError: it cannot be looked for, and may live on.
    """
    ended = await sweep.end()
    if ended:
        log.line("turn.processes_ended", count=ended)
    for pid, _ in sweep.immune:
        log.line("turn.process_immune", pid=pid, uid=kernel.user_of(pid))


async def _end_for_good(remains: Remains) -> None:
    """Do that where nobody waits for it, and at once if somebody cancels it."""
    try:
        try:
            await _end(remains)
        except asyncio.CancelledError:
            remains.kill()
    except OSError as error:
        log.raised("turn.sweep_failed", error)
