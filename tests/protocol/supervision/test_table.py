"""The table answers who is where and in what phase, and its reports show no content."""

from __future__ import annotations

import pytest

from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import BootId, Incarnation
from genagent_protocol.supervision.effects import Emit
from genagent_protocol.supervision.table import child_of, handle_of
from support.supervision_phases import (
    NEVER,
    PHASES,
    dies,
    drained,
    run,
    start,
)
from support.supervision_rehearsal import Rehearsal
from support.supervision_world import captured, life

SHOWN = {
    "launched": "starting",
    "starting": "starting",
    "missed": "starting",
    "refused": "starting",
    "running": "running",
    "asked": "stopping",
    "killed": "stopping",
    "doomed": "stopping",
    "unreachable": "running",
    "exited": "exited",
    "restarting": "restarting",
    "failed": "failed",
    "draining": "stopping",
    "stopping": "stopping",
    "forced": "stopping",
}


@pytest.mark.parametrize("phase", SHOWN)
def test_every_phase_has_a_word(phase: str) -> None:
    """An operator sees one of six words, and each of them can occur."""
    (only,) = run(*PHASES[phase]).children.values()

    assert only.phase == SHOWN[phase]


def test_a_child_keeps_the_reason_of_its_last_life() -> None:
    """Enough to know why there is no process."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=NEVER))
    daemon.tell(dies(11), drained())

    (only,) = daemon.table.children.values()
    assert (only.last, only.reason, only.error) == (life(1), ExitReason("signal:11"), None)
    assert handle_of(daemon.table, only) is None
    assert child_of(daemon.table, life(1)) is None


def test_a_living_incarnation_leads_to_its_child() -> None:
    """By the incarnation alone, and never from another boot."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    child = child_of(daemon.table, life(1))

    assert child is not None
    assert handle_of(daemon.table, child) == captured(1)
    assert child_of(daemon.table, Incarnation(BootId("f" * 16), 1)) is None
    assert child_of(daemon.table, life(2)) is None


def test_children_come_in_the_order_in_which_names_were_taken() -> None:
    """A list that jumps about cannot be read twice."""
    daemon = Rehearsal(start("1", name="b"), start("2", name="a"), start("3", name="c"))

    assert [child.terms.name for child in daemon.table.children.values()] == ["b", "a", "c"]


@pytest.mark.parametrize("phase", PHASES)
def test_reports_never_carry_the_recipe_of_an_agent(phase: str) -> None:
    """It holds options, and options hold secrets."""
    daemon = Rehearsal(*PHASES[phase])

    reports = [effect for effect in daemon.orders if isinstance(effect, Emit)]

    assert not [report for report in reports if "echo" in str(report.metadata)]
    for report in reports:
        if report.event.startswith("agent."):
            assert report.metadata["agent"] == "a"
            assert report.metadata["incarnation"] == life(1).text
