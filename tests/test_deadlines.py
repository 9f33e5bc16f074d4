"""A deadline is reported once when it passes, and never after it was disarmed."""

from __future__ import annotations

import asyncio

import pytest

from genagentd.deadlines import Deadlines
from support.wires import until


async def test_a_deadline_is_reported_once_by_its_name() -> None:
    """The machine hears a fact, not a timer."""
    passed: list[str] = []
    deadlines = Deadlines(passed.append)

    deadlines.arm("watchdog", 1)
    await until(lambda: passed, "it passed")
    deadlines.arm("another", 1)
    await until(lambda: len(passed) == 2, "the other one passed")

    assert passed == ["watchdog", "another"]


async def test_deadlines_pass_in_the_order_of_their_moments() -> None:
    """Not in that in which they were armed."""
    passed: list[int] = []
    deadlines = Deadlines(passed.append)

    for after_ms in (30, 10, 20):
        deadlines.arm(after_ms, after_ms)

    await until(lambda: len(passed) == 3, "all passed")
    assert passed == [10, 20, 30]


async def test_a_disarmed_deadline_never_passes() -> None:
    """A turn that ended must not be timed out."""
    passed: list[str] = []
    deadlines = Deadlines(passed.append)
    deadlines.arm("disarmed", 1)
    deadlines.arm("later", 2)

    deadlines.disarm("disarmed")

    await until(lambda: passed, "the later one passed")
    assert passed == ["later"]


async def test_disarming_what_is_not_armed_is_nothing() -> None:
    """It may have passed a moment ago."""
    passed: list[str] = []
    deadlines = Deadlines(passed.append)
    deadlines.arm("one", 0)
    await until(lambda: passed, "it passed")

    deadlines.disarm("one")
    deadlines.disarm("never armed")

    assert passed == ["one"]


async def test_arming_again_replaces_the_older_one() -> None:
    """One name is one deadline."""
    passed: list[str] = []
    deadlines = Deadlines(passed.append)
    deadlines.arm("one", 1)
    deadlines.arm("one", 3)
    deadlines.arm("between", 2)
    deadlines.arm("last", 4)

    await until(lambda: "last" in passed, "the last one passed")

    assert passed == ["between", "one", "last"]


async def test_what_passes_may_be_armed_anew_from_inside() -> None:
    """A machine that hears of one deadline may order the next at once."""
    passed: list[int] = []

    def again(number: int) -> None:
        passed.append(number)
        if number < 3:
            deadlines.arm(number + 1, 0)
        deadlines.arm(100, 10_000)

    deadlines = Deadlines(again)
    deadlines.arm(1, 0)

    await until(lambda: len(passed) == 3, "all passed")
    deadlines.disarm_all()
    assert passed == [1, 2, 3]


async def test_disarming_all_leaves_nothing_that_wakes_the_loop() -> None:
    """A process without a deadline sleeps."""
    passed: list[str] = []
    deadlines = Deadlines(passed.append)
    for name in ("a", "b", "c"):
        deadlines.arm(name, 1)

    deadlines.disarm_all()

    deadlines.arm("after", 2)
    await until(lambda: passed, "one armed later passed")
    assert passed == ["after"]


async def test_a_listener_that_fails_does_not_keep_the_deadline() -> None:
    """It passed; hearing of it was the other side's part."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: failures.append(what))

    def fail(_name: str) -> None:
        raise ValueError("a bug")

    deadlines = Deadlines(fail)
    deadlines.arm("one", 0)
    await until(lambda: failures, "it failed")

    deadlines.disarm("one")
    assert len(failures) == 1


def test_a_deadline_needs_a_running_loop() -> None:
    """Nobody would ever report it."""
    deadlines: Deadlines[str] = Deadlines(lambda _name: None)

    with pytest.raises(RuntimeError):
        deadlines.arm("one", 1)
