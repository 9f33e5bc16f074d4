"""What all patterns share: a voice for each agent, starting all or none and stopping them, waiting.

A voice is a backend with its options; the same agent class speaks with any. Waiting
needs no polling loop in a hurry: telemetry says *when* to look, the agent says *what*
is so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from genagent_protocol.plain import FrozenDict
from genagentd import AgentHandle, AgentSpec, Client, Refused

Fact = TypeVar("Fact")

#: Where an agent process finds the package `examples`.
HOME = Path(__file__).resolve().parents[2]
#: A real provider may take minutes for a turn.
LONG_MS = 600_000
#: Look again after this long even if nothing was heard: telemetry may be lost.
LOOK_AGAIN_MS = 200


@dataclass(frozen=True)
class Voice:
    """A backend, and the options it gets."""

    backend: str
    options: Mapping[str, object] = field(default_factory=dict)


def of_voice(options: FrozenDict) -> FrozenDict:
    """Return the backend's options among an agent's start options."""
    found = options["backend"]
    assert isinstance(found, FrozenDict)
    return found


def cast(
    agent: type,
    name: str,
    voice: Voice,
    *,
    limits: Mapping[str, object] | None = None,
    may_start: bool = False,
    **options: object,
) -> AgentSpec:
    """Return the start of *agent* under *name*; *options* reach its `init_agent`."""
    return AgentSpec(
        agent=agent,
        name=name,
        backend=voice.backend,
        options={"backend": voice.options, **options},
        limits=limits or {},
        cwd=HOME,
        may_start=may_start,
    )


def start_all(client: Client, specs: Iterable[AgentSpec]) -> list[AgentHandle]:
    """Start every agent, or none: if one fails, those before it are stopped again.

    Only what was started here is stopped. Who already held a name keeps it.

    Raises:
        StartFailed: one could not be started; the others are gone.
    """
    started: list[AgentHandle] = []
    try:
        started.extend(client.start_agent(spec) for spec in specs)
    except BaseException:
        stop_all(client, reversed(started))
        raise
    return started


def stop_all(client: Client, handles: Iterable[AgentHandle]) -> None:
    """Stop exactly these processes, as far as they are still there."""
    for handle in handles:
        # A name may belong to somebody else by now.
        if client.whereis(handle.name) == handle:
            with contextlib.suppress(Refused):
                client.stop(handle.name)


@contextlib.contextmanager
def stopping(client: Client, handles: Iterable[AgentHandle]) -> Iterator[None]:
    """Stop exactly these processes when the block is left, however it is left."""
    try:
        yield
    finally:
        stop_all(client, handles)


def shown(client: Client, name: str, timeout_ms: int | None = None) -> Mapping[str, Any]:
    """Return what the agent of that name shows of its state, if that is a mapping."""
    state = client.status(name, timeout_ms).agent_state
    assert isinstance(state, FrozenDict)
    return state


class Watch:
    """Waits until something is so, looking whenever an agent has done anything."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._records = client.telemetry()

    def until(self, fact: Callable[[], Fact | None], what: str, within_ms: int = LONG_MS) -> Fact:
        """Return what *fact* returns as soon as that is true.

        Raises:
            TimeoutError: it was not within *within_ms*.
        """
        deadline = time.monotonic() + within_ms / 1000
        while not (found := fact()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"within {within_ms} ms it did not come to this: {what}")
            self._records.receive(LOOK_AGAIN_MS)
            while self._records.receive(0) is not None:
                pass
        return found

    def until_halted(self, names: Iterable[str], within_ms: int = LONG_MS) -> None:
        """Return when every agent of these names has halted; raises as `until`."""
        waiting = list(names)
        self.until(
            lambda: all(self._client.runtime_snapshot(name).halted for name in waiting),
            f"{', '.join(waiting)} halted",
            within_ms,
        )

    def close(self) -> None:
        """Stop listening."""
        self._records.close()


@contextlib.contextmanager
def watching(client: Client) -> Iterator[Watch]:
    """Give a watch that hears everything from now on."""
    watch = Watch(client)
    try:
        yield watch
    finally:
        watch.close()
