"""Patterns of the regex function: the same answers as `re`, and never for ever."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.rpc import ExpressionFault, RpcLimits
from genagent_protocol.rpc.allowance import Allowance
from genagent_protocol.rpc.basic.matching import Work, found_in


def unshared() -> Work:
    """Return what counts the work of one match alone."""
    return Allowance(RpcLimits()).work


#: What both dialects read alike. Group names, flags and `$` before a last line end differ.
ATOMS = st.sampled_from(
    [
        r"a",
        r"b",
        r"A",
        r"_",
        r"1",
        r".",
        r"\d",
        r"\w",
        r"\W",
        r"\D",
        r"^",
        r"$",
        r"\b",
        r"\B",
        r"[ab]",
        r"[^a]",
        r"[a-c1]",
        r"[\d_]",
        r"[^\w]",
        r"[a\-b]",
        r"\.",
        r"\n",
        r"\x61",
        r"\u0062",
        r"-",
    ]
)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.sampled_from(["(", "(?:", "(?=", "(?!"])
    times = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?"])
    return (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map("|".join)
        | st.tuples(group, inner).map(lambda pair: f"{pair[0]}{pair[1]})")
        | st.tuples(inner, times).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    )


PATTERNS = st.recursive(ATOMS, _combined, max_leaves=8)
TEXTS = st.text(alphabet="abcA_1 .-x", max_size=8)
#: On the empty text `re` lets a non-border match only from Python 3.14 on.
SOME_TEXT = st.text(alphabet="abcA_1 .-x", min_size=1, max_size=8)


@given(pattern=PATTERNS, text=SOME_TEXT)
def test_a_pattern_matches_where_re_matches(pattern: str, text: str) -> None:
    """The time is bounded, and nothing else is different."""
    assert found_in(pattern, text, unshared()) == (re.search(pattern, text, re.ASCII) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("", "", True),
        ("^a$", "a\n", False),
        ("a.b", "a\nb", False),
        ("a.b", "a\u2028b", False),
        ("[^]", "\n", True),
        ("[]", "a", False),
        ("\\d", "٣", False),
        ("\\w", "é", False),
        ("\\s", "\u00a0", True),
        ("\\S", "\ufeff", False),
        ("\\0", "\x00", True),
        ("[\\b]", "\x08", True),
        ("a{", "a{", True),
        ("a{x}", "a{x}", True),
        ("{,2}", "{,2}", True),
        ("]}", "]}", True),
        ("(?<year>\\d{4})-\\d\\d", "in 2026-09", True),
        ("(?P<year>\\d{4})", "2026", True),
        ("^(?=.*[A-Z])(?=.*\\d).{8,}$", "Passw0rd", True),
        ("^(?=.*[A-Z])(?=.*\\d).{8,}$", "password", False),
        ("^(?!.*admin).*$", "administrator", False),
        ("[a-\\d]", "-", True),
        ("[\\D]", "1", False),
        ("[\\W\\d]", "!", True),
        ("😀{2}", "😀😀", True),
        ("^([a-z0-9]+\\.)+[a-z]{2,}$", "www.example.com", True),
    ],
)
def test_the_dialect_is_the_browsers(pattern: str, text: str, found: bool) -> None:
    """The same form is checked in a terminal and in a web page."""
    assert found_in(pattern, text, unshared()) is found


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[",
        "*a",
        "a**",
        "a{2}{3}",
        "+",
        "{2}",
        "a{3,2}",
        "[z-a]",
        "\\",
        "\\1",
        "(a)\\1",
        "\\k<a>",
        "(?<=a)b",
        "(?<!a)b",
        "(?i)a",
        "(?i:a)",
        "(?>a)",
        "\\p{L}",
        "\\Z",
        "\\01",
        "\\x6",
        "\\u006",
        "\\uzzzz",
        "a{1001}",
        "x" * 2_001,
        "(" * 60 + ")" * 60,
        "(((a{100}){100}){100})",
        "((((){1000}){1000}){1000}){1000}",
    ],
    ids=lambda pattern: pattern[:20],
)
def test_what_cannot_be_read_or_bounded_is_refused(pattern: str) -> None:
    """A back reference or a look behind would bring the unbounded time back."""
    with pytest.raises(ExpressionFault):
        found_in(pattern, "a", unshared())


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a+)+$", "a" * 5_000 + "!"),
        ("^(a|aa)+$", "a" * 5_000 + "!"),
        ("^(a|a?)+$", "a" * 5_000 + "!"),
        ("(.*a){12}", "b" * 200),
        ("^(?:.*?,){9}P", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20"),
    ],
)
def test_patterns_that_make_backtracking_explode_are_answered(pattern: str, text: str) -> None:
    """Each of these takes longer than anybody lives with a matcher that tries one way at a time."""
    assert found_in(pattern, text, unshared()) is False


def test_a_match_that_needs_too_much_work_is_refused() -> None:
    """Linear is not enough if both are long."""
    with pytest.raises(ExpressionFault, match="too long"):
        found_in("(a?){200}$", "a" * 100_000 + "!", unshared())


@given(st.text(alphabet="()[]{}|*+?\\^$.,:=!<>-ab1dwsbB0xu", max_size=12), TEXTS)
def test_any_pattern_is_read_or_refused(pattern: str, text: str) -> None:
    """A pattern comes from outside; there is none that breaks the reader."""
    with suppress(ExpressionFault):
        assert found_in(pattern, text, unshared()) in (True, False)
