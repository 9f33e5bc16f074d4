"""A key that was sent is in no failure, however a provider repeats it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.failures import error_event, failure_of, of_kind
from genagent_backends.redaction import INSTEAD, redacted, secrets_in
from genagent_protocol.events import event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import BackendError

KEY = "sk-canary-1234"
PARTS = st.sampled_from([KEY, "sk-other-5678", "a word"])
RAW: st.SearchStrategy[Plain] = st.recursive(
    st.lists(PARTS, max_size=3).map(" ".join) | st.integers(-5, 5),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(PARTS, inner, max_size=3).map(FrozenDict)
    ),
    max_leaves=8,
)


@given(message=st.lists(PARTS).map("".join), raw=RAW)
def test_no_key_is_left_anywhere_in_a_failure(message: str, raw: Plain) -> None:
    """Not in the message, and not as deep inside what came as it may stand."""
    error = of_kind("chat", "authentication", message=message, raw=raw)
    clean = redacted(error_event(error), [KEY, "sk-other-5678"])

    assert KEY not in repr(clean)
    assert "sk-other" not in repr(clean)
    failure = failure_of(clean)
    assert isinstance(failure, BackendError)
    assert failure.kind == "authentication"
    assert failure.message.count(INSTEAD) == message.count("sk-")


def test_a_key_inside_another_does_not_leave_its_end() -> None:
    """The longer one goes first."""
    error = error_event(of_kind("chat", "authentication", message=f"bad {KEY}-long"))
    clean = redacted(error, [KEY, f"{KEY}-long"])

    assert failure_of(clean) == failure_of(
        error_event(of_kind("chat", "authentication", message=f"bad {INSTEAD}"))
    )


def test_what_is_no_failure_or_no_key_is_left_alone() -> None:
    """The model may say what it likes, and a placeholder is an ordinary word."""
    said = event("text", text=KEY)
    error = error_event(of_kind("chat", "authentication", message="no dummy may ask"))

    assert redacted(said, [KEY]) is said
    assert redacted(error, ["dummy", ""]) is error


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "GH_TOKEN", "Secret", "DB_PASSWORD", "x-team-key", "IN_FILE"]
)
def test_variables_that_hold_secrets_are_known_by_name(name: str) -> None:
    """Or because a file was named for them."""
    env = {name: "canary", "KEYBOARD": "us", "PATH": "/bin", "MONKEY": "no"}

    assert secrets_in(env, ["IN_FILE"]) == {"canary"}
