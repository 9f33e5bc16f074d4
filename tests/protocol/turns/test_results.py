"""What is remembered of finished requests, and what has to go for something newer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, EventCoverage, Failed, Outcome, Response, event
from genagent_protocol.plain import encoded_size
from genagent_protocol.reasons import CANCELLED, AgentTerminated, BackendFailed, ExitReason
from genagent_protocol.turns.results import Results, outcome_size, remember
from support.turns_values import done, failed, ref

OUTCOMES = st.one_of(
    st.text(max_size=60).map(done), st.text(max_size=60).map(failed), st.just(failed(CANCELLED))
)


@given(
    outcomes=st.lists(OUTCOMES, max_size=12),
    count=st.integers(0, 5),
    room_bytes=st.integers(0, 800),
)
def test_the_memory_is_the_newest_that_fit(
    outcomes: list[Outcome], count: int, room_bytes: int
) -> None:
    """Evicting oldest first must leave the same as choosing from the newest back."""
    limits = Limits(max_tell_results=count, max_tell_result_bytes=room_bytes)
    results, kept = Results(), list[tuple[int, Outcome]]()

    for number, outcome in enumerate(outcomes):
        results = remember(results, ref(number), outcome, limits)
        kept.append((number, outcome))
        while len(kept) > count or sum(outcome_size(ref(n), o) for n, o in kept) > room_bytes:
            kept.pop(0)

    assert [(item.ref, item.outcome) for item in results.items] == [
        (ref(number), outcome) for number, outcome in kept
    ]
    assert results.bytes == sum(outcome_size(ref(n), o) for n, o in kept)
    for number, outcome in kept:
        assert results.find(ref(number)) == outcome
    assert results.find(ref(99)) is None


def test_a_response_counts_its_events_once_as_its_turn_counted_them() -> None:
    """Walking a thousand events again for each result would cost what the capture saved."""
    terminal = event("result", text="t")
    small = Response(
        text="t",
        final_message="t",
        events=(),
        terminal=terminal,
        event_coverage=EventCoverage(retained_bytes=0),
    )
    large = Response(
        text="t",
        final_message="t",
        events=(),
        terminal=terminal,
        event_coverage=EventCoverage(retained_bytes=5_000),
    )

    difference = outcome_size(ref(1), Completed(large)) - outcome_size(ref(1), Completed(small))

    assert difference == 5_000


def test_a_failure_counts_what_it_carries() -> None:
    """A backend may give a long reason, and that is what is kept."""
    short, long = (Failed(BackendFailed("x" * n)) for n in (10, 5_000))

    assert outcome_size(ref(1), long) > 5_000 > outcome_size(ref(1), short)
    assert outcome_size(ref(1), Failed(CANCELLED)) > encoded_size(ref(1).text)
    assert outcome_size(ref(1), Failed(AgentTerminated(ExitReason("shutdown")))) > 0
