"""What the Responses API answers: a fold from its stream, or its whole answer, to events.

It never raises, whatever arrives. The stream's last event carries the response, which
alone says how it was. Some servers leave out of it what they streamed before; that is
put in again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from genagent_backends.failures import error_event, from_error, of_kind, says_error
from genagent_backends.foreign import Held, at, counters, items_at, plain_mapping, text_at
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import BackendError

PROVIDER = "openai"
#: Stands before what the provider says, the end of which is cut off if it is long.
GIVEN_UP = "the next prompt begins a new conversation: "
LAST_EVENTS = frozenset({"response.completed", "response.failed", "response.incomplete"})
LOST_CHAIN = "previous_response_not_found"
TOO_LONG = frozenset({"context_length_exceeded", "context_window_exceeded"})


class OpenAIFold:
    """One answer. *lose* is called if it tells that an established conversation is lost.

    One that the provider has *stored* is continued by its id, and is no answer without.
    """

    provider = PROVIDER

    def __init__(
        self,
        session_id: str,
        *,
        established: bool,
        lose: Callable[[], None],
        stored: bool = False,
    ) -> None:
        self.known: Mapping[str, Plain] = {"session_id": session_id}
        self._established = established
        self._lose = lose
        self._stored = stored
        self.held = Held()
        self._pieces: list[str] = []
        self._items: list[FrozenDict] = []
        self._response: FrozenDict | None = None
        self._error: FrozenDict | None = None

    def said(self, said: FrozenDict) -> Iterator[Event]:
        """Yield what one event of the stream says."""
        kind = said.get("type")
        if kind == "response.output_text.delta":
            if piece := text_at(said, "delta"):
                self._pieces.append(piece)
                self.held.add(piece)
                yield event("text", {"text": piece})
        elif kind == "response.output_item.done":
            item = at(said, "item")
            if isinstance(item, FrozenDict):
                self._items.append(item)
                self.held.add(item)
        elif kind in LAST_EVENTS:
            response = at(said, "response")
            self._response = response if isinstance(response, FrozenDict) else FrozenDict()
        elif says_error(said):
            self._error = said

    def finished(self) -> bool:
        """Return whether the stream has come to its own end."""
        return self._response is not None or self._error is not None

    def closed(self) -> bool:
        """Return whether the stream may stop here; without its end nothing is certain."""
        return False

    def ending(self) -> Iterator[Event]:
        """Yield how the stream ended."""
        if self._response is not None:
            yield from self._judged(self._completed(self._response))
        elif self._error is not None:
            yield error_event(self._lost_or(from_error(PROVIDER, self._error)), self.known)

    def _completed(self, response: FrozenDict) -> FrozenDict:
        """Return *response* with the output that was streamed, where it has none."""
        given = items_at(response, "output")
        output = given or tuple(self._items)
        streamed = "".join(self._pieces)
        if streamed and not _text(FrozenDict({"output": output})):
            part = FrozenDict({"type": "output_text", "text": streamed, "annotations": ()})
            said: dict[str, Plain] = {"type": "message", "role": "assistant", "content": (part,)}
            output = (*output, FrozenDict(said))
        if output == given:
            return response
        # A stream has no bound on how many items it tells of.
        return plain_mapping({**response, "output": output})

    def whole(self, answer: FrozenDict) -> Iterator[Event]:
        """Yield everything that an answer in one piece says."""
        if not isinstance(answer.get("status"), str) and says_error(answer):
            yield error_event(self._lost_or(from_error(PROVIDER, answer)), self.known)
            return
        if text := _text(answer):
            yield event("text", {"text": text})
        yield from self._judged(answer)

    def refused(self, error: BackendError) -> BackendError:
        """Return the refusal, or that the conversation is lost."""
        return self._lost_or(error)

    def _lost_or(self, error: BackendError) -> BackendError:
        code = text_at(error.raw, "error", "code") or text_at(error.raw, "code")
        lost = (error.status in (None, 400, 404) and code == LOST_CHAIN) or (
            error.status in (None, 400) and code in TOO_LONG
        )
        if not lost or not self._established:
            return error
        self._lose()
        return replace(
            error,
            kind="conversation_lost",
            retryable=False,
            message=f"{GIVEN_UP}{error.message}",
        )

    def _judged(self, response: FrozenDict) -> Iterator[Event]:
        used = _usage(response)
        if used:
            yield event("usage", used)
        told = {
            **self.known,
            "model": response.get("model"),
            "response_id": response.get("id"),
            "status": response.get("status"),
        }
        failure = _failure(response)
        if failure is None and self._stored and not text_at(response, "id"):
            said = "the response has no id, without which the conversation cannot go on"
            failure = of_kind(PROVIDER, "invalid_response", message=said, raw=response)
        if failure is None:
            yield event("result", {**told, "text": _text(response), "raw": response})
        else:
            yield error_event(self._lost_or(failure), told)


def _failure(response: FrozenDict) -> BackendError | None:
    """Return why *response* is no answer, or None if it is one."""
    status = text_at(response, "status")
    match status:
        case "completed":
            refusal = _refusal(response)
            if refusal is None:
                return None
            return of_kind(PROVIDER, "refusal", message=refusal, raw=response)
        case "failed":
            return replace(from_error(PROVIDER, response), kind="response_failed")
        case "incomplete":
            why = text_at(response, "incomplete_details", "reason") or "no stated reason"
            said = f"the answer was cut off: {why}"
            return of_kind(PROVIDER, "response_incomplete", message=said, raw=response)
        case _:
            said = f"the response has the status {status or 'none'}"
            return of_kind(PROVIDER, "unexpected_response_status", message=said, raw=response)


def _parts(response: FrozenDict, kind: str, field: str) -> Iterator[str]:
    for item in items_at(response, "output"):
        if item.get("type") == "message":
            for part in items_at(item, "content"):
                if part.get("type") == kind:
                    yield text_at(part, field) or ""


def _text(response: FrozenDict) -> str:
    return "".join(_parts(response, "output_text", "text"))


def _refusal(response: FrozenDict) -> str | None:
    return next(_parts(response, "refusal", "refusal"), None)


def _usage(response: FrozenDict) -> dict[str, Plain]:
    usage = response.get("usage")
    return {
        **counters(usage, ("input_tokens", "output_tokens", "total_tokens")),
        **counters(at(usage, "output_tokens_details"), ("reasoning_tokens",)),
        **counters(at(usage, "input_tokens_details"), {"cached_tokens": "cached_input_tokens"}),
    }
