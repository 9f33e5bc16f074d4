"""One life of one agent as the daemon holds it: process, pipe, log, channel.

A `Life` reports what happens to it as facts for the supervision machine, each at
most once and in the order the machine is promised: born or not, said, exited,
drained. It decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from genagent_protocol.envelopes import AgentHello
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import ExitReason, StartError
from genagent_protocol.refs import Incarnation
from genagent_protocol.requests import StartAgent
from genagent_protocol.supervision import inputs
from genagentd.channels import Connection
from genagentd.config import Config
from genagentd.daemon.allowance import Allowance, Exhausted
from genagentd.daemon.birth import BadOrder, Descriptor, Newborn
from genagentd.daemon.children import BirthPipe, Watched
from genagentd.daemon.logs import Log
from genagentd.daemon.report import warn
from genagentd.daemon.starter import LAUNCH_TIMEOUT_S, LaunchLost, Starter
from genagentd.daemon.switchboard import Port, Switchboard
from genagentd.environment import agent_environment
from genagentd.log_line import log_line
from genagentd.paths import Places, make_private
from genagentd.socket_path import UnusablePlace
from genagentd.system_text import sayable

#: How often a launch is tried; each time the helper gets twice as long.
LAUNCH_ATTEMPTS = 3
#: How long a launch may still take that nobody wants: one that only waits for its turn, or on a
#: helper that does not answer, would hold up the end of the daemon.
UNWANTED_S = 0.5


def now_ms() -> int:
    """Return the monotonic moment in milliseconds."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all lives of one daemon share."""

    places: Places
    config: Config
    starter: Starter
    switchboard: Switchboard
    feed: Callable[[inputs.Input], None]
    allowance: Allowance
    #: Ends what a dead agent left behind, and calls when that is gone.
    end_the_rest: Callable[[Callable[[], None]], None]


class Life:
    """One incarnation, from its launch to its disposal."""

    def __init__(self, incarnation: Incarnation, start: StartAgent, around: Surroundings) -> None:
        self.incarnation = incarnation
        self.start = start
        self.began_ms = now_ms()
        self.log_path: Path | None = None
        #: When the oldest unanswered ping was sent; None when all were answered.
        self.pinged_ms: int | None = None
        self.unresponsive = False
        self._around = around
        self._log: Log | None = None
        self._pipe: BirthPipe | None = None
        self._watched: Watched | None = None
        self._port: Port | None = None
        self._launching = True
        self._unwanted = False
        self._attempt: asyncio.Future[None] | None = None
        #: Whether its channel was ever open.
        self._greeted = False
        self._drained = False
        self._disposed = False

    @property
    def pid(self) -> int | None:
        """Its process, from its announcement on."""
        return None if self._watched is None else self._watched.pid

    @property
    def port(self) -> Port | None:
        """Its channel, once it is connected."""
        return self._port

    # --- being born

    async def launch(self) -> None:
        """Have it born; failing that, say so."""
        try:
            cwd = self._checked_directory()
            # Somebody may have removed them under us, and another one made them anew.
            for directory in (self._around.places.agents, self._around.places.logs):
                make_private(directory)
            # Who comes must not be let in to descriptors that are spoken for.
            self._around.switchboard.recounted(self._around.allowance.promise(self.incarnation))
            self._log = Log(self._around.places.agent_log(self.start.name, self.incarnation))
            self.log_path = self._log.path
            await self._try_to_launch(cwd, self._log)
        except Refusal as refusal:
            self._not_born(refusal.error)
        except Exhausted as error:
            self._not_born(_exhausted(str(error)))
        except BadOrder as error:
            self._not_born(StartError(kind="invalid_option", message=f"env: {error}"))
        except UnusablePlace as error:
            self._not_born(StartError(kind="bad_directory", message=str(error)))
        except OSError as error:
            self._not_born(_exhausted(f"no process could be started: {error}"))
        except Exception as error:
            # A bug of ours; the start is answered all the same, and the task's end logs it. What
            # the error holds may be an environment, and is nothing for a message.
            kind = type(error).__name__
            self._not_born(_exhausted(f"no process could be started: {kind}, in the daemon's log"))
            raise
        else:
            self._launched()
        finally:
            if self._log is not None:
                self._log.handed_over()

    def _checked_directory(self) -> str:
        cwd = sayable(self.start.cwd or "/")
        if not os.path.isabs(cwd):
            wrong = "is not absolute"
        elif not os.path.isdir(cwd):
            wrong = "is not a directory" if os.path.lexists(cwd) else "does not exist"
        elif not os.access(cwd, os.X_OK, effective_ids=True):
            wrong = "may not be entered"
        else:
            return cwd
        message = f"the working directory {self.start.cwd} {wrong}"
        raise Refusal(StartError(kind="bad_directory", message=message, detail="cwd"))

    async def _try_to_launch(self, cwd: str, log: Log) -> None:
        """Launch until a newborn was announced: a helper that died over one is replaced.

        Each attempt has a pipe of its own, so that a newborn of an attempt that was
        given up can say nothing, and meets nobody.
        """
        for attempt in range(LAUNCH_ATTEMPTS):
            if self._unwanted:
                raise Refusal(StartError(kind="exited", message="the launch was given up"))
            pipe = self._pipe = BirthPipe(self._announced, self._bound, self._pipe_ended)
            try:
                self._attempt = asyncio.ensure_future(
                    self._around.starter.launch(
                        self._newborn(cwd, pipe, log), LAUNCH_TIMEOUT_S * 2**attempt
                    )
                )
                await self._attempt
            except LaunchLost as lost:
                warn("helper.lost", agent=self.start.name, attempt=attempt + 1, detail=str(lost))
            except asyncio.CancelledError:
                if not self._unwanted:
                    raise
            finally:
                pipe.sent()
            pipe.read()
            if pipe.announced:
                return
            pipe.close()
        raise Refusal(_exhausted(f"no process could be started in {LAUNCH_ATTEMPTS} attempts"))

    def give_up(self) -> None:
        """Be born soon, or not at all: nobody wants it any more."""
        self._unwanted = True
        asyncio.get_running_loop().call_later(UNWANTED_S, self._cancel_attempt)

    def _cancel_attempt(self) -> None:
        # With an announced newborn, only the helper's answer is missing; no reason to lose it.
        if self._attempt is not None and self._watched is None:
            self._attempt.cancel()

    def _newborn(self, cwd: str, pipe: BirthPipe, log: Log) -> Newborn:
        return Newborn(
            daemon=os.getpid(),
            cwd=cwd,
            environ=agent_environment(
                self._around.config.pass_env, _text_environment(self.start.env)
            ),
            pipe=Descriptor(pipe.write_fd),
            log=Descriptor(log.write_fd),
        )

    def _launched(self) -> None:
        self._launching = False
        if self._pipe is not None and self._pipe.ended:
            self._pipe_ended()

    def hear_announcement(self) -> None:
        """Take what the newborn's pipe says already, before anyone judges who is an orphan."""
        if self._pipe is not None:
            self._pipe.read()

    def _announced(self, pid: int) -> None:
        try:
            self._watched = Watched(pid, self._exited)
        except ProcessLookupError:
            return  # It died and was reaped as nobody's; the end of the pipe says the rest.
        self._around.feed(
            inputs.ProcessBorn(
                incarnation=self.incarnation,
                pid=pid,
                started_ticks=self._watched.started_ticks,
            )
        )

    def _pipe_ended(self) -> None:
        # While it is launched, there may be another attempt.
        if self._watched is None and not self._launching:
            self._not_born(
                StartError(kind="exited", message="the process ended before it was announced")
            )

    def _not_born(self, error: StartError) -> None:
        if self._pipe is not None:
            self._pipe.close()
        self._around.feed(
            inputs.LaunchFailed(incarnation=self.incarnation, error=error, now_ms=now_ms())
        )

    # --- its channel

    def _bound(self) -> None:
        if self._watched is None:
            return
        port = Port(self.incarnation, self.start.name, self._watched.pid)
        board = self._around.switchboard
        try:
            port.connection = Connection(
                self._place_of(self._watched),
                lambda message: board.hear_agent(port, message),
                self._open,
                self._channel_ended,
            )
        except OSError as error:
            wrong = _exhausted(f"no channel could be opened: {error}")
            self._around.feed(inputs.ChannelFailed(self.incarnation, wrong))
            return
        self._port = port

    def _place_of(self, watched: Watched) -> str:
        return self._around.places.agent_socket(watched.pid, watched.started_ticks)

    def _missed(self, why: str) -> None:
        if self._drained:
            return
        assert self._watched is not None
        message = f"the agent was to be found at {self._place_of(self._watched)}, and {why}"
        error = StartError(kind="bad_directory", message=message)
        self._around.feed(inputs.ChannelMissed(self.incarnation, error))

    def _open(self) -> None:
        assert self._port is not None
        assert self._port.connection is not None
        self._around.allowance.settled(self.incarnation)
        if self._drained:
            return
        listener = self._port.connection.listener_pid
        if listener != self._port.pid:
            # If nobody knows who it was, it is gone, and the connection's end is told next.
            if listener:
                self._missed(
                    f"process {listener} listens there: see what it is, and start the agent again"
                )
            return
        self._greeted = True
        board = self._around.switchboard
        board.open_port(self._port)
        hello = AgentHello(
            incarnation=self.incarnation,
            place=self._around.places.place,
            start=self.start,
            telemetry=board.telemetry_watched,
        )
        self._port.watched = hello.telemetry
        board.say(self._port, hello)

    def _channel_ended(self) -> None:
        if self._greeted:
            self.drained(held=False)
        else:
            self._missed(
                "nobody listens there: leave the files of the runtime directory where they are"
            )

    def drained(self, *, held: bool) -> None:
        """Everything it said has been read."""
        if not self._drained:
            self._drained = True
            self._around.feed(inputs.ChannelDrained(incarnation=self.incarnation, held=held))

    @property
    def has_log_lines(self) -> bool:
        """Whether there is anything to read where `log_path` points."""
        return self._log is not None and self._log.has_lines()

    def cut_off(self) -> None:
        """Hear nothing of it any more."""
        if self._port is not None:
            self._around.switchboard.close_port(self._port)
            self.drained(held=False)

    def drain_now(self) -> None:
        """Read its channel until nothing is there, and count that as its end."""
        if self._port is not None and self._port.connection is not None:
            self._port.connection.read_to_end()
        self.drained(held=True)

    # --- its end

    def _exited(self, number: int, signalled: bool) -> None:
        status = inputs.Signalled(number) if signalled else inputs.Exited(number)
        exited = inputs.ProcessExited(incarnation=self.incarnation, status=status, now_ms=now_ms())
        # Whoever hears of the end may rely on it, also for the tools.
        self._around.end_the_rest(lambda: self._over(exited))

    def _over(self, exited: inputs.ProcessExited) -> None:
        self._around.feed(exited)
        if not self._greeted:
            # It was told nothing, and so it has said nothing.
            self.drained(held=False)

    def kill(self) -> None:
        """SIGKILL exactly this process."""
        if self._watched is not None:
            self._watched.signal(SIGKILL)

    def dispose(
        self, reason: ExitReason | None = None, killed_for: inputs.Cause | None = None
    ) -> None:
        """Close and forget everything of it.

        *reason* is why its process ended, if it had one, and *killed_for* why we ended it.
        """
        if self._disposed:
            return
        self._disposed = True
        # Each of them is done, whatever another one raises; the last one that is put here first.
        with contextlib.ExitStack() as left:
            if self._watched is not None:
                # If it ended before it was found; otherwise the agent removed it itself.
                watched = self._watched
                left.callback(self._around.places.forget_agent, watched.pid, watched.started_ticks)
            if self._log is not None:
                left.callback(self._log.close, self._last_line(reason, killed_for))
            if self._port is not None:
                # One that never shook hands was never opened as a port.
                if self._port.connection is not None:
                    left.callback(self._port.connection.close)
                left.callback(self._around.switchboard.close_port, self._port)
            if self._pipe is not None:
                left.callback(self._pipe.close)
            left.callback(self._around.allowance.settled, self.incarnation)

    def _last_line(self, reason: ExitReason | None, killed_for: inputs.Cause | None) -> str:
        # Whoever was killed said nothing, and its log would not tell that from a silent end.
        if reason is None:
            return ""
        said = {
            "agent": self.start.name,
            "pid": self.pid,
            "reason": reason.text,
            "killed_for": killed_for,
        }
        return log_line("agent.down", said)


class Refusal(Exception):
    """A start that ends before there is a process."""

    def __init__(self, error: StartError) -> None:
        self.error = error
        super().__init__(str(error))


def _exhausted(message: str) -> StartError:
    return StartError(kind="resource_exhausted", message=message)


def _text_environment(env: FrozenDict) -> dict[str, str]:
    return {sayable(name): sayable(str(value)) for name, value in env.items()}
