"""Time limits that also hold in a task that is being cancelled.

Ending a process politely happens in `finally` blocks, and those run while their task
is cancelled. There `asyncio.timeout` of Python 3.11.0 to 3.11.2, which Debian 12 has,
raises `CancelledError` instead of `TimeoutError`, and whatever was to follow does not.
This is what later versions do.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Timeout:
    """Use it once, as an asynchronous context manager, inside a task.

    Raises:
        TimeoutError: on leaving, if the moment passed inside.
    """

    def __init__(self, when: float | None) -> None:
        """Let it pass at *when* (the loop's time); None is never."""
        self._when = when
        self._task: asyncio.Task[object] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._passed = False
        self._left = False

    def when(self) -> float | None:
        """Return the moment, by the loop's time."""
        return self._when

    def reschedule(self, when: float | None) -> None:
        """Let it pass at *when* instead. Too late if it has passed."""
        self._when = when
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if when is not None and self._task is not None and not self._passed and not self._left:
            self._handle = self._task.get_loop().call_at(when, self._pass)

    def _pass(self) -> None:
        assert self._task is not None
        self._passed = True
        self._task.cancel()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self.reschedule(self._when)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._left = True
        self.reschedule(self._when)
        if not self._passed:
            return
        assert self._task is not None
        # Whoever else cancelled this task has the first word.
        ours = self._task.uncancel() <= self._cancelling
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


def timeout(seconds: float | None) -> Timeout:
    """Return a limit of that many seconds from now; None is none."""
    return Timeout(None if seconds is None else asyncio.get_running_loop().time() + seconds)


def timeout_at(when: float | None) -> Timeout:
    """Return a limit at that moment of the loop's time; None is none."""
    return Timeout(when)
