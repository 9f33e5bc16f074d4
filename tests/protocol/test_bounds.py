"""A bound is two numbers, and admission is their arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.bounds import Bound, Usage, admit, release
from genagent_protocol.reasons import Overloaded

sizes = st.integers(0, 50)


@given(arriving=st.lists(sizes), cap=st.integers(0, 8), room=st.integers(0, 200))
def test_admission_agrees_with_a_plain_list(arriving: list[int], cap: int, room: int) -> None:
    """Running totals never drift from counting the queue by hand."""
    bound = Bound(max_count=cap, max_bytes=room)
    usage, queue = Usage(), list[int]()

    for size in arriving:
        verdict = admit(usage, size, bound, "prompts")
        fits = len(queue) + 1 <= cap and sum(queue) + size <= room
        assert isinstance(verdict, Usage) == fits
        if isinstance(verdict, Usage):
            usage, queue = verdict, [*queue, size]

    assert usage == Usage(count=len(queue), bytes=sum(queue))


@given(arriving=st.lists(sizes), data=st.data())
def test_what_was_admitted_is_released_to_the_last_byte(
    arriving: list[int], data: st.DataObject
) -> None:
    """A queue that was emptied is empty, in whatever order its items left."""
    bound = Bound(max_count=len(arriving), max_bytes=sum(arriving))
    usage = Usage()
    for size in arriving:
        verdict = admit(usage, size, bound, "notifications")
        assert isinstance(verdict, Usage)
        usage = verdict

    for size in data.draw(st.permutations(arriving)):
        usage = release(usage, size)

    assert usage == Usage()


def test_an_exact_fit_is_admitted_and_one_byte_more_is_not() -> None:
    """The limit is the largest value that is allowed."""
    bound = Bound(max_count=2, max_bytes=10)

    assert admit(Usage(count=1, bytes=4), 6, bound, "prompts") == Usage(count=2, bytes=10)
    refused = admit(Usage(count=1, bytes=4), 7, bound, "prompts")
    assert isinstance(refused, Overloaded)
    assert refused.limit == "bytes"


def test_an_item_that_breaks_both_limits_is_a_count_overload() -> None:
    """The count is judged first, and what is reported must not depend on chance."""
    refused = admit(Usage(count=1, bytes=9), 9, Bound(max_count=1, max_bytes=10), "self_chain")

    assert refused == Overloaded(
        queue="self_chain",
        limit="count",
        pending_count=1,
        pending_bytes=9,
        incoming_bytes=9,
        max_count=1,
        max_bytes=10,
    )


@pytest.mark.parametrize(
    "bound", [Bound(max_count=0, max_bytes=9), Bound(max_count=9, max_bytes=0)]
)
def test_a_bound_of_zero_disables_the_queue(bound: Bound) -> None:
    """Nothing that was encoded is empty."""
    assert isinstance(admit(Usage(), 1, bound, "prompts"), Overloaded)


@pytest.mark.parametrize(("usage", "size"), [(Usage(), 0), (Usage(count=1, bytes=3), 4)])
def test_releasing_what_was_never_admitted_is_a_bug(usage: Usage, size: int) -> None:
    """A total below zero would admit without end."""
    with pytest.raises(AssertionError):
        release(usage, size)
