"""What a callback decided, without the state that came with it, and which answers fit.

The shell translates what user code returned into one of these and keeps the
returned state only if the decision fits its callback (`fits`); everything else is
`Invalid`, and what that costs is a rule of the machine, not of the shell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from genagent_protocol.plain import Plain
from genagent_protocol.refs import RequestRef

CallbackName: TypeAlias = Literal[
    "pre_run",
    "pre_turn",
    "handle_response",
    "handle_error",
    "handle_event",
    "handle_info",
    "post_turn",
    "post_run",
    "checkpoint_session",
    "reset_session",
]


@dataclass(frozen=True, slots=True)
class NoReply:
    """Nothing follows."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Another prompt follows. `ref` is fresh: it names the new work, if it becomes any.

    When the prompt does not fit, the same ref names the report of that.
    """

    text: str
    ref: RequestRef


@dataclass(frozen=True, slots=True)
class Halt:
    """The agent freezes until it is resumed."""


@dataclass(frozen=True, slots=True)
class Run:
    """`pre_turn` lets the turn start, with this prompt."""

    prompt: str


@dataclass(frozen=True, slots=True)
class Skip:
    """`pre_turn` declines this prompt."""


@dataclass(frozen=True, slots=True)
class Done:
    """A hook that decides nothing came back."""


@dataclass(frozen=True, slots=True)
class Declined:
    """`pre_run` or `reset_session` could not do it, and says why."""

    reason: Plain


@dataclass(frozen=True, slots=True)
class Invalid:
    """What came back is no answer that this callback may give."""


Decision: TypeAlias = NoReply | Prompt | Halt | Run | Skip | Done | Declined | Invalid

_FOLLOWING = (NoReply, Prompt, Halt)
_FITTING: dict[CallbackName, tuple[type[Decision], ...]] = {
    "pre_run": (Done, Declined),
    "pre_turn": (Run, Skip, Halt),
    "handle_response": _FOLLOWING,
    "handle_error": _FOLLOWING,
    "handle_event": _FOLLOWING,
    "handle_info": _FOLLOWING,
    "post_turn": (Done,),
    "post_run": (Done,),
    "checkpoint_session": (Done,),
    "reset_session": (Done, Declined),
}


def fitting(callback: CallbackName) -> tuple[type[Decision], ...]:
    """Return the kinds of decision that *callback* may make."""
    return _FITTING[callback]


def fits(callback: CallbackName, decision: Decision) -> bool:
    """Return whether *callback* may decide so; only then does its returned state count."""
    return isinstance(decision, _FITTING[callback])
