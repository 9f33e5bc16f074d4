"""What callers say besides content: whom, where to, until when; checked before anything is sent.

Whatever is wrong with an argument is a `UsageError` that names it. Names, prompts and
payloads are checked in `genagentd.sendable`.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from genagent_protocol.errors import UsageError
from genagent_protocol.refs import (
    Address,
    AgentHandle,
    MailboxAddress,
    MalformedIdentity,
    MonitorRef,
    RequestRef,
)

#: What a queued request does when its agent halts.
OnHalt: TypeAlias = Literal["queue", "fail"]
#: What longer time limits are cut to: 285 thousand years, which clocks can still add up.
MAX_TIMEOUT_MS = 2**53


class Addressed(Protocol):
    """A mailbox of a client."""

    @property
    def address(self) -> MailboxAddress:
        """Where its messages go."""


#: Where messages may be sent: a mailbox, its address, or an agent.
Recipient: TypeAlias = Addressed | MailboxAddress | AgentHandle


class Own:
    """The calling client's own mailbox: the default recipient."""

    def __repr__(self) -> str:
        return "OWN"


OWN = Own()


def request_ref(value: object) -> RequestRef:
    """Return *value*, a ref or its text.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(value, RequestRef):
        return value
    if not isinstance(value, str):
        raise UsageError(f"ref: a request ref is wanted, not {type(value).__name__}")
    try:
        return RequestRef.parse(value)
    except MalformedIdentity as error:
        raise UsageError(f"ref: {error}") from None


def on_halt(value: object) -> OnHalt:
    """Return *value*, `queue` or `fail`.

    Raises:
        UsageError: it is neither.
    """
    if value == "queue":
        return "queue"
    if value == "fail":
        return "fail"
    raise UsageError(f"on_halt: 'queue' or 'fail' is wanted, not {value!r}")


def handle(value: object) -> AgentHandle:
    """Return *value*, a handle, of whatever place.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, AgentHandle):
        raise UsageError(
            f"a captured handle is wanted, not {type(value).__name__}: whereis(name) returns one"
        )
    return value


def captured(value: object, place: str) -> AgentHandle:
    """Return *value*, a handle of an agent of this *place*.

    Raises:
        UsageError: it is no handle, or a handle of another host or runtime directory.
    """
    found = handle(value)
    if found.place != place:
        raise UsageError(
            f"the handle is not local: its agent lives at {found.place}, "
            f"and this client is connected to {place}"
        )
    return found


def monitor_ref(value: object) -> MonitorRef:
    """Return *value*, what `monitor` returned.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, MonitorRef):
        raise UsageError(f"monitor: what monitor() returns is wanted, not {type(value).__name__}")
    return value


def recipient(value: object, what: str, place: str) -> Address:
    """Return the address that *value* stands for.

    Raises:
        UsageError: it is neither a mailbox nor an agent of this *place*.
    """
    if isinstance(value, AgentHandle):
        return captured(value, place).incarnation
    if isinstance(value, MailboxAddress):
        return value
    address: Any = getattr(value, "address", None)
    if isinstance(address, MailboxAddress):
        return address
    raise UsageError(
        f"{what}: a mailbox, its address or an agent handle is wanted, not {type(value).__name__}"
    )


def stream_target(value: object, place: str) -> Address | None:
    """Return the address events go to, or None for nowhere; raises as `recipient`."""
    return None if value is None else recipient(value, "stream_to", place)


def timeout(value: object) -> int | None:
    """Return *value*: milliseconds that are not negative, or None for no limit.

    Raises:
        UsageError: it is something else.
    """
    return None if value is None else milliseconds(value, "timeout_ms", ", or None,")


def milliseconds(value: object, what: str, more: str = "") -> int:
    """Return *value* if it is that: a whole number that is not negative.

    *more* is what else the message says could have been given.

    Raises:
        UsageError: it is something else.
    """
    if type(value) is not int or value < 0:
        raise UsageError(
            f"{what}: milliseconds that are not negative{more} are wanted, not {value!r}"
        )
    return min(value, MAX_TIMEOUT_MS)
