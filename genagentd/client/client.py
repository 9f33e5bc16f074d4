"""The client for code without a loop.

Functions of `Client` take a *name* and look it up first; functions of `Client.at(handle)`
take nothing but what concerns the one process that the handle captured. A handle given
to a name function is a name like any other, and never an address.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
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
from genagentd.client.blocking import BlockingShell
from genagentd.client.boxes import Matching, Message, anything
from genagentd.client.calls import CALL_TIMEOUT_MS, CancelResult, InterruptResult, PollResult
from genagentd.client.captured import Captured
from genagentd.client.conversation import CONNECT_TIMEOUT_MS, LINGER_MS
from genagentd.client.group import Group, numbered
from genagentd.client.mailbox import Mailbox
from genagentd.client.spec import AgentSpec, spec_of
from genagentd.client.waiting import Script
from genagentd.paths import socket_in

if TYPE_CHECKING:
    # Only who attaches pays for reading schemas.
    from genagent_protocol.rpc import Catalog
    from genagentd.client.serving import Served
    from genagentd.client.session import Session

T = TypeVar("T")


class Client:
    """A connection to the daemon of this user and machine.

    Usable by several threads at once; it has no thread of its own. Use it as a
    context manager, or call `connect` and `close`. One that was made before a fork
    refuses to work in the child.
    """

    def __init__(self, run_dir: str | Path | None = None) -> None:
        """Name the daemon: by its runtime directory, else as the environment says.

        This does not connect, open or read anything.
        """
        self._run_dir = run_dir
        self._shell: BlockingShell | None = None

    # --- the connection

    def connect(self, timeout_ms: int = CONNECT_TIMEOUT_MS) -> Client:
        """Connect, and return this client.

        Raises:
            NotReachable: no daemon answers there in time.
            VersionMismatch: client and daemon share no version of the protocol.
            UsageError: it is connected already, or the limit is none.
        """
        limit = arguments.milliseconds(timeout_ms, "timeout_ms")
        if self._shell is not None:
            raise UsageError("this client was connected before; make a new one")
        self._shell = BlockingShell(socket_in(self._run_dir), limit)
        return self

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """End the connection, once the daemon has read all that was sent or the linger is over.

        Its mailboxes, monitors and groups end with it.
        """
        limit = arguments.milliseconds(linger_ms, "linger_ms")
        if self._shell is not None:
            self._shell.close(limit)

    def __enter__(self) -> Client:
        return self if self._shell is not None else self.connect()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(0 if kind is not None and issubclass(kind, KeyboardInterrupt) else LINGER_MS)

    def __del__(self) -> None:
        shell = getattr(self, "_shell", None)
        if shell is not None and not shell.closed and shell.owned:
            warnings.warn("a Client was not closed", ResourceWarning, source=self, stacklevel=1)
            shell.close(linger_ms=0)

    @property
    def shell(self) -> BlockingShell:
        """The connection.

        Raises:
            UsageError: there is none.
        """
        if self._shell is None:
            raise UsageError("this client is not connected: use it in a with, or call connect()")
        return self._shell

    def _run(self, script: Script[T], timeout_ms: int | None = None) -> T:
        return self.shell.run(script, arguments.timeout(timeout_ms))

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
    def start_agent(self, agent: AgentSpec, *, group: Group | None = None) -> AgentHandle: ...

    @overload
    def start_agent(
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
        group: Group | None = None,
    ) -> AgentHandle: ...

    def start_agent(
        self,
        agent: AgentSpec | type | str | None,
        *,
        group: Group | None = None,
        **terms: object,
    ) -> AgentHandle:
        """Start an agent under a name and return the handle of its process, ready for work.

        The fields are those of `AgentSpec`; `name` and `backend` are required, and a name
        has 1,024 bytes of msgpack at most.

        Raises:
            StartFailed: it could not be started; no process of it is left, its name is free.
            UsageError: a field is unknown, missing or cannot be sent; nothing was started.
        """
        number = None if group is None else numbered(group).number_to_start_in()
        spec = spec_of(agent, terms)
        return self._run(calls.start_agent(self.shell.talk, spec, number))

    def stop(
        self, name: object, *, group: Group | None = None, timeout_ms: int | None = None
    ) -> ExitReason:
        """Stop the agent; when this returns, it is gone and its name is free.

        Raises:
            Refused: `not_found`: no such agent in that group (default: the global one).
        """
        number = None if group is None else numbered(group).number
        return self._run(calls.stop(self.shell.talk, name, number), timeout_ms)

    def drain(self, name: object, timeout_ms: int | None = None) -> None:
        """Let the agent refuse new work, finish its turn and exit; returns when it is gone.

        Whoever can name an agent may drain it, also one of another client's group.

        Raises:
            Refused: `not_found`.
            CallTimeout: it is not gone yet; it goes on draining.
            ProcessDown: it ended otherwise.
        """
        self._run(calls.drain(self.shell.talk, name), timeout_ms)

    def whereis(self, name: object, timeout_ms: int | None = None) -> AgentHandle | None:
        """Return the handle of the living agent of that name, or None."""
        return self._run(calls.whereis(self.shell.talk, name), timeout_ms)

    def list(self, timeout_ms: int | None = None) -> tuple[AgentRow, ...]:
        """Return what the daemon knows of each agent: a view of this moment, in no order."""
        return self._run(calls.list_agents(self.shell.talk), timeout_ms)

    def ask(self, name: object, prompt: str, timeout_ms: int | None = None) -> Response:
        """Run the prompt and return the response of its turn.

        Raises:
            Refused: not accepted (`not_found`, `overloaded`, `draining`, ...).
            TurnFailed: accepted, and the turn failed.
            CallTimeout, ProcessDown, DaemonLost: no answer; its effect is unknown.
        """
        return self._run(calls.ask(self.shell.talk, name, prompt), timeout_ms)

    def tell(self, name: object, prompt: str, timeout_ms: int | None = None) -> RequestRef:
        """Have the prompt accepted and return its ref, to be polled.

        Raises:
            Refused: not accepted; there is no ref.
        """
        return self._run(calls.tell(self.shell.talk, name, prompt), timeout_ms)

    def tell_with_completion(
        self,
        name: object,
        prompt: str,
        recipient: Recipient | Own = OWN,
        *,
        on_halt: OnHalt = "queue",
        stream_to: Recipient | None = None,
        timeout_ms: int | None = None,
    ) -> RequestRef:
        """Have the prompt accepted; its one `Completion` goes to *recipient* (default: here).

        The completion may arrive before this returns: compare refs.

        Raises:
            Refused: not accepted; there is no ref and no completion.
        """
        script = calls.tell_with_completion(
            self.shell.talk,
            name,
            prompt,
            recipient=self.address if isinstance(recipient, Own) else recipient,
            on_halt=on_halt,
            stream_to=stream_to,
        )
        return self._run(script, timeout_ms)

    def poll(
        self, name: object, ref: RequestRef | str, timeout_ms: int | None = None
    ) -> PollResult:
        """Return what is known of *ref*: pending, completed, failed, not found, or lost."""
        return self._run(calls.poll(self.shell.talk, name, ref), timeout_ms)

    def notify(self, name: object, event: object, timeout_ms: int | None = None) -> None:
        """Send an event to the agent of that name, if there is one. Best effort.

        This does not say that the event fit, was handled, or that there is an agent.
        """
        envelope = Notify(event=sendable.payload(event, "event"))
        self._run(calls.cast(self.shell.talk, "notify", name, envelope), timeout_ms)

    def notify_ack(self, name: object, event: object, timeout_ms: int | None = None) -> None:
        """Send an event; returns when it was handled or retained in the agent's memory.

        This does not say what became of it: `handle_event` may have raised, or returned
        what it may not, which the agent's log tells.

        Raises:
            Refused: it was not (`overloaded`, `draining`, `not_found`).
        """
        self._run(calls.notify_ack(self.shell.talk, name, event), timeout_ms)

    def interrupt(self, name: object, timeout_ms: int | None = None) -> None:
        """Ask the agent to stop whatever turn is active; nothing is answered."""
        self._run(calls.cast(self.shell.talk, "interrupt", name, Interrupt()), timeout_ms)

    def interrupt_request(
        self, name: object, ref: RequestRef | str, timeout_ms: int | None = None
    ) -> InterruptResult:
        """Stop the active turn if it is that request's, and say whether it was.

        Raises:
            Refused: `not_found`: no agent has that name.
        """
        return self._run(calls.interrupt_request(self.shell.talk, name, ref), timeout_ms)

    def cancel_request(
        self, name: object, ref: RequestRef | str, timeout_ms: int | None = None
    ) -> CancelResult:
        """Remove that queued request, and say what became of it.

        Raises:
            Refused: `not_found`: no agent has that name.
        """
        return self._run(calls.cancel_request(self.shell.talk, name, ref), timeout_ms)

    def resume(self, name: object, timeout_ms: int | None = None) -> None:
        """Let a halted agent go on; nothing is answered."""
        self._run(calls.cast(self.shell.talk, "resume", name, Resume()), timeout_ms)

    def halt(self, name: object, timeout_ms: int | None = None) -> None:
        """Have the agent halt, after its turn if there is one; nothing is answered."""
        self._run(calls.cast(self.shell.talk, "halt", name, Halt()), timeout_ms)

    def status(self, name: object, timeout_ms: int | None = None) -> Status:
        """Return the agent's phase, queue and what its `show_state` shows."""
        return self._run(calls.status(self.shell.talk, name), timeout_ms)

    def runtime_snapshot(self, name: object, timeout_ms: int | None = None) -> Snapshot:
        """Return what the agent's coordinator is doing now; not permission to dispatch."""
        return self._run(calls.snapshot(self.shell.talk, name), timeout_ms)

    def reset_session(self, name: object, timeout_ms: int | None = None) -> None:
        """Start the backend's conversation anew; state and queue stay.

        Raises:
            Refused: `busy`, `draining`, `unsupported` or the backend's reason.
        """
        self._run(calls.reset_session(self.shell.talk, name), timeout_ms)

    # --- one process, by its handle

    def at(self, handle: AgentHandle) -> Captured:
        """Return what can be asked of exactly the process that *handle* captured.

        Raises:
            UsageError: it is not a handle, or not one of this daemon's place.
        """
        return Captured(self.shell, handle)

    def demonitor(self, monitor: MonitorRef) -> bool:
        """Forget the monitor: no `Down` of it arrives any more.

        False when its `Down` has arrived already; it is in the mailbox or was read.
        """
        return self.shell.do(lambda talk: talk.demonitor(arguments.monitor_ref(monitor)))

    # --- what arrives

    def receive(
        self, timeout_ms: int | None = None, *, matching: Matching = anything
    ) -> Message | None:
        """Return the next message of this client's own mailbox, as `Mailbox.receive` does."""
        return self.shell.receive(self.shell.talk.own, matching, arguments.timeout(timeout_ms))

    def __iter__(self) -> Iterator[Message]:
        """Yield what arrives in this client's own mailbox, in that order, without end."""
        while (message := self.receive()) is not None:
            yield message

    def mailbox(self) -> Mailbox:
        """Return a further mailbox with an address of its own."""
        return Mailbox(self.shell, self.shell.do(lambda talk: talk.open_box()))

    def telemetry(self, timeout_ms: int | None = None) -> Mailbox:
        """Return a mailbox that gets every telemetry record from now on.

        When it is not read, records are dropped and a `TelemetryLost` counts them.
        This does not wait for the agents: one that runs already hears of it ahead of
        whatever is sent to it next, and may have done something meanwhile.
        """
        mailbox = self.mailbox()
        self.shell.do(lambda talk: talk.watch_telemetry(mailbox.box))
        try:
            self._run(calls.watch_telemetry(self.shell.talk, on=True), timeout_ms)
        except BaseException:
            mailbox.close()
            raise
        return mailbox

    # --- functions

    def attach(
        self,
        agent: object,
        *,
        catalogs: Iterable[Catalog | Mapping[str, object]] = (),
        functions: Mapping[str, Served] | None = None,
        timeout_ms: int | None = CALL_TIMEOUT_MS,
    ) -> Session:
        """Open a session of function calls with an agent: by its name, or by a handle.

        The agent may call the functions of *catalogs*, as far as those allow it; the
        code of each stands in *functions* by its name, takes the arguments, a dict, and
        returns the value; it is a `def`, as nobody here could await it. Each catalog is
        a `Catalog` or the document of one.

        Raises:
            Refused: `not_found`, or the agent takes no session (`busy`, `unsupported`).
            UsageError: a catalog or a function cannot be used; the agent was not asked.
            CallTimeout, ProcessDown, DaemonLost: there is no answer, and no session.
        """
        from genagentd.client import session

        script = session.attach(self.shell.talk, agent, catalogs, functions or {}, awaits=False)
        return session.Session(self.shell, self._run(script, timeout_ms))

    # --- groups and the daemon

    def group(self) -> Group:
        """Return a group to enter: the agents started in it end when it is left."""
        return Group(self.shell)

    def daemon_status(self, timeout_ms: int | None = CALL_TIMEOUT_MS) -> CoreState:
        """Return who the daemon is and how it is."""
        return self._run(calls.core_status(self.shell.talk), timeout_ms)
