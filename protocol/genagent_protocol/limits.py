"""The limits among an agent's start options: checked once, before anything is started.

An option whose name is a limit is taken out and checked; everything else is left,
untouched, for `init_agent`. An explicit None means the default. "No limit", where
that exists, is spelled `"infinity"`. A boolean is no number, and neither is text
that looks like one. Limits under which a turn's completion could not fit into one
message are refused, because the completion is owed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from genagent_protocol.bounds import MAX_EVENT_BYTES, MAX_EVENTS, Limits
from genagent_protocol.plain import EMPTY, FrozenDict, Plain
from genagent_protocol.reasons import StartError

INFINITY: Literal["infinity"] = "infinity"

#: Text up to here is a typing error; what providers take for a key is longer.
_LONGEST_WORD = 16

#: A check says what the option has to be, or None if it is that.
Check = Callable[[Plain], str | None]


def split_options(options: Mapping[str, Plain]) -> tuple[Limits, FrozenDict] | StartError:
    """Return the limits in *options* and the rest, or which limit cannot be.

        The first bad option, in the order in which the limits are documented, is the
        one that is told, with its value if that is a number or a word. Longer text is not
    repeated: it may be a key that got under the wrong name.
    """
    chosen: dict[str, Any] = {}
    for name, check in CHECKS.items():
        value = options.get(name)
        if value is None:
            continue
        problem = check(value)
        if problem is not None:
            return _refusal(name, value, problem)
        chosen[name] = None if value == INFINITY else value
    rest = FrozenDict({name: value for name, value in options.items() if name not in CHECKS})
    return Limits(**chosen), rest or EMPTY


def _refusal(name: str, value: Plain, problem: str) -> StartError:
    return StartError(
        kind="invalid_limits",
        message=f"{name} must be {problem}, not {_shown(value)}; fix the start option",
        detail=name,
    )


def _shown(value: Plain) -> str:
    match value:
        case int() | float():
            return str(value)
        case str():
            many = len(value)
            return repr(value) if many <= _LONGEST_WORD else f"a text of {many} characters"
        case _:
            return f"a {type(value).__name__}"


def _at_least(least: int, wanted: str, *, infinity: bool = False, most: int | None = None) -> Check:
    """Return the check for whole numbers from *least*, up to *most* if there is one."""
    expected = wanted + (f' or "{INFINITY}"' if infinity else "")

    def check(value: Plain) -> str | None:
        if infinity and value == INFINITY:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            return expected
        if most is not None and value > most:
            return f"at most {most}, so that a completion fits into one message"
        return None

    return check


def _retention(value: Plain) -> str | None:
    return None if value in ("fail", "compact") else '"fail" or "compact"'


_POSITIVE = "a positive whole number"
_NATURAL = "a whole number that is not negative"

CHECKS: dict[str, Check] = {
    "watchdog_ms": _at_least(1, _POSITIVE, infinity=True),
    "max_pending_prompts": _at_least(0, _NATURAL),
    "max_pending_prompt_bytes": _at_least(0, _NATURAL),
    "max_pending_notifications": _at_least(0, _NATURAL),
    "max_pending_notification_bytes": _at_least(0, _NATURAL),
    "max_events_per_turn": _at_least(1, _POSITIVE, most=MAX_EVENTS),
    "max_event_bytes_per_turn": _at_least(1, _POSITIVE, most=MAX_EVENT_BYTES),
    "event_retention": _retention,
    "max_tell_results": _at_least(0, _NATURAL),
    "max_tell_result_bytes": _at_least(0, _NATURAL),
    "shutdown_ms": _at_least(0, _NATURAL, infinity=True),
    "interrupt_grace_ms": _at_least(0, _NATURAL),
}
