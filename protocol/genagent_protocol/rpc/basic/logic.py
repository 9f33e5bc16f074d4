"""and, or, not: over booleans, validation results, and whatever else counts as true.

A validation result counts by its `valid`. Of the rest, null, false, zero and the
empty text are false, and everything else is true, empty lists and objects too.
"""

from __future__ import annotations

from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.functions import Scope
from genagent_protocol.rpc.json_values import Arguments, Json

_FEWEST = 2


def all_true(args: Arguments, _scope: Scope) -> bool:
    """Return whether every one of `values` counts as true.

    Raises:
        ExpressionFault: there are fewer than two.
    """
    return all(counts_as_true(value) for value in _values(args, "and"))


def any_true(args: Arguments, _scope: Scope) -> bool:
    """Return whether one of `values` counts as true.

    Raises:
        ExpressionFault: there are fewer than two.
    """
    return any(counts_as_true(value) for value in _values(args, "or"))


def negated(args: Arguments, _scope: Scope) -> bool:
    """Return whether `value` does not count as true."""
    return not counts_as_true(args.get("value"))


def counts_as_true(value: Json) -> bool:
    """Tell whether *value* is taken for true."""
    if isinstance(value, dict):
        valid = value.get("valid")
        return valid if isinstance(valid, bool) else True
    return isinstance(value, list) or bool(value)


def _values(args: Arguments, name: str) -> list[Json]:
    values = args.get("values")
    if not isinstance(values, list) or len(values) < _FEWEST:
        raise ExpressionFault(f"'{name}' needs at least {_FEWEST} values.")
    return values
