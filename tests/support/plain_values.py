"""Plain values and loose ones, drawn by Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from genagent_protocol.plain import MAX_INT, MIN_INT, FrozenDict

#: Text that UTF-8 can carry: everything but lone surrogates.
texts = st.text(st.characters(codec="utf-8"), max_size=35)
integers = st.integers(MIN_INT, MAX_INT)
atoms = st.none() | st.booleans() | integers | st.floats() | texts | st.binary(max_size=35)

#: What callers pass: lists and dicts as they come.
loose = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(texts, inner, max_size=5)
    ),
    max_leaves=15,
)

#: What is frozen already.
plain = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(texts, inner, max_size=5).map(FrozenDict)
    ),
    max_leaves=15,
)
