"""Every order of events around one or two agents, walked to the end, with every law checked.

What is checked lies in the world and the explorer: no DOWN before both facts, one
for each monitor, every call answered once, no name held by two, nothing left.
"""

from __future__ import annotations

import pytest

from genagent_protocol.supervision.inputs import (
    AgentReady,
    ClientGone,
    GroupCloseRequested,
    GroupOpenRequested,
    Input,
    ShutdownRequested,
)
from support.supervision_explorer import after, explore, opening
from support.supervision_phases import ONCE, born, demonitor, monitor, start, stop
from support.supervision_world import life

OPEN = GroupOpenRequested(call="open", client=1)
CLOSE = GroupCloseRequested(call="close", client=1, group=1)
GRACEFUL = ShutdownRequested(grace_ms=4)
AGAIN = ShutdownRequested(grace_ms=2, forced=True)
FORCED = ShutdownRequested(grace_ms=1, forced=True)
IN_GROUP = start("in group", group=1)
OTHER_IN_GROUP = start("b", name="b", group=1)
SECOND = start("second", client=2)


@pytest.mark.parametrize(
    ("tickets", "words", "at_least"),
    [
        pytest.param((start(), stop()), True, 2_000, id="start and stop, all words"),
        pytest.param((start(), monitor(), demonitor()), False, 200, id="monitors"),
        pytest.param((start(), SECOND, stop()), False, 1_000, id="two starters"),
        pytest.param((start(restart=ONCE), stop()), False, 2_000, id="restart and stop"),
        pytest.param((start(restart=ONCE), GRACEFUL), False, 2_000, id="restart and shutdown"),
        pytest.param((OPEN, IN_GROUP, CLOSE, ClientGone(1)), False, 500, id="group"),
        pytest.param((start(), GRACEFUL, stop(), AGAIN), False, 1_000, id="shutdown twice"),
        pytest.param((start(), FORCED, stop(), GRACEFUL), False, 1_000, id="shutdown forced"),
    ],
)
def test_every_law_holds_in_every_order_of_events(
    tickets: tuple[Input, ...], words: bool, at_least: int
) -> None:
    """Deaths, deadlines and requests meet in orders nobody would think of writing down."""
    closure = explore(opening(*tickets), words=words)

    assert closure.situations >= at_least, "the walk was cut short"


@pytest.mark.parametrize("ending", [CLOSE, GRACEFUL], ids=["close", "shutdown"])
def test_every_law_holds_while_two_agents_of_a_group_end(ending: Input) -> None:
    """Nobody is told that all is over while the other one is left."""
    facts = (OPEN, IN_GROUP, OTHER_IN_GROUP, born(1), born(2), AgentReady(life(1)))
    start_there = after(opening(*facts[:3], ending), *facts, ending)

    assert explore(start_there, words=False).situations >= 100


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("tickets", "words"),
    [
        pytest.param((start(), stop(), monitor(), GRACEFUL), True, id="words and shutdown"),
        pytest.param((start(restart=ONCE), stop(), monitor(), GRACEFUL), False, id="restart"),
        pytest.param((OPEN, IN_GROUP, CLOSE, SECOND, stop()), False, id="group and global"),
        pytest.param((OPEN, IN_GROUP, CLOSE, OTHER_IN_GROUP), False, id="two in a group"),
    ],
)
def test_every_law_holds_in_larger_closures(tickets: tuple[Input, ...], words: bool) -> None:
    """The same, with more that can meet."""
    assert explore(opening(*tickets), words=words, fate_every=10).edges > 20_000
