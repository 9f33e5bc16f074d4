"""Time limits: in a task at rest, in one that is being cancelled, and when both happen at once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from genagent_backends.timeouts import timeout, timeout_at


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_what_takes_too_long_is_told() -> None:
    """And the task is as it was before."""
    with pytest.raises(TimeoutError):
        async with timeout(0.001):
            await for_ever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("seconds", [None, 60])
async def test_what_is_in_time_is_not_disturbed(seconds: float | None) -> None:
    """Nothing of the limit is left behind."""
    async with timeout(seconds) as limit:
        await asyncio.sleep(0)
    assert (limit.when() is None) is (seconds is None)


async def test_a_moment_that_has_passed_lets_nothing_wait() -> None:
    """The moment is by the loop's time."""
    with pytest.raises(TimeoutError):
        async with timeout_at(asyncio.get_running_loop().time() - 1):
            await for_ever()


async def test_it_can_be_brought_forward() -> None:
    """What is waited for may change while somebody waits."""

    async def brought_forward() -> None:
        async with timeout(None) as limit:
            limit.reschedule(0)
            await for_ever()

    with pytest.raises(TimeoutError):
        await brought_forward()


async def test_it_can_be_taken_back() -> None:
    """Then it is none."""
    async with timeout_at(0) as limit:
        limit.reschedule(None)
        await asyncio.sleep(0)


async def test_an_error_of_the_body_is_its_own() -> None:
    """Also one that the limit provoked."""
    with pytest.raises(LookupError):
        async with timeout_at(0):
            await _fails_when_cancelled()


async def _fails_when_cancelled() -> None:
    try:
        await for_ever()
    except asyncio.CancelledError:
        raise LookupError from None


async def test_it_holds_in_a_task_that_is_being_cancelled() -> None:
    """There Python 3.11.2 says `CancelledError`, and the rest of a `finally` is skipped."""
    told = asyncio.Event()

    async def body() -> None:
        try:
            await for_ever()
        finally:
            with contextlib.suppress(TimeoutError):
                async with timeout(0.001):
                    await for_ever()
            told.set()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert told.is_set()
    assert task.cancelled()


async def test_a_cancellation_beside_the_limit_is_not_swallowed() -> None:
    """Who is cancelled and late at once is cancelled."""

    async def body() -> None:
        async with timeout_at(0):
            await for_ever()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_the_outer_of_two_limits_is_told_outside() -> None:
    """The inner one lets it pass."""

    async def both() -> str:
        try:
            async with timeout(60):
                await for_ever()
        except TimeoutError:
            return "the inner one"
        return "none"

    with pytest.raises(TimeoutError):
        async with timeout(0.001):
            await both()
