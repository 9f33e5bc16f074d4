"""An event is deeply frozen, counts its own bytes, and knows whether it ends its turn."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.events import (
    KINDS,
    TERMINAL_KINDS,
    Completed,
    Event,
    EventCoverage,
    Failed,
    Response,
    event,
    text_or_none,
)
from genagent_protocol.plain import FrozenDict, NotPlain
from genagent_protocol.reasons import Reason
from support.plain_values import loose, texts

data = st.dictionaries(texts, loose, max_size=5)


@given(kind=texts, given_data=data, at_ms=st.integers(0, 2**40))
def test_an_event_counts_what_its_encoding_takes(
    kind: str, given_data: dict[str, object], at_ms: int
) -> None:
    """The capture limits of a turn are about memory, so they count real bytes."""
    made = event(kind, given_data, at_ms=at_ms)

    assert made.size_bytes == len(msgpack.packb((made.kind, made.data, made.at_ms)))
    hash(made)


def test_an_event_does_not_change_with_what_it_was_made_of() -> None:
    """A backend may go on filling the list that it gave away."""
    parts = ["a"]
    made = event("text", {"parts": parts})

    parts.append("b")

    assert made.data == FrozenDict(parts=("a",))


def test_named_data_joins_the_rest_and_wins() -> None:
    """Both spellings make one mapping."""
    assert event("text", {"a": 1, "b": 1}, b=2).data == FrozenDict(a=1, b=2)
    assert event("text").data == FrozenDict()


def test_data_that_cannot_be_sent_is_refused_where_the_event_is_made() -> None:
    """Later nobody would know which line of which backend put it in."""
    with pytest.raises(NotPlain, match=r"when\[0\]: object"):
        event("text", when=[object()])


@pytest.mark.parametrize("kind", [*KINDS, "thinking"])
def test_only_result_and_error_end_a_turn(kind: str) -> None:
    """A backend may invent kinds, and none of them can end a turn by accident."""
    assert Event(kind).terminal == (kind in ("result", "error"))
    assert frozenset(KINDS) >= TERMINAL_KINDS


@pytest.mark.parametrize(("value", "text"), [("", ""), ("a", "a"), (None, None), (1, None)])
def test_empty_text_is_text(value: str | int | None, text: str | None) -> None:
    """An empty answer is an answer, which is not the same as none."""
    assert text_or_none(value) == text


def test_a_response_and_an_outcome_are_values() -> None:
    """They are cached, compared, and sent to several receivers."""
    terminal = event("result", text="hi")
    made = [
        Completed(
            Response(
                text="hi",
                final_message="hi",
                events=(terminal,),
                terminal=terminal,
                event_coverage=EventCoverage(observed_events=1, retained_events=1),
            )
        )
        for _ in range(2)
    ]

    assert made[0] == made[1]
    assert len({*made, Failed(Reason("timeout"))}) == 2
