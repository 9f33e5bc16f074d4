"""Telemetry inside one process: handlers that hear every record as it is made.

    from genagentd import telemetry
    telemetry.attach(lambda record: print(record.event))

A handler runs where the record is made, in an agent's coordinator: while it runs,
the agent answers nobody. One that raises is detached, once and with one line in the
log; it never harms what it was watching.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

from genagent_protocol.envelopes import Telemetry

Handler: TypeAlias = Callable[[Telemetry], object]

_handlers: list[Handler] = []


def attach(handler: Handler) -> None:
    """Call *handler* with every record from now on; attaching it twice changes nothing."""
    if handler not in _handlers:
        _handlers.append(handler)


def detach(handler: Handler) -> None:
    """Stop calling *handler*; nothing happens if it was not attached."""
    if handler in _handlers:
        _handlers.remove(handler)


def watched() -> bool:
    """Whether anybody is attached."""
    return bool(_handlers)


def publish(record: Telemetry) -> None:
    """Call every handler with *record*, in the order in which they were attached."""
    for handler in list(_handlers):
        try:
            handler(record)
        except Exception as error:  # noqa: BLE001  # an edge to foreign code
            detach(handler)
            name = getattr(handler, "__qualname__", type(handler).__name__)
            print(
                f"telemetry.handler_detached handler={name} error={type(error).__name__}",
                file=sys.stderr,
            )
