"""Plain values and loose ones, drawn by Hypothesis."""

from __future__ import annotations

import enum
from pathlib import Path

from hypothesis import strategies as st

from genagent_protocol.plain import MAX_INT, MIN_INT, FrozenDict
from genagent_protocol.supervision.terms import RestartPolicy

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


class _Kind(enum.StrEnum):
    PERMANENT = "permanent"


class _Mixed(str, enum.Enum):  # noqa: UP042  # the older kind is the point
    ECHO = "echo"


class _Number(enum.IntEnum):
    FIVE = 5


#: What people hand over by mistake, beside everything that can be sent somewhere.
anything = (
    atoms
    | st.dictionaries(st.sampled_from(["A", "watchdog_ms", "model"]), atoms, max_size=2)
    | st.sampled_from(
        [
            *(float("nan"), 2**64, 10**30, object(), object, {1, 2}, Path("/x"), "\ud800"),
            *("a\0b", "permanent", _Kind.PERMANENT, _Mixed.ECHO, _Number.FIVE, {"A=B": "x"}),
            *({"": "x"}, {"A": "\0"}, {"A": "b"}, {"watchdog_ms": 1}, {"watchdogms": 1}, "m:C"),
            *(RestartPolicy(), [[]], [1, (2,)], {"a": object()}, {1: 2}, print),
        ]
    )
)
