"""Calls to exactly one captured process, in both shells.

Nothing here looks a name up, resends, or turns to a successor of the same name: a
handle names one life of one agent, and what is sent to a dead one reaches nobody.
"""

from __future__ import annotations

from typing import TypeVar

from genagent_protocol.envelopes import Notify
from genagent_protocol.refs import AgentHandle, MonitorRef, RequestRef
from genagentd import arguments, sendable
from genagentd.arguments import OWN, OnHalt, Own, Recipient
from genagentd.client import calls, liveness
from genagentd.client.blocking import BlockingShell
from genagentd.client.calls import (
    CALL_TIMEOUT_MS,
    CancelResult,
    InterruptResult,
    Known,
    NotifyResult,
    Submitted,
)
from genagentd.client.conversation import Conversation
from genagentd.client.looped import LoopedShell
from genagentd.client.mailbox import AsyncMailbox, Mailbox, box_of
from genagentd.client.waiting import Script

T = TypeVar("T")


class _Sending:
    """What both shells do alike, because nothing in it waits."""

    def __init__(self, shell: BlockingShell | LoopedShell, handle: AgentHandle) -> None:
        self._any_shell = shell
        self.handle = arguments.captured(handle, shell.talk.place)

    def _submit(
        self, prompt: str, recipient: Recipient | Own, on_halt: OnHalt, stream_to: Recipient | None
    ) -> Submitted:
        def submit(talk: Conversation) -> Submitted:
            target = talk.address(talk.own) if isinstance(recipient, Own) else recipient
            return calls.submit(talk, self.handle, prompt, target, on_halt, stream_to)

        return self._any_shell.do(submit)

    def _notify(self, event: object) -> NotifyResult:
        envelope = Notify(event=sendable.payload(event, "event"))
        shell = self._any_shell
        boot = shell.talk.address(shell.talk.own).boot
        alive = liveness.is_alive(self.handle, boot, local=shell.local)
        shell.check()
        if not alive:
            return "not_alive"
        shell.do(lambda talk: talk.cast(self.handle.incarnation, envelope))
        return "ok"

    def _monitor(self, mailbox: Mailbox | AsyncMailbox | None) -> MonitorRef:
        shell = self._any_shell
        box = shell.talk.own if mailbox is None else box_of(mailbox, shell)
        return shell.do(lambda talk: talk.monitor(self.handle, box))


class Captured(_Sending):
    """What can be asked of one captured process. It never follows the name to a successor."""

    def __init__(self, shell: BlockingShell, handle: AgentHandle) -> None:
        super().__init__(shell, handle)
        self._shell = shell

    def submit_with_completion(
        self,
        prompt: str,
        recipient: Recipient | Own = OWN,
        *,
        on_halt: OnHalt = "queue",
        stream_to: Recipient | None = None,
    ) -> Submitted:
        """Send one prompt to exactly this process and return its ref.

        The same ref names the admission, the events, the completion, and any poll
        or cancel. Every call is new work. Admission and completion go to
        *recipient*, by default this client's own mailbox; an `Undeliverable` always
        goes to the client's own.

        This does not wait: `Submitted` means sent, not accepted, and a dead process
        gets it too. Monitor the handle first if its death matters.

        Raises:
            UsageError: an argument is not what it should be; nothing was sent.
            SendBufferFull: the daemon is behind; nothing was sent, there is no ref.
        """
        return self._submit(prompt, recipient, on_halt, stream_to)

    def notify(self, event: object) -> NotifyResult:
        """Send an event to exactly this process; `not_alive` if it is dead at this moment.

        This waits for nothing, and `ok` does not say that the event arrives: the
        process may die at once.

        Raises:
            UsageError: the event cannot be sent.
        """
        return self._notify(event)

    def poll(self, ref: RequestRef | str, timeout_ms: int | None = CALL_TIMEOUT_MS) -> Known:
        """Return what this process knows of *ref*.

        `NotFound` can mean: not processed yet, rejected, unknown or evicted.

        Raises:
            CallTimeout, ProcessDown, DaemonLost: there is no answer.
        """
        return self._run(calls.poll_at(self._shell.talk, self.handle, ref), timeout_ms)

    def cancel_request(
        self, ref: RequestRef | str, timeout_ms: int | None = CALL_TIMEOUT_MS
    ) -> CancelResult:
        """Remove that queued request; `current` tells to interrupt it instead.

        Raises:
            CallTimeout, ProcessDown, DaemonLost: there is no answer; the fate of the
                request is unknown.
        """
        return self._run(calls.cancel_at(self._shell.talk, self.handle, ref), timeout_ms)

    def interrupt_request(
        self, ref: RequestRef | str, timeout_ms: int | None = CALL_TIMEOUT_MS
    ) -> InterruptResult:
        """Stop the active turn if it is that request's; raises as `cancel_request`.

        `accepted` says that the turn's code has ended, not that the provider settled.
        """
        return self._run(calls.interrupt_at(self._shell.talk, self.handle, ref), timeout_ms)

    def monitor(self, mailbox: Mailbox | None = None) -> MonitorRef:
        """Have exactly one `Down` sent when this process is gone, and return what names it.

        It arrives in *mailbox* (default: the client's own) behind everything the
        process had said. For a dead process it says `noproc` and comes at once;
        when the daemon is lost, `noconnection`. This does not wait.
        """
        return self._monitor(mailbox)

    def _run(self, script: Script[T], timeout_ms: int | None) -> T:
        return self._shell.run(script, arguments.timeout(timeout_ms))


class AsyncCaptured(_Sending):
    """`Captured` for asyncio: the same calls, awaited."""

    def __init__(self, shell: LoopedShell, handle: AgentHandle) -> None:
        super().__init__(shell, handle)
        self._shell = shell

    async def submit_with_completion(
        self,
        prompt: str,
        recipient: Recipient | Own = OWN,
        *,
        on_halt: OnHalt = "queue",
        stream_to: Recipient | None = None,
    ) -> Submitted:
        """As `Captured.submit_with_completion`; it suspends nobody."""
        return self._submit(prompt, recipient, on_halt, stream_to)

    async def notify(self, event: object) -> NotifyResult:
        """As `Captured.notify`; it suspends nobody."""
        return self._notify(event)

    async def poll(self, ref: RequestRef | str, timeout_ms: int | None = CALL_TIMEOUT_MS) -> Known:
        """As `Captured.poll`."""
        return await self._run(calls.poll_at(self._shell.talk, self.handle, ref), timeout_ms)

    async def cancel_request(
        self, ref: RequestRef | str, timeout_ms: int | None = CALL_TIMEOUT_MS
    ) -> CancelResult:
        """As `Captured.cancel_request`."""
        return await self._run(calls.cancel_at(self._shell.talk, self.handle, ref), timeout_ms)

    async def interrupt_request(
        self, ref: RequestRef | str, timeout_ms: int | None = CALL_TIMEOUT_MS
    ) -> InterruptResult:
        """As `Captured.interrupt_request`."""
        return await self._run(calls.interrupt_at(self._shell.talk, self.handle, ref), timeout_ms)

    async def monitor(self, mailbox: AsyncMailbox | None = None) -> MonitorRef:
        """As `Captured.monitor`; it suspends nobody."""
        return self._monitor(mailbox)

    async def _run(self, script: Script[T], timeout_ms: int | None) -> T:
        return await self._shell.run(script, arguments.timeout(timeout_ms))
