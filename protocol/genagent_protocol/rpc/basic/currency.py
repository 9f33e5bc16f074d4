"""formatCurrency: an amount with its currency's sign, as en-US writes it.

A sign that ends in a letter is set apart by a no-break space; other signs stand
right before the number.
"""

from __future__ import annotations

from typing import Final

from genagent_protocol.rpc.basic.formatting import grouping_wanted
from genagent_protocol.rpc.basic.numbers import decimals_wanted, grouped, number_wanted
from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.functions import Scope
from genagent_protocol.rpc.json_values import Arguments, Json

_USUAL_DECIMALS: Final = 2
_CODE_LETTERS: Final = 3
_NO_BREAK_SPACE: Final = "\u00a0"
#: The currencies that en-US does not write as their code.
_SIGNS: Final = {
    "AUD": "A$",
    "BRL": "R$",
    "CAD": "CA$",
    "CNY": "CN¥",
    "EUR": "€",
    "GBP": "£",
    "HKD": "HK$",
    "ILS": "₪",
    "INR": "₹",
    "JPY": "¥",
    "KRW": "₩",
    "MXN": "MX$",
    "NZD": "NZ$",
    "PHP": "₱",
    "TWD": "NT$",
    "USD": "$",
    "VND": "₫",
    "XAF": "FCFA",
    "XCD": "EC$",
    "XOF": "F\u202fCFA",
    "XPF": "CFPF",
}


def format_currency(args: Arguments, _scope: Scope) -> str:
    """Return `value` as an amount of `currency`, with two decimals unless others are given.

    Raises:
        ExpressionFault: the value or the decimals are no number, or the currency
            is not a code of three letters.
    """
    number = number_wanted(args.get("value"))
    sign = _sign(args.get("currency"))
    wanted = decimals_wanted(args.get("decimals"))
    decimals = _USUAL_DECIMALS if wanted is None else wanted
    amount = grouped(number, decimals, decimals, grouping=grouping_wanted(args.get("grouping")))
    gap = _NO_BREAK_SPACE if sign[-1].isalpha() else ""
    return f"{'-' if number.is_signed() else ''}{sign}{gap}{amount}"


def _sign(currency: Json) -> str:
    # Before it is written large: there are other letters that become these.
    code = currency.upper() if isinstance(currency, str) and currency.isascii() else ""
    if len(code) != _CODE_LETTERS or not code.isalpha():
        raise ExpressionFault("The currency is not an ISO 4217 code of three letters.")
    return _SIGNS.get(code, code)
