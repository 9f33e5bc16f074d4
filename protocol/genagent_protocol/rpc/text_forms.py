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
            return json.dumps(_without_points(value), ensure_ascii=False, separators=(",", ":"))


def number_text(number: float) -> str:
    """Return a finite number as text that reads back as the same number."""
    if number.is_integer() and abs(number) < _LARGE:
        return str(int(number))
    if _SMALL <= abs(number) < _LARGE:
        return f"{Decimal(repr(number)):f}"
    mantissa, exponent = repr(number).split("e")
    return f"{mantissa}e{int(exponent):+d}"


def _without_points(value: Json) -> Json:
    match value:
        case list():
            return [_without_points(item) for item in value]
        case dict():
            return {key: _without_points(item) for key, item in value.items()}
        case float() if value.is_integer() and abs(value) < _LARGE:
            return int(value)
        case _:
            return value
