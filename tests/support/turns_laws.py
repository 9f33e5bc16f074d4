"""What must hold after every input to the turn machine, whatever the rules say in detail.

A `Ledger` remembers what was promised and kept so far: who was admitted, who got an
outcome, which calls wait, which deadlines are armed, which turn is alive. `observe`
judges one step of the machine against it. The ledger knows none of the rules; it
counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from genagent_protocol.answers import Ok, Refused
from genagent_protocol.bounds import Usage
from genagent_protocol.events import Completed, Failed
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns import effects as does
from genagent_protocol.turns import inputs as heard
from genagent_protocol.turns import state as at
from genagent_protocol.turns.held import under_way
from genagent_protocol.turns.requests import CallId, Request

Kind = Literal["submit", "tell", "ask"]
CALLBACK_STEPS = (
    at.Opening,
    at.Gating,
    at.Checkpointing,
    at.Deciding,
    at.Wrapping,
    at.Noticing,
    at.Reporting,
    at.Finishing,
    at.Resetting,
)


class LawBroken(AssertionError):
    """The machine did what it never may."""


def law(holds: bool, sentence: str) -> None:
    """Raise what is broken, if it is."""
    if not holds:
        raise LawBroken(sentence)


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one request of a caller so far."""

    kind: Kind
    completes: bool
    admitted: bool | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything promised and kept so far."""

    fates: frozenset[tuple[RequestRef, Fate]] = frozenset()
    calls: frozenset[tuple[CallId, RequestRef | None]] = frozenset()
    armed: frozenset[str] = frozenset()
    alive: int | None = None
    unsettled: int | None = None
    exited: bool = False

    def fate(self, ref: RequestRef) -> Fate | None:
        """Return what became of *ref*."""
        return next((fate for other, fate in self.fates if other == ref), None)

    def with_fate(self, ref: RequestRef, fate: Fate) -> Ledger:
        """Return the ledger in which *ref* fared so."""
        others = {pair for pair in self.fates if pair[0] != ref}
        return replace(self, fates=frozenset({*others, (ref, fate)}))


def observe(ledger: Ledger, before: at.Agent, given: heard.Input, advanced: at.Advance) -> Ledger:
    """Return the ledger after one step.

    Raises:
        LawBroken: the step did what it never may.
    """
    law(not ledger.exited, "nothing is heard after the end")
    ledger = _hear(ledger, before, given)
    for index, effect in enumerate(advanced.effects):
        last = index == len(advanced.effects) - 1
        ledger = _see(ledger, effect, advanced.agent, last=last)
    _judge(ledger, advanced)
    return ledger


# Inputs


def _hear(ledger: Ledger, before: at.Agent, given: heard.Input) -> Ledger:
    match given:
        case heard.PromptSubmitted(ref=ref):
            return _ask_for(ledger, ref, Fate("submit", completes=True))
        case heard.TellReceived(ref=ref, call=call, recipient=recipient):
            fate = Fate("tell", completes=recipient is not None)
            return _ask_for(ledger, ref, fate, call)
        case heard.AskReceived(ref=ref, call=call):
            return _ask_for(ledger, ref, Fate("ask", completes=True), call)
        case heard.CallerDown(caller):
            return _forget_asks(ledger, before, caller)
        case heard.TurnEnded() | heard.TurnCrashed() | heard.TurnStopped():
            if given.turn == ledger.alive:
                return replace(ledger, alive=None, unsettled=given.turn)
            return ledger
        case heard.TurnStartFailed(turn):
            law(ledger.alive == turn, "the test fails a start that was not ordered")
            return replace(ledger, alive=None)
        case heard.DeadlinePassed(name, turn):
            due = turn is None or turn == ledger.alive
            return replace(ledger, armed=ledger.armed - {name}) if due else ledger
        case _:
            call = getattr(given, "call", None)
            return ledger if call is None else _owe(ledger, call, None)


def _ask_for(ledger: Ledger, ref: RequestRef, fate: Fate, call: CallId | None = None) -> Ledger:
    fresh = ledger.fate(ref) is None
    if fresh:
        ledger = ledger.with_fate(ref, fate)
    return ledger if call is None else _owe(ledger, call, ref if fresh else None)


def _owe(ledger: Ledger, call: CallId, ref: RequestRef | None) -> Ledger:
    assert call not in {other for other, _ in ledger.calls}, "the test reuses a waiting call"
    return replace(ledger, calls=ledger.calls | {(call, ref)})


def _forget_asks(ledger: Ledger, before: at.Agent, caller: str) -> Ledger:
    for request in before.prompts.items:
        if request.origin == "ask" and request.caller == caller:
            ledger = replace(ledger, calls=ledger.calls - {(request.call, request.ref)})
            ledger = ledger.with_fate(request.ref, Fate("ask", True, admitted=True, over=True))
    return ledger


# Effects


def _see(ledger: Ledger, effect: does.Effect, after: at.Agent, *, last: bool) -> Ledger:
    match effect:
        case does.SendAdmission(ref=ref, verdict=verdict):
            return _admitted(ledger, ref, isinstance(verdict, Ok))
        case does.SendCompletion(ref=ref):
            return _completed(ledger, ref)
        case does.SendEvent(ref=ref):
            fate = ledger.fate(ref)
            law(ledger.alive is not None, "an event was relayed while no turn is alive")
            law(fate is not None and not fate.over, "an event was relayed after the outcome")
            return ledger
        case does.Reply(call, answer):
            return _answered(ledger, call, answer)
        case does.StartTurn(turn=turn):
            law(last, "StartTurn is not the last effect")
            law(ledger.alive is None, "two turns are alive")
            law(ledger.unsettled is None, "a turn was started before the last was settled")
            law(not after.halted, "a turn was started while halted")
            law(after.leaving is None and after.draining is None, "a turn was started at the end")
            return replace(ledger, alive=turn)
        case does.KeepTurn(turn) | does.DropTurn(turn):
            law(ledger.unsettled == turn, "a turn was kept or dropped that had not just ended")
            return replace(ledger, unsettled=None)
        case does.AbandonTurn(turn):
            law(ledger.alive == turn, "a turn was abandoned that is not alive")
            return replace(ledger, alive=None)
        case does.CancelTurn(turn):
            law(ledger.alive == turn, "a turn was cancelled that is not alive")
            return ledger
        case does.ArmDeadline(name):
            return replace(ledger, armed=ledger.armed | {name})
        case does.DisarmDeadline(name):
            return replace(ledger, armed=ledger.armed - {name})
        case does.Invoke():
            law(last, "Invoke is not the last effect")
            return ledger
        case does.Leaving(unresolved) | does.Terminate(unresolved=unresolved):
            if isinstance(effect, does.Terminate):
                bound = after.limits.shutdown_ms
                law(effect.within_ms == bound, "the end is bounded by the window of a stop")
            _accounted(ledger, unresolved, leaving=after.leaving is not None)
            return ledger
        case does.Exit():
            law(last, "Exit is not the last effect")
            law(ledger.alive is None, "the agent exits over a turn that is alive")
            return replace(ledger, exited=True)
        case _:
            return ledger


def _accounted(ledger: Ledger, told: tuple[RequestRef, ...], *, leaving: bool) -> None:
    owed = {
        ref
        for ref, fate in ledger.fates
        # An ask is admitted by what is not said: it was not refused.
        if fate.completes and not fate.over and (fate.admitted or fate.kind == "ask")
    }
    law(owed <= {*told}, "a request that ends with the agent is not accounted for")
    for ref in told:
        fate = ledger.fate(ref)
        # The ask of a turn that is cut was answered by the end of its agent, and by no outcome.
        cut = leaving and fate is not None and fate.kind == "ask"
        over = fate is not None and fate.over
        law(cut or not over, "a request that has its outcome is told as unresolved")


def _admitted(ledger: Ledger, ref: RequestRef, accepted: bool) -> Ledger:
    fate = ledger.fate(ref)
    law(fate is not None and fate.kind == "submit", "an admission without a submission")
    assert fate is not None
    law(fate.admitted is None, "a second admission")
    return ledger.with_fate(ref, replace(fate, admitted=accepted, over=not accepted))


def _completed(ledger: Ledger, ref: RequestRef) -> Ledger:
    fate = ledger.fate(ref)
    law(fate is not None and fate.completes, "a completion that nobody is owed")
    assert fate is not None
    law(not fate.over, "an outcome after the end of its request")
    law(fate.admitted is True, "an outcome before the admission")
    return ledger.with_fate(ref, replace(fate, over=True))


def _answered(ledger: Ledger, call: CallId, answer: object) -> Ledger:
    waiting = dict(ledger.calls)
    law(call in waiting, f"a call was answered that does not wait: {call}")
    ref = waiting[call]
    ledger = replace(ledger, calls=ledger.calls - {(call, ref)})
    fate = None if ref is None else ledger.fate(ref)
    if ref is None or fate is None:
        return ledger
    match answer:
        case Refused():
            law(fate.admitted is None, "a refusal after the admission")
            return ledger.with_fate(ref, replace(fate, admitted=False, over=True))
        case Ok():
            return ledger.with_fate(ref, replace(fate, admitted=True))
        case Completed() | Failed():
            law(not fate.over, "a second outcome for an ask")
            return ledger.with_fate(ref, replace(fate, admitted=True, over=True))
    raise LawBroken(f"a prompt was answered with {answer}")


# The agent against the ledger


def _judge(ledger: Ledger, advanced: at.Advance) -> None:
    agent, step = advanced.agent, advanced.agent.step
    _judge_last_effect(advanced)
    _judge_queues(agent)
    _judge_step(agent)
    turn = in_flight(agent)
    alive = turn is not None and not isinstance(step, at.Exited)
    law((ledger.alive is not None) == alive, "the machine and its shell disagree on the turn")
    law(ledger.exited == isinstance(step, at.Exited), "Exit and Exited go together")
    if ledger.exited:
        return
    _judge_deadlines(ledger, agent)
    _judge_fates(ledger, agent)
    _judge_calls(ledger, agent)


def _judge_last_effect(advanced: at.Advance) -> None:
    last = advanced.effects[-1] if advanced.effects else None
    step = advanced.agent.step
    law(
        isinstance(last, does.Invoke) == isinstance(step, CALLBACK_STEPS),
        "a callback step begins with its Invoke, and no other step does",
    )
    if isinstance(last, does.Invoke) and isinstance(step, CALLBACK_STEPS):
        law(last.callback.name == step.callback, "the step waits for another callback")
        told_of = getattr(last.callback, "ref", None)
        busy_with = under_way(advanced.agent)
        law(
            told_of is None or (busy_with is not None and busy_with.ref == told_of),
            "what a callback is told of is under way",
        )
    law(
        isinstance(last, does.StartTurn) == isinstance(step, at.Starting),
        "a starting step begins with its StartTurn",
    )


def _judge_queues(agent: at.Agent) -> None:
    limits = agent.limits
    for queue, most, most_bytes in (
        (agent.prompts, limits.max_pending_prompts, limits.max_pending_prompt_bytes),
        (
            agent.notifications,
            limits.max_pending_notifications,
            limits.max_pending_notification_bytes,
        ),
    ):
        counted = Usage(count=len(queue.items), bytes=sum(i.size_bytes for i in queue.items))
        law(queue.usage == counted, "the running totals drifted")
        # What an agent is owed is kept whatever the bound is, and fills it for the others.
        if not any(isinstance(i, at.Deferred) and i.owed for i in queue.items):
            law(counted.count <= most and counted.bytes <= most_bytes, "a bound is exceeded")
    if agent.chain is not None:
        law(agent.chain.size_bytes <= limits.max_pending_prompt_bytes, "the slot is too full")
    results = agent.results
    law(results.bytes == sum(i.size_bytes for i in results.items), "the cache's total drifted")
    law(len(results.items) <= limits.max_tell_results, "too many results are remembered")
    law(results.bytes <= limits.max_tell_result_bytes, "too many bytes are remembered")


def _judge_step(agent: at.Agent) -> None:
    match agent.step:
        case at.Ready():
            law(not agent.notifications.items, "an idle agent keeps a notification waiting")
            law(agent.draining is None and agent.leaving is None, "an idle agent does not exit")
            if not agent.halted and not agent.paced:
                idle = agent.chain is None and not agent.prompts.items
                law(idle, "an idle agent leaves work waiting")
        case at.Running() | at.Stopping():
            law(not agent.halted, "a halted agent has a turn")
            law(agent.chain is None, "the slot is full during a turn")
    if isinstance(agent.step, (at.Ready, at.Running, at.Stopping)):
        law(not agent.held, "something is held back outside the way to idle")
        law(not agent.post_run_due, "a halt transition was left unfinished")
    if agent.draining is not None:
        law(not agent.prompts.items and agent.chain is None, "a draining agent keeps work")
        law(not agent.notifications.items, "a draining agent keeps notifications")


def _judge_deadlines(ledger: Ledger, agent: at.Agent) -> None:
    base = agent.step.back if isinstance(agent.step, at.Checkpointing) else agent.step
    limited = agent.limits.watchdog_ms is not None
    law(
        ("watchdog" in ledger.armed) == (isinstance(base, at.Running) and limited),
        "the watchdog is armed exactly while a turn runs",
    )
    stopping = isinstance(base, at.Stopping)
    law(("grace" in ledger.armed) == stopping, "the grace is armed exactly while a turn stops")
    law(
        ("pace" in ledger.armed) == agent.paced, "the pause is armed exactly while it is waited for"
    )


def _judge_fates(ledger: Ledger, agent: at.Agent) -> None:
    held = set(located(agent))
    for ref, fate in ledger.fates:
        pending = fate.admitted is not False and not fate.over
        if fate.kind == "ask" and agent.leaving is not None:
            # An agent that leaves in an orderly way answers its asks before the turn has ended.
            continue
        if fate.completes:
            law(pending == (ref in held), f"{fate.kind} is lost, or kept after its end")
        elif fate.admitted is False:
            law(ref not in held, "a refused prompt is kept")


def _judge_calls(ledger: Ledger, agent: at.Agent) -> None:
    if not isinstance(agent.step, (at.Ready, at.Running, at.Stopping)):
        return
    expected = {r.call for r in requests(agent) if r.origin == "ask"}
    turn = in_flight(agent)
    if turn is not None:
        expected |= set(turn.interrupts)
    waiting = {call for call, _ in ledger.calls}
    if agent.leaving is None:
        law(waiting == expected, "a call is left without an answer, or answered too early")


def in_flight(agent: at.Agent) -> at.Turn | None:
    """Return the turn whose code may be running."""
    match agent.step:
        case at.Starting(turn) | at.Running(turn) | at.Stopping(turn):
            return turn
        case at.Checkpointing(back):
            return back.turn
    return None


def requests(agent: at.Agent) -> Iterator[Request]:
    """Yield every request that the agent has and that has no outcome yet."""
    if agent.chain is not None:
        yield agent.chain
    yield from agent.prompts.items
    turn = in_flight(agent)
    if turn is not None:
        yield turn.request
    match agent.step:
        case at.Gating(request):
            yield request
        case at.Deciding(ending) | at.Wrapping(ending):
            yield ending.turn.request


def located(agent: at.Agent) -> Iterator[RequestRef]:
    """Yield every ref that the agent still owes something, a held answer included."""
    for request in requests(agent):
        yield request.ref
    for effect in agent.held:
        if isinstance(effect, does.Reply) and isinstance(effect.answer, (Completed, Failed)):
            yield _asked_by(effect)


def _asked_by(reply: does.Reply) -> RequestRef:
    assert isinstance(reply.call, RequestRef), "in these tests an ask's call is its ref"
    return reply.call
