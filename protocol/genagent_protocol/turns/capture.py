"""What one turn keeps of its events, and the outcome made of them.

The turn's code shows every event to the capture before anything else looks at it,
and shows none after a terminal one. With retention `fail` an event that does not
fit ends the turn: it is neither kept nor handed on, and there is no shortened
success. With `compact` everything is handed on, and from the first event that does
not fit nothing is kept any more, so that `events` is a strict prefix; text, usage,
session id and terminal come from the whole stream either way.

A capture is a fold that changes in place, one per turn, in constant time per event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from genagent_protocol.bounds import Limits
from genagent_protocol.events import (
    Completed,
    Event,
    EventCoverage,
    Failed,
    Omission,
    Outcome,
    Response,
    text_or_none,
)
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import (
    NO_TERMINAL_EVENT,
    UNKNOWN,
    BackendFailed,
    EventCaptureOverflow,
    Failure,
)

Accepted: TypeAlias = Literal["retained", "omitted"]


class Capture:
    """The events of one turn so far, within the turn's limits."""

    def __init__(
        self, limits: Limits, reason_of: Callable[[Plain], Failure] = BackendFailed
    ) -> None:
        """Begin with nothing. *reason_of* reads the reason of a terminal `error` event."""
        self._limits = limits
        self._reason_of = reason_of
        self._transcript = Transcript()
        self._events: list[Event] = []
        self._bytes = 0
        self._observed = 0
        self._omission: Omission | None = None
        self._overflow: EventCaptureOverflow | None = None
        self._usage: FrozenDict | None = None
        self._terminal: Event | None = None

    @property
    def over(self) -> bool:
        """Whether the turn has ended: by a terminal event, or by one that did not fit."""
        return self._terminal is not None or self._overflow is not None

    def accept(self, event: Event) -> Accepted | EventCaptureOverflow:
        """Take *event* in, or say why the turn is over.

        An accepted event, kept or omitted, goes on to the stream callback and to
        who listens; one that overflows goes nowhere.
        """
        assert not self.over, "nothing may be shown to a capture that is over"
        size_bytes = event.size_bytes
        limit = self._limit_met(size_bytes)
        if limit is not None and self._limits.event_retention == "fail":
            self._overflow = self._overflowed(event, size_bytes, limit)
            return self._overflow
        self._observed += 1
        self._learn(event)
        if limit is None and self._omission is None:
            self._events.append(event)
            self._bytes += size_bytes
            return "retained"
        if self._omission is None and limit is not None:
            self._omission = Omission(limit=limit, event_kind=event.kind)
        return "omitted"

    def outcome(self, *, prompt: str, duration_ms: int) -> Outcome:
        """Return what the turn came to, now that no event follows."""
        if self._overflow is not None:
            return Failed(self._overflow)
        terminal = self._terminal
        if terminal is None:
            return Failed(NO_TERMINAL_EVENT)
        if terminal.kind == "error":
            reason = terminal.data.get("reason")
            return Failed(UNKNOWN if reason is None else self._reason_of(reason))
        return Completed(self._response(terminal, prompt, duration_ms))

    def _limit_met(self, size_bytes: int) -> Literal["events", "bytes"] | None:
        if len(self._events) >= self._limits.max_events_per_turn:
            return "events"
        if self._bytes + size_bytes > self._limits.max_event_bytes_per_turn:
            return "bytes"
        return None

    def _overflowed(
        self, event: Event, size_bytes: int, limit: Literal["events", "bytes"]
    ) -> EventCaptureOverflow:
        return EventCaptureOverflow(
            limit=limit,
            max_events=self._limits.max_events_per_turn,
            max_bytes=self._limits.max_event_bytes_per_turn,
            retained_events=len(self._events),
            retained_bytes=self._bytes,
            rejected_event_kind=event.kind,
            rejected_event_bytes=size_bytes,
        )

    def _learn(self, event: Event) -> None:
        if event.kind == "text":
            self._transcript.add(event.data)
        elif event.kind == "usage":
            self._usage = event.data
        elif event.terminal:
            self._terminal = event

    def _response(self, terminal: Event, prompt: str, duration_ms: int) -> Response:
        said = text_or_none(terminal.data.get("text"))
        return Response(
            text=self._transcript.text if said is None else said,
            final_message=self._transcript.final_message if said is None else said,
            events=tuple(self._events),
            terminal=terminal,
            event_coverage=self._coverage(),
            usage=self._usage,
            duration_ms=duration_ms,
            session_id=text_or_none(terminal.data.get("session_id")),
            prompt=prompt,
        )

    def _coverage(self) -> EventCoverage:
        return EventCoverage(
            mode="exact" if self._omission is None else "compact",
            observed_events=self._observed,
            retained_events=len(self._events),
            omitted_events=self._observed - len(self._events),
            retained_bytes=self._bytes,
            first_omission=self._omission,
        )


class Transcript:
    """The text of a turn, put together from its chunks.

    A chunk may open a new message; then a blank line sets it off from what was
    said before, if both say anything.
    """

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._last_message_from = 0
        self._spoken = False

    def add(self, data: FrozenDict) -> None:
        """Take in the data of one `text` event."""
        text = text_or_none(data.get("text")) or ""
        opens = data.get("message_boundary") is True
        if opens and text and self._spoken:
            self._chunks.append("\n\n")
        if opens:
            self._last_message_from = len(self._chunks)
        self._chunks.append(text)
        self._spoken = self._spoken or bool(text)

    @property
    def text(self) -> str:
        """Everything that was said."""
        return "".join(self._chunks)

    @property
    def final_message(self) -> str:
        """The last message; everything, if no chunk opened one."""
        return "".join(self._chunks[self._last_message_from :])
