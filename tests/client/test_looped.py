"""The shell for asyncio: many tasks, one loop, and nothing missed or left."""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol import requests
from genagent_protocol.answers import Found, Listing
from genagent_protocol.envelopes import Admission, Credit, Down, Reply, Request, Submit
from genagent_protocol.errors import (
    CallTimeout,
    DaemonLost,
    NotReachable,
    ProcessDown,
    SendBufferFull,
    UsageError,
    VersionMismatch,
)
from genagent_protocol.reasons import NOCONNECTION, NOPROC
from genagentd.client import conversation
from genagentd.client.aio import AsyncClient
from support.fake_daemon import FakeDaemon, fake_daemon
from support.peer import a_ref, handle
from support.waiting import until


def listing(_request: Any) -> Listing:
    return Listing(rows=())


async def heard(fake: FakeDaemon, kind: type[Any], count: int = 1) -> Any:
    """Wait for what the daemon hears, without holding up the loop."""
    return await asyncio.to_thread(fake.wait_for, kind, count)


async def test_no_daemon_is_told_at_once(tmp_path: Path) -> None:
    """ZeroMQ itself would try for ever (D3)."""
    with pytest.raises(NotReachable, match="genagentd start"):
        await AsyncClient(tmp_path).connect()


async def test_a_daemon_of_another_version_is_told() -> None:
    """E039: typed, with both versions."""
    with fake_daemon(version=2) as fake, pytest.raises(VersionMismatch, match="2 to 2"):
        await AsyncClient(fake.run).connect()


async def test_a_daemon_that_does_not_welcome_is_not_waited_for_for_ever(fake: FakeDaemon) -> None:
    """The time to connect is bounded, whatever the other side does."""
    fake.silent = True

    with pytest.raises(NotReachable, match="50 ms"):
        await AsyncClient(fake.run).connect(timeout_ms=50)


async def test_tasks_share_a_client_and_each_gets_its_own_answer(fake: FakeDaemon) -> None:
    """Answers are matched by number, in whatever order they come."""
    fake.answer = lambda request: Found(handle=handle(request.name, name=request.name))
    async with AsyncClient(fake.run) as client:
        found = await asyncio.gather(*(client.whereis(number) for number in range(1, 201)))

    assert [one and one.name for one in found] == list(range(1, 201))


async def test_a_call_ends_at_its_limit_and_its_late_answer_is_dropped(fake: FakeDaemon) -> None:
    """E051, S116: the fate is unknown, and the next question gets its own answer."""
    async with AsyncClient(fake.run) as client:
        with pytest.raises(CallTimeout, match="within 20 ms"):
            await client.list(timeout_ms=20)
        late = await heard(fake, Request)
        fake.say(Reply(call=late.call, answer=Listing(rows=())))
        fake.answer = lambda _request: Found(handle=handle())

        assert await client.whereis("a", timeout_ms=10_000) == handle()


async def test_a_cancelled_call_is_over(fake: FakeDaemon) -> None:
    """A task may be cancelled while it waits; the client goes on."""
    async with AsyncClient(fake.run) as client:
        task = asyncio.create_task(client.list())
        await heard(fake, Request)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        fake.answer = listing

        assert await client.list(timeout_ms=10_000) == ()


async def test_a_message_is_not_lost_with_the_task_that_waited_for_it(fake: FakeDaemon) -> None:
    """A receive that was served and cancelled in the same moment puts the message back."""
    async with AsyncClient(fake.run) as client:
        task = asyncio.create_task(client.receive())
        await asyncio.sleep(0)
        own = client.shell.talk.own
        said = Admission(agent="a", ref=a_ref())
        own.put(said, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert await client.receive(0) == said


async def test_the_end_of_an_agent_ends_the_calls_to_it(fake: FakeDaemon) -> None:
    """S118: a process failure, not an answer."""
    async with AsyncClient(fake.run) as client:
        task = asyncio.create_task(client.at(handle()).poll(a_ref(), None))
        watch = (await heard(fake, Request)).request
        fake.say(Down(monitor=watch.monitor, handle=handle(), reason=NOPROC))

        with pytest.raises(ProcessDown, match="noproc"):
            await task


async def test_the_loss_of_the_daemon_ends_everything(fake: FakeDaemon) -> None:
    """E050: calls without a limit, receives without a limit, and one DOWN each monitor."""
    async with AsyncClient(fake.run) as client:
        box = client.mailbox()
        monitor = await client.at(handle()).monitor()
        call = asyncio.create_task(client.list())
        receive = asyncio.create_task(box.receive())
        await heard(fake, Request, 2)

        await asyncio.to_thread(fake.close)

        for task in (call, receive):
            with pytest.raises(DaemonLost):
                await task
        down = await client.receive()
        assert isinstance(down, Down)
        assert (down.monitor, down.reason) == (monitor, NOCONNECTION)
        sent = await client.at(handle()).submit_with_completion("p")
        assert sent.ref.incarnation == handle().incarnation


async def test_messages_can_be_iterated_and_selected(fake: FakeDaemon) -> None:
    """In the order of arrival, or by what they are about."""
    from genagentd.client.boxes import about

    async with AsyncClient(fake.run) as client:
        fake.say(*(Admission(agent="a", ref=a_ref(n)) for n in range(4)))
        chosen = await client.receive(10_000, matching=about(a_ref(2)))
        rest = []
        async for message in client:
            rest.append(message)
            if len(rest) == 3:
                break

    assert chosen == Admission(agent="a", ref=a_ref(2))
    assert rest == [Admission(agent="a", ref=a_ref(n)) for n in (0, 1, 3)]


async def test_what_arrives_is_taken_in_without_a_reader_and_credited(fake: FakeDaemon) -> None:
    """The loop reads for a client that is not looking, up to the bound of its mailbox."""
    async with AsyncClient(fake.run) as client:
        for number in range(6):
            fake.say(Admission(agent="x" * 400_000, ref=a_ref(number)))

        assert (await heard(fake, Credit)).bytes > 1_000_000
        assert client.shell.talk.own


async def test_a_client_belongs_to_its_loop(fake: FakeDaemon) -> None:
    """From another loop it says so instead of hanging."""
    fake.answer = listing
    errors: list[BaseException] = []

    async with AsyncClient(fake.run) as client:

        def elsewhere() -> None:
            try:
                asyncio.run(client.list())
            except UsageError as error:
                errors.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)

    assert [str(error) for error in errors] == [
        "this client belongs to another event loop; make one in this loop"
    ]


async def test_a_client_used_after_a_fork_says_so(fake: FakeDaemon) -> None:
    """E055."""
    fake.answer = listing
    async with AsyncClient(fake.run) as client:
        child = os.fork()
        if child == 0:
            os._exit(_in_the_child(client))
        _, status = await asyncio.to_thread(os.waitpid, child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert await client.list(timeout_ms=10_000) == ()


def _in_the_child(client: AsyncClient) -> int:
    try:
        client.shell.check()
    except UsageError as error:
        return 0 if "fork" in str(error) else 2
    except BaseException:
        traceback.print_exc()
    return 1


async def test_closing_waits_until_the_daemon_has_read_what_was_sent(fake: FakeDaemon) -> None:
    """A program may submit, close and exit (D2)."""
    async with AsyncClient(fake.run) as client:
        await client.at(handle()).submit_with_completion("x" * 4_000_000)

    assert any(isinstance(envelope, Submit) for envelope in fake.heard)


async def test_a_closed_client_says_so(fake: FakeDaemon) -> None:
    """Closing twice is fine; using it is not."""
    client = await AsyncClient(fake.run).connect()
    await client.close()
    await client.close()

    with pytest.raises(UsageError, match="closed"):
        await client.list()


async def test_telemetry_is_told_off_when_its_mailbox_closes(fake: FakeDaemon) -> None:
    """Nobody should be sent what nobody reads."""
    async with AsyncClient(fake.run) as client:
        async with await client.telemetry():
            pass
        off = await heard(fake, Request, 2)

    assert off.request == requests.WatchTelemetry(on=False)


async def test_a_task_that_only_sends_hears_what_was_taken_in(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may never let the loop read; what was sent in all is not held against it for ever."""
    monkeypatch.setattr(conversation, "SEND_BOUND_BYTES", 8_000)
    async with AsyncClient(fake.run) as client:
        to = client.at(handle())

        def goes() -> bool:
            try:
                to.submit_with_completion("x" * 1_000).send(None)
            except SendBufferFull:
                return False
            except StopIteration:
                return True
            raise AssertionError("it waits")

        while goes():
            pass
        fake.say(Credit(messages=100, bytes=10**9))

        assert until(goes, "the credit is heard")
