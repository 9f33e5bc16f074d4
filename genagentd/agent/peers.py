"""How an agent's code reaches other agents: over its own channel, under its own name.

A target is a name, looked up when it is used, or a captured handle, which means
exactly that process. What is awaited works in `async def` callbacks and in the
turn's thread; a `def` callback can only send: `notify`, `submit_with_completion`,
`monitor`. Admissions, completions and `Down` messages reach the agent's
`handle_info`. To await an answer of itself would be to wait for ever and is refused.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from genagent_backends.timeouts import timeout
from genagent_protocol.answers import Found, Ok, Refused
from genagent_protocol.codec import name_key
from genagent_protocol.envelopes import Notify, Submit
from genagent_protocol.errors import UNKNOWN_FATE, StartFailed, TurnFailed, UsageError
from genagent_protocol.errors import Refused as RefusedError
from genagent_protocol.events import Completed, Failed, Response
from genagent_protocol.plain import Loose, Plain
from genagent_protocol.reasons import NOT_FOUND, Reason
from genagent_protocol.refs import AgentHandle, MonitorRef, RequestRef
from genagent_protocol.requests import (
    Ask,
    DaemonRequest,
    DemonitorAgent,
    MonitorAgent,
    NotifyAck,
    StopAgent,
    Tell,
    Whereis,
)
from genagent_protocol.supervision.effects import NotStarted, Started
from genagent_protocol.supervision.terms import RestartKind, RestartPolicy
from genagentd import arguments, sendable
from genagentd.agent.behaviour import AnyAgent
from genagentd.agent.calls import Answer, Calls, Say, in_time
from genagentd.agent.order import Order, Place
from genagentd.agent.own_refs import OwnRefs
from genagentd.starting import start_request

T = TypeVar("T")
#: Whom to reach: a captured handle, or whoever has this name now.
Target: TypeAlias = AgentHandle | Loose

#: How long an answer to a control call is awaited, and an outcome.
CALL_TIMEOUT_MS = 5_000
ASK_TIMEOUT_MS = 60_000
#: What is known of a call whose time was over while its target was still looked up.
NOT_SENT = "nothing was sent"


class Peers:
    """The other agents, as one agent sees them. Use it from callbacks and from the turn.

    What is shown as `async def` waits for an answer. Await it, in an `async def`
    callback or in the turn: `answer = await self.context.peers.ask("b", "...")`. In a
    plain `def` the call only makes a coroutine, which nobody runs: nothing is sent.
    """

    def __init__(self, own: AgentHandle, say: Say, calls: Calls, refs: OwnRefs) -> None:
        self._refs = refs
        self._name = own.name
        self._incarnation = own.incarnation
        self._place = own.place
        self._say = say
        self._calls = calls
        self._order = Order()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    # Sending, without waiting

    def notify(self, target: Target, event: Loose) -> None:
        """Send *event* to the target's `handle_event`; best effort, nothing comes back.

        This does not say whether the target exists. To itself it is fine. What is sent to
        one agent arrives in its order, by name and by handle alike.

        Raises:
            UsageError: the event cannot cross a process border, or is too large, or the
                handle is none of this place.
        """
        notification = Notify(event=sendable.payload(event, "event"))
        if isinstance(target, AgentHandle):
            self._post(self._captured(target), notification)
        else:
            self._here(self._notify_by_name, sendable.agent_name(target), notification)

    def _notify_by_name(self, name: Plain, notification: Notify) -> None:
        # Asked first: a place has to be left again, whatever comes of the question.
        asked = self._calls.ask_daemon(Whereis(name=name))
        place = self._order.place()

        def found(answer: asyncio.Future[Answer]) -> None:
            located = None if answer.cancelled() else answer.result()
            if isinstance(located, Found) and (handle := located.handle) is not None:
                place.fill(lambda: self._say(handle.incarnation.text, notification, None))
            else:
                place.leave()

        asked.add_done_callback(found)

    async def all_sent(self, within_ms: int) -> None:
        """Return when nothing that was begun waits to be sent any more, or after *within_ms*."""
        await self._in_order(lambda place: self._all_gone(place, within_ms))

    async def _all_gone(self, place: Place, within_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with timeout(within_ms / 1000):
                await place.reached()

    def submit_with_completion(
        self, handle: AgentHandle, prompt: str, *, on_halt: Literal["queue", "fail"] = "queue"
    ) -> RequestRef:
        """Send one prompt to exactly this process and return its ref.

        Its admission and its completion come to this agent's `handle_info`, however
        much waits for the end of a turn there. This does not wait: a dead process
        gets it too.

        Raises:
            UsageError: an argument is not what it should be; nothing was sent.
        """
        ref = self._refs.mint(self._captured(handle).incarnation)
        submit = Submit(
            ref=ref,
            prompt=sendable.prompt(prompt),
            recipient=self._incarnation,
            on_halt=arguments.on_halt(on_halt),
        )
        self._post(handle, submit, ref.text)
        return ref

    def monitor(self, handle: AgentHandle) -> MonitorRef:
        """Have exactly one `Down` with this monitor sent to `handle_info` when that agent ends.

        It comes after everything the agent had sent, and at once if it is gone already;
        however much waits for the end of a turn here, it waits with it.

        Raises:
            UsageError: it is not a handle of this place.
        """
        self._captured(handle)
        monitor = self._calls.new_monitor()
        self._tell_daemon(MonitorAgent(monitor=monitor, handle=handle))
        return monitor

    def demonitor(self, monitor: MonitorRef) -> None:
        """Forget that watch. A `Down` of it may be on its way already.

        Raises:
            UsageError: it is not what `monitor` returned.
        """
        self._tell_daemon(DemonitorAgent(monitor=arguments.monitor_ref(monitor)))

    # Waiting for an answer

    async def whereis(self, name: Loose) -> AgentHandle | None:
        """Return the handle of the living agent of that name, or None.

        Raises:
            UsageError: it cannot be a name.
            CallTimeout: no answer came within five seconds.
        """
        return await self._there(self._looked_up(sendable.agent_name(name)))

    async def notify_ack(
        self, target: Target, event: Loose, *, timeout_ms: int | None = CALL_TIMEOUT_MS
    ) -> None:
        """Have *event* handled or retained by the target.

        Raises:
            UsageError: the event or the name cannot be sent; nothing was.
            Refused: it did not fit, or the target is not there or is this agent.
            CallTimeout, ProcessDown: nobody knows whether it was handled, unless
                `fate` says that nothing was sent.
        """
        payload = sendable.payload(event, "event")
        answer = await self._call(
            target, lambda _: NotifyAck(event=payload), "notify_ack", timeout_ms
        )
        _accepted(answer, "notify_ack")

    async def tell_with_completion(
        self,
        target: Target,
        prompt: str,
        *,
        on_halt: Literal["queue", "fail"] = "queue",
        timeout_ms: int | None = CALL_TIMEOUT_MS,
    ) -> RequestRef:
        """Have *prompt* accepted and return its ref; the completion comes to `handle_info`.

        Raises:
            Refused: it was not accepted; there is no ref and no completion.
            UsageError: an argument is not what it should be; nothing was sent.
            CallTimeout, ProcessDown: nobody knows whether it was accepted, unless
                `fate` says that nothing was sent.
        """
        minted: list[RequestRef] = []
        text, halting = sendable.prompt(prompt), arguments.on_halt(on_halt)

        def tell(handle: AgentHandle) -> Tell:
            minted.append(self._refs.mint(handle.incarnation))
            return Tell(ref=minted[0], prompt=text, recipient=self._incarnation, on_halt=halting)

        answer = await self._call(target, tell, "tell_with_completion", timeout_ms)
        _accepted(answer, "tell_with_completion")
        return minted[0]

    async def ask(
        self, target: Target, prompt: str, *, timeout_ms: int | None = ASK_TIMEOUT_MS
    ) -> Response:
        """Have *prompt* run and return the response.

        Raises:
            UsageError: the prompt or the name cannot be sent; nothing was.
            Refused: it was not accepted.
            TurnFailed: it was, and its turn failed.
            CallTimeout, ProcessDown: its fate is unknown, unless `fate` says that
                nothing was sent.
        """
        text = sendable.prompt(prompt)
        answer = await self._call(
            target,
            lambda handle: Ask(ref=self._refs.mint(handle.incarnation), prompt=text),
            "ask",
            timeout_ms,
        )
        match answer:
            case Completed(response):
                return response
            case Failed(reason):
                raise TurnFailed(f"ask: the turn failed ({reason})", reason)
        raise _unexpected(answer, "ask")

    async def start_agent(
        self,
        agent: str | type[AnyAgent] | None,
        *,
        name: Loose,
        backend: str,
        options: Mapping[str, Loose] | None = None,
        limits: Mapping[str, Loose] | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        restart: RestartPolicy | RestartKind = "temporary",
        session: str | None = None,
        start_timeout_ms: int = 60_000,
        may_start: bool = False,
    ) -> AgentHandle:
        """Start another agent and return its handle when it is ready.

        *agent* is a class, its `package.module:Class`, or None for the plain one.
        *name* has 1,024 bytes of msgpack at most. This agent must have been started
        with `may_start`. The new one lives on its own: it does not end with this one.
        Without *cwd* it gets this one's.

        Raises:
            StartFailed: it could not be started, and nothing of it is left.
            UsageError: a field is unknown or cannot be sent; nothing was started.
        """
        start = start_request(
            name=name,
            agent=agent,
            backend=backend,
            options={} if options is None else options,
            limits={} if limits is None else limits,
            cwd=cwd,
            env={} if env is None else env,
            restart=restart,
            session=session,
            start_timeout_ms=start_timeout_ms,
            may_start=may_start,
        )
        answer = await self._there(self._of_daemon(start))
        match answer:
            case Started(handle):
                return handle
            case NotStarted(error):
                raise StartFailed(f"start_agent: {error}", error)
        raise _unexpected(answer, "start_agent")

    async def stop(self, name: Loose) -> None:
        """Stop the agent of that name and return when it is gone.

        Notifications that were sent to it before come to it before its end.

        Raises:
            UsageError: it cannot be a name.
            Refused: there is none, or it is this agent (`self_stop`).
        """
        frozen = sendable.agent_name(name)
        if name_key(frozen) == name_key(self._name):
            raise RefusedError("stop: an agent cannot stop itself", Reason("self_stop"))
        answer = await self._in_order(lambda place: self._stopped(place, frozen))
        if answer == Refused(NOT_FOUND):
            raise sendable.nobody("stop", name)
        if isinstance(answer, Refused):
            raise RefusedError(f"stop: refused ({answer.reason})", answer.reason)

    def _captured(self, handle: AgentHandle) -> AgentHandle:
        # An incarnation of another place may be spelt as one of this place is.
        return arguments.captured(handle, self._place, "this agent lives at")

    # Between threads

    def _here(self, send: Callable[..., None], *arguments: object) -> None:
        """Do *send* in the coordinator, whichever thread this is."""
        if threading.get_ident() == self._thread:
            send(*arguments)
        else:
            self._loop.call_soon_threadsafe(send, *arguments)

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Await *work* in the coordinator's loop, whichever loop this is."""
        if threading.get_ident() == self._thread:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _in_order(self, work: Callable[[Place], Coroutine[Any, Any, T]]) -> T:
        """Await *work* there, with a place behind everything that this thread has begun so far.

        The place is left at the end of *work*, unless *work* has left it before.
        """
        if threading.get_ident() == self._thread:
            with self._order.place() as place:
                return await work(place)
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._here(self._begin, work, answer)
        return await asyncio.wrap_future(answer)

    def _begin(
        self,
        work: Callable[[Place], Coroutine[Any, Any, T]],
        answer: concurrent.futures.Future[T],
    ) -> None:
        if answer.cancelled():
            return
        # The place is taken here and not by the coroutine, which has its first step only later,
        # when what was begun after it may have been sent; or never, if it is cancelled by then.
        place = self._order.place()
        task = self._loop.create_task(work(place))

        def over(task: asyncio.Task[T]) -> None:
            place.leave()
            if task.cancelled():
                answer.cancel()
                return
            error = task.exception()
            if not answer.set_running_or_notify_cancel():
                return
            if error is None:
                answer.set_result(task.result())
            else:
                answer.set_exception(error)

        def given_up(answer: concurrent.futures.Future[T]) -> None:
            if answer.cancelled():
                self._loop.call_soon_threadsafe(task.cancel)

        task.add_done_callback(over)
        answer.add_done_callback(given_up)

    def _post(self, handle: AgentHandle, envelope: object, ref: str | None = None) -> None:
        to = handle.incarnation.text
        self._here(self._order.send, lambda: self._say(to, envelope, ref))

    def _tell_daemon(self, request: DaemonRequest) -> None:
        self._here(self._calls.tell_daemon, request)

    async def _call(
        self,
        target: Target,
        request: Callable[[AgentHandle], Ask | Tell | NotifyAck],
        what: str,
        timeout_ms: int | None,
    ) -> Answer:
        limit = arguments.timeout(timeout_ms)
        if isinstance(target, AgentHandle):
            self._captured(target)
        else:
            target = sendable.agent_name(target)
        whom = target
        return await self._in_order(lambda place: self._called(place, whom, request, what, limit))

    async def _called(
        self,
        place: Place,
        target: AgentHandle | Plain,
        request: Callable[[AgentHandle], Ask | Tell | NotifyAck],
        what: str,
        timeout_ms: int | None,
    ) -> Answer:
        async with in_time(what, timeout_ms, NOT_SENT) as fate:
            handle = target if isinstance(target, AgentHandle) else await self._whereis(target)
            if handle is None:
                raise sendable.nobody(what, target)
            if handle.incarnation == self._incarnation:
                raise RefusedError(
                    f"{what}: an agent that waits for itself waits for ever",
                    Reason("self_call"),
                )
            await place.reached()
            fate.text = UNKNOWN_FATE
            answer = self._calls.of_agent(handle, request(handle), what)
            place.leave()
            return await answer

    async def _stopped(self, place: Place, name: Plain) -> Answer:
        await place.reached()
        answer = self._calls.ask_daemon(StopAgent(name=name))
        place.leave()
        return await answer

    async def _looked_up(self, name: Plain) -> AgentHandle | None:
        async with in_time("whereis", CALL_TIMEOUT_MS, "nothing was changed"):
            return await self._whereis(name)

    async def _whereis(self, name: Plain) -> AgentHandle | None:
        answer = await self._of_daemon(Whereis(name=name))
        if isinstance(answer, Found):
            return answer.handle
        raise _unexpected(answer, "whereis")

    async def _of_daemon(self, request: DaemonRequest) -> Answer:
        return await self._calls.ask_daemon(request)


def _accepted(answer: Answer, what: str) -> None:
    if not isinstance(answer, Ok):
        raise _unexpected(answer, what)


def _unexpected(answer: Answer, what: str) -> Exception:
    if isinstance(answer, Refused):
        return RefusedError(f"{what}: refused ({answer.reason})", answer.reason)
    return UsageError(f"{what}: the answer was a {type(answer).__name__}")
