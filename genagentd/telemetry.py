"""Telemetry inside one process: handlers that hear every record as it is made.

    from genagentd import telemetry
    telemetry.attach(lambda record: print(record.event))

A handler runs where the record is made, in an agent's coordinator: while it runs,
the agent answers nobody. One that raises is detached, once and with one line in the
log; it never harms what it was watching.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
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


def publish(record: Telemetry, detached: Callable[[str, BaseException], None]) -> None:
    """Call every handler with *record*, in the order in which they were attached.

    *detached* is told the name of one that raised, whatever it was, and what it raised.
    """
    for handler in list(_handlers):
        try:
            handler(record)
        except BaseException as error:  # noqa: BLE001  # an edge to foreign code
            # By identity: how it compares to others is its own code as well.
            _handlers[:] = [other for other in _handlers if other is not handler]
            detached(_name_of(handler), error)


def _name_of(handler: Handler) -> str:
    try:
        if isinstance(handler, FunctionType | MethodType):
            return handler.__qualname__
        return type(handler).__name__
    except BaseException:  # noqa: BLE001  # what it is called may be code as well
        return "?"
