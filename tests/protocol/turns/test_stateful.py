"""Long random runs with real sizes, against the naive model of plain lists."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from genagent_protocol.answers import (
    CancelAnswer,
    NotFound,
    Ok,
    PollCompleted,
    PollFailed,
    PollPending,
    Refused,
)
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, Failed
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns import decisions as decide
from genagent_protocol.turns import effects as does
from genagent_protocol.turns import inputs as heard
from genagent_protocol.turns.requests import OnHalt
from support.turns_model import Model, Prompted
from support.turns_scripted import Answer, ScriptedAgent, told
from support.turns_values import number_of, ref

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
#: What a decision callback says: nothing, `halt`, or the prompt that follows.
DECISIONS = st.one_of(st.none(), st.just("halt"), TEXTS.filter(lambda text: text != "halt"))
EVENTS = st.one_of(st.just("note"), st.just("halt"), TEXTS.map(lambda text: f"prompt:{text}"))
LIMITS = st.builds(
    Limits,
    max_pending_prompts=st.integers(0, 4),
    max_pending_prompt_bytes=st.integers(0, 90),
    max_pending_notifications=st.integers(0, 3),
    max_pending_notification_bytes=st.integers(0, 60),
    max_tell_results=st.integers(0, 3),
    max_tell_result_bytes=st.just(1_000_000),
)


class EventfulAgent(ScriptedAgent):
    """A scripted agent that does what its events say."""

    def _usual(self, callback: does.Callback) -> Answer:
        if not isinstance(callback, does.HandleEvent | does.HandleInfo):
            return super()._usual(callback)
        verb, _, text = said(callback).partition(":")
        if verb == "halt":
            return decide.Halt()
        return text if verb == "prompt" else decide.NoReply()


def said(callback: does.HandleEvent | does.HandleInfo) -> str:
    """Return the event, or the message."""
    return str(callback.event if isinstance(callback, does.HandleEvent) else callback.message)


class TurnMachine(RuleBasedStateMachine):
    """Every rule does the same to the machine and to the model."""

    @initialize(limits=LIMITS)
    def open(self, limits: Limits) -> None:
        self.agent = EventfulAgent(limits)
        self.model = Model(limits)
        self.requests = 0
        self.asks: set[int] = set()

    # Callers

    @rule(text=TEXTS, on_halt=st.sampled_from(["queue", "fail"]))
    def submit(self, text: str, on_halt: OnHalt) -> None:
        number = self.next_number()
        self.agent.submit(number, text, on_halt=on_halt)
        said = self.model.prompt(Prompted(number, text, "tell", on_halt == "fail"))
        admission = next(
            effect
            for effect in self.agent.effects
            if isinstance(effect, does.SendAdmission) and effect.ref == ref(number)
        )
        assert verdict_of(admission.verdict) == said

    @rule(text=TEXTS)
    def tell(self, text: str) -> None:
        number = self.next_number()
        answer = self.agent.tell(number, text, to="bob")
        assert verdict_of(answer) == self.model.prompt(Prompted(number, text, "tell"))

    @rule(text=TEXTS)
    def ask(self, text: str) -> None:
        number = self.next_number()
        answer = self.agent.ask(number, text)
        said = self.model.prompt(Prompted(number, text, "ask"))
        assert (answer is None) == (said == "ok")

    @rule(event=EVENTS)
    def notify(self, event: str) -> None:
        assert verdict_of(self.agent.notify_ack(event)) == self.model.notify(event)

    @rule(message=EVENTS, size=st.integers(0, 40), owed=st.booleans())
    def hear(self, message: str, size: int, owed: bool) -> None:
        self.agent.message(message, size, owed=owed)
        self.model.notify(message, size, owed=owed)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.requests + 1))
        answer = self.agent.cancel(number)
        assert isinstance(answer, CancelAnswer)
        assert answer.result == self.model.cancel(number)

    @rule(data=st.data())
    def poll(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.requests + 1))
        match self.agent.poll(number):
            case PollPending():
                said = "pending"
            case PollCompleted():
                said = "ok"
            case PollFailed(reason):
                said = reason.code
            case answer:
                assert isinstance(answer, NotFound)
                said = "not_found"
        assert said == self.model.poll(number)

    @rule()
    def halt(self) -> None:
        self.agent.halt()
        self.model.halt_from_outside()

    @rule()
    def resume(self) -> None:
        self.agent.resume()
        self.model.resume()

    # The turn

    def running(self) -> bool:
        return self.model.current is not None

    @precondition(running)
    @rule(decision=DECISIONS)
    def end(self, decision: str | None) -> None:
        self.script("handle_response", decision)
        self.agent.end()
        self.model.turn_over("ok", decision)

    @precondition(running)
    @rule(decision=DECISIONS)
    def fail(self, decision: str | None) -> None:
        self.script("handle_error", decision)
        self.agent.fail()
        self.model.turn_over("backend_failed", decision)

    @precondition(running)
    @rule(decision=DECISIONS, late=st.booleans())
    def interrupt(self, decision: str | None, late: bool) -> None:
        self.script("handle_error", decision)
        turn = self.agent.turn
        self.agent.interrupt()
        if late:
            self.agent.end("too late")
        else:
            self.agent.stopped()
        self.agent.feed(heard.TurnStopped(turn))
        self.model.turn_over("interrupted", decision)

    @precondition(running)
    @rule(decision=DECISIONS)
    def watchdog(self, decision: str | None) -> None:
        self.script("handle_error", decision)
        self.agent.deadline("watchdog")
        self.agent.stopped()
        self.model.turn_over("timeout", decision)

    # What both must agree on

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        agent, model = self.agent, self.model
        seen = agent.snapshot()
        assert agent.prompts == model.started
        assert outcomes(agent) == model.outcomes
        handled = [
            said(effect.callback)
            for effect in agent.effects
            if isinstance(effect, does.Invoke)
            and isinstance(effect.callback, does.HandleEvent | does.HandleInfo)
        ]
        assert handled == model.handled
        assert seen.pending_prompts == len(model.queue)
        assert seen.pending_notifications == len(model.kept)
        assert seen.self_chain_pending == (model.slot is not None)
        assert (seen.halted, seen.halt_pending) == (model.halted, model.halt_pending)
        assert (seen.current_request is not None) == (model.current is not None)
        assert len(agent.emitted("input.rejected")) == model.overloads

    def next_number(self) -> int:
        self.requests += 1
        return self.requests

    def script(self, callback: decide.CallbackName, decision: str | None) -> None:
        usual: dict[str | None, Answer] = {None: decide.NoReply(), "halt": decide.Halt()}
        self.agent.script(callback, usual.get(decision, decision or ""))


def verdict_of(answer: object) -> str:
    if isinstance(answer, Refused):
        return answer.reason.code
    assert isinstance(answer, Ok)
    return "ok"


def outcomes(agent: ScriptedAgent) -> list[tuple[int, str]]:
    """Return every outcome that a caller heard, in the order in which it was said."""
    heard_of: list[tuple[int, str]] = []
    for effect in agent.effects:
        match effect:
            case does.SendCompletion(_, which, outcome):
                heard_of.append((number_of(which), told(outcome)))
            case does.Reply(RequestRef() as which, (Completed() | Failed()) as outcome):
                heard_of.append((number_of(which), told(outcome)))
    return heard_of


TestTurnMachine = TurnMachine.TestCase
TestTurnMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
