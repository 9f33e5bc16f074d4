"""A provider's failure in normal form, and the one way there and back.

`error_event` writes a `BackendError` into the data of a terminal `error` event as
a plain mapping; `failure_of` reads the reason of any terminal `error` event (and
`reason_of` that of a `Failed` answer) back as the value that callers branch on. A
reason that is not in normal form is the backend's own and stays as it was given.
A failure is never too long to be kept: `error_event` cuts what a provider said.

Nothing here retries. `retryable` only says whether trying again may help.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace

from genagent_backends.foreign import at, text_at
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain, encoded_size
from genagent_protocol.reasons import UNKNOWN, BackendError, BackendFailed, Failure

#: What `BackendError.kind` may be when it comes from one of our own backends.
ERROR_KINDS = (
    # from an HTTP status, or from a program that reported one
    "rate_limited",
    "authentication",
    "invalid_request",
    "server_error",
    "http_error",
    # from what was answered
    "refusal",
    "response_incomplete",
    "response_failed",
    "unexpected_stop_reason",
    "unexpected_response_status",
    "conversation_lost",
    "invalid_response",
    "line_too_long",
    # from what happened on the way
    "transport",
    "idle_timeout",
    "timeout",
    "not_started",
    "provider_error",
)

#: What is kept whole of what a provider said of a failure.
WHOLE_BYTES = 65_536
#: How much of a longer text is kept, and how much of a text in something longer.
TEXT_CHARACTERS = 8_192
INNER_TEXT_CHARACTERS = 1_024
STATUS = re.compile("[0-9]{3}")
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
#: What providers and their programs call an error where there is no status to go by.
KINDS_BY_NAME = {
    "rate_limit": "rate_limited",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "insufficient_quota": "rate_limited",
    "authentication_error": "authentication",
    "authentication_failed": "authentication",
    "invalid_api_key": "authentication",
    "oauth_org_not_allowed": "authentication",
    "permission_error": "authentication",
    "billing_error": "invalid_request",
    "invalid_prompt": "invalid_request",
    "invalid_request": "invalid_request",
    "invalid_request_error": "invalid_request",
    "model_not_found": "invalid_request",
    "not_found_error": "invalid_request",
    "request_too_large": "invalid_request",
    "api_error": "server_error",
    "overloaded": "server_error",
    "overloaded_error": "server_error",
    "server_error": "server_error",
    "timeout_error": "server_error",
}
RETRYABLE_KINDS = frozenset({"rate_limited", "server_error"})


def kind_of_status(status: int) -> str:
    """Return the kind of failure that an HTTP status stands for."""
    match status:
        case 429:
            return "rate_limited"
        case 401 | 403:
            return "authentication"
        case 400 | 404 | 422:
            return "invalid_request"
        case _:
            return "server_error" if status >= 500 else "http_error"


def from_status(
    provider: str,
    status: int,
    *,
    message: str = "",
    retry_after: str | None = None,
    raw: Plain = None,
) -> BackendError:
    """Return the failure that an HTTP *status* means; `retry_after` is the header's text."""
    return BackendError(
        provider=provider,
        kind=kind_of_status(status),
        retryable=status >= 500 or status in RETRYABLE_STATUSES,
        status=status,
        retry_after=retry_after,
        message=message,
        raw=raw,
    )


def from_names(
    provider: str, *names: str | None, message: str = "", raw: Plain = None
) -> BackendError:
    """Return the failure that the first known one of an error's *names* means."""
    known = (KINDS_BY_NAME[name] for name in names if name in KINDS_BY_NAME)
    return of_kind(provider, next(known, "provider_error"), message=message, raw=raw)


def says_error(said: FrozenDict) -> bool:
    """Return whether *said*, which came with a status of success, calls itself an error.

    An empty one is none.
    """
    return bool(said.get("error")) or "error" in (said.get("object"), said.get("type"))


def message_in(said: FrozenDict) -> str | None:
    """Return what is said for people beside a missing answer, wherever servers put it."""
    return text_at(said, "message") or text_at(said, "detail")


def from_error(provider: str, said: FrozenDict) -> BackendError:
    """Return the failure that *said* tells of, in its field `error` or by being one.

    It came with a status of success, so that what the error calls itself is all there
    is to go by: a number that is a status if it has one, else its code or type.
    """
    error = said.get("error") or said
    message = error if isinstance(error, str) else text_at(error, "message")
    message = message or message_in(said) or "the stream ended in an error"
    for holder in (error, said):
        for status in (_status(at(holder, "code")), _status(at(holder, "status"))):
            if status is not None:
                return from_status(provider, status, message=message, raw=said)
    names = [text_at(holder, name) for holder in (error, said) for name in ("code", "type")]
    return from_names(provider, *names, message=message, raw=said)


def no_answer(provider: str, said: FrozenDict | None, message: str) -> BackendError:
    """Return the failure of an answer that has nothing in it but what *said* may tell."""
    if said is None:
        return of_kind(provider, "invalid_response", message=message)
    told = from_error(provider, said)
    if told.status is not None:
        return told
    message = message_in(said) or message
    return of_kind(provider, "invalid_response", message=message, raw=said)


def _status(value: Plain) -> int | None:
    """Return the status of an error, which some proxies give as text."""
    if isinstance(value, str) and STATUS.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
        return value
    return None


def of_kind(provider: str, kind: str, *, message: str = "", raw: Plain = None) -> BackendError:
    """Return a failure of *kind*; trying again may help if the provider was overloaded."""
    return BackendError(
        provider=provider,
        kind=kind,
        retryable=kind in RETRYABLE_KINDS,
        message=message,
        raw=raw,
    )


def plain_reason(error: BackendError) -> FrozenDict:
    """Return *error* as plain data; fields without a value are left out."""
    said = {field.name: getattr(error, field.name) for field in fields(error)}
    return FrozenDict({"code": error.code, **{k: v for k, v in said.items() if v is not None}})


def error_event(error: BackendError, data: Mapping[str, object] | None = None) -> Event:
    """Return the terminal `error` event of *error*, with *data* beside its `reason`.

    Whatever a provider says, it is short enough for an agent to keep.
    """
    short = replace(
        error,
        message=error.message[:TEXT_CHARACTERS],
        retry_after=error.retry_after and error.retry_after[:TEXT_CHARACTERS],
        raw=shortened(error.raw),
    )
    told = event("error", data or {}).data
    beside = {name: shortened(value) for name, value in told.items()}
    return event("error", {**beside, "reason": plain_reason(short)})


def shortened(value: Plain) -> Plain:
    """Return *value* if it is short, else with its texts cut, else its beginning as JSON."""
    if encoded_size(value) <= WHOLE_BYTES:
        return value
    if isinstance(value, str):
        return value[:TEXT_CHARACTERS]
    cut = _texts_cut(value)
    if encoded_size(cut) <= WHOLE_BYTES:
        return cut
    return json.dumps(value, ensure_ascii=False, default=repr)[:TEXT_CHARACTERS]


def _texts_cut(value: Plain) -> Plain:
    match value:
        case str():
            return value[:INNER_TEXT_CHARACTERS]
        case FrozenDict():
            return FrozenDict({name: _texts_cut(item) for name, item in value.items()})
        case tuple():
            return tuple(_texts_cut(item) for item in value)
        case _:
            return value


def failure_of(terminal: Event) -> Failure:
    """Return why the turn that ended in this `error` event failed.

    The reason `unknown` stands for an event that gives none.
    """
    reason = terminal.data.get("reason")
    return UNKNOWN if reason is None else reason_of(reason)


def reason_of(reason: Plain) -> Failure:
    """Return a backend's reason as a value: `BackendError` if it is in normal form.

    Anything else is the backend's own and comes back inside `BackendFailed`.
    """
    if isinstance(reason, FrozenDict) and reason.get("code") == BackendError.code:
        return _normal(reason) or BackendFailed(reason)
    return BackendFailed(reason)


def _normal(reason: FrozenDict) -> BackendError | None:
    match reason:
        case {"provider": str(provider), "kind": str(kind), "retryable": bool(retryable)}:
            status, retry_after = reason.get("status"), reason.get("retry_after")
            message = reason.get("message", "")
            return BackendError(
                provider=provider,
                kind=kind,
                retryable=retryable,
                status=status if type(status) is int else None,
                retry_after=retry_after if isinstance(retry_after, str) else None,
                message=message if isinstance(message, str) else "",
                raw=reason.get("raw"),
            )
    return None
