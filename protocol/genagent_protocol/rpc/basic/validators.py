"""required, regex, length, numeric, email: checks that answer with a validation result.

A check that fails is an answer, `{"valid": false}`, and not a failure of the
function; only a pattern that cannot be read is one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from genagent_protocol.rpc.basic.matching import found_in
from genagent_protocol.rpc.basic.numbers import number_in
from genagent_protocol.rpc.functions import Scope
from genagent_protocol.rpc.json_values import Arguments, Json
from genagent_protocol.rpc.text_forms import text_form

_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
_BAD_EMAIL: Final[dict[str, Json]] = {
    "valid": False,
    "code": "INVALID_EMAIL",
    "message": "Please enter a valid email address (e.g. user@example.com).",
    "severity": "error",
}


def required(args: Arguments, _scope: Scope) -> dict[str, Json]:
    """Return whether `value` is neither null nor an empty text or list."""
    value = args.get("value")
    return {"valid": value is not None and value not in ("", [])}


def regex(args: Arguments, scope: Scope) -> dict[str, Json]:
    """Return whether `pattern` matches anywhere in `value`.

    Raises:
        ExpressionFault: the pattern cannot be read, or would take too long.
    """
    pattern, value = text_form(args.get("pattern")), text_form(args.get("value"))
    return {"valid": found_in(pattern, value, scope.work)}


def length(args: Arguments, _scope: Scope) -> dict[str, Json]:
    """Return whether `value` has between `min` and `max` characters, or items if it is a list."""
    value = args.get("value")
    size = len(value) if isinstance(value, list) else len(text_form(value))
    return {"valid": _within(number_in(size), args)}


def numeric(args: Arguments, _scope: Scope) -> dict[str, Json]:
    """Return whether `value` is or spells a number between `min` and `max`."""
    return {"valid": _within(number_in(args.get("value")), args)}


def email(args: Arguments, _scope: Scope) -> dict[str, Json]:
    """Return whether `value` looks like an e-mail address."""
    if _EMAIL.fullmatch(text_form(args.get("value"))):
        return {"valid": True}
    return dict(_BAD_EMAIL)


def _within(number: Decimal | None, args: Arguments) -> bool:
    """Tell whether *number* keeps the bounds given; a bound that is no number is never kept."""
    if number is None:
        return False
    least, most = args.get("min"), args.get("max")
    lower, upper = number_in(least), number_in(most)
    above = least is None or (lower is not None and number >= lower)
    below = most is None or (upper is not None and number <= upper)
    return above and below
