"""A process on the event loop: read, written, ended, and never waited for in vain."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from genagent_backends import loop_process
from genagent_backends.loop_process import LoopProcess
from genagentd import kernel
from support.tracers import tracing

# What a killed program began is ours to reap then, and would be a child that a later test meets.
pytestmark = pytest.mark.usefixtures("nothing_left")


class Started:
    """Processes of one test, closed when it ends."""

    def __init__(self) -> None:
        self.processes: list[LoopProcess] = []

    def sh(self, script: str, grace_ms: int = 1_000) -> LoopProcess:
        self.processes.append(LoopProcess(["/bin/sh", "-c", script], grace_ms=grace_ms))
        return self.processes[-1]


@pytest.fixture
async def started() -> AsyncIterator[Started]:
    made = Started()
    yield made
    for process in made.processes:
        await process.close()


async def everything(process: LoopProcess) -> bytes:
    said = b""
    while data := await process.read():
        said += data
    return said


async def test_what_was_written_can_be_read_while_it_is_written(started: Started) -> None:
    """Both pipes would otherwise fill, and both sides wait."""
    process, data = started.sh("cat"), b"x" * 1_000_000

    async def feed() -> None:
        await process.write(data)
        await process.close_stdin()

    said, _ = await asyncio.gather(everything(process), feed())

    assert said == data
    assert await process.wait() == 0


async def test_another_loop_may_write_read_and_end_it(started: Started) -> None:
    """A session ends in another loop than its turns had."""
    process = started.sh("read line; echo heard $line; exec sleep 100")

    async def elsewhere() -> tuple[bytes, int]:
        await process.write(b"you\n")
        await process.close_stdin()
        return await process.read(), await process.end()

    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    said, ended = await asyncio.to_thread(asyncio.run, elsewhere())

    assert said == b"heard you\n"
    assert (ended, await waiting) == (-signal.SIGINT, -signal.SIGINT)


async def test_a_loop_that_was_closed_while_it_waited_keeps_nobody_waiting(
    started: Started,
) -> None:
    """A session may be waited for in a loop that ends before it does."""
    process = started.sh("read line")

    def leave_waiting() -> asyncio.Task[int]:
        loop = asyncio.new_event_loop()
        left = loop.create_task(process.wait())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        return left

    left = await asyncio.to_thread(leave_waiting)
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    await process.close_stdin()

    assert await asyncio.wait_for(waiting, 30) == 1
    assert not left.done()


async def test_a_process_is_killed_and_reaped_without_its_loop(started: Started) -> None:
    """Its loop may be kept busy by somebody else for ever."""
    process = started.sh("trap '' INT TERM; echo ready; sleep 100", grace_ms=3_600_000)
    assert await process.read() == b"ready\n"
    process.kill()

    assert process.returncode == -signal.SIGKILL
    assert await process.wait() == -signal.SIGKILL


async def test_a_peer_that_does_not_listen_is_no_error(started: Started) -> None:
    """It may know enough, or be dead."""
    process = started.sh("exec <&-; echo done")
    await process.write(b"x" * 1_000_000)
    await process.close_stdin()
    await process.close_stdin()

    assert await everything(process) == b"done\n"
    assert await process.wait() == 0


async def test_cancelling_a_read_loses_nothing(started: Started) -> None:
    """A clock may end the wait just before the data come."""
    process = started.sh("read line; echo $line")
    reading = asyncio.create_task(process.read())
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait({reading})
    await process.write(b"kept\n")

    assert await everything(process) == b"kept\n"


async def test_all_of_standard_error_is_seen_once_the_exit_is(started: Started) -> None:
    """What a program says before it dies says why."""
    process = started.sh("printf '\\033[31mlast\\a words' >&2; exit 3")

    assert await process.wait() == 3
    assert process.stderr_tail == "[31mlast words"


async def test_the_tail_of_standard_error_is_its_end(started: Started) -> None:
    """The beginning of a flood is dropped, not its end."""
    process = started.sh("head -c 100000 /dev/zero | tr '\\0' x >&2; printf end >&2")
    await process.wait()

    assert len(process.stderr_tail) == 8_192
    assert process.stderr_tail.endswith("xend")


@pytest.mark.parametrize(
    ("ignored", "status"),
    [("", -signal.SIGINT), ("INT", -signal.SIGTERM), ("INT TERM", -signal.SIGKILL)],
)
async def test_signals_get_harder(started: Started, ignored: str, status: int) -> None:
    """Politeness first, but not for ever; and again is at once."""
    process = started.sh(f"trap '' {ignored or 'HUP'}; echo ready; exec sleep 100", grace_ms=50)
    assert await process.read() == b"ready\n"

    assert await process.end() == status
    assert await process.end() == status


async def test_without_the_interrupt_the_end_begins_harder(started: Started) -> None:
    """Some programs take an interrupt for a request to go on."""
    process = started.sh("exec sleep 100")

    assert await process.end("SIGTERM") == -signal.SIGTERM


async def test_an_end_at_once_gives_no_grace(started: Started) -> None:
    """A turn may be waiting for the end of a program that will not listen."""
    process = started.sh("trap '' INT TERM; echo ready; sleep 100", grace_ms=3_600_000)
    assert await process.read() == b"ready\n"

    assert await process.end("SIGKILL") == -signal.SIGKILL


async def test_the_group_goes_with_its_leader(started: Started) -> None:
    """Also when the leader has gone first."""
    process = started.sh("sleep 100 & echo begun")
    assert await process.read() == b"begun\n"
    await process.wait()
    await process.end()

    # The pipe ends only when the child, too, has let it go.
    assert await everything(process) == b""


async def test_a_program_that_is_not_there_cannot_be_started() -> None:
    """And leaves nothing open."""
    with pytest.raises(FileNotFoundError):
        LoopProcess(["/no/such/program"])


async def test_a_loop_does_not_stand_still_until_a_tracer_has_been_told(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_process, "TRACED_S", 0.001)
    process = started.sh("exec sleep 100")

    with tracing(process.pid):
        os.kill(process.pid, signal.SIGKILL)
        kernel.await_end(process.pid)
        for _ in range(100):
            await asyncio.sleep(0)
        assert process.returncode is None

    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL
