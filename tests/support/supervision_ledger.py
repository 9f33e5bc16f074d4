"""A naive second opinion on supervision: what was told, written down, and read again from the top.

It keeps nothing but lists and judges an end by reading a life's lines in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import Incarnation, RequestRef
from genagent_protocol.supervision.effects import AskToStop, Effect, Launch
from genagent_protocol.supervision.inputs import (
    AbuseSeen,
    AgentReady,
    AgentRefused,
    ChannelDrained,
    ChannelFailed,
    DeadlinePassed,
    Exited,
    ExitSaid,
    Input,
    LaunchFailed,
    LeavingSaid,
    ProcessExited,
    Signalled,
)
from genagent_protocol.supervision.terms import Terms

OWN = (
    "pre_run_failed",
    "pre_run_crashed",
    "pre_run_invalid",
    "callback_failed",
    "turn_stuck",
    "protocol_abuse",
    "registry_lost",
)


@dataclass
class Lines:
    """Everything that concerned one incarnation, in the order in which it happened."""

    terms: Terms
    wanted_anew: bool = True
    lines: list[Input | Effect | str] = field(default_factory=list)

    def before_exit(self) -> list[Input | Effect | str]:
        """Return the lines up to the exit."""
        for index, line in enumerate(self.lines):
            if isinstance(line, ProcessExited):
                return self.lines[:index]
        return self.lines

    @property
    def over(self) -> bool:
        """Whether both facts are among the lines, or no process ever was."""
        kinds = {type(line) for line in self.lines}
        return LaunchFailed in kinds or {ProcessExited, ChannelDrained} <= kinds

    @property
    def exited(self) -> bool:
        """Whether its process is known to be gone: nothing can be done to it any more."""
        return any(isinstance(line, ProcessExited) for line in self.lines)

    @property
    def was_ready(self) -> bool:
        """Whether it said Ready before anything had gone wrong."""
        for line, alive in self._lines_and_life():
            if isinstance(line, AgentReady):
                return True
            if isinstance(line, AgentRefused) or (alive and self._doom(line)):
                return False
        return False

    def reason(self) -> ExitReason:
        """Return the reason its DOWN must give."""
        ends = [line for line in self.lines if isinstance(line, ProcessExited)]
        if not ends:
            return ExitReason("noproc")
        before = self.before_exit()
        match ends[0].status:
            case Exited(0):
                asked = any(isinstance(line, AskToStop) for line in before)
                return ExitReason("shutdown" if asked else "normal")
            case Exited(code):
                said = [line.reason for line in self.lines if isinstance(line, ExitSaid)]
                if code == 70 and said and said[-1].text in OWN:
                    return said[-1]
                return ExitReason(f"exit:{code}")
            case Signalled(number):
                first = next((line for line in before if self._doom(line)), None)
                if number == 9 and isinstance(first, AbuseSeen):
                    return ExitReason("protocol_abuse", first.detail)
                return ExitReason(f"signal:{number}")

    def last_words(self) -> tuple[RequestRef, ...] | None:
        """Return the requests it named last, or None if it never did."""
        words = [line for line in self.lines if isinstance(line, LeavingSaid | ExitSaid)]
        return words[-1].unresolved if words else None

    def start_error(self) -> str:
        """Return the kind of error its starter must hear."""
        for line, alive in self._lines_and_life():
            if isinstance(line, AgentRefused | LaunchFailed):
                return line.error.kind
            if alive and self._doom(line):
                return self._doom(line)
        return "exited"

    def _lines_and_life(self) -> Iterator[tuple[Input | Effect | str, bool]]:
        """Yield each line with whether the process could still be there then."""
        alive = True
        for line in self.lines:
            alive = alive and not isinstance(line, ProcessExited)
            yield line, alive

    def _doom(self, line: Input | Effect | str) -> str:
        """Return the error that *line* means for a start it cuts off, or nothing."""
        match line:
            case AbuseSeen():
                return "exited"
            case ChannelFailed(_, error):
                return error.kind
            case DeadlinePassed(timer) if timer.kind == "start":
                return "start_timeout"
            case DeadlinePassed(timer) if timer.kind == "missed":
                return "bad_directory"
            case DeadlinePassed(timer) if timer.kind in ("leave", "stop"):
                return "exited"
            case str():
                return line if line != "stop asked" else ""
            case _:
                return ""


class Ledger:
    """All lives, and for each name when its lives ended."""

    def __init__(self) -> None:
        self.lives: dict[Incarnation, Lines] = {}
        self.ends_ms: dict[bytes, list[int]] = {}
        self.shutting = False

    def launched(self, effect: Launch, *, first: bool) -> None:
        """Note a launch; a *first* one begins a new count of restarts."""
        self.lives[effect.incarnation] = Lines(effect.terms)
        if first:
            self.ends_ms[effect.terms.key] = []

    def heard(self, who: Incarnation, fact: Input) -> None:
        """Note a fact about one life."""
        self.lives[who].lines.append(fact)

    def ordered(self, effect: AskToStop) -> None:
        """Note that an agent was asked to stop."""
        self.lives[effect.incarnation].lines.append(effect)

    def living(self, key: bytes) -> Lines | None:
        """Return the lines of the life that is not over under *key*."""
        return next((x for x in self.lives.values() if x.terms.key == key and not x.over), None)

    def unwanted(self, key: bytes, error: str) -> None:
        """Note that somebody asked for the end of what holds *key*."""
        life = self.living(key)
        if life is None:
            return
        life.wanted_anew = False
        if not life.was_ready and not life.exited:
            life.lines.append(error)

    def shut_down(self, *, killing: bool) -> None:
        """Note that everything is to end, or, *killing*, that it ends now."""
        for life in self.lives.values():
            if life.over:
                continue
            life.wanted_anew = False
            cut_off = not life.was_ready or killing
            if cut_off and not life.exited:
                life.lines.append("shutting_down")

    def wait_ms(self, life: Lines, now_ms: int, *, proven: bool) -> int | str | None:
        """Return how long to wait before its successor, None for none, or `failed`."""
        policy = life.terms.restart
        ended_well = life.was_ready and life.reason().text in ("normal", "shutdown")
        back = policy.kind == "permanent" or (policy.kind == "transient" and not ended_well)
        if not proven or not life.wanted_anew or not back:
            return None
        ends = self.ends_ms[life.terms.key]
        recent = [end for end in ends if end > now_ms - policy.period_ms]
        if len(recent) >= policy.max_restarts:
            return "failed"
        ends.append(now_ms)
        doubled: int = policy.delay_ms * 2 ** len(recent)
        return min(doubled, policy.max_delay_ms)
