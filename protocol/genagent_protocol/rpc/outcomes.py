"""How a call can end: with a value, or with an error that has a code. Nothing else.

An error is a value here. It is raised nowhere in this package; who wants an
exception makes one of it at the surface where a person reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from genagent_protocol.rpc.json_values import Json

#: An unknown surface, catalog or function, a caller or activation violation, bad
#: arguments, a malformed call.
INVALID_FUNCTION_CALL: Final = "INVALID_FUNCTION_CALL"
#: The function failed, or the expression of one of its arguments did.
EXECUTION_ERROR: Final = "EXECUTION_ERROR"
#: The host's timer for the call fired first.
TIMEOUT: Final = "TIMEOUT"
#: The host gave the call up, or the handler was disposed while it was pending.
CANCELLED: Final = "CANCELLED"
#: The handler had been disposed before the call was made.
DISPOSED: Final = "DISPOSED"
#: The id of the call belongs to one that is still pending.
DUPLICATE: Final = "DUPLICATE"
#: The other side reported an error without a code, or an answer that cannot be read.
UNKNOWN_ERROR: Final = "UNKNOWN_ERROR"
#: An agent offers no function of that name.
UNKNOWN_FUNCTION: Final = "UNKNOWN_FUNCTION"

DISPOSED_TEXT: Final = "The RPC handler has been disposed."
STANDING_TEXT: Final = "An error occurred during function execution."


@dataclass(frozen=True, slots=True)
class RpcError:
    """What went wrong with one call: branch on `code`, show `message`.

    A code that is none of this module's is the other side's own.
    """

    kind: ClassVar[Literal["rpc"]] = "rpc"

    code: str
    message: str
    function_call_id: str | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The other side answered the call with a value, which is the caller's own copy."""

    call_id: str
    value: Json


@dataclass(frozen=True, slots=True)
class Rejected:
    """The call ended without a value; `error` says why."""

    call_id: str
    error: RpcError


Settlement: TypeAlias = Resolved | Rejected
