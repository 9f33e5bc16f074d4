"""Two clients of one shape: the same names, arguments and answers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from genagentd.client import aio, captured, client, group, mailbox, session
from genagentd.client.calls import Known

PAIRS = [
    (client.Client, aio.AsyncClient),
    (captured.Captured, captured.AsyncCaptured),
    (mailbox.Mailbox, mailbox.AsyncMailbox),
    (group.Group, group.AsyncGroup),
    (session.Session, session.AsyncSession),
]
#: Protocols that Python spells differently for the two worlds.
SPELLED = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
}
#: A client that nobody closed can be finalized only where no loop is needed.
ONLY_BLOCKING = {"__del__"}


def surface(of: type[Any]) -> set[str]:
    own = {name for name in vars(of) if not name.startswith("_") or name in _DUNDERS}
    return own - ONLY_BLOCKING


_DUNDERS = {*SPELLED, *SPELLED.values(), "__del__", "__init__"}


@pytest.mark.parametrize(("blocking", "looped"), PAIRS)
def test_both_have_the_same_names(blocking: type[Any], looped: type[Any]) -> None:
    """A program is ported by adding `await`."""
    translated = {SPELLED.get(name, name) for name in surface(blocking)}

    assert translated == surface(looped)


def arguments_of(function: Any) -> list[tuple[str, Any, Any]]:
    return [
        (p.name, p.kind, p.default)
        for p in inspect.signature(function).parameters.values()
        if p.name not in ("self", "shell")
    ]


@pytest.mark.parametrize(("blocking", "looped"), PAIRS)
def test_both_take_the_same_arguments(blocking: type[Any], looped: type[Any]) -> None:
    """Names, kinds and defaults, time limits included."""
    for name in surface(blocking):
        ours, theirs = getattr(blocking, name), getattr(looped, SPELLED.get(name, name))
        if callable(ours):
            assert arguments_of(ours) == arguments_of(theirs), name


@pytest.mark.parametrize(("blocking", "looped"), PAIRS)
def test_both_return_the_same(blocking: type[Any], looped: type[Any]) -> None:
    """But for the words that say in which world the answer can be used."""
    for name in surface(blocking) - {"shell"}:
        ours, theirs = getattr(blocking, name), getattr(looped, SPELLED.get(name, name))
        if callable(ours):
            expected = str(inspect.signature(ours).return_annotation)
            found = str(inspect.signature(theirs).return_annotation)
            assert found.replace("Async", "").replace("Looped", "Blocking") == expected, name


@pytest.mark.parametrize("of", [aio.AsyncClient, captured.AsyncCaptured, group.AsyncGroup])
def test_what_talks_is_awaited(of: type[Any]) -> None:
    """One rule to remember: only what stays in this process is called without `await`."""
    plain = {"at", "mailbox", "group", "__init__", "number_to_start_in", "__aiter__"}
    for name in surface(of):
        function = vars(of)[name]
        if callable(function) and name not in plain:
            assert inspect.iscoroutinefunction(function), name


def test_poll_by_handle_never_says_lost() -> None:
    """The captured process is asked, and it either answers or is down."""
    assert "Lost" not in str(Known)
