"""The daemon's driver loop: facts into the supervision machine, its orders out.

It decides nothing about agents. Facts come from lives (processes and channels) and
from requests; what the machine orders is performed in its order, one input at a time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from genagent_protocol import answers, envelopes
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import ORDERLY
from genagent_protocol.refs import BootId, Incarnation
from genagent_protocol.supervision import effects, inputs
from genagent_protocol.supervision.rules import advance
from genagent_protocol.supervision.table import Child, Table, child_of, empty
from genagentd import deadlines
from genagentd.config import Config
from genagentd.daemon import brief
from genagentd.daemon.allowance import Allowance
from genagentd.daemon.children import Orphans
from genagentd.daemon.lives import Life, Surroundings
from genagentd.daemon.report import report, warn
from genagentd.daemon.starter import Starter
from genagentd.daemon.switchboard import Sender, Switchboard
from genagentd.environment import agent_environment
from genagentd.paths import Places

#: What the machine reports that an operator should look at, besides an end that nobody wanted.
WARNED = frozenset({"agent.killed", "agent.failed", "agent.unresponsive"})
#: How long the news of an agent's end waits for the end of what it left behind.
LEFT_BEHIND_S = 2.0
#: How long the daemon's end waits for killed processes to be dead.
LAST_SWEEP_S = 5.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who waits for the answer to one request, and under which number."""

    sender: Sender
    call: int


class Shell:
    """The supervision of one daemon, inside a running loop."""

    def __init__(
        self, boot: BootId, places: Places, config: Config, switchboard: Switchboard
    ) -> None:
        self.table: Table = empty(boot, places.place)
        self.lives: dict[Incarnation, Life] = {}
        #: Set when a shutdown is complete: no agent is left.
        self.finished = asyncio.Event()
        #: Called after every change.
        self.on_change: Callable[[], None] = lambda: None
        self._board = switchboard
        self._pending: deque[inputs.Input] = deque()
        self._advancing = False
        #: Lives whose starter waits, so that a failed start can name its log.
        self._starting: dict[Caller, Life] = {}
        self._launches: set[asyncio.Task[None]] = set()
        self._deadlines = deadlines.Deadlines(self._deadline_passed)
        self._starter = Starter(
            config.start_method, agent_environment(config.pass_env, {}), str(places.agents)
        )
        self._orphans = Orphans(
            self._known, self._starter.owns, self._starter.was_ours, places.forget_agent
        )
        # A little later: the next launch may begin then.
        loop = asyncio.get_running_loop()
        self._starter.on_launched = lambda: loop.call_soon(self.sweep)
        self._around = Surroundings(
            places,
            config,
            self._starter,
            self._board,
            self.feed,
            Allowance(),
            lambda gone: self._orphans.sweep_for(gone, LEFT_BEHIND_S),
        )

    def warm(self) -> None:
        """Start the helper, so that the first agent does not wait for it."""
        self._starter.warm()

    def reconfigure(self, config: Config) -> None:
        """Let later starts, restarts too, go by *config*."""
        self._around = dataclasses.replace(self._around, config=config)
        self._starter.reconfigure(agent_environment(config.pass_env, {}))

    def feed(self, fact: inputs.Input) -> None:
        """Let the machine know *fact* and perform what follows; facts during that wait."""
        self._pending.append(fact)
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._pending:
                step = advance(self.table, self._pending.popleft())
                self.table = step.table
                for effect in step.effects:
                    self._perform_alone(effect)
        finally:
            self._advancing = False
        self.on_change()

    def _perform_alone(self, effect: effects.Effect) -> None:
        """Perform *effect*, whose failure must not take the rest of its step with it.

        The table has gone on already: what is not performed now never is.
        """
        try:
            self._perform(effect)
        except Exception as error:  # noqa: BLE001  # whatever it is, it concerns this effect alone
            warn(
                "internal.error",
                effect=type(effect).__name__,
                traceback="".join(traceback.format_exception(error)),
            )

    def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Answer():
                self._answer(effect)
            case effects.SendDown():
                self._send_down(effect)
            case effects.Launch():
                self._launch(effect)
            case effects.AskToStop():
                self._tell(
                    effect.incarnation,
                    envelopes.StopAsked(reason=effect.reason, drain=effect.drain),
                )
            case effects.RefuseTurns():
                self._tell(effect.incarnation, envelopes.RefuseTurns())
            case effects.Kill():
                self.lives[effect.incarnation].kill()
            case effects.GiveUpLaunch():
                self.lives[effect.incarnation].give_up()
            case effects.Sweep():
                self._orphans.sweep()
            case effects.DrainNow():
                self.lives[effect.incarnation].drain_now()
            case effects.ReportUnresolved():
                for ref in effect.refs:
                    report(
                        "request.unresolved",
                        agent=self._name(effect.incarnation),
                        incarnation=effect.incarnation.text,
                        ref=ref.text,
                    )
            case effects.WarnOfUnknown(who):
                warn("requests.unknown", agent=self._name(who), incarnation=who.text)
            case effects.Dispose():
                self._dispose(effect)
            case effects.ArmDeadline():
                self._deadlines.arm(effect.timer, effect.after_ms)
            case effects.DisarmDeadline():
                self._deadlines.disarm(effect.timer)
            case effects.Emit():
                self.emit(effect.event, effect.metadata)
            case effects.Finished():
                self.finished.set()
            case _:
                assert_never(effect)

    def _deadline_passed(self, timer: inputs.Timer) -> None:
        self.feed(inputs.DeadlinePassed(timer))

    def _answer(self, order: effects.Answer) -> None:
        caller = order.call
        assert isinstance(caller, Caller)
        answer: Any = order.answer
        began = self._starting.pop(caller, None)
        match order.answer:
            case effects.Done():
                answer = answers.Ok()
            case effects.Refused(reason):
                answer = answers.Refused(reason)
            case effects.NotStarted(error) if began is not None and began.has_log_lines:
                named = dataclasses.replace(error, log=str(began.log_path))
                answer = dataclasses.replace(order.answer, error=named)
        self._board.say(caller.sender, envelopes.Reply(call=caller.call, answer=answer))

    def _send_down(self, order: effects.SendDown) -> None:
        receiver = self._board.sender(order.client)
        if receiver is not None:
            down = envelopes.Down(monitor=order.monitor, handle=order.handle, reason=order.reason)
            self._board.say(receiver, down)

    def _launch(self, order: effects.Launch) -> None:
        start: Any = order.terms.spec
        life = Life(order.incarnation, start, self._around)
        self.lives[order.incarnation] = life
        child = child_of(self.table, order.incarnation)
        if child is not None and isinstance(child.starter, Caller):
            self._starting[child.starter] = life
        task = asyncio.get_running_loop().create_task(life.launch())
        self._launches.add(task)
        task.add_done_callback(self._launches.discard)

    def _tell(self, incarnation: Incarnation, envelope: object) -> None:
        port = self.lives[incarnation].port
        if port is not None:
            self._board.say(port, envelope)

    def _dispose(self, order: effects.Dispose) -> None:
        incarnation = order.incarnation
        life = self.lives.pop(incarnation)
        try:
            life.dispose(order.reason, order.killed_for)
        finally:
            self.feed(inputs.ClientGone(-incarnation.number))

    def _name(self, incarnation: Incarnation) -> Plain:
        return self.lives[incarnation].start.name

    def log_of(self, child: Child) -> str | None:
        """Return where the log of its life is, or of its last one if it has none now."""
        life = self.lives.get(child.last)
        if life is not None:
            return None if life.log_path is None else str(life.log_path)
        # A start may have failed before there was one, and somebody may have tidied up.
        path = str(self._around.places.agent_log(child.terms.name, child.last))
        return path if os.path.exists(path) else None

    def _known(self) -> set[int]:
        """Return the agents among our children, also those announced a moment ago."""
        for life in list(self.lives.values()):
            if life.pid is None:
                life.hear_announcement()
        return {life.pid for life in self.lives.values() if life.pid is not None}

    def sweep(self) -> None:
        """Some child of ours ended; end and reap those that are nobody's."""
        self._starter.look_after()
        self._orphans.sweep_soon()

    def emit(self, event: str, metadata: FrozenDict) -> None:
        """Write one line about it and tell whoever watches telemetry."""
        (warn if _wants_a_look(event, metadata) else report)(event, **metadata)
        if self._board.telemetry_watched:
            agent = metadata.get("agent")
            record = envelopes.Telemetry(event=event, agent=agent, metadata=metadata)
            self._board.broadcast_telemetry(brief.encoded(record))

    async def close(self) -> None:
        """End the helper and reap what is left; call it when `finished` is set."""
        self._deadlines.disarm_all()
        self._starter.close()
        left = await self._orphans.settled(LAST_SWEEP_S)
        if left:
            warn("orphans.left", pids=left)


def _wants_a_look(event: str, metadata: FrozenDict) -> bool:
    return event in WARNED or (event == "agent.down" and metadata.get("reason") not in ORDERLY)
