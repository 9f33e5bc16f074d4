"""The rule book: which input is heard in which step, and which rule it falls under.

Three kinds of steps decide that:

- **open** (`Ready`, `Running`, `Stopping`): everything from callers, from above and
  from the turn is heard. What does not concern the moment, like the report of an
  older turn or a deadline that was disarmed too late, changes nothing. A callback
  that was not invoked or a start that was not ordered is a shell's mistake.
- **`Starting`**: only the start or its failure, of exactly that turn.
- **callback steps**: only the return or the crash of exactly that callback.

After `Exited` nothing is heard. Whatever is not heard raises `InvalidTransition`,
and the agent is as it was.

A callback that raised or answered what does not fit it is noted (`callback.failed`)
before its rule decides what that costs: `handle_response` and `pre_run` cost the
agent, `pre_turn` its prompt, `checkpoint_session` the turn, the others nothing.

The rules themselves, each file with its theory first: `rules_admission` (what is
let in), `rules_work` (what is next), `rules_gate` (before a turn), `rules_turn`
(the turn and its end), `rules_checkpoint`, `rules_settle` (back to idle, halting,
notifications), `rules_control` (the calls), `rules_exit` (the end).
"""

from __future__ import annotations

from typing import assert_never

from genagent_protocol.bounds import Limits
from genagent_protocol.errors import InvalidTransition
from genagent_protocol.turns import rules_control as control
from genagent_protocol.turns.decisions import Decision, Invalid, fits
from genagent_protocol.turns.effects import Emit, Invoke, PreRun, Reply
from genagent_protocol.turns.evolve import replace
from genagent_protocol.turns.inputs import (
    AskReceived,
    CallbackCrashed,
    CallbackReturned,
    CallerDown,
    CancelRequested,
    CheckpointRequested,
    DeadlinePassed,
    DrainRequested,
    FromAbove,
    FromCallback,
    FromCaller,
    FromStart,
    FromTurn,
    HaltRequested,
    Input,
    InterruptReceived,
    InterruptRequested,
    MessageReceived,
    NotificationReceived,
    PollRequested,
    PromptSubmitted,
    ResetRequested,
    ResumeRequested,
    SnapshotRequested,
    StatusRequested,
    Steering,
    StopRequested,
    TellReceived,
    TurnCrashed,
    TurnEnded,
    TurnEventReceived,
    TurnNotSwept,
    TurnsAllowed,
    TurnsRefused,
    TurnStarted,
    TurnStartFailed,
    TurnStopped,
)
from genagent_protocol.turns.rules_admission import (
    asked,
    message_received,
    notified,
    submitted,
    told,
)
from genagent_protocol.turns.rules_checkpoint import checkpoint, checkpointed
from genagent_protocol.turns.rules_exit import drain, grace_passed, not_swept, opened, stop
from genagent_protocol.turns.rules_gate import gated, start_failed
from genagent_protocol.turns.rules_settle import noticed, reported, run_finished
from genagent_protocol.turns.rules_turn import (
    decided,
    interrupt,
    relay,
    started,
    turn_over,
    watchdog_passed,
    wrapped,
)
from genagent_protocol.turns.state import (
    Advance,
    Agent,
    CallbackStep,
    Checkpointing,
    Deciding,
    Exited,
    Finishing,
    Gating,
    Noticing,
    Offers,
    Opening,
    Ready,
    Reporting,
    Resetting,
    Running,
    Starting,
    Stopping,
    Wrapping,
)

OTHER_STEPS = (Ready, Starting, Running, Stopping, Exited)


def begin(limits: Limits, offers: Offers) -> Advance:
    """Return a new agent, whose `init_agent` and session are done, before its `pre_run`."""
    born = Emit(name="state.changed", was=None, now="idle")
    return Advance(Agent(limits=limits, offers=offers), (born, Invoke(PreRun())))


def advance(agent: Agent, given: Input) -> Advance:
    """Return what *given* makes of *agent*, and what is to be done about it.

    Raises:
        InvalidTransition: the agent's step does not hear such an input.
    """
    match given, agent.step:
        case ((CallbackReturned() | CallbackCrashed()), _):
            return _callback_back(agent, given)
        case ((TurnStarted() | TurnStartFailed()), Starting(turn)) if turn.number == given.turn:
            return _start_reported(agent, agent.step, given)
        case ((TurnStarted() | TurnStartFailed()), _):
            raise _not_heard(agent, given)
        case _, (Ready() | Running() | Stopping()):
            return _heard(agent, given)
        case _:
            raise _not_heard(agent, given)


def _not_heard(agent: Agent, given: Input) -> InvalidTransition:
    return InvalidTransition(
        f"a {type(given).__name__} cannot be heard while the agent is at {agent.step.name}"
    )


# Open steps


def _heard(agent: Agent, given: FromCaller | FromAbove | FromTurn) -> Advance:
    if isinstance(given, FromTurn):
        return _from_turn(agent, given)
    if isinstance(given, FromAbove):
        return _from_above(agent, given)
    return _from_caller(agent, given)


def _from_turn(agent: Agent, given: FromTurn) -> Advance:
    match given:
        case TurnEventReceived():
            return relay(agent, given)
        case CheckpointRequested():
            return checkpoint(agent, given)
        case TurnEnded() | TurnCrashed() | TurnStopped():
            return turn_over(agent, given)
        case TurnNotSwept(turn):
            return not_swept(agent, turn)
        case DeadlinePassed("watchdog", turn):
            return watchdog_passed(agent, turn)
        case DeadlinePassed("grace", turn):
            return grace_passed(agent, turn)
        case DeadlinePassed():
            return control.paused_enough(agent)
        case _:
            assert_never(given)


def _from_above(agent: Agent, given: FromAbove) -> Advance:
    match given:
        case StopRequested():
            return stop(agent, given)
        case CallerDown():
            return control.caller_down(agent, given)
        case TurnsRefused():
            return Advance(replace(agent, turns_refused=True))
        case TurnsAllowed():
            return Advance(replace(agent, turns_refused=False))
        case _:
            assert_never(given)


def _from_caller(agent: Agent, given: FromCaller) -> Advance:
    match given:
        case PromptSubmitted():
            return submitted(agent, given)
        case TellReceived():
            return told(agent, given)
        case AskReceived():
            return asked(agent, given)
        case NotificationReceived():
            return notified(agent, given)
        case MessageReceived():
            return message_received(agent, given)
        case _:
            return _steered(agent, given)


def _steered(agent: Agent, given: Steering) -> Advance:
    match given:
        case PollRequested():
            return control.polled(agent, given)
        case SnapshotRequested(call):
            return Advance(agent, (Reply(call, control.snapshot(agent)),))
        case StatusRequested(call):
            return Advance(agent, (Reply(call, control.status(agent)),))
        case CancelRequested():
            return control.cancel(agent, given)
        case InterruptReceived():
            return interrupt(agent)
        case InterruptRequested():
            return control.interrupt_exactly(agent, given)
        case HaltRequested():
            return control.halt_from_outside(agent)
        case ResumeRequested():
            return control.resume(agent)
        case ResetRequested():
            return control.reset(agent, given)
        case DrainRequested():
            return drain(agent, given)
        case _:
            assert_never(given)


# Starts and callbacks


def _start_reported(agent: Agent, step: Starting, given: FromStart) -> Advance:
    match given:
        case TurnStarted():
            return started(agent, step.turn)
        case TurnStartFailed(reason=reason):
            return start_failed(agent, step, reason)
        case _:
            assert_never(given)


def _callback_back(agent: Agent, given: FromCallback) -> Advance:
    step = agent.step
    if isinstance(step, OTHER_STEPS) or step.callback != given.callback:
        raise _not_heard(agent, given)
    match given:
        case CallbackCrashed(callback, error):
            note = Emit(name="callback.failed", callback=callback, error=error)
            return _resume_at(agent, step, given).after(note)
        case CallbackReturned(callback, decision) if fits(callback, decision):
            return _resume_at(agent, step, decision)
        case CallbackReturned(callback):
            note = Emit(name="callback.failed", callback=callback, error="invalid_return")
            return _resume_at(agent, step, Invalid()).after(note)
        case _:
            assert_never(given)


def _resume_at(agent: Agent, step: CallbackStep, answer: Decision | CallbackCrashed) -> Advance:
    match step:
        case Gating():
            return gated(agent, step, answer)
        case Deciding():
            return decided(agent, step, answer)
        case Wrapping():
            return wrapped(agent, step)
        case Noticing():
            return noticed(agent, step, answer)
        case Reporting():
            return reported(agent, step, answer)
        case Finishing():
            return run_finished(agent)
        case Checkpointing():
            return checkpointed(agent, step, answer)
        case Resetting():
            return control.session_reset(agent, step, answer)
        case Opening():
            return opened(agent, answer)
        case _:
            assert_never(step)
