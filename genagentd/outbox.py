"""What waits for one peer: in order, bounded, and honest about what was dropped.

A peer says how much it has taken in (`Credit`); at most a window beyond that is
handed to ZeroMQ, the rest waits here. When a peer does not read, droppable messages
give way and leave a mark in their place; a must-keep message is never dropped, and when
those and the marks alone exceed the bound, the owner is told to cut the peer off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from genagent_protocol.header import Header

#: Bytes a peer may owe us before its messages wait here.
WINDOW_BYTES = 4 * 1024 * 1024
#: What one message costs beyond its bytes, so that many tiny ones are bounded too.
MESSAGE_COST_BYTES = 256


class Parcel(NamedTuple):
    """One message on its way: its header, decoded, and its body, not."""

    header: Header
    body: bytes

    @property
    def cost_bytes(self) -> int:
        """What it counts against windows and bounds."""
        return len(self.body) + MESSAGE_COST_BYTES


@dataclass(slots=True)
class Missing:
    """The mark of droppable messages that gave way, first to last sequence number."""

    header: Header
    first: int
    last: int

    @property
    def cost_bytes(self) -> int:
        """What it counts against bounds."""
        return MESSAGE_COST_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much may wait: messages in all, bytes that must be kept, and droppable bytes more."""

    max_messages: int
    max_bytes: int
    max_droppable_bytes: int


#: What one mark of a sender stands for: a request's events to one mailbox.
Stream: TypeAlias = tuple[str | None, str]


class Outbox:
    """The queue towards one peer. `put` what should go, `take` what may go now."""

    def __init__(self, capacity: Capacity, window_bytes: int = WINDOW_BYTES) -> None:
        self._capacity = capacity
        self._window_bytes = window_bytes
        self._waiting: deque[Parcel | Missing] = deque()
        #: The marks that a later loss of the same stream only makes longer, by their sender.
        self._growing: dict[str, dict[Stream, Missing]] = {}
        self._messages = 0
        self._kept_bytes = 0
        self._droppable_bytes = 0
        self._sent_bytes = 0
        self._taken_bytes = 0
        #: Droppable envelopes that gave way so far.
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def bytes(self) -> int:
        """Costs of all that waits here."""
        return self._kept_bytes + self._droppable_bytes

    def put(self, parcel: Parcel) -> bool:
        """Queue *parcel*; False when it, or the mark in its place, must be kept and cannot be.

        A droppable one that does not fit leaves a mark and counts as queued.
        """
        droppable = parcel.header.delivery == "droppable"
        if self._messages < self._capacity.max_messages and self._fits(parcel, droppable):
            self._append(parcel, droppable)
            return True
        return droppable and self._miss(parcel.header)

    def put_always(self, parcel: Parcel) -> None:
        """Queue *parcel* beyond every bound; how many of those there are, the caller bounds."""
        self._append(parcel, droppable=False)

    def _fits(self, parcel: Parcel, droppable: bool) -> bool:
        if droppable:
            limit = self._capacity.max_droppable_bytes
            return self._droppable_bytes + parcel.cost_bytes <= limit
        return self._kept_bytes + parcel.cost_bytes <= self._capacity.max_bytes

    def _append(self, parcel: Parcel, droppable: bool) -> None:
        self._waiting.append(parcel)
        self._messages += 1
        self._full_grown(parcel.header, droppable)
        if droppable:
            self._droppable_bytes += parcel.cost_bytes
        else:
            self._kept_bytes += parcel.cost_bytes

    def _full_grown(self, header: Header, droppable: bool) -> None:
        """Let no mark grow past a message with this *header*, which waits behind it."""
        marks = self._growing.get(header.sender)
        if marks is None:
            return
        if droppable:
            marks.pop(_stream(header), None)
        else:
            # Any of them: a body of several envelopes names no request in its header, and one
            # of these may be a gap or the completion of a stream.
            marks.clear()
        if not marks:
            del self._growing[header.sender]

    def _miss(self, header: Header) -> bool:
        mark = self._growing.get(header.sender, {}).get(_stream(header))
        if mark is None:
            mark = Missing(header, header.first, header.last)
            if self._kept_bytes + mark.cost_bytes > self._capacity.max_bytes:
                return False
            self._growing.setdefault(header.sender, {})[_stream(header)] = mark
            self._waiting.append(mark)
            self._kept_bytes += mark.cost_bytes
        mark.last = header.last
        self.dropped += header.bodies
        return True

    def take(self) -> Iterator[Parcel | Missing]:
        """Yield, in order, what the peer has room for now.

        A parcel counts as sent; what is sent in the place of a mark, the caller
        counts with `passed` before it takes on.
        """
        while self._waiting and self._window_open:
            item = self._waiting.popleft()
            if isinstance(item, Missing):
                self._taken_mark(item)
            else:
                self._taken_parcel(item)
            yield item

    def _taken_mark(self, mark: Missing) -> None:
        self._kept_bytes -= mark.cost_bytes
        if self._growing.get(mark.header.sender, {}).get(_stream(mark.header)) is mark:
            self._full_grown(mark.header, droppable=True)

    def _taken_parcel(self, parcel: Parcel) -> None:
        self._messages -= 1
        if parcel.header.delivery == "droppable":
            self._droppable_bytes -= parcel.cost_bytes
        else:
            self._kept_bytes -= parcel.cost_bytes
        self.passed(parcel)

    @property
    def _window_open(self) -> bool:
        return self._sent_bytes - self._taken_bytes < self._window_bytes

    def credited(self, taken_bytes: int) -> None:
        """The peer has taken in so much in all, by the same costs."""
        self._taken_bytes = max(self._taken_bytes, min(taken_bytes, self._sent_bytes))

    def passes(self) -> bool:
        """Whether a message would go out at once: nothing waits and the window is open."""
        return not self._waiting and self._window_open

    def passed(self, parcel: Parcel) -> None:
        """Count *parcel* as sent past the queue: when `passes()`, or in the place of a mark.

        One that may overtake is counted so, too; the window is closed the longer for it.
        """
        self._sent_bytes += parcel.cost_bytes


def _stream(header: Header) -> Stream:
    return (header.ref, header.to)


class Intake:
    """The receiver's half: says when to tell the sender how much was taken in."""

    def __init__(self, window_bytes: int = WINDOW_BYTES) -> None:
        self._step_bytes = window_bytes // 4
        self._told_bytes = 0
        self.messages = 0
        self.bytes = 0

    def took(self, body_bytes: int) -> bool:
        """Count one message; True when it is time to send credit."""
        self.messages += 1
        self.bytes += body_bytes + MESSAGE_COST_BYTES
        return self.bytes - self._told_bytes >= self._step_bytes

    def told(self) -> None:
        """The sender was told."""
        self._told_bytes = self.bytes
