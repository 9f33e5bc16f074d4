"""Records are written and read by their annotations alone, and nothing is guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NewType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagent_protocol import schema
from genagent_protocol.plain import EMPTY, MAX_DEPTH, FrozenDict, Plain, freeze
from genagent_protocol.refs import Address, BootId, Incarnation, MailboxAddress, RequestRef
from genagent_protocol.schema import MAX_TAG_CHARS, Mismatch, UnknownTag
from support.wire_values import ENVELOPES, hints_of, values_of

INCARNATION = Incarnation(BootId("0123456789abcdef"), 7)
REF = RequestRef(INCARNATION, "0" * 32)
BOX = MailboxAddress(BootId("0123456789abcdef"), 3, 2)

Colour = NewType("Colour", str)


@dataclass(frozen=True, slots=True)
class Inner:
    number: int = 0
    many: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherInner:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    text: str
    inner: Inner = Inner()
    either: Inner | OtherInner | None = None
    several: tuple[Inner | OtherInner, ...] = ()
    choice: Literal["a", "b"] = "a"
    flag: bool = False
    raw: bytes = b""
    ratio: float = 0.5
    anything: Plain = None
    options: FrozenDict = EMPTY
    colour: Colour = Colour("red")
    ref: RequestRef | None = None
    incarnation: Incarnation = INCARNATION
    box: MailboxAddress = BOX
    address: Address = BOX


Union = Everything | Inner


def written(**fields: object) -> Plain:
    """Return the plain map of an `Everything` with these fields."""
    return freeze({"t": "everything", "text": "x", **fields})


# --- writing


def test_a_field_that_equals_its_default_is_left_out() -> None:
    """Most fields of most messages are defaults; they cost nothing."""
    assert schema.dump(Everything(text="x")) == {"t": "everything", "text": "x"}


def test_a_member_of_a_union_carries_its_tag_and_a_lone_record_does_not() -> None:
    """Where only one record can stand, a tag would say nothing."""
    value = Everything(
        text="x", inner=Inner(1), either=Inner(2), several=(OtherInner("y"), Inner(3))
    )

    assert schema.dump(value) == {
        "t": "everything",
        "text": "x",
        "inner": {"number": 1},
        "either": {"t": "inner", "number": 2},
        "several": [{"t": "other_inner", "text": "y"}, {"t": "inner", "number": 3}],
    }


def test_identities_are_written_as_their_text() -> None:
    """The form people copy is the form on the wire."""
    value = Everything(text="x", ref=REF, address=INCARNATION)

    assert schema.dump(value)["ref"] == f"0123456789abcdef-7-{'0' * 32}"
    assert schema.dump(value)["address"] == "0123456789abcdef-7"


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("Ping", "ping"),
        ("PollPending", "poll_pending"),
        ("A2UIReply", "a2_ui_reply"),
        ("HTTPError", "http_error"),
        ("V2Event", "v2_event"),
    ],
)
def test_a_tag_is_the_class_name_in_snake_case(name: str, tag: str) -> None:
    """So a message has one name, in the code, in the document and on the wire."""
    assert schema.tag_of(type(name, (), {})) == tag


def test_a_record_that_its_place_does_not_know_is_not_written() -> None:
    """A mistake is found by who makes it, not by the peer that would refuse the message."""
    wrong: Any = Everything(text="no place for this")

    with pytest.raises(Mismatch) as refused:
        schema.dump(Everything(text="x", either=wrong))

    assert refused.value.path == ".either"
    assert "Everything" in str(refused.value)


@pytest.mark.parametrize("wrap", [lambda value: (value,), lambda value: FrozenDict(a=value)])
def test_a_plain_value_nested_too_deep_is_neither_written_nor_read(wrap: Any) -> None:
    """Both sides have the same limit, so that nothing is sent that cannot be read."""
    value: Plain = 1
    for _ in range(MAX_DEPTH):
        value = wrap(value)

    kept = schema.dump(Everything(text="x", anything=value))
    assert schema.load(Union, freeze(kept, max_depth=100)) == Everything(text="x", anything=value)

    deeper = wrap(value)
    with pytest.raises(Mismatch, match=r"\.anything: nested deeper than 64"):
        schema.dump(Everything(text="x", anything=deeper))
    with pytest.raises(Mismatch, match=r"\.anything: nested deeper than 64"):
        schema.load(Union, FrozenDict(t="everything", text="x", anything=deeper))


def test_a_type_without_a_shape_is_a_mistake_of_ours() -> None:
    """It shows when the record is first used, in any test."""

    @dataclass(frozen=True)
    class Odd:
        numbers: set[int]

    with pytest.raises(TypeError, match="no shape on the wire"):
        schema.dump(Odd({1}))


# --- reading


def test_unknown_fields_are_ignored() -> None:
    """A later version may add fields; this one reads on."""
    assert schema.load(Union, written(later="field", inner={"new": 1})) == Everything(text="x")


def test_a_missing_field_takes_its_default_and_a_required_one_is_refused() -> None:
    """Only a field with a default may be left out."""
    assert schema.load(Union, FrozenDict(t="inner")) == Inner()
    with pytest.raises(Mismatch, match="everything lacks text"):
        schema.load(Union, FrozenDict(t="everything"))
    with pytest.raises(Mismatch, match=r"\.either: other_inner lacks text"):
        schema.load(Union, written(either={"t": "other_inner"}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", 1),
        ("text", None),
        ("text", b"bytes"),
        ("inner", "text"),
        ("inner", None),
        ("either", 3),
        ("either", {"number": 3}),
        ("several", {"t": "inner"}),
        ("several", "text"),
        ("choice", "c"),
        ("choice", None),
        ("choice", ["a"]),
        ("flag", 1),
        ("flag", None),
        ("raw", "text"),
        ("ratio", 1),
        ("options", ["a"]),
        ("options", None),
        ("colour", 5),
        ("ref", "not a ref"),
        ("ref", f"0123456789abcdef-07-{'0' * 32}"),
        ("ref", 5),
        ("incarnation", None),
        ("incarnation", "0123456789abcdef-0"),
        ("box", "0123456789abcdef-7"),
        ("address", "nowhere"),
        ("address", 7),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(field: str, value: object) -> None:
    """A guess would sooner or later be a wrong one."""
    with pytest.raises(Mismatch) as refused:
        schema.load(Union, written(**{field: value}))

    assert refused.value.path == f".{field}"
    assert str(refused.value).startswith(f".{field}: ")


def test_a_boolean_is_no_number_and_a_number_no_boolean() -> None:
    """Python thinks otherwise; other languages do not."""
    with pytest.raises(Mismatch):
        schema.load(Union, FrozenDict(t="inner", number=True))
    with pytest.raises(Mismatch):
        schema.load(Union, written(flag=0))


def test_the_place_of_a_mistake_is_named_through_lists_and_unions() -> None:
    """In a listing of hundreds the row matters."""
    several = [{"t": "inner"}, {"t": "inner", "many": [1, 2, "three"]}]

    with pytest.raises(Mismatch) as refused:
        schema.load(Union, written(several=several))

    assert refused.value.path == ".several[1].many[2]"


@pytest.mark.parametrize("raw", [None, 1, "text", (), (1, 2), FrozenDict(), FrozenDict(t=1)])
def test_what_is_no_message_is_refused(raw: Plain) -> None:
    """A message is a map that says what it is."""
    with pytest.raises(Mismatch) as refused:
        schema.load(Union, raw)

    assert not isinstance(refused.value, UnknownTag)


def test_an_unknown_type_is_told_apart_from_a_mistake() -> None:
    """Its sender may be newer than we are, and can be told so."""
    with pytest.raises(UnknownTag) as top:
        schema.load(Union, FrozenDict(t="later"))
    with pytest.raises(UnknownTag) as nested:
        schema.load(Union, written(several=[{"t": "newer_inner"}]))

    assert (top.value.tag, top.value.path) == ("later", "")
    assert (nested.value.tag, nested.value.path) == ("newer_inner", ".several[0]")


def test_a_tag_too_long_to_be_one_is_not_repeated() -> None:
    """It would come back to its sender, and into a log."""
    longest = "x" * MAX_TAG_CHARS
    with pytest.raises(UnknownTag):
        schema.load(Union, FrozenDict(t=longest))

    with pytest.raises(Mismatch) as refused:
        schema.load(Union, FrozenDict(t=longest + "x"))

    assert not isinstance(refused.value, UnknownTag)
    assert "xxx" not in str(refused.value)


@pytest.mark.parametrize("field", ["choice", "ref", "address", "incarnation"])
def test_no_long_foreign_text_gets_into_an_error(field: str) -> None:
    """Errors are logged, and what a peer sent may be a prompt, or very large."""
    with pytest.raises(Mismatch) as refused:
        schema.load(Union, written(**{field: "secret " * 1_000}))

    assert "secret" not in str(refused.value)


def test_every_message_of_the_protocol_has_a_tag_of_its_own() -> None:
    """Two messages of one name could not be told apart."""
    tags = [schema.tag_of(envelope) for envelope in ENVELOPES]

    assert len(set(tags)) == len(tags)
    assert max(map(len, tags)) <= MAX_TAG_CHARS


@pytest.mark.parametrize("envelope", ENVELOPES)
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_written_is_read_again(envelope: type, data: st.DataObject) -> None:
    """For every message, from nothing but its annotations."""
    value = data.draw(values_of(envelope))

    raw = freeze(schema.dump(value), max_depth=MAX_DEPTH + 16)
    again = schema.load(envelope, raw)

    # Written again, because a NaN inside never equals itself.
    assert type(again) is envelope
    assert repr(schema.dump(again)) == repr(schema.dump(value))


@pytest.mark.parametrize("envelope", [e for e in ENVELOPES if hints_of(e)])
@settings(max_examples=10)
@given(data=st.data())
def test_no_field_of_any_message_takes_what_it_is_not(envelope: type, data: st.DataObject) -> None:
    """A field that holds a shape of nothing in the protocol is refused, and named."""
    value = data.draw(values_of(envelope))
    hints = {name: hint for name, hint in hints_of(envelope).items() if hint is not object}
    name = data.draw(st.sampled_from(sorted(hints_of(envelope))))
    raw = {**schema.dump(value), name: (1.5, (1.5,))}

    if name not in hints:
        assert getattr(schema.load(envelope, freeze(raw, max_depth=80)), name) == (1.5, (1.5,))
        return
    with pytest.raises(Mismatch) as refused:
        schema.load(envelope, freeze(raw, max_depth=80))
    assert refused.value.path.startswith(f".{name}")
