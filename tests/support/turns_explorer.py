"""Breadth first over everything that can happen to a small agent, with the shortest failure.

A universe says what there is: which prompts arrive, how many events, how often user
code produces a prompt, how many turns there may be, which calls are made. Every
order of that is walked; the laws judge each edge. From every few spots the rest is
also played out kindly: whatever was accepted must get its outcome, and the agent
must come to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from genagent_protocol.bounds import Limits
from genagent_protocol.reasons import SHUTDOWN
from genagent_protocol.turns import decisions as decide
from genagent_protocol.turns import inputs as heard
from genagent_protocol.turns import rules
from genagent_protocol.turns import state as at
from genagent_protocol.turns.notation import write
from support.turns_laws import Fate, LawBroken, Ledger, law, observe
from support.turns_values import ALL, FIRST_GENERATED, done, failed, label, ref

Control = Literal[
    "cancel", "interrupt", "interrupt_request", "halt", "drain", "stop", "caller_down", "refuse"
]
Prompted = heard.PromptSubmitted | heard.TellReceived | heard.AskReceived

#: More inputs than any kind ending of a small agent takes.
KIND_INPUTS = 200
#: A prompt that fits the small agents below, and one that is too large for their slot.
SMALL, LARGE = "s", "large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Universe:
    """What there is to happen."""

    name: str
    limits: Limits
    arrivals: tuple[Prompted, ...]
    events: int = 0
    generated: int = 0
    turns: int = 2
    controls: frozenset[Control] = frozenset()
    gate_refuses: bool = False
    large_prompts: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What has not happened yet."""

    arrivals: int
    events: int
    generated: int


@dataclass(frozen=True, slots=True)
class Spot:
    """The agent, what was promised and kept so far, and what is still to come."""

    agent: at.Agent
    ledger: Ledger
    left: Left


@dataclass(frozen=True, slots=True)
class Closure:
    """How much was walked."""

    spots: int
    edges: int


class Broken(AssertionError):
    """A law does not hold; `trace` is the shortest way there."""

    def __init__(self, problem: str, trace: list[str]) -> None:
        self.trace = trace
        super().__init__("\n".join([problem, *trace]))


def opening(universe: Universe) -> Spot:
    """Return the agent of *universe* before its `pre_run`."""
    agent = rules.begin(universe.limits, ALL).agent
    left = Left(len(universe.arrivals), universe.events, universe.generated)
    return Spot(agent, Ledger(), left)


def step(spot: Spot, given: heard.Input) -> Spot:
    """Return what follows from one input, judged by the laws."""
    advanced = rules.advance(spot.agent, given)
    ledger = observe(spot.ledger, spot.agent, given, advanced)
    return Spot(advanced.agent, ledger, _less(spot.left, given))


def _less(left: Left, given: heard.Input) -> Left:
    match given:
        case heard.PromptSubmitted() | heard.TellReceived() | heard.AskReceived():
            return replace(left, arrivals=left.arrivals - 1)
        case heard.NotificationReceived():
            return replace(left, events=left.events - 1)
        case heard.CallbackReturned(_, decide.Prompt()):
            return replace(left, generated=left.generated - 1)
    return left


# What can happen


def possible(universe: Universe, spot: Spot) -> Iterator[heard.Input]:
    """Yield every input that an honest shell could report next."""
    match spot.agent.step:
        case at.Exited():
            return
        case at.Starting(turn):
            yield heard.TurnStarted(turn.number)
            if "refuse" in universe.controls:
                yield heard.TurnStartFailed(turn.number)
        case at.Ready() | at.Running() | at.Stopping():
            yield from _from_outside(universe, spot)
            yield from _from_turn(spot)
        case callback_step:
            yield from _answers(universe, spot, callback_step.callback)


def _answers(
    universe: Universe, spot: Spot, callback: decide.CallbackName
) -> Iterator[heard.Input]:
    for decision in _decisions(universe, spot, callback):
        yield heard.CallbackReturned(callback, decision)
    if callback == "handle_response":
        yield heard.CallbackCrashed(callback, "ValueError")
    if callback == "pre_turn" and universe.gate_refuses:
        yield heard.CallbackCrashed(callback, "ValueError")


def _decisions(
    universe: Universe, spot: Spot, callback: decide.CallbackName
) -> Iterator[decide.Decision]:
    match callback:
        case "pre_turn":
            if spot.agent.turns < universe.turns:
                yield decide.Run("x")
            if universe.gate_refuses or spot.agent.turns >= universe.turns:
                yield decide.Skip()
            if universe.gate_refuses:
                yield decide.Halt()
        case "handle_response" | "handle_error" | "handle_event" | "handle_info":
            yield decide.NoReply()
            if "halt" in universe.controls:
                yield decide.Halt()
            if spot.left.generated:
                fresh = ref(FIRST_GENERATED + spot.left.generated)
                yield decide.Prompt(SMALL, fresh)
                if universe.large_prompts:
                    yield decide.Prompt(LARGE, fresh)
        case _:
            yield decide.Done()


def _from_outside(universe: Universe, spot: Spot) -> Iterator[heard.Input]:
    left, controls = spot.left, universe.controls
    if left.arrivals:
        yield universe.arrivals[-left.arrivals]
    if left.events:
        yield heard.NotificationReceived("e", f"n{left.events}")
    if "cancel" in controls:
        for arrived in universe.arrivals:
            yield heard.CancelRequested("cancel", arrived.ref)
    if "interrupt" in controls:
        yield heard.InterruptReceived()
    if "interrupt_request" in controls and not _interrupting(spot):
        yield heard.InterruptRequested("interrupt", universe.arrivals[0].ref)
    if "halt" in controls:
        yield heard.HaltRequested()
        yield heard.ResumeRequested()
    if "drain" in controls:
        yield heard.DrainRequested("drain")
    if "stop" in controls:
        yield heard.StopRequested(SHUTDOWN)
    if "caller_down" in controls:
        yield heard.CallerDown("carl")
    if "refuse" in controls:
        yield heard.TurnsRefused()


def _interrupting(spot: Spot) -> bool:
    return any(call == "interrupt" for call, _ in spot.ledger.calls)


def _from_turn(spot: Spot) -> Iterator[heard.Input]:
    alive = spot.ledger.alive
    for name in sorted(spot.ledger.armed):
        turn = None if name == "pace" else alive
        yield heard.DeadlinePassed(name, turn)  # type: ignore[arg-type]  # armed by that name
    if alive is None:
        return
    yield heard.TurnEnded(turn=alive, outcome=done("d"))
    yield heard.TurnEnded(turn=alive, outcome=failed("f"))
    yield heard.TurnStopped(alive)
    yield heard.TurnNotSwept(alive)
    if alive > 1:
        yield heard.TurnEnded(turn=alive - 1, outcome=done("late"))


# The walk

Parents = dict[Spot, tuple[Spot, heard.Input] | None]


def explore(universe: Universe, *, fate_every: int = 7, most_spots: int | None = None) -> Closure:
    """Walk every spot of *universe* and return how many there are.

    With *most_spots* the walk is given up there, breadth first, which is enough to
    find what is near.

    Raises:
        Broken: a law does not hold somewhere.
    """
    start = opening(universe)
    parents: Parents = {start: None}
    queue = deque([start])
    edges = 0
    while queue and (most_spots is None or len(parents) < most_spots):
        spot = queue.popleft()
        for given in possible(universe, spot):
            edges += 1
            following = _checked(parents, spot, given)
            if following not in parents:
                parents[following] = (spot, given)
                queue.append(following)
        if edges % fate_every == 0:
            _check_fate(parents, spot)
    return Closure(len(parents), edges)


def _checked(parents: Parents, spot: Spot, given: heard.Input) -> Spot:
    try:
        return step(spot, given)
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}", trace(parents, spot, given)) from error


def trace(parents: Parents, spot: Spot, last: heard.Input | None = None) -> list[str]:
    """Return the inputs that led to *spot*, and *last*, one per line."""
    names: dict[object, str] = {
        ref(n): label(ref(n)) for n in (*range(9), *range(FIRST_GENERATED, FIRST_GENERATED + 9))
    }
    inputs = [] if last is None else [last]
    here: Spot | None = spot
    while here is not None and (parent := parents[here]) is not None:
        inputs.append(parent[1])
        here = parent[0]
    return [f"> {write(given, names)}" for given in reversed(inputs)]


# The kind ending


def _check_fate(parents: Parents, spot: Spot) -> None:
    if spot.agent.leaving is not None or spot.ledger.exited:
        return
    played: list[heard.Input] = []
    try:
        ended = play_out(spot, played)
        law(ended.ledger.exited, "a drained agent whose turns end never exits")
        for who, fate in ended.ledger.fates:
            law(not _owed(fate), f"{label(who)} was accepted and has no outcome")
        law(not ended.ledger.calls, "a call was never answered")
    except Exception as error:
        names = [f"> {write(given)}" for given in played]
        problem = f"played out kindly: {type(error).__name__}: {error}"
        raise Broken(problem, [*trace(parents, spot), *names]) from error


def _owed(fate: Fate) -> bool:
    return fate.completes and fate.admitted is not False and not fate.over


def play_out(spot: Spot, played: list[heard.Input]) -> Spot:
    """Return what becomes of *spot* if all goes well from here: it resumes, works, and drains."""
    while not spot.ledger.exited:
        given = _kindly(spot.agent)
        played.append(given)
        law(len(played) < KIND_INPUTS, "it never comes to rest")
        spot = step(spot, given)
    return spot


def _kindly(agent: at.Agent) -> heard.Input:
    match agent.step:
        case at.Starting(turn):
            return heard.TurnStarted(turn.number)
        case at.Running(turn) | at.Stopping(turn):
            return heard.TurnEnded(turn=turn.number, outcome=done("d"))
        case at.Ready():
            if agent.halted:
                return heard.ResumeRequested()
            if agent.paced:
                return heard.DeadlinePassed("pace")
            return heard.DrainRequested("kind")
        case at.Exited():
            raise LawBroken("the end has no next")
        case waiting:
            usual = {"pre_turn": decide.Run("x")}
            follows = ("handle_response", "handle_error", "handle_event", "handle_info")
            nothing = decide.NoReply() if waiting.callback in follows else decide.Done()
            return heard.CallbackReturned(waiting.callback, usual.get(waiting.callback, nothing))
