"""The sessions of attached clients, as their agent holds them: opened, found, and ended.

A session belongs to the connection that attached it and to nobody else. What an
agent without one would never need is loaded with the first session. An answer is
taken at once, even while a callback waits; a call of a client waits for its turn.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from genagent_protocol.answers import Refused, UiAttached
from genagent_protocol.errors import FunctionFailed, UsageError
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import Reason
from genagent_protocol.refs import MailboxAddress, MalformedIdentity
from genagent_protocol.requests import MAX_CATALOG_CHARACTERS, MAX_CATALOGS, AttachUi
from genagent_protocol.turns import inputs
from genagentd.agent import log
from genagentd.agent.calls import Say

if TYPE_CHECKING:
    from genagent_protocol.rpc import RpcError, Settlement
    from genagentd.agent.session import Session

T = TypeVar("T")

#: How many sessions one agent has at most.
MAX_SESSIONS = 64
#: No attached client serves the catalog, or the session that was meant is over.
NO_CLIENT = "NO_CLIENT"

#: The task that is inside a plain call of user code. A task begun there has this too, but
#: it is another one, and may wait.
_in_plain_call: ContextVar[asyncio.Task[Any] | None] = ContextVar("in_plain_call", default=None)


def called_plainly(call: Callable[[], T]) -> T:
    """Return what a callback gives, or the awaitable it is; nothing in it can be awaited yet."""
    token = _in_plain_call.set(asyncio.current_task())
    try:
        return call()
    finally:
        _in_plain_call.reset(token)


def _cannot_wait() -> bool:
    task = _in_plain_call.get()
    return task is not None and task is asyncio.current_task()


@dataclass(frozen=True, slots=True)
class Attached:
    """One attached client: where it hears, and the catalogs it serves."""

    address: MailboxAddress
    catalog_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A call to a client's function that is to be made."""

    call_id: str
    function: str
    catalog: str
    #: Checked and copied; `RpcError` if they cannot be sent, None if nobody was attached.
    arguments: FrozenDict | RpcError | None = field(repr=False)
    surface: str | None
    session: MailboxAddress | None
    timeout_ms: float | None


class Sessions:
    """All sessions of one agent; used in the coordinator, `call` and `request` from anywhere."""

    def __init__(self, say: Say, post: Callable[[inputs.Input], None]) -> None:
        self._say = say
        self._post = post
        #: Whose functions are offered.
        self.agent: object = None
        self._open: dict[str, Session] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        #: What came too late, or was no message of a session.
        self.dropped = 0

    @property
    def attached(self) -> tuple[Attached, ...]:
        """Who is attached now, in the order of their coming."""
        return tuple(session.attached for session in tuple(self._open.values()))

    # Coming and going

    def attach(self, sender: str, wanted: AttachUi) -> UiAttached | Refused:
        """Open the session that the client *sender* wants."""
        address = _session_of(sender, str(wanted.session))
        if address is None or address.text in self._open or _too_many(wanted.catalog_ids):
            return Refused(Reason("not_allowed"))
        if len(self._open) >= MAX_SESSIONS:
            return Refused(Reason("busy"))
        from genagentd.agent.session import Registry, Session

        session = Session(Attached(address, wanted.catalog_ids), Registry(self.agent), self._say)
        self._open[address.text] = session
        return UiAttached(functions=session.offers)

    def detach(self, sender: str, ref: str | None) -> bool:
        """A client ends its session; False if there is none."""
        address = _session_of(sender, ref)
        session = None if address is None else self._open.pop(address.text, None)
        if session is None:
            return False
        session.end("the client detached")
        return True

    def gone(self, client: str) -> None:
        """A client's connection is over, and every session of it."""
        for address, session in list(self._open.items()):
            if address.partition(".")[0] == client:
                del self._open[address]
                session.end("the client is gone")

    def close(self) -> None:
        """The agent ends: whoever still waits here hears it."""
        for session in self._open.values():
            session.end("the agent ends")
        self._open.clear()

    # What clients say

    def settle(self, sender: str, ref: str | None, message: FrozenDict) -> bool:
        """Take an answer of a client at once; False if this is a call, to be run in its turn."""
        session = self._session(sender, ref)
        if session is not None and session.is_call(message):
            session.let_go(message)
            return False
        if session is None or not session.settle(message):
            self._drop(sender)
        return True

    def run(self, sender: str, ref: str | None, message: FrozenDict, state: object) -> None:
        """Run the function that a client calls, and answer, unless its session is over by then."""
        session = self._session(sender, ref)
        if session is None:
            self._drop(sender)
        elif session.is_call(message):
            session.run(message, state)
        else:
            self.settle(sender, ref, message)

    def _session(self, sender: str, ref: str | None) -> Session | None:
        address = _session_of(sender, ref)
        return None if address is None else self._open.get(address.text)

    def _drop(self, sender: str) -> None:
        self.dropped += 1
        log.line("session.message_dropped", sender=sender, dropped=self.dropped)

    # What the agent's own code wants

    def call(self, **wanted: Any) -> Coroutine[Any, Any, Any]:
        """Call a client's function; what is awaited is its value.

        Raises:
            UsageError: this is a `def` callback, which cannot wait.
        """
        if _cannot_wait():
            raise UsageError(
                "context.call has to be awaited, and a def callback cannot: make it an async def, "
                "or use context.request, whose answer comes as an event"
            )
        called = self._called(self._wanted(wanted))
        return called if threading.get_ident() == self._thread else self._elsewhere(called)

    def request(self, **wanted: Any) -> str:
        """Call a client's function without waiting; its settlement comes as an event."""
        made = self._wanted(wanted)
        if threading.get_ident() == self._thread:
            self._begin(made, lambda settlement: self._tell(made, settlement))
        else:
            self._loop.call_soon_threadsafe(
                self._begin, made, lambda settlement: self._tell(made, settlement)
            )
        return made.call_id

    def _wanted(self, wanted: dict[str, Any]) -> Wanted:
        given = wanted.pop("arguments")
        if not isinstance(wanted["session"], MailboxAddress | None):
            raise UsageError("session: the address of one that is attached is wanted")
        arguments = self._arguments({} if given is None else given)
        return Wanted(call_id=f"call-{next(self._numbers)}", arguments=arguments, **wanted)

    def _arguments(self, given: object) -> FrozenDict | RpcError | None:
        if not self._open:
            return None  # Nobody will look at them, and what could check them is not loaded.
        from genagentd.agent.session import sendable

        return sendable(given)

    async def _elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _called(self, wanted: Wanted) -> Any:
        ended: asyncio.Future[Settlement | FunctionFailed] = self._loop.create_future()

        def settled(settlement: Settlement | FunctionFailed) -> None:
            if not ended.done():
                ended.set_result(settlement)

        session = self._begin(wanted, settled)
        try:
            outcome = await ended
        finally:
            if session is not None:
                session.give_up(wanted.call_id)
        if isinstance(outcome, FunctionFailed):
            raise outcome
        from genagentd.agent.session import value_of

        return value_of(outcome)

    def _begin(
        self, wanted: Wanted, settled: Callable[[Settlement | FunctionFailed], None]
    ) -> Session | None:
        session = self._choose(wanted)
        if session is None:
            text = f"no attached client serves the catalog {wanted.catalog}"
            settled(FunctionFailed(NO_CLIENT, text))
        else:
            session.call(wanted, settled)
        return session

    def _choose(self, wanted: Wanted) -> Session | None:
        """Return the session that was meant, else the first that serves the catalog."""
        if wanted.arguments is None:
            return None
        if wanted.session is not None:
            return self._open.get(wanted.session.text)
        for session in self._open.values():
            if wanted.catalog in session.attached.catalog_ids:
                return session
        return None

    def _tell(self, wanted: Wanted, settlement: Settlement | FunctionFailed) -> None:
        told: dict[str, Plain] = {"function_call_id": wanted.call_id, "function": wanted.function}
        if isinstance(settlement, FunctionFailed):
            told["error"] = FrozenDict(code=settlement.code, message=settlement.text)
        else:
            from genagentd.agent.session import told_of

            told.update(told_of(settlement))
        self._post(inputs.NotificationReceived(FrozenDict(told)))


def _too_many(catalog_ids: tuple[str, ...]) -> bool:
    return len(catalog_ids) > MAX_CATALOGS or sum(map(len, catalog_ids)) > MAX_CATALOG_CHARACTERS


def _session_of(sender: str, ref: str | None) -> MailboxAddress | None:
    """Return the box *ref* of the connection *sender*, or None if that is no session."""
    if not ref or ref == "0":
        return None
    try:
        return MailboxAddress.parse(f"{sender}.{ref}")
    except MalformedIdentity:
        return None
