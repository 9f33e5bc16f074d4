"""The bounded memory of finished requests: what a poll can still learn.

Outcomes leave oldest first, until both the count and the bytes hold again. One
outcome larger than the byte limit pushes out everything older and then itself, so
a limit of zero remembers nothing. Nothing else in the product depends on what is
remembered here: completions are sent whether or not it is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from genagent_protocol.bounds import Limits
from genagent_protocol.events import Completed, Outcome, Response
from genagent_protocol.plain import FrozenDict, Plain, encoded_size
from genagent_protocol.reasons import Failure
from genagent_protocol.refs import RequestRef


@dataclass(frozen=True, slots=True)
class Result:
    """One finished request and what it counts against the byte limit."""

    ref: RequestRef
    outcome: Outcome
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Results:
    """The remembered outcomes, oldest first, with their running total of bytes."""

    items: tuple[Result, ...] = ()
    bytes: int = 0

    def find(self, ref: RequestRef) -> Outcome | None:
        """Return the outcome of *ref*, or None if it was never here or is forgotten."""
        token = ref.token
        for item in self.items:
            if item.ref.token == token and item.ref == ref:
                return item.outcome
        return None


def remember(results: Results, ref: RequestRef, outcome: Outcome, limits: Limits) -> Results:
    """Return the memory with one more outcome and without what no longer fits."""
    newest = Result(ref, outcome, outcome_size(ref, outcome))
    items, total = (*results.items, newest), results.bytes + newest.size_bytes
    keep_from = max(0, len(items) - limits.max_tell_results)
    total -= sum(item.size_bytes for item in items[:keep_from])
    while total > limits.max_tell_result_bytes:
        total -= items[keep_from].size_bytes
        keep_from += 1
    return Results(items[keep_from:], total)


def outcome_size(ref: RequestRef, outcome: Outcome) -> int:
    """Return what an outcome counts: the pair of its ref and its fields, as encoded.

    The retained events of a response count what they counted in their turn's
    capture, so that nothing is measured twice.
    """
    body = (
        _response_size(outcome.response)
        if isinstance(outcome, Completed)
        else _failure_size(outcome.reason)
    )
    return encoded_size(ref.text) + body


def _response_size(response: Response) -> int:
    said: tuple[Plain, ...] = (
        response.text,
        response.final_message,
        response.usage,
        response.duration_ms,
        response.session_id,
        response.prompt,
        response.metadata,
    )
    return (
        encoded_size(said) + response.event_coverage.retained_bytes + response.terminal.size_bytes
    )


def _failure_size(reason: Failure) -> int:
    values = tuple(getattr(reason, field.name) for field in fields(reason))
    return encoded_size(reason.code) + encoded_size(
        tuple(value if _plain(value) else str(value) for value in values)
    )


def _plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, bytes, tuple, FrozenDict))
