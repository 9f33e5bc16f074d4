"""Plain values and loose ones, drawn by Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from genagent_protocol.plain import MAX_INT, MIN_INT, FrozenDict

#: Text that UTF-8 can carry: everything but lone surrogates.
texts = st.text(st.characters(codec="utf-8"), max_size=40)
integers = st.integers(MIN_INT, MAX_INT)
atoms = st.none() | st.booleans() | integers | st.floats() | texts | st.binary(max_size=40)

#: What callers pass: lists and dicts as they come.
loose = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(texts, inner, max_size=20)
    ),
    max_leaves=40,
)

#: What is frozen already.
plain = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=20).map(tuple)
        | st.dictionaries(texts, inner, max_size=20).map(FrozenDict)
    ),
    max_leaves=40,
)
