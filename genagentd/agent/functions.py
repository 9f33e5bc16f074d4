"""What an agent offers to its clients: methods that are marked, found by their mark.

A schema of arguments is checked when its agent starts; an agent without one loads
what reads them when the first client attaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, overload

from genagent_protocol.plain import FrozenDict, NotPlain, Plain, freeze

#: A method `(self, arguments, state)` that returns a value or something to await for it.
Method: TypeAlias = Callable[..., Any]
M = TypeVar("M", bound=Method)

#: The catalog id under which an agent's functions are called; a call may leave it out.
OFFERED_CATALOG_ID = "urn:genagentd:agent"
_MARK = "__genagentd_function__"


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands on a method that is offered. Without a schema any arguments are taken."""

    arguments: FrozenDict | None = None


@overload
def function(method: M, /) -> M: ...


@overload
def function(*, arguments: Mapping[str, object]) -> Callable[[M], M]: ...


def function(
    method: M | None = None, /, *, arguments: Mapping[str, object] | None = None
) -> M | Callable[[M], M]:
    """Offer a method of an agent to attached clients, under its own name.

    The method gets the arguments, a dict that is its own, and the agent's state.
    It begins between the callbacks, and while a plain `def` runs the agent does
    nothing else. One that is awaited goes on beside whatever comes next, until it is
    back or its session ends; the state it holds is that of its beginning. What it
    returns is the answer. *arguments* is a JSON Schema of them.

    This does not keep a new state: whatever should change, the method tells its
    agent as an event (`self.context.peers.notify(self.context.handle, event)`).

    Raises:
        TypeError: *arguments* is no JSON object. If it is no usable schema, the agent
            does not start (`init_failed`).
    """
    mark = Mark(None if arguments is None else _schema(arguments))
    if method is not None:
        return _marked(method, mark)
    return lambda method: _marked(method, mark)


def _marked(method: M, mark: Mark) -> M:
    setattr(method, _MARK, mark)
    return method


def _schema(arguments: Mapping[str, object]) -> FrozenDict:
    try:
        frozen = freeze(arguments)
    except NotPlain as error:
        raise TypeError(f"a schema of arguments is JSON: {error}") from None
    if not isinstance(frozen, FrozenDict):
        raise TypeError(f"a schema of arguments is an object, not {type(arguments).__name__}")
    if _has_bytes(frozen):
        raise TypeError("a schema of arguments is JSON, which has no bytes")
    return frozen


def _has_bytes(value: Plain) -> bool:
    match value:
        case FrozenDict():
            return any(_has_bytes(item) for item in value.values())
        case tuple():
            return any(_has_bytes(item) for item in value)
        case _:
            return isinstance(value, bytes)


def offered(agent: object) -> dict[str, tuple[Mark, Method]]:
    """Return the functions that *agent* offers, bound to it, by their names."""
    found: dict[str, Mark] = {}
    # Looked up by hand, as a start does it each time: an attribute that is computed stays unread.
    for parent in reversed(type(agent).__mro__):
        for name, member in vars(parent).items():
            mark = getattr(member, _MARK, None)
            if isinstance(mark, Mark):
                found[name] = mark
            else:
                found.pop(name, None)
    return {name: (mark, getattr(agent, name)) for name, mark in sorted(found.items())}
