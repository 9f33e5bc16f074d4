"""The way from the end of a turn, or of an idle notification, back to idle.

In this order, each step once the one before is through:

1. Deferred notifications, oldest first; each gives back its room before its
   callback runs. A prompt that one produces goes to the tail of the pending queue.
   A halt among them does not cut the rest short.
2. If there was a halt: `post_run`, then the `halted` event, once per transition.
   Both see the state after the whole batch.
3. A halt that was asked from outside meanwhile, with its own step 2.
4. What was held back is said: an ask's answer, the acknowledgement of an interrupt
   or of an idle notification, the change of phase. Then the agent looks for work.

A halt transition first fails the waiting work that chose to fail (`on_halt`), the
slot before the queue, so that its room is free for what the batch produces. It is
nothing at all for an agent that is halted already.

A generated prompt that became no turn is reported to `handle_error`, once. What
that answers may use the slot if it is free and fits; otherwise it is dropped, and
only `input.rejected` tells. After a refusal by the gate the slot waits out a pause,
so that a gate which always refuses cannot keep the agent from its other callers.
"""

from __future__ import annotations

from collections.abc import Callable

from genagent_protocol.answers import Ok
from genagent_protocol.events import Failed, Outcome
from genagent_protocol.reasons import HALTED, Failure, Overloaded, PreTurnCrashed
from genagent_protocol.turns.decisions import Decision, Halt, Prompt
from genagent_protocol.turns.effects import (
    ArmDeadline,
    Effect,
    Emit,
    HandleError,
    Invoke,
    PostRun,
    Reply,
    SendCompletion,
)
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.inputs import CallbackCrashed
from genagent_protocol.turns.requests import Request
from genagent_protocol.turns.results import remember
from genagent_protocol.turns.rules_work import (
    dispatch,
    enqueue,
    follow_up,
    next_work,
    refused,
    rejected,
    reserve,
)
from genagent_protocol.turns.state import Advance, Agent, Finishing, Noticing, Reporting

#: How long a generated prompt that its gate refused waits before it is tried again.
PACE_MS = 10


def settle(agent: Agent) -> Advance:
    """Return the agent one step nearer to idle: the first thing that is still due."""
    if agent.notifications.items:
        deferred, rest = agent.notifications.take()
        noticing = replace(agent, notifications=rest, step=Noticing(deferred))
        return Advance(noticing, (Invoke(deferred.callback),))
    if agent.post_run_due:
        return Advance(replace(agent, step=Finishing()), (Invoke(PostRun()),))
    if agent.halt_pending:
        return halt_and_settle(agent)
    return next_work(replace(agent, held=())).after(*agent.held)


# Halting


def halt_and_settle(agent: Agent) -> Advance:
    """Return the agent on its way to idle through a halt transition."""
    halted, effects = halt(agent)
    return settle(halted).after(*effects)


def halt(agent: Agent) -> tuple[Agent, tuple[Effect, ...]]:
    """Return the agent halted, its opted-in waiting work failed, and `post_run` due."""
    agent = replace(agent, halt_pending=False)
    if agent.halted:
        return agent, ()
    agent, doomed = take_waiting(replace(agent, halted=True, post_run_due=True), _fails_on_halt)
    effects: list[Effect] = []
    for request in doomed:
        agent, said = conclude(agent, request, Failed(HALTED))
        effects += (rejected(request, HALTED.code), *said)
    return agent, tuple(effects)


def _fails_on_halt(request: Request) -> bool:
    return request.on_halt == "fail"


def run_finished(agent: Agent) -> Advance:
    """`post_run` came back, whichever way: the halt is complete."""
    return settle(replace(agent, post_run_due=False)).after(Emit(name="halted"))


# What becomes of a request


def take_waiting(
    agent: Agent, chosen: Callable[[Request], bool]
) -> tuple[Agent, tuple[Request, ...]]:
    """Return the agent without the *chosen* waiting requests, and those, the slot's first."""
    gone = tuple(request for request in agent.prompts.items if chosen(request))
    if gone:
        agent = replace(agent, prompts=agent.prompts.without(gone))
    if agent.chain is None or not chosen(agent.chain):
        return agent, gone
    return replace(agent, chain=None), (agent.chain, *gone)


def conclude(agent: Agent, request: Request, outcome: Outcome) -> tuple[Agent, tuple[Effect, ...]]:
    """Return the agent and what is said when *request* has its final outcome.

    An ask is answered. A tell's completion is sent and then remembered for polls.
    Nobody waits for a generated prompt.
    """
    if request.origin == "ask":
        return agent, (Reply(request.call, outcome),)
    if not request.owned:
        return agent, ()
    agent = replace(agent, results=remember(agent.results, request.ref, outcome, agent.limits))
    if request.recipient is None:
        return agent, ()
    return agent, (SendCompletion(request.recipient, request.ref, outcome),)


def conclude_turn(
    agent: Agent, request: Request, outcome: Outcome
) -> tuple[Agent, tuple[Effect, ...]]:
    """Return the same, but an ask is answered only when the agent is idle again."""
    agent, said = conclude(agent, request, outcome)
    return (hold(agent, *said), ()) if request.origin == "ask" else (agent, said)


def hold(agent: Agent, *effects: Effect) -> Agent:
    """Return the agent with *effects* to be said when it is idle."""
    return replace(agent, held=(*agent.held, *effects))


# Notifications


def noticed(agent: Agent, step: Noticing, answer: Decision | CallbackCrashed) -> Advance:
    """A notification was handled.

    One that was handled while idle, and whose prompt goes to its gate at once, is
    acknowledged after the gate; any other when the agent is idle again. What
    becomes of the prompt is no part of the acknowledgement.
    """
    ack = () if step.call is None else (Reply(step.call, Ok()),)
    match answer:
        case Prompt(text, ref):
            request = Request(ref=ref, origin="event", prompt=text)
            if step.immediate and not agent.halted and agent.chain is None:
                return dispatch(agent, request, ack)
            return _queue_generated(hold(agent, *ack), request)
        case Halt():
            return halt_and_settle(hold(agent, *ack))
        case _:
            return settle(hold(agent, *ack))


def _queue_generated(agent: Agent, request: Request) -> Advance:
    queued = enqueue(agent, request)
    if isinstance(queued, Overloaded):
        return report_overload(agent, request, queued)
    agent, note = queued
    return settle(agent).after(note)


# Generated prompts that became no turn


def report_overload(agent: Agent, request: Request, overloaded: Overloaded) -> Advance:
    """Tell `handle_error` that a generated prompt did not fit."""
    note = Emit(name="input.rejected", reason=overloaded)
    return _report(agent, request, overloaded, gated=False).after(note)


def report_refusal(agent: Agent, request: Request, reason: Failure) -> Advance:
    """Tell `handle_error` that the gate refused a generated prompt."""
    return _report(agent, request, reason, gated=True)


def _report(agent: Agent, request: Request, reason: Failure, *, gated: bool) -> Advance:
    notes = (rejected(request, kind_of_rejection(reason)), prompt_error(request, reason))
    call = Invoke(HandleError(request.ref, reason))
    return Advance(replace(agent, step=Reporting(request, gated)), (*notes, call))


def reported(agent: Agent, step: Reporting, answer: Decision | CallbackCrashed) -> Advance:
    """`handle_error` was told; its prompt gets the slot if that is free and it fits."""
    match answer:
        case Prompt():
            return _second_chance(agent, follow_up(answer), gated=step.gated)
        case Halt():
            return halt_and_settle(agent)
        case _:
            return settle(agent)


def _second_chance(agent: Agent, request: Request, *, gated: bool) -> Advance:
    reserved = reserve(agent, request)
    if isinstance(reserved, Overloaded):
        # One report of an overload is enough: a callback that answers each with
        # another oversized prompt would otherwise never come to an end.
        if gated:
            return report_overload(agent, request, reserved)
        return settle(agent).after(*refused(request, reserved))
    if gated:
        pause = ArmDeadline("pace", PACE_MS)
        return settle(replace(reserved, paced=True)).after(pause)
    return settle(reserved)


def prompt_error(request: Request, reason: Failure, turn: int | None = None) -> Emit:
    """Return the note that precedes `handle_error`; with a *turn* if one ran."""
    return Emit(
        name="prompt.error",
        ref=request.ref,
        attempt=request.attempt,
        origin=request.origin,
        turn=turn,
        reason=reason,
    )


def kind_of_rejection(reason: Failure) -> str:
    """Return the bounded kind under which metrics count a rejection."""
    if isinstance(reason, PreTurnCrashed):
        return f"{reason.code}:{reason.error}"
    return reason.code
