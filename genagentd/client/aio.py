"""The client for asyncio: `Client` with the same names and the same answers, awaited.

One client belongs to the loop it was connected in, and any number of its tasks may
use it at once. What arrives is taken in whether or not anyone waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, overload

from genagent_protocol.answers import AgentRow, Snapshot, Status
from genagent_protocol.envelopes import CoreState, Halt, Interrupt, Notify, Resume
from genagent_protocol.errors import UsageError
from genagent_protocol.events import Response
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import AgentHandle, MailboxAddress, MonitorRef, RequestRef
from genagent_protocol.supervision.terms import RestartKind, RestartPolicy
from genagentd import arguments, sendable
from genagentd.arguments import OWN, OnHalt, Own, Recipient
from genagentd.client import calls
from genagentd.client.boxes import Matching, Message, anything
from genagentd.client.calls import CALL_TIMEOUT_MS, CancelResult, InterruptResult, PollResult
from genagentd.client.captured import AsyncCaptured
from genagentd.client.conversation import CONNECT_TIMEOUT_MS, LINGER_MS
from genagentd.client.group import AsyncGroup, numbered
from genagentd.client.looped import LoopedShell
from genagentd.client.mailbox import AsyncMailbox
from genagentd.client.spec import AgentSpec, spec_of
from genagentd.client.waiting import Script
from genagentd.paths import socket_in

if TYPE_CHECKING:
    # Only who attaches pays for reading schemas.
    from genagent_protocol.rpc import Catalog
    from genagentd.client.serving import Served
    from genagentd.client.session import AsyncSession

T = TypeVar("T")


class AsyncClient:
    """A connection to the daemon of this user and machine, for the tasks of one loop.

    Use it as an asynchronous context manager, or await `connect` and `close`. What
    each call promises is said at `Client`'s call of the same name.
    """

    def __init__(self, run_dir: str | Path | None = None) -> None:
        """Name the daemon: by its runtime directory, else as the environment says.

        This does not connect, open or read anything.
        """
        self._run_dir = run_dir
        self._shell: LoopedShell | None = None

    # --- the connection

    async def connect(self, timeout_ms: int = CONNECT_TIMEOUT_MS) -> AsyncClient:
        """As `Client.connect`."""
        limit = arguments.milliseconds(timeout_ms, "timeout_ms")
        if self._shell is not None:
            raise UsageError("this client was connected before; make a new one")
        self._shell = await LoopedShell.open(socket_in(self._run_dir), limit)
        return self

    async def close(self, linger_ms: int = LINGER_MS) -> None:
        """As `Client.close`."""
        limit = arguments.milliseconds(linger_ms, "linger_ms")
        if self._shell is not None:
            await self._shell.close(limit)

    async def __aenter__(self) -> AsyncClient:
        return self if self._shell is not None else await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def shell(self) -> LoopedShell:
        """The connection.

        Raises:
            UsageError: there is none.
        """
        if self._shell is None:
            raise UsageError("this client is not connected: use it in a with, or call connect()")
        return self._shell

    async def _run(self, script: Script[T], timeout_ms: int | None = None) -> T:
        return await self.shell.run(script, arguments.timeout(timeout_ms))

    @property
    def address(self) -> MailboxAddress:
        """Where messages for this client's own mailbox go."""
        talk = self.shell.talk
        return talk.address(talk.own)

    @property
    def place(self) -> str:
        """The host and runtime directory of the daemon; handles of others are not local."""
        return self.shell.talk.place

    # --- agents, by name

    @overload
    async def start_agent(
        self, agent: AgentSpec, *, group: AsyncGroup | None = None
    ) -> AgentHandle: ...

    @overload
    async def start_agent(
        self,
        agent: type | str | None,
        *,
        name: object,
        backend: str,
        options: Mapping[str, object] = ...,
        limits: Mapping[str, object] = ...,
        cwd: str | Path | None = None,
        env: Mapping[str, str] = ...,
        restart: RestartPolicy | RestartKind = "temporary",
        start_timeout_ms: int = 60_000,
        session: str | None = None,
        may_start: bool = False,
        group: AsyncGroup | None = None,
    ) -> AgentHandle: ...

    async def start_agent(
        self,
        agent: AgentSpec | type | str | None,
        *,
        group: AsyncGroup | None = None,
        **terms: object,
    ) -> AgentHandle:
        """As `Client.start_agent`."""
        number = None if group is None else numbered(group).number_to_start_in()
        script = calls.start_agent(self.shell.talk, spec_of(agent, terms), number)
        return await self._run(script)

    async def stop(
        self, name: object, *, group: AsyncGroup | None = None, timeout_ms: int | None = None
    ) -> ExitReason:
        """As `Client.stop`."""
        number = None if group is None else numbered(group).number
        return await self._run(calls.stop(self.shell.talk, name, number), timeout_ms)

    async def drain(self, name: object, timeout_ms: int | None = None) -> None:
        """As `Client.drain`."""
        await self._run(calls.drain(self.shell.talk, name), timeout_ms)

    async def whereis(self, name: object, timeout_ms: int | None = None) -> AgentHandle | None:
        """As `Client.whereis`."""
        return await self._run(calls.whereis(self.shell.talk, name), timeout_ms)

    async def list(self, timeout_ms: int | None = None) -> tuple[AgentRow, ...]:
        """As `Client.list`."""
        return await self._run(calls.list_agents(self.shell.talk), timeout_ms)

    async def ask(self, name: object, prompt: str, timeout_ms: int | None = None) -> Response:
        """As `Client.ask`."""
        return await self._run(calls.ask(self.shell.talk, name, prompt), timeout_ms)

    async def tell(self, name: object, prompt: str, timeout_ms: int | None = None) -> RequestRef:
        """As `Client.tell`."""
        return await self._run(calls.tell(self.shell.talk, name, prompt), timeout_ms)

    async def tell_with_completion(
        self,
        name: object,
        prompt: str,
        recipient: Recipient | Own = OWN,
        *,
        on_halt: OnHalt = "queue",
        stream_to: Recipient | None = None,
        timeout_ms: int | None = None,
    ) -> RequestRef:
        """As `Client.tell_with_completion`."""
        script = calls.tell_with_completion(
            self.shell.talk,
            name,
            prompt,
            recipient=self.address if isinstance(recipient, Own) else recipient,
            on_halt=on_halt,
            stream_to=stream_to,
        )
        return await self._run(script, timeout_ms)

    async def poll(
        self, name: object, ref: RequestRef | str, timeout_ms: int | None = None
    ) -> PollResult:
        """As `Client.poll`."""
        return await self._run(calls.poll(self.shell.talk, name, ref), timeout_ms)

    async def notify(self, name: object, event: object, timeout_ms: int | None = None) -> None:
        """As `Client.notify`."""
        envelope = Notify(event=sendable.payload(event, "event"))
        await self._run(calls.cast(self.shell.talk, "notify", name, envelope), timeout_ms)

    async def notify_ack(self, name: object, event: object, timeout_ms: int | None = None) -> None:
        """As `Client.notify_ack`."""
        await self._run(calls.notify_ack(self.shell.talk, name, event), timeout_ms)

    async def interrupt(self, name: object, timeout_ms: int | None = None) -> None:
        """As `Client.interrupt`."""
        await self._run(calls.cast(self.shell.talk, "interrupt", name, Interrupt()), timeout_ms)

    async def interrupt_request(
        self, name: object, ref: RequestRef | str, timeout_ms: int | None = None
    ) -> InterruptResult:
        """As `Client.interrupt_request`."""
        return await self._run(calls.interrupt_request(self.shell.talk, name, ref), timeout_ms)

    async def cancel_request(
        self, name: object, ref: RequestRef | str, timeout_ms: int | None = None
    ) -> CancelResult:
        """As `Client.cancel_request`."""
        return await self._run(calls.cancel_request(self.shell.talk, name, ref), timeout_ms)

    async def resume(self, name: object, timeout_ms: int | None = None) -> None:
        """As `Client.resume`."""
        await self._run(calls.cast(self.shell.talk, "resume", name, Resume()), timeout_ms)

    async def halt(self, name: object, timeout_ms: int | None = None) -> None:
        """As `Client.halt`."""
        await self._run(calls.cast(self.shell.talk, "halt", name, Halt()), timeout_ms)

    async def status(self, name: object, timeout_ms: int | None = None) -> Status:
        """As `Client.status`."""
        return await self._run(calls.status(self.shell.talk, name), timeout_ms)

    async def runtime_snapshot(self, name: object, timeout_ms: int | None = None) -> Snapshot:
        """As `Client.runtime_snapshot`."""
        return await self._run(calls.snapshot(self.shell.talk, name), timeout_ms)

    async def reset_session(self, name: object, timeout_ms: int | None = None) -> None:
        """As `Client.reset_session`."""
        await self._run(calls.reset_session(self.shell.talk, name), timeout_ms)

    # --- one process, by its handle

    def at(self, handle: AgentHandle) -> AsyncCaptured:
        """As `Client.at`. This asks nobody and is not awaited; the calls of what it returns are."""
        return AsyncCaptured(self.shell, handle)

    async def demonitor(self, monitor: MonitorRef) -> bool:
        """As `Client.demonitor`; it suspends nobody."""
        return self.shell.do(lambda talk: talk.demonitor(arguments.monitor_ref(monitor)))

    # --- what arrives

    async def receive(
        self, timeout_ms: int | None = None, *, matching: Matching = anything
    ) -> Message | None:
        """As `Client.receive`."""
        own = self.shell.talk.own
        return await self.shell.receive(own, matching, arguments.timeout(timeout_ms))

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yield what arrives in this client's own mailbox, in that order, without end."""
        while (message := await self.receive()) is not None:
            yield message

    def mailbox(self) -> AsyncMailbox:
        """As `Client.mailbox`."""
        return AsyncMailbox(self.shell, self.shell.do(lambda talk: talk.open_box()))

    async def telemetry(self, timeout_ms: int | None = None) -> AsyncMailbox:
        """As `Client.telemetry`."""
        mailbox = self.mailbox()
        self.shell.do(lambda talk: talk.watch_telemetry(mailbox.box))
        try:
            await self._run(calls.watch_telemetry(self.shell.talk, on=True), timeout_ms)
        except BaseException:
            await mailbox.close()
            raise
        return mailbox

    # --- functions

    async def attach(
        self,
        agent: object,
        *,
        catalogs: Iterable[Catalog | Mapping[str, object]] = (),
        functions: Mapping[str, Served] | None = None,
        timeout_ms: int | None = CALL_TIMEOUT_MS,
    ) -> AsyncSession:
        """As `Client.attach`; a function may also return something to await for its value."""
        from genagentd.client import session

        script = session.attach(self.shell.talk, agent, catalogs, functions or {}, awaits=True)
        return session.AsyncSession(self.shell, await self._run(script, timeout_ms))

    # --- groups and the daemon

    def group(self) -> AsyncGroup:
        """As `Client.group`."""
        return AsyncGroup(self.shell)

    async def daemon_status(self, timeout_ms: int | None = CALL_TIMEOUT_MS) -> CoreState:
        """As `Client.daemon_status`."""
        return await self._run(calls.core_status(self.shell.talk), timeout_ms)
