"""A provider's failure has one normal form, and it survives the way there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.failures import (
    ERROR_KINDS,
    WHOLE_BYTES,
    error_event,
    failure_of,
    from_error,
    from_status,
    kind_of_status,
    reason_of,
)
from genagent_protocol.events import event
from genagent_protocol.plain import EMPTY, FrozenDict, Plain, encoded_size
from genagent_protocol.reasons import UNKNOWN, BackendError, BackendFailed

PLAIN: st.SearchStrategy[Plain] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda children: (
        st.lists(children).map(tuple) | st.dictionaries(st.text(), children).map(FrozenDict)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (429, "rate_limited", True),
        (401, "authentication", False),
        (403, "authentication", False),
        (400, "invalid_request", False),
        (404, "invalid_request", False),
        (422, "invalid_request", False),
        (500, "server_error", True),
        (529, "server_error", True),
        (408, "http_error", True),
        (409, "http_error", True),
        (425, "http_error", True),
        (418, "http_error", False),
        (307, "http_error", False),
    ],
)
def test_a_status_says_what_went_wrong_and_whether_trying_again_may_help(
    status: int, kind: str, retryable: bool
) -> None:
    """Callers branch on the kind, and retry on nothing but `retryable`."""
    error = from_status("anthropic", status)

    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert kind_of_status(status) in ERROR_KINDS


@given(
    kind=st.sampled_from(ERROR_KINDS),
    retryable=st.booleans(),
    status=st.none() | st.integers(100, 599),
    retry_after=st.none() | st.text(),
    message=st.text(),
    raw=PLAIN,
)
def test_a_failure_survives_its_way_through_an_event(
    kind: str,
    retryable: bool,
    status: int | None,
    retry_after: str | None,
    message: str,
    raw: Plain,
) -> None:
    """The agent reads exactly what the backend wrote, S258's header text included."""
    error = BackendError(
        provider="chat",
        kind=kind,
        retryable=retryable,
        status=status,
        retry_after=retry_after,
        message=message,
        raw=raw,
    )

    assert failure_of(error_event(error, {"session_id": "s"})) == error


@given(reason=PLAIN)
def test_any_other_reason_stays_the_backends_own(reason: Plain) -> None:
    """A reason is never lost, and never taken for a normal form that it is not."""
    assert reason_of(reason) == BackendFailed(reason)


def test_an_error_without_a_reason_is_unknown() -> None:
    """S011: the turn still has a reason to report."""
    assert failure_of(event("error", EMPTY)) == UNKNOWN


@pytest.mark.parametrize(
    "damaged",
    [
        {"code": "backend_error"},
        {"code": "backend_error", "provider": "a", "kind": "b", "retryable": "yes"},
        {"code": "backend_error", "provider": 1, "kind": "b", "retryable": True},
    ],
)
def test_a_damaged_normal_form_is_not_read_as_one(damaged: dict[str, Plain]) -> None:
    """Whoever writes the form by hand and gets it wrong still sees the reason."""
    assert reason_of(FrozenDict(damaged)) == BackendFailed(FrozenDict(damaged))


@given(status=st.integers(0, 999), inside=st.booleans(), as_text=st.booleans())
def test_a_status_in_an_error_is_found_however_it_is_written(
    status: int, inside: bool, as_text: bool
) -> None:
    """As a number or as text, in the error or beside it."""
    code: Plain = str(status) if as_text else status
    error = FrozenDict({"message": "m", **({"code": code} if inside else {})})
    said = {"error": error if inside else "m", **({} if inside else {"code": code})}
    told = from_error("chat", FrozenDict(said))

    assert told.message == "m"
    assert told.status == (status if 400 <= status <= 599 else None)


@given(raw=PLAIN, times=st.sampled_from([1, 100, 10_000]), text=st.text(min_size=1))
def test_no_failure_is_too_long_to_be_kept(raw: Plain, times: int, text: str) -> None:
    """Whatever a provider says, and however often; what is short is kept as it is."""
    long = text * times
    given = (raw,) * times
    error = from_status("p", 500, message=long, retry_after=long, raw=given)
    said = error_event(error, {"model": long})
    kept = failure_of(said)

    assert encoded_size(said.data) < 4 * WHOLE_BYTES
    assert isinstance(kept, BackendError)
    assert (kept.kind, kept.status) == (error.kind, error.status)
    assert long.startswith(kept.message)
    assert kept.raw == given or encoded_size(given) > WHOLE_BYTES
