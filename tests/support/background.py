"""Run something in a thread of its own and look at what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(function: Callable[[], T]) -> Future[T]:
    """Run *function* in a thread; the future holds what it returned or raised."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run).start()
    return future
