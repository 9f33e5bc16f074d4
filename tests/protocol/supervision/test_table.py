"""What list and status show follows from the table, and shows no content."""

from __future__ import annotations

import pytest
from support.supervision_phases import (
    NEVER,
    PHASES,
    dies,
    drained,
    key_of,
    run,
    start,
)
from support.supervision_rehearsal import Rehearsal
from support.supervision_world import life

from genagent_protocol.reasons import ExitReason
from genagent_protocol.supervision.effects import Emit
from genagent_protocol.supervision.rows import Row, row, rows

SHOWN = {
    "launched": "starting",
    "starting": "starting",
    "refused": "starting",
    "running": "running",
    "asked": "stopping",
    "killed": "stopping",
    "doomed": "stopping",
    "unreachable": "running",
    "exited": "exited",
    "restarting": "restarting",
    "failed": "failed",
    "shutting": "stopping",
}


@pytest.mark.parametrize("phase", SHOWN)
def test_every_phase_has_a_word(phase: str) -> None:
    """An operator sees one of six words, and each of them can occur."""
    (only,) = rows(run(*PHASES[phase]))

    assert only.phase == SHOWN[phase]


def test_a_row_shows_identities_and_reasons() -> None:
    """Enough to find the process and to know why it is not there."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=NEVER))
    daemon.tell(dies(11), drained())

    assert row(daemon.table, key_of("a")) == Row(
        name="a",
        incarnation=life(1),
        phase="failed",
        pid=None,
        group=None,
        restart="permanent",
        restarts=0,
        reason=ExitReason("signal:11"),
        error=None,
    )


def test_rows_come_in_the_order_in_which_names_were_taken() -> None:
    """A list that jumps about cannot be read twice."""
    daemon = Rehearsal(start("1", name="b"), start("2", name="a"), start("3", name="c"))

    assert [r.name for r in rows(daemon.table)] == ["b", "a", "c"]
    assert row(daemon.table, key_of("nobody")) is None


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
