"""Agents for fault tests: scripted ones, what their turns started, and who of it still lives.

A process is remembered by pid and start tick, so that "it is gone" is never said of a
stranger that got its number.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

from genagent_protocol.envelopes import Admission, Completion, Down, EventMessage
from genagent_protocol.errors import Refused
from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd import kernel
from genagentd.client.boxes import Message
from genagentd.client.client import Client
from support.waiting import until

#: The directory from which agent processes can import what tests bring along.
HERE = Path(__file__).parents[1]

#: One process for certain.
Identity: TypeAlias = tuple[int, int]
Turn: TypeAlias = list[Mapping[str, object]]

SAYS: Turn = [{"kind": "text", "text": "done"}, {"kind": "result"}]
HANGS: Turn = [{"kind": "text", "text": "begun"}, {"hang": "idle"}]
#: A provider's program, and a tool of it in a session of its own, and a turn that does not end.
BUSY: Turn = [{"spawn": "grandchild"}, {"hang": "idle"}]
#: The tool's parent has left; nothing but adoption leads to it.
BUSY_WITH_ORPHAN: Turn = [{"spawn": "grandchild"}, {"spawn": "orphan"}, {"hang": "idle"}]


def start(
    client: Client,
    name: str,
    *turns: Turn,
    agent: str | None = None,
    options: Mapping[str, object] | None = None,
    **terms: Any,
) -> AgentHandle:
    """Start a scripted agent that plays *turns* in order, again and again.

    *agent* is a class of `support.faulty_agents`; without it the plain agent is used.
    """
    script = {"script": list(turns or (SAYS,)), "repeat": True, **(options or {})}
    terms.setdefault("cwd", HERE)
    spelled = None if agent is None else f"support.faulty_agents:{agent}"
    return client.start_agent(spelled, name=name, backend="scripted", options=script, **terms)


def begin(
    client: Client, handle: AgentHandle, spawns: int = 1
) -> tuple[RequestRef, list[Identity]]:
    """Submit a prompt and wait until its turn has started so many times something; return those."""
    ref = client.at(handle).submit_with_completion("go", stream_to=client.address).ref
    found: list[Identity] = []
    for _ in range(spawns):
        found += identities(cast("Iterable[int]", event(client, ref, "spawned")["pids"]))
    return ref, found


def event(client: Client, ref: RequestRef, kind: str, within_ms: int = 30_000) -> Mapping[str, Any]:
    """Wait for the next event of that kind and return its data."""

    def matches(message: Message) -> bool:
        return (
            isinstance(message, EventMessage) and message.ref == ref and message.event.kind == kind
        )

    found = client.receive(within_ms, matching=matches)
    assert isinstance(found, EventMessage), f"no {kind} event came"
    return found.event.data


def admission(client: Client, ref: RequestRef, within_ms: int = 30_000) -> Admission:
    """Wait for the admission of that request."""
    found = client.receive(within_ms, matching=lambda m: isinstance(m, Admission) and m.ref == ref)
    assert isinstance(found, Admission), "no admission came"
    return found


def completion(client: Client, ref: RequestRef, within_ms: int = 30_000) -> Completion:
    """Wait for the completion of that request."""
    found = client.receive(within_ms, matching=lambda m: isinstance(m, Completion) and m.ref == ref)
    assert isinstance(found, Completion), "no completion came"
    return found


def down(client: Client, handle: AgentHandle, within_ms: int = 30_000) -> Down:
    """Wait for a DOWN of that process; it must be monitored."""
    found = client.receive(
        within_ms,
        matching=lambda m: isinstance(m, Down) and m.handle.incarnation == handle.incarnation,
    )
    assert isinstance(found, Down), "no DOWN came"
    return found


def rest(client: Client, within_ms: int = 0) -> Iterator[Message]:
    """Yield what is in the mailbox already, and what comes within a moment after each."""
    while (message := client.receive(within_ms)) is not None:
        yield message


def stop_all(client: Client) -> None:
    """Stop every agent that is there; one that is dying may be gone before it is stopped."""
    for row in client.list():
        try:
            client.stop(row.name)
        except Refused as refused:
            if refused.reason.code != "not_found":
                raise


def identities(pids: Iterable[int]) -> list[Identity]:
    """Return *pids* with the ticks at which those processes started."""
    return [(pid, kernel.started_ticks(pid)) for pid in pids]


def of(handle: AgentHandle) -> Identity:
    """Return the process of *handle*."""
    return handle.pid, handle.started_ticks


def tree(pid: int) -> list[Identity]:
    """Return everything below *pid* now."""
    return identities(kernel.descendants(pid))


def alive(found: Iterable[Identity]) -> list[int]:
    """Return the pids of those that run; zombies do not."""
    return [pid for pid, ticks in found if kernel.is_alive(pid, ticks)]


def gone(found: Collection[Identity], within_s: float = 30) -> float:
    """Wait until none of them runs, and return for how many milliseconds."""
    began = time.monotonic()
    until(lambda: not alive(found), f"these are gone: {alive(found)}", within_s)
    return (time.monotonic() - began) * 1000


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Keep process *pid* from running meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
