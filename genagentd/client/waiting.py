"""Something that has not happened yet: one answer, one end, or one message to come.

It is settled exactly once, with a value or with the error that took its place. Who
waits for it, and how, is the shell's business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

from genagent_protocol.errors import UNKNOWN_FATE

T = TypeVar("T")


def _nobody() -> None:
    """Wake no one: whoever waits looks by itself."""


class Waiting(Generic[T]):
    """One thing to come. `what` names the call it belongs to, for its errors.

    `fate` is what is known of that call's effect as long as it has not come.
    """

    __slots__ = ("_error", "_value", "done", "fate", "number", "wake", "what")

    def __init__(self, what: str, number: int = 0, fate: str = UNKNOWN_FATE) -> None:
        self.what = what
        self.fate = fate
        #: The call's number, or the message's place in the order of arrival.
        self.number = number
        self.done = False
        #: Called once, when this is settled.
        self.wake: Callable[[], None] = _nobody
        self._value: T | None = None
        self._error: Exception | None = None

    def settle(self, value: T) -> None:
        """It happened. Nothing changes if it was settled before."""
        if not self.done:
            self._value = value
            self._end()

    def fail(self, error: Exception) -> None:
        """It will not happen. Nothing changes if it was settled before."""
        if not self.done:
            self._error = error
            self._end()

    def _end(self) -> None:
        self.done = True
        self.wake()

    @property
    def failed(self) -> bool:
        """Whether it was settled with an error."""
        return self._error is not None

    def value(self) -> T:
        """Return what happened; only when `done`.

        Raises:
            GenAgentError: what took its place.
        """
        assert self.done
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # settled with a T, or failed


#: What one call of the API does: it yields what it waits for, and returns the answer.
Script: TypeAlias = Generator[Waiting[Any], None, T]


def settled(waiting: Waiting[T]) -> Script[T]:
    """Wait for it inside a script, and return its value or raise its error."""
    yield waiting
    return waiting.value()
