"""Bytes and values: what is sent is read again, and no bytes do more than be refused."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagent_protocol import codec
from genagent_protocol.bounds import MAX_FRAME_BYTES
from genagent_protocol.codec import MAX_ENVELOPES, UnknownMessage
from genagent_protocol.envelopes import (
    Completion,
    Credit,
    EventMessage,
    Halt,
    Notify,
    Ping,
    Request,
    ToAgent,
    ToClient,
    ToDaemon,
)
from genagent_protocol.errors import LocalWireError, RemoteWireError
from genagent_protocol.events import Completed, EventCoverage, Response, event
from genagent_protocol.plain import (
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_KEY_CHARS,
    FrozenDict,
    NotPlain,
    Plain,
    freeze,
)
from genagent_protocol.refs import BootId, Incarnation, RequestRef
from genagent_protocol.requests import StartAgent
from support.plain_values import plain
from support.wire_examples import ANSWERED, ASKED, FAILURES, MESSAGES
from support.wire_values import ENVELOPES, messages, readers_of, values_of

UNIONS = (ToDaemon, ToAgent, ToClient)
REF = RequestRef(Incarnation(BootId("0123456789abcdef"), 7), "0" * 32)


def notification(value: object) -> bytes:
    """Return the body of a notification whose event is *value*, whatever it is."""
    packed: bytes = msgpack.packb({"t": "notify", "event": value}, use_bin_type=True)
    return packed


def body(raw: bytes) -> bytes:
    """Return the body of a notification whose event is spelled by *raw* bytes."""
    return b"\x82\xa1t\xa6notify\xa5event" + raw


# --- round trips


@pytest.mark.parametrize("envelope", ENVELOPES)
@settings(max_examples=25)
@given(data=st.data())
def test_every_message_survives_the_wire(envelope: type, data: st.DataObject) -> None:
    """Whoever may hear it reads exactly what was sent."""
    value = data.draw(values_of(envelope))

    sent = codec.encode(value)

    for union in readers_of(envelope):
        (heard,) = codec.decode(union, sent)
        assert type(heard) is envelope
        # Encoded again, because a NaN inside never equals itself.
        assert codec.encode(heard) == sent
        assert repr(heard) == repr(value)


@given(st.lists(messages, max_size=5))
def test_a_body_carries_several_messages_in_order(values: list[Any]) -> None:
    """What one turn of a loop produced travels together."""
    bodies = [codec.encode(value) for value in values]

    for union in UNIONS:
        known = [v for v in values if union in readers_of(type(v))]
        ours = [b for v, b in zip(values, bodies, strict=True) if union in readers_of(type(v))]
        if known:
            heard = codec.decode(union, codec.join(ours))
            assert [codec.encode(value) for value in heard] == ours


@given(plain)
def test_what_is_packed_is_unpacked(value: Plain) -> None:
    """The plain layer below the messages."""
    again = codec.unpack(codec.pack(value))

    assert repr(again) == repr(value)


def test_what_is_read_is_frozen() -> None:
    """What was measured and stored cannot become something else."""
    (heard,) = codec.decode(ToAgent, codec.encode(Notify(event=freeze({"a": [1, {"b": 2}]}))))

    assert heard.event == FrozenDict(a=(1, FrozenDict(b=2)))
    assert isinstance(heard.event["a"][1], FrozenDict)


# --- hostile bytes


def read_or_refuse(data: bytes) -> None:
    """Read *data* as every peer would; anything but a clean refusal or a clean value fails."""
    for union in UNIONS:
        try:
            heard = codec.decode(union, data)
        except RemoteWireError:
            continue
        again = codec.join(codec.encode(value) for value in heard)
        repeated = codec.decode(union, again)
        assert codec.join(codec.encode(value) for value in repeated) == again
        assert repr(repeated) == repr(heard)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_mean_something(data: bytes) -> None:
    """There is no third way, and no other exception."""
    read_or_refuse(data)


@settings(max_examples=300)
@given(messages, st.data())
def test_mutated_messages_are_refused_or_mean_something(value: Any, data: st.DataObject) -> None:
    """Bytes flipped, cut out, doubled or put in, in an otherwise good message."""
    mutated = bytearray(codec.encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(len(mutated) - 1, 0)))
        match data.draw(st.sampled_from(["flip", "cut", "double", "put"])):
            case "flip" if mutated:
                mutated[place] ^= data.draw(st.integers(1, 255))
            case "cut":
                del mutated[place : place + data.draw(st.integers(1, 8))]
            case "double":
                mutated[place:place] = mutated[place : place + 8]
            case _:
                mutated[place:place] = data.draw(st.binary(min_size=1, max_size=4))

    read_or_refuse(bytes(mutated))


@pytest.mark.parametrize(
    "count", [5_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_a_flood_of_bad_frames_leaves_the_good_ones_alone(count: int) -> None:
    """E070: mutated golden frames, the same each time, with a good one after every hundredth."""
    chance = random.Random(0)
    golden = [codec.encode(message) for message in (*MESSAGES, *ASKED, *ANSWERED, *FAILURES)]
    good = codec.encode(Ping(call=7))
    refused = 0

    for number in range(count):
        frame = bytearray(chance.choice(golden))
        for _ in range(chance.randrange(1, 4)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        try:
            codec.decode(chance.choice(UNIONS), bytes(frame))
        except RemoteWireError:
            refused += 1
        if number % 100 == 0:
            assert codec.decode(ToDaemon, good) == [Ping(call=7)]

    assert refused > count // 2


@given(messages, messages)
def test_a_body_cut_anywhere_but_between_messages_is_refused(one: Any, other: Any) -> None:
    """Half a message is none, wherever the cut falls."""
    first, second = codec.encode(one), codec.encode(other)
    body = first + second

    for end in range(len(body)):
        if end != len(first):
            with pytest.raises(RemoteWireError):
                codec.unpack_each(body[:end])


@contextmanager
def at_most(most_bytes: int) -> Iterator[None]:
    """Fail if more than that is allocated at any moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most_bytes


MIB = 1024 * 1024
BOMBS: dict[str, Callable[[], bytes]] = {
    "a million empty lists side by side": lambda: b"\x90" * MIB,
    "a million empty maps side by side": lambda: b"\x80" * MIB,
    "a million nulls side by side": lambda: b"\xc0" * MIB,
    "a list that lies about its length": lambda: body(b"\xdd\xff\xff\xff\xff"),
    "a map that lies about its length": lambda: body(b"\xdf\xff\xff\xff\xff"),
    "a text that lies about its length": lambda: body(b"\xdb\xff\xff\xff\xff"),
    "bytes that lie about their length": lambda: body(b"\xc6\xff\xff\xff\xff"),
    "a list that lies a little": lambda: body(b"\xdd\x00\x02\x00\x00" + b"\xc0" * 1_000),
    "100,000 lists in each other": lambda: body(b"\x91" * 100_000 + b"\xc0"),
    "100,000 maps in each other": lambda: body(b"\x81\xa1a" * 100_000 + b"\xc0"),
    "1,000 lists in each other": lambda: body(b"\x91" * 1_000 + b"\xc0"),
    "a key of 1 MiB": lambda: body(b"\x81" + msgpack.packb("k" * MIB) + b"\xc0"),
    "a message under a key of 1 MiB": lambda: b"\x81" + msgpack.packb("k" * MIB) + b"\xc0",
    "a key that comes twice": lambda: body(b"\x82\xa1a\x01\xa1a\x01"),
    "the tag twice": lambda: b"\x82\xa1t\xa4halt\xa1t\xa4halt",
    "a key that is a number": lambda: body(b"\x81\x01\x01"),
    "a key that is bytes": lambda: body(b"\x81\xc4\x01a\x01"),
    "a key that is nothing": lambda: body(b"\x81\xc0\x01"),
    "a key that is a list": lambda: body(b"\x81\x91\x01\x01"),
    "an extension": lambda: body(b"\xd4\x05\x00"),
    "an empty extension": lambda: body(b"\xc7\x00\x05"),
    "a timestamp of 32 bits": lambda: body(b"\xd6\xff" + bytes(4)),
    "a timestamp of 64 bits": lambda: body(b"\xd7\xff" + bytes(8)),
    "a timestamp of 96 bits": lambda: body(b"\xc7\x0c\xff" + bytes(12)),
    "an empty timestamp": lambda: body(b"\xc7\x00\xff"),
    "a byte that is never used": lambda: body(b"\xc1"),
    "text that is not UTF-8": lambda: body(b"\xa2\xff\xfe"),
    "a lone surrogate": lambda: body(b"\xa3\xed\xa0\x80"),
    "a key that is not UTF-8": lambda: body(b"\x81\xa1\xff\x01"),
    "a message cut in the middle": lambda: codec.encode(Ping(call=70_000))[:-1],
    "a byte after the message": lambda: codec.encode(Halt()) + b"\xc0",
    "half a message after the message": lambda: codec.encode(Halt()) + codec.encode(Halt())[:-1],
    "nothing": lambda: b"",
    "a pickle": lambda: b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix",
    "more than a frame": lambda: notification("x" * MAX_FRAME_BYTES),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_and_costs_little(bomb: str) -> None:
    """Whatever a peer sends, it cannot make us spend memory on it or fail in another way."""
    data = BOMBS[bomb]()

    with at_most(10 * MIB), pytest.raises(RemoteWireError) as refused:
        codec.decode(ToAgent, data)

    assert not isinstance(refused.value, UnknownMessage)
    assert len(str(refused.value)) < 300


def test_empty_maps_cost_no_more_than_their_place() -> None:
    """A byte each on the wire must not become a mapping each in memory."""
    data = notification([{}] * MAX_ITEMS)

    with at_most(4 * MIB):
        (heard,) = codec.decode(ToAgent, data)

    assert len(heard.event) == MAX_ITEMS


# --- unknown types


@pytest.mark.parametrize(
    ("union", "raw", "tag", "call"),
    [
        (ToDaemon, {"t": "later"}, "later", None),
        (ToDaemon, {"t": "submit", "call": 5}, "submit", 5),
        (ToDaemon, {"t": "request", "call": 9, "request": {"t": "later"}}, "later", 9),
        (ToAgent, {"t": "call", "call": 9, "request": {"t": "later"}}, "later", 9),
        (ToAgent, {"t": "later", "call": "text"}, "later", None),
        (ToAgent, {"t": "later", "call": True}, "later", None),
        (ToClient, {"t": "reply", "call": 3, "answer": {"t": "later"}}, "later", 3),
    ],
)
def test_an_unknown_type_is_named_with_the_call_that_waits(
    union: Any, raw: object, tag: str, call: int | None
) -> None:
    """Who sent it can be told that nothing was done, and which of its calls that was."""
    with pytest.raises(UnknownMessage) as unknown:
        codec.decode(union, codec.pack(raw))

    assert (unknown.value.tag, unknown.value.call) == (tag, call)


def test_a_body_with_one_bad_message_is_bad_as_a_whole() -> None:
    """Half a body would be an order nobody sent."""
    good, bad = codec.encode(Halt()), codec.pack({"t": "notify"})

    with pytest.raises(RemoteWireError):
        codec.decode(ToAgent, good + bad + good)


@pytest.mark.parametrize(
    "code", ["a_later_code", "completed", "", "OVERLOADED", None, 0, ["overloaded"]]
)
def test_a_code_that_is_not_known_is_never_read_as_success(code: object) -> None:
    """A newer peer's reason must not look like an acceptance."""
    refused = {"t": "reason", "code": code}
    raw = {"t": "admission", "agent": "a", "ref": REF.text, "refused": refused}

    with pytest.raises(RemoteWireError, match=r"\.refused\.code"):
        codec.decode(ToClient, codec.pack(raw))


# --- what is not sent


class Strange:
    """Something that is not plain."""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        ({1, 2}, "set"),
        (Strange(), "Strange"),
        (1j, "complex"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        (int, "type"),
    ],
)
def test_what_cannot_be_sent_is_refused_here_with_the_path_to_it(value: Any, problem: str) -> None:
    """The sender can still do something about it."""
    options = FrozenDict(outer=(1, FrozenDict(inner=value)))
    start = StartAgent(name="a", agent=None, backend="echo", options=options)

    with pytest.raises(LocalWireError, match=problem) as refused:
        codec.encode(Request(call=1, request=start))
    assert "request.options.outer[1].inner" in str(refused.value)

    with pytest.raises(NotPlain, match=problem):
        freeze({"outer": [1, {"inner": value}]})


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), 0.1, float("inf"), "\U0010ffff", b"\xff"])
def test_the_extremes_that_fit_are_sent(value: Plain) -> None:
    """One less, and it goes."""
    (heard,) = codec.decode(ToAgent, codec.encode(Notify(event=value)))

    assert heard == Notify(event=value)


def test_a_message_its_place_does_not_know_is_not_sent() -> None:
    """A mistake of ours is found before a peer has to refuse it."""
    wrong: Any = Halt()

    with pytest.raises(LocalWireError, match=r"\.request: a Halt has no place"):
        codec.encode(Request(call=1, request=wrong))


# --- at the limit and one above


def response_of(size: int) -> Completion:
    """Return a completion whose body is *size* bytes long."""

    def completion(text: str) -> Completion:
        response = Response(
            text=text,
            final_message="",
            events=(),
            terminal=event("result"),
            event_coverage=EventCoverage(),
        )
        return Completion(agent="a", ref=REF, outcome=Completed(response))

    base = len(codec.encode(completion("x" * 100_000))) - 100_000
    return completion("x" * (size - base))


def test_a_frame_at_the_limit_passes_and_one_above_is_refused_on_both_sides() -> None:
    """A larger frame would drop the connection without a word."""
    largest = codec.encode(response_of(MAX_FRAME_BYTES))
    assert len(largest) == MAX_FRAME_BYTES
    assert len(codec.decode(ToClient, largest)) == 1

    with pytest.raises(LocalWireError, match=str(MAX_FRAME_BYTES + 1)):
        codec.encode(response_of(MAX_FRAME_BYTES + 1))
    with pytest.raises(RemoteWireError, match=str(MAX_FRAME_BYTES)):
        codec.decode(ToClient, largest + b"\xc0")


def test_ten_times_the_limit_is_refused_like_one_above() -> None:
    """The size is looked at before the bytes."""
    with pytest.raises(RemoteWireError, match="is over"):
        codec.decode(ToClient, b"\xc0" * (10 * MAX_FRAME_BYTES))


@pytest.mark.parametrize("collection", [list, dict])
def test_a_collection_at_the_limit_passes_and_one_above_is_refused_on_both_sides(
    collection: type,
) -> None:
    """What a caller may send is exactly what a peer reads."""

    def of(count: int) -> Any:
        return list(range(count)) if collection is list else {str(n): n for n in range(count)}

    most = freeze(of(MAX_ITEMS))
    assert codec.decode(ToAgent, codec.encode(Notify(event=most))) == [Notify(event=most)]

    with pytest.raises(NotPlain, match=str(MAX_ITEMS)):
        freeze(of(MAX_ITEMS + 1))
    with pytest.raises(RemoteWireError):
        codec.decode(ToAgent, notification(of(MAX_ITEMS + 1)))


def test_a_key_at_the_limit_passes_and_one_above_is_refused_on_both_sides() -> None:
    """Keys are names, not payload."""
    most = freeze({"ü" * MAX_KEY_CHARS: 1})
    assert codec.decode(ToAgent, codec.encode(Notify(event=most))) == [Notify(event=most)]

    with pytest.raises(NotPlain, match=str(MAX_KEY_CHARS)):
        freeze({"k" * (MAX_KEY_CHARS + 1): 1})
    with pytest.raises(RemoteWireError):
        codec.decode(ToAgent, notification({"k" * (MAX_KEY_CHARS + 1): 1}))


def test_nesting_at_the_limit_passes_and_one_above_is_refused_on_both_sides() -> None:
    """Far below what the decoder itself could bear."""

    def nest(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    most = freeze(nest(MAX_DEPTH))
    assert codec.decode(ToAgent, codec.encode(Notify(event=most))) == [Notify(event=most)]

    with pytest.raises(NotPlain, match="nested deeper"):
        freeze(nest(MAX_DEPTH + 1))
    with pytest.raises(RemoteWireError, match="nested deeper"):
        codec.decode(ToAgent, notification(nest(MAX_DEPTH + 1)))
    with pytest.raises(LocalWireError, match="nested deeper"):
        codec.encode(Notify(event=(most,)))


def test_a_body_at_the_limit_of_messages_passes_and_one_above_is_refused() -> None:
    """Many tiny messages cost more than one large one."""
    one = codec.encode(Credit(messages=1, bytes=1))

    assert len(codec.decode(ToClient, one * MAX_ENVELOPES)) == MAX_ENVELOPES
    with pytest.raises(RemoteWireError, match=str(MAX_ENVELOPES)):
        codec.decode(ToClient, one * (MAX_ENVELOPES + 1))


def test_the_decoder_lives_on_after_the_worst() -> None:
    """A bad frame leaves nothing behind that the next one could trip over."""
    message = EventMessage(agent="a", ref=REF, event=event("text", text="hello"))
    good = codec.encode(message)
    for make in BOMBS.values():
        with pytest.raises(RemoteWireError):
            codec.decode(ToClient, make())
        assert codec.decode(ToClient, good) == [message]


# --- names


def test_one_and_true_and_one_point_zero_are_three_names() -> None:
    """Python calls them equal; their bytes differ, and so do the agents."""
    assert len({codec.name_key(name) for name in (1, True, 1.0, "1", (1,), b"1")}) == 6


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), plain, max_size=6))
def test_the_order_in_which_a_name_was_written_does_not_matter(name: dict[str, Plain]) -> None:
    """Equal names are one name, also deep inside."""
    turned = dict(reversed(name.items()))

    first = codec.name_key(FrozenDict(a=(FrozenDict(name),)))
    second = codec.name_key(FrozenDict(a=(FrozenDict(turned),)))

    assert first == second


@given(plain, plain)
def test_different_names_have_different_keys(one: Plain, other: Plain) -> None:
    """And a key can be read back, so nothing of the name is lost in it."""
    assert (codec.name_key(one) == codec.name_key(other)) == (
        repr(ordered(one)) == repr(ordered(other))
    )
    assert repr(ordered(codec.unpack(codec.name_key(one)))) == repr(ordered(one))


def ordered(value: Plain) -> Plain:
    """Return *value* with every map in the order of its keys."""
    match value:
        case FrozenDict():
            return FrozenDict({key: ordered(value[key]) for key in sorted(value)})
        case tuple():
            return tuple(ordered(item) for item in value)
        case _:
            return value
