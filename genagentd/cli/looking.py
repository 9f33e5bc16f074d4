"""Commands that only look: status, snapshot, list, version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genagent_protocol.answers import AgentRow, Snapshot, Status
from genagent_protocol.errors import CallTimeout, Refused
from genagent_protocol.reasons import NOT_FOUND
from genagentd.cli.agents import (
    app,
    connected,
    known_rows,
    milliseconds,
    name_argument,
    timeout_option,
)
from genagentd.cli.exits import Failure
from genagentd.cli.output import duration, shortened, table
from genagentd.cli.program import command, output
from genagentd.cli.standing import owner_of, row_fields, row_of, silent, state_of
from genagentd.cli.values import fields_of, shown
from genagentd.cli.versions import show_version

if TYPE_CHECKING:
    from genagentd.client.client import Client


@command(app, "status")
@name_argument()
@timeout_option(5.0)
def status(name: object, timeout: float) -> None:
    """Show an agent's phase, queue and state; of one that is on its way, what the daemon knows."""
    with connected(timeout) as client:
        try:
            answer = client.status(name, milliseconds(timeout))
        except Refused as refused:
            row = row_of(known_rows(client), shown(name))
            # One that has failed for good is not there, as for every other command.
            if refused.reason != NOT_FOUND or row is None or row.state in ("running", "failed"):
                raise
            output().result(f"{shown(name)}: {state_of(row)}", **row_fields(row))
            return
        except CallTimeout as late:
            raise _not_told(client, late, "status", name) from late
    output().result(_status_text(answer), **fields_of(answer))


def _not_told(client: Client, late: CallTimeout, command: str, name: object) -> Failure:
    agent = shown(name)
    return silent(late, row_of(known_rows(client), agent), command, agent)


def _status_text(found: Status) -> str:
    flags = [flag for flag in ("halted", "halt_pending", "draining") if getattr(found, flag)]
    current = f", running {found.current_request}" if found.current_request else ""
    how = " ".join([found.state, *flags])
    state = shortened(shown(found.agent_state))
    return f"{shown(found.name)}: {how}, {found.queued} queued{current}, state {state}"


@command(app, "snapshot")
@name_argument()
@timeout_option(5.0)
def snapshot(name: object, timeout: float) -> None:
    """Show what an agent's coordinator is doing now: counts and identities, no payload."""
    with connected(timeout) as client:
        try:
            answer = client.runtime_snapshot(name, milliseconds(timeout))
        except CallTimeout as late:
            raise _not_told(client, late, "snapshot", name) from late
    output().result(_snapshot_text(answer), agent=name, **fields_of(answer))


def _snapshot_text(found: Snapshot) -> str:
    current = found.current_request
    lines = [
        f"phase                  {found.phase}",
        f"halted                 {found.halted}",
        f"halt pending           {found.halt_pending}",
        f"draining               {found.draining}",
        f"pending prompts        {found.pending_prompts}",
        f"pending notifications  {found.pending_notifications}",
        f"self-chain pending     {found.self_chain_pending}",
    ]
    if current is not None:
        limit = "" if current.watchdog_ms is None else f" of {duration(current.watchdog_ms)}"
        lines.append(
            f"current request        {current.ref} ({current.origin}, attempt {current.attempt}, "
            f"{duration(current.elapsed_ms)}{limit})"
        )
    return "\n".join(lines)


@command(app, "list")
def list_agents() -> None:
    """List the agents the daemon knows of."""
    with connected() as client:
        rows = sorted(client.list(), key=lambda row: shown(row.name))
    text = table(
        ("NAME", "STATE", "PID", "AGE", "BACKEND", "AGENT", "RESTARTS"),
        [_cells(row) for row in rows],
    )
    output().result(text, agents=[row_fields(row) for row in rows])


command(app, "ps", short_help="The same as list.")(list_agents.callback)


#: How much of a reason a row of the table holds; `--json` has all of it.
_MAX_IN_TABLE = 40


def _cells(row: AgentRow) -> tuple[str, ...]:
    pid = "-" if row.handle is None else str(row.handle.pid)
    agent = row.agent or "-"
    group = "" if row.group is None else f", in a group of {owner_of(row)}"
    return (
        *(shown(row.name), state_of(row, _MAX_IN_TABLE) + group, pid, duration(row.age_ms)),
        *(row.backend, agent, str(row.restarts)),
    )


@command(app, "version")
def version() -> None:
    """Say which version this is, and which the daemon is."""
    show_version()
