"""What a scripted turn does, step by step, as values and as plain data.

A script is a list of turns; a turn is a list of steps, or one step alone. A step
is an event (`{"kind": "text", "text": "hi"}`) or an act, told by its first key:

    {"echo": true}                         a text event with the prompt as the turn got it
    {"error": REASON}                      the prompt cannot be dispatched (alone in its turn)
    {"raise": "ValueError", "message": ""} the stream raises, any built-in exception
    {"gate": TAG, "events": [...],         announce arrival, wait for the release (gates.py)
     "timeout_ms": 5000}                   and go on with the events
    {"pause_ms": 50}                       wait; can be interrupted
    {"hang": HOW, "for_ms": 60000}         do not go on, for ever if no time is given. HOW:
                                           "idle" waits and can be interrupted,
                                           "stubborn" waits and ignores interruption,
                                           "blocked" sleeps without its event loop,
                                           "busy" computes at full speed,
                                           "held" keeps every other thread out, too
    {"many": 1000, "event": {...}}         the same event many times
    {"big": 70000}                         a text event of that many characters
    {"checkpoint": "session id"}           checkpoint; a `checkpoint` event says the answer
    {"spawn": WHAT, "deaf": false,         start a process; a `spawned` event lists the pids.
     "for_session": false}                 WHAT: "child"; "grandchild" (it starts one in a
                                           session of its own and stays); "orphan" (the
                                           same, and it ends at once); "unmanaged" (behind
                                           the agent's back); or an argument list. A deaf
                                           one ignores INT and TERM
    {"print": "text", "to": "stdout"}      write to the process's own standard output
    {"exit": 3}                            sys.exit in the turn
    {"os_exit": 3}                         the process ends at once
    {"kill": "SIGSEGV"}                    the process gets a signal from itself

A list that does not end in a `result` or `error` event is a turn without a
terminal event. Nothing here performs a step; that is `performance.py`.
"""

from __future__ import annotations

import builtins
import signal
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from genagent_backends.gates import GATE_TIMEOUT_MS, SAFE_TAG
from genagent_backends.options import BadValue
from genagent_protocol.events import Event, event
from genagent_protocol.plain import FrozenDict, Plain

How = Literal["idle", "stubborn", "blocked", "busy", "held"]
What = Literal["child", "grandchild", "orphan", "unmanaged"]


@dataclass(frozen=True, slots=True)
class SayPrompt:
    """A text event with the prompt as the turn got it."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The prompt cannot be dispatched, for this reason."""

    reason: Plain


@dataclass(frozen=True, slots=True)
class Raise:
    """The stream raises the built-in exception of this name."""

    error: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """Announce arrival at the gate `tag`, and wait for its release."""

    tag: str
    timeout_ms: int = GATE_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait; can be interrupted."""

    pause_ms: int


@dataclass(frozen=True, slots=True)
class Hang:
    """Do not go on, for ever if `for_ms` is None."""

    how: How
    for_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same event, `count` times."""

    count: int
    event: Event


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tell the agent this session id; a `checkpoint` event says the answer."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process; a `spawned` event lists the pids."""

    what: What | tuple[str, ...]
    deaf: bool = False
    for_session: bool = False


@dataclass(frozen=True, slots=True)
class Print:
    """Write to this process's own standard output or error."""

    text: str
    to: Literal["stdout", "stderr"] = "stdout"


@dataclass(frozen=True, slots=True)
class Exit:
    """Leave: by `sys.exit` in the turn, or (`hard`) the process at once."""

    status: int
    hard: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """The process sends itself this signal."""

    signal: int


Act: TypeAlias = (
    SayPrompt
    | Fail
    | Raise
    | Gate
    | Pause
    | Hang
    | Repeat
    | Checkpoint
    | Spawn
    | Print
    | Exit
    | Kill
)
Step: TypeAlias = Event | Act
#: A turn in Python may also be a function of the prompt that returns its stream.
Stream: TypeAlias = Iterable[Event] | AsyncIterable[Event]
TurnScript: TypeAlias = tuple[Step, ...] | Callable[[str], Stream]


def turn_script(given: object) -> TurnScript:
    """Return the turn that *given* describes: a step, a list of steps, or a function.

    Steps may be values of this module, events, or plain data as the top of this
    module shows.

    Raises:
        BadValue: it describes none; the message says what is wrong.
    """
    if callable(given):
        return given
    steps = given if isinstance(given, list | tuple) else (given,)
    turn = tuple(step for item in steps for step in _steps(item))
    if len(turn) > 1 and any(isinstance(step, Fail) for step in turn):
        raise BadValue('has an "error" act beside other steps; it must be alone in its turn')
    return turn


def script(value: Plain) -> tuple[TurnScript, ...]:
    """Check the option `script`: a list of turns as plain data.

    Raises:
        BadValue: it is none.
    """
    if not isinstance(value, tuple):
        raise BadValue("must be a list of turns")
    return tuple(turn_script(turn) for turn in value)


def _steps(item: object) -> tuple[Step, ...]:
    if isinstance(item, get_args(Step)):
        return (item,)
    if not isinstance(item, Mapping):
        raise BadValue(f"has a step that is neither an event nor an act: {type(item).__name__}")
    if "kind" in item:
        return (_event(item),)
    for name, read in ACTS.items():
        if name in item:
            return read(_Fields(name, item))
    raise BadValue(f"has a step of no known act: {', '.join(map(str, item)) or 'an empty one'}")


def _event(item: object) -> Event:
    match item:
        case {"kind": str(kind), **data} if kind:
            return event(kind, {str(name): value for name, value in data.items()})
    raise BadValue("has an event whose kind is not text")


class _Fields:
    """The fields of one act, each of which must be of its type."""

    def __init__(self, act: str, item: Mapping[object, object]) -> None:
        self.act = act
        self.item = item

    def text(self, name: str, default: str | None = None) -> str:
        value = self.item.get(name, default)
        if not isinstance(value, str):
            raise BadValue(f'has an act "{self.act}" whose {name} is not text')
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self.item.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadValue(f'has an act "{self.act}" whose {name} is no number')
        return value

    def flag(self, name: str) -> bool:
        return self.item.get(name, False) is True


def _raise(fields: _Fields) -> tuple[Step, ...]:
    name = fields.text("raise")
    found = getattr(builtins, name, None)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise BadValue(f'has an act "raise" of {name}, which is no built-in exception')
    return (Raise(name, fields.text("message", "")),)


def _gate(fields: _Fields) -> tuple[Step, ...]:
    tag = fields.text("gate")
    if not SAFE_TAG.fullmatch(tag):
        raise BadValue('has an act "gate" whose tag cannot be a file name')
    events = fields.item.get("events", ())
    if not isinstance(events, list | tuple):
        raise BadValue('has an act "gate" whose events are no list')
    gate = Gate(tag, fields.number("timeout_ms", GATE_TIMEOUT_MS))
    return (gate, *(step for item in events for step in _steps(item)))


def _hang(fields: _Fields) -> tuple[Step, ...]:
    for how in get_args(How):
        if fields.text("hang") == how:
            return (Hang(how, fields.number("for_ms") if "for_ms" in fields.item else None),)
    raise BadValue(f'has an act "hang" that is none of {", ".join(get_args(How))}')


def _spawn(fields: _Fields) -> tuple[Step, ...]:
    deaf, for_session = fields.flag("deaf"), fields.flag("for_session")
    match fields.item["spawn"]:
        case [str(), *_] as argv if all(isinstance(part, str) for part in argv):
            return (Spawn(tuple(map(str, argv)), deaf, for_session),)
        case "child" | "grandchild" | "orphan" | "unmanaged" as what:
            return (Spawn(what, deaf, for_session),)
    raise BadValue('has an act "spawn" that is neither a known word nor an argument list')


def _print(fields: _Fields) -> tuple[Step, ...]:
    match fields.text("to", "stdout"):
        case "stdout":
            return (Print(fields.text("print"), "stdout"),)
        case "stderr":
            return (Print(fields.text("print"), "stderr"),)
    raise BadValue('has an act "print" to neither stdout nor stderr')


def _kill(fields: _Fields) -> tuple[Step, ...]:
    try:
        return (Kill(signal.Signals[fields.text("kill")]),)
    except KeyError:
        raise BadValue('has an act "kill" of no known signal name') from None


ACTS: Mapping[str, Callable[[_Fields], tuple[Step, ...]]] = {
    "echo": lambda _fields: (SayPrompt(),),
    "error": lambda fields: (Fail(_reason(fields.item["error"])),),
    "raise": _raise,
    "gate": _gate,
    "pause_ms": lambda fields: (Pause(fields.number("pause_ms")),),
    "hang": _hang,
    "many": lambda fields: (Repeat(fields.number("many"), _event(fields.item.get("event"))),),
    "big": lambda fields: (event("text", {"text": "x" * fields.number("big")}),),
    "checkpoint": lambda fields: (Checkpoint(fields.text("checkpoint")),),
    "spawn": _spawn,
    "print": _print,
    "exit": lambda fields: (Exit(fields.number("exit")),),
    "os_exit": lambda fields: (Exit(fields.number("os_exit"), hard=True),),
    "kill": _kill,
}


def _reason(value: object) -> Plain:
    return event("error", {"reason": value}).data["reason"]


# -- for tests in Python -----------------------------------------------------------------------


def says(*texts: str, session_id: str | None = None) -> tuple[Event, ...]:
    """Return a turn that says *texts*, one event each, and succeeds."""
    data = FrozenDict({"session_id": session_id} if session_id else {})
    return (*(event("text", {"text": text}) for text in texts), event("result", data))


def fails(reason: object) -> tuple[Event, ...]:
    """Return a turn that ends in an `error` event with *reason*."""
    return (event("error", {"reason": reason}),)
