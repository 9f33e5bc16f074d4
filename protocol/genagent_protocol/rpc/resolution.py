"""How a dynamic value gets its value: literals stay, bindings are read, calls are run.

Tried in this order: a binding (`@path`), a call (`@call`), a list, an object, a
literal. What a binding yields is data: it is copied and never looked at again,
even if it has the shape of a binding or a call. Keys with one `@` belong to the
protocol; a doubled one stands for the key with one. Evaluation as a whole is
bounded in depth, in work and in bytes, because a data model can hold templates
that lead back to themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from genagent_protocol.rpc.allowance import Allowance
from genagent_protocol.rpc.bodies import returned
from genagent_protocol.rpc.context import DataContext
from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.functions import Caller, Function
from genagent_protocol.rpc.json_values import Arguments, Json
from genagent_protocol.rpc.limits import CALL_STEPS, MAX_ARGUMENTS, MAX_CALL_DEPTH, RpcLimits
from genagent_protocol.rpc.outcomes import RpcError

INDEX = "@index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Gives values to dynamic values in one context, for one caller, within one allowance."""

    context: DataContext
    allowance: Allowance
    caller: Caller = "renderer"
    user_activated: bool = False
    depth: int = 0

    def resolve(self, value: Json) -> Json:
        """Return the value of *value*, which shares nothing with the data model.

        Raises:
            ExpressionFault: it has none; the text says why.
            BaseException: whatever the body of a called function raises.
        """
        if isinstance(value, dict):
            return self._object_value(value)
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        return self.allowance.copy(value, "The value")

    def resolve_arguments(self, args: Arguments) -> Arguments:
        """Return the arguments with every value resolved, not yet held against a schema.

        Raises: as `resolve` does.
        """
        return {name: self.resolve(value) for name, value in args.items()}

    def work(self, steps: int) -> None:
        """Count the work of a body against the allowance.

        Raises:
            ExpressionFault: that was more than one call may take.
        """
        self.allowance.work(steps)

    def _object_value(self, value: dict[str, Json]) -> Json:
        path, name = value.get("@path"), value.get("@call")
        if isinstance(path, str) and "componentId" not in value:
            return self.allowance.copy(self.context.value(path), f"The data at '{path}'")
        if isinstance(name, str):
            return self._called(name, value)
        return {_plain_key(key): self.resolve(item) for key, item in value.items()}

    def _called(self, name: str, call: dict[str, Json]) -> Json:
        args = call.get("args", {})
        if not isinstance(args, dict):
            raise ExpressionFault(f"The arguments of function '{name}' are not an object.")
        if len(args) > MAX_ARGUMENTS:
            raise ExpressionFault(f"Function call '{name}' has over {MAX_ARGUMENTS} arguments.")
        inner = self._inside_a_call()
        if name.startswith("@"):
            return inner._system_result(name, call, args)
        function = self._function(name, call, args)
        resolved = inner.resolve_arguments(args)
        function.arguments.settle(resolved, self.allowance)
        return inner._result(function, resolved)

    def _inside_a_call(self) -> Resolver:
        self.allowance.work(CALL_STEPS)
        if self.depth >= MAX_CALL_DEPTH:
            raise ExpressionFault(f"Function calls nest deeper than {MAX_CALL_DEPTH} levels.")
        return replace(self, depth=self.depth + 1)

    def _function(self, name: str, call: dict[str, Json], args: Arguments) -> Function:
        """Return the function that a nested call names, if it may be called as it is written."""
        catalog_id = call.get("catalogId")
        if catalog_id is not None and not isinstance(catalog_id, str):
            raise ExpressionFault(f"The catalogId of function call '{name}' is not text.")
        catalog = self.context.surface.catalog_for(name, catalog_id)
        function = catalog.function(name)
        if function is None:
            raise ExpressionFault(
                f"Unrecognized function '{name}': not in catalog '{catalog.catalog_id}'."
            )
        problem = function.arguments.written_problem(args, self.allowance)
        if problem is not None:
            raise ExpressionFault(f"Invalid arguments for function '{name}': {problem}.")
        refusal = self._refusal(function)
        if refusal is not None:
            raise ExpressionFault(refusal)
        return function

    def _refusal(self, function: Function) -> str | None:
        # What an agent writes into its arguments is evaluated by the renderer, so
        # a function that only the renderer may call is allowed there, and one
        # that only the agent may call is as well. A gesture nobody can claim.
        if self.caller == "agent":
            return function.activation_refusal(user_activated=self.user_activated)
        return function.refusal("renderer", user_activated=self.user_activated)

    def _result(self, function: Function, args: Arguments) -> Json:
        result = returned(function, args, self, max_bytes=self.allowance.bytes_left)
        if isinstance(result, RpcError):
            raise ExpressionFault(result.message)
        self.allowance.bytes_left -= result.size_bytes
        return result.value

    def _system_result(self, name: str, call: dict[str, Json], args: Arguments) -> Json:
        """Return what a function of the protocol itself gives; `@index` is the only one."""
        if name != INDEX:
            raise ExpressionFault(f"There is no system function '{name}'.")
        if "catalogId" in call:
            raise ExpressionFault(f"'{INDEX}' belongs to no catalog and must not name one.")
        if not args.keys() <= {"offset"}:
            raise ExpressionFault(f"'{INDEX}' takes nothing but an offset.")
        if self.context.index is None:
            raise ExpressionFault(f"'{INDEX}' has a value only inside a list.")
        offset = self.resolve(args.get("offset", 0))
        if isinstance(offset, bool) or not isinstance(offset, int | float):
            raise ExpressionFault(f"The offset of '{INDEX}' is not a number.")
        return self.context.index + offset


def resolver_for(
    context: DataContext, *, user_activated: bool = False, limits: RpcLimits | None = None
) -> Resolver:
    """Return what evaluates the dynamic values of a surface, as its renderer does."""
    allowance = Allowance(limits or RpcLimits())
    return Resolver(context=context, allowance=allowance, user_activated=user_activated)


def _plain_key(key: str) -> str:
    if not key.startswith("@"):
        return key
    if not key.startswith("@@"):
        raise ExpressionFault(
            f"The key '{key}' is reserved for the protocol; data writes it as '@{key}'."
        )
    return key[1:]
