"""The world around the supervision machine, as a value: processes, channels, timers, callers.

It says which inputs an honest shell could report next, and checks every order
against what it knows by itself. It never looks inside the table to judge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from genagent_protocol.reasons import ExitReason, StartError
from genagent_protocol.refs import AgentHandle, BootId, Incarnation, MonitorRef, RequestRef
from genagent_protocol.supervision.effects import (
    Answer,
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
    ExitStatus,
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
)

BOOT = BootId("0123456789abcdef")
PLACE = "host:/run"
REFUSAL = StartError(kind="init_failed", message="init said no")
NO_CHANNEL = StartError(kind="resource_exhausted", message="no descriptor left")
NOT_FOUND = StartError(kind="bad_directory", message="nobody listens there")
NO_PROCESS = StartError(kind="resource_exhausted", message="no process left")
STUCK = ExitReason("turn_stuck")
GRACE = Timer("shutdown")
LAST_WORDS = Timer("last_words")


def life(number: int) -> Incarnation:
    """Return the incarnation of that number in the boot all tests use."""
    return Incarnation(BOOT, number)


def captured(number: int, name: str = "a") -> AgentHandle:
    """Return the handle of an incarnation as this world's processes are born."""
    return AgentHandle(
        name=name, incarnation=life(number), pid=100 + number, started_ticks=number, place=PLACE
    )


def accepted(token: str, number: int = 1) -> RequestRef:
    """Return the ref of a request to that incarnation."""
    return RequestRef(life(number), token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What the kernel and the channel know about one launch."""

    key: bytes
    group: int | None
    starter: object
    born: bool = False
    ready: bool = False
    spoke: frozenset[str] = frozenset()
    killed: bool = False
    given_up: bool = False
    #: It was not found, and lived on for longer than news of an exit takes.
    lost: bool = False
    asked: frozenset[str] = frozenset()
    leaves: tuple[RequestRef, ...] | None = None
    accounted: bool = False
    status: ExitStatus | None = None
    drained: bool = False
    drain_ordered: bool = False
    over: bool = False

    @property
    def alive(self) -> bool:
        """Whether the kernel has it."""
        return self.born and self.status is None

    @property
    def speaking(self) -> bool:
        """Whether its channel is still being read."""
        return self.born and not self.drained and not self.over


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside the table. `tickets` are the requests still to be made, each once."""

    tickets: frozenset[Input]
    processes: tuple[Process, ...] = ()
    armed: frozenset[Timer] = frozenset()
    ever_armed: frozenset[Timer] = frozenset()
    waiting: frozenset[object] = frozenset()
    watches: frozenset[tuple[int, MonitorRef, Incarnation]] = frozenset()
    groups: frozenset[int] = frozenset()
    shutdowns: int = 0
    finished: bool = False

    def process(self, incarnation: Incarnation) -> Process:
        """Return the process of a launched incarnation."""
        return self.processes[incarnation.number - 1]

    def update(self, incarnation: Incarnation, process: Process) -> World:
        """Return the world with that process changed."""
        index = incarnation.number - 1
        return replace(
            self,
            processes=(*self.processes[:index], process, *self.processes[index + 1 :]),
        )


STATUSES: tuple[ExitStatus, ...] = (Exited(0), Exited(70), Signalled(9))


def possible(world: World, *, words: bool = True, now_ms: int = 0) -> list[Input]:
    """Return every input an honest shell could report next.

    Without *words* the agents say nothing but Ready, which keeps a closure small.
    """
    found: list[Input] = sorted(world.tickets, key=repr)
    found += [DeadlinePassed(timer) for timer in sorted(world.armed, key=repr)]
    for number, process in enumerate(world.processes, 1):
        if not process.over:
            found += _facts(life(number), process, words=words, now_ms=now_ms)
    return found


def _facts(who: Incarnation, process: Process, *, words: bool, now_ms: int) -> list[Input]:
    if not process.born:
        return [
            ProcessBorn(incarnation=who, pid=100 + who.number, started_ticks=who.number),
            LaunchFailed(incarnation=who, error=NO_PROCESS, now_ms=now_ms),
        ]
    found: list[Input] = []
    if process.alive:
        statuses = (Signalled(9),) if process.killed and not words else STATUSES
        found += [ProcessExited(incarnation=who, status=s, now_ms=now_ms) for s in statuses]
    if process.speaking:
        found.append(ChannelDrained(incarnation=who, held=process.drain_ordered))
        found += _words(who, process, words=words)
    return found


def _words(who: Incarnation, process: Process, *, words: bool) -> list[Input]:
    found: list[Input] = []
    if "ready" not in process.spoke:
        found.append(AgentReady(who))
    if not words:
        return found
    if "refused" not in process.spoke:
        found.append(AgentRefused(who, REFUSAL))
    if "said" not in process.spoke:
        found.append(ExitSaid(who, STUCK, (accepted("late", who.number),)))
    if "leaving" not in process.spoke:
        found.append(LeavingSaid(who, (accepted("early", who.number),)))
    if "abuse" not in process.spoke:
        found.append(AbuseSeen(who, "flood"))
    if not process.spoke:
        found += [ChannelFailed(who, NO_CHANNEL), ChannelMissed(who, NOT_FOUND)]
    return found


def happen(world: World, fact: Input) -> World:
    """Return the world in which *fact* has happened, before the table heard of it."""
    if fact in world.tickets:
        world = replace(world, tickets=world.tickets - {fact})
    match fact:
        case ProcessBorn(incarnation=who):
            return _change(world, who, born=True)
        case LaunchFailed(incarnation=who):
            return _change(world, who, drained=True)
        case ProcessExited(incarnation=who, status=status):
            return _change(world, who, status=status)
        case ChannelDrained(incarnation=who):
            return _change(world, who, drained=True)
        case AgentReady(who):
            return _speak(world, who, "ready")
        case AgentRefused(who, _):
            return _speak(world, who, "refused")
        case LeavingSaid(who, refs):
            return _leave(_speak(world, who, "leaving"), who, refs)
        case ExitSaid(who, _, refs):
            return _leave(_speak(world, who, "said"), who, refs)
        case AbuseSeen(who, _):
            return _speak(world, who, "abuse")
        case ChannelFailed(who, _) | ChannelMissed(who, _):
            return _speak(world, who, "ready", "refused", "leaving", "said", "abuse")
        case DeadlinePassed(timer):
            world = replace(world, armed=world.armed - {timer})
            if timer.kind != "missed" or timer.incarnation is None:
                return world
            return world.update(timer.incarnation, replace(_missed(world, timer), lost=True))
        case MonitorRequested(call=call, client=client, monitor=ref, handle=handle):
            watch = (client, ref, handle.incarnation)
            return replace(_wait(world, call), watches=world.watches | {watch})
        case DemonitorRequested(call=call, client=client, monitor=ref):
            return _unwatch(_wait(world, call), client, ref)
        case ClientGone(client):
            return _unwatch(world, client, None)
        case StartRequested() | StopRequested() | GroupOpenRequested() | GroupCloseRequested():
            return _wait(world, fact.call)
        case ShutdownRequested(forced=forced):
            return replace(world, shutdowns=world.shutdowns + (forced or not world.shutdowns))
        case _:
            assert_never(fact)


def _missed(world: World, timer: Timer) -> Process:
    assert timer.incarnation is not None
    process = world.process(timer.incarnation)
    assert process.alive, "one that is known to have exited is waited for"
    return process


def _change(
    world: World,
    who: Incarnation,
    *,
    born: bool = False,
    drained: bool = False,
    status: ExitStatus | None = None,
) -> World:
    process = world.process(who)
    changed = replace(
        process,
        born=process.born or born,
        drained=process.drained or drained,
        status=status if status is not None else process.status,
    )
    return world.update(who, changed)


def _speak(world: World, who: Incarnation, *words: str) -> World:
    process = world.process(who)
    return world.update(who, replace(process, spoke=process.spoke | set(words)))


def _leave(world: World, who: Incarnation, refs: tuple[RequestRef, ...]) -> World:
    return world.update(who, replace(world.process(who), leaves=refs))


def _wait(world: World, call: object) -> World:
    assert call not in world.waiting
    return world if call is None else replace(world, waiting=world.waiting | {call})


def _unwatch(world: World, client: int, ref: MonitorRef | None) -> World:
    kept = {w for w in world.watches if not (w[0] == client and (ref is None or w[1] == ref))}
    return replace(world, watches=frozenset(kept))


def perform(world: World, fact: Input, effects: tuple[Effect, ...]) -> World:
    """Return the world after the shell performed *effects*, each checked as it is given.

    Raises:
        AssertionError: an order that must not be given here, or one that is missing.
    """
    if GRACE in world.ever_armed and isinstance(fact, ShutdownRequested) and not fact.forced:
        assert effects == (), "the daemon is asked to end once"
        return world
    for index, effect in enumerate(effects):
        assert not isinstance(effect, Finished) or index == len(effects) - 1, "Finished is last"
        world = _perform(world, fact, effect)
    _check_launches(world)
    _check_shutdown(world, fact)
    return world


def _check_launches(world: World) -> None:
    """No birth that nobody wants any more is waited for."""
    for number, process in enumerate(world.processes, 1):
        if not process.born and not process.over:
            wanted = Timer("start", life(number)) in world.armed and not world.shutdowns
            assert wanted != process.given_up, f"launch {number} is given up too early, or not"


def _check_shutdown(world: World, fact: Input) -> None:
    """Nobody that can hear us is left out when the daemon ends, nor asked too early or too late."""
    if not world.shutdowns or world.finished:
        return
    first = world.shutdowns == 1
    heard = [p for p in world.processes if p.ready and p.alive and p.speaking and not p.killed]
    match fact:
        case ShutdownRequested(forced=forced) if first:
            wishes = {"stop"} if forced else {"drain", "stop"}
            assert all(p.asked & wishes for p in heard), "an agent that was not asked to end"
            assert (LAST_WORDS in world.armed) != forced, "last words are due once, in a drain"
        case DeadlinePassed(timer) if timer == LAST_WORDS:
            assert all("stop" in p.asked for p in heard), "last words of an agent that still drains"
        case DeadlinePassed(Timer("shutdown")) | ShutdownRequested(forced=True):
            assert all(p.killed for p in world.processes if p.alive), "a survivor of the grace"
    daemons = {timer for timer in world.armed if timer.incarnation is None}
    killing = not first or GRACE in world.ever_armed - world.armed
    assert killing == (not daemons), "the grace is armed until it does not matter any more"


def _perform(world: World, fact: Input, effect: Effect) -> World:
    match effect:
        case Launch():
            return _launch(world, fact, effect)
        case Answer():
            return _answer(world, effect)
        case SendDown():
            return _down(world, effect)
        case ArmDeadline(timer, after_ms):
            assert timer not in world.ever_armed, f"{timer} is armed twice"
            assert after_ms >= 0
            return replace(
                world, armed=world.armed | {timer}, ever_armed=world.ever_armed | {timer}
            )
        case DisarmDeadline(timer):
            assert timer in world.armed, f"{timer} was not armed"
            return replace(world, armed=world.armed - {timer})
        case Finished():
            assert not world.finished, "Finished twice"
            assert all(p.over for p in world.processes), "Finished with a process left"
            assert not world.armed, "Finished with a deadline armed"
            return replace(world, finished=True)
        case Emit():
            return _report(world, effect)
        case ReportUnresolved() | WarnOfUnknown():
            return _account(world, effect)
        case _:
            return _order(world, effect)


def _order(
    world: World,
    effect: Kill | GiveUpLaunch | Sweep | AskToStop | RefuseTurns | DrainNow | Dispose,
) -> World:
    who = effect.incarnation
    process = world.process(who)
    assert not process.over, f"{effect} after its Dispose"
    match effect:
        case Kill():
            assert process.alive, "killed what does not live"
            assert not process.killed, "killed twice"
            return world.update(who, replace(process, killed=True))
        case GiveUpLaunch():
            assert not process.born, "gave up what is born"
            assert not process.given_up, "given up twice"
            return world.update(who, replace(process, given_up=True))
        case Sweep():
            assert process.status is not None, "swept a living process"
            return world
        case AskToStop():
            wish = "drain" if effect.drain else "stop"
            assert process.alive, "asked the dead"
            assert process.speaking, "asked over a closed channel"
            assert wish not in process.asked, "asked twice"
            assert "stop" not in process.asked, "asked to drain after a stop"
            return world.update(who, replace(process, asked=process.asked | {wish}))
        case RefuseTurns():
            assert process.alive
            assert process.speaking
            return world
        case DrainNow():
            assert process.status is not None, "drained a living process by force"
            assert not process.drained
            return world.update(who, replace(process, drain_ordered=True))
        case Dispose():
            assert process.drained, "disposed of an unread channel"
            assert process.status is not None or not process.born, "disposed of a living process"
            left = [w for w in world.watches if w[2] == who]
            assert not left, f"disposed before the DOWN of {left}"
            assert not [t for t in world.armed if t.incarnation == who]
            assert process.accounted == (_due(world, process) is not None), (
                "requests that nobody named"
            )
            return world.update(who, replace(process, over=True))
        case _:
            assert_never(effect)


def _due(world: World, process: Process) -> type[ReportUnresolved | WarnOfUnknown] | None:
    """Return what has to be written down about its requests, once, before it is disposed of."""
    if process.leaves is None:
        ended_with_us = world.shutdowns and process.ready and process.killed
        return WarnOfUnknown if process.asked or ended_with_us else None
    return ReportUnresolved if process.leaves else None


def _account(world: World, effect: ReportUnresolved | WarnOfUnknown) -> World:
    process = world.process(effect.incarnation)
    assert process.drained, "accounted for before its last word was heard"
    assert process.status is not None, "accounted for while it may still answer"
    assert _due(world, process) is type(effect), f"{effect} of {process}"
    assert not isinstance(effect, ReportUnresolved) or effect.refs == process.leaves
    assert not process.accounted, "told twice"
    return world.update(effect.incarnation, replace(process, accounted=True))


def _report(world: World, effect: Emit) -> World:
    if effect.event != "agent.started":
        return world
    who = Incarnation.parse(str(effect.metadata["incarnation"]))
    process = world.process(who)
    assert "ready" in process.spoke, "started without Ready"
    assert not process.drained
    return world.update(who, replace(process, ready=True))


def _launch(world: World, fact: Input, effect: Launch) -> World:
    assert not world.finished
    assert effect.incarnation.number == len(world.processes) + 1, "numbers only grow, by one"
    key = effect.terms.key
    rivals = [p for p in world.processes if p.key == key and not p.over]
    assert not rivals, f"two processes under the name {key!r}"
    starter = fact.call if isinstance(fact, StartRequested) else None
    process = Process(key=key, group=effect.terms.group, starter=starter)
    return replace(world, processes=(*world.processes, process))


def _down(world: World, effect: SendDown) -> World:
    who = effect.handle.incarnation
    watch = (effect.client, effect.monitor, who)
    assert watch in world.watches, f"a DOWN that nobody waits for: {effect}"
    if who.boot == BOOT and who.number <= len(world.processes):
        process = world.process(who)
        assert process.drained, "DOWN overtook the channel"
        assert process.status is not None or not process.born, "DOWN of a living process"
        if process.over or not process.born:
            assert effect.reason.text == "noproc"
    else:
        assert effect.reason.text == "noproc"
    return replace(world, watches=world.watches - {watch})


def _answer(world: World, effect: Answer) -> World:
    call = effect.call
    assert call in world.waiting, f"answered twice, or nobody asked: {effect}"
    launched = [p for p in world.processes if p.starter == call]
    match effect.answer:
        case Started(handle):
            assert world.process(handle.incarnation).starter == call
            assert world.process(handle.incarnation).ready
            assert not world.process(handle.incarnation).over
        case NotStarted(error):
            assert all(p.over for p in launched), "a failed start left a process"
            assert (error == NOT_FOUND) == any(p.lost for p in launched), "exit or place, not both"
        case Stopped() | GroupRunning() | Done() | Refused():
            assert not launched, "that call was a start"
        case _:
            assert_never(effect.answer)
    return replace(world, waiting=world.waiting - {call})
