"""Bugs that could have been written into the turn machine, and the test that finds each.

A mutant changes one function in memory, wherever the rules have it in hand.
"""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

from genagent_protocol import bounds
from genagent_protocol.turns import (
    capture,
    results,
    rules_admission,
    rules_checkpoint,
    rules_control,
    rules_exit,
    rules_gate,
    rules_settle,
    rules_turn,
    rules_work,
    state,
)

EXPLORE = "tests/protocol/turns/test_explore.py"
MODEL = "tests/protocol/turns/test_stateful.py"
CONVERSATIONS = "tests/protocol/turns/test_conversations.py"
SCENARIOS = "tests/scenarios/test_values_"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug: `plant` writes it into the running rules, `killer` must then fail."""

    name: str
    plant: Callable[[], None]
    killer: str


def mutant(name: str, victim: object, old: str, new: str, killer: str = EXPLORE) -> Mutant:
    """Return the mutant whose *victim* has *new* in the place of its one *old*."""
    assert isinstance(victim, FunctionType)
    function = victim

    def plant() -> None:
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(old) == 1, f"{old!r} is not once in {function.__qualname__}"
        made: dict[str, object] = {}
        flags = __future__.annotations.compiler_flag
        code = compile(source.replace(old, new), f"<mutant of {name}>", "exec", flags)
        exec(code, vars(sys.modules[function.__module__]), made)
        _replace(function, made[function.__name__])

    return Mutant(name, plant, killer)


def _replace(function: FunctionType, mutated: object) -> None:
    """Put *mutated* wherever *function* is: imports by name have made copies of the name."""
    owner, _, method = function.__qualname__.rpartition(".")
    if owner:
        setattr(vars(sys.modules[function.__module__])[owner], method, mutated)
        return
    for module in list(sys.modules.values()):
        if module.__name__.startswith("genagent_protocol"):
            for name, value in list(vars(module).items()):
                if value is function:
                    setattr(module, name, mutated)


MUTANTS: tuple[Mutant, ...] = (
    # Bounds
    mutant(
        "a queue holds one more than it may",
        bounds.admit,
        "usage.count >= bound.max_count",
        "usage.count > bound.max_count",
    ),
    mutant(
        "the bytes of an arriving item are not counted",
        bounds.admit,
        "usage.bytes + size_bytes > bound.max_bytes",
        "usage.bytes > bound.max_bytes",
        MODEL,
    ),
    mutant(
        "an item that is taken does not give its bytes back",
        state.Waiting.take,
        "release(self.usage, head.size_bytes)",
        "release(self.usage, 0)",
    ),
    mutant(
        "the slot counts as full when an exact fit comes",
        rules_work.reserve,
        "size_bytes <= max_bytes",
        "size_bytes < max_bytes",
        SCENARIOS + "bounds.py",
    ),
    mutant(
        "results are not forgotten",
        results.remember,
        "max(0, len(items) - limits.max_tell_results)",
        "0",
    ),
    mutant(
        "an overload of a generated prompt is reported again and again",
        rules_settle._second_chance,
        "if gated:\n            return report_overload",
        "if True:\n            return report_overload",
        SCENARIOS + "bounds.py",
    ),
    # Admission
    mutant(
        "a queued submission is not admitted",
        rules_admission._receive,
        "Advance(agent, (*accepted, note))",
        "Advance(agent, (note,))",
    ),
    mutant(
        "a ref may be used twice",
        rules_admission.submitted,
        "if known(agent, given.ref):",
        "if False:",
        SCENARIOS + "core.py",
    ),
    mutant(
        "a draining agent admits",
        rules_admission.closed,
        "None if agent.draining is None else DRAINING",
        "None",
    ),
    mutant(
        "a kept notification is not acknowledged",
        rules_admission._keep,
        "() if call is None else (Reply(call, Ok()),)",
        "()",
    ),
    mutant(
        "what an agent is owed is refused",
        rules_admission.message_received,
        "if given.owed:",
        "if False:",
        CONVERSATIONS,
    ),
    # Work
    mutant(
        "a halted agent starts a turn",
        rules_work.next_work,
        "if agent.halted or agent.paced:",
        "if agent.paced:",
    ),
    mutant(
        "the queue goes before the chain",
        rules_work.next_work,
        "if agent.chain is not None:",
        "if agent.chain is not None and not agent.prompts.items:",
        MODEL,
    ),
    mutant(
        "the newest prompt goes first",
        state.Waiting.push,
        "(*self.items, item)",
        "(item, *self.items)",
        MODEL,
    ),
    mutant(
        "an idle agent forgets that it drains",
        rules_work.next_work,
        "if agent.draining is not None:",
        "if False:",
    ),
    # The gate
    mutant(
        "a refused caller hears nothing",
        rules_gate.gated,
        "if not request.owned:",
        "if True:",
    ),
    mutant(
        "a gate that halts does not complete its request",
        rules_gate.gated,
        "agent, said = _refuse(agent, request, PRE_TURN_HALTED)",
        "said = ()",
    ),
    mutant(
        "a refused prompt of the agent's own is tried at once",
        rules_settle._second_chance,
        "if gated:\n        pause",
        "if False:\n        pause",
        SCENARIOS + "hooks.py",
    ),
    mutant(
        "the pause ends and nobody looks for work",
        rules_control.paused_enough,
        "next_work(agent) if isinstance(agent.step, Ready) else Advance(agent)",
        "Advance(agent)",
    ),
    # The turn
    mutant(
        "a late result is taken although the turn was told to stop",
        rules_turn.turn_over,
        "return _failed(agent, turn, why).after(*calm)",
        "return _ended(agent, turn, report).after(*calm[:1])",
        MODEL,
    ),
    mutant(
        "the report of an earlier turn ends this one",
        rules_turn.turn_over,
        "case Running(turn) if turn.number == report.turn:",
        "case Running(turn):",
    ),
    mutant(
        "a turn is stopped without a grace",
        rules_turn.stop_turn,
        'ArmDeadline("grace", grace, turn.number),',
        "",
    ),
    mutant(
        "the watchdog outlives its turn",
        rules_turn._watchdog_off,
        'return () if agent.limits.watchdog_ms is None else (DisarmDeadline("watchdog"),)',
        "return ()",
    ),
    mutant(
        "an interrupted request is tried again",
        rules_turn._retries,
        "and ending.outcome.reason != INTERRUPTED",
        "",
        SCENARIOS + "retry.py",
    ),
    mutant(
        "an interrupt is never acknowledged",
        rules_turn._deliver,
        "(Reply(call, accepted) for call in turn.interrupts)",
        "()",
    ),
    mutant(
        "an interrupt does not take a watchdog's place",
        rules_turn.interrupt,
        "Stopping(_heard_by(turn, waiting), INTERRUPTED)",
        "Stopping(_heard_by(turn, waiting), agent.step.why)",
        CONVERSATIONS,
    ),
    mutant(
        "a crashing handle_response is forgiven",
        rules_turn.decided,
        'return leave(agent, ExitReason("callback_failed", detail))',
        "pass",
        SCENARIOS + "hooks.py",
    ),
    mutant(
        "a prompt the backend never took leaves its state",
        rules_turn._kept,
        "return DropTurn(turn.number)",
        "return KeepTurn(turn.number)",
        SCENARIOS + "core.py",
    ),
    mutant(
        "what could not be started is tried again at once",
        rules_turn._follow,
        "if not ending.started:",
        "if False:",
        SCENARIOS + "retry.py",
    ),
    mutant(
        "an ask is answered before the agent is idle",
        rules_settle.conclude_turn,
        'if request.origin == "ask" else (agent, said)',
        "if False else (agent, said)",
        SCENARIOS + "notifications.py",
    ),
    mutant(
        "an outcome is sent although no message can hold it",
        rules_turn._judge,
        "if report.encoded_bytes > LARGEST_OUTCOME_BYTES:",
        "if False:",
        SCENARIOS + "bounds.py",
    ),
    # Checkpoints
    mutant(
        "a second session id replaces the first",
        rules_checkpoint.checkpoint,
        "if turn.checkpoint is not None:",
        "if False:",
        CONVERSATIONS,
    ),
    # Settling and halting
    mutant(
        "post_run does not wait for the notifications",
        rules_settle.settle,
        "if agent.notifications.items:",
        "if agent.notifications.items and not agent.post_run_due:",
        SCENARIOS + "halt.py",
    ),
    mutant(
        "a halt keeps what chose to fail",
        rules_settle._fails_on_halt,
        'return request.on_halt == "fail"',
        "return False",
        SCENARIOS + "completions.py",
    ),
    mutant(
        "a halt from outside is forgotten at the end of the turn",
        rules_settle.settle,
        "if agent.halt_pending:",
        "if False:",
        MODEL,
    ),
    mutant(
        "post_run runs for ever",
        rules_settle.run_finished,
        "replace(agent, post_run_due=False)",
        "agent",
    ),
    mutant(
        "the prompt of an event jumps the queue",
        rules_settle._queue_generated,
        "queued = enqueue(agent, request)",
        "queued = reserve(agent, request)\n"
        "    if not isinstance(queued, Overloaded):\n"
        '        queued = (queued, Emit(name="mailbox.queued", depth=1))',
        MODEL,
    ),
    mutant(
        "resume forgets to look for work",
        rules_control.resume,
        "return next_work(replace(agent, halted=False))",
        "return Advance(replace(agent, halted=False))",
    ),
    # Cancelling
    mutant(
        "a cancelled request gets no completion",
        rules_control.cancel,
        "*said, answer",
        "answer",
    ),
    mutant(
        "a cancelled request stays in the queue",
        rules_control.cancel,
        "agent, _ = take_waiting(agent, lambda other: other is request)",
        "pass",
    ),
    mutant(
        "the death of one caller drops the asks of all",
        rules_control.caller_down,
        "and request.caller == given.caller",
        "",
        SCENARIOS + "core.py",
    ),
    # The end
    mutant(
        "a drain keeps what waits",
        rules_exit.drain,
        "take_waiting(replace(agent, draining=given.reason, paced=False), _any)",
        "(replace(agent, draining=given.reason, paced=False), ())",
    ),
    mutant(
        "a stop does not wait for the turn",
        rules_exit.stop,
        "case Running(turn):",
        "case Running(turn) if False:",
    ),
    mutant(
        "a stop answers no asks",
        rules_exit._answer_asks,
        "if reason.text not in ORDERLY:",
        "if True:",
        SCENARIOS + "ends.py",
    ),
    mutant(
        "a turn that does not end is waited for in vain",
        rules_exit.grace_passed,
        "case Stopping(turn) if turn.number == number:",
        "case Stopping(turn) if False:",
    ),
    mutant(
        "a turn that cannot be looked through counts for nothing",
        rules_exit.not_swept,
        "if turn.number == number:",
        "if False:",
        SCENARIOS + "ends.py",
    ),
    mutant(
        "an end may take for ever unless somebody asked for it",
        rules_work.leave,
        "Terminate(reason, held(agent), agent.limits.shutdown_ms)",
        "Terminate(reason, held(agent))",
    ),
    # Capture
    mutant(
        "an event larger than the room left is kept",
        capture.Capture._limit_met,
        "self._bytes + size_bytes > self._limits.max_event_bytes_per_turn",
        "self._bytes > self._limits.max_event_bytes_per_turn",
        "tests/protocol/turns/test_capture.py",
    ),
    mutant(
        "a compact capture goes on after its first omission",
        capture.Capture.accept,
        "limit is None and self._omission is None",
        "limit is None",
        "tests/protocol/turns/test_capture.py",
    ),
)
