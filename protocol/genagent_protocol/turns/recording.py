"""A run of the machine as lines of text: what it was told, and what it ordered.

    begin Limits(max_pending_prompts=1) Offers()
    < Invoke(PreRun())
    > CallbackReturned('pre_run', Done())
    > PromptSubmitted(ref=ref('…'), prompt='hi', recipient='bob')
    < Invoke(PreTurn('hi'))

One `begin`, then each input (`>`) with its effects (`<`) below it. Because the
machine has no clock, no chance and no user code in it, the inputs alone determine
the effects: `replay` runs them again and tells where a run and its recording part.
A recording holds prompts and events; it is made only where somebody asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard, get_args

from genagent_protocol.bounds import Limits
from genagent_protocol.turns.inputs import (
    FromAbove,
    FromCallback,
    FromCaller,
    FromStart,
    FromTurn,
    Input,
)
from genagent_protocol.turns.notation import Unreadable, read, write
from genagent_protocol.turns.rules import advance, begin
from genagent_protocol.turns.state import Advance, Agent, Offers

_INPUTS: tuple[type, ...] = tuple(
    record
    for group in (FromCaller, FromAbove, FromTurn, FromStart, FromCallback)
    for record in get_args(group)
)


@dataclass(frozen=True, slots=True)
class Names:
    """Short names that stand for refs and records in a recording that people read."""

    values: Mapping[str, object] = field(default_factory=dict)

    def writing(self) -> Mapping[object, str]:
        """Return what each value is called."""
        return {value: name for name, value in self.values.items()}


NO_NAMES = Names()


def opening_lines(limits: Limits, offers: Offers, names: Names = NO_NAMES) -> list[str]:
    """Return the first lines of a recording: how the agent was made, and its first orders."""
    head = f"begin {write(limits)} {write(offers)}"
    return [head, *_effect_lines(begin(limits, offers), names)]


def step_lines(given: Input, advanced: Advance, names: Names = NO_NAMES) -> list[str]:
    """Return the lines of one input and the effects it had."""
    return [f"> {write(given, names.writing())}", *_effect_lines(advanced, names)]


def _effect_lines(advanced: Advance, names: Names) -> list[str]:
    called = names.writing()
    return [f"< {write(effect, called)}" for effect in advanced.effects]


class Recorder:
    """The machine, keeping a recording of what goes in and out of it.

    A shell that is given these two instead of the module's own is recorded.
    """

    def __init__(self, names: Names = NO_NAMES) -> None:
        self.lines: list[str] = []
        self._names = names

    def begin(self, limits: Limits, offers: Offers) -> Advance:
        """Return what `rules.begin` returns."""
        self.lines += opening_lines(limits, offers, self._names)
        return begin(limits, offers)

    def advance(self, agent: Agent, given: Input) -> Advance:
        """Return what `rules.advance` returns.

        Raises:
            InvalidTransition: what it raises; nothing is recorded then.
        """
        advanced = advance(agent, given)
        self.lines += step_lines(given, advanced, self._names)
        return advanced


def replay(lines: Iterable[str], names: Names = NO_NAMES) -> Iterator[str]:
    """Yield the recording that the recorded inputs make now, comments and blanks kept.

    A recording of this version equals its replay, line for line.

    Raises:
        Unreadable: a line is no part of a recording.
        InvalidTransition: an input cannot follow those before it.
    """
    agent = None
    for line in lines:
        match line[:2]:
            case "be":
                limits, offers = read_opening(line)
                agent = begin(limits, offers).agent
                yield from opening_lines(limits, offers, names)
            case "> ":
                if agent is None:
                    raise Unreadable(f"{line!r} comes before any `begin`")
                given = read_input(line[2:], names)
                advanced = advance(agent, given)
                agent = advanced.agent
                yield from step_lines(given, advanced, names)
            case "< ":
                continue
            case _:
                yield _remark(line)


def _remark(line: str) -> str:
    if line and not line.startswith("#"):
        raise Unreadable(f"{line!r} is no part of a recording")
    return line


def read_opening(line: str) -> tuple[Limits, Offers]:
    """Return how the agent of a recording was made.

    Raises:
        Unreadable: *line* does not say so.
    """
    head, _, offered = line.removeprefix("begin ").rpartition(" Offers(")
    match read(head), read(f"Offers({offered}"):
        case Limits() as limits, Offers() as offers:
            return limits, offers
    raise Unreadable(f"{line!r} does not begin a recording")


def read_input(text: str, names: Names = NO_NAMES) -> Input:
    """Return the input that *text* spells.

    Raises:
        Unreadable: it spells something else.
    """
    given = read(text, names.values)
    if not _is_input(given):
        raise Unreadable(f"{text!r} is no input")
    return given


def _is_input(given: object) -> TypeGuard[Input]:
    return isinstance(given, _INPUTS)
