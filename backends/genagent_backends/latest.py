"""What was remembered last under names that others choose: so many of them, and no more.

A provider may name things without end, and each by a name of megabytes. Neither the
number of what is held here nor the length of a name is theirs to choose.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """The values that were put last; one more than *most*, and the oldest is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[bytes, T] = {}

    def __len__(self) -> int:
        return len(self._values)

    def put(self, value: T, *name: object) -> None:
        """Remember *value*, as the newest of all, under a name of JSON values."""
        key = _key(name)
        self._values.pop(key, None)
        self._values[key] = value
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]

    def pop(self, *name: object) -> T | None:
        """Forget and return what is remembered under *name*."""
        return self._values.pop(_key(name), None)


def _key(name: tuple[object, ...]) -> bytes:
    return sha256(repr(name).encode()).digest()
