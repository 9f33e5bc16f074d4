"""A turn machine with a stand-in shell, for tests that read like a story.

Callbacks answer at once: with what was scripted for them, else with the usual
(`pre_turn` runs the prompt, decisions are `NoReply`, hooks are `Done`). Turns start
at once and end when the test says so. Every step is judged by the laws.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TypeAlias

from genagent_protocol.answers import AgentAnswer, Snapshot, Status
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, Event, Failed, Outcome
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import ExitReason, Failure, Reason
from genagent_protocol.refs import RequestRef
from genagent_protocol.turns import decisions as decide
from genagent_protocol.turns import effects as does
from genagent_protocol.turns import inputs as heard
from genagent_protocol.turns import rules
from genagent_protocol.turns.decisions import CallbackName
from genagent_protocol.turns.requests import CallId, OnHalt
from genagent_protocol.turns.state import Advance, Offers
from support.turns_laws import Ledger, observe
from support.turns_values import ALL, DEFAULTS, FIRST_GENERATED, done, failed, label, ref

#: What a scripted callback does: decide, raise (`CallbackCrashed`), or, as plain
#: text, go on with that prompt under a fresh ref.
Answer: TypeAlias = decide.Decision | heard.CallbackCrashed | str


def raises(callback: CallbackName, error: str = "ValueError") -> heard.CallbackCrashed:
    """Return what it looks like when *callback* raises."""
    return heard.CallbackCrashed(callback, error)


class ScriptedAgent:
    """An agent whose callbacks are scripted and whose turns end on demand."""

    def __init__(
        self,
        limits: Limits = DEFAULTS,
        offers: Offers = ALL,
        *,
        opening: Answer | None = None,
    ) -> None:
        self.limits, self.offers = limits, offers
        self.ledger = Ledger()
        self.effects: list[does.Effect] = []
        self.inputs: list[heard.Input] = []
        self.start_failure: Reason | None = None
        self.held_at: set[CallbackName] = set()
        self._scripts: dict[str, deque[Answer]] = {}
        self._generated = FIRST_GENERATED
        self._calls = 0
        if opening is not None:
            self.script("pre_run", opening)
        self._pending: does.Invoke | does.StartTurn | None = None
        self._take(rules.begin(limits, offers))
        self._carry_on()

    # Scripting

    def script(self, callback: CallbackName, *answers: Answer) -> None:
        """Let the next invocations of *callback* answer so, one after the other."""
        self._scripts.setdefault(callback, deque()).extend(answers)

    def hold(self, callback: CallbackName) -> None:
        """Let *callback* block until `release`."""
        self.held_at.add(callback)

    def release(self) -> None:
        """Let a blocked callback answer and block none any more."""
        self.held_at.clear()
        self._carry_on()

    # Feeding

    def feed(self, given: heard.Input) -> None:
        """Report one fact, and carry on until the machine waits for another."""
        self._advance(given)
        self._carry_on()

    def _advance(self, given: heard.Input) -> None:
        before = self.agent
        advanced = rules.advance(before, given)
        self.ledger = observe(self.ledger, before, given, advanced)
        self.inputs.append(given)
        self._take(advanced)

    def _take(self, advanced: Advance) -> None:
        self.agent = advanced.agent
        self.effects += advanced.effects
        last = advanced.effects[-1] if advanced.effects else None
        self._pending = last if isinstance(last, (does.Invoke, does.StartTurn)) else None

    def _carry_on(self) -> None:
        while self._pending is not None:
            match self._pending:
                case does.Invoke(callback):
                    if callback.name in self.held_at:
                        return
                    self._advance(self._answer(callback))
                case does.StartTurn(turn=turn):
                    self._advance(self._start(turn))

    def _start(self, turn: int) -> heard.Input:
        if self.start_failure is None:
            return heard.TurnStarted(turn)
        return heard.TurnStartFailed(turn, self.start_failure)

    def _answer(self, callback: does.Callback) -> heard.Input:
        script = self._scripts.get(callback.name)
        answer: Answer = script.popleft() if script else self._usual(callback)
        if isinstance(answer, heard.CallbackCrashed):
            return answer
        if isinstance(answer, str):
            self._generated += 1
            answer = decide.Prompt(answer, ref(self._generated))
        return heard.CallbackReturned(callback.name, answer)

    def _usual(self, callback: does.Callback) -> Answer:
        match callback:
            case does.PreTurn(prompt):
                return decide.Run(prompt)
            case does.HandleResponse() | does.HandleError() | does.HandleEvent():
                return decide.NoReply()
            case does.HandleInfo():
                return decide.NoReply()
            case _:
                return decide.Done()

    # Callers

    def submit(
        self,
        number: int,
        prompt: str = "p",
        *,
        to: str = "bob",
        stream_to: str | None = None,
        on_halt: OnHalt = "queue",
    ) -> None:
        self.feed(
            heard.PromptSubmitted(
                ref=ref(number), prompt=prompt, recipient=to, stream_to=stream_to, on_halt=on_halt
            )
        )

    def tell(
        self,
        number: int,
        prompt: str = "p",
        *,
        to: str | None = None,
        stream_to: str | None = None,
        on_halt: OnHalt = "queue",
    ) -> AgentAnswer | None:
        call = self._call()
        self.feed(
            heard.TellReceived(
                call=call,
                ref=ref(number),
                prompt=prompt,
                recipient=to,
                stream_to=stream_to,
                on_halt=on_halt,
            )
        )
        return self.reply(call)

    def ask(self, number: int, prompt: str = "p", *, caller: str = "carl") -> AgentAnswer | None:
        which = ref(number)
        self.feed(heard.AskReceived(call=which, ref=which, prompt=prompt, caller=caller))
        return self.reply(which)

    def notify(self, event: Plain = "e") -> None:
        self.feed(heard.NotificationReceived(event))

    def notify_ack(self, event: Plain = "e") -> AgentAnswer | None:
        call = self._call()
        self.feed(heard.NotificationReceived(event, call))
        return self.reply(call)

    def message(self, message: str = "m", size_bytes: int = 1, *, owed: bool = False) -> None:
        self.feed(heard.MessageReceived(message, size_bytes, owed))

    def poll(self, number: int) -> AgentAnswer | None:
        call = self._call()
        self.feed(heard.PollRequested(call, ref(number)))
        return self.reply(call)

    def cancel(self, number: int) -> AgentAnswer | None:
        call = self._call()
        self.feed(heard.CancelRequested(call, ref(number)))
        return self.reply(call)

    def interrupt(self) -> None:
        self.feed(heard.InterruptReceived())

    def interrupt_request(self, number: int) -> CallId:
        call = self._call()
        self.feed(heard.InterruptRequested(call, ref(number)))
        return call

    def halt(self) -> None:
        self.feed(heard.HaltRequested())

    def resume(self) -> None:
        self.feed(heard.ResumeRequested())

    def drain(self, reason: ExitReason | None = None) -> AgentAnswer | None:
        call = self._call()
        given = heard.DrainRequested(call)
        self.feed(given if reason is None else replace(given, reason=reason))
        return self.reply(call)

    def stop(self, reason: str = "shutdown") -> None:
        self.feed(heard.StopRequested(ExitReason(reason)))

    def reset(self) -> AgentAnswer | None:
        call = self._call()
        self.feed(heard.ResetRequested(call))
        return self.reply(call)

    def snapshot(self) -> Snapshot:
        call = self._call()
        self.feed(heard.SnapshotRequested(call))
        answer = self.reply(call)
        assert isinstance(answer, Snapshot)
        return answer

    def status(self) -> Status:
        call = self._call()
        self.feed(heard.StatusRequested(call))
        answer = self.reply(call)
        assert isinstance(answer, Status)
        return answer

    def caller_down(self, caller: str = "carl") -> None:
        self.feed(heard.CallerDown(caller))

    def _call(self) -> str:
        self._calls += 1
        return f"c{self._calls}"

    # The turn

    @property
    def turn(self) -> int:
        """The number of the newest turn."""
        return self.agent.turns

    def end(self, text: str = "done", *, encoded_bytes: int = 0) -> None:
        """Let the turn in flight end well."""
        self.feed(heard.TurnEnded(turn=self.turn, outcome=done(text), encoded_bytes=encoded_bytes))

    def fail(self, reason: str | Failure = "broken", *, dispatched: bool = True) -> None:
        """Let the turn in flight end with an error of its own."""
        outcome = failed(reason)
        self.feed(heard.TurnEnded(turn=self.turn, outcome=outcome, dispatched=dispatched))

    def crash(self, error: str = "ValueError") -> None:
        self.feed(heard.TurnCrashed(self.turn, error))

    def stopped(self) -> None:
        """Let the turn's code come to its end without an outcome."""
        self.feed(heard.TurnStopped(self.turn))

    def not_swept(self) -> None:
        """Let the turn's code come to its end, and what it began be beyond the shell."""
        self.feed(heard.TurnNotSwept(self.turn))

    def event(self, event: Event) -> None:
        self.feed(heard.TurnEventReceived(self.turn, event))

    def checkpoint(self, session_id: Plain, *, turn: int | None = None) -> AgentAnswer | None:
        call = self._call()
        number = self.turn if turn is None else turn
        self.feed(heard.CheckpointRequested(call, number, session_id))
        return self.reply(call)

    def deadline(self, name: heard.DeadlineName) -> None:
        """Let the deadline of that name pass."""
        assert name in self.ledger.armed, f"{name} is not armed"
        turn = None if name == "pace" else self.turn
        self.feed(heard.DeadlinePassed(name, turn))

    # What was done

    def reply(self, call: CallId) -> AgentAnswer | None:
        """Return the answer that *call* got, or None if it waits."""
        answers = [e.answer for e in self.effects if isinstance(e, does.Reply) and e.call == call]
        return answers[-1] if answers else None

    def completions(self, number: int) -> list[Outcome]:
        """Return the completions sent for that request."""
        which = ref(number)
        return [
            e.outcome for e in self.effects if isinstance(e, does.SendCompletion) and e.ref == which
        ]

    def emitted(self, *names: str) -> list[does.Emit]:
        """Return what was told to subscribers under these names, in order."""
        return [e for e in self.effects if isinstance(e, does.Emit) and e.name in names]

    def orders(self, *kinds: type[does.Effect]) -> list[does.Effect]:
        """Return the effects of these kinds, in order."""
        return [e for e in self.effects if isinstance(e, kinds)]

    def handled(self, name: CallbackName) -> list[does.Callback]:
        """Return the invocations of that callback, in order."""
        invoked = (e.callback for e in self.effects if isinstance(e, does.Invoke))
        return [callback for callback in invoked if callback.name == name]

    @property
    def prompts(self) -> list[str]:
        """The prompts that turns were started with, in order."""
        return [e.prompt for e in self.effects if isinstance(e, does.StartTurn)]

    @property
    def exit(self) -> ExitReason | None:
        """Why the agent ended, or None if it lives."""
        return next((e.reason for e in self.effects if isinstance(e, does.Exit)), None)

    def forget(self) -> None:
        """Look only at what is done from here on."""
        self.effects.clear()

    @property
    def story(self) -> list[str]:
        """Everything that callers and callbacks saw, in order, one short line each."""
        return [line for effect in self.effects if (line := tell_of(effect))]


def tell_of(effect: does.Effect) -> str | None:
    """Return an effect as a short line, or None if neither callers nor callbacks see it."""
    match effect:
        case does.SendAdmission(_, which, verdict):
            refusal = getattr(verdict, "reason", None)
            return f"admission {label(which)} {'ok' if refusal is None else refusal.code}"
        case does.SendEvent(_, which, event):
            return f"event {label(which)} {event.kind}"
        case does.SendCompletion(_, which, outcome):
            return f"completion {label(which)} {told(outcome)}"
        case does.Reply(call, answer):
            name = label(call) if isinstance(call, RequestRef) else str(call)
            return f"reply {name} {told(answer)}"
        case does.StartTurn(ref=which):
            return f"start {label(which)}"
        case does.Invoke(callback):
            return told_callback(callback)
        case does.Emit(name="halted"):
            return "halted"
        case does.Exit(reason):
            return f"exit {reason.text}"
    return None


def told(answer: AgentAnswer) -> str:
    """Return an answer in one or two words."""
    match answer:
        case Completed():
            return "ok"
        case Failed(reason):
            return reason.code
        case _:
            said = getattr(answer, "result", None) or getattr(answer, "reason", None)
            text = getattr(said, "code", said)
            name = type(answer).__name__
            return name if text is None else f"{name} {text}"


def told_callback(callback: does.Callback) -> str:
    """Return an invocation in a few words."""
    match callback:
        case does.PreTurn(prompt):
            return f"pre_turn {prompt}"
        case does.HandleResponse(which):
            return f"handle_response {label(which)}"
        case does.HandleError(which, reason):
            return f"handle_error {label(which)} {reason.code}"
        case does.PostTurn(which, outcome):
            return f"post_turn {label(which)} {told(outcome)}"
        case does.HandleEvent(event):
            return f"handle_event {event!r}"
        case does.HandleInfo(message):
            return f"handle_info {message!r}"
        case _:
            return callback.name
