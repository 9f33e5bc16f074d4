"""A provider's session, named in the middle of a turn: who may, which id, what outlives what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.answers import Ok, Refused
from genagent_protocol.events import Failed
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import (
    CHECKPOINT_FAILED,
    CONFLICTING_SESSION_ID,
    INVALID_SESSION_ID,
    NOT_CURRENT,
    UNSUPPORTED_CHECKPOINT,
)
from genagent_protocol.session_ids import MAX_SESSION_ID_BYTES, acceptable
from genagent_protocol.turns.decisions import Invalid
from genagent_protocol.turns.effects import CheckpointSession, DropTurn, KeepTurn
from genagent_protocol.turns.state import Offers
from support.turns_scripted import Answer, ScriptedAgent, raises
from support.turns_values import done


def in_a_turn(offers: Offers | None = None) -> ScriptedAgent:
    agent = ScriptedAgent() if offers is None else ScriptedAgent(offers=offers)
    agent.submit(1)
    return agent


def applied(agent: ScriptedAgent) -> list[str]:
    calls = agent.handled("checkpoint_session")
    return [call.session_id for call in calls if isinstance(call, CheckpointSession)]


def test_an_id_is_applied_at_once_and_again_to_the_session_of_the_turn() -> None:
    """It has to survive both: the turn that fails, and the turn that returns a session."""
    agent = in_a_turn()

    assert agent.checkpoint("s") == Ok()
    assert applied(agent) == ["s"]
    agent.end()
    assert agent.orders(KeepTurn) == [KeepTurn(1, checkpoint="s")]


def test_the_same_id_again_is_fine_and_applied_once() -> None:
    """Providers repeat themselves."""
    agent = in_a_turn()

    assert [agent.checkpoint("s"), agent.checkpoint("s")] == [Ok(), Ok()]
    assert applied(agent) == ["s"]


@pytest.mark.parametrize("end", ["interrupt", "watchdog", "crash", "stopped"])
def test_an_accepted_id_outlives_a_turn_that_is_dropped(end: str) -> None:
    """The retained session has it; dropping the turn does not take it back."""
    agent = in_a_turn()
    agent.checkpoint("s")
    if end == "interrupt":
        agent.interrupt()
        agent.stopped()
    elif end == "watchdog":
        agent.deadline("watchdog")
        agent.stopped()
    else:
        getattr(agent, end)()

    assert applied(agent) == ["s"]
    assert agent.orders(KeepTurn, DropTurn) == [DropTurn(1)]


def test_a_turn_that_is_being_stopped_may_still_name_its_session() -> None:
    """The id is most precious when the turn is about to be lost."""
    agent = in_a_turn()
    agent.interrupt()

    assert agent.checkpoint("s") == Ok()
    agent.stopped()
    assert applied(agent) == ["s"]


def test_a_turn_that_is_over_may_not() -> None:
    """not_current, recorded nowhere: the next turn is not disturbed."""
    agent = in_a_turn()
    agent.end()
    assert agent.checkpoint("s") == Refused(NOT_CURRENT)
    agent.submit(2)
    assert agent.checkpoint("s", turn=1) == Refused(NOT_CURRENT)
    agent.end()

    assert agent.completions(2) == [done()]
    assert applied(agent) == []


def test_an_agent_that_leaves_takes_no_id() -> None:
    """Its session is about to be released."""
    agent = in_a_turn()
    agent.stop()

    assert agent.checkpoint("s") == Refused(NOT_CURRENT)


def test_the_first_refusal_fails_the_turn_and_keeps_its_state() -> None:
    """Conflicting, then invalid: the turn fails with conflicting, although a result follows."""
    agent = in_a_turn()
    agent.checkpoint("s")

    assert agent.checkpoint("t") == Refused(CONFLICTING_SESSION_ID)
    assert agent.checkpoint("") == Refused(INVALID_SESSION_ID)
    agent.end()
    assert agent.completions(1) == [Failed(CONFLICTING_SESSION_ID)]
    assert agent.orders(KeepTurn) == [KeepTurn(1, session=False)]


def test_a_backend_that_cannot_apply_ids_gets_none() -> None:
    """unsupported_checkpoint: the turn fails, nothing was called."""
    agent = in_a_turn(Offers())

    assert agent.checkpoint("s") == Refused(UNSUPPORTED_CHECKPOINT)
    agent.fail("r")
    assert agent.completions(1) == [Failed(UNSUPPORTED_CHECKPOINT)]


@pytest.mark.parametrize("answer", [raises("checkpoint_session"), Invalid()], ids=["raises", "bad"])
def test_an_id_that_could_not_be_applied_was_not_accepted(answer: Answer) -> None:
    """The backend raised over it: the turn fails with that, the agent lives."""
    agent = in_a_turn()
    agent.script("checkpoint_session", answer)

    assert agent.checkpoint("s") == Refused(CHECKPOINT_FAILED)
    agent.end()
    assert agent.completions(1) == [Failed(CHECKPOINT_FAILED)]
    assert agent.exit is None


def test_a_refusal_does_not_hide_a_crash() -> None:
    """A turn that raised has raised; why is the more useful answer."""
    agent = in_a_turn(Offers())
    agent.checkpoint("s")
    agent.crash()

    assert "completion r1 task_crashed" in agent.story


@pytest.mark.parametrize(
    "session_id", [None, 7, b"s", "", "a\nb", "a\x00", "\x7f", "\x9b", "ä" * 513, ("s",)]
)
def test_what_is_no_session_id_is_refused(session_id: Plain) -> None:
    """Text of 1 to 1,024 bytes without control characters, nothing else."""
    assert not acceptable(session_id)
    assert in_a_turn().checkpoint(session_id) == Refused(INVALID_SESSION_ID)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=400))
def test_any_printable_text_of_fitting_length_is_a_session_id(session_id: str) -> None:
    """Providers choose their ids; no form is demanded of them."""
    fits = len(session_id.encode()) <= MAX_SESSION_ID_BYTES

    assert acceptable(session_id) == fits
