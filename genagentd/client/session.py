"""Sessions of function calls, in both shells: a client and one captured agent process.

A session dies with its connection, with its agent, or when it is closed; then every
call that waits in it fails with `CANCELLED`, once. It never turns to a successor of
its agent.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Iterable, Mapping, MutableMapping
from types import TracebackType
from typing import Any

from genagent_protocol.envelopes import UiDetach, UiMessage
from genagent_protocol.errors import (
    DaemonLost,
    GenAgentError,
    LocalWireError,
    SendBufferFull,
    UsageError,
)
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import AgentHandle, MonitorRef
from genagent_protocol.rpc import Prepared, Surface
from genagentd import arguments
from genagentd.client import calls
from genagentd.client.blocking import BlockingShell
from genagentd.client.boxes import Box, Message, anything
from genagentd.client.conversation import Conversation
from genagentd.client.looped import LoopedShell
from genagentd.client.serving import (
    MAIN_SURFACE,
    AnyCatalog,
    Served,
    Serving,
    instead_of,
    surfaces_of,
    value_of,
)
from genagentd.client.waiting import Script

#: How long the end of a session waits for functions that were cancelled.
CANCEL_S = 2.0


class Opened:
    """A session that its agent has agreed to."""

    def __init__(self, serving: Serving, box: Box, monitor: MonitorRef) -> None:
        self.serving = serving
        self.box = box
        self.monitor = monitor


def attach(
    talk: Conversation,
    target: object,
    catalogs: Iterable[AnyCatalog],
    functions: Mapping[str, Served],
    *,
    awaits: bool,
) -> Script[Opened]:
    """Open a session with the agent of that name, or with the one that a handle captured.

    *awaits* says whether the shell can await what a function gives.
    """
    if isinstance(target, AgentHandle):
        handle = arguments.captured(target, talk.place)
    else:
        handle = yield from calls.located(talk, target, "attach")
    serving = Serving(handle, catalogs, functions)
    if not awaits:
        serving.check_not_awaited()
    box = talk.open_session(handle.incarnation)
    monitor = talk.monitor(handle, box)
    try:
        serving.offered = yield from calls.attach_at(talk, handle, box.number, serving.catalog_ids)
    except Exception:
        _leave(talk, box, monitor)
        raise
    return Opened(serving, box, monitor)


def _leave(talk: Conversation, box: Box, monitor: MonitorRef) -> None:
    """Tell the agent that the session is over, and forget it."""
    talk.say(box, UiDetach())
    if not talk.ended:
        talk.demonitor(monitor)
    talk.close_box(box)


class _Common:
    """What both kinds of sessions are, because nothing in it waits."""

    def __init__(self, shell: BlockingShell | LoopedShell, opened: Opened) -> None:
        self._any_shell = shell
        self._box = opened.box
        self._monitor = opened.monitor
        self._serving = opened.serving
        self._closed = False
        self._left = False

    @property
    def agent(self) -> AgentHandle:
        """The one process this session is with."""
        return self._serving.agent

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the functions that the agent offers."""
        return self._serving.offered

    @property
    def over(self) -> str | None:
        """Why the session is over, or None."""
        return self._serving.over

    @property
    def ended(self) -> ExitReason | None:
        """How the agent ended, if the session is over for that; None otherwise.

        After the connection was lost this is `noconnection`: nobody knows more.
        """
        return self._serving.ended

    @property
    def surfaces(self) -> MutableMapping[str, Surface]:
        """The surfaces that bindings in arguments may be about, by their ids.

        Change this mapping, or assign another, which is copied.

        Raises:
            UsageError: what is put in is no `Surface`, or has another id.
        """
        return self._serving.surfaces

    @surfaces.setter
    def surfaces(self, surfaces: Mapping[str, Surface]) -> None:
        self._serving.surfaces = surfaces_of(surfaces)

    @property
    def user_activated(self) -> bool:
        """Whether a person is acting right now; set it around what they do."""
        return self._serving.user_activated

    @user_activated.setter
    def user_activated(self, acting: bool) -> None:
        self._serving.user_activated = acting

    def _send(self, message: UiMessage) -> None:
        if not self._closed and not self._any_shell.closed and self.over is None:
            self._any_shell.do(lambda talk: talk.say(self._box, message))

    def _heard(self, message: Message) -> Prepared | UiMessage | None:
        try:
            return self._serving.hear(message)
        except KeyboardInterrupt:
            owed = self._serving.unheard(message)
            if owed is not None:
                self._answer(owed)
            raise

    def _answer(self, message: UiMessage) -> None:
        try:
            self._send_some(message)
        except SendBufferFull as error:
            # The agent would wait for it in vain; without a session it does not.
            self._serving.end(str(error))
            self._leave_if_over()

    def _send_some(self, answer: UiMessage) -> None:
        """Send an answer, or what can be sent instead of it."""
        try:
            self._send(answer)
        except LocalWireError as error:
            instead = instead_of(answer, str(error))
            if instead is None:
                raise
            self._send(instead)

    def _leave_if_over(self) -> None:
        """Tell the agent that the session is over, if that is for another reason than its end.

        It would else ask here for as long as this client is connected, and nobody else.
        """
        if self.over is not None and self.ended is None:
            self._leave()

    def _leave(self) -> None:
        if not self._left and self._any_shell.open_here:
            self._left = True
            self._any_shell.do(lambda talk: _leave(talk, self._box, self._monitor))

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._leave()
        self._serving.end("the session was closed")


class Session(_Common):
    """A session for code without a loop.

    The client has no thread, so what the agent calls is run while this session's
    `serve` or `call` waits, and not while the client's `ask` or `tell` does: submit what
    will make the agent call, or serve in another thread. One thread uses a session at a
    time; the others wait for it.
    """

    def __init__(self, shell: BlockingShell, opened: Opened) -> None:
        super().__init__(shell, opened)
        self._shell = shell
        self._lock = threading.RLock()

    def call(
        self,
        function: str,
        arguments: Mapping[str, object] | None = None,
        *,
        surface: str = MAIN_SURFACE,
        timeout_ms: float | None = None,
    ) -> Any:
        """Call a function the agent offers and return its value.

        Without *timeout_ms* the limit is 30 s; zero means none.

        Raises:
            FunctionFailed: there is no value, and `code` says why: `UNKNOWN_FUNCTION`,
                `TIMEOUT`, `CANCELLED` (the session ended meanwhile), `DISPOSED` (it was
                over before), a code of the protocol, or one of the function's own.
        """
        with self._lock:
            call_id, message = self._serving.call(function, arguments, surface, timeout_ms)
            limit_ms = self._serving.rpc.pending_timeout(call_id)
            deadline = None if limit_ms is None else time.monotonic() + limit_ms / 1000
            try:
                self._send(message)
                while (settlement := self._serving.settlement(call_id)) is None:
                    if not self._turn(deadline):
                        self._serving.timed_out(call_id)
                return value_of(settlement)
            finally:
                self._serving.give_up(call_id)

    def serve(self, timeout_ms: int | None = None) -> bool:
        """Run what the agent calls, until the session is over or the time is.

        False when the session is over; `over` says why.
        """
        limit = arguments.timeout(timeout_ms)
        deadline = None if limit is None else time.monotonic() + limit / 1000
        with self._lock:
            while self.over is None and self._turn(deadline):
                pass
        return self.over is None

    def _turn(self, deadline: float | None) -> bool:
        """Deal with one message; False when none came in time."""
        left = None if deadline is None else max(0, round((deadline - time.monotonic()) * 1000))
        try:
            message = self._shell.receive(self._box, anything, left)
        except DaemonLost:
            self._serving.lost()
            return True
        except UsageError:
            if not (self._closed or self._left):
                raise
            return True  # By another thread, which has settled what waits.
        if message is None:
            return False
        owed = self._heard(message)
        self._leave_if_over()
        if isinstance(owed, Prepared):
            try:
                outcome = self._outcome(owed)
            except KeyboardInterrupt:
                self._answer(self._serving.interrupted(owed))
                raise
            self._answer(self._serving.finish(owed, outcome))
        elif owed is not None:
            self._answer(owed)
        return True

    def _outcome(self, prepared: Prepared) -> object:
        try:
            return self._serving.begin(prepared)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # served functions may raise whatever they like
            return error

    def close(self) -> None:
        """Detach from the agent; what waits here, or there, is cancelled."""
        self._close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncSession(_Common):
    """`Session` for asyncio: what the agent calls is run as it arrives.

    A function that is awaited does not hold up the next one.
    """

    def __init__(self, shell: LoopedShell, opened: Opened) -> None:
        super().__init__(shell, opened)
        self._shell = shell
        self._news = asyncio.Condition()
        self._running: set[asyncio.Task[None]] = set()
        self._pump = asyncio.create_task(self._listen())

    async def call(
        self,
        function: str,
        arguments: Mapping[str, object] | None = None,
        *,
        surface: str = MAIN_SURFACE,
        timeout_ms: float | None = None,
    ) -> Any:
        """As `Session.call`."""
        call_id, message = self._serving.call(function, arguments, surface, timeout_ms)
        limit_ms = self._serving.rpc.pending_timeout(call_id)
        try:
            self._send(message)
            try:
                settlement = self._settlement(call_id)
                limit_s = None if limit_ms is None else limit_ms / 1000
                return value_of(await asyncio.wait_for(settlement, limit_s))
            except TimeoutError:
                self._serving.timed_out(call_id)
                return value_of(await self._settlement(call_id))
        finally:
            self._serving.give_up(call_id)

    async def _settlement(self, call_id: str) -> Any:
        async with self._news:
            while (settlement := self._serving.settlement(call_id)) is None:
                await self._news.wait()
        return settlement

    async def serve(self, timeout_ms: int | None = None) -> bool:
        """As `Session.serve`; what the agent calls is run without it, too."""
        limit = arguments.timeout(timeout_ms)
        await asyncio.wait([self._pump], timeout=None if limit is None else limit / 1000)
        return self.over is None

    async def _listen(self) -> None:
        try:
            while self.over is None:
                message = await self._shell.receive(self._box, anything, None)
                assert message is not None
                self._deal_with(self._heard(message))
                self._leave_if_over()
                await self._tell()
        except DaemonLost:
            self._serving.lost()
        except GenAgentError as error:
            self._serving.end(str(error))  # This was closed.
        finally:
            for task in self._running:
                task.cancel()
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _deal_with(self, owed: Prepared | UiMessage | None) -> None:
        if isinstance(owed, Prepared):
            task = asyncio.create_task(self._run(owed))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        elif owed is not None:
            self._answer(owed)

    async def _run(self, prepared: Prepared) -> None:
        outcome: object
        try:
            outcome = self._serving.begin(prepared)
            if inspect.isawaitable(outcome):
                outcome = await outcome
        except KeyboardInterrupt:
            self._answer(self._serving.interrupted(prepared))
            raise
        except BaseException as error:  # noqa: BLE001  # served functions may raise whatever they like
            outcome = error
        self._answer(self._serving.finish(prepared, outcome))

    async def close(self) -> None:
        """As `Session.close`. Functions that run are cancelled.

        This does not wait longer than two seconds for one that does not let itself be cancelled.
        """
        self._close()
        await asyncio.wait([self._pump, *self._running], timeout=CANCEL_S)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
