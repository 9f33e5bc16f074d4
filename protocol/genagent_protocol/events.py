"""What a backend says during a turn, when that is over, and the Response made of it.

A turn's events come in order and end with exactly one terminal event, `result` or
`error`; whatever a stream yields after it is never looked at. A Response is folded
from the events and never edited afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeGuard

from genagent_protocol import failed
from genagent_protocol.plain import (
    EMPTY,
    MAX_DEPTH,
    FrozenDict,
    Plain,
    deeper_than,
    encoded_size,
    freeze,
)
from genagent_protocol.reasons import Failure

#: The kinds this product gives a meaning to; a backend may use others of its own.
KINDS = ("session", "text", "tool_use", "tool_result", "usage", "result", "error")
TERMINAL_KINDS = frozenset({"result", "error"})


@dataclass(frozen=True, slots=True)
class Event:
    """One thing a backend said. Deeply immutable; only text keys are looked at.

    `at_ms` is monotonic milliseconds; only differences inside one turn mean
    anything. Build events with `event()`, which freezes the data.
    """

    kind: str
    data: FrozenDict = EMPTY
    at_ms: int = 0

    @property
    def terminal(self) -> bool:
        """Whether this event ends its turn."""
        return self.kind in TERMINAL_KINDS

    @property
    def size_bytes(self) -> int:
        """What this event counts against a turn's capture limits."""
        return encoded_size((self.kind, self.data, self.at_ms))


def event(
    kind: str, data: Mapping[str, object] | None = None, *, at_ms: int = 0, **more: object
) -> Event:
    """Return the event of *kind* with *data* and *more* frozen into it.

    Raises:
        NotPlain: something in the data cannot cross a process border.
    """
    frozen = freeze({**(data or {}), **more})
    assert isinstance(frozen, FrozenDict)
    return Event(kind, frozen, at_ms)


def well_made(said: object) -> TypeGuard[Event]:
    """Return whether *said* is an event as `event()` makes it, which no other need be.

    This does not look into the data for what is not plain.
    """
    if not isinstance(said, Event):
        return False
    kind: object = said.kind
    data: object = said.data
    return (
        isinstance(kind, str) and isinstance(data, FrozenDict) and not deeper_than(data, MAX_DEPTH)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """The first event that a compact capture left out, and which limit it met."""

    limit: Literal["events", "bytes"]
    event_kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCoverage:
    """How much of what a turn said is in `Response.events`.

    `exact` means all of it. `compact` means a strict prefix: from the first
    omission on nothing was retained, though text, usage and terminal are whole.
    """

    mode: Literal["exact", "compact"] = "exact"
    observed_events: int = 0
    retained_events: int = 0
    omitted_events: int = 0
    retained_bytes: int = 0
    first_omission: Omission | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A turn that succeeded.

    `text` is the terminal event's text, or else all text events put together;
    `final_message` the last message of it. `duration_ms` runs from the start of
    the turn's code to the terminal event. `prompt` is what the backend was given,
    after `pre_turn`. `metadata` is for applications and starts empty.

    This does not say that anything outside the process has settled.
    """

    text: str
    final_message: str
    events: tuple[Event, ...]
    terminal: Event
    event_coverage: EventCoverage
    usage: FrozenDict | None = None
    duration_ms: int = 0
    session_id: str | None = None
    prompt: str = ""
    metadata: FrozenDict = EMPTY


@dataclass(frozen=True, slots=True)
class Completed:
    """The outcome of a turn that succeeded."""

    response: Response


@dataclass(frozen=True, slots=True, eq=False)
class Failed(failed.Failed):
    """The outcome of a turn that did not."""

    reason: Failure


Outcome = Completed | Failed


def text_or_none(value: Plain) -> str | None:
    """Return *value* if it is text (an empty one counts), else None."""
    return value if isinstance(value, str) else None
