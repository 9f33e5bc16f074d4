"""Agents that misbehave on purpose; loaded by agent processes, from `tests` as their directory."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

from genagent_protocol.events import Event, Response
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import RequestRef
from genagentd import Agent, NoReply, Started

#: The directory from which an agent process can import this module.
HERE = Path(__file__).parents[1]


def _without(options: FrozenDict, name: str) -> dict[str, object]:
    return {key: value for key, value in options.items() if key != name}


class Quiet(Agent[None]):
    """Decides nothing."""

    def handle_response(self, ref: RequestRef, response: Response, state: None) -> NoReply[None]:
        return NoReply(state)


class RaisesInInit(Quiet):
    def init_agent(self, options: FrozenDict) -> Started[None]:
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


class SlowToEnd(Quiet):
    """Blocks its coordinator at its end for the option `seconds` of its start."""

    def init_agent(self, options: FrozenDict) -> Started[None]:
        self.seconds = float(str(options["seconds"]))
        return Started(_without(options, "seconds"), None)

    def terminate_agent(self, reason: ExitReason, state: None) -> None:
        time.sleep(self.seconds)


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
