"""What the Messages API answers: a fold from its stream, or its whole answer, to events.

It never raises, whatever arrives. Only `end_turn` and `stop_sequence` are answers;
a refusal or an answer that was cut off is a failure even with text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from genagent_backends.failures import error_event, from_error, no_answer, of_kind, says_error
from genagent_backends.foreign import (
    Held,
    at,
    counters,
    items_at,
    json_value,
    number_at,
    plain_mapping,
    text_at,
    updated,
)
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import BackendError

PROVIDER = "anthropic"
USAGE_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)
ANSWERS = frozenset({"end_turn", "stop_sequence"})
INCOMPLETE = frozenset({"max_tokens", "model_context_window_exceeded"})
#: How each kind of delta continues which field of its block.
GROWING = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("input", "partial_json"),
}


class AnthropicFold:
    """One answer. A stream builds up the same message that a whole answer is."""

    provider = PROVIDER

    def __init__(self, session_id: str) -> None:
        self.known: Mapping[str, Plain] = {"session_id": session_id}
        self.held = Held()
        self._message = FrozenDict()
        self._blocks: dict[int, dict[str, list[str]]] = {}
        self._citations: dict[int, list[Plain]] = {}
        self._starts: dict[int, FrozenDict] = {}
        self._usage = FrozenDict()
        self._stopped = False
        self._error: FrozenDict | None = None

    def said(self, said: FrozenDict) -> Iterator[Event]:
        """Yield what one event of the stream says."""
        kind = said.get("type")
        if kind in ("message_start", "content_block_start", "message_delta"):
            self.held.add(said)
        match kind:
            case "message_start":
                self._message = updated(self._message, at(said, "message"))
                self._usage = updated(self._usage, at(said, "message", "usage"))
            case "content_block_start":
                self._starts[_index(said)] = updated({}, at(said, "content_block"))
            case "content_block_delta":
                yield from self._grow(_index(said), at(said, "delta"))
            case "message_delta":
                self._message = updated(self._message, at(said, "delta"))
                self._usage = updated(self._usage, at(said, "usage"))
            case "message_stop":
                self._stopped = True
            case _ if says_error(said):
                self._error = said

    def _grow(self, index: int, delta: Plain) -> Iterator[Event]:
        if text_at(delta, "type") == "citations_delta":
            self._citations.setdefault(index, []).append(at(delta, "citation"))
            self.held.add(at(delta, "citation"))
        known = GROWING.get(text_at(delta, "type") or "")
        if known is None:
            return
        field, source = known
        piece = text_at(delta, source) or ""
        self._blocks.setdefault(index, {}).setdefault(field, []).append(piece)
        self.held.add(piece)
        if field == "text" and piece:
            yield event("text", {"text": piece})

    def finished(self) -> bool:
        """Return whether the stream has come to its own end."""
        return self._stopped or self._error is not None

    def closed(self) -> bool:
        """Return whether the stream may stop here; without its end nothing is certain."""
        return False

    def ending(self) -> Iterator[Event]:
        """Yield how the stream ended."""
        if self._error is not None:
            yield error_event(from_error(PROVIDER, self._error), self.known)
            return
        indices = sorted({*self._starts, *self._blocks, *self._citations})
        content = tuple(self._block(index) for index in indices)
        message = {**self._message, "content": content, "usage": self._usage}
        # A stream has no bound on how many blocks and citations it tells of.
        yield from self._judged(plain_mapping(message))

    def _block(self, index: int) -> FrozenDict:
        start = self._starts.get(index, FrozenDict({"type": "text"}))
        grown: dict[str, Plain] = {
            field: (text_at(start, field) or "") + "".join(pieces)
            for field, pieces in self._blocks.get(index, {}).items()
        }
        if "input" in grown:
            grown["input"] = _input(str(grown["input"]), start.get("input"))
        if cited := self._citations.get(index):
            already = start.get("citations")
            grown["citations"] = (*(already if isinstance(already, tuple) else ()), *cited)
        return FrozenDict({**start, **grown})

    def whole(self, answer: FrozenDict) -> Iterator[Event]:
        """Yield everything that an answer in one piece says."""
        if says_error(answer):
            yield error_event(from_error(PROVIDER, answer), self.known)
            return
        if not isinstance(answer.get("content"), tuple):
            nothing = no_answer(PROVIDER, answer, "the answer has no content")
            yield error_event(nothing, self.known)
            return
        if text := _text(answer):
            yield event("text", {"text": text})
        yield from self._judged(answer)

    def refused(self, error: BackendError) -> BackendError:
        """Return the refusal as it is: the status says enough."""
        return error

    def _judged(self, message: FrozenDict) -> Iterator[Event]:
        used = counters(message.get("usage"), USAGE_COUNTERS)
        if used:
            yield event("usage", used)
        stop_reason = text_at(message, "stop_reason")
        told = {**self.known, "model": message.get("model"), "stop_reason": stop_reason}
        if stop_reason in ANSWERS:
            yield event("result", {**told, "text": _text(message), "raw": message})
            return
        kind, why = _not_an_answer(stop_reason)
        yield error_event(of_kind(PROVIDER, kind, message=why, raw=message), told)


def _not_an_answer(stop_reason: str | None) -> tuple[str, str]:
    if stop_reason == "refusal":
        return "refusal", "the model refused to answer"
    if stop_reason in INCOMPLETE:
        return "response_incomplete", f"the answer was cut off: {stop_reason}"
    return "unexpected_stop_reason", f"the answer stopped for {stop_reason or 'no stated reason'}"


def _input(written: str, start: Plain) -> Plain:
    """Return what a tool was given, or what was *written* of it if that cannot be read."""
    if not written:
        return start
    value = json_value(written)
    return value if isinstance(value, FrozenDict) else written


def _text(message: FrozenDict) -> str:
    return "".join(
        text_at(block, "text") or ""
        for block in items_at(message, "content")
        if block.get("type") == "text"
    )


def _index(said: FrozenDict) -> int:
    return number_at(said, "index") or 0
