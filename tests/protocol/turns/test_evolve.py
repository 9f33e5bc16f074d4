"""Our copy of a changed value is the library's, only sooner."""

from __future__ import annotations

import dataclasses

import pytest

from genagent_protocol.bounds import Limits
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.requests import Request
from genagent_protocol.turns.state import Agent, Ready, Running, Turn
from support.turns_values import ref

REQUEST = Request(ref=ref(1), origin="tell", prompt="p")
TURN = Turn(number=1, request=REQUEST, prompt="p")


def test_a_changed_copy_equals_the_librarys_and_leaves_the_original() -> None:
    """Also for a step, whose name is no field of its own."""
    agent = Agent(limits=Limits())

    assert replace(agent, step=Ready(), turns=3) == dataclasses.replace(
        agent, step=Ready(), turns=3
    )
    assert replace(Running(TURN), turn=replace(TURN, number=2)).turn.number == 2
    assert (agent.turns, TURN.number) == (0, 1)
    assert replace(REQUEST) == REQUEST


def test_what_is_no_field_cannot_be_changed() -> None:
    """A misspelt change would otherwise be lost in silence."""
    with pytest.raises(AttributeError):
        replace(REQUEST, attempts=2)  # type: ignore[call-arg]  # that is the point
