"""A key that was sent is in no event, however a provider, a program or a tool repeats it."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.failures import error_event, failure_of, of_kind
from genagent_backends.redaction import (
    INSTEAD,
    SHORTEST_PART,
    Redactor,
    redacting,
    secrets_in,
    secrets_in_fields,
)
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import BackendError

KEY = "sk-canary-1234"
OTHER = "1234-sk-0ther-5678"
KEYS = (KEY, OTHER)
PARTS = st.sampled_from([*KEYS, "a word", "12", "é"])
RAW: st.SearchStrategy[Plain] = st.recursive(
    st.lists(PARTS, max_size=3).map(" ".join) | st.integers(-5, 5),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(PARTS, inner, max_size=3).map(FrozenDict)
    ),
    max_leaves=8,
)


def redacted(said: Event, *secrets: str) -> Event:
    return Redactor(secrets or KEYS).redacted(said)


def failed(message: str, raw: Plain = None) -> Event:
    return error_event(of_kind("chat", "authentication", message=message, raw=raw))


def message_of(said: Event) -> str:
    failure = failure_of(said)
    assert isinstance(failure, BackendError)
    return failure.message


@given(message=st.lists(PARTS).map(" ".join), raw=RAW)
def test_no_key_is_left_anywhere_in_a_failure(message: str, raw: Plain) -> None:
    """Not in the message, and not as deep inside what came as it may stand."""
    clean = redacted(failed(message, raw))

    assert not [key for key in KEYS if key in repr(clean)]
    failure = failure_of(clean)
    assert isinstance(failure, BackendError)
    assert failure.kind == "authentication"
    assert failure.message.count(INSTEAD) == message.count("sk-")


@given(raw=RAW, kind=st.sampled_from(["result", "tool_result", "text", "of their own"]))
def test_no_key_is_left_whole_in_any_other_event(raw: Plain, kind: str) -> None:
    """Programs tell of failures, and tools of what they read, in events of all kinds."""
    clean = redacted(event(kind, {"text": f"it is {KEY}", "reason": raw, "raw": raw}))

    assert not [key for key in KEYS if key in repr(clean)]
    assert clean.kind == kind
    assert clean.data["text"] == f"it is {INSTEAD}"


@given(pieces=st.lists(PARTS, max_size=5), data=st.data())
def test_no_part_of_a_key_is_left_where_a_text_was_cut(
    pieces: list[str], data: st.DataObject
) -> None:
    """The end of standard error may begin inside a key, and the beginning of a body end in one."""
    whole = "".join(pieces).encode()
    start, stop = sorted(data.draw(st.integers(0, len(whole))) for _ in range(2))
    cut = whole[start:stop].decode("utf-8", "replace")
    clean = message_of(redacted(failed(cut)))

    for key in KEYS:
        parts = {key[at : at + SHORTEST_PART] for at in range(len(key) - SHORTEST_PART + 1)}
        assert not [part for part in parts if part in clean]


@pytest.mark.parametrize(
    ("cut", "clean"),
    [
        (f"{KEY[3:]} is wrong", f"{INSTEAD} is wrong"),
        (f"wrong: {KEY[:-1]}", f"wrong: {INSTEAD}"),
        (KEY[2:-2], INSTEAD),
        (f"the {KEY[3:]} is a part", f"the {KEY[3:]} is a part"),
        (f"{KEY[-7:]} is short", f"{KEY[-7:]} is short"),
    ],
)
def test_what_may_be_the_rest_of_a_key_is_taken_off_an_edge(cut: str, clean: str) -> None:
    assert message_of(redacted(failed(cut), KEY)) == clean


def test_a_key_inside_another_does_not_leave_its_end() -> None:
    """Nor does one that overlaps with it."""
    clean = redacted(failed(f"bad {KEY}-long"), KEY, f"{KEY}-long")
    overlapping = redacted(failed(f"bad {KEY}-sk-0ther-5678 too"))

    assert message_of(clean) == f"bad {INSTEAD}"
    assert message_of(overlapping) == f"bad {INSTEAD} too"


@pytest.mark.parametrize("word", ["", "dummy", "anthropic", "transport", "lm-studio", "anything"])
def test_a_word_that_stands_for_no_key_is_left_alone(word: str) -> None:
    """Servers of this machine want a key and take any; an ordinary word may be said."""
    error = error_event(of_kind("anthropic", "transport", message=f"no {word} may ask"))

    assert redacted(error, word) is error


def test_what_is_ours_in_a_failure_is_never_a_key() -> None:
    """Programs branch on it, even if somebody's key is spelt like it."""
    own = "authentication_error_kind"
    error = error_event(
        BackendError(provider=own, kind=own, retryable=False, message=own, raw=None)
    )
    failure = failure_of(redacted(error, own))

    assert isinstance(failure, BackendError)
    assert (failure.provider, failure.kind, failure.message) == (own, own, INSTEAD)


def test_an_event_without_a_key_is_the_same() -> None:
    said = event("tool_result", {"content": f"a part: {KEY[:-1]}"})

    assert redacted(said) is said


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "GH_TOKEN", "Secret", "DB_PASSWORD", "x-team-key", "IN_FILE"]
)
def test_variables_that_hold_secrets_are_known_by_name(name: str) -> None:
    """Or because a file was named for them."""
    env = {name: "canary", "KEYBOARD": "us", "PATH": "/bin", "MONKEY": "no"}

    assert secrets_in(env, ["IN_FILE"]) == {"canary"}


@pytest.mark.parametrize("field", ["{}", "Bearer {}", "Token token={}", 'key="{}", v=1', "{}=="])
def test_a_key_is_known_whatever_stands_around_it_in_a_header_field(field: str) -> None:
    """A server repeats the key, and not the scheme; what is an ordinary word is no key."""
    key = "tok-1111122222333334"
    clean = Redactor(secrets_in_fields({"x-api-token": field.format(key)}))

    assert clean.words(f"Token {key} is revoked, Bearer") == f"Token {INSTEAD} is revoked, Bearer"


async def crashing(error: Exception) -> AsyncGenerator[Event, None]:
    yield event("text", text="hi")
    raise error


@given(words=st.lists(PARTS, max_size=5).map(" ".join), cut=st.integers(0, 40))
async def test_no_key_is_left_in_what_a_crash_says(words: str, cut: int) -> None:
    """Its words become the reason of the turn, and may quote what a provider said."""
    error = ValueError((words + KEY)[:cut])

    with pytest.raises((ValueError, RuntimeError)) as raised:
        _ = [said async for said in redacting(crashing(error), KEYS)]

    said = str(raised.value)
    assert not [key for key in KEYS if key[:SHORTEST_PART] in said]
    assert any(
        frame.name == "crashing" for frame in traceback.extract_tb(raised.value.__traceback__)
    )


async def test_a_crash_that_quotes_no_key_is_raised_as_it_is() -> None:
    """Who mends a backend wants to see the class, and what it is caused by."""
    error = ValueError(f"no {KEY[:3]} here")

    with pytest.raises(ValueError, match="no sk- here") as raised:
        _ = [said async for said in redacting(crashing(error), KEYS)]

    assert raised.value is error


async def test_a_crash_with_a_key_in_it_is_shown_without_what_it_came_from() -> None:
    """A traceback prints what an exception was raised after, and its words with it."""
    with pytest.raises(RuntimeError) as raised:
        _ = [said async for said in redacting(crashing(ValueError(f"{KEY}: odd")), KEYS)]

    assert str(raised.value) == f"ValueError: {INSTEAD}: odd"
    assert KEY not in "".join(traceback.format_exception(raised.value))
