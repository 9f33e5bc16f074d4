"""Time limits that no single poll can hold are kept all the same."""

from __future__ import annotations

import asyncio

import pytest

from genagent_protocol.envelopes import Admission, Request
from genagentd.client.aio import AsyncClient
from genagentd.client.client import Client
from support.background import in_background
from support.fake_daemon import FakeDaemon
from support.peer import a_ref
from support.waiting import until

LIMITS = pytest.mark.parametrize("limit_ms", [2**31 - 1, 2**31, 2**32, 2**63, 10**400])
SAID = Admission(agent="a", ref=a_ref())


@LIMITS
def test_a_thread_waits_as_long_as_it_was_told(fake: FakeDaemon, limit_ms: int) -> None:
    """One sleeps on the descriptors and the other on the first; both get their message."""
    with Client(fake.run) as client:
        reader = in_background(lambda: client.receive(limit_ms))
        until(lambda: client.shell._reader is not None, "the first one sleeps")
        follower = in_background(lambda: client.list(timeout_ms=limit_ms))
        fake.wait_for(Request)
        until(lambda: client.shell._followers, "the second one sleeps")

        fake.say(SAID)
        assert reader.result(30) == SAID
        client.close()
        with pytest.raises(Exception, match="list"):
            follower.result(30)


@LIMITS
async def test_a_task_waits_as_long_as_it_was_told(fake: FakeDaemon, limit_ms: int) -> None:
    """The loop's timers take any time that a clock can hold."""
    async with AsyncClient(fake.run) as client:
        receiver = asyncio.create_task(client.receive(limit_ms))
        await asyncio.sleep(0)
        fake.say(SAID)
        assert await receiver == SAID


@pytest.mark.parametrize("limit_ms", [2**31 - 1, 2**31, 2**32, 2**63])
def test_connecting_may_take_as_long_as_one_likes(fake: FakeDaemon, limit_ms: int) -> None:
    """A limit beyond what one poll can hold is no reason not to connect."""
    with Client(fake.run).connect(timeout_ms=limit_ms) as client:
        assert client.receive(0) is None
