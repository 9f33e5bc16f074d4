"""Turns of the `scripted` backend, written down as the plain data that reaches an agent process.

    options = scripted(says("a plan"), holds("before-the-end", "done"), gates=gates)
    client.start_agent(Planner, name="p", backend="scripted", options=options)

One turn is used per prompt, in order. A turn is a list of steps; join two lists to
make a longer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from genagent_backends.gates import GATE_TIMEOUT_MS, Gates
from genagent_protocol.errors import UsageError

Step: TypeAlias = dict[str, Any]
ScriptedTurn: TypeAlias = list[Step]


def says(*texts: str, **usage: int) -> ScriptedTurn:
    """Return a turn that says each text as an event of its own and succeeds.

    With *usage* (`input_tokens=3`), a usage event comes before the end.
    """
    said: ScriptedTurn = [{"kind": "text", "text": text} for text in texts]
    return [*said, *([{"kind": "usage", **usage}] if usage else []), {"kind": "result"}]


def echoes() -> ScriptedTurn:
    """Return a turn that answers with its prompt, as the backend got it."""
    return [{"echo": True}, {"kind": "result"}]


def breaks(reason: str) -> ScriptedTurn:
    """Return a turn that runs and ends with the error *reason*."""
    return [{"kind": "error", "reason": reason}]


def cannot_start(reason: str) -> ScriptedTurn:
    """Return a turn whose prompt the backend refuses for *reason*."""
    return [{"error": reason}]


def holds(tag: str, *texts: str, timeout_ms: int = GATE_TIMEOUT_MS) -> ScriptedTurn:
    """Return a turn that waits at the gate *tag* until the test releases it, then says *texts*."""
    return [{"gate": tag, "timeout_ms": timeout_ms}, *says(*texts)]


def hangs() -> ScriptedTurn:
    """Return a turn that never ends by itself and can be interrupted."""
    return [{"hang": "idle"}]


def scripted(
    *turns: ScriptedTurn, gates: Gates | None = None, repeat: bool = False
) -> dict[str, object]:
    """Return the options of the `scripted` backend that plays *turns*.

    A prompt past the last turn fails (`no_script`), unless *repeat* begins anew.

    Raises:
        UsageError: a turn waits at a gate, and there are no *gates*: nobody could release it.
    """
    waiting = [step["gate"] for turn in turns for step in turn if "gate" in step]
    if waiting and gates is None:
        raise UsageError(f"scripted: a turn waits at the gate {waiting[0]!r}; give gates=")
    options: dict[str, object] = {"script": _plain(turns)}
    if repeat:
        options["repeat"] = True
    if gates is not None:
        options["gate_dir"] = gates.directory
    return options


def _plain(turns: Sequence[ScriptedTurn]) -> list[ScriptedTurn]:
    return [list(turn) for turn in turns]
