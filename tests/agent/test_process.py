"""The process around a life: its exit status, its threads, and the loss of its daemon."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading

import pytest

from genagent_protocol import envelopes, requests
from genagent_protocol.answers import Snapshot
from genagent_protocol.reasons import SHUTDOWN
from genagentd.agent.entry import ORPHANED_S
from support.agent_life import (
    DEADLINE_S,
    living,
    living_process,
    newborn_process,
    start,
)
from support.recorders import ENDED

RESULT = {"kind": "result", "text": "done"}
TEXT = {"kind": "text", "text": "hi"}


async def test_an_agent_without_its_daemon_ends_in_order_and_not_late() -> None:
    """Its callbacks run, its turn stops, and an alarm is set in case they do not (S235)."""
    script = {"script": [[TEXT, {"hang": "idle"}]]}
    async with living("support.recorders:Recorder", options={"backend": script}) as agent:
        agent.submit("go", stream=True)
        await agent.next(envelopes.EventMessage)
        agent.connection.close()
        status = await asyncio.wait_for(agent.life, DEADLINE_S)

        assert status == 70
        assert agent.alarms == [ORPHANED_S]
        assert ENDED[-1] == "registry_lost: pre_run pre_turn go"


async def test_nobody_else_finds_an_agent_that_its_daemon_has_found() -> None:
    """What nobody can connect to needs no guard against crowds."""
    async with living(options={"script": [[RESULT]]}) as agent:
        assert await agent.answered("go") == "done"
        with socket.socket(socket.AF_UNIX) as looking, pytest.raises(FileNotFoundError):
            looking.connect(agent.path)


async def test_the_turns_thread_begins_with_the_first_turn_and_ends_with_the_agent() -> None:
    """An idle agent pays for one thread."""

    def turning() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "turn"]

    before = len(turning())
    async with living(options={"script": [[RESULT]]}) as agent:
        assert len(turning()) == before
        await agent.answered("go")
        (thread,) = turning()[before:]
        await agent.stop()
    thread.join(DEADLINE_S)

    assert not thread.is_alive()


@pytest.mark.process
async def test_an_orderly_exit_is_a_status_of_zero_and_leaves_nothing_unsaid() -> None:
    """What was said last arrives although the process ends right after it."""
    script = [[{"many": 500, "event": TEXT}, RESULT]]
    async with living_process(options={"script": script}) as agent:
        agent.submit("go", stream=True)
        agent.say(envelopes.StopAsked(reason=SHUTDOWN, drain=True))
        last = await agent.ended()
        await asyncio.wait_for(agent.gone.wait(), DEADLINE_S)

        assert last.reason == SHUTDOWN
        assert await agent.life == 0
        assert len(agent.told(envelopes.EventMessage)) == 501
        assert len(agent.told(envelopes.Completion)) == 1


@pytest.mark.process
@pytest.mark.parametrize(
    ("step", "status"), [({"os_exit": 3}, 3), ({"kill": "SIGSEGV"}, -signal.SIGSEGV)]
)
async def test_what_ends_the_process_ends_the_agent(step: object, status: int) -> None:
    """The kernel's word is the whole story; no last word is invented."""
    async with living_process(options={"script": [[step]]}) as agent:
        agent.submit("go")

        assert await asyncio.wait_for(agent.life, DEADLINE_S) == status
        assert agent.told(envelopes.Exiting) == []


@pytest.mark.process
async def test_a_signal_to_the_process_has_its_usual_effect() -> None:
    """Orderly ends are asked for over the channel."""
    async with living_process(options={"script": []}) as agent:
        assert agent.process is not None
        agent.process.send_signal(signal.SIGTERM)

        assert await asyncio.wait_for(agent.life, DEADLINE_S) == -signal.SIGTERM


@pytest.mark.process
async def test_the_exit_of_a_task_that_nobody_awaits_does_not_end_the_agent() -> None:
    """asyncio lets it through; it was nobody's decision."""
    async with living_process("support.recorders:Straying", options={"script": []}) as agent:
        await agent.notified("tick")
        assert await agent.shown() == 1
        snapshot = await agent.call(requests.GetSnapshot())
        assert isinstance(snapshot, Snapshot)


@pytest.mark.process
async def test_a_coordinator_answers_while_a_turn_computes_or_blocks() -> None:
    """Blocking the turn's thread makes nobody wait."""
    turns = [[TEXT, {"hang": how, "for_ms": 400}, RESULT] for how in ("busy", "blocked")]
    async with living_process(options={"script": turns}) as agent:
        for _ in turns:
            ref = agent.submit("go", stream=True)
            await agent.next(envelopes.EventMessage)
            snapshot = await agent.call(requests.GetSnapshot())
            assert snapshot.phase == "processing"
            assert ref not in {said.ref for said in agent.told(envelopes.Completion)}
            await agent.completion(ref)


@pytest.mark.process
async def test_only_the_parent_process_is_let_in() -> None:
    """Whoever else comes while it can be found is turned away before it can say anything."""
    stranger = """
import socket, sys
with socket.socket(socket.AF_UNIX) as forger:
    forger.connect(sys.argv[1])
    assert forger.recv(64) == b""
"""

    async def forge(path: str) -> None:
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", stranger, path)
        assert await other.wait() == 0

    wanted = start(None, "scripted", {"script": [[RESULT]]})
    async with newborn_process(wanted, before=forge) as agent:
        assert await agent.answered("go") == "done"
