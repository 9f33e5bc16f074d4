"""formatString, formatNumber, pluralize: values made into text for people to read.

formatString interpolates the text it is handed, wherever that text came from;
what its bindings yield goes in as data and is not interpolated again.
"""

from __future__ import annotations

from genagent_protocol.rpc.basic.logic import counts_as_true
from genagent_protocol.rpc.basic.numbers import decimals_wanted, grouped, number_wanted
from genagent_protocol.rpc.functions import Scope
from genagent_protocol.rpc.json_values import Arguments, Json
from genagent_protocol.rpc.limits import TEMPLATE_CHARACTER_STEPS
from genagent_protocol.rpc.templates import template_parts
from genagent_protocol.rpc.text_forms import text_form

#: How many decimals en-US shows of a number when nobody says.
_USUAL_DECIMALS = 3
#: The numbers that have a word of their own, if one is given.
_NAMED_COUNTS = {0: "zero", 1: "one", 2: "two"}


def format_string(args: Arguments, scope: Scope) -> str:
    """Return the template in `value` with every `${...}` replaced by its text.

    Raises:
        ExpressionFault: the template or an expression in it is wrong.
    """
    template = text_form(args.get("value"))
    scope.work(len(template) * TEMPLATE_CHARACTER_STEPS)
    parts = template_parts(template)
    return "".join(text_form(scope.resolve(part)) for part in parts)


def format_number(args: Arguments, _scope: Scope) -> str:
    """Return `value` as a number, with `decimals` if given and in groups unless forbidden.

    Raises:
        ExpressionFault: the value or the decimals are no number.
    """
    number = number_wanted(args.get("value"))
    decimals = decimals_wanted(args.get("decimals"))
    least, most = (0, _USUAL_DECIMALS) if decimals is None else (decimals, decimals)
    sign = "-" if number.is_signed() else ""
    return sign + grouped(number, least, most, grouping=grouping_wanted(args.get("grouping")))


def pluralize(args: Arguments, _scope: Scope) -> str:
    """Return the text for the count in `value`, else `other`; an empty text is a choice.

    English has two categories, so `few` and `many` are never chosen.

    Raises:
        ExpressionFault: the value is not a number.
    """
    number = number_wanted(args.get("value"))
    category = "one" if abs(number) == 1 else "other"
    if number == number.to_integral_value():
        category = _NAMED_COUNTS.get(int(number), category)
    chosen = args.get(category)
    return text_form(args.get("other") if chosen is None else chosen)


def grouping_wanted(value: Json) -> bool:
    """Return whether digits are grouped: yes, where nobody said."""
    return value is None or counts_as_true(value)
