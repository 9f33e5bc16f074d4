"""The renderer's end of the RPC as a value: it runs what an agent calls, and calls the agent.

A call of the agent is judged in one fixed order, and the first check that fails
is the answer: disposed, malformed, surface, catalog, version, function, caller,
activation, expressions, arguments, execution. Every call gets exactly one
answer, and answering changes nothing in the handler.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from genagent_protocol.rpc.allowance import Allowance
from genagent_protocol.rpc.bodies import attempted
from genagent_protocol.rpc.catalog import Catalog, catalog_named
from genagent_protocol.rpc.context import DataContext, Surface
from genagent_protocol.rpc.execution import Prepared, refused
from genagent_protocol.rpc.functions import Function
from genagent_protocol.rpc.incoming import (
    IncomingCall,
    argument_refusal,
    incoming_arguments,
    incoming_call,
)
from genagent_protocol.rpc.json_values import Arguments, frozen_object
from genagent_protocol.rpc.limits import RpcLimits
from genagent_protocol.rpc.messages import Message
from genagent_protocol.rpc.outcomes import (
    DISPOSED,
    DISPOSED_TEXT,
    INVALID_FUNCTION_CALL,
    RpcError,
)
from genagent_protocol.rpc.outgoing import (
    DEFAULT_TIMEOUT_MS,
    OutgoingCalls,
    Settled,
    checked_default_timeout,
)
from genagent_protocol.rpc.reading import Loose, read_loosely
from genagent_protocol.rpc.resolution import Resolver

_ANSWER: Final = "rendererFunctionResponse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc(OutgoingCalls):
    """A renderer's handler. Make one with `Rpc.new`; keep the one each operation returns."""

    catalogs: tuple[Catalog, ...]

    @classmethod
    def new(
        cls,
        catalogs: Iterable[Catalog],
        *,
        default_timeout_ms: float = DEFAULT_TIMEOUT_MS,
        limits: RpcLimits | None = None,
    ) -> Self:
        """Return a handler over *catalogs*, in which functions are looked up.

        The default timeout is for calls to the agent that name none of their
        own; zero or less means no timeout.

        Raises:
            ValueError: there is no catalog, two have one id, or the timeout is
                not a number.
        """
        known = tuple(catalogs)
        if not known:
            raise ValueError("a handler needs at least one catalog")
        if len({catalog.catalog_id for catalog in known}) != len(known):
            raise ValueError("two catalogs have one id")
        return cls(
            catalogs=known,
            default_timeout_ms=checked_default_timeout(default_timeout_ms),
            limits=RpcLimits() if limits is None else limits,
        )

    def call_agent_function(
        self,
        surface_id: str,
        call: object,
        *,
        function_call_id: str | None = None,
        timeout_ms: float | None = None,
        version: str | None = None,
    ) -> tuple[Self, Message] | RpcError:
        """Register a call to an agent function; return the next handler and the message to send.

        *call* is a function call object: `@call` or `call`, and maybe
        `catalogId` and `args`. Without an id one is counted up. Without a
        timeout the handler's default counts; zero or less means none.

        A refusal is DISPOSED, INVALID_FUNCTION_CALL or DUPLICATE, and then
        nothing was registered. This does not send anything and starts no timer.
        """
        return self._called(
            "callAgentFunction", call, surface_id, function_call_id, timeout_ms, version
        )

    def handle_agent_function_response(self, message: object) -> tuple[Self, Settled]:
        """Settle the pending call that an agent's answer names.

        An answer to a call that is not pending is ignored.
        """
        return self._answered("agentFunctionResponse", message)

    def call_renderer_function(
        self,
        message: object,
        *,
        context: DataContext | None = None,
        user_activated: bool = False,
    ) -> Message:
        """Run the function that an agent's message calls, and return the answer to send.

        *context* belongs to the surface that the message names; a message that
        names none runs in a context of its own. Every failure is an answer.

        Raises:
            KeyboardInterrupt: the function raised it.
        """
        prepared = self.prepare_renderer_function(
            message, context=context, user_activated=user_activated
        )
        return prepared.run(self.limits) if isinstance(prepared, Prepared) else prepared

    def prepare_renderer_function(
        self,
        message: object,
        *,
        context: DataContext | None = None,
        user_activated: bool = False,
    ) -> Prepared | Message:
        """Check the call and resolve its arguments; return it ready to run, or the error answer.

        The function is not run, and need not have a body. A call that a person
        answers is prepared when it arrives and finished when they have spoken.

        Raises:
            KeyboardInterrupt: a function called inside the arguments raised it.
        """
        loose = read_loosely(message, "callRendererFunction")
        # Functions called inside the arguments run in here.
        outcome = attempted(lambda: self._judged(loose, context, user_activated))
        if isinstance(outcome, RpcError):
            return refused(_ANSWER, loose.version, loose.function_call_id, outcome)
        return outcome

    def finish_renderer_function(self, prepared: Prepared, outcome: object) -> Message:
        """Return the answer to a prepared call whose *outcome* is known now.

        An `RpcError` is told with its code, an exception as EXECUTION_ERROR,
        anything else is the value. A disposed handler answers DISPOSED. This does
        not remember that it was called: finish each call once.
        """
        if self.disposed:
            outcome = RpcError(DISPOSED, DISPOSED_TEXT)
        return prepared.finished(outcome, self.limits)

    def _judged(
        self, message: Loose, context: DataContext | None, user_activated: bool
    ) -> Prepared | RpcError:
        if self.disposed:
            return RpcError(DISPOSED, DISPOSED_TEXT)
        call = incoming_call(message)
        if isinstance(call, RpcError):
            return call
        place = self._place(call, message.version, context)
        if isinstance(place, RpcError):
            return place
        function = self._function(call, message.version)
        if isinstance(function, RpcError):
            return function
        refusal = function.refusal("agent", user_activated=user_activated)
        if refusal is not None:
            return RpcError(INVALID_FUNCTION_CALL, refusal)
        resolver = Resolver(
            context=place,
            allowance=Allowance(self.limits),
            caller="agent",
            user_activated=user_activated,
        )
        args = self._arguments(call, function, resolver)
        if isinstance(args, RpcError):
            return args
        return Prepared(
            kind=_ANSWER,
            version=message.version,
            function_call_id=message.function_call_id,
            function=function,
            args=frozen_object(args),
            scope=resolver,
        )

    def _place(
        self, call: IncomingCall, version: str, context: DataContext | None
    ) -> DataContext | RpcError:
        """Return where the arguments are evaluated: the root of the named surface, or nowhere."""
        if call.surface_id is None:
            surface = Surface(
                surface_id=None,
                catalogs=self.catalogs,
                default_catalog_id=call.catalog_id,
                version=version,
            )
            return DataContext(surface=surface)
        if context is None or context.surface.surface_id != call.surface_id:
            return RpcError(INVALID_FUNCTION_CALL, f"Surface not found: {call.surface_id}")
        return context.at_root()

    def _function(self, call: IncomingCall, version: str) -> Function | RpcError:
        """Return the function the call names, in the catalog it names; there is no default."""
        if call.catalog_id is None:
            text = "No catalog available for function resolution."
            return RpcError(INVALID_FUNCTION_CALL, text)
        catalog = catalog_named(self.catalogs, call.catalog_id)
        if catalog is None:
            return RpcError(INVALID_FUNCTION_CALL, f"Catalog not found: {call.catalog_id}")
        if not catalog.serves(version):
            return RpcError(
                INVALID_FUNCTION_CALL,
                f"Catalog specification version ({catalog.protocol_version}) does not match "
                f"message protocol version ({version}).",
            )
        function = catalog.function(call.name)
        if function is None:
            return RpcError(INVALID_FUNCTION_CALL, f"Function not found: {call.name}")
        return function

    def _arguments(
        self, call: IncomingCall, function: Function, resolver: Resolver
    ) -> Arguments | RpcError:
        """Return the resolved arguments, or what is wrong with them.

        An expression that fails wins over arguments that do not fit.
        """
        written = incoming_arguments(call, self.limits)
        if isinstance(written, RpcError):
            return written
        resolved = resolver.resolve_arguments(written)
        refusal = argument_refusal(function, resolved, resolver.allowance)
        return resolved if refusal is None else refusal
