"""The events that the code writes into logs, read from its sources: name, fields and level.

What counts is a call with the event's name as its first argument. A name that is put
together, or comes from elsewhere, would be missed: such calls are returned apart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from genagentd.daemon.shell import WARNED

ROOT = Path(__file__).parents[2]
DAEMON = ("genagentd/daemon", "protocol/genagent_protocol/supervision")
AGENT = ("genagentd/agent",)

#: The calls that write a line of the daemon, and its level.
_DAEMON_CALLS = {"report": "info", "warn": "warning", "emit": "info", "Emit": "info"}
_AGENT_CALLS = ("line", "log.line", "log.raised", "log_line")
#: The one of them that names the agent itself.
_ABOUT_AN_AGENT = "draft.emit"


@dataclass
class Written:
    """One event as the code writes it, all places together."""

    fields: set[str] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)


@dataclass
class Found:
    """Every event by its name, and where a line is written whose name is not in the code."""

    events: dict[str, Written] = field(default_factory=dict)
    unnamed: list[str] = field(default_factory=list)


def of_daemon() -> Found:
    """Return what the daemon writes into its log."""
    found = Found()
    for place, call, called in _calls(DAEMON):
        if called.rpartition(".")[2] in _DAEMON_CALLS:
            fields = _named(call)
            if called == _ABOUT_AN_AGENT:
                fields |= {"agent", "incarnation"}
            _note(found, place, call, fields, _DAEMON_CALLS[called.rpartition(".")[2]])
    # What is emitted gets its level by its name, and an end by its reason.
    for name in WARNED:
        found.events[name].levels = {"warning"}
    found.events["agent.down"].levels = {"info, warning"}
    return found


def of_agent() -> Found:
    """Return what the framework writes into an agent's log, and the daemon into it."""
    found = Found()
    for place, call, called in _calls((*AGENT, *DAEMON)):
        if called in _AGENT_CALLS:
            raised = {"error", "code"} if called == "log.raised" else set()
            _note(found, place, call, _named(call) | raised, "")
    return found


def _note(found: Found, place: str, call: ast.Call, fields: set[str], level: str) -> None:
    name = call.args[0] if call.args else None
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        event = found.events.setdefault(name.value, Written())
        event.fields |= fields
        event.levels.add(level)
    else:
        found.unnamed.append(place)


def _named(call: ast.Call) -> set[str]:
    """Return the fields that a call names, also inside of the mapping that it hands over."""
    named = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    for inner in (part for argument in call.args[1:] for part in ast.walk(argument)):
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "FrozenDict":
            named |= {keyword.arg for keyword in inner.keywords if keyword.arg is not None}
        if isinstance(inner, ast.Dict):
            keys = [key.value for key in inner.keys if isinstance(key, ast.Constant)]
            named |= {key for key in keys if isinstance(key, str)}
    return named


def _calls(folders: tuple[str, ...]) -> Iterator[tuple[str, ast.Call, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            mappings = {
                node.targets[0].id: node.value
                for node in nodes
                if isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Dict)
            }
            for node in nodes:
                if isinstance(node, ast.Call):
                    # A mapping that was given a name first is as good as one that stands there.
                    node.args[1:] = [mappings.get(ast.unparse(a), a) for a in node.args[1:]]
                    yield str(path.relative_to(ROOT)), node, ast.unparse(node.func)


@dataclass(frozen=True)
class Row:
    """One row of a table of the page."""

    fields: frozenset[str]
    level: str


def rows(page: str, heading: str) -> dict[str, Row]:
    """Return the rows of the table below *heading*, by the names of their events."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found: dict[str, Row] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`([a-z_.]+)`", cells[0])
        if line.startswith("| `"):
            assert names[0] not in found, f"twice: {names[0]}"
            found[names[0]] = Row(frozenset(re.findall(r"`([a-z_]+)`", cells[1])), cells[2])
    return found
