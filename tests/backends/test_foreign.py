"""What a provider sends becomes a plain value, whatever it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_backends.foreign import (
    FOREIGN_DEPTH,
    TOO_DEEP,
    counters,
    items_at,
    json_object,
    json_value,
    number_at,
    plain,
    plain_mapping,
    text_at,
    updated,
)
from genagent_protocol.plain import MAX_ITEMS, MAX_KEY_CHARS, FrozenDict, freeze
from support.narrow_bounds import FOREIGN_ITEMS, KEY_CHARS, narrow_bounds

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(value=JSON)
def test_any_json_becomes_a_plain_value(value: object) -> None:
    """One odd number in a tool result must not cost the turn."""
    read = json_value(json.dumps(value))

    assert not isinstance(read, ValueError)
    assert repr(freeze(read)) == repr(read)


@given(value=JSON, more=JSON)
def test_any_json_of_any_size_becomes_a_plain_value(value: object, more: object) -> None:
    """What is too long is cut and says so; there is room for some fields beside what is left."""
    with narrow_bounds():
        long = {"k" * KEY_CHARS + letter: more for letter in "xyz"}
        read = plain([value, long] * FOREIGN_ITEMS)
        both = updated(plain_mapping({"a": value}), plain({f"{n}": more for n in range(50)}))

        assert repr(freeze({**both, "our": 1, "own": read})) == repr(
            {**both, "our": 1, "own": read}
        )
        assert isinstance(kept := plain(long), FrozenDict)
        assert len(kept) == len(long)
        assert plain(read) == read
        assert plain(both) == both


def test_a_list_a_mapping_and_a_key_that_are_too_long_are_cut_and_say_so() -> None:
    """Nothing on the wire holds more, and one tool result must not cost the turn."""
    items = json_value(json.dumps([0] * (MAX_ITEMS + 1)))
    pairs = json_value(json.dumps({f"{n}": n for n in range(MAX_ITEMS + 1)}))
    key = json_value(json.dumps({"k" * (MAX_KEY_CHARS + 1): 1, "k" * MAX_KEY_CHARS: 2}))

    assert isinstance(items, tuple)
    assert isinstance(pairs, FrozenDict)
    assert freeze(items) is items
    assert freeze(pairs) is pairs
    assert items[-2:] == (0, "(18 more items)")
    assert list(pairs.items())[-1] == ("(18 more items)", None)
    assert key == {f"(a key of {MAX_KEY_CHARS + 1} characters)": 1, "k" * MAX_KEY_CHARS: 2}


def test_two_keys_that_are_too_long_stay_two() -> None:
    """Whatever they have in common, their lengths included."""
    long = [letter * (MAX_KEY_CHARS + 1) for letter in "abc"]
    note = f"(a key of {MAX_KEY_CHARS + 1} characters"

    assert plain({key: key[0] for key in long}) == {
        f"{note})": "a",
        f"{note}, number 2)": "b",
        f"{note}, number 3)": "c",
    }


@given(data=st.binary(max_size=50) | st.text(max_size=50))
def test_anything_else_is_an_error_and_never_an_exception(data: bytes | str) -> None:
    """Noise on standard output is skipped, whatever bytes it is made of."""
    read = json_value(data)

    assert isinstance(read, ValueError) or freeze(read) is not NotImplemented


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (2**64, str(2**64)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        ("\ud800x", "\ufffdx"),
        ({"\udfff": 1}, FrozenDict({"\ufffd": 1})),
        (float("inf"), None),
        ([1, [2]], (1, (2,))),
    ],
)
def test_e067_what_cannot_be_carried_is_replaced(sent: object, kept: object) -> None:
    """The rest of the value is worth more than the odd part of it."""
    assert plain(sent) == kept


def test_what_is_nested_too_deeply_is_cut_and_says_so() -> None:
    """An event has to fit the depth that the wire allows, its own levels included."""
    deep: object = "bottom"
    for _ in range(FOREIGN_DEPTH + 5):
        deep = [deep]

    kept = plain(deep)

    freeze({"raw": {"item": kept}})
    while isinstance(kept, tuple):
        (kept,) = kept
    assert kept == TOO_DEEP


@pytest.mark.parametrize(
    ("number", "kept"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551616", "18446744073709551616"),
        ("9" * 5_000, "9" * 5_000),
        ("-" + "9" * 5_000, "-" + "9" * 5_000),
        ("1e999", None),
        ("NaN", None),
    ],
)
def test_one_odd_number_does_not_cost_the_answer_around_it(number: str, kept: object) -> None:
    """Python itself refuses to read more than some thousand digits."""
    assert json_object(f'{{"text": "x", "n": {number}}}') == {"text": "x", "n": kept}


@given(text=st.text(st.characters(categories=["Cs", "Ll"])))
def test_only_lone_surrogates_are_replaced(text: str) -> None:
    """Each by the character that says that there was one, so that nothing else moves."""
    kept = plain(text)

    assert isinstance(kept, str)
    assert [new for new in kept if new != "\ufffd"] == [
        c for c in text if c.encode("utf-8", "ignore")
    ]
    assert len(kept) == len(text)


@pytest.mark.parametrize("bomb", [b"[" * 100_000, b"1" * 5_000, b'{"a":' * 100_000])
def test_a_bomb_is_noise(bomb: bytes) -> None:
    """Neither a deep nest nor an endless number may end the reader."""
    assert json_object(bomb) is None


def test_looking_inside_never_fails() -> None:
    """A provider may change the shape of anything in any version."""
    value = freeze({"a": {"b": "c", "n": 3, "t": True, "l": [{"x": 1}, 2]}})

    assert text_at(value, "a", "b") == "c"
    assert text_at(value, "a", "b", "c") is None
    assert number_at(value, "a", "n") == 3
    assert number_at(value, "a", "t") is None
    assert items_at(value, "a", "l") == (FrozenDict({"x": 1}),)
    assert items_at(value, "a", "b") == ()


def test_counters_that_are_no_counters_are_dropped() -> None:
    """A missing, negative or fractional count would corrupt every sum it enters."""
    usage = freeze({"in": 3, "out": -1, "cached": 1.5, "total": True, "none": None, "zero": 0})

    assert counters(usage, ("in", "out", "cached", "total", "none", "zero", "absent")) == {
        "in": 3,
        "zero": 0,
    }
    assert counters(usage, {"in": "input_tokens"}) == {"input_tokens": 3}
