"""What is inside a session, as text: two that have the same text hold the same.

A session is whatever a backend likes. Many have no equality, or one that compares no
more than identity, and what they print leaves out what nobody should see. So this
looks at what an object would be copied from, and what that is made of.

What cannot be copied, such as a lock, counts for its class, and a function for its name.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType

#: Deeper than any session is; what is below belongs to the machinery that one may hold.
DEEPEST = 32
LONGEST = 256


def inside(value: object) -> str:
    """Return what *value* holds at this moment; it is not changed."""
    return _Look().at(value, DEEPEST)


class _Look:
    """One look. It keeps what it has seen, so that nothing new gets the identity of that."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[object, str]] = {}

    def at(self, value: object, depth: int) -> str:
        if value is None or type(value) in (bool, int, float, complex, str, bytes):
            return _short(repr(value))
        if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
            return getattr(value, "__qualname__", value.__name__)
        if id(value) not in self._seen:
            self._seen[id(value)] = value, "(itself)"
            parts = self._parts(value, depth - 1) if depth > 0 else iter(())
            said = f"{type(value).__qualname__}({', '.join(parts)})"
            self._seen[id(value)] = value, _short(said)
        return self._seen[id(value)][1]

    def _parts(self, value: object, depth: int) -> Iterator[str]:
        if type(value) is tuple:
            yield from (self.at(item, depth) for item in value)
        elif isinstance(value, set | frozenset):
            yield from sorted(self.at(item, depth) for item in value)
        elif type(value) is dict:
            pairs = value.items()
            yield from sorted(f"{self.at(key, depth)}: {self.at(of, depth)}" for key, of in pairs)
        elif not isinstance(value, asyncio.AbstractEventLoop):
            for part in _copied_from(value):
                yield self.at(part, depth)


def _copied_from(value: object) -> tuple[object, ...]:
    try:
        found = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # a class may refuse in any way it likes
        return ()
    if isinstance(found, str):
        return (found,)
    # How it is made, from what, its state, and the items of a list and of a mapping.
    made, arguments, *rest = found
    state, items, pairs = (*rest, None, None, None)[:3]
    return made, arguments, state, tuple(items or ()), tuple(pairs or ())


def _short(said: str) -> str:
    if len(said) <= LONGEST:
        return said
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
