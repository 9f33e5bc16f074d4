"""A keyed mapping never changes, and reads like a dict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.supervision.keyed import Keyed

entries = st.dictionaries(st.integers(0, 9), st.text(max_size=3))


@given(before=entries, key=st.integers(0, 9), value=st.text(max_size=3))
def test_putting_and_dropping_agree_with_a_dict(
    before: dict[int, str], key: int, value: str
) -> None:
    """The new mapping differs in one entry; the old one is as it was."""
    keyed = Keyed(before.items())

    put, dropped = keyed.put(key, value), keyed.without(key)

    assert dict(keyed) == before
    assert dict(put) == {**before, key: value}
    assert dict(dropped) == {k: v for k, v in before.items() if k != key}
    assert list(put) == list({**before, key: value})


@given(before=entries)
def test_equal_mappings_hash_alike_in_any_order(before: dict[int, str]) -> None:
    """Tables that differ only in history are one table."""
    one, other = Keyed(before.items()), Keyed(reversed(before.items()))

    assert one == other
    assert hash(one) == hash(other)
    assert one != before
    assert str(before) in repr(one)


def test_several_entries_are_dropped_at_once() -> None:
    """Missing ones do not matter."""
    keyed = Keyed({1: "a", 2: "b", 3: "c"}.items())

    assert dict(keyed.without(1, 3, 9)) == {2: "b"}
    assert len(keyed.without()) == 3


@dataclass(frozen=True)
class _Counted:
    """A key that says how often it was hashed."""

    number: int
    hashed: ClassVar[list[int]] = []

    def __hash__(self) -> int:
        self.hashed.append(self.number)
        return hash(self.number)


def test_a_change_hashes_no_key_but_its_own() -> None:
    """A monitor more took the daemon a millisecond where there were thousands."""
    keyed = Keyed((_Counted(number), "x") for number in range(100))
    _Counted.hashed.clear()

    keyed.put(_Counted(100), "y")
    keyed.without(_Counted(3), _Counted(4))

    assert _Counted.hashed == [100, 3, 4]
