"""How much a queue may hold, and the arithmetic of saying no.

A bound is two numbers, a count and a byte total, and an item is admitted only if
both still hold afterwards. Sizes are measured once, on the encoded payload, where
it enters the agent (`encoded_size`); nothing here stores, evicts or decides what
happens to an item that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from genagent_protocol.plain import MAX_ITEMS, encoded_size
from genagent_protocol.reasons import Overloaded

__all__ = [
    "LARGEST_OUTCOME_BYTES",
    "MAX_EVENTS",
    "MAX_EVENT_BYTES",
    "MAX_FRAME_BYTES",
    "Bound",
    "Limits",
    "Usage",
    "admit",
    "encoded_size",
    "hold",
    "release",
]

#: The most one message between processes may hold, its envelope included.
MAX_FRAME_BYTES = 16 * 1024 * 1024
#: The largest encoded outcome that still fits into a message with its envelope.
LARGEST_OUTCOME_BYTES = MAX_FRAME_BYTES - 64 * 1024
#: The most bytes of events that one turn may be allowed to keep. A response has to fit into
#: one message, and says what a terminal event says four times: in the events, as the terminal,
#: as the text and as the final message. What is left is for the prompt and the events' frames.
MAX_EVENT_BYTES = 3 * 1024 * 1024
#: The most events that one turn may be allowed to keep: the longest list of a message.
MAX_EVENTS = MAX_ITEMS

Queue = Literal["prompts", "notifications", "self_chain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The most a queue may hold; zero of either disables the queue."""

    max_count: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a queue holds now, kept as running totals so that admission stays O(1)."""

    count: int = 0
    bytes: int = 0


def admit(usage: Usage, size_bytes: int, bound: Bound, queue: Queue) -> Usage | Overloaded:
    """Return the usage with one more item of *size_bytes*, or why it cannot be.

    An exact fit is admitted. The count is judged first, so an item that breaks
    both limits is reported as a count overload.
    """
    if usage.count >= bound.max_count:
        return _overloaded("count", usage, size_bytes, bound, queue)
    if usage.bytes + size_bytes > bound.max_bytes:
        return _overloaded("bytes", usage, size_bytes, bound, queue)
    return hold(usage, size_bytes)


def hold(usage: Usage, size_bytes: int) -> Usage:
    """Return the usage with one more item of *size_bytes*, whatever the bound is."""
    return Usage(count=usage.count + 1, bytes=usage.bytes + size_bytes)


def release(usage: Usage, size_bytes: int) -> Usage:
    """Return the usage without one item of *size_bytes*, as it was admitted."""
    assert usage.count >= 1
    assert usage.bytes >= size_bytes
    return Usage(count=usage.count - 1, bytes=usage.bytes - size_bytes)


def _overloaded(
    limit: Literal["count", "bytes"], usage: Usage, size_bytes: int, bound: Bound, queue: Queue
) -> Overloaded:
    return Overloaded(
        queue=queue,
        limit=limit,
        pending_count=usage.count,
        pending_bytes=usage.bytes,
        incoming_bytes=size_bytes,
        max_count=bound.max_count,
        max_bytes=bound.max_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every limit of one agent, with the defaults of the product.

    `None` for `watchdog_ms` and `shutdown_ms` means no limit. `limits.split_options`
    is how limits from outside become this value.
    """

    watchdog_ms: int | None = 600_000
    max_pending_prompts: int = 1_000
    max_pending_prompt_bytes: int = 1_048_576
    max_pending_notifications: int = 1_000
    max_pending_notification_bytes: int = 1_048_576
    max_events_per_turn: int = 1_000
    max_event_bytes_per_turn: int = 1_048_576
    event_retention: Literal["fail", "compact"] = "fail"
    max_tell_results: int = 100
    max_tell_result_bytes: int = 8_388_608
    shutdown_ms: int | None = 5_000
    interrupt_grace_ms: int = 5_000
