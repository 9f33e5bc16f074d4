"""Waiting for a fact with a deadline: the only place here that lets time pass.

Use it for what nobody announces, such as a process that ends. What an agent says
arrives in a mailbox, and waiting for a mailbox needs no clock (`heard`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Fact = TypeVar("Fact")

#: Generous, and only there so that a hang ends.
DEADLINE_MS = 30_000
_PAUSE_S = 0.005


def until(fact: Callable[[], Fact | None], what: str, within_ms: int = DEADLINE_MS) -> Fact:
    """Return what *fact* returns as soon as that is true.

    Raises:
        AssertionError: after *within_ms* it still is not; the message ends with *what*.
    """
    deadline = time.monotonic() + within_ms / 1000
    while not (found := fact()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within_ms} ms it is still not so: {what}")
        time.sleep(_PAUSE_S)
    return found
