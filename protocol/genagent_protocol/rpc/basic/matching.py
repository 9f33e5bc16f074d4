"""Regular expressions, matched: all ways at once, so that no pattern takes exponential time.

A pattern comes from an agent and the text from a person; with backtracking the
two together could hold a renderer for ever. Here the states a match can be in
advance together, one character at a time, and the work is counted: a call whose
matches need too much of it fails, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from genagent_protocol.rpc.basic.patterns import (
    WORD_CHARACTERS,
    Ahead,
    Border,
    Characters,
    Choice,
    Node,
    Repeat,
    Sequence,
    read_pattern,
)
from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.limits import PATTERN_CHARACTER_STEPS, PATTERN_STATE_STEPS

MAX_STATES: Final = 10_000
#: How many steps are done before they are told.
_TOLD_STEPS: Final = 1_000
#: Who counts steps, and raises when they are too many.
Work: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Jump:
    """Go on at every one of these states at once."""

    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    """Go on at the next state if the program matches from here, or if it does not."""

    program: _Program
    negated: bool


@dataclass(frozen=True, slots=True)
class _Match:
    """The pattern has been matched."""


_State: TypeAlias = Characters | Border | _Jump | _Look | _Match
_Program: TypeAlias = "list[_State]"


def found_in(pattern: str, text: str, work: Work) -> bool:
    """Return whether *pattern* matches anywhere in *text*; *work* is told what that takes.

    Raises:
        ExpressionFault: the pattern cannot be read, or *work* says that it is too much.
    """
    node = read_pattern(pattern)
    work(len(pattern) * PATTERN_CHARACTER_STEPS)
    writer = _Writer()
    program = writer.program(node)
    work(writer.steps * PATTERN_STATE_STEPS)
    run = _Run(text, work)
    found = run.search(program, 0, anchored=False)
    run.tell()
    return found


@dataclass(slots=True)
class _Writer:
    """Turns what a pattern says into states, and counts what it has done."""

    steps: int = 0

    def program(self, node: Node) -> _Program:
        states: _Program = []
        self._write(node, states)
        states.append(_Match())
        return states

    def _write(self, node: Node, states: _Program) -> None:
        self.steps += 1
        if self.steps > MAX_STATES:
            raise ExpressionFault(f"The pattern needs more than {MAX_STATES} states.")
        match node:
            case Characters() | Border():
                states.append(node)
            case Ahead():
                states.append(_Look(self.program(node.node), node.negated))
            case Sequence():
                for inner in node.nodes:
                    self._write(inner, states)
            case Choice():
                self._write_choice(node, states)
            case Repeat():
                self._write_repeat(node, states)
            case _:
                assert_never(node)

    def _write_choice(self, node: Choice, states: _Program) -> None:
        fork = len(states)
        states.append(_Jump(()))
        starts: list[int] = []
        ends: list[int] = []
        for option in node.options:
            starts.append(len(states))
            self._write(option, states)
            ends.append(len(states))
            states.append(_Jump(()))
        states[fork] = _Jump(tuple(starts))
        for end in ends:
            states[end] = _Jump((len(states),))

    def _write_repeat(self, node: Repeat, states: _Program) -> None:
        for _ in range(node.least):
            self._write(node.node, states)
        if node.most is None:
            self._write_loop(node.node, states)
        else:
            self._write_options(node.node, node.most - node.least, states)

    def _write_loop(self, node: Node, states: _Program) -> None:
        fork = len(states)
        states.append(_Jump(()))
        self._write(node, states)
        states.append(_Jump((fork,)))
        states[fork] = _Jump((fork + 1, len(states)))

    def _write_options(self, node: Node, count: int, states: _Program) -> None:
        forks: list[int] = []
        for _ in range(count):
            forks.append(len(states))
            states.append(_Jump(()))
            self._write(node, states)
        for fork in forks:
            states[fork] = _Jump((fork + 1, len(states)))


@dataclass(slots=True)
class _Run:
    """One text being matched, and the steps of it that were not told yet."""

    text: str
    work: Work
    steps: int = 0
    _looked: dict[tuple[int, int], bool] = field(default_factory=dict)

    def search(self, program: _Program, start: int, *, anchored: bool) -> bool:
        """Tell whether *program* matches at *start*, or unless *anchored* anywhere after it."""
        entered: list[int] = []
        for place in range(start, len(self.text) + 1):
            if place == start or not anchored:
                entered.append(0)
            ready = self._closure(program, entered, place)
            if ready is None:
                return True
            if not ready and anchored:
                return False
            entered = self._advance(program, ready, place)
        return False

    def _closure(self, program: _Program, entered: Iterable[int], place: int) -> list[int] | None:
        """Return the states that wait for the next character, or None if there is a match."""
        waiting = list(entered)
        seen: set[int] = set()
        ready: list[int] = []
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            self._count()
            match program[number]:
                case _Match():
                    return None
                case Characters():
                    ready.append(number)
                case _Jump(targets):
                    waiting.extend(targets)
                case Border() as border:
                    waiting += [number + 1] * self._at(border, place)
                case _Look() as look:
                    waiting += [number + 1] * (self._ahead(look, place) != look.negated)
        return ready

    def _advance(self, program: _Program, ready: list[int], place: int) -> list[int]:
        if place == len(self.text):
            return []
        entered: list[int] = []
        for number in ready:
            self._count()
            state = program[number]
            if isinstance(state, Characters) and state.admit(self.text[place]):
                entered.append(number + 1)
        return entered

    def _ahead(self, look: _Look, place: int) -> bool:
        key = (id(look), place)
        if key not in self._looked:
            self._looked[key] = self.search(look.program, place, anchored=True)
        return self._looked[key]

    def _at(self, border: Border, place: int) -> bool:
        match border.kind:
            case "start":
                return place == 0
            case "end":
                return place == len(self.text)
            case "word":
                return self._is_word(place - 1) != self._is_word(place)
            case "no_word":
                return self._is_word(place - 1) == self._is_word(place)

    def _is_word(self, place: int) -> bool:
        return 0 <= place < len(self.text) and WORD_CHARACTERS.admit(self.text[place])

    def _count(self) -> None:
        self.steps += 1
        if self.steps >= _TOLD_STEPS:
            self.tell()

    def tell(self) -> None:
        """Tell the work done since the last time."""
        steps, self.steps = self.steps, 0
        self.work(steps)
