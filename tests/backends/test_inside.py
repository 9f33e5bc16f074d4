"""What is inside a session: told from its content, not from its identity or its print."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given

from genagent_backends.inside import inside
from support.plain_values import loose


class Box:
    def __init__(self, held: object) -> None:
        self.held = held

    def __repr__(self) -> str:
        return "Box()"


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held


@dataclass(frozen=True, slots=True)
class Record:
    held: object = field(repr=False, compare=False)


class Own(list[object]):
    """A list of a class of its own."""


HOLDERS: list[Any] = [Box, Slotted, Record, lambda held: Own([held]), lambda held: deque([held])]


@pytest.mark.parametrize("hold", HOLDERS)
@given(one=loose, other=loose)
def test_two_that_hold_the_same_are_alike_and_no_others(
    hold: Any, one: object, other: object
) -> None:
    """Equality and print of an object may be anything, or nothing."""
    assert inside(hold(one)) == inside(hold(copy.deepcopy(one)))
    assert (inside(hold(one)) == inside(hold(other))) == (repr_of(one) == repr_of(other))


def repr_of(value: object) -> object:
    """Return *value* in an order of its own, so that mappings compare as mappings do."""
    match value:
        case dict():
            return "dict", sorted((key, repr(repr_of(item))) for key, item in value.items())
        case list() | tuple():
            return type(value).__name__, [repr_of(item) for item in value]
        case _:
            return type(value).__name__, repr(value)


@given(value=loose)
def test_what_changed_in_its_place_is_seen(value: object) -> None:
    """An object that was changed is equal to itself, as ever."""
    box = Box([value])
    before = inside(box)
    assert isinstance(box.held, list)
    box.held.append(value)

    assert inside(box) != before


async def test_machinery_is_looked_at_and_changes_nothing() -> None:
    """Locks, loops and what holds itself are no reason to raise."""
    box = Box([threading.Lock(), asyncio.get_running_loop(), print, Box, len])
    assert isinstance(box.held, list)
    box.held.append(box)
    deep: object = box
    for _ in range(10_000):
        deep = Box(deep)

    assert inside(box) == inside(box)
    assert inside(deep) == inside(deep)
