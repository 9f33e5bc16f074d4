"""The turn in flight, seen from the coordinator: begun, told to stop, reported once over.

The turn's code runs in its own thread (`turn_loop`, `stream`); everything it has to
say comes back as a fact with the turn's number, through the inbox. This side keeps
what the turn left, until the machine says whether it counts.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from genagent_backends.base import Process, Session
from genagent_protocol.answers import AgentAnswer, Refused
from genagent_protocol.bounds import Limits
from genagent_protocol.events import Event
from genagent_protocol.plain import Plain
from genagent_protocol.turns import inputs
from genagent_protocol.turns.effects import StartTurn
from genagentd.agent import log
from genagentd.agent.callbacks import Callbacks, text_of
from genagentd.agent.stream import Ended, Work, encoded_bytes, now_ms, perform
from genagentd.agent.turn_loop import TurnThread

T = TypeVar("T")

#: How many relayed events the coordinator may be behind before the turn waits for it.
MAX_BEHIND = 1_024
#: What is kept of the text of a crash.
MAX_MESSAGE = 1_024


class Spawns(Protocol):
    """Starts processes from the main thread, for a turn or for its session."""

    async def spawn(
        self, turn: int, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | None
    ) -> Process:
        """Return a process of that turn; it is run in the coordinator's loop."""
        ...

    def keep(self, process: Process) -> None:
        """Make it the session's, since the turn has got it; in the coordinator's loop, too."""
        ...


@dataclass(frozen=True, slots=True)
class CheckpointCall:
    """The wait of a turn's backend for the answer to its checkpoint."""

    turn: int
    answer: concurrent.futures.Future[AgentAnswer] = field(repr=False)


class Flight:
    """One turn: its order, its task, and what it left. The guide of its own code."""

    def __init__(self, order: StartTurn, post: Callable[[inputs.Input], None]) -> None:
        self.order = order
        self.began_ms = now_ms()
        self.stopped = False
        #: Whether its code is between its first step and its end; only then can it be cancelled.
        self.running = False
        self.task: asyncio.Task[None] | None = None
        self.ended: Ended | None = None
        self._post = post
        # Each is counted by one thread only, so that neither needs a lock.
        self._relayed = 0
        self._heard = 0
        self._caught_up: asyncio.Event | None = None

    async def relay(self, event: Event) -> None:
        """Hand *event* to the coordinator, and wait for it if it is far behind."""
        if not self.order.relayed:
            return
        self._relayed += 1
        self._post(inputs.TurnEventReceived(self.order.turn, event))
        if self._behind >= MAX_BEHIND:
            self._caught_up = asyncio.Event()
            # It may have caught up before it could see the event to set.
            if self._behind >= MAX_BEHIND // 2:
                await self._caught_up.wait()

    @property
    def _behind(self) -> int:
        return self._relayed - self._heard

    def heard(self, call: Callable[[Callable[[], object]], None]) -> None:
        """One relayed event was dealt with, in the coordinator; *call* reaches the thread."""
        self._heard += 1
        waiting = self._caught_up
        if waiting is not None and self._behind < MAX_BEHIND // 2:
            self._caught_up = None
            call(waiting.set)


class Offer:
    """What a backend gets as its turn; used from the turn's thread."""

    def __init__(
        self,
        agent: Plain,
        number: int,
        post: Callable[[inputs.Input], None],
        main: asyncio.AbstractEventLoop,
        processes: Spawns,
        interrupt_grace_ms: int,
    ) -> None:
        self.interrupt_grace_ms = interrupt_grace_ms
        self._agent = agent
        self._number = number
        self._post = post
        self._main = main
        self._processes = processes

    @property
    def agent(self) -> Plain:
        """The agent's name."""
        return self._agent

    @property
    def number(self) -> int:
        """How many turns this life of the agent has begun, this one included."""
        return self._number

    async def checkpoint(self, session_id: str) -> Plain:
        """Tell the coordinator the session id; return None, or the code of its refusal."""
        call = CheckpointCall(self._number, concurrent.futures.Future())
        told = text_of(session_id)
        self._post(inputs.CheckpointRequested(call, self._number, told))
        answer = await asyncio.wrap_future(call.answer)
        return answer.reason.code if isinstance(answer, Refused) else None

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        for_session: bool = False,
    ) -> Process:
        """Start a process from the main thread.

        Raises:
            OSError: the program could not be started, or the turn is over.
        """
        started: Coroutine[Any, Any, Process] = self._processes.spawn(self._number, argv, env, cwd)
        process = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(started, self._main))
        # Whoever is interrupted on the way here never gets it, and the sweep of the turn ends it.
        # This comes before that sweep: what this thread says next is that the turn is over.
        if for_session:
            self._main.call_soon_threadsafe(self._processes.keep, process)
        return process


class Turns:
    """Begins, stops and remembers the turns of one agent. Used in the coordinator."""

    def __init__(
        self,
        limits: Limits,
        callbacks: Callbacks,
        post: Callable[[inputs.Input], None],
        processes: Spawns,
    ) -> None:
        self._limits = limits
        self._callbacks = callbacks
        self._post = post
        self._processes = processes
        self._main = asyncio.get_running_loop()
        self._thread = TurnThread()
        #: The turn in flight, or the last one.
        self._flight: Flight | None = None

    def start(self, order: StartTurn) -> inputs.FromStart:
        """Begin a turn on the retained state and session; say whether that was possible."""
        try:
            self._thread.ensure_running()
        except (OSError, RuntimeError):
            return inputs.TurnStartFailed(order.turn)
        flight = self._flight = Flight(order, self._post)
        callbacks = self._callbacks
        work = Work(
            agent=callbacks.agent,
            backend=callbacks.backend,
            limits=self._limits,
            prompt=order.prompt,
            state=callbacks.retained.state,
            session=callbacks.retained.session,
            offer=Offer(
                callbacks.name,
                order.turn,
                self._post,
                self._main,
                self._processes,
                self._limits.interrupt_grace_ms,
            ),
            guide=flight,
        )
        self._thread.call(self._begin, flight, work)
        return inputs.TurnStarted(order.turn)

    @property
    def thread(self) -> int:
        """The identity of the thread that turns run in, once one has begun."""
        return self._thread.ident

    def elapsed_ms(self) -> int:
        """Return how long the latest turn runs, or ran."""
        return 0 if self._flight is None else now_ms() - self._flight.began_ms

    def cancel(self, turn: int) -> None:
        """Tell the turn's code to stop. It is reported when it really has."""
        flight = self._current(turn)
        flight.stopped = True
        self._thread.call(_cancel, flight)

    def heard(self, turn: int) -> None:
        """A relayed event of that turn was dealt with."""
        if self._flight is not None and self._flight.order.turn == turn:
            self._flight.heard(self._thread.call)

    def answered(self, call: CheckpointCall, answer: AgentAnswer) -> None:
        """A checkpoint is decided."""
        # The thread may give its wait up at any moment; from here on it no longer can.
        if call.answer.set_running_or_notify_cancel():
            call.answer.set_result(answer)

    def left(self, turn: int) -> tuple[Any, Session]:
        """Return the state and the session that the turn ended with."""
        ended = self._current(turn).ended
        assert ended is not None
        return ended.state, ended.session

    def forget(self, turn: int) -> None:
        """Let go of what that turn left."""
        self._current(turn).ended = None

    def close(self) -> None:
        """Let the thread end; a turn that is stuck in it ends with the process."""
        self._thread.close()

    def _current(self, turn: int) -> Flight:
        assert self._flight is not None
        assert self._flight.order.turn == turn
        return self._flight

    # In the turn's thread

    def _begin(self, flight: Flight, work: Work) -> None:
        flight.task = self._thread.begin(self._fly(flight, work))

    async def _fly(self, flight: Flight, work: Work) -> None:
        turn = flight.order.turn
        report: inputs.TurnEnded | inputs.TurnStopped | inputs.TurnCrashed
        flight.running = True
        try:
            flight.ended = await perform(work)
            report = _report(turn, flight.ended)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it ends this turn alone
            report = self._crashed(flight, error)
        flight.running = False
        try:
            await self._thread.loop.end_strays()
        finally:
            self._post(report)

    def _crashed(
        self, flight: Flight, error: BaseException
    ) -> inputs.TurnStopped | inputs.TurnCrashed:
        order = flight.order
        # By its type: `isinstance` asks the exception itself as well, and that is code of others.
        if flight.stopped and issubclass(type(error), asyncio.CancelledError):
            return inputs.TurnStopped(order.turn)
        log.raised("turn.crashed", error, agent=self._callbacks.name, ref=order.ref)
        return inputs.TurnCrashed(order.turn, log.class_of(error), _message_of(log.meant(error)))


def _message_of(error: BaseException) -> str:
    try:
        message = str(error)[:MAX_MESSAGE]
        return text_of(message) or ""
    except BaseException:  # noqa: BLE001  # the exception is user code, too
        return ""


def _report(turn: int, ended: Ended) -> inputs.TurnEnded:
    return inputs.TurnEnded(
        turn=turn,
        outcome=ended.outcome,
        dispatched=ended.dispatched,
        encoded_bytes=encoded_bytes(ended.outcome),
    )


def _cancel(flight: Flight) -> None:
    if flight.task is not None and flight.running:
        flight.task.cancel()
