"""formatDate: a timestamp written after a pattern of TR35 tokens, in English.

The date is shown at its own offset; one without an offset is UTC. What is no
timestamp, or no day that ever was, gives the empty text and not a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from genagent_protocol.rpc.functions import Scope
from genagent_protocol.rpc.json_values import Arguments, Json
from genagent_protocol.rpc.text_forms import text_form

_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
#: A quote, text in quotes (the last of which may be missing), a run of one letter, anything else.
_PIECE: Final = re.compile(r"''|'(?P<quoted>(?:[^']|'')*)(?:'|\Z)|([A-Za-z])\2*|.", re.DOTALL)
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT: Final = 3
_NOON: Final = 12


def format_date(args: Arguments, _scope: Scope) -> str:
    """Return `value` written after the pattern in `format`, or the empty text.

    The pattern `ISO` is the instant in UTC with milliseconds.
    """
    moment = _moment(args.get("value"))
    if moment is None:
        return ""
    pattern = text_form(args.get("format"))
    return _instant(moment) if pattern == "ISO" else _patterned(moment, pattern)


def _moment(value: Json) -> datetime | None:
    if not isinstance(value, str) or not _TIMESTAMP.fullmatch(value.strip()):
        return None
    try:
        moment = datetime.fromisoformat(value.strip().upper().replace(",", "."))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _instant(moment: datetime) -> str:
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        return ""
    milliseconds = utc.microsecond // 1000
    return f"{utc.replace(tzinfo=None).isoformat(timespec='seconds')}.{milliseconds:03d}Z"


def _patterned(moment: datetime, pattern: str) -> str:
    return "".join(_written(moment, piece) for piece in _PIECE.finditer(pattern))


def _written(moment: datetime, found: re.Match[str]) -> str:
    # Two quotes are one, inside quoted text and outside of it.
    quoted, piece = found["quoted"], found.group()
    if piece == "''":
        return "'"
    if quoted is not None:
        return quoted.replace("''", "'")
    token = _TOKENS.get(piece)
    return piece if token is None else token(moment)


def _half_day_hour(moment: datetime) -> int:
    return moment.hour % _NOON or _NOON


_TOKENS: Final[dict[str, Callable[[datetime], str]]] = {
    "yyyy": lambda moment: f"{moment.year:04d}",
    "yy": lambda moment: f"{moment.year % 100:02d}",
    "y": lambda moment: str(moment.year),
    "MMMM": lambda moment: _MONTHS[moment.month - 1],
    "MMM": lambda moment: _MONTHS[moment.month - 1][:_SHORT],
    "MM": lambda moment: f"{moment.month:02d}",
    "M": lambda moment: str(moment.month),
    "dd": lambda moment: f"{moment.day:02d}",
    "d": lambda moment: str(moment.day),
    "EEEE": lambda moment: _DAYS[moment.weekday()],
    "EEE": lambda moment: _DAYS[moment.weekday()][:_SHORT],
    "EE": lambda moment: _DAYS[moment.weekday()][:_SHORT],
    "E": lambda moment: _DAYS[moment.weekday()][:_SHORT],
    "HH": lambda moment: f"{moment.hour:02d}",
    "H": lambda moment: str(moment.hour),
    "hh": lambda moment: f"{_half_day_hour(moment):02d}",
    "h": lambda moment: str(_half_day_hour(moment)),
    "mm": lambda moment: f"{moment.minute:02d}",
    "m": lambda moment: str(moment.minute),
    "ss": lambda moment: f"{moment.second:02d}",
    "s": lambda moment: str(moment.second),
    "a": lambda moment: "AM" if moment.hour < _NOON else "PM",
}
