"""Waiting for a fact with a deadline: the only place in the tests that lets time pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

#: Generous, and only there so that a hang ends.
DEADLINE_S = 60.0


def until(fact: Callable[[], Found | None], what: str, within_s: float = DEADLINE_S) -> Found:
    """Return what *fact* returns as soon as that is true; fail after *within_s*."""
    deadline = time.monotonic() + within_s
    while not (found := fact()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within_s} s it is still not so: {what}")
        time.sleep(0.005)
    return found
