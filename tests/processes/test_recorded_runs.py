"""Real agent processes, recorded from inside and replayed on the value: the same orders again.

What is kept in `tests/protocol/turns/recordings/real_*.txt` was recorded by these tests:
`KEEP_RECORDINGS=1` writes it anew.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.refs import AgentHandle
from genagent_protocol.turns.recording import replay
from genagentd.client.client import Client
from support import fleet

pytestmark = pytest.mark.process

KEPT = Path(__file__).parents[1] / "protocol" / "turns" / "recordings"
SAYS: fleet.Turn = [{"kind": "text", "text": "hello"}, {"kind": "result", "text": "hello"}]
HANGS: fleet.Turn = [{"kind": "text", "text": "begun"}, {"hang": "idle"}]


def recorded(client: Client, path: Path, *turns: fleet.Turn, **options: Any) -> AgentHandle:
    """Start an agent that is recorded in *path* and plays *turns*."""
    given = {"recording": str(path), "backend": {"script": list(turns)}, **options}
    return client.start_agent(
        "support.recorded_agents:Recorded",
        name="a",
        backend="scripted",
        options=given,
        cwd=fleet.HERE,
    )


def replays(path: Path, name: str) -> list[str]:
    """Fail unless the recording is what its inputs make; return its inputs' names."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert list(replay(lines)) == lines
    if os.environ.get("KEEP_RECORDINGS") == "1":
        (KEPT / f"real_{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [line[2:].partition("(")[0] for line in lines if line.startswith("> ")]


def test_a_life_with_everything_that_callers_do(client: Client, tmp_path: Path) -> None:
    """Streams, a retry, a self-chain, a queue, a cancel, an interrupt, a halt, a drain."""
    path = tmp_path / "recording"
    handle = recorded(
        client,
        path,
        SAYS,
        [{"checkpoint": "s-1"}, {"kind": "error", "reason": "once"}],
        SAYS,
        SAYS,
        HANGS,
        SAYS,
        SAYS,
        on={"handle_error": [{"prompt": "again"}], "handle_response": [{}, {"prompt": "chained"}]},
    )
    at = client.at(handle)
    assert client.ask("a", "first").text == "hello"
    assert client.ask("a", "fails once").text == "hello"
    client.notify_ack("a", {"some": "event"})
    running = at.submit_with_completion("hangs", stream_to=client.address).ref
    fleet.event(client, running, "text")
    queued = client.tell("a", "queued")
    cancelled = client.tell("a", "cancelled")
    assert at.cancel_request(cancelled) is not None
    client.runtime_snapshot("a")
    assert at.interrupt_request(running) is not None
    fleet.completion(client, running)
    client.halt("a")
    waiting = client.tell("a", "waits for a resume")
    client.status("a")
    client.resume("a")
    for ref in (queued, waiting):
        client.poll("a", ref)
    client.drain("a")

    told = replays(path, "callers")

    assert {
        "PromptSubmitted",
        "TurnEventReceived",
        "CheckpointRequested",
        "CancelRequested",
        "SnapshotRequested",
        "StatusRequested",
        "HaltRequested",
        "ResumeRequested",
        "NotificationReceived",
        "TurnStopped",
        "DrainRequested",
        "CallbackReturned",
    } <= set(told)


def test_the_recording_of_a_killed_agent_ends_where_it_died(client: Client, tmp_path: Path) -> None:
    """Nothing of it is made up afterwards, and it replays all the same."""
    path = tmp_path / "recording"
    handle = recorded(client, path, HANGS)
    client.at(handle).monitor()
    running = client.at(handle).submit_with_completion("hangs", stream_to=client.address).ref
    fleet.event(client, running, "text")

    os.kill(handle.pid, signal.SIGKILL)
    fleet.down(client, handle)

    told = replays(path, "killed")

    assert "TurnEventReceived" in told
    assert not {"TurnEnded", "TurnCrashed", "TurnStopped"} & set(told)
