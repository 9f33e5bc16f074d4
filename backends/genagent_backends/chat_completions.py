"""What a Chat Completions server answers: a fold from its stream, or whole answer, to events.

It never raises, whatever arrives. Servers differ: some name no reason to stop, some
send usage in a chunk of its own, some end without the closing mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from genagent_backends.failures import (
    error_event,
    from_error,
    message_in,
    no_answer,
    of_kind,
    says_error,
)
from genagent_backends.foreign import Held, at, counters, items_at, number_at, text_at
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import BackendError

PROVIDER = "chat"
TEXT_PARTS = frozenset({"text", "output_text"})
#: Some servers end an ordinary answer without saying why.
ANSWERS = frozenset({"stop", "eos", None})


class ChatFold:
    """One answer, of which the first choice counts."""

    provider = PROVIDER

    def __init__(self, session_id: str) -> None:
        self.known: Mapping[str, Plain] = {"session_id": session_id}
        self.held = Held()
        self._pieces: list[str] = []
        self._refusal: list[str] = []
        self._told: dict[str, Plain] = {}
        self._usage: dict[str, Plain] = {}
        self._stop_reason: str | None = None
        self._done = False
        self._answered = False
        #: What was said for people in the place of an answer.
        self._instead: FrozenDict | None = None
        self._error: FrozenDict | None = None

    def said(self, said: FrozenDict) -> Iterator[Event]:
        """Yield what one chunk of the stream says."""
        if said.get("type") == "[DONE]":
            self._done = True
        elif says_error(said):
            self._error = said
        else:
            self._learn(said)
            for choice in _first(items_at(said, "choices")):
                self._answered = True
                piece = _text(at(choice, "delta", "content"))
                if refusal := text_at(choice, "delta", "refusal"):
                    self._refusal.append(refusal)
                    self.held.add(refusal)
                self._stop_reason = text_at(choice, "finish_reason") or self._stop_reason
                if piece:
                    self._pieces.append(piece)
                    self.held.add(piece)
                    yield event("text", {"text": piece})

    def _learn(self, said: FrozenDict) -> None:
        if message_in(said):
            self._instead = said
        self._usage.update(_usage(said.get("usage")))
        for name in ("id", "model", "system_fingerprint"):
            if isinstance(said.get(name), str):
                self._told[name] = said[name]

    def finished(self) -> bool:
        """Return whether the stream has come to its own end."""
        return self._done or self._error is not None

    def closed(self) -> bool:
        """Return whether a stream without the closing mark was whole all the same."""
        refused = self._instead is not None and not self._answered
        return self._stop_reason is not None or refused

    def ending(self) -> Iterator[Event]:
        """Yield how the stream ended."""
        if self._error is not None:
            yield error_event(from_error(PROVIDER, self._error), self.known)
            return
        if not self._answered:
            nothing = no_answer(PROVIDER, self._instead, "the answer has no choices")
            yield error_event(nothing, self.known)
            return
        yield from self._judged("".join(self._pieces), "".join(self._refusal))

    def whole(self, answer: FrozenDict) -> Iterator[Event]:
        """Yield everything that an answer in one piece says."""
        if says_error(answer):
            yield error_event(from_error(PROVIDER, answer), self.known)
            return
        choices = _first(items_at(answer, "choices"))
        if not choices:
            nothing = no_answer(PROVIDER, answer, "the answer has no choices")
            yield error_event(nothing, self.known)
            return
        self._learn(answer)
        text = _text(at(choices[0], "message", "content"))
        self._stop_reason = text_at(choices[0], "finish_reason") or None
        if text:
            yield event("text", {"text": text})
        yield from self._judged(text, text_at(choices[0], "message", "refusal") or "")

    def refused(self, error: BackendError) -> BackendError:
        """Return the refusal as it is: the status says enough."""
        return error

    def _judged(self, text: str, refusal: str) -> Iterator[Event]:
        if self._usage:
            yield event("usage", self._usage)
        told = {
            **self.known,
            "model": self._told.get("model"),
            "stop_reason": self._stop_reason,
        }
        failure = _not_an_answer(self._stop_reason, refusal)
        if failure is None:
            yield event("result", {**told, "text": text, "raw": FrozenDict(self._told)})
            return
        kind, message = failure
        raw = FrozenDict({**self._told, "finish_reason": self._stop_reason})
        yield error_event(of_kind(PROVIDER, kind, message=message, raw=raw), told)


def _first(choices: tuple[FrozenDict, ...]) -> tuple[FrozenDict, ...]:
    """Return the choice with the number 0, which need be neither the first nor there."""
    return tuple(c for c in choices if number_at(c, "index") in (None, 0))[:1]


def _text(content: Plain) -> str:
    """Return the text of a message, which some servers give as a list of parts."""
    if isinstance(content, str):
        return content
    parts = items_at(FrozenDict({"parts": content}), "parts")
    return "".join(text_at(part, "text") or "" for part in parts if part.get("type") in TEXT_PARTS)


def _not_an_answer(stop_reason: str | None, refusal: str) -> tuple[str, str] | None:
    if refusal:
        return "refusal", refusal
    if stop_reason in ANSWERS:
        return None
    if stop_reason == "content_filter":
        return "refusal", "the answer was withheld by a content filter"
    if stop_reason == "length":
        return "response_incomplete", "the answer was cut off: length"
    return "unexpected_stop_reason", f"the answer stopped for {stop_reason}"


def _usage(usage: Plain) -> dict[str, Plain]:
    return {
        **counters(
            usage,
            {
                "prompt_tokens": "input_tokens",
                "completion_tokens": "output_tokens",
                "total_tokens": "total_tokens",
            },
        ),
        **counters(at(usage, "completion_tokens_details"), ("reasoning_tokens",)),
        **counters(at(usage, "prompt_tokens_details"), {"cached_tokens": "cached_input_tokens"}),
    }
