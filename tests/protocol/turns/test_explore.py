"""Every course of some small agents, walked to the end, under every law at once."""

from __future__ import annotations

import pytest

from genagent_protocol.turns import rules_work
from genagent_protocol.turns.state import Advance, Agent
from support.turns_explorer import Broken, Universe, explore
from support.turns_universes import EVERYDAY, LARGE_ONES


def named(universe: Universe) -> str:
    return universe.name


@pytest.mark.parametrize("universe", EVERYDAY, ids=named)
def test_no_order_of_events_breaks_a_law(universe: Universe) -> None:
    """What can be enumerated is enumerated: a rule about order is right in every order."""
    closure = explore(universe)

    assert closure.edges > closure.spots > 100


@pytest.mark.slow
@pytest.mark.parametrize("universe", LARGE_ONES, ids=named)
def test_no_order_of_more_events_breaks_a_law(universe: Universe) -> None:
    """The long walk mixes what the everyday ones keep apart."""
    closure = explore(universe, fate_every=97)

    assert closure.edges > closure.spots > 5_000


def test_a_failure_tells_the_shortest_way_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace is only read if it is short: here nothing shorter could show the fault."""

    def lazy(agent: Agent) -> Advance:
        return Advance(agent)

    monkeypatch.setattr(rules_work, "next_work", lazy)
    monkeypatch.setattr("genagent_protocol.turns.rules_settle.next_work", lazy)

    with pytest.raises(Broken) as broken:
        explore(EVERYDAY[0])

    assert broken.value.trace == ["> CallbackReturned('pre_run', Done())"]
