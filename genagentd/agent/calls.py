"""The calls this agent has sent and waits for: each is settled once, or its caller gives up.

An answer is taken only from whom it was asked; a late one is dropped. A call to
another agent is watched: if that agent ends first, its end is the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from genagent_backends.timeouts import timeout
from genagent_protocol.answers import AgentAnswer, Refused
from genagent_protocol.envelopes import Call, DaemonAnswer, Down, Reply, Request, UnknownType
from genagent_protocol.errors import CallTimeout, ProcessDown
from genagent_protocol.header import DAEMON
from genagent_protocol.reasons import Reason
from genagent_protocol.refs import AgentHandle, MonitorRef
from genagent_protocol.requests import AgentRequest, DaemonRequest, DemonitorAgent, MonitorAgent

Answer: TypeAlias = AgentAnswer | DaemonAnswer
Say: TypeAlias = Callable[[str, object, str | None], None]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One call that was sent to `to`."""

    to: str
    future: asyncio.Future[Answer] = field(repr=False)


class Calls:
    """Used in the coordinator's loop only."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._numbers = 0
        self._monitors = 0
        self._waiting: dict[int, Waiting] = {}
        #: Watches of our own, by their number: they end a call and are shown to nobody.
        self._watches: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def new_monitor(self) -> MonitorRef:
        """Return a watch that no other watch of this agent is called like."""
        self._monitors += 1
        return MonitorRef(self._monitors)

    def tell_daemon(self, request: DaemonRequest) -> None:
        """Ask something of the daemon whose answer nobody waits for."""
        self._numbers += 1
        self._say(DAEMON, Request(call=self._numbers, request=request), None)

    def ask_daemon(self, request: DaemonRequest) -> asyncio.Future[Answer]:
        """Ask something of the daemon; the future is the answer."""
        number, waiting = self._open(DAEMON)
        self._say(DAEMON, Request(call=number, request=request), None)
        return waiting.future

    def of_agent(
        self, handle: AgentHandle, request: AgentRequest, what: str
    ) -> Coroutine[Any, Any, Answer]:
        """Ask exactly that agent process; what is awaited is its answer.

        Raises:
            ProcessDown: the process ended first; from what is awaited.
        """
        to = handle.incarnation.text
        number, _ = self._open(to)
        monitor = self.new_monitor()
        self._watches[monitor.number] = number
        self.tell_daemon(MonitorAgent(monitor=monitor, handle=handle))
        self._say(to, Call(call=number, request=request), str(number))
        return self._answer(number, monitor, what)

    async def _answer(self, number: int, monitor: MonitorRef, what: str) -> Answer:
        try:
            return await self._waiting[number].future
        except _Gone as gone:
            raise ProcessDown(what, gone.down.reason) from None
        finally:
            self._waiting.pop(number, None)
            if monitor.number in self._watches:
                self._unwatch(monitor)

    def _unwatch(self, monitor: MonitorRef) -> None:
        # Its `Down` may be on its way already, and would be a stranger to `handle_info`. The
        # daemon sends none after its answer, so until then the watch is known as one of ours.
        answered = self.ask_daemon(DemonitorAgent(monitor=monitor))
        answered.add_done_callback(lambda _: self._watches.pop(monitor.number, None))

    def _open(self, to: str) -> tuple[int, Waiting]:
        self._numbers += 1
        number = self._numbers
        waiting = Waiting(to, asyncio.get_running_loop().create_future())
        self._waiting[number] = waiting
        waiting.future.add_done_callback(lambda _: self._waiting.pop(number, None))
        return number, waiting

    def answered(self, sender: str, reply: Reply) -> None:
        """An answer came. One nobody waits for, or of somebody else, means nothing."""
        waiting = self._waiting.get(reply.call)
        # The daemon answers in an agent's place when the call cannot be delivered.
        if waiting is not None and sender in (waiting.to, DAEMON) and not waiting.future.done():
            waiting.future.set_result(reply.answer)

    def not_known(self, unknown: UnknownType) -> None:
        """The daemon does not know what was asked of it; whoever waits is refused."""
        if unknown.call is not None:
            refused = Refused(Reason("unknown_request"))
            self.answered(DAEMON, Reply(call=unknown.call, answer=refused))

    def ended(self, down: Down) -> bool:
        """An agent ended; True if that was known only because of a call to it."""
        number = self._watches.pop(down.monitor.number, None)
        if number is None:
            return False
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(_Gone(down))
        return True


class _Gone(Exception):
    """The called process ended."""

    def __init__(self, down: Down) -> None:
        self.down = down
        super().__init__(str(down.reason))


@dataclass(slots=True)
class Fate:
    """What is known of a call whose time is over."""

    text: str = field(repr=False)


@contextlib.asynccontextmanager
async def in_time(what: str, timeout_ms: int | None, fate: str) -> AsyncIterator[Fate]:
    """Limit all that one call waits for, what comes before its sending included.

    Whoever has sent the call says so in the fate that it gets.

    Raises:
        CallTimeout: the time is over.
    """
    known = Fate(fate)
    try:
        async with timeout(None if timeout_ms is None else timeout_ms / 1000):
            yield known
    except TimeoutError:
        assert timeout_ms is not None
        raise CallTimeout(what, timeout_ms, fate=known.text) from None
