"""One function: what it takes, who may call it, and the code that is it, if there is any.

A function without a body can be called all the same where a person or a program
outside gives the answer; it only cannot be run from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from genagent_protocol.rpc.json_values import Arguments, Copied, Json, copied
from genagent_protocol.rpc.schemas import ArgumentSchema, SchemaFault, compiled

AllowedCallers = Literal["rendererOnly", "agentOnly", "rendererOrAgent"]
ReturnType = Literal[
    "string", "number", "boolean", "array", "object", "validationResult", "any", "void"
]
Caller = Literal["renderer", "agent"]

_MAX_SCHEMA_BYTES: Final = 1_048_576


class Scope(Protocol):
    """Where a body runs: how it can give values to dynamic values of its own."""

    def resolve(self, value: Json) -> Json:
        """Return the value of a literal, a binding or a call. It may raise."""

    def work(self, steps: int) -> None:
        """Count what the body itself does, if that may be much. It may raise."""


#: The code of a function. It gets its resolved arguments, which are its own to
#: change, and the scope of the call. What it returns is the value; an `RpcError`
#: it returns is the error of the answer; whatever it raises is a failure.
Body: TypeAlias = Callable[[Arguments, Scope], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of a catalog.

    `return_type` is a declaration: nobody checks the result against it.
    """

    name: str
    arguments: ArgumentSchema
    return_type: ReturnType = "any"
    allowed_callers: AllowedCallers = "rendererOnly"
    requires_user_activation: bool = False
    body: Body | None = None

    @classmethod
    def made(
        cls,
        name: str,
        body: Body | None = None,
        *,
        arguments: dict[str, Json] | None = None,
        return_type: ReturnType = "any",
        allowed_callers: AllowedCallers = "rendererOnly",
        requires_user_activation: bool = False,
    ) -> Function:
        """Return a function that is defined in code; without *arguments* any are taken.

        Raises:
            ValueError: the name is no identifier, or *arguments* is no usable schema.
        """
        if not name.isidentifier():
            raise ValueError(f"a function's name is an identifier, not {name!r}")
        return cls(
            name=name,
            arguments=_schema({} if arguments is None else arguments),
            return_type=return_type,
            allowed_callers=allowed_callers,
            requires_user_activation=requires_user_activation,
            body=body,
        )

    def refusal(self, caller: Caller, *, user_activated: bool) -> str | None:
        """Say why *caller* may not call this now, or None. The caller is judged first."""
        if self.allowed_callers not in (f"{caller}Only", "rendererOrAgent"):
            return (
                f"Function '{self.name}' cannot be called by {caller} "
                f"(allowedCallers is {self.allowed_callers})."
            )
        return self.activation_refusal(user_activated=user_activated)

    def activation_refusal(self, *, user_activated: bool) -> str | None:
        """Say that this needs a user's gesture and there is none, or None."""
        if self.requires_user_activation and not user_activated:
            return f"Function '{self.name}' requires user activation context to execute."
        return None


def _schema(schema: dict[str, Json]) -> ArgumentSchema:
    match copied(schema, max_bytes=_MAX_SCHEMA_BYTES):
        case Copied(value=dict() as own):
            made = compiled(own)
        case unusable:
            made = SchemaFault(f"the schema of arguments is no JSON object: {unusable}")
    match made:
        case ArgumentSchema():
            return made
        case SchemaFault(problem=problem):
            raise ValueError(problem)
