"""Every phase of an agent times every kind of input: the whole rule book on one page.

A cell says which orders follow, or `noted` (the table changed, nothing is ordered),
`ignored` (late, or not worth a change), or `illegal` (a bug of the shell). Reports
for operators are left out here.
"""

from __future__ import annotations

import pytest

from genagent_protocol.errors import InvalidTransition
from genagent_protocol.supervision import rules
from genagent_protocol.supervision.effects import (
    Answer,
    ArmDeadline,
    AskToStop,
    DisarmDeadline,
    Effect,
    Emit,
    NotStarted,
    Refused,
    SendDown,
    Stopped,
)
from genagent_protocol.supervision.inputs import Input
from genagent_protocol.supervision.table import Table
from support.supervision_phases import GIVEN, PHASES, run

ALL = " ".join(PHASES)
#: The phases of a daemon that shuts down.
ENDING = "draining stopping forced"


def but(phases: str) -> str:
    """Return all phases except these."""
    return " ".join(phase for phase in PHASES if phase not in phases.split())


DRAIN = "Arm(last_words) Arm(shutdown)"
#: For each input: the outcome, and the phases in which it is that.
CELLS: dict[str, dict[str, str]] = {
    "start": {
        "Arm(start) Launch": "nobody",
        "again=NotStarted(already_started)": but(f"nobody {ENDING}"),
        "again=NotStarted(shutting_down)": ENDING,
    },
    "start in a group": {
        "again=NotStarted(group_not_running)": but(ENDING),
        "again=NotStarted(shutting_down)": ENDING,
    },
    "stop": {
        "stop=Refused(not_found)": "nobody",
        "Disarm(start) GiveUpLaunch": "launched",
        "Disarm(start) Kill": "starting refused",
        "Disarm(missed) Disarm(start) Kill": "missed",
        "AskToStop Arm(stop)": "running draining",
        "noted": "asked killed doomed unreachable exited stopping forced",
        "Disarm(restart) stop=Stopped(normal)": "restarting",
        "stop=Stopped(normal)": "failed",
    },
    "stop in a group": {
        "stop=Refused(not_found)": ALL,
    },
    "monitor": {
        "monitor=Done Down(noproc)": "nobody restarting failed",
        "monitor=Done": but("nobody restarting failed"),
    },
    "demonitor": {
        "demonitor=Done": ALL,
    },
    "open": {
        "open=GroupRunning": but(ENDING),
        "open=Refused(shutting_down)": ENDING,
    },
    "close": {
        "close=Refused(not_found)": ALL,
    },
    "client gone": {
        "ignored": ALL,
    },
    "born": {
        "illegal": but("launched doomed restarting failed"),
        "noted": "launched",
        "Kill": "doomed",
        "ignored": "restarting failed",
    },
    "launch failed": {
        "illegal": but("launched doomed restarting failed"),
        "Disarm(start) Dispose start=NotStarted(resource_exhausted)": "launched",
        "Dispose start=NotStarted(exited) earlier=Stopped(noproc)": "doomed",
        "ignored": "restarting failed",
    },
    "exited": {
        "illegal": "nobody launched doomed exited",
        "Disarm(start) Sweep Arm(drain)": "starting refused",
        "Disarm(missed) Disarm(start) Sweep Arm(drain)": "missed",
        "Sweep Arm(drain)": "running killed draining forced",
        "Disarm(stop) Sweep Arm(drain)": "asked stopping",
        "Disarm(leave) Sweep Dispose Arm(restart)": "unreachable",
        "ignored": "restarting failed",
    },
    "channel failed": {
        "illegal": but("starting missed refused restarting failed"),
        "Disarm(start) Kill": "starting refused",
        "Disarm(missed) Disarm(start) Kill": "missed",
        "ignored": "restarting failed",
    },
    "channel missed": {
        "illegal": but("starting missed refused restarting failed"),
        "Arm(missed)": "starting refused",
        "ignored": "missed restarting failed",
    },
    "drained": {
        "illegal": "nobody launched doomed unreachable",
        "Arm(leave)": "starting missed refused running asked draining stopping",
        "noted": "killed forced",
        "Disarm(drain) Dispose Arm(restart)": "exited",
        "ignored": "restarting failed",
    },
    "held": {
        "illegal": but("exited restarting failed"),
        "Disarm(drain) Dispose Arm(restart)": "exited",
        "ignored": "restarting failed",
    },
    "ready": {
        "illegal": "nobody launched doomed unreachable",
        "Disarm(start) start=Started": "starting",
        "Disarm(missed) Disarm(start) start=Started": "missed",
        "ignored": f"refused running asked killed exited restarting failed {ENDING}",
    },
    "refused": {
        "illegal": "nobody launched doomed unreachable",
        "noted": "starting missed",
        "ignored": f"refused running asked killed exited restarting failed {ENDING}",
    },
    "leaving": {
        "illegal": "nobody launched doomed unreachable",
        "noted": f"starting missed refused running asked killed exited {ENDING}",
        "ignored": "restarting failed",
    },
    "said": {
        "illegal": "nobody launched doomed unreachable",
        "noted": f"starting missed refused running asked killed exited {ENDING}",
        "ignored": "restarting failed",
    },
    "abuse": {
        "illegal": "nobody launched doomed unreachable",
        "Disarm(start) Kill": "starting refused",
        "Disarm(missed) Disarm(start) Kill": "missed",
        "Kill": "running draining",
        "Disarm(stop) Kill": "asked stopping",
        "ignored": "killed exited restarting failed forced",
    },
    "start deadline": {
        "illegal": "nobody",
        "GiveUpLaunch": "launched",
        "Kill": "starting refused",
        "Disarm(missed) Kill": "missed",
        "ignored": but("nobody launched starting missed refused"),
    },
    "missed deadline": {
        "illegal": "nobody",
        "ignored": but("nobody missed"),
        "Disarm(start) Kill": "missed",
    },
    "stop deadline": {
        "illegal": "nobody",
        "ignored": but("nobody asked stopping"),
        "Kill": "asked stopping",
    },
    "leave deadline": {
        "illegal": "nobody",
        "ignored": but("nobody unreachable"),
        "Kill": "unreachable",
    },
    "drain deadline": {
        "illegal": "nobody",
        "ignored": but("nobody exited"),
        "DrainNow": "exited",
    },
    "restart deadline": {
        "ignored": but("restarting"),
        "Arm(start) Launch": "restarting",
    },
    "last words due": {
        "ignored": but("draining"),
        "AskToStop Arm(stop)": "draining",
    },
    "grace over": {
        "ignored": but("draining stopping"),
        "Disarm(last_words) Kill": "draining",
        "Disarm(stop) Kill": "stopping",
    },
    "shutdown": {
        f"{DRAIN} Disarm(last_words) Disarm(shutdown) Finished": "nobody failed",
        f"{DRAIN} Disarm(start) GiveUpLaunch": "launched",
        f"{DRAIN} Disarm(start) Kill": "starting refused",
        f"{DRAIN} Disarm(missed) Disarm(start) Kill": "missed",
        f"{DRAIN} AskToDrain": "running",
        DRAIN: "asked killed doomed unreachable exited",
        f"{DRAIN} Disarm(restart) Disarm(last_words) Disarm(shutdown) Finished": "restarting",
        "ignored": ENDING,
    },
    "forced shutdown": {
        "Arm(shutdown) Disarm(shutdown) Finished": "nobody failed",
        "Arm(shutdown) Disarm(start) GiveUpLaunch": "launched",
        "Arm(shutdown) Disarm(start) Kill": "starting refused",
        "Arm(shutdown) Disarm(missed) Disarm(start) Kill": "missed",
        "Arm(shutdown) AskToStop Arm(stop)": "running",
        "Arm(shutdown)": "asked killed doomed unreachable exited",
        "Arm(shutdown) Disarm(restart) Disarm(shutdown) Finished": "restarting",
        "Disarm(last_words) Disarm(shutdown) Kill": "draining",
        "Disarm(shutdown) Disarm(stop) Kill": "stopping",
        "ignored": "forced",
    },
}


def outcome(table: Table, fact: Input) -> str:
    """Return what *fact* leads to, in the words of the cells."""
    try:
        advanced = rules.advance(table, fact)
    except InvalidTransition:
        return "illegal"
    orders = [_order(effect) for effect in advanced.effects if not isinstance(effect, Emit)]
    if orders:
        return " ".join(orders)
    return "ignored" if advanced.table == table else "noted"


def _order(effect: Effect) -> str:
    match effect:
        case Answer(call, Refused(reason)):
            return f"{call}=Refused({reason})"
        case Answer(call, Stopped(ended)):
            return f"{call}=Stopped({ended})"
        case Answer(call, NotStarted(error)):
            return f"{call}=NotStarted({error.kind})"
        case Answer(call, answer):
            return f"{call}={type(answer).__name__}"
        case SendDown():
            return f"Down({effect.reason})"
        case ArmDeadline(timer):
            return f"Arm({timer.kind})"
        case DisarmDeadline(timer):
            return f"Disarm({timer.kind})"
        case AskToStop():
            return "AskToDrain" if effect.drain else "AskToStop"
        case _:
            return type(effect).__name__


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("given", GIVEN)
def test_each_cell_has_the_outcome_that_is_written_down(given: str, phase: str) -> None:
    """Nobody has to guess what a rule does to an agent in a phase it was not written for."""
    expected = [found for found, phases in CELLS[given].items() if phase in phases.split()]

    assert expected == [outcome(run(*PHASES[phase]), GIVEN[given])]


def test_every_kind_of_input_has_its_row() -> None:
    """A new input does not land without its cells."""
    kinds = {type(given) for given in GIVEN.values()}

    assert kinds == set(Input.__args__)
    assert set(CELLS) == set(GIVEN)


@pytest.mark.parametrize("given", GIVEN)
def test_every_row_lists_each_phase_once(given: str) -> None:
    """A phase that is missing or twice in a row would make its cell vacuous."""
    listed = [phase for phases in CELLS[given].values() for phase in phases.split()]

    assert sorted(listed) == sorted(PHASES)


@pytest.mark.parametrize("phase", PHASES)
def test_an_illegal_input_changes_nothing(phase: str) -> None:
    """The table that was passed in is the one that goes on after a shell's mistake."""
    table = run(*PHASES[phase])
    before = hash(table)

    for fact in GIVEN.values():
        outcome(table, fact)

    assert table == run(*PHASES[phase])
    assert hash(table) == before
