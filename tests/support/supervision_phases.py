"""One agent in every phase it can be in, and one input of every kind to give it.

The phases are reached by facts alone, so each is a table that can really occur.
"""

from __future__ import annotations

from genagent_protocol.plain import Plain
from genagent_protocol.refs import MonitorRef
from genagent_protocol.supervision import rules
from genagent_protocol.supervision.inputs import (
    AbuseSeen,
    AgentReady,
    AgentRefused,
    ChannelDrained,
    ChannelFailed,
    ChannelMissed,
    ClientGone,
    DeadlinePassed,
    DemonitorRequested,
    Exited,
    ExitSaid,
    GroupCloseRequested,
    GroupOpenRequested,
    Input,
    LaunchFailed,
    LeavingSaid,
    MonitorRequested,
    ProcessBorn,
    ProcessExited,
    ShutdownRequested,
    Signalled,
    StartRequested,
    StopRequested,
    Timer,
    TimerKind,
)
from genagent_protocol.supervision.table import Table, empty
from genagent_protocol.supervision.terms import TEMPORARY, RestartPolicy, Terms
from support.supervision_world import (
    BOOT,
    NO_CHANNEL,
    NO_PROCESS,
    NOT_FOUND,
    PLACE,
    REFUSAL,
    STUCK,
    accepted,
    captured,
    life,
)

ONCE = RestartPolicy(kind="permanent", max_restarts=1)
NEVER = RestartPolicy(kind="permanent", max_restarts=0)


def terms(
    name: Plain = "a",
    *,
    group: int | None = None,
    restart: RestartPolicy = TEMPORARY,
    shutdown_ms: int | None = 5_000,
) -> Terms:
    """Return the terms of an agent whose key is made of its name in a simple way."""
    key = repr(name).encode()
    return Terms(
        name=name, key=key, spec="echo", group=group, restart=restart, shutdown_ms=shutdown_ms
    )


def key_of(name: Plain) -> bytes:
    """Return the key under which `terms` puts *name*."""
    return terms(name).key


def start(call: str = "start", client: int = 1, **more: object) -> StartRequested:
    """Return a start by *client*; *more* goes to `terms`."""
    return StartRequested(call=call, client=client, terms=terms(**more))  # type: ignore[arg-type]


def stop(
    call: str = "stop", client: int = 1, name: Plain = "a", group: int | None = None
) -> StopRequested:
    """Return a stop by *client*."""
    return StopRequested(call=call, client=client, key=key_of(name), group=group)


def born(number: int = 1) -> ProcessBorn:
    """Return the birth of that incarnation, as `captured` sees it."""
    return ProcessBorn(incarnation=life(number), pid=100 + number, started_ticks=number)


def exits(code: int = 0, number: int = 1, now_ms: int = 0) -> ProcessExited:
    """Return the exit of that incarnation by itself."""
    return ProcessExited(incarnation=life(number), status=Exited(code), now_ms=now_ms)


def dies(signal: int = 9, number: int = 1, now_ms: int = 0) -> ProcessExited:
    """Return the end of that incarnation by a signal."""
    return ProcessExited(incarnation=life(number), status=Signalled(signal), now_ms=now_ms)


def drained(number: int = 1, *, held: bool = False) -> ChannelDrained:
    """Return the end of that incarnation's channel."""
    return ChannelDrained(incarnation=life(number), held=held)


def passes(kind: TimerKind, number: int | None = 1) -> DeadlinePassed:
    """Return the passing of a deadline."""
    return DeadlinePassed(Timer(kind, None if number is None else life(number)))


def monitor(
    ref: int = 1, client: int = 1, call: str | None = "monitor", number: int = 1
) -> MonitorRequested:
    """Return the wish to watch that incarnation."""
    return MonitorRequested(
        call=call, client=client, monitor=MonitorRef(ref), handle=captured(number)
    )


def demonitor(ref: int = 1, client: int = 1, call: str = "demonitor") -> DemonitorRequested:
    """Return the wish to watch no more."""
    return DemonitorRequested(call=call, client=client, monitor=MonitorRef(ref))


def run(*facts: Input, table: Table | None = None) -> Table:
    """Return the table after *facts*."""
    table = empty(BOOT, PLACE) if table is None else table
    for fact in facts:
        table = rules.advance(table, fact).table
    return table


LAUNCHED: tuple[Input, ...] = (start(restart=ONCE),)
STARTING = (*LAUNCHED, born())
RUNNING = (*STARTING, AgentReady(life(1)))

#: How to get into each phase.
PHASES: dict[str, tuple[Input, ...]] = {
    "nobody": (),
    "launched": LAUNCHED,
    "starting": STARTING,
    "missed": (*STARTING, ChannelMissed(life(1), NOT_FOUND)),
    "refused": (*STARTING, AgentRefused(life(1), REFUSAL)),
    "running": RUNNING,
    "asked": (*RUNNING, stop("earlier")),
    "killed": (*RUNNING, stop("earlier"), passes("stop")),
    "doomed": (*LAUNCHED, stop("earlier")),
    "unreachable": (*RUNNING, drained()),
    "exited": (*RUNNING, exits()),
    "restarting": (*RUNNING, exits(), drained()),
    "failed": (start(restart=NEVER), born(), AgentReady(life(1)), exits(), drained()),
    "draining": (*RUNNING, ShutdownRequested(grace_ms=9)),
    "stopping": (*RUNNING, ShutdownRequested(grace_ms=9), passes("last_words", None)),
    "forced": (*RUNNING, ShutdownRequested(grace_ms=9), ShutdownRequested(grace_ms=9, forced=True)),
}

#: One input of every kind, and of a kind with cases, one of each.
GIVEN: dict[str, Input] = {
    "start": start("again"),
    "start in a group": start("again", name="b", group=1),
    "stop": stop(),
    "stop in a group": stop(group=1),
    "monitor": monitor(),
    "demonitor": demonitor(),
    "open": GroupOpenRequested(call="open", client=1),
    "close": GroupCloseRequested(call="close", client=1, group=1),
    "client gone": ClientGone(1),
    "born": born(),
    "launch failed": LaunchFailed(incarnation=life(1), error=NO_PROCESS, now_ms=0),
    "exited": exits(),
    "channel failed": ChannelFailed(life(1), NO_CHANNEL),
    "channel missed": ChannelMissed(life(1), NOT_FOUND),
    "drained": drained(),
    "held": drained(held=True),
    "ready": AgentReady(life(1)),
    "refused": AgentRefused(life(1), REFUSAL),
    "leaving": LeavingSaid(life(1), (accepted("r"),)),
    "said": ExitSaid(life(1), STUCK),
    "abuse": AbuseSeen(life(1), "flood"),
    "start deadline": passes("start"),
    "missed deadline": passes("missed"),
    "stop deadline": passes("stop"),
    "leave deadline": passes("leave"),
    "drain deadline": passes("drain"),
    "restart deadline": passes("restart"),
    "last words due": passes("last_words", None),
    "grace over": passes("shutdown", None),
    "shutdown": ShutdownRequested(grace_ms=9),
    "forced shutdown": ShutdownRequested(grace_ms=9, forced=True),
}
