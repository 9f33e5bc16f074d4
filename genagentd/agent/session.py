"""One session of an attached client: its pending calls and their timers, and what it may call.

Every call of the agent ends once: by the client's answer, by its timer, or with the
session. Whatever the client sends is answered with a code or dropped; nothing of
it ends the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeGuard

from genagent_protocol.envelopes import UiMessage
from genagent_protocol.errors import FunctionFailed, LocalWireError
from genagent_protocol.plain import FrozenDict, Loose, NotPlain, Plain, freeze
from genagent_protocol.rpc import (
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    UNKNOWN_ERROR,
    AgentRpc,
    Catalog,
    Function,
    Malformed,
    Message,
    Prepared,
    Rejected,
    Resolved,
    RpcError,
    RpcLimits,
    Settlement,
    read_message,
)
from genagent_protocol.rpc.execution import in_place_of, refused
from genagent_protocol.rpc.json_values import thawed_object
from genagent_protocol.rpc.messages import Kind
from genagent_protocol.rpc.reading import UNKNOWN_ID
from genagent_protocol.rpc.sending import sendable_arguments
from genagent_protocol.rpc.versions import VERSION
from genagentd.agent import forked, functions, log
from genagentd.agent.calls import Say
from genagentd.agent.functions import OFFERED_CATALOG_ID
from genagentd.agent.sessions import Attached, Wanted, called_plainly
from genagentd.deadlines import Deadlines

#: How many functions of one session may wait for something at a time.
MAX_RUNNING = 1_000
#: The messages by which a client ends a call of the agent.
_ANSWERS: Final[tuple[Kind, ...]] = ("rendererFunctionResponse", "error")
#: Who hears how a call ended.
Heard = Callable[[Settlement | FunctionFailed], None]


class Registry:
    """The functions an agent offers: what may be called, and the methods behind it."""

    def __init__(self, agent: object) -> None:
        """Read what *agent* offers.

        Raises:
            ValueError: the schema of some arguments cannot be used; it names the function.
        """
        offered = functions.offered(agent)
        self.methods = {name: method for name, (_, method) in offered.items()}
        self.catalog = Catalog(
            catalog_id=OFFERED_CATALOG_ID,
            functions=tuple(_made(name, mark) for name, (mark, _) in offered.items()),
        )


def _made(name: str, mark: functions.Mark) -> Function:
    try:
        return Function.made(
            name, arguments=None if mark.arguments is None else thawed_object(mark.arguments)
        )
    except ValueError as error:
        raise ValueError(f"{name}: the schema of its arguments: {error}") from None


def sendable(arguments: object) -> FrozenDict | RpcError:
    """Return a frozen copy of the arguments of a call, or the error that it ends with."""
    checked = sendable_arguments(arguments, RpcLimits())
    return RpcError(INVALID_FUNCTION_CALL, checked) if isinstance(checked, str) else checked


class Session:
    """Used in the coordinator."""

    def __init__(self, attached: Attached, registry: Registry, say: Say) -> None:
        self.attached = attached
        self._registry = registry
        self._say = say
        self._rpc = AgentRpc.new()
        self._heard: dict[str, Heard] = {}
        self._timers: Deadlines[str] = Deadlines(self._timed_out)
        #: The functions that the client called and that wait for something.
        self._running: set[asyncio.Task[None]] = set()

    @property
    def offers(self) -> tuple[str, ...]:
        """The names of the functions that the client may call, sorted."""
        return tuple(sorted(self._registry.methods))

    # Calls of the agent

    def call(self, wanted: Wanted, heard: Heard) -> None:
        """Call the client; *heard* is told once how that ended, at once if it cannot be made."""
        if isinstance(wanted.arguments, RpcError):
            heard(Rejected(wanted.call_id, wanted.arguments))
            return
        made = self._rpc.call_renderer_function(
            {"@call": wanted.function, "catalogId": wanted.catalog, "args": wanted.arguments},
            wanted.surface,
            function_call_id=wanted.call_id,
            timeout_ms=wanted.timeout_ms,
        )
        if isinstance(made, RpcError):
            heard(Rejected(wanted.call_id, made))
            return
        self._rpc, message = made
        self._heard[wanted.call_id] = heard
        timeout_ms = self._rpc.pending_timeout(wanted.call_id)
        if timeout_ms is not None:
            self._timers.arm(wanted.call_id, max(1, round(timeout_ms)))
        problem = self._send(message)
        if problem is not None:
            self._take(self._rpc.handle_error(_unsent(wanted.call_id, problem)))

    def give_up(self, call_id: str) -> None:
        """Nobody waits for that call any more; its answer will be a late one."""
        self._take(self._rpc.cancel(call_id, "its caller gave up"))

    def _timed_out(self, call_id: str) -> None:
        self._take(self._rpc.timeout(call_id))

    def end(self, reason: str) -> None:
        """The session is over: every call that waits is cancelled, and none can be made."""
        self._take(self._rpc.dispose(reason))
        for task in self._running:
            task.cancel()

    def _take(self, step: tuple[AgentRpc, tuple[Settlement, ...]]) -> bool:
        self._rpc, settlements = step
        for settlement in settlements:
            self._timers.disarm(settlement.call_id)
            self._heard.pop(settlement.call_id)(settlement)
        return bool(settlements)

    # What the client says

    @staticmethod
    def is_call(message: FrozenDict) -> bool:
        """Whether this wants an answer, however malformed it may be."""
        return "callAgentFunction" in message

    def settle(self, message: FrozenDict) -> bool:
        """Take what is no call; False if it settles nothing."""
        envelope = read_message(message, "renderer")
        if isinstance(envelope, Malformed):
            return self._reject_answered(envelope)
        if envelope.kind == "rendererFunctionResponse":
            return self._take(self._rpc.handle_renderer_function_response(message))
        if envelope.kind == "error":
            return self._take(self._rpc.handle_error(message))
        return False

    def let_go(self, message: FrozenDict) -> None:
        """Reject what a call claims to answer as well: a callback may wait for just that."""
        if any(kind in message for kind in _ANSWERS):
            self.settle(message)

    def _reject_answered(self, malformed: Malformed) -> bool:
        """Reject the calls that a message names as answered and does not answer."""
        settled = False
        for call_id in malformed.calls(*_ANSWERS):
            settled |= self._take(self._rpc.handle_error(_unreadable(call_id, malformed.problem)))
        return settled

    def run(self, message: FrozenDict, state: object) -> None:
        """Run the function that the client calls; if it waits, it is answered when it is done."""
        envelope = read_message(message, "renderer")
        if isinstance(envelope, Malformed):
            self._send(_refusal(envelope))
            return
        prepared = self._rpc.prepare_agent_function(message, self._registry.catalog)
        if not isinstance(prepared, Prepared):
            self._send(prepared)
            return
        outcome = self._called(prepared, state)
        if _is_awaitable(outcome):
            task = asyncio.create_task(self._answer_later(prepared, outcome))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        else:
            self._answer(prepared, outcome)

    def _called(self, prepared: Prepared, state: object) -> object:
        if len(self._running) >= MAX_RUNNING:
            return RpcError(EXECUTION_ERROR, f"{MAX_RUNNING} calls of this session are not done.")
        name = prepared.function.name
        method, arguments = self._registry.methods[name], thawed_object(prepared.args)
        try:
            with forked.Home():
                return called_plainly(lambda: method(arguments, state))
        except BaseException as error:  # noqa: BLE001  # user code may raise whatever it likes
            return _failure(name, error)

    async def _answer_later(self, prepared: Prepared, outcome: Awaitable[object]) -> None:
        try:
            with forked.Home():
                answer = await outcome
            self._answer(prepared, answer)
        except BaseException as error:  # noqa: BLE001  # user code may raise whatever it likes
            self._answer(prepared, _failure(prepared.function.name, error))

    def _answer(self, prepared: Prepared, outcome: object) -> None:
        if self._rpc.disposed:
            return
        try:
            message = self._rpc.finish_agent_function(prepared, outcome)
        except BaseException as error:  # noqa: BLE001  # to copy a value is to run its code
            failure = _failure(prepared.function.name, error)
            message = self._rpc.finish_agent_function(prepared, failure)
        problem = self._send(message)
        if problem is not None:
            instead = in_place_of(message, problem)
            assert instead is not None
            self._send(instead)

    def _send(self, message: Message) -> str | None:
        """Send *message*, or say why it cannot be sent."""
        try:
            frozen = freeze(message)
            assert isinstance(frozen, FrozenDict)
            self._say(self.attached.address.text, UiMessage(message=frozen), None)
        except (NotPlain, LocalWireError) as error:
            # All parts of it are bounded, so only their sum can be too much.
            log.raised("session.message_unsent", error)
            return str(error)
        return None


def _is_awaitable(outcome: object) -> TypeGuard[Awaitable[object]]:
    try:
        return isinstance(outcome, Awaitable)
    except BaseException:  # noqa: BLE001  # what it is is asked of the value itself as well
        return False


def _failure(name: str, error: BaseException) -> BaseException:
    """Return what a function raised; a line in the log if it did not choose to fail."""
    # By its type: `isinstance` asks the exception itself as well, and that is code of others.
    if not issubclass(type(error), FunctionFailed):
        log.raised("function.failed", error, function=name)
    return error


def _unreadable(call_id: str, problem: str) -> dict[str, Loose]:
    """Return what rejects the call that an unreadable answer names."""
    text = f"The answer cannot be read: {problem}"
    return {"error": {"functionCallId": call_id, "code": UNKNOWN_ERROR, "message": text}}


def _unsent(call_id: str, problem: str) -> dict[str, Loose]:
    """Return what rejects a call that cannot be sent."""
    text = f"The call cannot be sent: {problem}"
    return {"error": {"functionCallId": call_id, "code": INVALID_FUNCTION_CALL, "message": text}}


def _refusal(malformed: Malformed) -> Message:
    """Return the answer to a call that cannot be read; an agent has no `error` message."""
    call_id = next(iter(malformed.calls("callAgentFunction")), UNKNOWN_ID)
    error = RpcError(INVALID_FUNCTION_CALL, malformed.problem)
    return refused("agentFunctionResponse", VERSION, call_id, error)


def value_of(settlement: Settlement) -> object:
    """Return the value a call ended with.

    Raises:
        FunctionFailed: it ended without one.
    """
    if isinstance(settlement, Rejected):
        raise FunctionFailed(settlement.error.code, settlement.error.message)
    return settlement.value


def told_of(settlement: Settlement) -> dict[str, Plain]:
    """Return how a call ended, as a part of an event."""
    match settlement:
        case Resolved(value=value):
            return {"value": freeze(value)}
        case Rejected(error=error):
            return {"error": FrozenDict(code=error.code, message=error.message)}
