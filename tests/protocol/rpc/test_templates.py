"""What a template says and what breaks it, beyond the published cases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.rpc import ExpressionFault
from genagent_protocol.rpc.limits import (
    MAX_TEMPLATE_CHARACTERS,
    MAX_TEMPLATE_DEPTH,
    MAX_TEMPLATE_PARTS,
)
from genagent_protocol.rpc.templates import template_parts
from genagent_protocol.rpc.text_forms import number_text, text_form


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("", []),
        ("text", ["text"]),
        ("${a}", [{"@path": "a"}]),
        ("${ /a/b-c.d }!", [{"@path": "/a/b-c.d"}, "!"]),
        ("${'it\\'s'}", ["it's"]),
        ('${"a\\n\\t\\r\\x"}', ["a\n\t\rx"]),
        ("${''}", []),
        ("${}", []),
        ("${null}", []),
        ("${true}${false}", [True, False]),
        ("${truer}", [{"@path": "truer"}]),
        ("${+.5e1}", [5.0]),
        ("${-7}", [-7]),
        ("${007}", [7]),
        ("${18446744073709551616}", [float(2**64)]),
        ("${${a}}", [{"@path": "a"}]),
        ("${f()}", [{"@call": "f", "args": {}}]),
        (
            "${f(a: ${b}, c: 'x', d: g(e: 1),)}",
            [
                {
                    "@call": "f",
                    "args": {
                        "a": {"@path": "b"},
                        "c": "x",
                        "d": {"@call": "g", "args": {"e": 1}},
                    },
                }
            ],
        ),
        ("\\${a}", ["${", "a}"]),
        ("\\\\${a}", ["\\", "${", "a}"]),
        ("a $ { } \\ b", ["a $ { } \\ b"]),
        ("${'}'}", ["}"]),
        ("${größe}", [{"@path": "größe"}]),
    ],
    ids=repr,
)
def test_a_template_is_read_into_its_parts(template: str, parts: list[Any]) -> None:
    """Texts, numbers, booleans, bindings and calls, in their order."""
    read = template_parts(template)

    assert read == parts
    assert [type(part) for part in read] == [type(part) for part in parts]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("${", "Unclosed"),
        ("${a", "Unclosed"),
        ("${'a}", "Unclosed"),
        ("${'a\\", "Unclosed"),
        ("${a b}", "Unexpected"),
        ("${a{b}}", "Unexpected"),
        ("${@a}", "Unexpected"),
        ("${(a: 1)}", "Unexpected"),
        ("${f(1)}", "':'"),
        ("${f(a 1)}", "':'"),
        ("${f(,)}", "':'"),
        ("${f(: 1)}", "':'"),
        ("${f(a: 1}", "')'"),
        ("${f(a: 1", "')'"),
        ("${1.2.3}", "Invalid number"),
        ("${1e}", "Invalid number"),
        ("${1e999}", "out of range"),
        ("${" + "9" * 400 + "}", "out of range"),
    ],
    ids=lambda value: value[:20],
)
def test_a_broken_template_says_where_it_breaks(template: str, said: str) -> None:
    """An agent wrote it and can mend it."""
    with pytest.raises(ExpressionFault, match=said.replace("(", "\\(").replace(")", "\\)")):
        template_parts(template)


def test_a_template_has_at_most_so_many_characters_parts_and_levels() -> None:
    """The limits are the protocol's; engines that differ would disagree about the same text."""
    assert template_parts("x" * MAX_TEMPLATE_CHARACTERS) == ["x" * MAX_TEMPLATE_CHARACTERS]
    assert len(template_parts("${a}" * MAX_TEMPLATE_PARTS)) == MAX_TEMPLATE_PARTS
    assert template_parts(_nested(MAX_TEMPLATE_DEPTH)) == [{"@path": "x"}]
    for too_much in (
        "x" * (MAX_TEMPLATE_CHARACTERS + 1),
        "${a}" * (MAX_TEMPLATE_PARTS + 1),
        _nested(MAX_TEMPLATE_DEPTH + 1),
        "${" + "f(a: " * MAX_TEMPLATE_DEPTH + "1" + ")" * MAX_TEMPLATE_DEPTH + "}",
    ):
        with pytest.raises(ExpressionFault):
            template_parts(too_much)


def _nested(levels: int) -> str:
    return "${" * levels + "x" + "}" * levels


@given(st.text(alphabet="${}()'\"\\ ,:.ab10-+e/", max_size=30))
def test_any_text_is_read_or_refused(template: str) -> None:
    """A template comes from outside; there is no text that breaks the reader."""
    try:
        parts = template_parts(template)
    except ExpressionFault:
        return
    assert "" not in parts


@given(st.text(max_size=20))
def test_escaped_text_reads_as_itself(text: str) -> None:
    """Whoever puts foreign text into a template can make it harmless."""
    escaped = text.replace("${", "\\${")

    assert "".join(text_form(part) for part in template_parts(escaped)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-0.0, "0"),
        (36, "36"),
        (36.0, "36"),
        (1.5, "1.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (float(2**53), "9007199254740992"),
        (float(2**64), "18446744073709552000"),
        (-123456789012345678901.0, "-123456789012345680000"),
        (1.5e300, "1.5e+300"),
        (0.000001, "0.000001"),
        (0.00001234, "0.00001234"),
        (1e-7, "1e-7"),
        (-1.5e-10, "-1.5e-10"),
        (123456789.125, "123456789.125"),
        ("${a}", "${a}"),
        ([1, 2.0, None, "é"], '[1,2,null,"é"]'),
        ([float(2**64), 0.00001, 1.5e-7, -0.0], "[18446744073709552000,0.00001,1.5e-7,0]"),
        ({'"': '"'}, r'{"\"":"\""}'),
        ({"a": {"b": True}}, '{"a":{"b":true}}'),
    ],
    ids=repr,
)
def test_values_read_as_text_as_a_browser_writes_them(value: Any, text: str) -> None:
    """The same template shows the same text in a terminal and in a web page."""
    assert text_form(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_numbers_text_reads_back_as_the_number(number: float) -> None:
    """Nothing is lost but the sign of zero."""
    assert float(number_text(number)) == number
