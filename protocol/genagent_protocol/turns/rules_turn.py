"""The turn in flight, and the exact order in which it ends.

While a turn runs, the machine only relays its events, accepts its checkpoints and
waits. A turn ends once: by its own outcome, by a crash, or because it was told to
stop. Being told (`interrupt`, `watchdog`) is not the end. The machine remembers
why, discards whatever the turn still produces, and goes on only when the turn's
code has really ended; so there is one outcome, and never two turns alive. An
interrupt that comes while a watchdog's stop is under way takes its place. A turn
that does not end in its grace takes the agent with it (`turn_stuck`).

What survives a turn that ended by itself: its final stream state, and the session
that `prompt` returned. What survives any other: the state and session of its
dispatch. An acknowledged checkpoint survives both; a refused one fails the turn
with the first refusal, keeps the state and gives up the new session.

Then, in this order: telemetry; `handle_response` or `handle_error`; `post_turn`;
the outcome, or for a failed ask or tell whose decision is a prompt the reservation
of its next attempt; the follow-up; and the way back to idle (`rules_settle`). A
completion is sent right there, an ask's answer only when the agent is idle again.

`handle_response` has no guard: if it raises or answers nonsense, the agent exits
before anything is delivered. All other callbacks here are guarded.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from genagent_protocol.answers import InterruptAnswer
from genagent_protocol.bounds import LARGEST_OUTCOME_BYTES
from genagent_protocol.events import Completed, Failed, Outcome
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import (
    DRAINING,
    INTERRUPTED,
    TASK_SUPERVISOR_UNAVAILABLE,
    TIMEOUT,
    ExitReason,
    Failure,
    Overloaded,
    PayloadTooLarge,
    Reason,
    TaskCrashed,
)
from genagent_protocol.turns.decisions import Decision, Halt, Invalid, NoReply, Prompt
from genagent_protocol.turns.effects import (
    ArmDeadline,
    CancelTurn,
    DisarmDeadline,
    DropTurn,
    Effect,
    Emit,
    HandleError,
    HandleResponse,
    Invoke,
    KeepTurn,
    PostTurn,
    Reply,
    SendEvent,
)
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.inputs import (
    CallbackCrashed,
    TurnCrashed,
    TurnEnded,
    TurnEventReceived,
    TurnReport,
    TurnStopped,
)
from genagent_protocol.turns.requests import CallId, Request
from genagent_protocol.turns.rules_settle import (
    conclude_turn,
    halt_and_settle,
    hold,
    prompt_error,
    report_overload,
    settle,
)
from genagent_protocol.turns.rules_work import follow_up, leave, refused, rejected, reserve
from genagent_protocol.turns.state import (
    Advance,
    Agent,
    Deciding,
    Ending,
    Running,
    Stopping,
    Turn,
    Wrapping,
)

TurnNote: TypeAlias = Literal["prompt.stop", "turn.start", "turn.stop", "turn.error"]

#: What a turn's code that ends without an outcome is said to have died of.
SILENT_END = TaskCrashed("normal")


# While it runs


def started(agent: Agent, turn: Turn) -> Advance:
    """The turn's code is running: the agent is processing from here on."""
    request = turn.request
    effects: list[Effect] = []
    if agent.limits.watchdog_ms is not None:
        effects.append(ArmDeadline("watchdog", agent.limits.watchdog_ms, turn.number))
    effects += (
        Emit(
            name="prompt.start",
            ref=request.ref,
            attempt=request.attempt,
            origin=request.origin,
            prompt=turn.prompt,
            original_prompt=request.prompt,
            rewritten=turn.prompt != request.prompt,
        ),
        turn_note("turn.start", request),
        Emit(name="state.changed", was="idle", now="processing"),
    )
    return Advance(replace(agent, step=Running(turn)), tuple(effects))


def relay(agent: Agent, given: TurnEventReceived) -> Advance:
    """An event of the turn goes on to who listens; one of another turn goes nowhere."""
    match agent.step:
        case Running(turn) if turn.number == given.turn and turn.request.stream_to is not None:
            return Advance(
                agent, (SendEvent(turn.request.stream_to, turn.request.ref, given.event),)
            )
    return Advance(agent)


# Being told to stop


def interrupt(agent: Agent, waiting: tuple[CallId, ...] = ()) -> Advance:
    """Stop the turn in flight for somebody who asked; *waiting* hear when it is over.

    An agent that is leaving answers none of them: its end is the answer.
    """
    match agent.step:
        case Running(turn):
            return stop_turn(agent, _heard_by(turn, waiting), INTERRUPTED)
        case Stopping(turn) if agent.leaving is None:
            return Advance(replace(agent, step=Stopping(_heard_by(turn, waiting), INTERRUPTED)))
    return Advance(agent)


def _heard_by(turn: Turn, waiting: tuple[CallId, ...]) -> Turn:
    return replace(turn, interrupts=(*turn.interrupts, *waiting)) if waiting else turn


def watchdog_passed(agent: Agent, number: int | None) -> Advance:
    """The turn ran for as long as it may."""
    match agent.step:
        case Running(turn) if turn.number == number:
            return stop_turn(agent, turn, TIMEOUT)
    return Advance(agent)


def stop_turn(agent: Agent, turn: Turn, why: Reason | None, grace_ms: int | None = None) -> Advance:
    """Return the agent waiting for its turn's code to end, and not for longer than the grace."""
    grace = agent.limits.interrupt_grace_ms if grace_ms is None else grace_ms
    orders = (
        *_watchdog_off(agent),
        CancelTurn(turn.number),
        ArmDeadline("grace", grace, turn.number),
    )
    return Advance(replace(agent, step=Stopping(turn, why)), orders)


def _watchdog_off(agent: Agent) -> tuple[Effect, ...]:
    return () if agent.limits.watchdog_ms is None else (DisarmDeadline("watchdog"),)


# Its end


def turn_over(agent: Agent, report: TurnReport) -> Advance:
    """The turn's code runs no more. Reports of any other turn mean nothing."""
    match agent.step:
        case Running(turn) if turn.number == report.turn:
            return _ended(agent, turn, report).after(*_watchdog_off(agent))
        case Stopping(turn, why) if turn.number == report.turn:
            calm = (DisarmDeadline("grace"), DropTurn(turn.number))
            if agent.leaving is not None:
                return leave(agent, agent.leaving).after(*calm)
            assert why is not None
            return _failed(agent, turn, why).after(*calm)
    return Advance(agent)


def _ended(agent: Agent, turn: Turn, report: TurnReport) -> Advance:
    match report:
        case TurnEnded():
            return _judge(agent, turn, report).after(_kept(turn, report))
        case TurnCrashed(error=error, message=message):
            crash = TaskCrashed(error, message)
            return _failed(agent, turn, crash).after(DropTurn(turn.number))
        case TurnStopped():
            return _failed(agent, turn, SILENT_END).after(DropTurn(turn.number))


def _kept(turn: Turn, report: TurnEnded) -> KeepTurn | DropTurn:
    if not report.dispatched:
        return DropTurn(turn.number)
    if turn.refusal is not None:
        return KeepTurn(turn.number, session=False)
    return KeepTurn(turn.number, checkpoint=turn.checkpoint)


def _judge(agent: Agent, turn: Turn, report: TurnEnded) -> Advance:
    if turn.refusal is not None:
        return _failed(agent, turn, turn.refusal)
    delivered: Outcome = report.outcome
    if report.encoded_bytes > LARGEST_OUTCOME_BYTES:
        delivered = Failed(PayloadTooLarge(report.encoded_bytes, LARGEST_OUTCOME_BYTES))
    return _decide(agent, Ending(turn=turn, outcome=report.outcome, delivered=delivered))


def _failed(agent: Agent, turn: Turn, reason: Failure) -> Advance:
    outcome = Failed(reason)
    return _decide(agent, Ending(turn=turn, outcome=outcome, delivered=outcome))


def never_started(agent: Agent, turn: Turn, reason: Reason) -> Advance:
    """The turn could not be started: it failed, and nothing may follow from that but a halt."""
    outcome = Failed(reason)
    ending = Ending(turn=turn, outcome=outcome, delivered=outcome, started=False)
    return _decide(agent, ending)


def _decide(agent: Agent, ending: Ending) -> Advance:
    turn, request = ending.turn, ending.turn.request
    deciding = replace(agent, step=Deciding(ending))
    match ending.outcome:
        case Completed(response):
            notes = (
                turn_note("prompt.stop", request, turn.number),
                turn_note("turn.stop", request, turn.number),
            )
            return Advance(deciding, (*notes, Invoke(HandleResponse(request.ref, response))))
        case Failed(reason) if ending.started:
            error = turn_note("turn.error", request, turn.number, kind_of_error(reason))
            notes = (prompt_error(request, reason, turn.number), error)
            return Advance(deciding, (*notes, Invoke(HandleError(request.ref, reason))))
        case Failed(reason):
            notes = (rejected(request, reason.code), prompt_error(request, reason))
            return Advance(deciding, (*notes, Invoke(HandleError(request.ref, reason))))


def kind_of_error(reason: Failure) -> str:
    """Return the bounded kind under which metrics count a failed turn."""
    if isinstance(reason, TaskCrashed) or reason in (TIMEOUT, INTERRUPTED):
        return reason.code
    return "backend_or_callback_error"


def turn_note(
    name: TurnNote, request: Request, turn: int | None = None, reason_kind: str | None = None
) -> Emit:
    """Return a note about one attempt; with a *turn* the shell adds how long it took."""
    return Emit(
        name=name,
        ref=request.ref,
        attempt=request.attempt,
        origin=request.origin,
        turn=turn,
        reason_kind=reason_kind,
    )


# Decision, post_turn, and what follows


def decided(agent: Agent, step: Deciding, answer: Decision | CallbackCrashed) -> Advance:
    """The decision callback came back; the turn is seen off."""
    ending = step.ending
    if isinstance(ending.outcome, Completed) and isinstance(answer, (Invalid, CallbackCrashed)):
        error = answer.error if isinstance(answer, CallbackCrashed) else "invalid_return"
        detail = FrozenDict({"callback": step.callback, "error": error})
        return leave(agent, ExitReason("callback_failed", detail))
    decision = answer if isinstance(answer, (Prompt, Halt)) else NoReply()
    wrapping = replace(agent, step=Wrapping(ending, decision))
    return Advance(wrapping, (Invoke(PostTurn(ending.turn.request.ref, ending.outcome)),))


def wrapped(agent: Agent, step: Wrapping) -> Advance:
    """`post_turn` came back, whichever way: the outcome is delivered, or the next attempt set."""
    ending, decision = step.ending, step.decision
    if isinstance(decision, Prompt) and _retries(agent, ending):
        return _retry(agent, ending, decision)
    agent, said = _deliver(agent, ending)
    match decision:
        case Prompt():
            return _follow(agent, ending, follow_up(decision)).after(*said)
        case Halt():
            return halt_and_settle(agent).after(*said)
        case _:
            return settle(agent).after(*said)


def _retries(agent: Agent, ending: Ending) -> bool:
    return (
        isinstance(ending.outcome, Failed)
        and ending.outcome.reason != INTERRUPTED
        and ending.turn.request.owned
        and ending.started
        and agent.draining is None
    )


def _retry(agent: Agent, ending: Ending, prompt: Prompt) -> Advance:
    request = ending.turn.request
    again = replace(request, prompt=prompt.text, attempt=request.attempt + 1)
    reserved = reserve(agent, again)
    if isinstance(reserved, Overloaded):
        agent, said = _deliver(agent, ending)
        return report_overload(agent, follow_up(prompt), reserved).after(*said)
    return settle(_idle_again(reserved, ending))


def _deliver(agent: Agent, ending: Ending) -> tuple[Agent, tuple[Effect, ...]]:
    turn = ending.turn
    agent, said = conclude_turn(agent, turn.request, ending.delivered)
    accepted = InterruptAnswer("accepted")
    agent = hold(agent, *(Reply(call, accepted) for call in turn.interrupts))
    return _idle_again(agent, ending), said


def _idle_again(agent: Agent, ending: Ending) -> Agent:
    if not ending.started:
        return agent
    return hold(agent, Emit(name="state.changed", was="processing", now="idle"))


def _follow(agent: Agent, ending: Ending, request: Request) -> Advance:
    if agent.draining is not None:
        return settle(agent).after(*refused(request, DRAINING))
    if not ending.started:
        # Whatever cannot be started now cannot be started either when tried at once.
        return settle(agent).after(*refused(request, TASK_SUPERVISOR_UNAVAILABLE))
    reserved = reserve(agent, request)
    if isinstance(reserved, Overloaded):
        return report_overload(agent, request, reserved)
    return settle(reserved)
