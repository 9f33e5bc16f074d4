"""What waits for one peer: in order, bounded, and honest about what was dropped.

A peer says how much it has taken in (`Credit`); at most a window beyond that is
handed to ZeroMQ, the rest waits here. When a peer does not read, droppable messages
give way and leave a visible gap in their place; a must-keep message is never
dropped, and when those alone exceed the bound, the owner is told to cut the peer off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

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
    """Droppable messages of one stream that gave way, first to last sequence number."""

    header: Header
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much may wait: in all, and of what is droppable."""

    max_messages: int
    max_bytes: int
    max_droppable_bytes: int


class Outbox:
    """The queue towards one peer. `put` what should go, `take` what may go now."""

    def __init__(self, capacity: Capacity, window_bytes: int = WINDOW_BYTES) -> None:
        self._capacity = capacity
        self._window_bytes = window_bytes
        self._waiting: deque[Parcel | Missing] = deque()
        self._droppable_bytes = 0
        self._sent_bytes = 0
        self._taken_bytes = 0
        #: Costs of what waits here.
        self.bytes = 0
        #: Droppable envelopes that gave way so far.
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, parcel: Parcel) -> bool:
        """Queue *parcel*; False when it must be kept and cannot be.

        A droppable one that does not fit leaves a gap and counts as queued.
        """
        if parcel.header.delivery == "droppable":
            self._put_droppable(parcel)
            return True
        if self.bytes + parcel.cost_bytes > self._capacity.max_bytes:
            return False
        if len(self._waiting) >= self._capacity.max_messages:
            return False
        self._append(parcel)
        return True

    def _put_droppable(self, parcel: Parcel) -> None:
        fits = (
            self._droppable_bytes + parcel.cost_bytes <= self._capacity.max_droppable_bytes
            and self.bytes + parcel.cost_bytes <= self._capacity.max_bytes
            and len(self._waiting) < self._capacity.max_messages
        )
        if fits:
            self._droppable_bytes += parcel.cost_bytes
            self._append(parcel)
        else:
            self._miss(parcel.header)

    def _append(self, parcel: Parcel) -> None:
        self._waiting.append(parcel)
        self.bytes += parcel.cost_bytes

    def _miss(self, header: Header) -> None:
        self.dropped += header.bodies
        last = self._waiting[-1] if self._waiting else None
        same = isinstance(last, Missing) and (last.header.ref, last.header.to, last.header.sender)
        if same == (header.ref, header.to, header.sender):
            assert isinstance(last, Missing)
            last.last = header.last
        else:
            self._waiting.append(Missing(header, header.first, header.last))

    def take(self) -> Iterator[Parcel | Missing]:
        """Yield, in order, what the peer has room for now, and count it as sent."""
        while self._waiting and self._sent_bytes - self._taken_bytes < self._window_bytes:
            item = self._waiting.popleft()
            if isinstance(item, Parcel):
                self.bytes -= item.cost_bytes
                self._sent_bytes += item.cost_bytes
                if item.header.delivery == "droppable":
                    self._droppable_bytes -= item.cost_bytes
            yield item

    def credited(self, taken_bytes: int) -> None:
        """The peer has taken in so much in all, by the same costs."""
        self._taken_bytes = max(self._taken_bytes, min(taken_bytes, self._sent_bytes))

    def passes(self) -> bool:
        """Whether a message would go out at once: nothing waits and the window is open."""
        return not self._waiting and self._sent_bytes - self._taken_bytes < self._window_bytes

    def passed(self, parcel: Parcel) -> None:
        """Count *parcel* as sent without queueing it; only when `passes()`."""
        self._sent_bytes += parcel.cost_bytes


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
