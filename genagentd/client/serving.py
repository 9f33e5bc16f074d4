"""A client's half of one session, without a socket or a clock: what is heard, what is owed.

It holds the RPC value, the functions the client serves, and what became of the calls
it made. Whatever the agent says is answered once or dropped; nothing of it raises.
A shell around it sends what it gives, runs what is ready, and keeps the time.
"""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from genagent_protocol.envelopes import Down, UiMessage, UiUndeliverable
from genagent_protocol.errors import FunctionFailed, UsageError
from genagent_protocol.plain import FrozenDict, NotPlain, Plain, freeze
from genagent_protocol.reasons import NOCONNECTION, ExitReason
from genagent_protocol.refs import AgentHandle
from genagent_protocol.requests import MAX_CATALOG_CHARACTERS, MAX_CATALOGS
from genagent_protocol.rpc import (
    CANCELLED,
    EXECUTION_ERROR,
    UNKNOWN_ERROR,
    Arguments,
    Catalog,
    CatalogFault,
    DataContext,
    Function,
    Malformed,
    Prepared,
    Rejected,
    Rpc,
    RpcError,
    Settlement,
    Surface,
    basic_catalog,
    load_catalog,
    malformed_report,
    read_message,
)
from genagent_protocol.rpc import Message as UiJson
from genagent_protocol.rpc.execution import in_place_of, refused
from genagent_protocol.rpc.json_values import is_sendable, thawed_object
from genagent_protocol.rpc.reading import read_loosely
from genagentd.client.boxes import Message

#: A catalog as a value, or as the document that describes it.
AnyCatalog: TypeAlias = Catalog | Mapping[str, object]
#: What a client serves by name: it gets the arguments and returns the value, or
#: something to await for it.
Served: TypeAlias = Callable[[Arguments], object]

#: The surface that a client's calls come from, unless they say.
MAIN_SURFACE = "main"
#: Why a session is over whose client was cut off, or whose daemon is gone.
CONNECTION_LOST = "the connection to the daemon is lost (noconnection)"


class Surfaces(UserDict[str, Surface]):
    """The surfaces of one session, each under its own id; nothing else can be put in."""

    def __setitem__(self, surface_id: str, surface: object) -> None:
        """Keep *surface*.

        Raises:
            UsageError: it is none, or has another id.
        """
        if not isinstance(surface, Surface):
            problem = f"a Surface is wanted, not {type(surface).__name__}"
            raise UsageError(f"surfaces: {surface_id!r}: {problem}")
        if surface.surface_id != surface_id:
            problem = f"the surface has another id, {surface.surface_id!r}"
            raise UsageError(f"surfaces: {surface_id!r}: {problem}")
        super().__setitem__(surface_id, surface)


class Serving:
    """One session, as its client keeps it."""

    def __init__(
        self,
        agent: AgentHandle,
        catalogs: Iterable[AnyCatalog],
        functions: Mapping[str, Served],
    ) -> None:
        """Take the catalogs and what stands behind them.

        Raises:
            UsageError: a catalog is none or has no id that can be sent, two have one id, there
                are too many, or a function is none or in none.
        """
        self.agent = agent
        self.rpc = _rpc([_catalog(catalog) for catalog in _listed(catalogs)])
        _check_ids(self.catalog_ids)
        self.functions = _served(functions)
        known = [function for catalog in self.rpc.catalogs for function in catalog.functions]
        #: The names of functions that have no code in some catalog.
        self._without_code = {function.name for function in known if function.body is None}
        self.rpc = replace(self.rpc, catalogs=self._with_served(self.rpc.catalogs))
        #: The surfaces that bindings in arguments may be about, by their ids.
        self.surfaces = Surfaces()
        #: Whether a person is acting right now; some functions need that.
        self.user_activated = False
        #: What the agent offers.
        self.offered: tuple[str, ...] = ()
        #: Why the session is over, once it is.
        self.over: str | None = None
        #: How the agent ended, if that is why; `noconnection` if it may live on.
        self.ended: ExitReason | None = None
        #: What came too late, or was no message of a session.
        self.dropped = 0
        self._settled: dict[str, Settlement] = {}
        unknown = sorted(self.functions.keys() - {function.name for function in known})
        if unknown:
            raise UsageError(f"functions: no catalog has a function {unknown[0]!r}")

    def _with_served(self, catalogs: tuple[Catalog, ...]) -> tuple[Catalog, ...]:
        """Return *catalogs* with what is served as the code of their functions.

        So it is found wherever a function is, also inside of arguments. Where one catalog
        has code for a name and another has none, it is that other one's.
        """
        return tuple(
            replace(catalog, functions=tuple(map(self._served_by, catalog.functions)))
            for catalog in catalogs
        )

    def _served_by(self, function: Function) -> Function:
        served = self.functions.get(function.name)
        if served is None or (function.body is not None and function.name in self._without_code):
            return function
        return replace(function, body=lambda arguments, _scope: served(arguments))

    @property
    def catalog_ids(self) -> tuple[str, ...]:
        """The catalogs that the agent may call functions of."""
        return tuple(catalog.catalog_id for catalog in self.rpc.catalogs)

    # Calls of this client

    def call(
        self,
        function: str,
        arguments: Mapping[str, object] | None,
        surface: str,
        timeout_ms: float | None,
    ) -> tuple[str, UiMessage]:
        """Register a call to a function of the agent; return its id and what to send.

        Raises:
            FunctionFailed: it cannot be made; nothing was registered.
        """
        call = {"@call": function, "args": {} if arguments is None else arguments}
        made = self.rpc.call_agent_function(surface, call, timeout_ms=timeout_ms)
        if isinstance(made, RpcError):
            raise FunctionFailed(made.code, made.message)
        self.rpc, message = made
        body = message["callAgentFunction"]
        assert isinstance(body, dict)
        return str(body["functionCallId"]), wrapped(message)

    def settlement(self, call_id: str) -> Settlement | None:
        """Return how that call ended, once; None while it waits."""
        return self._settled.pop(call_id, None)

    def timed_out(self, call_id: str) -> None:
        """The time of that call is over."""
        self._take(self.rpc.timeout(call_id))

    def give_up(self, call_id: str) -> None:
        """Nobody waits for that call any more."""
        self._take(self.rpc.cancel(call_id, "its caller gave up"))
        self._settled.pop(call_id, None)

    def lost(self) -> None:
        """The connection is over, and with it the session; of the agent nothing is known."""
        if self.over is None:
            self.ended = NOCONNECTION
            self.end(CONNECTION_LOST)

    def end(self, reason: str) -> None:
        """The session is over; every call that waits is cancelled."""
        if self.over is None:
            self.over = reason
            self._take(self.rpc.dispose(reason))

    def _take(self, step: tuple[Rpc, tuple[Settlement, ...]]) -> bool:
        self.rpc, settlements = step
        for settlement in settlements:
            self._settled[settlement.call_id] = settlement
        return bool(settlements)

    # What arrives

    def hear(self, said: Message) -> Prepared | UiMessage | None:
        """Take one message in: return the call that is to be run, what to send, or nothing."""
        match said:
            case Down(reason=reason) if reason == NOCONNECTION:
                self.lost()
            case Down(reason=reason):
                self.ended = reason
                self.end(f"the agent is gone ({reason})")
            case UiUndeliverable(reason=reason):
                self.end(f"a message did not reach the agent ({reason})")
            case UiMessage(message=message):
                return self._hear(message)
            case _:
                self.dropped += 1
        return None

    def _hear(self, message: FrozenDict) -> Prepared | UiMessage | None:
        envelope = read_message(message, "agent")
        match envelope:
            case Malformed():
                return self._malformed(envelope)
            case _ if envelope.kind == "callRendererFunction":
                return self._called(message)
            case _ if envelope.kind == "agentFunctionResponse":
                if not self._take(self.rpc.handle_agent_function_response(message)):
                    self.dropped += 1
            case _:
                self.dropped += 1
        return None

    def _malformed(self, malformed: Malformed) -> UiMessage | None:
        """Reject the call that an unreadable answer names, and report an unreadable call."""
        self.dropped += 1
        error = {"code": UNKNOWN_ERROR, "message": malformed.problem}
        for call_id in malformed.calls("agentFunctionResponse"):
            answer = {"agentFunctionResponse": {"functionCallId": call_id, "error": error}}
            self._take(self.rpc.handle_agent_function_response(answer))
        report = malformed_report(malformed)
        return None if report is None else wrapped(report)

    def _called(self, message: FrozenDict) -> Prepared | UiMessage:
        body = message["callRendererFunction"]
        surface = self.surfaces.get(str(body.get("surfaceId"))) if isinstance(body, dict) else None
        prepared = self.rpc.prepare_renderer_function(
            message,
            context=None if surface is None else self._context(surface),
            user_activated=self.user_activated,
        )
        return prepared if isinstance(prepared, Prepared) else wrapped(prepared)

    def _context(self, surface: Surface) -> DataContext:
        """Return where calls from that surface run; its catalogs may be those served here."""
        catalogs = tuple(
            self._with_served((catalog,))[0] if catalog.catalog_id in self.catalog_ids else catalog
            for catalog in surface.catalogs
        )
        return DataContext(surface=replace(surface, catalogs=catalogs))

    # What is run

    def begin(self, prepared: Prepared) -> object:
        """Run a call and return what its function gave, which may be something to await.

        Raises:
            BaseException: whatever the function raised.
        """
        if prepared.function.body is None:
            text = f"Function '{prepared.function.name}' has no implementation here."
            return RpcError(EXECUTION_ERROR, text)
        return prepared.function.body(thawed_object(prepared.args), prepared.scope)

    def check_not_awaited(self) -> None:
        """Refuse functions that nobody here can await.

        Raises:
            UsageError: one is an `async def`.
        """
        bodies = [(f.name, f.body) for catalog in self.rpc.catalogs for f in catalog.functions]
        for name, function in [*bodies, *self.functions.items()]:
            if inspect.iscoroutinefunction(function):
                raise UsageError(
                    f"functions: {name!r} is an async def, which only AsyncClient can await"
                )

    def interrupted(self, prepared: Prepared) -> UiMessage:
        """Return the answer to a call whose function a Ctrl-C ended: the agent need not wait."""
        return self.finish(prepared, FunctionFailed(CANCELLED, "it was interrupted"))

    def unheard(self, said: Message) -> UiMessage | None:
        """Return the answer that is owed if a Ctrl-C ended `hear`, which resolves arguments."""
        if not isinstance(said, UiMessage) or "callRendererFunction" not in said.message:
            return None
        call = read_loosely(said.message, "callRendererFunction")
        error = RpcError(CANCELLED, "it was interrupted")
        return wrapped(
            refused("rendererFunctionResponse", call.version, call.function_call_id, error)
        )

    def finish(self, prepared: Prepared, outcome: object) -> UiMessage:
        """Return the answer to a call whose outcome, a value or an exception, is known."""
        return wrapped(self.rpc.finish_renderer_function(prepared, outcome))


def value_of(settlement: Settlement) -> object:
    """Return the value a call ended with.

    Raises:
        FunctionFailed: it ended without one.
    """
    if isinstance(settlement, Rejected):
        raise FunctionFailed(settlement.error.code, settlement.error.message)
    return settlement.value


def wrapped(message: UiJson) -> UiMessage:
    """Return *message*, which the RPC value made, as it is sent."""
    frozen = freeze(message)
    assert isinstance(frozen, FrozenDict)
    return UiMessage(message=frozen)


def instead_of(unsent: UiMessage, problem: str) -> UiMessage | None:
    """Return the coded answer for one that cannot be sent; None if that was no answer."""
    answer = in_place_of(thawed_object(unsent.message), problem)
    return None if answer is None else wrapped(answer)


def surfaces_of(given: object) -> Surfaces:
    """Return what *given* maps ids to, in a mapping of its own.

    Raises:
        UsageError: it is no mapping, or something in it is no surface with that id.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"surfaces: a mapping from ids is wanted, not {type(given).__name__}")
    return Surfaces(given)


def _listed(catalogs: object) -> list[AnyCatalog]:
    # A document is a mapping, over whose keys one could loop, too.
    if isinstance(catalogs, Mapping | str | bytes) or not isinstance(catalogs, Iterable):
        raise UsageError(f"catalogs: a list of them is wanted, not {type(catalogs).__name__}")
    return list(catalogs)


def _served(functions: object) -> dict[str, Served]:
    if not isinstance(functions, Mapping):
        raise UsageError(
            f"functions: a mapping from names is wanted, not {type(functions).__name__}"
        )
    for name, function in functions.items():
        if not isinstance(name, str) or not callable(function):
            raise UsageError(f"functions: {name!r} is no name with a function")
    return dict(functions)


def _check_ids(catalog_ids: tuple[object, ...]) -> None:
    """Refuse what no agent would take, or no message hold: a catalog is made without a check."""
    for catalog_id in catalog_ids:
        if not isinstance(catalog_id, str):
            raise UsageError(f"catalogs: an id is text, not {type(catalog_id).__name__}")
        if not is_sendable(catalog_id):
            raise UsageError(f"catalogs: the id {catalog_id[:80]!a} has a lone surrogate")
    characters = sum(len(str(catalog_id)) for catalog_id in catalog_ids)
    if len(catalog_ids) > MAX_CATALOGS or characters > MAX_CATALOG_CHARACTERS:
        raise UsageError(
            f"catalogs: {len(catalog_ids)} with ids of {characters} characters (the basic one "
            f"counts); at most {MAX_CATALOGS} with {MAX_CATALOG_CHARACTERS} can be served"
        )


def _catalog(given: AnyCatalog) -> Catalog:
    if isinstance(given, Catalog):
        return given
    try:
        loaded = load_catalog(_document(given))
    except NotPlain as error:
        raise UsageError(f"catalogs: {error}") from None
    if isinstance(loaded, CatalogFault):
        raise UsageError(f"catalogs: {loaded.problem}")
    return loaded


def _document(given: object) -> dict[str, object]:
    frozen = freeze(given)
    if not isinstance(frozen, FrozenDict):
        raise UsageError(f"catalogs: a catalog is wanted, not {type(given).__name__}")
    return {key: _loosened(item) for key, item in frozen.items()}


def _loosened(value: Plain) -> object:
    """Return *value* with dicts and lists; whether the rest is JSON, who reads it says."""
    match value:
        case FrozenDict():
            return {key: _loosened(item) for key, item in value.items()}
        case tuple():
            return [_loosened(item) for item in value]
        case _:
            return value


def _rpc(catalogs: list[Catalog]) -> Rpc:
    basic = basic_catalog()
    if all(catalog.catalog_id != basic.catalog_id for catalog in catalogs):
        catalogs = [*catalogs, basic]
    try:
        return Rpc.new(catalogs)
    except ValueError as error:
        raise UsageError(f"catalogs: {error}") from None
