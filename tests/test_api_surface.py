"""What people write against changes only on purpose, and never without its page."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import get_args

import click
import pytest

import genagentd
from genagent_protocol import envelopes
from genagent_protocol.turns import effects
from genagentd import Agent, messages, testing
from genagentd.agent.peers import Peers
from genagentd.cli import agents, daemon_commands
from genagentd.cli.main import load_commands
from support import reference_pages, reference_python

#: The callbacks of an agent. A new one needs a default, or every agent breaks.
CALLBACKS = {
    "init_agent": ("options",),
    "handle_response": ("ref", "response", "state"),
    "handle_error": ("ref", "reason", "state"),
    "handle_event": ("event", "state"),
    "handle_stream_event": ("event", "state"),
    "pre_run": ("state",),
    "pre_turn": ("prompt", "state"),
    "post_turn": ("outcome", "ref", "state"),
    "post_run": ("state",),
    "terminate_agent": ("reason", "state"),
    "copy_state": ("state",),
    "show_state": ("state",),
}
TESTING = (
    *("Gates", "Heard", "NotHeard", "PrivateDaemon", "until"),
    *("breaks", "cannot_start", "echoes", "hangs", "holds", "says", "scripted"),
)


def test_the_generated_pages_are_current() -> None:
    """Every signature is on a page: `scripts/reference` writes it, and somebody looks."""
    assert reference_pages.stale() == []


def test_the_page_of_telemetry_names_every_event() -> None:
    """In the table, and no other."""
    page = (reference_pages.DIRECTORY / "telemetry.md").read_text(encoding="utf-8")

    named = re.findall(r"^\| `([a-z._]+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted([*get_args(effects.EmitName), envelopes.RECORDS_LOST])


def test_the_callbacks_are_what_they_were() -> None:
    """Agents override them by name and get their arguments by position."""
    found = {
        name: tuple(
            argument.lstrip("_")
            for argument in inspect.signature(getattr(Agent, name)).parameters
            if argument != "self"
        )
        for name, _ in reference_python.public_methods(Agent)
    }

    assert found == CALLBACKS


def test_only_one_callback_must_be_written() -> None:
    """The others do nothing by default; another abstract one would break every agent."""
    assert Agent.__abstractmethods__ == {"handle_response"}
    assert "`handle_response` is the one callback that you have to write." in (Agent.__doc__ or "")


def test_every_class_is_on_the_page_once() -> None:
    """Twice would be two sets of the same words."""
    titles = [title for title, _, _ in reference_python.CLASSES]
    kinds = [kind for _, kind, _ in reference_python.CLASSES]

    assert len(set(titles)) == len(titles)
    assert len(set(kinds)) == len(kinds)


def test_the_page_of_the_commands_spells_an_option_as_its_help_does() -> None:
    """And lists none that the help hides."""
    load_commands()
    listed = set(re.findall(r"^\| `(.+?)`", reference_pages.cli_page(), re.MULTILINE))
    helps = [
        command.get_help(click.Context(command))
        for app in (agents.app, daemon_commands.app)
        for command in app.commands.values()
    ]

    assert listed
    for option in listed:
        # The last name, and what stands behind it: the help puts a short name first.
        spelled = option.split(", ")[-1]
        assert any(spelled in text for text in helps), option


def test_the_names_for_tests_are_what_they_were() -> None:
    """Other people's tests import them."""
    assert sorted(testing.__all__) == sorted(TESTING)
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    assert not hasattr(testing, "says_")


@pytest.mark.parametrize(
    ("of", "member"),
    [
        (kind.__name__, member)
        for _, kind, _ in reference_python.CLASSES
        for member in reference_python.public_methods(kind)
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_every_public_call_says_what_it_gives(of: str, member: tuple[str, object]) -> None:
    """The page is made of these words."""
    name, function = member
    doc = inspect.getdoc(function)

    assert doc, f"{of}.{name}"
    assert doc[0].isupper()


@pytest.mark.parametrize("name", [*genagentd.__all__, *messages.__all__])
def test_every_value_says_what_it_is(name: str) -> None:
    """A dataclass without words would show its signature instead."""
    thing = getattr(genagentd, name, None) or getattr(messages, name)
    if isinstance(thing, type) and dataclasses.is_dataclass(thing):
        assert thing.__doc__
        assert not thing.__doc__.startswith(f"{thing.__name__}(")


def test_what_waits_has_a_limit_that_can_be_set() -> None:
    """No call of an agent's own can wait for ever without being told to."""
    for name, function in reference_python.public_methods(Peers):
        if name in ("ask", "notify_ack", "tell_with_completion"):
            assert "timeout_ms" in inspect.signature(function).parameters, name  # type: ignore[arg-type]  # a function
