"""What callers say besides content: whom, where to, until when; checked before anything is sent.

Whatever is wrong with an argument is a `UsageError` that names it. Names, prompts and
payloads are checked in `genagentd.sendable`. Identities are records that anybody can
make, so their fields are checked as well: what is none would be lost on the way.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from genagent_protocol.errors import UsageError
from genagent_protocol.plain import NotPlain, freeze, printable
from genagent_protocol.refs import (
    Address,
    AgentHandle,
    Incarnation,
    MailboxAddress,
    MalformedIdentity,
    MonitorRef,
    RequestRef,
)

#: An identity that has one spelling.
Identity = TypeVar("Identity", RequestRef, Incarnation, MailboxAddress)

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
        return _spelled(value, RequestRef, "ref")
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
    _spelled(value.incarnation, Incarnation, "handle: incarnation")
    # A handle in a `Down` may say no more than which incarnation is meant: its pid is 0.
    _whole(value.pid, "handle: pid")
    _whole(value.started_ticks, "handle: started_ticks")
    if not isinstance(value.place, str):
        raise UsageError(f"handle: place: a text is wanted, not {type(value.place).__name__}")
    try:
        freeze(value.name)
    except NotPlain as error:
        raise UsageError(f"handle: name: {error}") from None
    return value


def captured(value: object, place: str, here: str = "this client is connected to") -> AgentHandle:
    """Return *value*, a handle of an agent of this *place*.

    *here* is what the message says of that place.

    Raises:
        UsageError: it is no handle, or a handle of another host or runtime directory.
    """
    found = handle(value)
    if found.place != place:
        raise UsageError(
            f"the handle is not local: its agent lives at {printable(found.place)}, "
            f"and {here} {place}"
        )
    return found


def monitor_ref(value: object) -> MonitorRef:
    """Return *value*, what `monitor` returned.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, MonitorRef):
        raise UsageError(f"monitor: what monitor() returns is wanted, not {type(value).__name__}")
    _whole(value.number, "monitor: number")
    return value


def recipient(value: object, what: str, place: str) -> Address:
    """Return the address that *value* stands for.

    Raises:
        UsageError: it is neither a mailbox nor an agent of this *place*.
    """
    if isinstance(value, AgentHandle):
        return captured(value, place).incarnation
    address: Any = value if isinstance(value, MailboxAddress) else getattr(value, "address", None)
    if isinstance(address, MailboxAddress):
        return _spelled(address, MailboxAddress, what)
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


def _spelled(value: object, kind: type[Identity], what: str) -> Identity:
    """Return *value* if it is what its own spelling means."""
    try:
        if isinstance(value, kind) and _same(kind.parse(value.text), value):
            return value
    except (MalformedIdentity, AttributeError, TypeError, ValueError):
        pass  # It may hold anything, also what has no text.
    # Not quoted: it may be of any size, and its text may be what cannot be made.
    raise UsageError(f"{what}: this is no {kind.__name__} that can have been given to you")


def _same(found: object, given: object) -> bool:
    """Return whether both are equal, and no True is taken for a 1."""
    return repr(found) == repr(given)


def _whole(value: object, what: str) -> None:
    if type(value) is not int or not 0 <= value < 2**63:
        raise UsageError(f"{what}: a whole number from 0 to {2**63 - 1} is wanted")
