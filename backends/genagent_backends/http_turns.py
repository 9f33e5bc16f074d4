"""One turn as one HTTP request: from a request and a fold of the answer to events.

What differs between providers is a `Fold`: how their stream becomes text, what
their finished answer means, and which refusals are special. Everything else, and
every failure that is not the provider's word, is here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from genagent_backends.endpoints import Endpoint
from genagent_backends.failures import TEXT_CHARACTERS, error_event, from_status, of_kind
from genagent_backends.foreign import Held, at, items_at, json_value, text_at
from genagent_backends.halves import Halves
from genagent_backends.joining import joined
from genagent_backends.redaction import redacting, secrets_in_fields
from genagent_backends.sse import SseEvent, SseReader, SseTooLong
from genagent_backends.transport import (
    MAX_BODY_BYTES,
    USER_AGENT,
    Answer,
    Connections,
    Request,
    TransportProblem,
    too_long,
)
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import BackendError

#: Stands before what a provider says: the end of that is cut off if it is long, and is where the
#: rest of a key that was cut is looked for.
REDIRECTED = "redirects are not followed: key and conversation would go with them; "


class Fold(Protocol):
    """Makes events of one answer. It never raises, whatever the answer holds."""

    @property
    def provider(self) -> str:
        """Whose answer it is, as a failure names it."""
        ...

    @property
    def known(self) -> Mapping[str, Plain]:
        """What the data of any terminal event tells, such as the session id."""
        ...

    @property
    def held(self) -> Held:
        """How much of the stream is held until its end."""
        ...

    def said(self, said: FrozenDict) -> Iterator[Event]:
        """Yield what one event of the stream says."""
        ...

    def finished(self) -> bool:
        """Return whether the stream has come to its own end."""
        ...

    def closed(self) -> bool:
        """Return whether the stream may stop here, although its own end did not come."""
        ...

    def ending(self) -> Iterator[Event]:
        """Yield how the stream that has come to its end was: usage, and the terminal event."""
        ...

    def whole(self, answer: FrozenDict) -> Iterator[Event]:
        """Yield everything that an answer in one piece says, the terminal event last."""
        ...

    def refused(self, error: BackendError) -> BackendError:
        """Return what the refusal of the request means here; usually just that."""
        ...


@dataclass(frozen=True, slots=True)
class NoKey:
    """Why a request cannot be sent: the key that it needs is not there any more."""

    why: str


def request(
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, object],
    authenticate: Callable[[str], Mapping[str, str]],
    more_headers: Mapping[str, str] | None = None,
) -> Request | NoKey:
    """Return the request of one turn; *authenticate* makes header fields of a key."""
    key = endpoint.key.read()
    if key is None and endpoint.key.needed:
        return NoKey(endpoint.key.why_missing())
    headers = {
        "user-agent": USER_AGENT,
        **endpoint.headers,
        **(more_headers or {}),
        **(authenticate(key) if key is not None else {}),
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",
    }
    merged = {**endpoint.request_fields, **body}
    return Request(endpoint.base_url + path, headers, json.dumps(merged).encode(), key)


def bearer(key: str) -> Mapping[str, str]:
    """Return the header field in which most providers want their key."""
    return {"authorization": f"Bearer {key}"}


def converse(
    connections: Connections, endpoint: Endpoint, sent: Request | NoKey, fold: Fold
) -> AsyncGenerator[Event, None]:
    """Return the events of one turn, the terminal one last. Nothing is tried twice.

    Cancelling or closing them closes the connection.
    """
    if isinstance(sent, NoKey):
        return _unsent(of_kind(fold.provider, "authentication", message=sent.why), fold)
    secrets = secrets_in_fields(sent.headers) | {sent.key or ""}
    return redacting(joined(_turn(connections, endpoint, sent, fold)), secrets)


async def _unsent(error: BackendError, fold: Fold) -> AsyncGenerator[Event, None]:
    yield error_event(error, fold.known)


async def _turn(
    connections: Connections, endpoint: Endpoint, sent: Request, fold: Fold
) -> AsyncGenerator[Event, None]:
    try:
        async with (
            connections.post(endpoint, sent) as answer,
            aclosing(_events(answer, fold)) as events,
        ):
            async for event in events:
                yield event
                if event.terminal:
                    return
    except TransportProblem as problem:
        yield error_event(_transport(fold.provider, problem), fold.known)


async def _events(answer: Answer, fold: Fold) -> AsyncGenerator[Event, None]:
    if not 200 <= answer.status < 300:
        yield error_event(fold.refused(await _refusal(answer, fold.provider)), fold.known)
    elif answer.streamed:
        async with aclosing(_streamed(answer, fold)) as events:
            async for event in events:
                yield event
    else:
        body = json_value(await answer.body())
        if isinstance(body, FrozenDict):
            for event in fold.whole(body):
                yield event
        else:
            yield error_event(_invalid(fold.provider, answer, body), fold.known)


async def _streamed(answer: Answer, fold: Fold) -> AsyncGenerator[Event, None]:
    halves = Halves()
    try:
        async with aclosing(_received(answer)) as received:
            async for sse in received:
                for event in _said(sse, fold, halves):
                    yield event
                if fold.held.bytes > MAX_BODY_BYTES:
                    raise too_long()
                # What comes after the end means nothing, in the same chunk or in the next.
                if fold.finished():
                    break
    except TransportProblem:
        # However the connection ended, or fell silent, after an answer that was whole.
        if not fold.finished() and not fold.closed():
            raise
    if not fold.finished() and not fold.closed():
        raise TransportProblem("transport", "the stream ended before its end", retryable=True)
    for event in fold.ending():
        yield event


async def _received(answer: Answer) -> AsyncGenerator[SseEvent, None]:
    reader = SseReader()
    async with aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            try:
                for sse in reader.feed(chunk):
                    yield sse
            except SseTooLong as error:
                raise TransportProblem("line_too_long", str(error), retryable=False) from None


def _said(sse: SseEvent, fold: Fold, halves: Halves) -> Iterator[Event]:
    said = json_value(sse.data, halves)
    if sse.name == "error":
        yield from fold.said(_named_error(sse, said))
    elif isinstance(said, FrozenDict):
        yield from fold.said(said)
    elif sse.data.strip() == "[DONE]":
        yield from fold.said(FrozenDict({"type": "[DONE]"}))


def _named_error(sse: SseEvent, said: Plain | ValueError) -> FrozenDict:
    """Return an event that is called an error as one that every fold knows as one."""
    if not isinstance(said, FrozenDict):
        said = FrozenDict({"message": sse.data[:TEXT_CHARACTERS]})
    if said.get("type") == "error" or said.get("error"):
        return FrozenDict({**said, "type": "error"})
    return FrozenDict({"type": "error", "error": said})


async def _refusal(answer: Answer, provider: str) -> BackendError:
    try:
        body = await answer.body()
    except TransportProblem:
        body = b""  # the status alone says enough
    # All of it is read, however long: what it means may stand behind a copy of the request.
    parsed = json_value(body)
    raw = _text(body) if isinstance(parsed, ValueError) else parsed
    message = _message_in(raw) or f"{provider} answered {answer.status}"
    if 300 <= answer.status < 400:
        message = REDIRECTED + message
    return from_status(
        provider,
        answer.status,
        message=message,
        retry_after=answer.retry_after,
        raw=raw,
    )


def _message_in(refusal: Plain) -> str | None:
    """Return what a refusal says for people, wherever servers put it."""
    error = at(refusal, "error")
    said = error if isinstance(error, str) else text_at(error, "message")
    # A list of what is wrong with the request, each with the place of it.
    wrong = [text_at(each, "msg") for each in items_at(refusal, "detail")]
    listed = "; ".join(each for each in wrong if each)
    return said or text_at(refusal, "message") or text_at(refusal, "detail") or listed


def _invalid(provider: str, answer: Answer, body: Plain | ValueError) -> BackendError:
    return BackendError(
        provider=provider,
        kind="invalid_response",
        retryable=False,
        status=answer.status,
        message=f"{provider} answered with something that is no JSON object",
        raw=None if isinstance(body, ValueError) else body,
    )


def _transport(provider: str, problem: TransportProblem) -> BackendError:
    return BackendError(
        provider=provider, kind=problem.kind, retryable=problem.retryable, message=str(problem)
    )


def _text(body: bytes) -> str:
    return body[: 4 * TEXT_CHARACTERS].decode("utf-8", "replace")[:TEXT_CHARACTERS]
