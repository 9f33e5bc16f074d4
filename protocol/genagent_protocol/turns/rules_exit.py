"""How an agent comes to its end: drained, stopped, stuck, or never opened.

Draining admits nothing more, fails what waits, lets the turn in flight reach its
completion, and exits. What a drain refuses is told; it drops the rest (generated
prompts, kept notifications), because only a future turn could have used it.

Stopping does not wait for the turn's outcome. Asks, active or waiting, are answered
if the end is an orderly one; a tell hears nothing, its caller learns the end. Then
the turn's code is stopped, and only when it has really ended, or its grace is over,
both termination callbacks run and the agent exits. While it waits for that it still
answers, and admits nothing.

A turn that does not end in its grace is abandoned with the whole agent, whether
the agent was leaving anyway or not: never is a turn left running behind another. So is
one whose processes cannot be looked for: what may run on is not over.
"""

from __future__ import annotations

from genagent_protocol.answers import Ok
from genagent_protocol.events import Failed
from genagent_protocol.reasons import (
    DRAINING,
    ORDERLY,
    TURN_STUCK,
    AgentTerminated,
    ExitReason,
)
from genagent_protocol.turns.decisions import Decision, Declined, Done
from genagent_protocol.turns.effects import AbandonTurn, ArmDeadline, Effect, Emit, Leaving, Reply
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.held import held
from genagent_protocol.turns.inputs import CallbackCrashed, DrainRequested, StopRequested
from genagent_protocol.turns.requests import Request
from genagent_protocol.turns.rules_settle import conclude, settle, take_waiting
from genagent_protocol.turns.rules_turn import stop_turn
from genagent_protocol.turns.rules_work import leave, rejected
from genagent_protocol.turns.state import Advance, Agent, Ready, Running, Stopping, Turn, Waiting


def opened(agent: Agent, answer: Decision | CallbackCrashed) -> Advance:
    """`pre_run` came back: the agent opens, or ends before its first turn."""
    match answer:
        case Done():
            return settle(agent)
        case Declined(reason):
            return leave(agent, ExitReason("pre_run_failed", reason))
        case CallbackCrashed(error=error):
            return leave(agent, ExitReason("pre_run_crashed", error))
        case _:
            return leave(agent, ExitReason("pre_run_invalid"))


# Draining


def drain(agent: Agent, given: DrainRequested) -> Advance:
    """Nothing is admitted from here on; an idle agent exits at once."""
    answer = () if given.call is None else (Reply(given.call, Ok()),)
    if agent.draining is not None or agent.leaving is not None:
        return Advance(agent, answer)
    agent, waiting = take_waiting(replace(agent, draining=given.reason, paced=False), _any)
    effects: list[Effect] = []
    for request in waiting:
        agent, said = conclude(agent, request, Failed(DRAINING))
        effects += (rejected(request, DRAINING.code), *said)
    for _ in agent.notifications.items:
        effects.append(Emit(name="input.rejected", reason=DRAINING))
    agent = replace(agent, notifications=Waiting())
    if isinstance(agent.step, Ready):
        return leave(agent, given.reason).after(*answer, *effects)
    return Advance(agent, (*answer, *effects, Leaving(held(agent))))


def _any(_request: Request) -> bool:
    return True


# Stopping


def stop(agent: Agent, given: StopRequested) -> Advance:
    """The agent ends now, or as soon as its turn's code has ended."""
    if agent.leaving is not None:
        return Advance(agent)
    agent, answers = _answer_asks(replace(agent, leaving=given.reason), given.reason)
    match agent.step:
        case Running(turn):
            leaving = Leaving(held(agent))
            return stop_turn(agent, turn, None, _last_grace_ms(agent)).after(*answers, leaving)
        case Stopping(turn):
            leaving = Leaving(held(agent))
            shorter = ArmDeadline("grace", _last_grace_ms(agent), turn.number)
            return Advance(replace(agent, step=Stopping(turn, None)), (*answers, leaving, shorter))
    return leave(agent, given.reason).after(*answers)


def _answer_asks(agent: Agent, reason: ExitReason) -> tuple[Agent, tuple[Effect, ...]]:
    if reason.text not in ORDERLY:
        return agent, ()
    turn = agent.turn
    active = () if turn is None or turn.request.origin != "ask" else (turn.request,)
    agent, waiting = take_waiting(agent, _is_ask)
    failed = Failed(AgentTerminated(reason))
    return agent, tuple(Reply(request.call, failed) for request in (*active, *waiting))


def _is_ask(request: Request) -> bool:
    return request.origin == "ask"


def _last_grace_ms(agent: Agent) -> int:
    """Half of the shutdown window at most: the termination callbacks need the rest."""
    grace, window = agent.limits.interrupt_grace_ms, agent.limits.shutdown_ms
    return grace if window is None else min(grace, window // 2)


def grace_passed(agent: Agent, number: int | None) -> Advance:
    """The turn's code did not end in time: the agent goes, and the code with it."""
    match agent.step:
        case Stopping(turn) if turn.number == number:
            return _abandon(agent, turn)
    return Advance(agent)


def not_swept(agent: Agent, number: int) -> Advance:
    """What the turn began may run on, and only the end of the agent ends it for certain."""
    match agent.step:
        case Running(turn) | Stopping(turn, _) if turn.number == number:
            return _abandon(agent, turn)
    return Advance(agent)


def _abandon(agent: Agent, turn: Turn) -> Advance:
    reason = TURN_STUCK if agent.leaving is None else agent.leaving
    return leave(agent, reason).after(AbandonTurn(turn.number))
