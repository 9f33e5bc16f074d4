"""What one mailbox holds: messages in the order in which they arrived.

Events give way before anything else: what no longer fits is replaced by a `Gap` that
names it. Everything else is kept. Taking a message out of the middle leaves the
others in their order. Nothing here reads a socket or waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from genagent_protocol.envelopes import (
    Admission,
    Completion,
    Down,
    EventMessage,
    Gap,
    Telemetry,
    TelemetryLost,
    UiMessage,
    UiUndeliverable,
    Undeliverable,
)
from genagent_protocol.errors import UsageError
from genagent_protocol.header import Header
from genagent_protocol.refs import RequestRef
from genagentd.client.waiting import Waiting

#: Everything that arrives in a mailbox; the last two only in that of a session, which
#: nobody but the session reads.
Message: TypeAlias = (
    Admission
    | EventMessage
    | Completion
    | Down
    | Gap
    | Undeliverable
    | Telemetry
    | TelemetryLost
    | UiMessage
    | UiUndeliverable
)
Matching: TypeAlias = Callable[[Message], bool]

_ABOUT_NO_REQUEST = (Telemetry, TelemetryLost, UiMessage, UiUndeliverable)

#: What all mailboxes of one client may hold together before the client takes in no more.
MAX_MESSAGES = 10_000
MAX_BYTES = 64 * 1024 * 1024


def anything(_message: Message) -> bool:
    """Match every message."""
    return True


def about(ref: RequestRef) -> Matching:
    """Return what matches the news of one request, and the `Down` of its agent.

    The `Down` is taken out of the mailbox with it: when several requests of one agent
    are watched this way, ask for one `Down` each (a monitor for every request).
    """

    def matches(message: Message) -> bool:
        if isinstance(message, Down):
            return message.handle.incarnation == ref.incarnation
        return not isinstance(message, _ABOUT_NO_REQUEST) and message.ref == ref

    return matches


def box_number(header: Header) -> int:
    """Return which mailbox of its connection a message is for."""
    _, _, number = header.to.rpartition("/")[2].partition(".")
    return int(number) if number.isdecimal() else 0


@dataclass(slots=True)
class Holding:
    """What all mailboxes of one client hold together."""

    messages: int = 0
    bytes: int = 0

    def exceeds(self, share: int = 1) -> bool:
        """Whether *share* times the bound is reached."""
        return self.messages >= share * MAX_MESSAGES or self.bytes >= share * MAX_BYTES


@dataclass(frozen=True, slots=True)
class _Held:
    number: int
    message: Message
    cost_bytes: int


class Box:
    """The messages of one mailbox, and who waits for one."""

    def __init__(self, number: int, holding: Holding) -> None:
        self.number = number
        self.closed = False
        self._holding = holding
        self._held: deque[_Held] = deque()
        self._waiting: list[tuple[Matching, Waiting[Message]]] = []
        self._arrived = 0
        self._handed_out: dict[int, _Held] = {}
        self._over: Callable[[str], Exception] | None = None

    def __len__(self) -> int:
        return len(self._held)

    @property
    def awaited(self) -> bool:
        """Whether someone waits here for what has not arrived."""
        return bool(self._waiting)

    def put(self, message: Message, cost_bytes: int) -> None:
        """Keep *message*, or hand it to the first that waits for such a one."""
        if self.closed:
            return
        self._arrived += 1
        held = _Held(self._arrived, message, cost_bytes)
        for entry in list(self._waiting):
            if self._offer(entry, held):
                self._waiting.remove(entry)
                if not entry[1].failed:
                    return
        self._keep(held)

    def _offer(self, entry: tuple[Matching, Waiting[Message]], held: _Held) -> bool:
        """Give *held* to the one who waits, if it matches; True when that one is settled."""
        matching, waiting = entry
        try:
            matches = matching(held.message)
        except Exception as error:  # noqa: BLE001  # the caller's own code; it gets it back
            waiting.fail(error)
            return True
        if matches:
            waiting.number = held.number
            self._handed_out[held.number] = held
            waiting.settle(held.message)
        return matches

    def _keep(self, held: _Held) -> None:
        self._held.append(held)
        self._holding.messages += 1
        self._holding.bytes += held.cost_bytes

    def miss(self, header: Header) -> None:
        """Leave a mark in the place of the droppable messages that *header* announces."""
        if self.closed:
            return
        last = self._held[-1] if self._held else None
        if last is not None and (longer := _longer(last.message, header)) is not None:
            self._held[-1] = _Held(last.number, longer, last.cost_bytes)
        else:
            self.put(_mark(header), 0)

    def expect(self, matching: Matching, what: str) -> Waiting[Message]:
        """Take the first message that matches, now or when it arrives.

        Raises:
            UsageError: *matching* is nothing that can be asked.
        """
        if not callable(matching):
            raise UsageError(f"matching: a function is wanted, not {type(matching).__name__}")
        waiting: Waiting[Message] = Waiting(what)
        entry = (matching, waiting)
        for place, held in enumerate(self._held):
            if self._offer(entry, held):
                if not waiting.failed:
                    del self._held[place]
                    self._holding.messages -= 1
                    self._holding.bytes -= held.cost_bytes
                return waiting
        if self._over is not None:
            waiting.fail(self._over(what))
        else:
            self._waiting.append(entry)
        return waiting

    def taken(self, waiting: Waiting[Message]) -> None:
        """The one who waited has the message."""
        self._handed_out.pop(waiting.number, None)

    def give_up(self, waiting: Waiting[Message]) -> None:
        """Nobody waits any more; a message that was handed out goes back to its place."""
        self._waiting = [entry for entry in self._waiting if entry[1] is not waiting]
        back = self._handed_out.pop(waiting.number, None)
        if back is None or self.closed:
            return
        later = [held for held in self._held if held.number > back.number]
        for _ in later:
            self._held.pop()
        self._keep(back)
        self._held.extend(later)

    def end(self, error: Callable[[str], Exception]) -> None:
        """Nothing will arrive any more: tell all who wait now or later."""
        self._over = error
        waiting, self._waiting = self._waiting, []
        for _, one in waiting:
            one.fail(error(one.what))

    def close(self, error: Callable[[str], Exception]) -> None:
        """Drop what is here and what will come."""
        self.closed = True
        self._holding.messages -= len(self._held)
        self._holding.bytes -= sum(held.cost_bytes for held in self._held)
        self._held.clear()
        self._handed_out.clear()
        self.end(error)


def _mark(header: Header) -> Gap | TelemetryLost:
    if header.kind == "telemetry":
        # Not its bodies: a record that counts lost ones has as many numbers.
        return TelemetryLost(count=header.last - header.first + 1)
    ref = None if header.ref is None else RequestRef.parse(header.ref)
    return Gap(ref=ref, first=header.first, last=header.last)


def _longer(last: Message, header: Header) -> Gap | TelemetryLost | None:
    """Return *last* with the messages of *header* added, if it marks the same stream."""
    match last, _mark(header):
        case TelemetryLost(), TelemetryLost(count=count):
            return TelemetryLost(count=last.count + count)
        case Gap(), Gap(ref=ref, last=end) if ref == last.ref:
            return Gap(ref=ref, first=last.first, last=end)
        case _:
            return None
