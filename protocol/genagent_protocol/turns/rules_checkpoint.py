"""Naming the provider's session in the middle of a turn, so that it outlives the turn.

The first acceptable id (`session_ids.py`) that the backend can apply wins; the same
one again is fine.
The first refusal is remembered and fails the turn, even if a result follows. Only
the turn in flight may name one, also while it is being stopped: a turn that is over,
or belongs to an agent that is leaving, is told `not_current`, and nothing comes of it.
"""

from __future__ import annotations

from genagent_protocol.answers import Ok, Refused
from genagent_protocol.reasons import (
    CHECKPOINT_FAILED,
    CONFLICTING_SESSION_ID,
    INVALID_SESSION_ID,
    NOT_CURRENT,
    UNSUPPORTED_CHECKPOINT,
    Reason,
)
from genagent_protocol.session_ids import acceptable
from genagent_protocol.turns.decisions import Decision, Done
from genagent_protocol.turns.effects import CheckpointSession, Invoke, Reply
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.inputs import CallbackCrashed, CheckpointRequested
from genagent_protocol.turns.state import Advance, Agent, Checkpointing, Running, Stopping, Turn


def checkpoint(agent: Agent, given: CheckpointRequested) -> Advance:
    """The turn named the provider's session: it is applied, known already, or refused."""
    step = agent.step
    if not isinstance(step, (Running, Stopping)) or agent.leaving is not None:
        return Advance(agent, (Reply(given.call, Refused(NOT_CURRENT)),))
    turn, session_id = step.turn, given.session_id
    if turn.number != given.turn:
        return Advance(agent, (Reply(given.call, Refused(NOT_CURRENT)),))
    if not agent.offers.checkpoint_session:
        return _refuse(agent, step, given, UNSUPPORTED_CHECKPOINT)
    if not acceptable(session_id):
        return _refuse(agent, step, given, INVALID_SESSION_ID)
    if turn.checkpoint == session_id:
        return Advance(agent, (Reply(given.call, Ok()),))
    if turn.checkpoint is not None:
        return _refuse(agent, step, given, CONFLICTING_SESSION_ID)
    applying = Checkpointing(step, given.call, session_id)
    return Advance(replace(agent, step=applying), (Invoke(CheckpointSession(session_id)),))


def _refuse(
    agent: Agent, step: Running | Stopping, given: CheckpointRequested, reason: Reason
) -> Advance:
    refused = replace(agent, step=_with_turn(step, _refusing(step.turn, reason)))
    return Advance(refused, (Reply(given.call, Refused(reason)),))


def _refusing(turn: Turn, reason: Reason) -> Turn:
    return turn if turn.refusal is not None else replace(turn, refusal=reason)


def _with_turn(step: Running | Stopping, turn: Turn) -> Running | Stopping:
    return replace(step, turn=turn)


def checkpointed(agent: Agent, step: Checkpointing, answer: Decision | CallbackCrashed) -> Advance:
    """The backend applied the id, or could not; the turn goes on either way."""
    turn = step.back.turn
    if isinstance(answer, Done):
        accepted = _with_turn(step.back, replace(turn, checkpoint=step.session_id))
        return Advance(replace(agent, step=accepted), (Reply(step.call, Ok()),))
    refusing = _with_turn(step.back, _refusing(turn, CHECKPOINT_FAILED))
    refused = Reply(step.call, Refused(CHECKPOINT_FAILED))
    return Advance(replace(agent, step=refusing), (refused,))
