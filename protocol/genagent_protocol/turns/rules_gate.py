"""The gate before a turn: what becomes of a prompt that `pre_turn` looked at.

| `pre_turn`  | a caller's prompt              | a generated prompt            |
|-------------|--------------------------------|-------------------------------|
| `Run`       | the turn starts                | the turn starts               |
| `Skip`      | fails `pre_turn_skipped`       | `handle_error` hears of it    |
| `Halt`      | fails `pre_turn_halted`; halt  | halt                          |
| invalid     | fails `pre_turn_invalid`       | `handle_error` hears of it    |
| raises      | fails `pre_turn_skipped`       | hears `pre_turn_crashed`      |

A refused prompt becomes no turn: there is no start, no `post_turn`, no change of
phase, only `turn.rejected`. It was accepted work all the same: its admission is
said once the gate came back, and then its one completion. So a retry that its gate
refuses delivers that refusal to its caller.

A turn that cannot be started passes `handle_error` and `post_turn` like one that
failed, and its outcome is delivered; but no prompt may follow from it, because that
could not be started either.
"""

from __future__ import annotations

from genagent_protocol.events import Failed
from genagent_protocol.reasons import (
    PRE_TURN_HALTED,
    PRE_TURN_INVALID,
    PRE_TURN_SKIPPED,
    TASK_SUPERVISOR_UNAVAILABLE,
    Failure,
    PreTurnCrashed,
    Reason,
)
from genagent_protocol.turns.decisions import Decision, Halt, Run, Skip
from genagent_protocol.turns.effects import Effect, StartTurn
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.inputs import CallbackCrashed
from genagent_protocol.turns.requests import Request
from genagent_protocol.turns.rules_settle import (
    conclude_turn,
    halt_and_settle,
    report_refusal,
    settle,
)
from genagent_protocol.turns.rules_turn import never_started
from genagent_protocol.turns.rules_work import rejected
from genagent_protocol.turns.state import Advance, Agent, Gating, Starting, Turn


def gated(agent: Agent, step: Gating, answer: Decision | CallbackCrashed) -> Advance:
    """`pre_turn` came back: the turn starts, or the prompt is refused."""
    request = step.request
    match answer:
        case Run(prompt):
            return _start(agent, request, prompt).after(*step.then)
        case Halt():
            agent, said = _refuse(agent, request, PRE_TURN_HALTED)
            return halt_and_settle(agent).after(*step.then, *said)
        case Skip():
            reason: Failure = PRE_TURN_SKIPPED
        case CallbackCrashed(error=error):
            reason = PRE_TURN_SKIPPED if request.owned else PreTurnCrashed(error)
        case _:
            reason = PRE_TURN_INVALID
    if not request.owned:
        return report_refusal(agent, request, reason).after(*step.then)
    agent, said = _refuse(agent, request, reason)
    return settle(agent).after(*step.then, *said)


def _refuse(agent: Agent, request: Request, reason: Failure) -> tuple[Agent, tuple[Effect, ...]]:
    agent, said = conclude_turn(agent, request, Failed(reason))
    return agent, (rejected(request, reason.code), *said)


def _start(agent: Agent, request: Request, prompt: str) -> Advance:
    turn = Turn(number=agent.turns + 1, request=request, prompt=prompt)
    if agent.turns_refused:
        return never_started(agent, turn, TASK_SUPERVISOR_UNAVAILABLE)
    order = StartTurn(
        turn=turn.number,
        ref=request.ref,
        attempt=request.attempt,
        origin=request.origin,
        prompt=prompt,
        relayed=request.stream_to is not None,
    )
    return Advance(replace(agent, turns=turn.number, step=Starting(turn)), (order,))


def start_failed(agent: Agent, step: Starting, reason: Reason) -> Advance:
    """The turn's code could not be started."""
    return never_started(agent, step.turn, reason)
