"""Conversations with the supervision machine, as text: what was told, and every order below it.

    start a as s1 by 1 restart=permanent
        report agent.starting a 1
        arm start 1 in 60000 ms
        launch 1
    born 1

A line that begins in the first column is told; `play` writes the orders under it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never, cast, get_args

from genagent_protocol.plain import printable
from genagent_protocol.reasons import ExitReason, StartError
from genagent_protocol.refs import AgentHandle, Incarnation, MonitorRef, RequestRef
from genagent_protocol.supervision import rules
from genagent_protocol.supervision.effects import (
    Answer,
    Answered,
    ArmDeadline,
    AskToStop,
    DisarmDeadline,
    Dispose,
    Done,
    DrainNow,
    Effect,
    Emit,
    Finished,
    GiveUpLaunch,
    GroupRunning,
    Kill,
    Launch,
    NotStarted,
    Refused,
    RefuseTurns,
    ReportUnresolved,
    SendDown,
    Started,
    Stopped,
    Sweep,
    WarnOfUnknown,
)
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
from genagent_protocol.supervision.table import empty
from genagent_protocol.supervision.terms import RestartKind, RestartPolicy
from support.supervision_phases import key_of, terms
from support.supervision_world import BOOT, PLACE, accepted, captured, life


@dataclass(frozen=True, slots=True)
class Line:
    """One told line: a verb, what stands behind it, and the words with a name."""

    verb: str
    plain: tuple[str, ...]
    named: dict[str, str]

    def word(self, index: int = 0) -> str:
        """Return a plain word."""
        return self.plain[index]

    def incarnation(self) -> Incarnation:
        """Return the incarnation that the first plain word numbers."""
        return life(int(self.word()))

    def refs(self, first: int) -> tuple[RequestRef, ...]:
        """Return the requests that the plain words from *first* on name."""
        return tuple(accepted(word, self.incarnation().number) for word in self.plain[first:])

    def number(self, name: str, default: int = 0) -> int:
        """Return the number under *name*."""
        return int(self.named.get(name, default))

    def group(self) -> int | None:
        """Return the group, or None for the global one."""
        return int(self.named["group"]) if "group" in self.named else None

    def error(self) -> StartError:
        """Return a start error of the kind in the second plain word."""
        kind = self.word(1)
        return StartError(kind=kind, message="as the conversation says")  # type: ignore[arg-type]


def parse(text: str) -> Line:
    """Return the line that *text* spells; `as X` and `by N` are named words too."""
    verb, *words = text.split()
    plain: list[str] = []
    named: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word in ("as", "by"):
            named[word] = words.pop(0)
        elif "=" in word:
            name, _, value = word.partition("=")
            named[name] = value
        else:
            plain.append(word)
    return Line(verb, tuple(plain), named)


def _start(line: Line) -> Input:
    kind = line.named.get("restart", "temporary")
    assert kind in get_args(RestartKind)
    policy = RestartPolicy(kind=cast(RestartKind, kind), max_restarts=line.number("max", 5))
    asked = terms(line.word(), group=line.group(), restart=policy)
    return StartRequested(call=line.named["as"], client=line.number("by"), terms=asked)


def _exit(line: Line) -> Input:
    code = int(line.named["status"])
    return ProcessExited(
        incarnation=line.incarnation(), status=Exited(code), now_ms=line.number("now")
    )


def _die(line: Line) -> Input:
    signal = int(line.named["signal"])
    return ProcessExited(
        incarnation=line.incarnation(), status=Signalled(signal), now_ms=line.number("now")
    )


def _pass(line: Line) -> Input:
    kind = cast(TimerKind, line.word())
    assert kind in get_args(TimerKind)
    return DeadlinePassed(Timer(kind, life(int(line.word(1))) if len(line.plain) > 1 else None))


def _monitor(line: Line) -> Input:
    return MonitorRequested(
        call=line.named.get("as"),
        client=line.number("by"),
        monitor=MonitorRef(int(line.named["ref"])),
        handle=captured(int(line.word()), line.named["name"]),
    )


def _demonitor(line: Line) -> Input:
    ref = MonitorRef(int(line.named["ref"]))
    return DemonitorRequested(call=line.named.get("as"), client=line.number("by"), monitor=ref)


def _stop(line: Line) -> Input:
    return StopRequested(
        call=line.named.get("as"),
        client=line.number("by"),
        key=key_of(line.word()),
        group=line.group(),
    )


def _born(line: Line) -> Input:
    who = line.incarnation()
    return ProcessBorn(incarnation=who, pid=100 + who.number, started_ticks=who.number)


VERBS: dict[str, Callable[[Line], Input]] = {
    "start": _start,
    "stop": _stop,
    "monitor": _monitor,
    "demonitor": _demonitor,
    "open": lambda line: GroupOpenRequested(call=line.named.get("as"), client=line.number("by")),
    "close": lambda line: GroupCloseRequested(
        call=line.named.get("as"), client=line.number("by"), group=int(line.word())
    ),
    "gone": lambda line: ClientGone(int(line.word())),
    "born": _born,
    "unborn": lambda line: LaunchFailed(
        incarnation=line.incarnation(), error=line.error(), now_ms=line.number("now")
    ),
    "exits": _exit,
    "dies": _die,
    "drained": lambda line: ChannelDrained(
        incarnation=line.incarnation(), held="held" in line.plain
    ),
    "ready": lambda line: AgentReady(line.incarnation()),
    "refuses": lambda line: AgentRefused(line.incarnation(), line.error()),
    "leaves": lambda line: LeavingSaid(line.incarnation(), line.refs(1)),
    "says": lambda line: ExitSaid(line.incarnation(), ExitReason(line.word(1)), line.refs(2)),
    "abuses": lambda line: AbuseSeen(line.incarnation(), line.word(1)),
    "unheard": lambda line: ChannelFailed(line.incarnation(), line.error()),
    "missed": lambda line: ChannelMissed(line.incarnation(), line.error()),
    "passes": _pass,
    "shutdown": lambda line: ShutdownRequested(
        grace_ms=line.number("grace"), forced="forced" in line.plain
    ),
}


def play(lines: Iterable[str]) -> str:
    """Return the conversation with every told line followed by the orders it leads to."""
    table = empty(BOOT, PLACE)
    written: list[str] = []
    for text in lines:
        if text.startswith(" "):
            continue
        written.append(text.rstrip())
        if not text.strip() or text.startswith("#"):
            continue
        line = parse(text)
        advanced = rules.advance(table, VERBS[line.verb](line))
        table = advanced.table
        written += ["    " + order(effect) for effect in advanced.effects]
    return "\n".join(written).rstrip() + "\n"


def order(effect: Effect) -> str:
    """Return an order as people read it."""
    match effect:
        case Answer(call, answer):
            return f"answer {call}: {_answer(answer)}"
        case SendDown():
            watch = f"monitor {effect.monitor.number} of client {effect.client}"
            return f"down to {watch}: {_handle(effect.handle)} {effect.reason}"
        case Launch(who, _, previous):
            return f"launch {who.number}" + (f" after {previous.number}" if previous else "")
        case AskToStop(who, reason, drain):
            return f"ask {who.number} to {'drain' if drain else 'stop'} ({reason})"
        case RefuseTurns(who):
            return f"tell {who.number} to refuse turns"
        case Kill(who):
            return f"kill {who.number}"
        case GiveUpLaunch(who):
            return f"give up the launch of {who.number}"
        case Sweep(who):
            return f"sweep after {who.number}"
        case DrainNow(who):
            return f"drain {who.number} now"
        case ReportUnresolved(who, refs):
            return f"report what {who.number} leaves: {' '.join(ref.token for ref in refs)}"
        case WarnOfUnknown(who):
            return f"warn that nobody knows what {who.number} leaves"
        case Dispose(who, _):
            return f"dispose of {who.number}"
        case ArmDeadline(timer, after_ms):
            return f"arm {_timer(timer)} in {after_ms} ms"
        case DisarmDeadline(timer):
            return f"disarm {_timer(timer)}"
        case Emit(event, metadata):
            facts = [f"{k}={_fact(k, v)}" for k, v in metadata.items()]
            return " ".join(("report", event, *facts))
        case Finished():
            return "finished"
        case _:
            assert_never(effect)


def _answer(answer: Answered) -> str:
    match answer:
        case Started(handle):
            return f"started {_handle(handle)}"
        case NotStarted(error, holder):
            return f"not started, {error.kind}" + (f", see {_handle(holder)}" if holder else "")
        case Stopped(reason):
            return f"stopped, {reason}"
        case GroupRunning(group):
            return f"group {group}"
        case Done():
            return "done"
        case Refused(reason):
            return f"refused, {reason}"
        case _:
            assert_never(answer)


def _handle(handle: AgentHandle) -> str:
    return f"{printable(handle.name)}#{handle.incarnation.number} (pid {handle.pid})"


def _timer(timer: Timer) -> str:
    return timer.kind if timer.incarnation is None else f"{timer.kind} {timer.incarnation.number}"


def _fact(name: str, value: object) -> str:
    return str(Incarnation.parse(str(value)).number) if name == "incarnation" else str(value)
