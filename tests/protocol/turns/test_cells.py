"""Every step against every input: each cell is heard, or is a shell's mistake; none is forgotten.

The table of `rules.py` in full. A new step or input fails here until somebody has
said what the two mean to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from genagent_protocol.bounds import Limits
from genagent_protocol.errors import InvalidTransition
from genagent_protocol.events import event
from genagent_protocol.reasons import SHUTDOWN
from genagent_protocol.turns import decisions as decide
from genagent_protocol.turns import inputs as heard
from genagent_protocol.turns.decisions import CallbackName
from genagent_protocol.turns.effects import Emit
from genagent_protocol.turns.rules import advance
from genagent_protocol.turns.state import Step
from support.turns_laws import observe
from support.turns_scripted import ScriptedAgent
from support.turns_values import done, ref

CALL = "the call"


def ready() -> ScriptedAgent:
    return ScriptedAgent()


def held(callback: CallbackName, *acts: Callable[[ScriptedAgent], None]) -> ScriptedAgent:
    agent = ScriptedAgent()
    agent.hold(callback)
    for act in acts:
        act(agent)
    return agent


def submit(agent: ScriptedAgent) -> None:
    agent.submit(1)


def end(agent: ScriptedAgent) -> None:
    agent.end()


def checkpoint(agent: ScriptedAgent) -> None:
    agent.checkpoint("id")


def reset(agent: ScriptedAgent) -> None:
    agent.reset()


def opening() -> ScriptedAgent:
    class Opening(ScriptedAgent):
        def _carry_on(self) -> None:
            return

    return Opening()


def starting() -> ScriptedAgent:
    class Starting(ScriptedAgent):
        def _start(self, turn: int) -> heard.Input:
            raise StopIteration

    agent = Starting()
    with pytest.raises(StopIteration):
        agent.submit(1)
    return agent


def running() -> ScriptedAgent:
    agent = ready()
    agent.submit(1)
    return agent


def stopping() -> ScriptedAgent:
    agent = running()
    agent.interrupt()
    return agent


def reporting() -> ScriptedAgent:
    agent = ready()
    agent.script("handle_event", "go")
    agent.script("pre_turn", decide.Skip())
    agent.hold("handle_error")
    agent.notify()
    return agent


def exited() -> ScriptedAgent:
    agent = ready()
    agent.stop()
    return agent


STEPS: dict[str, Callable[[], ScriptedAgent]] = {
    "pre_run": opening,
    "ready": ready,
    "pre_turn": lambda: held("pre_turn", submit),
    "start_turn": starting,
    "running": running,
    "stopping": stopping,
    "checkpoint_session": lambda: held("checkpoint_session", submit, checkpoint),
    "decide": lambda: held("handle_response", submit, end),
    "post_turn": lambda: held("post_turn", submit, end),
    "handle_event": lambda: held("handle_event", lambda agent: agent.notify()),
    "report": reporting,
    "post_run": lambda: held("post_run", lambda agent: agent.halt()),
    "reset_session": lambda: held("reset_session", reset),
    "exited": exited,
}
OPEN = {"ready", "running", "stopping"}
#: Which callback a callback step waits for; the others have none.
WAITS_FOR: dict[str, CallbackName] = {
    "pre_run": "pre_run",
    "pre_turn": "pre_turn",
    "checkpoint_session": "checkpoint_session",
    "decide": "handle_response",
    "post_turn": "post_turn",
    "handle_event": "handle_event",
    "report": "handle_error",
    "post_run": "post_run",
    "reset_session": "reset_session",
}

INPUTS: dict[str, heard.Input] = {
    "PromptSubmitted": heard.PromptSubmitted(ref=ref(9), prompt="p", recipient="bob"),
    "TellReceived": heard.TellReceived(call=CALL, ref=ref(9), prompt="p"),
    "AskReceived": heard.AskReceived(call=ref(9), ref=ref(9), prompt="p", caller="carl"),
    "CallerDown": heard.CallerDown("carl"),
    "NotificationReceived": heard.NotificationReceived("e", CALL),
    "MessageReceived": heard.MessageReceived("m", 1),
    "PollRequested": heard.PollRequested(CALL, ref(1)),
    "CancelRequested": heard.CancelRequested(CALL, ref(1)),
    "InterruptReceived": heard.InterruptReceived(),
    "InterruptRequested": heard.InterruptRequested(CALL, ref(1)),
    "HaltRequested": heard.HaltRequested(),
    "ResumeRequested": heard.ResumeRequested(),
    "DrainRequested": heard.DrainRequested(CALL),
    "ResetRequested": heard.ResetRequested(CALL),
    "SnapshotRequested": heard.SnapshotRequested(CALL),
    "StatusRequested": heard.StatusRequested(CALL),
    "StopRequested": heard.StopRequested(SHUTDOWN),
    "TurnsRefused": heard.TurnsRefused(),
    "TurnsAllowed": heard.TurnsAllowed(),
    "TurnStarted": heard.TurnStarted(1),
    "TurnStartFailed": heard.TurnStartFailed(1),
    "TurnEventReceived": heard.TurnEventReceived(1, event("text", text="t")),
    "CheckpointRequested": heard.CheckpointRequested(CALL, 1, "id"),
    "TurnEnded": heard.TurnEnded(turn=1, outcome=done()),
    "TurnCrashed": heard.TurnCrashed(1, "ValueError"),
    "TurnStopped": heard.TurnStopped(1),
    "TurnNotSwept": heard.TurnNotSwept(1),
    "DeadlinePassed": heard.DeadlinePassed("watchdog", 1),
    "CallbackReturned": heard.CallbackReturned("handle_error", decide.NoReply()),
    "CallbackCrashed": heard.CallbackCrashed("handle_error", "ValueError"),
}
FROM_CALLBACK = {"CallbackReturned", "CallbackCrashed"}
FROM_START = {"TurnStarted", "TurnStartFailed"}


def is_heard(step: str, given: str) -> bool:
    """The table: which inputs a step hears."""
    if given in FROM_CALLBACK:
        return WAITS_FOR.get(step) == "handle_error"
    if given in FROM_START:
        return step == "start_turn"
    return step in OPEN


def test_every_step_and_every_input_is_in_the_table() -> None:
    """A cell that nobody thought of is how machines get stuck."""
    groups = (
        heard.FromCaller,
        heard.FromAbove,
        heard.FromTurn,
        heard.FromStart,
        heard.FromCallback,
    )

    assert {step.name for step in get_args(Step)} == set(STEPS)
    assert {kind.__name__ for group in groups for kind in get_args(group)} == set(INPUTS)


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_cell_is_heard_or_is_a_mistake_that_changes_nothing(step: str, given: str) -> None:
    """An input that a step excludes must not be half obeyed: it raises, and the value stays."""
    agent = STEPS[step]()
    assert agent.agent.step.name == step
    before, fact = agent.agent, INPUTS[given]
    seen = hash(before)

    if is_heard(step, given):
        observe(agent.ledger, before, fact, advance(before, fact))
    else:
        with pytest.raises(InvalidTransition, match=f"{given}.*{step}"):
            advance(before, fact)

    assert agent.agent is before
    assert hash(before) == seen


@pytest.mark.parametrize("callback", get_args(CallbackName))
@pytest.mark.parametrize("step", WAITS_FOR)
def test_a_callback_step_hears_only_its_own_callback(step: str, callback: CallbackName) -> None:
    """The return of another callback would be taken for the answer of this one."""
    agent = STEPS[step]()
    crash = heard.CallbackCrashed(callback, "ValueError")

    if callback == WAITS_FOR[step]:
        observe(agent.ledger, agent.agent, crash, advance(agent.agent, crash))
    else:
        with pytest.raises(InvalidTransition, match=step):
            advance(agent.agent, crash)


DECISIONS: tuple[decide.Decision, ...] = (
    decide.NoReply(),
    decide.Prompt("p", ref(99)),
    decide.Halt(),
    decide.Run("p"),
    decide.Skip(),
    decide.Done(),
    decide.Declined("no"),
    decide.Invalid(),
)


def test_every_decision_is_tried() -> None:
    """A new decision has to meet every callback below."""
    assert {type(decision) for decision in DECISIONS} == set(get_args(decide.Decision))


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: type(decision).__name__)
@pytest.mark.parametrize("step", WAITS_FOR)
def test_any_decision_of_the_right_callback_is_survivable(
    step: str, decision: decide.Decision
) -> None:
    """What user code returns is not the machine's fault: every shape of it has a rule."""
    agent = STEPS[step]()
    returned = heard.CallbackReturned(WAITS_FOR[step], decision)

    advanced = advance(agent.agent, returned)

    observe(agent.ledger, agent.agent, returned, advanced)
    noted = any(isinstance(e, Emit) and e.name == "callback.failed" for e in advanced.effects)
    assert noted != decide.fits(WAITS_FOR[step], decision)


@pytest.mark.parametrize("start", [heard.TurnStarted(2), heard.TurnStartFailed(2)], ids=str)
def test_the_start_of_another_turn_is_a_mistake(start: heard.FromStart) -> None:
    """Turn numbers keep apart what else would look the same."""
    with pytest.raises(InvalidTransition):
        advance(starting().agent, start)


@pytest.mark.parametrize("step", sorted(OPEN))
@pytest.mark.parametrize(
    "stale",
    [
        heard.TurnEnded(turn=7, outcome=done("late")),
        heard.TurnCrashed(7, "ValueError"),
        heard.TurnStopped(7),
        heard.TurnNotSwept(7),
        heard.TurnEventReceived(7, event("text", text="forged")),
        heard.DeadlinePassed("watchdog", 7),
        heard.DeadlinePassed("grace", 7),
        heard.DeadlinePassed("pace"),
    ],
    ids=str,
)
def test_what_belongs_to_another_moment_changes_nothing(step: str, stale: heard.Input) -> None:
    """Late and forged reports are normal in a world of threads; they must be harmless."""
    before = STEPS[step]().agent

    assert advance(before, stale) == (before, ())


def test_a_machine_without_a_watchdog_arms_none() -> None:
    """No limit is a choice, spelled None here."""
    agent = ScriptedAgent(Limits(watchdog_ms=None))

    agent.submit(1)
    agent.end()

    assert not agent.ledger.armed
