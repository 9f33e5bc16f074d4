"""Identities: what names one life of an agent, one request, one watch, one mailbox.

Nothing here behaves. An identity is used once for all time: a replacement under
the same name is another incarnation, and no ref, address or handle of the old one
ever means the new one. Random bits come from outside; this module draws none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from genagent_protocol.plain import Plain

#: Identity of one life of a daemon: 16 hexadecimal digits, minted when it starts.
BootId = NewType("BootId", str)

_BOOT = r"[0-9a-f]{16}"
_REF = re.compile(rf"({_BOOT})-([1-9][0-9]{{0,18}})-([0-9a-f]{{32}})")
_INCARNATION = re.compile(rf"({_BOOT})-([1-9][0-9]{{0,18}})")
_MAILBOX = re.compile(rf"({_BOOT})/([1-9][0-9]{{0,18}})(?:\.([1-9][0-9]{{0,8}}))?")


class MalformedIdentity(ValueError):
    """Text that is not the identity it was taken for."""


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One start-to-exit life of one agent: the daemon's boot and a number in it."""

    boot: BootId
    number: int

    @property
    def text(self) -> str:
        """The form used in routes, file names and logs: `<boot>-<number>`."""
        return f"{self.boot}-{self.number}"

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str) -> Incarnation:
        """Return the incarnation that *text* spells.

        Raises:
            MalformedIdentity: *text* is something else.
        """
        found = _INCARNATION.fullmatch(text)
        if found is None:
            raise MalformedIdentity(f"{text!r} is not an incarnation (<boot>-<number>)")
        return cls(BootId(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class RequestRef:
    """The identity of one request, minted by whoever sends it, never used twice.

    The same ref names the admission, the events, the completion, every retry,
    and any poll, cancel or interrupt of that request.
    """

    incarnation: Incarnation
    token: str

    @property
    def text(self) -> str:
        """The form people copy: `<boot>-<incarnation>-<32 hexadecimal digits>`."""
        return f"{self.incarnation.text}-{self.token}"

    def __str__(self) -> str:
        return self.text

    @classmethod
    def mint(cls, incarnation: Incarnation, random: bytes) -> RequestRef:
        """Return a new ref made of 16 *random* bytes that the caller drew for it alone."""
        if len(random) != 16:
            raise MalformedIdentity(f"a ref takes 16 random bytes, not {len(random)}")
        return cls(incarnation, random.hex())

    @classmethod
    def parse(cls, text: str) -> RequestRef:
        """Return the ref that *text* spells.

        Raises:
            MalformedIdentity: *text* is something else.
        """
        found = _REF.fullmatch(text)
        if found is None:
            raise MalformedIdentity(
                f"{text!r} is not a request ref (<boot>-<incarnation>-<32 hex digits>)"
            )
        return cls(Incarnation(BootId(found[1]), int(found[2])), found[3])


@dataclass(frozen=True, slots=True)
class MonitorRef:
    """The identity of one watch; its DOWN carries it. Unique per client connection."""

    number: int


@dataclass(frozen=True, slots=True)
class MailboxAddress:
    """Where messages for one mailbox of one client connection go.

    It dies with its connection and is never given to another one. Box 0 is the
    client's own mailbox; `client.mailbox()` makes further ones.
    """

    boot: BootId
    client: int
    box: int = 0

    @property
    def text(self) -> str:
        """The picklable form used on the wire: `<boot>/<client>` or `<boot>/<client>.<box>`."""
        return f"{self.boot}/{self.client}" + (f".{self.box}" if self.box else "")

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str) -> MailboxAddress:
        """Return the address that *text* spells.

        Raises:
            MalformedIdentity: *text* is something else.
        """
        found = _MAILBOX.fullmatch(text)
        if found is None:
            raise MalformedIdentity(f"{text!r} is not a mailbox address (<boot>/<client>[.<box>])")
        return cls(BootId(found[1]), int(found[2]), int(found[3] or 0))


#: Where an agent's messages go: a mailbox, or another agent (its `handle_info`).
Address = MailboxAddress | Incarnation


def parse_address(text: str) -> Address:
    """Return the mailbox or agent that *text* addresses.

    Raises:
        MalformedIdentity: *text* is neither.
    """
    return MailboxAddress.parse(text) if "/" in text else Incarnation.parse(text)


@dataclass(frozen=True, slots=True)
class AgentHandle:
    """A captured reference to one life of one agent. It never follows the name.

    `pid` and `started_ticks` (field 22 of `/proc/<pid>/stat`) identify the process
    on `place` (host and runtime directory of its daemon), so that its holder can
    tell a dead process from a recycled number without asking anyone.
    """

    name: Plain
    incarnation: Incarnation
    pid: int
    started_ticks: int
    place: str
