"""Agents that raise or break what no well-meaning code would; loaded as the faulty ones are."""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator

from genagent_backends.base import Streaming
from genagent_protocol.events import Event, Outcome, Response, event
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import RequestRef
from genagentd import Agent, NoReply, Ok, Run, Started, telemetry
from genagentd.agent.callbacks import Callbacks
from support.faulty_agents import Quiet

#: What no `except Exception` catches, and one thing that it does.
RAISES: dict[str, type[BaseException]] = {
    "ValueError": ValueError,
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "BaseException": BaseException,
}


class RaisesWhenShown(Quiet):
    """Raises what the option `raises` names when its state is to be shown."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        self.raises = RAISES[str(options["raises"])]
        return Started({key: options[key] for key in options if key != "raises"}, None)

    def show_state(self, state: None) -> None:
        raise self.raises


class WatchedBadly(RaisesWhenShown):
    """Its own telemetry handler raises that."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        telemetry.attach(self.watch)
        return super().init_agent(options)

    def watch(self, record: object) -> None:
        raise self.raises

    def show_state(self, state: None) -> None:
        return None


class BreaksUs(RaisesWhenShown):
    """Has our own code raise that, where nothing expects it."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        def shown(_callbacks: object) -> None:
            raise self.raises

        Callbacks.shown = shown  # type: ignore[assignment, method-assign]  # that is the fault
        return super().init_agent(options)


class BreaksPython(Quiet):
    """Takes away from everybody what nobody can do without."""

    def handle_event(self, event: object, state: None) -> NoReply[None]:
        builtins.len = None  # type: ignore[assignment]  # that is the fault
        return NoReply(state)


def _close(descriptor: int) -> None:
    os.close(descriptor)


def _forget(name: str) -> None:
    setattr(sys, name, None)


#: What code does to the streams of its process.
STREAMS: dict[str, Callable[[], None]] = {
    "stderr closed": lambda: sys.stderr.close(),
    "stdout closed": lambda: sys.stdout.close(),
    "stderr gone": lambda: _forget("stderr"),
    "stdout gone": lambda: _forget("stdout"),
    "1 closed": lambda: _close(1),
    "2 closed": lambda: _close(2),
    "replaced": lambda: setattr(sys, "stderr", object()),
}


class BreaksStreams(Quiet):
    """Breaks the stream that an event names, and raises then; its background task fails too."""

    async def handle_event(self, event: object, state: None) -> NoReply[None]:
        STREAMS[str(event)]()
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        raise LookupError("no such thing")


class Reaps(Quiet):
    """Starts programs: some end at once and are waited for late, one leaves an orphan behind."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        end = ["sh", "-c", "exit 7"]
        self.own = [subprocess.Popen(end), subprocess.Popen(end, start_new_session=True)]
        # The shell leads a session, and is gone before what it leaves in it.
        leaves = ["sh", "-c", "sleep 0.1 >&2 & echo $!"]
        said = subprocess.run(leaves, start_new_session=True, check=True, stdout=subprocess.PIPE)
        self.orphan = int(said.stdout)
        return Started(options, None)

    def show_state(self, state: None) -> list[int]:
        return [self.orphan, *(program.pid for program in self.own)]

    def handle_event(self, event: object, state: None) -> NoReply[None]:
        codes = [program.wait() for program in self.own]
        assert codes == [7, 7], codes
        print("codes", codes, flush=True)
        return NoReply(state)


class StartsManyProcesses(Quiet):
    """Starts and waits for more programs in one callback than a loop takes signals."""

    def handle_response(self, ref: RequestRef, response: Response, state: None) -> NoReply[None]:
        for _ in range(400):
            subprocess.run(["true"], check=True)
        return NoReply(state)


class LosesItsFirstThread(Quiet):
    """Ends its first thread, and with that what hears anybody; another one goes on."""

    def handle_event(self, event: object, state: None) -> NoReply[None]:
        threading.Thread(target=threading.Event().wait).start()
        ctypes.CDLL(None).pthread_exit(None)
        return NoReply(state)


def _cancel_later(loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
    loop.call_soon(lambda: loop.call_soon(task.cancel))


#: How a callback can get at what drives its agent.
INTERFERES: dict[str, Callable[[asyncio.AbstractEventLoop, asyncio.Task[object]], object]] = {
    "cancels its task": lambda _loop, task: task.cancel(),
    "cancels its task later": _cancel_later,
    "cancels every task": lambda loop, _task: [task.cancel() for task in asyncio.all_tasks(loop)],
    "stops the loop": lambda loop, _task: loop.stop(),
}


class Interferes(Agent[None]):
    """Does so as the option `how` says, in all of its guarded callbacks."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        self.how = INTERFERES[str(options["how"])]
        self._interfere()
        return Started({key: options[key] for key in options if key != "how"}, None)

    def _interfere(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.how(asyncio.get_running_loop(), task)

    def pre_run(self, state: None) -> Ok[None]:
        self._interfere()
        return Ok(state)

    def pre_turn(self, prompt: str, state: None) -> Run[None]:
        self._interfere()
        return Run(prompt, state)

    async def handle_response(
        self, ref: RequestRef, response: Response, state: None
    ) -> NoReply[None]:
        for _ in range(20):
            await asyncio.sleep(0)
        return NoReply(state)

    def handle_event(self, what: Plain, state: None) -> NoReply[None] | Awaitable[NoReply[None]]:
        self._interfere()
        return NoReply(state) if what is None else self._later(state)

    async def _later(self, state: None) -> NoReply[None]:
        self._interfere()
        await asyncio.sleep(0)
        return NoReply(state)

    def post_turn(self, outcome: Outcome, ref: RequestRef, state: None) -> Ok[None]:
        self._interfere()
        return Ok(state)

    def show_state(self, state: None) -> str:
        self._interfere()
        return "shown"

    def terminate_agent(self, reason: ExitReason, state: None) -> None:
        self._interfere()


class Forks(Agent[int | None]):
    """Forks a child that comes back to us as the option `how` says; keeps its exit status."""

    def init_agent(self, options: FrozenDict) -> Started[int | None]:
        self.how = options["how"]
        return Started({key: options[key] for key in options if key != "how"}, None)

    def show_state(self, state: int | None) -> int | None:
        return state

    def handle_stream_event(self, said: Event, state: int | None) -> int | None:
        if said.kind != "text" or self.how != "returns into the turn":
            return state
        child = os.fork()
        return state if child == 0 else _status_of(child)

    async def handle_response(
        self, ref: RequestRef, response: Response, state: int | None
    ) -> NoReply[int | None]:
        if self.how == "returns into the turn":
            return NoReply(state)
        child = os.fork()
        if child:
            return NoReply(_status_of(child))
        match self.how:
            case "raises":
                raise ValueError
            case "exits":
                sys.exit(7)
            case "awaits":
                await asyncio.sleep(0)
        return NoReply(state)


def _status_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


#: Where `ForksAnywhere` and its backend can fork.
PLACES = (
    "init_agent",
    "copy_state",
    "start_session",
    "prompt",
    "stream",
    "handle_stream_event",
    "close",
    "update_session",
    "show_state",
    "telemetry",
)


class _Forks:
    """Has one child forked, in one place, and says where else that child gets to."""

    place = ""
    pid = 0

    def pass_by(self, place: str) -> None:
        if os.getpid() != self.pid:
            print("the child went on to", place, flush=True)
        elif place == self.place:
            self.place = ""
            child = os.fork()
            if child:
                print("the child ended with", _status_of(child), flush=True)


_forks = _Forks()


class ForksAnywhere(Agent[int]):
    """Forks a child that comes back to us in the place that the option `place` names."""

    def init_agent(self, options: FrozenDict) -> Started[int]:
        _forks.place, _forks.pid = str(options["place"]), os.getpid()
        telemetry.attach(lambda _record: _forks.pass_by("telemetry"))
        _forks.pass_by("init_agent")
        return Started({}, 0)

    def copy_state(self, state: int) -> int:
        _forks.pass_by("copy_state")
        return state

    def show_state(self, state: int) -> int:
        _forks.pass_by("show_state")
        return state

    def handle_stream_event(self, said: Event, state: int) -> int:
        _forks.pass_by("handle_stream_event")
        return state

    def handle_response(self, ref: RequestRef, response: Response, state: int) -> NoReply[int]:
        return NoReply(state)


class ForkingBackend:
    """The backend of an agent that forks anywhere; its stream has a clean-up."""

    def start_session(self, options: FrozenDict) -> str:
        _forks.pass_by("start_session")
        return "session"

    def terminate_session(self, session: str) -> None:
        return None

    def prompt(self, session: str, prompt: str, turn: object) -> Streaming:
        _forks.pass_by("prompt")
        return Streaming(self._stream(), session)

    def _stream(self) -> Iterator[Event]:
        try:
            _forks.pass_by("stream")
            yield event("result", text="done")
            raise AssertionError("nothing is asked for after the result")
        finally:
            _forks.pass_by("close")

    def update_session(self, session: str, data: FrozenDict) -> str:
        _forks.pass_by("update_session")
        return session
