"""The agent's end of the RPC as a value: the mirror of the renderer's.

It calls renderer functions and waits for their answers in the same table, and
answers what the renderer calls of the functions it offers. An agent has no data
model: the arguments of a call to it are taken as they are, and nothing in them
is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from genagent_protocol.rpc.allowance import Allowance
from genagent_protocol.rpc.bodies import attempted
from genagent_protocol.rpc.catalog import Catalog
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
    UNKNOWN_FUNCTION,
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

_ANSWER: Final = "agentFunctionResponse"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRpc(OutgoingCalls):
    """An agent's handler. Make one with `AgentRpc.new`; keep the one each operation returns."""

    @classmethod
    def new(
        cls,
        *,
        default_timeout_ms: float = DEFAULT_TIMEOUT_MS,
        limits: RpcLimits | None = None,
    ) -> Self:
        """Return a handler with nothing pending.

        The default timeout is for calls that name none of their own; zero or
        less means no timeout, which is what waiting for a person wants.

        Raises:
            ValueError: the timeout is not a number.
        """
        return cls(
            default_timeout_ms=checked_default_timeout(default_timeout_ms),
            limits=RpcLimits() if limits is None else limits,
        )

    def call_renderer_function(
        self,
        call: object,
        surface_id: str | None = None,
        *,
        function_call_id: str | None = None,
        timeout_ms: float | None = None,
        version: str | None = None,
    ) -> tuple[Self, Message] | RpcError:
        """Register a call to a renderer function; return the next handler and the message to send.

        *call* is a function call object: `@call`, `catalogId`, and maybe `args`,
        which may hold bindings into the data of the surface. Without an id one
        is counted up. Without a timeout the handler's default counts; zero or
        less means none.

        A refusal is DISPOSED, INVALID_FUNCTION_CALL or DUPLICATE, and then
        nothing was registered. This does not send anything and starts no timer.
        """
        return self._called(
            "callRendererFunction", call, surface_id, function_call_id, timeout_ms, version
        )

    def handle_renderer_function_response(self, message: object) -> tuple[Self, Settled]:
        """Settle the pending call that a renderer's answer names.

        An answer to a call that is not pending is ignored.
        """
        return self._answered("rendererFunctionResponse", message)

    def handle_error(self, message: object) -> tuple[Self, Settled]:
        """Reject the pending call that a renderer's `error` names, if it names one.

        A renderer reports a call so when it could not read the message at all.
        An error about a surface settles nothing.
        """
        return self._reported(message)

    def answer_agent_function(self, message: object, registry: Catalog) -> Message:
        """Run the function of *registry* that a renderer's message calls, and return the answer.

        Every failure is an answer: UNKNOWN_FUNCTION for a name the registry has
        not, INVALID_FUNCTION_CALL for a call that cannot be, EXECUTION_ERROR for
        a function that fails, or the code of the `RpcError` it returned.

        Raises:
            KeyboardInterrupt: the function raised it.
        """
        prepared = self.prepare_agent_function(message, registry)
        return prepared.run(self.limits) if isinstance(prepared, Prepared) else prepared

    def prepare_agent_function(self, message: object, registry: Catalog) -> Prepared | Message:
        """Check the call; return it ready to run, or the error answer.

        For functions that are awaited: prepare, await, `finish_agent_function`.
        """
        loose = read_loosely(message, "callAgentFunction")
        outcome = attempted(lambda: self._judged(loose, registry))
        if isinstance(outcome, RpcError):
            return refused(_ANSWER, loose.version, loose.function_call_id, outcome)
        return outcome

    def finish_agent_function(self, prepared: Prepared, outcome: object) -> Message:
        """Return the answer to a prepared call whose *outcome* is known now.

        An `RpcError` is told with its code, an exception as EXECUTION_ERROR,
        anything else is the value. A disposed handler answers DISPOSED. This does
        not remember that it was called: finish each call once.
        """
        if self.disposed:
            outcome = RpcError(DISPOSED, DISPOSED_TEXT)
        return prepared.finished(outcome, self.limits)

    def _judged(self, message: Loose, registry: Catalog) -> Prepared | RpcError:
        if self.disposed:
            return RpcError(DISPOSED, DISPOSED_TEXT)
        call = incoming_call(message)
        if isinstance(call, RpcError):
            return call
        function = _offered(call, registry, message.version)
        if isinstance(function, RpcError):
            return function
        allowance = Allowance(self.limits)
        args = self._arguments(call, function, allowance)
        if isinstance(args, RpcError):
            return args
        surface = Surface(surface_id=call.surface_id, catalogs=(registry,))
        return Prepared(
            kind=_ANSWER,
            version=message.version,
            function_call_id=message.function_call_id,
            function=function,
            args=frozen_object(args),
            scope=Resolver(context=DataContext(surface=surface), allowance=allowance),
        )

    def _arguments(
        self, call: IncomingCall, function: Function, allowance: Allowance
    ) -> Arguments | RpcError:
        args = incoming_arguments(call, self.limits)
        if isinstance(args, RpcError):
            return args
        refusal = argument_refusal(function, args, allowance)
        return args if refusal is None else refusal


def _offered(call: IncomingCall, registry: Catalog, version: str) -> Function | RpcError:
    """Return the function that the agent offers under this name to a renderer."""
    if call.catalog_id is not None and call.catalog_id != registry.catalog_id:
        return RpcError(INVALID_FUNCTION_CALL, f"Catalog not found: {call.catalog_id}")
    if not registry.serves(version):
        return RpcError(
            INVALID_FUNCTION_CALL,
            f"Catalog specification version ({registry.protocol_version}) does not match "
            f"message protocol version ({version}).",
        )
    function = registry.function(call.name)
    if function is None:
        return RpcError(UNKNOWN_FUNCTION, f"The agent offers no function '{call.name}'.")
    # Whether there was a gesture is the renderer's knowledge and not on the wire.
    refusal = function.refusal("renderer", user_activated=False)
    return function if refusal is None else RpcError(INVALID_FUNCTION_CALL, refusal)
