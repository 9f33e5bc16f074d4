"""A name has one holder, from the request that started it until its last DOWN is out."""

from __future__ import annotations

import pytest

from genagent_protocol.supervision.effects import Launch, NotStarted, Started, Stopped
from genagent_protocol.supervision.inputs import AgentReady, Input
from genagent_protocol.supervision.table import whereis
from support.supervision_phases import (
    NEVER,
    ONCE,
    born,
    drained,
    exits,
    key_of,
    start,
    stop,
)
from support.supervision_rehearsal import Rehearsal
from support.supervision_world import captured, life


def test_of_200_simultaneous_starts_of_a_name_exactly_one_succeeds() -> None:
    """Any race for a name has one winner, and the others learn who it is."""
    daemon = Rehearsal(*(start(f"start {n}", client=n) for n in range(200)))
    daemon.tell(born(), AgentReady(life(1)))

    answers = [daemon.answer(f"start {n}") for n in range(200)]

    assert daemon.count(Launch) == 1
    assert [a for a in answers if isinstance(a, Started)] == [Started(captured(1))]
    refused = [a.error for a in answers if isinstance(a, NotStarted)]
    assert [error.kind for error in refused] == ["already_started"] * 199
    assert {error.detail for error in refused} == {life(1).text}


def test_a_taken_name_is_refused_with_the_handle_of_its_holder() -> None:
    """Whoever comes second can use, watch or stop what is there."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    daemon.tell(start("second"))

    answer = daemon.answer("second")
    assert isinstance(answer, NotStarted)
    assert answer.holder == captured(1)
    assert answer.error.detail == life(1).text


def test_a_holder_that_has_no_process_yet_is_named_without_a_handle() -> None:
    """There is no pid to capture before the birth."""
    daemon = Rehearsal(start(), start("second"))

    answer = daemon.answer("second")
    assert isinstance(answer, NotStarted)
    assert answer.holder is None
    assert answer.error.detail == life(1).text


@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        ((), "running"),
        ((exits(),), "exited"),
        ((exits(), drained()), "restarting"),
        ((stop("stop"),), "stopping"),
    ],
)
def test_a_name_stays_taken_until_its_agent_is_really_gone(
    facts: tuple[Input, ...], phase: str
) -> None:
    """A second agent beside a half-dead first one is what names are there to prevent."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=ONCE))
    daemon.tell(*facts)

    daemon.tell(start("second"))

    answer = daemon.answer("second")
    assert isinstance(answer, NotStarted)
    assert answer.error.kind == "already_started"
    assert phase in answer.error.message


def test_a_name_is_free_for_a_new_incarnation_once_its_agent_is_gone() -> None:
    """The successor is another life: nothing of the first one means it."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(exits(), drained())

    number = daemon.run_agent(start("second"))

    assert number == 2
    assert daemon.answer("second") == Started(captured(2))


def test_a_failed_agent_keeps_its_name_until_somebody_stops_it() -> None:
    """A name that silently came free would hide that its agent was given up."""
    daemon = Rehearsal()
    daemon.run_agent(start(restart=NEVER))
    daemon.tell(exits(1), drained())

    daemon.tell(start("second"), stop(), start("third"))

    second = daemon.answer("second")
    assert isinstance(second, NotStarted)
    assert "stop it first" in second.error.message
    assert isinstance(daemon.answer("stop"), Stopped)
    assert daemon.answers("third") == []
    assert daemon.count(Launch) == 2


def test_whereis_finds_an_agent_only_between_ready_and_its_end() -> None:
    """A name must never lead to something that cannot take a prompt."""
    daemon = Rehearsal()
    found = []
    for fact in (start(), born(), AgentReady(life(1)), exits(), drained()):
        daemon.tell(fact)
        found.append(whereis(daemon.table, key_of("a")))

    assert found == [None, None, captured(1), None, None]


def test_whereis_does_not_find_an_agent_that_cannot_be_reached() -> None:
    """Its process lives, but whatever was sent there would be lost."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    daemon.tell(drained())

    assert whereis(daemon.table, key_of("a")) is None


def test_whereis_does_not_know_a_name_that_nobody_holds() -> None:
    """Not found is an answer."""
    assert whereis(Rehearsal().table, key_of("a")) is None


def test_names_are_compared_by_their_key_alone() -> None:
    """1 and True are equal in Python and are two names here."""
    daemon = Rehearsal(start("int", name=1), start("bool", name=True))

    assert daemon.count(Launch) == 2


def test_control_characters_of_a_name_are_escaped_in_an_error() -> None:
    """A name must not be able to write into somebody's terminal."""
    daemon = Rehearsal(start(name="a\x1b[2J"), start("second", name="a\x1b[2J"))

    answer = daemon.answer("second")
    assert isinstance(answer, NotStarted)
    assert "a\\x1b[2J" in answer.error.message
    assert "\x1b" not in answer.error.message
