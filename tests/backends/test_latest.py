"""Of what others name, the latest is remembered, and no more than so much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.latest import Latest

NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]) | st.none(), min_size=1, max_size=2)


@given(
    most=st.integers(1, 4),
    steps=st.lists(st.tuples(st.sampled_from(["put", "pop"]), NAMES), max_size=30),
)
def test_it_agrees_with_a_plain_list(most: int, steps: list[tuple[str, list[str | None]]]) -> None:
    """Who was put last is the newest, and one too many costs the oldest."""
    latest, held = Latest[int](most), list[tuple[list[str | None], int]]()
    for number, (step, name) in enumerate(steps):
        known = [value for other, value in held if other == name]
        held = [(other, value) for other, value in held if other != name]
        if step == "pop":
            assert latest.pop(*name) == (known[0] if known else None)
        else:
            latest.put(number, *name)
            held = [*held, (name, number)][-most:]
        assert len(latest) == len(held)


def test_no_name_costs_what_it_is_long() -> None:
    """Nor is one that no encoding knows refused."""
    latest = Latest[str](2)
    latest.put("long", "x" * 100_000)
    latest.put("half", "\ud800")

    assert max(map(len, latest._values)) <= 32
    assert latest.pop("x" * 100_000) == "long"
    assert latest.pop("\ud800") == "half"
