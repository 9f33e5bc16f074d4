"""The calls that look at an agent or steer it, answered in any phase.

None of them waits for a turn, except an exact interrupt, which is answered when
the turn it stopped has been dealt with. None of them touches another request than
the one it names:

- `cancel` removes a waiting tell, and answers `cancelled` for as long as that is
  remembered. The active turn is not waiting, and only tells can be cancelled.
- `interrupt_request` stops the active turn if it is that request's.
- `reset_session` is for an idle agent, halted or not; queue and state stay.
- `resume` clears a halt, or takes back one that was asked for and has not come.

The views carry no prompt, event, state or session.
"""

from __future__ import annotations

from genagent_protocol.answers import (
    AgentAnswer,
    CancelAnswer,
    CurrentRequest,
    InterruptAnswer,
    NotFound,
    Ok,
    Phase,
    PollCompleted,
    PollFailed,
    PollPending,
    Refused,
    Snapshot,
    Status,
)
from genagent_protocol.events import Completed, Failed
from genagent_protocol.reasons import (
    CANCELLED,
    BackendFailed,
    Failure,
    Reason,
    ResetFailed,
)
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns.decisions import Decision, Declined, Done
from genagent_protocol.turns.effects import Emit, Invoke, Reply, ResetSession
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.inputs import (
    CallbackCrashed,
    CallerDown,
    CancelRequested,
    InterruptRequested,
    PollRequested,
    ResetRequested,
)
from genagent_protocol.turns.requests import Request
from genagent_protocol.turns.rules_admission import closed, current, known, waiting
from genagent_protocol.turns.rules_settle import conclude, halt_and_settle, take_waiting
from genagent_protocol.turns.rules_turn import interrupt
from genagent_protocol.turns.rules_work import next_work
from genagent_protocol.turns.state import Advance, Agent, Ready, Resetting

# Views


def polled(agent: Agent, given: PollRequested) -> Advance:
    """Somebody hears what is known of a ref; not knowing it proves nothing."""
    return Advance(agent, (Reply(given.call, _fate(agent, given.ref)),))


def _fate(agent: Agent, ref: RequestRef) -> AgentAnswer:
    match agent.results.find(ref):
        case Completed(response):
            return PollCompleted(response)
        case Failed(reason):
            return PollFailed(reason)
    return PollPending() if known(agent, ref) else NotFound()


def phase(agent: Agent) -> Phase:
    """Return `processing` while a turn is in flight or being stopped, else `idle`."""
    return "idle" if agent.turn is None else "processing"


def snapshot(agent: Agent) -> Snapshot:
    """Return the counts and identities of *agent*; the shell knows the elapsed time."""
    turn = agent.turn
    active = None
    if turn is not None:
        active = CurrentRequest(
            ref=turn.request.ref,
            origin=turn.request.origin,
            attempt=turn.request.attempt,
            elapsed_ms=0,
            watchdog_ms=agent.limits.watchdog_ms,
        )
    return Snapshot(
        phase=phase(agent),
        halted=agent.halted,
        halt_pending=agent.halt_pending,
        draining=agent.draining is not None,
        pending_prompts=agent.prompts.usage.count,
        pending_notifications=agent.notifications.usage.count,
        self_chain_pending=agent.chain is not None,
        current_request=active,
    )


def status(agent: Agent) -> Status:
    """Return the description of *agent*; the shell knows its name and shows its state."""
    turn = agent.turn
    return Status(
        state=phase(agent),
        name=None,
        queued=agent.prompts.usage.count,
        current_request=None if turn is None else turn.request.ref,
        halted=agent.halted,
        halt_pending=agent.halt_pending,
        draining=agent.draining is not None,
        agent_state=None,
    )


# Cancelling


def cancel(agent: Agent, given: CancelRequested) -> Advance:
    """A waiting tell is removed before the answer is given; nothing else is touched."""
    request = waiting(agent, given.ref)
    if request is not None and request.origin == "tell":
        agent, _ = take_waiting(agent, lambda other: other is request)
        agent, said = conclude(agent, request, Failed(CANCELLED))
        answer = Reply(given.call, CancelAnswer("cancelled"))
        return Advance(agent, (_cancelled(request, "caller_cancelled"), *said, answer))
    return Advance(agent, (Reply(given.call, _not_cancelled(agent, given.ref)),))


def _not_cancelled(agent: Agent, ref: RequestRef) -> CancelAnswer:
    turn = agent.turn
    if turn is not None and turn.request.ref == ref and turn.request.origin == "tell":
        return CancelAnswer("current")
    match agent.results.find(ref):
        case None:
            return CancelAnswer("not_found")
        case Failed(reason) if reason == CANCELLED:
            return CancelAnswer("cancelled")
        case _:
            return CancelAnswer("already_finished")


def caller_down(agent: Agent, given: CallerDown) -> Advance:
    """The queued asks of a caller that is gone run for nobody, so they do not run.

    An ask that has begun goes on, also between two attempts.
    """
    gone = tuple(
        request
        for request in agent.prompts.items
        if request.origin == "ask" and request.caller == given.caller
    )
    if not gone:
        return Advance(agent)
    notes = tuple(_cancelled(request, "caller_down") for request in gone)
    return Advance(replace(agent, prompts=agent.prompts.without(gone)), notes)


def _cancelled(request: Request, reason_kind: str) -> Emit:
    return Emit(
        name="turn.cancelled",
        ref=request.ref,
        attempt=request.attempt,
        origin=request.origin,
        reason_kind=reason_kind,
    )


# Interrupting, halting, resuming


def interrupt_exactly(agent: Agent, given: InterruptRequested) -> Advance:
    """The turn of exactly this ref is stopped, or none is."""
    if current(agent, given.ref):
        return interrupt(agent, (given.call,))
    answer = InterruptAnswer("idle" if agent.turn is None else "not_current")
    return Advance(agent, (Reply(given.call, answer),))


def halt_from_outside(agent: Agent) -> Advance:
    """An idle agent halts now, any other once its turn has been dealt with."""
    if agent.halted:
        return Advance(agent)
    if isinstance(agent.step, Ready):
        return halt_and_settle(agent)
    return Advance(replace(agent, halt_pending=True))


def resume(agent: Agent) -> Advance:
    """A halted agent goes on; a halt that was only asked for is taken back."""
    if agent.halted:
        return next_work(replace(agent, halted=False))
    return Advance(replace(agent, halt_pending=False))


def paused_enough(agent: Agent) -> Advance:
    """The pause of the slot is over."""
    if not agent.paced:
        return Advance(agent)
    agent = replace(agent, paced=False)
    return next_work(agent) if isinstance(agent.step, Ready) else Advance(agent)


# Resetting the session


def reset(agent: Agent, given: ResetRequested) -> Advance:
    """The backend is asked for a new session, if nothing speaks against it."""
    refusal = _no_reset(agent)
    if refusal is not None:
        return Advance(agent, (Reply(given.call, Refused(refusal)),))
    return Advance(replace(agent, step=Resetting(given.call)), (Invoke(ResetSession()),))


def _no_reset(agent: Agent) -> Reason | None:
    refusal = closed(agent)
    if refusal is not None:
        return refusal
    if not isinstance(agent.step, Ready):
        return Reason("busy")
    return None if agent.offers.reset_session else Reason("unsupported")


def session_reset(agent: Agent, step: Resetting, answer: Decision | CallbackCrashed) -> Advance:
    """The backend came back; unless it made a new session, the old one stays."""
    match answer:
        case Done():
            return _answer_reset(agent, step, None)
        case Declined(reason):
            return _answer_reset(agent, step, BackendFailed(reason))
        case CallbackCrashed(error=error):
            return _answer_reset(agent, step, ResetFailed(error))
        case _:
            return _answer_reset(agent, step, Reason("invalid_reset_result"))


def _answer_reset(agent: Agent, step: Resetting, refusal: Failure | None) -> Advance:
    answer = Ok() if refusal is None else Refused(refusal)
    return Advance(replace(agent, step=Ready()), (Reply(step.call, answer),))
