"""A frozen value is equal to what it was made of, and nothing can change it any more."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, UserDict, deque, namedtuple
from collections.abc import Callable
from enum import Enum, IntEnum, StrEnum

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genagent_protocol.plain import (
    EMPTY,
    MAX_DEPTH,
    MAX_INT,
    MAX_ITEMS,
    MAX_KEY_CHARS,
    MIN_INT,
    FrozenDict,
    NotPlain,
    Plain,
    deeper_than,
    encoded_size,
    freeze,
    printable,
)
from support.plain_values import loose, plain, texts


def thawed(value: Plain) -> object:
    """Return *value* with lists and dicts in it, as a decoder would give them."""
    match value:
        case FrozenDict():
            return {key: thawed(item) for key, item in value.items()}
        case tuple():
            return [thawed(item) for item in value]
        case _:
            return value


def listed(value: object) -> object:
    """Return *value* with every sequence as a list."""
    match value:
        case dict():
            return {key: listed(item) for key, item in value.items()}
        case list() | tuple():
            return [listed(item) for item in value]
        case _:
            return value


def nested(levels: int, wrap: Callable[[object], object]) -> object:
    """Return a value of so many levels."""
    value: object = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@given(value=loose)
def test_a_frozen_value_says_what_the_loose_one_said(value: object) -> None:
    """Only the types of containers change; NaN is compared by its print."""
    assert repr(thawed(freeze(value))) == repr(listed(value))


@given(value=loose)
def test_a_frozen_value_hashes_and_is_returned_as_it_is(value: object) -> None:
    """Freezing costs nothing at the second border."""
    frozen = freeze(value)

    hash(frozen)
    assert freeze(frozen) is frozen


@given(value=plain)
def test_copies_and_pickles_are_equal(value: Plain) -> None:
    """A value that went through a process pool or a deepcopy is the same value."""
    again = pickle.loads(pickle.dumps(value))

    assert repr(again) == repr(value)
    assert hash(copy.deepcopy(value)) == hash(copy.copy(value))


@given(value=plain)
@example(value=float("nan"))
@example(value=-0.0)
def test_the_size_is_the_length_of_the_encoding(value: Plain) -> None:
    """What is admitted by size is what is sent."""
    assert encoded_size(value) == len(msgpack.packb(value))


@pytest.mark.parametrize(
    "number",
    sorted(
        {
            near + step
            for exponent in (5, 7, 8, 15, 16, 31, 32, 63)
            for near in (2**exponent, -(2**exponent))
            for step in (-1, 0, 1)
            if MIN_INT <= near + step <= MAX_INT
        }
        | {0, MIN_INT, MAX_INT}
    ),
)
def test_the_size_is_right_at_every_edge_of_the_integers(number: int) -> None:
    """The encoding changes its width there."""
    assert encoded_size(number) == len(msgpack.packb(number))


@pytest.mark.parametrize("length", [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
def test_the_size_is_right_at_every_edge_of_the_lengths(length: int) -> None:
    """So do its headers."""
    values: tuple[Plain, ...] = (
        "x" * length,
        b"x" * length,
        (None,) * length,
        FrozenDict({str(n): None for n in range(length)}),
    )
    for value in values:
        assert encoded_size(value) == len(msgpack.packb(value))


def test_the_size_counts_bytes_and_not_characters() -> None:
    """A limit in bytes is about memory and the wire."""
    assert encoded_size("é€😀") == 1 + 2 + 3 + 4


class Colour(IntEnum):
    """A number with a name."""

    RED = 1


class Mood(StrEnum):
    """A text with a name."""

    CALM = "calm"


class Exact(float):
    """A float of somebody's own."""


class Raw(bytes):
    """Bytes of somebody's own."""


class Order(str, Enum):  # noqa: UP042  # it prints its name, and that is the point
    """A text with a name, of the older kind."""

    REVIEW = "Review the code"


class LoudText(str):
    """A text that says something else of itself, and is another one than it is."""

    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"

    def __format__(self, _spec: str) -> str:
        return "LOUD"

    def __len__(self) -> int:
        return 10**9

    def encode(self, *_: object) -> bytes:
        return b"LOUD"


class LoudInt(int):
    """A number that converts into another one."""

    def __int__(self) -> int:
        return 9

    __index__ = __trunc__ = __int__


class LoudFloat(float):
    """A float that converts into another one."""

    def __float__(self) -> float:
        return 9.5


class LoudBytes(bytes):
    """Bytes that convert into others."""

    def __bytes__(self) -> bytes:
        return b"LOUD"


class LoudArray(bytearray):
    """A bytearray that converts into others."""

    def __bytes__(self) -> bytes:
        return b"LOUD"


def loud(value: object) -> object:
    """Return *value* with everything in it of a class that says something else of itself."""
    match value:
        case None | bool():
            return value
        case str():
            return LoudText(value)
        case int():
            return LoudInt(value)
        case float():
            return LoudFloat(value)
        case bytes():
            return LoudBytes(value)
        case dict():
            return {LoudText(key): loud(item) for key, item in value.items()}
        case list() | tuple():
            return [loud(item) for item in value]
        case _:
            raise AssertionError(value)


def types_in(value: Plain) -> set[type]:
    """Return the types of everything in *value*."""
    match value:
        case FrozenDict():
            inside = [types_in(item) for item in value.values()]
            return {FrozenDict, *map(type, value), *(kind for found in inside for kind in found)}
        case tuple():
            return {tuple, *(kind for item in value for kind in types_in(item))}
        case _:
            return {type(value)}


@given(value=loose)
def test_a_value_is_what_it_is_and_not_what_its_class_says(value: object) -> None:
    """Text of an enum reached the agent as the name of its member."""
    frozen = freeze(loud(value))

    assert repr(frozen) == repr(freeze(value))
    assert types_in(frozen) == types_in(freeze(value))


def test_two_keys_that_are_one_text_are_refused() -> None:
    """A class may compare as it likes; one of the two would be lost without a word."""

    class Unlike(str):
        __slots__ = ()
        __hash__ = object.__hash__
        __eq__ = object.__eq__

    with pytest.raises(NotPlain, match="a: two keys are this text"):
        freeze({Unlike("a"): 1, "a": 2})


Point = namedtuple("Point", "x y")  # untyped on purpose: user code has these


@pytest.mark.parametrize(
    ("value", "frozen"),
    [
        (Colour.RED, 1),
        (Mood.CALM, "calm"),
        (Order.REVIEW, "Review the code"),
        ({Order.REVIEW: Order.REVIEW}, FrozenDict({"Review the code": "Review the code"})),
        (LoudArray(b"x"), b"x"),
        (Exact(1.5), 1.5),
        (Raw(b"x"), b"x"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        (Point(1, [2]), (1, (2,))),
        (range(3), (0, 1, 2)),
        (deque([1]), (1,)),
        (OrderedDict(a=[1]), FrozenDict(a=(1,))),
        (UserDict({"a": {}}), FrozenDict(a=EMPTY)),
        ({Mood.CALM: 1}, FrozenDict(calm=1)),
        (True, True),
    ],
)
def test_subclasses_become_the_plain_type(value: object, frozen: Plain) -> None:
    """What arrives at the other end has no class of the sender's."""
    found = freeze(value)

    assert found == frozen
    assert type(found) is type(frozen)
    if isinstance(found, FrozenDict):
        assert {type(key) for key in found} == {str}


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (object(), "", "object"),
        ({1, 2}, "", "set"),
        (1j, "", "complex"),
        (MAX_INT + 1, "", "64 bits"),
        (MIN_INT - 1, "", "64 bits"),
        ({"a": [1, {"b": object}]}, "a[1].b", "type"),
        ({"a": {1: 2}}, "a", "a key is int, not text"),
        ([["\ud800"]], "[0][0]", "surrogate at position 0"),
        ({"\udfff": 1}, "", "surrogate"),
        (FrozenDict({"a": (1, object())}), "a[1]", "object"),  # type: ignore[dict-item]
        ({"x" * (MAX_KEY_CHARS + 1): 1}, "", "key of"),
        ([None] * (MAX_ITEMS + 1), "", "items"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_path_to_it(
    value: object, path: str, problem: str
) -> None:
    """An error without the place would send the caller hunting through a big value."""
    with pytest.raises(NotPlain, match=problem) as error:
        freeze(value)

    assert error.value.path == path
    assert problem in error.value.problem


def test_an_integer_too_long_to_print_is_refused_like_any_other() -> None:
    """Python refuses to print it, so the error must not try."""
    for value in (10**5_000, {10**5_000: 1}):
        with pytest.raises(NotPlain):
            freeze(value)


def test_a_frozen_mapping_made_by_hand_is_looked_into_all_the_same() -> None:
    """Its type promises text and plain values; nothing stops a caller from lying to it."""
    shared = [1]

    frozen = freeze(FrozenDict({"a": shared}))  # type: ignore[dict-item]
    shared.append(2)

    assert frozen == {"a": (1,)}


WRAPS: list[Callable[[object], object]] = [
    lambda inner: [inner],
    lambda inner: {"k": inner},
    lambda inner: (inner,),
    lambda inner: FrozenDict({"k": inner}),  # type: ignore[dict-item]
]


@pytest.mark.parametrize("wrap", WRAPS, ids=["list", "dict", "tuple", "frozen"])
def test_the_deepest_value_passes_and_one_level_more_does_not(
    wrap: Callable[[object], object],
) -> None:
    """The limit is the same for every kind of container, frozen or not."""
    freeze(nested(MAX_DEPTH, wrap))
    freeze(nested(3, wrap), max_depth=3)

    with pytest.raises(NotPlain, match=f"deeper than {MAX_DEPTH} levels"):
        freeze(nested(MAX_DEPTH + 1, wrap))
    with pytest.raises(NotPlain, match="deeper than 3 levels"):
        freeze(nested(4, wrap), max_depth=3)


@given(value=plain, levels=st.integers(0, 6))
def test_whether_a_value_is_too_deep_is_what_freezing_says(value: Plain, levels: int) -> None:
    """Sender and reader refuse the same values."""
    try:
        freeze(value, max_depth=levels)
    except NotPlain:
        too_deep = True
    else:
        too_deep = False

    assert deeper_than(value, levels) == too_deep


def test_a_value_that_holds_itself_is_refused() -> None:
    """The depth ends it, also where every level holds it twice."""
    cycle: list[object] = []
    cycle += [cycle, cycle]

    with pytest.raises(NotPlain, match="deeper"):
        freeze(cycle)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", 2),
        lambda d: d.__delitem__("a"),
        lambda d: d.clear(),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.setdefault("b", 1),
        lambda d: d.update(a=2),
        lambda d: d.__ior__({"a": 2}),
    ],
)
def test_a_frozen_mapping_refuses_every_change(change: Callable[[FrozenDict], object]) -> None:
    """A dict has eight ways to change, and each is closed."""
    frozen = FrozenDict(a=1)

    with pytest.raises(TypeError, match="frozen"):
        change(frozen)
    assert frozen == {"a": 1}


def test_every_way_to_change_a_dict_is_closed() -> None:
    """A later Python may add one: then this fails and the mapping must close it too."""
    reading = {"copy", "fromkeys", "get", "items", "keys", "values"}
    ours = {"__setitem__", "__delitem__", "__ior__"}

    methods = {name for name in vars(dict) if not name.startswith("__")} - reading

    assert methods | ours <= set(vars(FrozenDict))


def test_a_frozen_mapping_reads_like_a_dict() -> None:
    """Whoever gets one needs no new words."""
    frozen = FrozenDict({"a": 1, "b": 2})

    assert frozen == {"a": 1, "b": 2}
    assert hash(frozen) == hash(FrozenDict({"b": 2, "a": 1}))
    assert frozen | {"c": 3} == {"a": 1, "b": 2, "c": 3}
    assert copy.deepcopy(frozen) is frozen
    assert copy.copy(frozen) is frozen
    assert type(pickle.loads(pickle.dumps(frozen))) is FrozenDict


@given(text=texts)
def test_a_printed_value_is_one_line_without_control_characters(text: str) -> None:
    """Names and reasons end up in terminals and logs."""
    assert printable(text).isprintable()
    assert printable((text,)).isprintable()
    assert printable(FrozenDict({text: text})).isprintable()
    if text.isprintable():
        assert printable(text) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("reviewer", "reviewer"),
        ("Prüfer", "Prüfer"),
        ("a\nb\x1b[2J", "a\\nb\\x1b[2J"),
        ("safe\u202etxt", "safe\\u202etxt"),
        (("a", 1), "('a', 1)"),
        (7, "7"),
        (b"\x00", "b'\\x00'"),
    ],
)
def test_a_name_is_shown_with_its_unprintable_characters_escaped(value: Plain, shown: str) -> None:
    """Nobody can hide a name's end, turn its direction, or clear the screen."""
    assert printable(value) == shown


@given(numbers=st.lists(st.floats(allow_nan=False)))
def test_an_error_says_path_and_problem_in_one_line(numbers: list[float]) -> None:
    """The message is for whoever wrote the call."""
    with pytest.raises(NotPlain) as error:
        freeze({"a": [*numbers, object()]})

    assert str(error.value) == f"a[{len(numbers)}]: object cannot be sent between processes"
