"""What the lines of `codex exec --json` mean: a fold from lines to events.

It never raises, whatever a line holds; types it does not know say nothing. An
`error` line is a notification and no end: only if the program ends without an
outcome does the last one become the reason. Usage is the running total of the
thread, so a turn's usage is the difference to the last completed turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from genagent_backends.failures import error_event, from_names, from_status, of_kind
from genagent_backends.foreign import at, counters, json_object, number_at, text_at
from genagent_backends.subprocesses import Ended, left_without_result
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import BackendError

PROVIDER = "codex"
USAGE_COUNTERS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
#: Where a new thread begins to count.
NOTHING_USED: Mapping[str, int] = dict.fromkeys(USAGE_COUNTERS, 0)
ACTIONS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search"}
)
ACTIVITIES = frozenset({"reasoning", "todo_list", "error"})
#: What the program prints on standard error, and nowhere else, if the thread is unknown.
LOST_THREAD = "no rollout found for thread"
#: What it prints there although nothing is wrong.
NO_ERROR = "Reading additional input from stdin..."


class CodexLines:
    """The lines of one turn.

    *used_before* is the running total after the last completed turn of the thread,
    or None if that is not known; then this turn's usage is not known either. *asked* is
    the id of the thread that was to go on: for one that is not an id the program may
    begin another thread without a word, and such a turn fails.
    """

    provider = PROVIDER

    def __init__(
        self,
        *,
        used_before: Mapping[str, int] | None = NOTHING_USED,
        requested_model: str | None = None,
        final_message_only: bool = False,
        asked: str | None = None,
    ) -> None:
        self.session_id: str | None = None
        self.stray = False
        self._asked = asked
        self._used_before = used_before
        self._requested_model = requested_model
        self._reported_model: str | None = None
        self._final_message_only = final_message_only
        self._last_message: str | None = None
        self._notification: str | None = None

    def translate(self, line: FrozenDict) -> Iterator[Event]:
        """Yield what *line* says, in its order."""
        self._reported_model = text_at(line, "model") or self._reported_model
        match line.get("type"):
            case "thread.started":
                yield from self._thread_started(text_at(line, "thread_id"))
            case "item.started":
                yield from self._started(at(line, "item"))
            case "item.completed":
                yield from self._completed(at(line, "item"))
            case "error":
                self._notification = text_at(line, "message") or self._notification
            case "turn.failed":
                yield self._failed(line)
            case "turn.completed":
                yield from self._done(line)

    def abandoned(self, ended: Ended) -> Event:
        """Return the error of a turn whose process ended without an outcome."""
        if self._notification is not None:
            raw = FrozenDict({"message": self._notification, "exit_status": ended.exit_status})
            return error_event(_failure(self._notification, raw), self._about())
        stderr = "\n".join(line for line in ended.stderr.splitlines() if line.strip() != NO_ERROR)
        error = left_without_result(PROVIDER, Ended(ended.exit_status, stderr))
        if LOST_THREAD in stderr:
            error = of_kind(PROVIDER, "conversation_lost", message=error.message, raw=error.raw)
        return error_event(error, self._about())

    def _thread_started(self, thread_id: str | None) -> Iterator[Event]:
        if thread_id and self._asked and thread_id.lower() != self._asked.lower():
            self.stray = True
            said = f"there is no thread {self._asked} to go on with; {PROVIDER} began another one"
            raw = FrozenDict({"asked": self._asked, "began": thread_id})
            yield error_event(of_kind(PROVIDER, "conversation_lost", message=said, raw=raw))
            return
        self.session_id = thread_id or self.session_id

    def _started(self, item: Plain) -> Iterator[Event]:
        if isinstance(item, FrozenDict) and item.get("type") in ACTIONS:
            told = ("id", "type", "server", "tool")
            yield event("tool_use", {name: item[name] for name in told if name in item})

    def _completed(self, item: Plain) -> Iterator[Event]:
        if not isinstance(item, FrozenDict):
            return
        kind = item.get("type")
        if kind == "agent_message":
            self._last_message = text_at(item, "text") or ""
            yield event("text", {"text": self._last_message, "message_boundary": True})
        elif kind in ACTIONS or kind in ACTIVITIES:
            yield event("tool_result", item)

    def _failed(self, line: FrozenDict) -> Event:
        reason = at(line, "error")
        if reason is None:
            reason = at(line, "message")
        if reason is None:
            reason = self._notification
        message = reason if isinstance(reason, str) else text_at(reason, "message")
        raw = reason if isinstance(reason, FrozenDict) else FrozenDict({"message": message})
        return error_event(_failure(message or "", raw), self._about())

    def _done(self, line: FrozenDict) -> Iterator[Event]:
        total = counters(line.get("usage"), USAGE_COUNTERS)
        used = self._used(total)
        if used:
            yield event("usage", used)
        data: dict[str, object] = self._about()
        if total:
            data["usage_total"] = total
        if self._final_message_only and self._last_message is not None:
            data["text"] = self._last_message
        yield event("result", data)

    def _used(self, total: Mapping[str, Plain]) -> dict[str, int]:
        before = self._used_before or {}
        return {
            name: count - before[name]
            for name, count in total.items()
            # A counter that went down was begun anew, from an unknown point on.
            if isinstance(count, int) and name in before and count >= before[name]
        }

    def _about(self) -> dict[str, object]:
        model = self._reported_model or self._requested_model
        source = "reported" if self._reported_model else "requested"
        about = {
            "session_id": self.session_id,
            "model": model,
            "model_source": source if model else None,
        }
        return {name: value for name, value in about.items() if value is not None}


def _failure(message: str, raw: FrozenDict) -> BackendError:
    # The message is often the provider's answer, as JSON inside a text.
    inside = json_object(message)
    readable = text_at(inside, "error", "message") or text_at(inside, "message") or message
    status = number_at(inside, "status")
    if status is not None:
        return from_status(PROVIDER, status, message=readable, raw=raw)
    names = text_at(inside, "error", "code"), text_at(inside, "error", "type")
    return from_names(PROVIDER, *names, message=readable, raw=raw)


def used_by(data: FrozenDict) -> Mapping[str, int] | None:
    """Return the thread's running total that a `result` event tells, or None."""
    total = data.get("usage_total")
    if not isinstance(total, FrozenDict):
        return None
    return {name: count for name, count in total.items() if isinstance(count, int)}
