"""The agent's driver loop: facts into the turn machine, its orders out, one at a time.

It decides nothing. What the machine orders is done in its order; while a callback
runs, everything that arrives waits in the inbox, and the next thing the machine
hears is that callback's return.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from genagent_protocol import answers, envelopes
from genagent_protocol.header import DAEMON, Header
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import AgentHandle
from genagent_protocol.turns import effects, inputs
from genagent_protocol.turns.held import under_way
from genagent_protocol.turns.rules import advance, begin
from genagent_protocol.turns.state import Advance, Agent
from genagentd.agent import incoming, log
from genagentd.agent.callbacks import Callbacks
from genagentd.agent.context import Context
from genagentd.agent.inbox import Frame, Inbox, Item, Swept
from genagentd.agent.last_resort import BLOCKED_MS, REST_MS, LastMoment, LastResort
from genagentd.agent.mail import Mail
from genagentd.agent.observing import Observer
from genagentd.agent.opening import Opened
from genagentd.agent.outgoing import Outgoing
from genagentd.agent.own_refs import OwnRefs
from genagentd.agent.processes import Processes
from genagentd.agent.turn import CheckpointCall, Turns
from genagentd.deadlines import Deadlines

#: How many things are dealt with before the loop gets its turn again.
BATCH = 256

#: How often the end of a turn is begun anew if somebody cancels it.
SWEEPS = 3
#: The deadlines after which a turn must not go on, whoever could still say so.
ENDS_A_TURN = frozenset({"watchdog", "grace"})


class Shell:
    """One agent, from its `pre_run` to its last word. Made inside the coordinator's loop."""

    def __init__(
        self,
        context: Context,
        opened: Opened,
        inbox: Inbox,
        outgoing: Outgoing,
        mail: Mail,
        processes: Processes,
        refs: OwnRefs,
    ) -> None:
        """Nothing happens yet."""
        self._refs = refs
        self._context = context
        self._handle: AgentHandle = context.handle
        self._inbox = inbox
        self._outgoing = outgoing
        self._mail = mail
        self._begun = begin(opened.limits, opened.offers)
        self._machine: Agent = self._begun.agent
        self._callbacks = Callbacks(opened.agent, opened.backend, opened.retained, context.handle)
        self._processes = processes
        processes.hurry(opened.limits.interrupt_grace_ms)
        self._turns = Turns(opened.limits, self._callbacks, inbox.post, processes)
        self._observer = Observer(
            self._handle, self._callbacks.shown, outgoing.telemetry, lambda: mail.watched
        )
        self._deadlines: Deadlines[inputs.DeadlineName] = Deadlines(self._deadline_passed)
        self._deadline_turns: dict[inputs.DeadlineName, int | None] = {}
        self._last_resort = LastResort()
        self._last_moment = LastMoment()
        self._sweeping: asyncio.Task[None] | None = None
        self._exit: ExitReason | None = None

    async def run(self) -> ExitReason:
        """Live, and return why that ended; everything said until then has been handed over."""
        try:
            return await self._lived()
        finally:
            self._last_moment.disarm()

    async def _lived(self) -> ExitReason:
        await self._obey(self._begun)
        taken = 0
        while self._exit is None:
            item = self._inbox.take()
            if item is None:
                self._outgoing.flush()
                await self._inbox.filled()
                continue
            await self._hear(item)
            taken += 1
            if taken % BATCH == 0:
                await asyncio.sleep(0)
        self._deadlines.disarm_all()
        self._context.sessions.close()
        self._outgoing.flush()
        await self._processes.end_for_good(self._handle.name)
        self._turns.close()
        return self._exit

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """Log that processes could not be looked for; the daemon ends them with this agent."""
        try:
            yield
        except OSError as error:
            log.raised("turn.sweep_failed", error, agent=self._handle.name)

    # Facts

    async def _hear(self, item: Item) -> None:
        if isinstance(item, Frame):
            self._mail.took(item)
            said = self._mail.open(item)
            fact = None if said is None else self._meant(item, said)
            if isinstance(fact, incoming.Outside):
                await self._answer(item.header, fact)
            elif isinstance(fact, inputs.CallerDown):
                self._context.sessions.gone(fact.caller)
                await self._advance(fact)
            elif fact is not None:
                await self._advance(fact)
        elif isinstance(item, Swept):
            await self._advance(item.report)
        elif isinstance(item, inputs.TurnReport) and self._processes.turn_over():
            self._sweeping = asyncio.create_task(self._sweep(item))
        else:
            await self._advance(item)

    def _meant(
        self, frame: Frame, said: incoming.FromDaemon | incoming.FromOthers
    ) -> inputs.Input | incoming.Outside:
        return incoming.fact(frame.header, frame.body, said, self._refs.made)

    async def _sweep(self, report: inputs.TurnReport) -> None:
        # What could not be looked through is not over, and not to be reported so.
        swept: inputs.TurnReport | inputs.TurnNotSwept = inputs.TurnNotSwept(report.turn)
        try:
            with self._looking():
                await self._swept()
                swept = report
        finally:
            # Whatever became of it: without a report nothing would ever follow.
            self._inbox.put(Swept(swept))

    async def _swept(self) -> None:
        for _ in range(SWEEPS - 1):
            # Somebody may have cancelled every task there is; this one is not theirs.
            with contextlib.suppress(asyncio.CancelledError):
                return await self._processes.end_turn()
        return await self._processes.end_turn()

    async def _answer(self, header: Header, said: incoming.Outside) -> None:
        sessions = self._context.sessions
        match said:
            case envelopes.Ping():
                self._outgoing.say(DAEMON, envelopes.Pong.to(said))
            case incoming.Attaching(caller, wanted):
                answer = sessions.attach(caller.address, wanted)
                self._outgoing.say(caller.address, envelopes.Reply(call=caller.call, answer=answer))
            case envelopes.UiMessage():
                state = self._callbacks.retained.state
                sessions.run(header.sender, header.ref, said.message, state)
            case envelopes.UiDetach():
                sessions.detach(header.sender, header.ref)
            case (
                envelopes.AgentHello()
                | envelopes.Reply()
                | envelopes.Credit()
                | envelopes.UnknownType()
                | envelopes.TelemetryWanted()
            ):
                log.line("message.unexpected", kind=type(said).__name__)
            case _:
                assert_never(said)

    def _deadline_passed(self, name: inputs.DeadlineName) -> None:
        self._inbox.put(inputs.DeadlinePassed(name, self._deadline_turns[name]))

    async def _advance(self, fact: inputs.Input) -> None:
        """Let the machine know *fact*, and do what follows, until it waits for something else."""
        if isinstance(fact, inputs.TurnEventReceived):
            self._turns.heard(fact.turn)
        await self._obey(advance(self._machine, fact))

    # Orders

    async def _obey(self, step: Advance) -> None:
        while True:
            self._machine = step.agent
            current = under_way(step.agent)
            self._context.current_ref = None if current is None else current.ref
            fact: inputs.Input | None = None
            for effect in step.effects:
                fact = await self._perform(effect)
            if fact is None:
                return
            step = advance(self._machine, fact)

    async def _perform(self, effect: effects.Effect) -> inputs.Input | None:
        match effect:
            case effects.Invoke(callback):
                # A callback may take its time; what was said before it is not its to delay.
                if not self._callbacks.does_nothing(callback):
                    self._outgoing.flush()
                return await self._callbacks.run(callback)
            case effects.StartTurn():
                # A turn may end the process at once; its admission must be out by then.
                self._outgoing.flush()
                return self._start(effect)
            case effects.KeepTurn():
                await self._keep(effect)
            case effects.Leaving(unresolved):
                self._outgoing.say(DAEMON, envelopes.Leaving(unresolved=unresolved))
                self._outgoing.flush()
            case effects.Terminate(reason, unresolved, within_ms):
                # The callbacks may take longer than anybody waits for, and never come back.
                self._outgoing.say(DAEMON, envelopes.Exiting(reason=reason, unresolved=unresolved))
                self._outgoing.flush()
                if within_ms is not None:
                    self._last_moment.arm(within_ms + BLOCKED_MS)
                await self._callbacks.terminate(reason, within_ms)
            case (
                effects.SendAdmission()
                | effects.SendEvent()
                | effects.SendCompletion()
                | effects.Reply()
            ):
                self._say(effect)
            case _:
                self._do(effect)
        return None

    def _do(
        self,
        effect: effects.CancelTurn
        | effects.DropTurn
        | effects.AbandonTurn
        | effects.ArmDeadline
        | effects.DisarmDeadline
        | effects.Emit
        | effects.Exit,
    ) -> None:
        match effect:
            case effects.CancelTurn(turn):
                self._turns.cancel(turn)
            case effects.DropTurn(turn):
                self._turns.forget(turn)
            case effects.AbandonTurn():
                with self._looking():
                    self._processes.kill_turn()
            case effects.ArmDeadline(name, after_ms, turn):
                self._deadline_turns[name] = turn
                self._deadlines.arm(name, after_ms)
                if name in ENDS_A_TURN:
                    self._last_resort.arm(name, after_ms, self._turns.thread)
            case effects.DisarmDeadline(name):
                self._deadlines.disarm(name)
                if name in ENDS_A_TURN:
                    self._last_resort.disarm(name)
            case effects.Emit():
                self._observer.note(effect)
            case effects.Exit(reason):
                self._last_moment.arm(REST_MS)
                self._exit = reason
            case _:
                assert_never(effect)

    def _say(
        self,
        effect: effects.SendAdmission | effects.SendEvent | effects.SendCompletion | effects.Reply,
    ) -> None:
        name, outgoing = self._handle.name, self._outgoing
        match effect:
            case effects.SendAdmission(recipient, ref, verdict):
                refused = verdict.reason if isinstance(verdict, answers.Refused) else None
                admission = envelopes.Admission(agent=name, ref=ref, refused=refused)
                outgoing.say(recipient, admission, ref.text)
            case effects.SendEvent(stream_to, ref, event):
                outgoing.event(stream_to, ref, event)
            case effects.SendCompletion(recipient, ref, outcome):
                completion = envelopes.Completion(agent=name, ref=ref, outcome=outcome)
                outgoing.say(recipient, completion, ref.text)
            case effects.Reply(call=CheckpointCall() as call, answer=answer):
                self._turns.answered(call, answer)
            case effects.Reply(call=incoming.Caller(address, number), answer=answer):
                outgoing.say(address, envelopes.Reply(call=number, answer=self._filled_in(answer)))

    def _filled_in(self, answer: answers.AgentAnswer) -> answers.AgentAnswer:
        """Return *answer* with what only the shell knows."""
        match answer:
            case answers.Status():
                return replace(answer, name=self._handle.name, agent_state=self._callbacks.shown())
            case answers.Snapshot(current_request=current) if current is not None:
                elapsed = replace(current, elapsed_ms=self._turns.elapsed_ms())
                return replace(answer, current_request=elapsed)
        return answer

    def _start(self, order: effects.StartTurn) -> inputs.FromStart:
        try:
            self._processes.turn_began(order.turn)
        except OSError as error:
            log.raised("turn.sweep_failed", error, agent=self._handle.name)
            return inputs.TurnStartFailed(order.turn)
        self._observer.turn_began(order.turn)
        return self._turns.start(order)

    async def _keep(self, order: effects.KeepTurn) -> None:
        state, session = self._turns.left(order.turn)
        self._turns.forget(order.turn)
        if order.checkpoint is not None:
            session = await self._callbacks.reapply(session, order.checkpoint)
        self._callbacks.retained.state = state
        if order.session:
            self._callbacks.retained.session = session
