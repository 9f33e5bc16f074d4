"""What the machine notes, told to whoever watches: a record, and for some a log line.

The shell's share of a record is added here: name, wall clock, durations, shown state.
Records named `turn.*` stay free of content, and so does every log line. The others say
what fits: of more than 16 KiB, or of what is nested too deep for a record, only how much
it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from genagent_protocol import schema
from genagent_protocol.codec import MAX_FRAME_DEPTH
from genagent_protocol.envelopes import Telemetry
from genagent_protocol.plain import MAX_DEPTH, FrozenDict, Plain, deeper_than, encoded_size, freeze
from genagent_protocol.reasons import ExitReason, Failure
from genagent_protocol.refs import AgentHandle
from genagent_protocol.turns.effects import Emit
from genagentd import telemetry
from genagentd.agent import forked, log
from genagentd.agent.stream import now_ms

#: What goes to the log as well: what went wrong, and what changes an agent's course. Not a
#: callback that failed: that is logged where it did, with the place or what it returned.
LOGGED = frozenset(
    {
        "turn.error",
        "turn.rejected",
        "turn.cancelled",
        "input.rejected",
        "halted",
        "terminated",
        "message.dropped",
    }
)
#: What carries the shown state.
WITH_STATE = frozenset({"prompt.start", "prompt.stop", "prompt.error", "halted"})
#: What is measured by how long it took instead of when it was.
TIMED = frozenset({"prompt.stop", "turn.stop", "turn.error"})

#: The most that one field of content takes in a record. Telemetry is for watching: a large
#: prompt or state in each record would crowd the other records out.
MAX_FIELD_BYTES = 16 * 1024
#: What is content, and may be of any size.
_CONTENT = ("prompt", "original_prompt", "event", "reason", "agent_state")

#: Fields of a note that become metadata as they are, where they are set.
_PLAIN_FIELDS = (
    *("attempt", "origin", "reason_kind", "prompt", "original_prompt", "rewritten", "event"),
    *("callback", "error"),
)


class Observer:
    """Tells the daemon and the attached handlers what happens. Used in the coordinator."""

    def __init__(
        self,
        handle: AgentHandle,
        show: Callable[[], Plain],
        send: Callable[[Telemetry], None],
        wanted: Callable[[], bool],
    ) -> None:
        """*wanted* says whether the daemon wants records now."""
        self._handle = handle
        self._show = show
        self._send = send
        self._wanted = wanted
        self._began: tuple[int, int] | None = None

    def turn_began(self, turn: int) -> None:
        """The code of that turn was begun now."""
        self._began = (turn, now_ms())

    def note(self, emit: Emit) -> None:
        """Tell whoever watches; without anybody, only what belongs into the log is written."""
        if emit.name in LOGGED:
            self._log(emit)
        wanted = self._wanted()
        if not wanted and not telemetry.watched():
            return
        metadata, left_out = _fitting(self._metadata(emit))
        record = Telemetry(
            event=emit.name,
            agent=self._handle.name,
            incarnation=self._handle.incarnation,
            measurements=FrozenDict(self._measurements(emit) | left_out),
            metadata=metadata,
        )
        if wanted:
            self._send(record)
        with forked.Home():
            telemetry.publish(record, _detached)

    def _measurements(self, emit: Emit) -> dict[str, Plain]:
        measured: dict[str, Plain] = {}
        if emit.name not in TIMED:
            measured["system_time_ms"] = time.time_ns() // 1_000_000
        if emit.depth is not None:
            measured["depth"] = emit.depth
        duration = self._duration_ms(emit)
        if duration is not None:
            measured["duration_ms"] = duration
        return measured

    def _duration_ms(self, emit: Emit) -> int | None:
        if emit.turn is None or self._began is None or self._began[0] != emit.turn:
            return None
        return now_ms() - self._began[1]

    def _metadata(self, emit: Emit) -> dict[str, Plain]:
        said: dict[str, Plain] = {}
        if emit.ref is not None:
            said["ref"] = emit.ref.text
        for field in _PLAIN_FIELDS:
            value = getattr(emit, field)
            if value is not None:
                said[field] = value
        if emit.reason is not None:
            # Around what user code gave there are a few levels of ours.
            said["reason"] = freeze(schema.dump(emit.reason), max_depth=MAX_FRAME_DEPTH)
        if emit.name == "state.changed":
            said |= {"from": emit.was, "to": emit.now}
        if emit.name in WITH_STATE:
            said["agent_state"] = self._show()
        return said

    def _log(self, emit: Emit) -> None:
        log.line(
            emit.name,
            agent=self._handle.name,
            ref=None if emit.ref is None else emit.ref.text,
            attempt=emit.attempt,
            origin=emit.origin,
            reason=None if emit.reason is None else _code(emit.reason),
            reason_kind=emit.reason_kind,
            duration_ms=self._duration_ms(emit),
        )


def _fitting(said: dict[str, Plain]) -> tuple[FrozenDict, dict[str, Plain]]:
    """Return *said* without the content that does not fit, and how large each of that is."""
    sizes = {name: encoded_size(said[name]) for name in _CONTENT if name in said}
    left_out = {
        name: size
        for name, size in sizes.items()
        # The record is one level more around each of them.
        if size > MAX_FIELD_BYTES or deeper_than(said[name], MAX_DEPTH - 1)
    }
    kept = FrozenDict({name: value for name, value in said.items() if name not in left_out})
    return kept, {f"{name}_bytes": size for name, size in left_out.items()}


def _detached(handler: str, error: BaseException) -> None:
    log.raised("telemetry.handler_detached", error, handler=handler)


def _code(reason: Failure | ExitReason) -> str:
    return reason.text if isinstance(reason, ExitReason) else reason.code
