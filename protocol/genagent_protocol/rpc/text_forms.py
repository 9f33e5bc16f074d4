"""How values read as text: what a template shows of whatever a path or a function gives.

Numbers read as a browser writes them: integers without a point, exponents only
for the very large and the very small. Lists and objects are compact JSON.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Final

from genagent_protocol.rpc.json_values import Json

#: From here on a number is written with an exponent.
_LARGE: Final = 1e21
_SMALL: Final = 1e-6


def text_form(value: Json) -> str:
    """Return *value* as text; null is empty."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return number_text(value)
        case int():
            return str(value)
        case list() | dict():
            return _compact(value)


def number_text(number: float) -> str:
    """Return a finite number as text that reads back as the same number."""
    if number.is_integer() and abs(number) < _LARGE:
        # Not all digits of the number that is meant: as many as tell it from others, then zeros.
        return f"{Decimal(repr(number)).to_integral_value():f}" if number else "0"
    if _SMALL <= abs(number) < _LARGE:
        return f"{Decimal(repr(number)):f}"
    mantissa, exponent = repr(number).split("e")
    return f"{mantissa}e{int(exponent):+d}"


def _compact(value: Json) -> str:
    match value:
        case list():
            return f"[{','.join(map(_compact, value))}]"
        case dict():
            items = (f"{_quoted(key)}:{_compact(item)}" for key, item in value.items())
            return f"{{{','.join(items)}}}"
        case str():
            return _quoted(value)
        case None:
            return "null"
        case _:
            return text_form(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
