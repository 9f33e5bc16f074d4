"""The basic functions where the vectors leave them open: what this library has settled on."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    DataContext,
    ExpressionFault,
    Surface,
    basic_catalog,
    resolver_for,
)
from support.rpc_house import BASIC


def run(name: str, **args: Any) -> Any:
    """Return what a basic function gives."""
    function = BASIC.function(name)
    assert function is not None
    assert function.body is not None
    context = DataContext(
        surface=Surface(
            surface_id="s",
            catalogs=(BASIC,),
            data_model={"t": "${/u}", "u": "deep", "n": 2},
            default_catalog_id=BASIC_CATALOG_ID,
        )
    )
    return function.body(args, resolver_for(context))


@pytest.mark.parametrize(
    ("value", "options", "shown"),
    [
        (0.5, {"decimals": 0}, "1"),
        (2.5, {"decimals": 0}, "3"),
        (-0.5, {"decimals": 0}, "-1"),
        (1.005, {"decimals": 2}, "1.01"),
        (1234.5678, {}, "1,234.568"),
        (1234, {}, "1,234"),
        (999_999.9999, {}, "1,000,000"),
        (-0.0, {}, "-0"),
        (-0.4, {"decimals": 0}, "-0"),
        ("1234.5", {"decimals": "1"}, "1,234.5"),
        (True, {}, "1"),
        (1e300, {"grouping": False}, "1" + "0" * 300),
        (1e-20, {"decimals": 20}, "0.00000000000000000001"),
        (2**64 - 1, {}, "18,446,744,073,709,551,615"),
        (5, {"decimals": 2.9}, "5.00"),
        (1234, {"grouping": None, "decimals": None}, "1,234"),
        (1234, {"grouping": {"valid": False}}, "1234"),
    ],
)
def test_numbers_are_shown_as_intl_shows_them(
    value: Any, options: dict[str, Any], shown: str
) -> None:
    """Halves go away from zero, and a sign stays even on zero."""
    assert run("formatNumber", value=value, **options) == shown


@pytest.mark.parametrize(
    "args",
    [
        {"value": None},
        {"value": "abc"},
        {"value": ""},
        {"value": "1_000"},
        {"value": "nan"},
        {"value": "1e999"},
        {"value": []},
        {"value": {}},
        {},
        {"value": 1, "decimals": -1},
        {"value": 1, "decimals": 21},
        {"value": 1, "decimals": "many"},
        {"value": 1, "decimals": 1e300},
    ],
    ids=repr,
)
def test_what_is_no_number_cannot_be_shown_as_one(args: dict[str, Any]) -> None:
    """A wrong number on a screen is worse than a failure."""
    with pytest.raises(ExpressionFault):
        run("formatNumber", **args)


@given(
    number=st.floats(-1e15, 1e15) | st.integers(-(2**53), 2**53),
    decimals=st.integers(0, 6),
    grouping=st.booleans(),
)
def test_a_shown_number_is_the_number_to_its_decimals(
    number: float, decimals: int, grouping: bool
) -> None:
    """Whatever the format, the reader sees the same amount."""
    shown = run("formatNumber", value=number, decimals=decimals, grouping=grouping)

    assert abs(float(shown.replace(",", "")) - number) <= 0.5 * 10**-decimals + abs(number) * 1e-12
    assert len(shown.partition(".")[2]) == decimals
    assert ("," in shown) == (grouping and abs(float(shown.replace(",", ""))) >= 1_000)


@pytest.mark.parametrize(
    ("value", "currency", "options", "shown"),
    [
        (1234.5, "USD", {}, "$1,234.50"),
        (-1234.5, "USD", {}, "-$1,234.50"),
        (1234.5, "JPY", {}, "¥1,234.50"),
        (1234.5, "chf", {}, "CHF\u00a01,234.50"),
        (1, "CAD", {}, "CA$1.00"),
        (1, "ABC", {}, "ABC\u00a01.00"),
        (0.005, "EUR", {}, "€0.01"),
        (1234, "GBP", {"decimals": 0, "grouping": False}, "£1234"),
    ],
)
def test_amounts_are_shown_with_their_currency(
    value: float, currency: str, options: dict[str, Any], shown: str
) -> None:
    """A sign of letters is set apart, other signs are not."""
    assert run("formatCurrency", value=value, currency=currency, **options) == shown


@pytest.mark.parametrize(
    "currency", ["", "US", "DOLLAR", "U$D", "ÄÖÜ", "ſſs", "ﬁx", None, 7], ids=repr
)
def test_what_is_no_currency_code_is_a_failure(currency: Any) -> None:
    """An amount without its currency would be read as another."""
    with pytest.raises(ExpressionFault):
        run("formatCurrency", value=1, currency=currency)


@pytest.mark.parametrize(
    ("value", "pattern", "shown"),
    [
        ("2026-09-04T13:05:06Z", "yyyy-MM-dd'T'HH:mm:ss", "2026-09-04T13:05:06"),
        ("2026-09-04T13:05:06Z", "h 'o''clock' a", "1 o'clock PM"),
        ("2026-09-04T00:05:06Z", "h:m:s a", "12:5:6 AM"),
        ("2026-09-04", "EEE EE E", "Fri Fri Fri"),
        ("2026-09-04", "y yy yyyy", "2026 26 2026"),
        ("0044-03-15", "yyyy", "0044"),
        ("2026-09-04", "QQQ", "QQQ"),
        ("2026-09-04", "d '' d", "4 ' 4"),
        ("2026-09-04", "d ' d", "4  d"),
        ("2026-09-04", "''''", "''"),
        ("2026-09-04", "'''d''' d", "'d' 4"),
        ("2026-09-04", "d 'd''d", "4 d'd"),
        ("2026-09-04", "d'", "4"),
        ("2026-09-04 10:11", "HH:mm", "10:11"),
        ("2026-09-04t10:11z", "HH:mm", "10:11"),
        ("2026-09-04T23:30:00-02:00", "d HH", "4 23"),
        ("2026-09-04T23:30:00-02:00", "ISO", "2026-09-05T01:30:00.000Z"),
        ("0001-01-01T00:00:00+05:00", "ISO", ""),
        (" 2026-09-04 ", "d", "4"),
    ],
)
def test_dates_are_written_after_their_pattern(value: str, pattern: str, shown: str) -> None:
    """At the date's own offset; quotes keep letters from being tokens."""
    assert run("formatDate", value=value, format=pattern) == shown


@given(st.lists(st.sampled_from(["'", "d", "abc", " ", "''"])).map("".join), st.booleans())
def test_text_in_quotes_is_written_as_it_is(text: str, closed: bool) -> None:
    """Whatever it is, and also if the last quote is missing."""
    quoted = "'x" + text.replace("'", "''") + ("'" if closed else "")

    assert run("formatDate", value="2026-09-04", format=f"d{quoted}") == f"4x{text}"


def test_a_date_without_an_offset_is_utc_wherever_the_process_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same value shows the same text on every machine."""
    with monkeypatch.context() as away:
        away.setenv("TZ", "America/New_York")
        time.tzset()
        shown = run("formatDate", value="2026-09-04T12:00:00", format="ISO")
    time.tzset()

    assert shown == "2026-09-04T12:00:00.000Z"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        7,
        20260904,
        True,
        [],
        "soon",
        "2026",
        "2026-02-30",
        "2026-13-01",
        "2026-09-04T25:00",
        "2026-09-04T10:60",
        "20260904",
        "2026-W36-5",
        "٢٠٢٦-٠٩-٠٤",
    ],
    ids=repr,
)
def test_what_is_no_date_is_shown_as_nothing(value: Any) -> None:
    """A form that is not filled in yet is no failure."""
    assert run("formatDate", value=value, format="yyyy") == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "many"), (1, "one"), (2, "pair"), (1.0, "one"), (-1, "one"), (1.5, "many"), ("1", "one")],
)
def test_a_count_has_its_word(value: Any, shown: str) -> None:
    """English has one and other; zero and two count where they are given."""
    assert run("pluralize", value=value, one="one", two="pair", other="many") == shown


def test_a_word_that_is_null_is_not_given() -> None:
    """A binding may not have its data yet; then `other` is still right."""
    assert run("pluralize", value=0, zero=None, other="many") == "many"
    assert run("pluralize", value=0, zero="", other="many") == ""
    assert run("pluralize", value=1, other="many", few="few") == "many"


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "java\nscript:alert(1)",
        "JAVASCRIPT:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "mailto:a@b.co",
        "tel:123",
        "/relative",
        "example.com",
        "//example.com",
        "http://",
        "http:example.com",
        "http://[",
        "https://exa mple.com",
        "https://example.com/\u202e",
        "vbscript:x",
    ],
)
def test_only_absolute_web_addresses_may_be_opened(url: str) -> None:
    """The URL comes from an agent or from data, and the host is asked to open it."""
    opened: list[str] = []
    function = basic_catalog(opened.append).function("openUrl")
    assert function is not None
    assert function.body is not None
    context = DataContext(surface=Surface(surface_id="s", catalogs=(BASIC,)))

    with pytest.raises(ExpressionFault):
        function.body({"url": url}, resolver_for(context))
    assert opened == []


@pytest.mark.parametrize(
    "url", ["https://example.com", "HTTP://example.com:80/a?b#c", " http://a "]
)
def test_web_addresses_are_handed_to_the_host(url: str) -> None:
    """Without the blanks around them; a host that gave no opener opens nothing."""
    opened: list[str] = []
    function = basic_catalog(opened.append).function("openUrl")
    assert function is not None
    assert function.body is not None

    function.body(
        {"url": url}, resolver_for(DataContext(surface=Surface(surface_id="s", catalogs=())))
    )

    assert opened == [url.strip()]
    assert run("openUrl", url=url) is None


@pytest.mark.parametrize("url", [None, "", "  ", 7], ids=repr)
def test_no_url_opens_nothing_and_is_no_failure(url: Any) -> None:
    """A binding may not have its data yet."""
    assert run("openUrl", url=url) is None


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        ({}, True),
        ([], True),
        ({"valid": False}, False),
        ({"valid": True}, True),
        ({"valid": "no"}, True),
        ("false", True),
        ("", False),
        (0, False),
        (0.0, False),
        (None, False),
    ],
    ids=repr,
)
def test_what_counts_as_true(value: Any, counts: bool) -> None:
    """As in a browser, where empty lists and objects are true; a check counts by its result."""
    assert run("not", value=value) is not counts
    assert run("and", values=[value, True]) is counts
    assert run("or", values=[value, False]) is counts


@pytest.mark.parametrize("values", [None, [], [True], "ab", {"a": 1, "b": 2}], ids=repr)
def test_and_and_or_need_two_values(values: Any) -> None:
    """One value alone would mean itself, and was hardly meant."""
    for name in ("and", "or"):
        with pytest.raises(ExpressionFault):
            run(name, values=values)


@pytest.mark.parametrize(
    ("args", "valid"),
    [
        ({"value": "héllo", "min": 5, "max": 5}, True),
        ({"value": "😀", "max": 1}, True),
        ({"value": None, "max": 0}, True),
        ({"value": 123, "min": 3, "max": 3}, True),
        ({"value": [1, 2], "min": 3}, False),
        ({"value": "abc"}, True),
        ({"value": "abc", "min": "x"}, False),
    ],
    ids=repr,
)
def test_length_counts_characters_or_items(args: dict[str, Any], valid: bool) -> None:
    """A character is a code point, however many bytes it takes."""
    assert run("length", **args) == {"valid": valid}


@pytest.mark.parametrize(
    ("args", "valid"),
    [
        ({"value": "5", "min": 5, "max": 5}, True),
        ({"value": " 5 ", "min": 5}, True),
        ({"value": "5x", "min": 0}, False),
        ({"value": "", "min": 0}, False),
        ({"value": [], "min": 0}, False),
        ({"value": 5, "max": "4"}, False),
        ({"value": 0.1, "min": 0.1}, True),
    ],
    ids=repr,
)
def test_numeric_takes_what_spells_a_number(args: dict[str, Any], valid: bool) -> None:
    """Forms give texts, and a text that is no number is no failure."""
    assert run("numeric", **args) == {"valid": valid}


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("a@b.co", True),
        ("a@b.co\n", False),
        ("a@b.c", False),
        ("a b@c.de", False),
        ("@b.co", False),
        ("a@b.co,c@d.ef", False),
        (None, False),
        (7, False),
    ],
    ids=repr,
)
def test_email_looks_at_the_shape(value: Any, valid: bool) -> None:
    """Whether anybody reads what is sent there is another question."""
    assert run("email", value=value)["valid"] is valid


def test_required_is_about_presence_and_not_about_truth() -> None:
    """Zero and no are answers."""
    present: list[Any] = [0, False, " ", {}, [None]]
    absent: list[Any] = [None, "", []]

    assert [run("required", value=value)["valid"] for value in present] == [True] * 5
    assert [run("required", value=value)["valid"] for value in absent] == [False] * 3


def test_what_a_binding_yields_is_not_interpolated_again() -> None:
    """A person may write `${...}` into a form; it is shown as they wrote it."""
    assert run("formatString", value="[${/t}]") == "[${/u}]"
    assert run("formatString", value="${formatNumber(value: /n, decimals: 1)}") == "2.0"
