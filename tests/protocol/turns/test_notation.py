"""The notation: what is written is read back as the same value, and nothing else is read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, event
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import EventCaptureOverflow, ExitReason, Overloaded
from genagent_protocol.turns.decisions import Declined, Prompt
from genagent_protocol.turns.effects import Emit, HandleInfo, Reply
from genagent_protocol.turns.inputs import MessageReceived, PromptSubmitted, TurnEnded
from genagent_protocol.turns.notation import Unreadable, read, write
from support.turns_values import done, failed, ref, response

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8")),
    st.binary(),
)
PLAIN = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
).map(freeze)

OVERLOADED = Overloaded(
    queue="prompts",
    limit="bytes",
    pending_count=1,
    pending_bytes=2,
    incoming_bytes=3,
    max_count=4,
    max_bytes=5,
)


@given(PLAIN)
def test_a_plain_value_reads_back_as_it_was(value: object) -> None:
    """Whatever a prompt or an event may hold can be part of a recording."""
    assert read(write(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        PromptSubmitted(ref=ref(1), prompt="p", recipient="bob", on_halt="fail"),
        TurnEnded(turn=3, outcome=done("x"), encoded_bytes=9),
        TurnEnded(turn=3, outcome=failed(OVERLOADED)),
        Declined(FrozenDict({"a": (1, -2.5)})),
        Reply(("a", 1), done()),
        Emit(name="terminated", reason=ExitReason("pre_run_failed", "why")),
        Limits(watchdog_ms=None),
        Completed(response("naïve ✓")),
        HandleInfo("m"),
        event("text", text="t", at_ms=4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_record_reads_back_as_it_was(value: object) -> None:
    """A recording that cannot be read back proves nothing."""
    assert read(write(value)) == value


def test_what_has_its_default_is_left_out() -> None:
    """Lines are read by people."""
    assert write(PromptSubmitted(ref=ref(1), prompt="p", recipient="bob"), {ref(1): "r1"}) == (
        "PromptSubmitted(ref=r1, prompt='p', recipient='bob')"
    )


def test_values_the_machine_only_carries_are_written_as_text() -> None:
    """A call or message of another room needs only to be recognised."""

    class Ticket:
        def __repr__(self) -> str:
            return "<ticket 7>"

    assert read(write(MessageReceived(Ticket(), 3))) == MessageReceived("<ticket 7>", 3)


def test_infinity_and_nan_have_no_literal_but_a_name() -> None:
    """They are floats like any other on the wire."""
    assert read(write((math.inf, -math.inf))) == (math.inf, -math.inf)
    back = read(write(math.nan))
    assert isinstance(back, float)
    assert math.isnan(back)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Prompt(",
        "open('/etc/passwd')",
        "__import__('os')",
        "().__class__",
        "Prompt('a', r9)",
        "Prompt('only the text')",
        "Prompt('a', ref('nothing'), extra=1)",
        "-'a'",
        "[1]",
        "1 + 1",
        "lambda: 0",
        "EventCaptureOverflow()",
    ],
)
def test_anything_else_is_unreadable(text: str) -> None:
    """Reading a recording runs no code and guesses nothing."""
    with pytest.raises(ValueError):  # a malformed ref is a ValueError of its own
        read(text)
    assert EventCaptureOverflow.code == "event_capture_overflow"


def test_an_unreadable_line_says_what_is_wrong() -> None:
    """Somebody wrote that line by hand."""
    with pytest.raises(Unreadable, match="cannot be made so"):
        read("Prompt()")
    assert read("Prompt('a', r1)", {"r1": ref(1)}) == Prompt("a", ref(1))
