"""A scene for a scenario: one client, gates, and agents whose every callback is written down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from genagent_backends.gates import Gates
from genagent_protocol.answers import PollPending
from genagent_protocol.envelopes import Completion, Telemetry
from genagent_protocol.events import Outcome
from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd.client.calls import PollResult
from genagentd.client.client import Client
from genagentd.client.mailbox import Mailbox
from support import fleet, scenario_agents
from support.daemons import PrivateDaemon
from support.waiting import until

WITHIN_MS = 30_000
#: One turn of a script, and what an agent does in one of its callbacks.
Turn: TypeAlias = Sequence[Mapping[str, object]]
Plan: TypeAlias = Mapping[str, object]

PONG: Turn = [{"kind": "text", "text": "pong"}, {"kind": "result"}]
HANGS: Turn = [{"kind": "text", "text": "begun"}, {"hang": "idle"}]


def says(text: str) -> Turn:
    """Return a turn that says *text*."""
    return [{"kind": "text", "text": text}, {"kind": "result"}]


def held(text: str = "pong", tag: str = "turn") -> Turn:
    """Return a turn that says *text* once its gate is released."""
    return [{"gate": tag, "timeout_ms": 60_000}, *says(text)]


def fails(reason: object) -> Turn:
    """Return a turn that begins, says something and fails."""
    return [{"kind": "text", "text": "so far"}, {"kind": "error", "reason": reason}]


@dataclass
class Scene:
    """What one scenario works with. Agents end with it."""

    house: PrivateDaemon
    client: Client
    gates: Gates
    files: Path

    def start(
        self,
        *turns: Turn,
        name: str = "a",
        agent: str = "Acting",
        on: Mapping[str, Sequence[Plan]] | None = None,
        backend: Mapping[str, object] | None = None,
        **limits: object,
    ) -> AgentHandle:
        """Start an agent that plays *turns* (default: pong for ever) and acts as *on* says."""
        script = {
            "script": list(turns or (PONG,)),
            "repeat": not turns,
            "gate_dir": self.gates.directory,
            "history_file": str(self._history(name)),
            **(backend or {}),
        }
        options = {
            "backend": script,
            "on": dict(on or {}),
            "file": str(self._seen(name)),
            "gate_dir": self.gates.directory,
        }
        return self.client.start_agent(
            f"support.scenario_agents:{agent}",
            name=name,
            backend="scripted",
            options=script if agent == "Bare" else options,
            limits=limits,
            cwd=fleet.HERE,
        )

    def _seen(self, name: str) -> Path:
        return self.files / f"{name}.seen"

    def _history(self, name: str) -> Path:
        return self.files / f"{name}.prompts"

    def seen(self, name: str = "a", *, without: tuple[str, ...] = ()) -> list[str]:
        """Return what the agent wrote down; refs, and lines that begin as *without*, left out."""
        skipped = ("ref ", *without)
        lines = scenario_agents.lines(self._seen(name))
        return [line for line in lines if not line.startswith(skipped)]

    def decided(self, name: str = "a") -> list[str]:
        """Return the refs that its decision callbacks were called with."""
        lines = scenario_agents.lines(self._seen(name))
        return [line.removeprefix("ref ") for line in lines if line.startswith("ref ")]

    def wait_seen(self, line: str, name: str = "a", times: int = 1) -> None:
        """Wait until the agent wrote down *line*."""
        until(lambda: self.seen(name).count(line) >= times, f"{line} in {self.seen(name)}")

    def prompts(self, name: str = "a") -> list[str]:
        """Return the prompts that reached the backend, in order."""
        return [json.loads(line) for line in scenario_agents.lines(self._history(name))]

    def state(self, name: object = "a") -> Any:
        """Return the retained state; a caller that was answered sees all before."""
        return self.client.status(name).agent_state

    def blocked(self, tag: str = "turn") -> None:
        """Wait until something stands at the gate."""
        self.gates.wait_blocked(tag, WITHIN_MS)

    def hold(self, prompt: str = "held", name: str = "a", tag: str = "turn") -> RequestRef:
        """Have a prompt accepted whose turn stands at the gate when this returns."""
        ref = self.client.tell_with_completion(name, prompt)
        self.blocked(tag)
        return ref

    def release(self, tag: str = "turn") -> None:
        """Let one through the gate."""
        self.gates.release(tag)

    def outcome(self, ref: RequestRef) -> Outcome:
        """Wait for the completion of *ref* and return what it came to."""
        return fleet.completion(self.client, ref).outcome

    def silent(self) -> bool:
        """Whether no completion is in the mailbox now."""
        found = self.client.receive(0, matching=lambda message: isinstance(message, Completion))
        return found is None

    def over(self, ref: RequestRef, name: object = "a") -> PollResult:
        """Poll until *ref* is not pending any more."""

        def known() -> tuple[PollResult] | None:
            found = self.client.poll(name, ref)
            return None if isinstance(found, PollPending) else (found,)

        return until(known, "the request is over")[0]

    def idle(self, name: object = "a") -> None:
        """Wait until the agent does nothing."""

        def resting() -> bool:
            snapshot = self.client.runtime_snapshot(name)
            slot = snapshot.self_chain_pending and not snapshot.halted
            return snapshot.phase == "idle" and not slot

        until(resting, f"{name} is idle")

    def watch(self, handle: AgentHandle) -> None:
        """Monitor that process; the daemon knows of it when this returns."""
        self.client.at(handle).monitor()
        self.client.whereis(None)

    def kill(self, handle: AgentHandle) -> None:
        """Kill that process without a word."""
        os.kill(handle.pid, signal.SIGKILL)

    def elsewhere(self, code: str) -> subprocess.Popen[bytes]:
        """Run *code* in a process of its own, with a connected `client`."""
        head = "from genagentd import Client\nclient = Client().connect()\n"
        return subprocess.Popen(
            [sys.executable, "-c", head + code],
            env=self.house.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def records(mailbox: Mailbox, last: Callable[[Telemetry], bool]) -> list[Telemetry]:
    """Read telemetry up to the first record for which *last* holds."""
    found: list[Telemetry] = []
    while not found or not last(found[-1]):
        record = mailbox.receive(WITHIN_MS)
        assert isinstance(record, Telemetry), f"after {[each.event for each in found]}"
        found.append(record)
    return found
