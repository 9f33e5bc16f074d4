"""Options are read once, strictly, and a refusal never repeats a value."""

from __future__ import annotations

import pytest

from genagent_backends import anthropic, chat, claude_options, codex_options, endpoints, openai
from genagent_backends.anthropic import AnthropicBackend
from genagent_backends.base import Backend, Failed
from genagent_backends.chat import ChatBackend
from genagent_backends.claude import ClaudeBackend
from genagent_backends.codex import CodexBackend
from genagent_backends.openai import OpenAIBackend
from genagent_backends.options import (
    BadValue,
    Chosen,
    Declared,
    Option,
    Unsupported,
    amount,
    choice,
    duration_ms,
    environment,
    flag,
    mapping,
    read_options,
    text,
    texts,
    whole,
)
from genagent_backends.rehearsal import settled
from genagent_protocol.plain import FrozenDict, Plain, freeze

CANARY = "gsk_CANARY7"
BACKENDS: list[tuple[type[Backend], tuple[Declared, ...]]] = [
    (AnthropicBackend, (*endpoints.SHARED, anthropic.API_VERSION, anthropic.CACHE)),
    (OpenAIBackend, (*endpoints.SHARED, openai.STORE, openai.TRUNCATION, openai.EFFORT)),
    (ChatBackend, (*endpoints.SHARED, chat.TOKENS_FIELD, chat.STREAM_USAGE)),
    (ClaudeBackend, claude_options.DECLARED),
    (CodexBackend, codex_options.DECLARED),
]
MODEL: Option[str | None] = Option("model", text, None)
TIMEOUT_MS: Option[int | None] = Option("timeout_ms", duration_ms, 600_000, aliases=("timeout",))
CD = Unsupported("cd", "is lost on resume; use working_dir")
DECLARED = (MODEL, TIMEOUT_MS, CD)


def read(**given: object) -> Chosen | Failed:
    return read_options(DECLARED, frozen(given))


def frozen(given: object) -> FrozenDict:
    value = freeze(given)
    assert isinstance(value, FrozenDict)
    return value


def refusal(**given: object) -> tuple[Plain, Plain]:
    answer = read(**given)
    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    return answer.reason["code"], answer.reason["option"]


def test_what_was_not_given_has_its_default() -> None:
    """A backend reads every option the same way, given or not."""
    chosen = read(model="large")
    assert isinstance(chosen, Chosen)

    assert (MODEL.of(chosen), TIMEOUT_MS.of(chosen)) == ("large", 600_000)
    assert chosen.given == {"model"}


def test_null_means_not_given() -> None:
    """A profile may switch an option off that another layer has set."""
    chosen = read(model=None, cd=None)

    assert isinstance(chosen, Chosen)
    assert MODEL.of(chosen) is None


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    """A typing error in the name of a safety switch must not be ignored silently."""
    answer = read(modle="large")

    assert isinstance(answer, Failed)
    assert answer.reason == FrozenDict(
        {
            "code": "unknown_option",
            "option": "modle",
            "message": "there is no option modle; did you mean model?",
        }
    )


def test_an_unknown_option_that_is_like_no_other_is_refused_with_those_that_there_are() -> None:
    """Whoever guessed has the names then."""
    answer = read(zzz=1)

    assert isinstance(answer, Failed)
    assert "there is no option zzz; there are " in str(answer.reason)
    assert "model" in str(answer.reason)


def test_a_malformed_value_is_refused_without_repeating_it() -> None:
    """The value may be a key that was put into the wrong option."""
    answer = read(timeout_ms="sk-secret")

    assert isinstance(answer, Failed)
    assert refusal(timeout_ms="sk-secret") == ("invalid_option", "timeout_ms")
    assert "sk-secret" not in repr(answer)


def test_an_option_that_cannot_be_kept_is_refused_unless_it_is_off() -> None:
    """An explicit false asks for nothing, so it is no reason to refuse."""
    assert refusal(cd="/tmp") == ("unsupported_option", "cd")
    assert isinstance(read(cd=False), Chosen)


def test_an_old_name_is_accepted_with_a_warning() -> None:
    """Renaming an option must not break those who use it."""
    with pytest.warns(FutureWarning, match="timeout is an old name of timeout_ms"):
        chosen = read(timeout=5)

    assert isinstance(chosen, Chosen)
    assert TIMEOUT_MS.of(chosen) == 5


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_two_names_with_two_values_conflict_and_with_one_do_not() -> None:
    """Whichever was taken, the other would silently be wrong."""
    assert refusal(timeout=5, timeout_ms=6) == ("conflicting_options", "timeout_ms")
    assert isinstance(read(timeout=5, timeout_ms=5), Chosen)


def test_printing_what_was_chosen_shows_names_only() -> None:
    """It ends up in error messages; values may be secret."""
    assert repr(read(model="secret")) == "Chosen(model)"


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (text, ["a", "ä"], ["", 1, None, True, "a\0b", ("a",)]),
        (flag, [True, False], [0, 1, "true", None]),
        (whole(1), [1, 2**40], [0, -1, True, 1.0, "1"]),
        (amount, [1, 0.5], [0, -1, True, "1", float("nan"), float("inf")]),
        (choice("a", "b"), ["a"], ["c", "A", "", 1]),
        (texts, ["a", ("a", "b"), ()], [1, ("a", 1), ("",), FrozenDict()]),
        (mapping, [FrozenDict({"a": 1})], [(), "a", 1]),
        (
            environment,
            [FrozenDict({"A": "b", "C": False, "D": None})],
            [FrozenDict({"A": 1}), FrozenDict({"A=B": "c"}), FrozenDict({"A": "b\0"}), ()],
        ),
    ],
    ids=["text", "flag", "whole", "amount", "choice", "texts", "mapping", "environment"],
)
def test_a_check_takes_what_it_says_and_nothing_else(
    check: object, good: list[Plain], bad: list[Plain]
) -> None:
    """Truth values are no numbers, texts are no lists, and nothing is converted."""
    assert callable(check)
    for value in good:
        check(value)
    for value in bad:
        with pytest.raises(BadValue):
            check(value)


def test_a_duration_may_be_infinite_and_is_never_zero() -> None:
    """Zero would mean "at once" to some and "never" to others."""
    assert duration_ms("infinity") is None
    assert duration_ms(1) == 1
    for bad in (0, -1, True, "forever", 1.5):
        with pytest.raises(BadValue):
            duration_ms(bad)


def test_an_environment_unsets_by_false_and_null() -> None:
    """Not every variable can be overridden by another value."""
    assert environment(FrozenDict({"A": "b", "C": False, "D": None})) == {
        "A": "b",
        "C": None,
        "D": None,
    }


@pytest.mark.parametrize(("backend", "declared"), BACKENDS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("value", [CANARY, [CANARY], {"NAME": CANARY}, f"{CANARY}\0"], ids=str)
async def test_no_refusal_of_any_backend_repeats_a_value(
    backend: type[Backend], declared: tuple[Declared, ...], value: object
) -> None:
    """Whichever option a key was given to by mistake."""
    program = {"binary": "true"} if backend in (ClaudeBackend, CodexBackend) else {}
    for option in declared:
        options = frozen({"model": "m", **program, option.name: value})
        answer = await settled(backend().start_session(options))
        assert not isinstance(answer, Failed) or CANARY not in repr(answer), option.name


@pytest.mark.parametrize("value", [4, 1.5, True])
def test_what_json_takes_for_a_number_is_told_how_to_be_text(value: object) -> None:
    """On a command line `-o model=4` is a number, and nobody sees that it is."""
    answer = read(model=value)

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert answer.reason["code"] == "invalid_option"
    assert """-o 'NAME="..."'""" in str(answer.reason["message"])
