"""What a provider is told again on every request: the turns that succeeded.

A turn enters whole, question and answer, and only if it was answered; so roles
keep alternating, and a prompt that failed is never sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from genagent_protocol.plain import FrozenDict


@dataclass(frozen=True, slots=True, repr=False)
class History:
    """The turns so far, each with all its messages. Printing it shows how many."""

    turns: tuple[tuple[FrozenDict, ...], ...] = ()

    def __repr__(self) -> str:
        return f"History({len(self.turns)} turns)"

    @property
    def messages(self) -> tuple[FrozenDict, ...]:
        """All messages, in order."""
        return tuple(message for turn in self.turns for message in turn)

    def with_turn(self, *messages: FrozenDict, keep: int | None) -> History:
        """Return the history with one more turn, trimmed to the last *keep* (None: all)."""
        turns = (*self.turns, messages)
        return History(turns if keep is None else turns[max(len(turns) - keep, 0) :])
