"""Numbers as people read them in en-US: three-digit groups, a point, halves rounded away from zero.

Everything is computed on the decimal text of a number, never on its binary
value, so 1.005 rounds to 1.01 as it reads.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.json_values import Json

#: More decimals than these are refused, as `Intl` does.
MAX_DECIMALS: Final = 20

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS: Final = 400
#: The longest double has 309 digits before the point.
_CONTEXT: Final = Context(prec=_MAX_DIGITS, rounding=ROUND_HALF_UP)


def number_in(value: Json) -> Decimal | None:
    """Return the number that *value* is or spells, or None; true is one and false zero."""
    match value:
        case bool() | int():
            return Decimal(int(value))
        case float():
            return Decimal(repr(value))
        case str() if len(value) < _MAX_DIGITS and _NUMBER.fullmatch(value.strip()):
            number = float(value)
            return Decimal(repr(number)) if math.isfinite(number) else None
        case _:
            return None


def number_wanted(value: Json) -> Decimal:
    """Return the number that *value* is or spells.

    Raises:
        ExpressionFault: it is none.
    """
    number = number_in(value)
    if number is None:
        raise ExpressionFault("The value is not a number.")
    return number


def decimals_wanted(value: Json) -> int | None:
    """Return how many decimals are wanted, or None where nobody said.

    Raises:
        ExpressionFault: it is no number of decimals.
    """
    if value is None:
        return None
    decimals = number_wanted(value)
    if not 0 <= decimals <= MAX_DECIMALS:
        raise ExpressionFault(f"The number of decimals is not between 0 and {MAX_DECIMALS}.")
    return int(decimals)


def grouped(number: Decimal, least: int, most: int, *, grouping: bool) -> str:
    """Return *number* without its sign, with between *least* and *most* decimals."""
    rounded = _CONTEXT.quantize(number.copy_abs(), Decimal(1).scaleb(-most))
    whole, _, fraction = f"{rounded:f}".partition(".")
    kept = fraction[:least] + fraction[least:].rstrip("0")
    shown = f"{int(whole):,}" if grouping else whole
    return f"{shown}.{kept}" if kept else shown
