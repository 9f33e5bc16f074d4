"""What the lines of the `claude` program mean: a fold from lines to events.

It never raises, whatever a line holds; types it does not know say nothing. Text
comes twice, streamed as deltas and again in the finished message, so what was
streamed is remembered, apart for every subagent, and only the rest is said again. An
answer that was cut off goes on in another message, and `result` holds only that one.
A `result` line is a failure if it says so in any way: provider errors come with
the subtype "success".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from genagent_backends.claude_asked import Asked
from genagent_backends.failures import error_event, from_names, from_status, of_kind
from genagent_backends.foreign import at, counters, items_at, number_at, text_at
from genagent_backends.latest import Latest
from genagent_backends.subprocesses import Ended, left_without_result
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import BackendError

PROVIDER = "claude"
USAGE_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
#: Why the program itself stopped before the answer was done.
LIMIT_SUBTYPES = frozenset({"error_max_turns", "error_max_budget_usd"})
#: What the program tells the model when an answer was cut off, so that it goes on.
CUT_OFF = "Output token limit hit"
#: Of so many subagents, and of so many uses of tools, is remembered what was told already.
MAX_SUBAGENTS = 256
MAX_TOOL_USES = 16_384
LOST_CONVERSATION = "No conversation found with session ID"


class ClaudeLines:
    """The lines of one turn, among which may be some of turns that nobody asked for.

    `cost_before_usd` is what a longer-lived process had cost before; `asked` tells whose
    the lines are.
    """

    provider = PROVIDER
    stray = False

    def __init__(self, *, cost_before_usd: float = 0.0, asked: Asked | None = None) -> None:
        self.session_id: str | None = None
        self.model: str | None = None
        #: What the process has cost in all, once a result says so.
        self.cost_total_usd = cost_before_usd
        self._cost_before_usd = cost_before_usd
        self._asked = asked or Asked()
        #: Whether the turn's result has come, good or bad.
        self.answered = False
        #: Whether an `error` line has come, after which the turn may still go on.
        self.failed = False
        self._initialised = False
        self._introduced: Event | None = None
        self._made_up_error: str | None = None
        self._main = _Stream()
        self._subagents: Latest[_Stream] = Latest(MAX_SUBAGENTS)
        self._seen: Latest[bool] = Latest(MAX_TOOL_USES)

    def translate(self, line: FrozenDict) -> Iterator[Event]:
        """Yield what *line* says about this turn, in its order."""
        for own in self._asked.own(line):
            yield from self._said(own)

    def _said(self, line: FrozenDict) -> Iterator[Event]:
        parent = text_at(line, "parent_tool_use_id")
        match line.get("type"):
            case "system":
                yield from self._system(line)
            case "assistant":
                yield from self._assistant(line, parent)
            case "user" if line.get("isSynthetic") is True:
                if any(_tells_of_cut(block) for block in items_at(line, "message", "content")):
                    self._stream(parent).cut()
            case "user":
                for block in items_at(line, "message", "content"):
                    yield from self._tool_result(block, parent)
            case "stream_event":
                yield from self._streamed(at(line, "event"), parent)
            case "content_block_delta":
                yield from self._streamed(line, parent)
            case "tool_use":
                yield from self._tool_use(line, parent)
            case "tool_result":
                yield from self._tool_result(line, parent)
            case "result":
                yield from self._result(line)
            case "error":
                self.failed = True
                self._remember_session(line, failed=True)
                yield self._error(line)

    def abandoned(self, ended: Ended) -> Event:
        """Return the error of a turn whose process ended without a result."""
        return error_event(left_without_result(PROVIDER, ended), self.about())

    # -- lines that say something ---------------------------------------------------------

    def _system(self, line: FrozenDict) -> Iterator[Event]:
        self._remember_session(line, failed=False)
        self._initialised = True
        if line.get("subtype") != "init":
            return
        self.model = text_at(line, "model") or self.model
        introduced = event(
            "session",
            _present(
                session_id=self.session_id,
                model=self.model,
                permission_mode=text_at(line, "permissionMode"),
                tools=line.get("tools"),
                version=text_at(line, "claude_code_version"),
            ),
        )
        # The program introduces itself again with every turn, asked for or not.
        if introduced != self._introduced:
            self._introduced = introduced
            yield introduced

    def _assistant(self, line: FrozenDict, parent: str | None) -> Iterator[Event]:
        made_up = text_at(line, "error")
        if made_up is not None:
            # The program shows a provider's error as if the model had said it.
            self._made_up_error = made_up
            return
        stream = self._stream(parent)
        stream.begin(text_at(line, "message", "id"))
        content = at(line, "message", "content")
        if isinstance(content, str):
            yield from stream.finish(content, parent)
            return
        for block in _joined(items_at(line, "message", "content")):
            if block.get("type") == "text":
                yield from stream.finish(text_at(block, "text") or "", parent)
            elif block.get("type") == "tool_use":
                yield from self._tool_use(block, parent)

    def _streamed(self, said: Plain, parent: str | None) -> Iterator[Event]:
        match at(said, "type"):
            case "message_start":
                self._stream(parent).begin(text_at(said, "message", "id"))
            case "content_block_delta" if at(said, "delta", "type") == "text_delta":
                text = text_at(said, "delta", "text") or ""
                yield from self._stream(parent).add(text, parent)
            case "message_delta" if at(said, "delta", "stop_reason") == "max_tokens":
                self._stream(parent).cut()

    def _tool_use(self, block: FrozenDict, parent: str | None) -> Iterator[Event]:
        tool_id = text_at(block, "id")
        if self._first_time("tool_use", parent, tool_id):
            yield event(
                "tool_use",
                _present(
                    id=tool_id,
                    name=text_at(block, "name"),
                    input=block.get("input"),
                    parent_tool_use_id=parent,
                ),
            )

    def _tool_result(self, block: FrozenDict, parent: str | None) -> Iterator[Event]:
        tool_id = text_at(block, "tool_use_id")
        if block.get("type") == "tool_result" and self._first_time("result", parent, tool_id):
            yield event(
                "tool_result",
                _present(
                    id=tool_id,
                    content=block.get("content"),
                    is_error=block.get("is_error"),
                    parent_tool_use_id=parent,
                ),
            )

    def _result(self, line: FrozenDict) -> Iterator[Event]:
        self.answered = True
        failed = _failed(line)
        self._remember_session(line, failed=failed)
        used = counters(line.get("usage"), USAGE_COUNTERS)
        if used:
            yield event("usage", used)
        if failed:
            yield self._error(line)
            return
        # An empty text here would hide what was streamed.
        text = text_at(line, "result") or None
        yield event(
            "result",
            {
                **self.about(line),
                **_present(text=text and self._main.completed(text)),
                "is_error": False,
                "raw": _raw(line),
            },
        )

    def _error(self, line: FrozenDict) -> Event:
        return error_event(_failure(line, self._made_up_error), self.about(line))

    # -- what is remembered ---------------------------------------------------------------

    def _stream(self, parent: str | None) -> _Stream:
        if parent is None:
            return self._main
        stream = self._subagents.pop(parent) or _Stream()
        self._subagents.put(stream, parent)
        return stream

    def _first_time(self, kind: str, parent: str | None, tool_id: str | None) -> bool:
        if tool_id is None:
            return True
        seen = self._seen.pop(kind, parent, tool_id)
        self._seen.put(True, kind, parent, tool_id)
        return not seen

    def _remember_session(self, line: FrozenDict, *, failed: bool) -> None:
        # A failed result that nothing came before carries the id that was asked for,
        # which is no proof that there is such a session.
        if not failed or self._initialised:
            self.session_id = text_at(line, "session_id") or self.session_id

    def about(self, line: FrozenDict | None = None) -> dict[str, Plain]:
        """Return what all endings tell about the turn; *line* is the one that ended it."""
        return _present(
            session_id=text_at(line, "session_id") or self.session_id,
            model=self.model,
            num_turns=number_at(line, "num_turns"),
            duration_ms=number_at(line, "duration_ms"),
            cost_usd=self._cost(line),
        )

    def _cost(self, line: FrozenDict | None) -> float | None:
        total = _amount(at(line, "total_cost_usd"))
        if total is None:
            return _amount(at(line, "cost_usd"))
        self.cost_total_usd = total
        # Newer versions add the total up over a resumed session, and tell the turn's part.
        by_model = at(line, "model_usage_since_last_result")
        if isinstance(by_model, FrozenDict):
            return _sum(_amount(at(used, "costUSD")) or 0.0 for used in by_model.values())
        return _finite(max(total - self._cost_before_usd, 0.0))


class _Stream:
    """The text of one speaker: what was streamed of the message that is being said."""

    def __init__(self) -> None:
        self._message: str | None = None
        self._unfinished = ""
        self._opening = True
        self._said = ""
        self._cut_off = False
        self._before = ""

    def cut(self) -> None:
        """Note that the message was cut off: the next one goes on in the middle of a word."""
        self._cut_off = True

    def completed(self, last: str) -> str:
        """Return the answer of which *last* is the last message, with what that one continues."""
        return last if last.startswith(self._before) else self._before + last

    def begin(self, message: str | None) -> None:
        """Note which message is being said; another one than before is a new message."""
        if self._cut_off:
            self._before += self._said
            self._message, self._unfinished, self._said = message, "", ""
            # Unless something was said before the cut, this is where the message opens.
            self._cut_off = False
        elif self._message is None and self._unfinished:
            self._message = message  # bare deltas, whose message is named only when it is finished
        elif message != self._message:
            self._message, self._unfinished, self._opening = message, "", True
            self._said = self._before = ""

    def add(self, text: str, parent: str | None) -> Iterator[Event]:
        """Say a piece of text and remember it."""
        self._unfinished += text
        yield from self._say(text, parent)

    def finish(self, text: str, parent: str | None) -> Iterator[Event]:
        """Say what has not been streamed of a finished block."""
        if self._unfinished.startswith(text):
            self._unfinished = self._unfinished[len(text) :]
            return
        if not text.startswith(self._unfinished):
            # What was streamed was given up and said anew, after a lost connection.
            self._opening, self._unfinished, self._said = True, "", ""
        rest, self._unfinished = text[len(self._unfinished) :], ""
        yield from self._say(rest, parent)

    def _say(self, text: str, parent: str | None) -> Iterator[Event]:
        if text:
            self._said += text
            opening, self._opening = self._opening, False
            yield event(
                "text",
                _present(
                    text=text,
                    message_boundary=opening or None,
                    parent_tool_use_id=parent,
                ),
            )


def _tells_of_cut(block: FrozenDict) -> bool:
    return (text_at(block, "text") or "").startswith(CUT_OFF)


def _joined(blocks: tuple[FrozenDict, ...]) -> Iterator[FrozenDict]:
    """Yield *blocks* with neighbouring text blocks made one."""
    text = ""
    for block in blocks:
        if block.get("type") == "text":
            text += text_at(block, "text") or ""
            continue
        if text:
            yield FrozenDict({"type": "text", "text": text})
            text = ""
        yield block
    if text:
        yield FrozenDict({"type": "text", "text": text})


def _failed(line: FrozenDict) -> bool:
    subtype = text_at(line, "subtype") or ""
    return line.get("is_error") is True or subtype == "error" or subtype.startswith("error_")


def _failure(line: FrozenDict, made_up: str | None) -> BackendError:
    message, status = _message(line), number_at(line, "api_error_status")
    raw = _raw(line)
    if status is not None:
        return from_status(PROVIDER, status, message=message, raw=raw)
    kind = _own_kind(line, message, made_up)
    if kind is not None:
        return of_kind(PROVIDER, kind, message=message, raw=raw)
    return from_names(PROVIDER, made_up, message=message, raw=raw)


def _own_kind(line: FrozenDict, message: str, made_up: str | None) -> str | None:
    """Return what the program itself says went wrong, if it was not the provider."""
    if message.startswith(LOST_CONVERSATION):
        return "conversation_lost"
    if line.get("subtype") in LIMIT_SUBTYPES or made_up == "max_output_tokens":
        return "response_incomplete"
    return "refusal" if line.get("stop_reason") == "refusal" else None


def _message(line: FrozenDict) -> str:
    errors = line.get("errors")
    listed = "; ".join(map(str, errors)) if isinstance(errors, tuple) else ""
    error = at(line, "error")
    said = error if isinstance(error, str) else text_at(error, "message")
    return text_at(line, "result") or listed or said or text_at(line, "message") or ""


def _raw(line: FrozenDict) -> FrozenDict:
    """Return the line without its text, which the event has already, and may be long."""
    return FrozenDict({key: value for key, value in line.items() if key != "result"})


def _amount(value: Plain) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return _finite(float(value))


def _sum(amounts: Iterable[float]) -> float | None:
    try:
        return math.fsum(amounts)
    except OverflowError:
        return None


def _finite(amount: float) -> float | None:
    """Return *amount* unless it is more than a number can say, which no JSON can repeat."""
    return amount if math.isfinite(amount) else None


def _present(**fields: Plain) -> dict[str, Plain]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
