"""Agents that misbehave on purpose; loaded by agent processes, from `tests` as their directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable
from pathlib import Path

from genagent_protocol import codec
from genagent_protocol.envelopes import Completion, Down, Hello, Request
from genagent_protocol.events import Event, Failed, Response
from genagent_protocol.header import DAEMON, Header, encode_header
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import UNKNOWN, ExitReason
from genagent_protocol.refs import MonitorRef, RequestRef
from genagent_protocol.requests import Whereis
from genagentd import Agent, NoReply, Started
from genagentd.agent import last_resort, shell
from genagentd.agent.outgoing import Outgoing


def _without(options: FrozenDict, name: str) -> dict[str, object]:
    return {key: value for key, value in options.items() if key != name}


class Quiet(Agent[None]):
    """Decides nothing."""

    def handle_response(self, ref: RequestRef, response: Response, state: None) -> NoReply[None]:
        return NoReply(state)


class Leaky(Quiet):
    """Has opened whatever it may by the first text of a turn, and keeps it."""

    def handle_stream_event(self, event: Event, state: None) -> None:
        if event.kind == "text":
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
            with contextlib.suppress(OSError):
                while True:
                    os.open(os.devnull, os.O_RDONLY)


class RaisesInInit(Quiet):
    def init_agent(self, options: FrozenDict) -> Started[None]:
        raise LookupError("no such thing")


class RaisesAboveTools(Quiet):
    """Has begun tools, some below others and all deaf, that wrote their pids where it says."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        script = "trap '' INT TERM; echo $$ >> {0}; {1}while :; do sleep 3600 & wait; done"
        inner = ""
        for _ in range(5):
            inner = f"setsid sh -c {shlex.quote(script.format(options['pids'], inner))} & "
        subprocess.Popen(["sh", "-c", inner])
        while len(Path(str(options["pids"])).read_text().split()) < 5:
            time.sleep(0.01)
        if options["exits"]:
            os._exit(3)
        raise LookupError("no such thing")


class ExitsInInit(Quiet):
    """Ends the process with the status of the option `status`."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        os._exit(int(str(options["status"])))


class SleepsInInit(Quiet):
    """Blocks for the option `seconds`, deaf to what can be ignored; starts a tool first."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.spawnlp(os.P_NOWAIT, "setsid", "setsid", "sleep", "3600")
        time.sleep(float(str(options["seconds"])))
        return Started({}, None)


class KeepsTheInterpreter(Quiet):
    """Computes in C for ever, and is ended by the kernel soon after its deadline."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        vars(last_resort).update(PATIENCE_MS=300)
        return Started(options, None)

    def handle_stream_event(self, event: Event, state: None) -> None:
        if event.kind == "text":
            re.match(r"(a+)+$", "a" * 60 + "b")


class SlowToEnd(Quiet):
    """Blocks its coordinator at its end for the option `seconds` of its start."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        self.seconds = float(str(options["seconds"]))
        return Started(_without(options, "seconds"), None)

    def terminate_agent(self, reason: ExitReason, state: None) -> None:
        time.sleep(self.seconds)


class HangsAtTheEnd(Quiet):
    """Never lets go at its end, in the way that the option `how` says; fails at a response."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        vars(shell).update(BLOCKED_MS=200)
        self.how = options["how"]
        if self.how == "ignores signals":
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
        elif self.how == "blocks signals":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        return Started(_without(options, "how"), None)

    def handle_response(self, ref: RequestRef, response: Response, state: None) -> NoReply[None]:
        raise LookupError("no such thing")

    def terminate_agent(self, reason: ExitReason, state: None) -> Awaitable[None] | None:
        match self.how:
            case "awaits":
                return asyncio.Event().wait()  # type: ignore[return-value]  # it never returns
            case "blocks signals at its end":
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                threading.Event().wait()
            case "ignores signals" | "blocks signals":
                threading.Event().wait()
            case "waits":
                threading.Event().wait()
            case _:
                re.match(r"(a+)+$", "a" * 60 + "b")
        return None


class Strict(Quiet):
    """May use one second of processor time."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
        return Started(options, None)


class Clumsy(Quiet):
    """Raises where nothing catches it."""

    def handle_response(self, ref: RequestRef, response: Response, state: None) -> NoReply[None]:
        raise LookupError("no such thing")


class CallsC(Quiet):
    """Stays in a blocking call of the coordinator when an event says so, for so many seconds."""

    def handle_event(self, event: object, state: None) -> NoReply[None]:
        time.sleep(float(str(event)))
        return NoReply(state)


class Watchful(Quiet):
    """Appends the kind of every stream event to the file of the option `file`."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        self.path = str(options["file"])
        return Started(_without(options, "file"), None)

    def handle_stream_event(self, event: Event, state: None) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(event.kind + "\n")


class ShowsEnvironment(Quiet):
    """Shows the names of its environment, and of that of a process it starts."""

    def show_state(self, state: None) -> dict[str, str]:
        return dict(os.environ)


class ShowsSurroundings(Quiet):
    """Shows what Python takes from its environment once, and keeps."""

    def show_state(self, state: None) -> dict[str, str]:
        return {
            "midnight": time.strftime("%H:%M %Z", time.localtime(0)),
            "temporary": tempfile.gettempdir(),
        }


class Forger(Quiet):
    """Says on its own connection what is not its to say, to the address that an event names."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        self.lie, self.ref = str(options["lie"]), RequestRef.parse(str(options["ref"]))
        return Started({}, None)

    def handle_event(self, event: object, state: None) -> NoReply[None]:
        if isinstance(event, str):
            header, body = self._forged(event)
            _outgoing(self)._send(header, body)
        return NoReply(state)

    def _forged(self, to: str) -> tuple[bytes, bytes]:
        down = Down(monitor=MonitorRef(1), handle=self.context.handle, reason=ExitReason("normal"))
        done = Completion(agent="honest", ref=self.ref, outcome=Failed(UNKNOWN))
        match self.lie:
            case "down":
                return _message("down", to, down)
            case "hidden_down":
                return _message("completion", to, down)
            case "foreign_completion":
                return _message("completion", to, done)
            case "hello":
                return _message("hello", DAEMON, Hello(min_version=1, max_version=1, software=""))
            case _:
                return b"\xc1 garbage", b""


def _outgoing(agent: Agent[None]) -> Outgoing:
    outgoing = getattr(agent.context.peers._say, "__self__", None)
    assert isinstance(outgoing, Outgoing)
    return outgoing


def _message(kind: str, to: str, envelope: object) -> tuple[bytes, bytes]:
    body = codec.encode(envelope)
    return encode_header(Header(kind, to, size=len(body))), body


class Flooder(Quiet):
    """Asks the daemon as fast as it can, for so many seconds as an event says."""

    def handle_event(self, event: object, state: None) -> NoReply[None]:
        send = _outgoing(self)._send
        until = time.monotonic() + float(str(event))
        number = 0
        while time.monotonic() < until:
            number += 1
            send(*_message("request", DAEMON, Request(call=number, request=Whereis(name="x"))))
        return NoReply(state)


class Printer(Quiet):
    """Prints as fast as it can, for so many seconds as an event says, in a thread of its own."""

    def handle_event(self, event: object, state: None) -> NoReply[None]:
        until = time.monotonic() + float(str(event))

        def print_on() -> None:
            while time.monotonic() < until:
                os.write(1, b"filling the disk\n" * 1_000)

        threading.Thread(target=print_on, daemon=True).start()
        return NoReply(state)


class Forks(Quiet):
    """Forks a child that keeps everything it inherited, and stays."""

    def handle_event(self, event: object, state: None) -> NoReply[None]:
        if os.fork() == 0:
            os.setsid()
            time.sleep(3_600)
            os._exit(0)
        return NoReply(state)
