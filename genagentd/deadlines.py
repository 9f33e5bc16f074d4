"""Deadlines by name on one loop: armed, disarmed, and reported once when they pass.

The machines order deadlines as data; this is the only place that waits for them.
Nothing here repeats: a process without an armed deadline never wakes up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """The armed deadlines of one shell."""

    def __init__(self, on_pass: Callable[[Key], None]) -> None:
        self._on_pass = on_pass
        self._armed: dict[Key, asyncio.TimerHandle] = {}

    def arm(self, key: Key, after_ms: int) -> None:
        """Report *key* once after *after_ms*; an older deadline of that name is replaced."""
        self.disarm(key)
        loop = asyncio.get_running_loop()
        self._armed[key] = loop.call_later(after_ms / 1000, self._passed, key)

    def disarm(self, key: Key) -> None:
        """Forget *key*; nothing happens if it is not armed."""
        timer = self._armed.pop(key, None)
        if timer is not None:
            timer.cancel()

    def disarm_all(self) -> None:
        """Forget every deadline."""
        for key in list(self._armed):
            self.disarm(key)

    def _passed(self, key: Key) -> None:
        del self._armed[key]
        self._on_pass(key)
