"""What the daemon knows of an agent that does not answer for itself.

An agent that is started again, has failed or does not respond is still in the daemon's
list; a command that cannot reach it says so, instead of that there is no such agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from genagent_protocol.answers import AgentRow
from genagent_protocol.errors import CallTimeout, StartFailed, TurnFailed
from genagentd.cli import exits
from genagentd.cli.exits import Failure, failure_of, not_answered
from genagentd.cli.output import duration, shortened
from genagentd.cli.values import fields_of, handle_fields, shown

#: How much of a reason is told in a sentence.
MAX_REASON = 200


def row_of(rows: Iterable[AgentRow], agent: str) -> AgentRow | None:
    """Return the row of the agent that is shown as *agent*, or None."""
    return next((row for row in rows if shown(row.name) == agent), None)


def state_of(row: AgentRow, most: int = MAX_REASON) -> str:
    """Return the state: since when it is silent, or why it is so, cut to *most* characters."""
    state: str = row.state
    if row.unresponsive_since_ms is not None:
        state += f", unresponsive for {duration(row.unresponsive_since_ms)}"
    last = row.reason if row.error is None else row.error.kind
    if last is not None:
        why = shortened(str(last), most)
        # In any other state there is a life, and it was the one before that ended so.
        over = row.state in ("restarting", "failed")
        state += f" ({why})" if over else f" (last end: {why})"
    return state


def owner_of(row: AgentRow) -> str:
    """Return whose the group of the agent is, as the list says it."""
    return "a client" if row.group_owner_pid is None else f"pid {row.group_owner_pid}"


def row_fields(row: AgentRow) -> dict[str, Any]:
    """Return the stable fields of a row."""
    return {
        "name": row.name,
        "state": row.state,
        "handle": None if row.handle is None else handle_fields(row.handle),
        "agent": row.agent,
        "backend": row.backend,
        "group": row.group,
        "age_ms": row.age_ms,
        "restarts": row.restarts,
        "reason": None if row.reason is None else fields_of(row.reason),
        "error": None if row.error is None else fields_of(row.error),
        "unresponsive_since_ms": row.unresponsive_since_ms,
        "log": row.log,
        "group_owner_pid": row.group_owner_pid,
        "watchdog_ms": row.watchdog_ms,
    }


def troubles(rows: Iterable[AgentRow] | None) -> dict[str, int | None]:
    """Return how many agents do not run as they should; None where nothing is known."""
    if rows is None:
        return dict.fromkeys(("restarting", "failed", "unresponsive"))
    known = tuple(rows)
    states = [row.state for row in known]
    return {
        "restarting": states.count("restarting"),
        "failed": states.count("failed"),
        "unresponsive": sum(row.unresponsive_since_ms is not None for row in known),
    }


def in_trouble(rows: Iterable[AgentRow] | None) -> str:
    """Return the same for a sentence, which says nothing of what there is none of."""
    return "".join(f", {count} {how}" for how, count in troubles(rows).items() if count)


def not_asked(rows: Iterable[AgentRow], command: str, agent: str) -> Failure | None:
    """Return why *command* found no such agent, if the daemon knows one of that name."""
    row = row_of(rows, agent)
    why = None if row is None else _why(row, agent, command)
    if row is None or why is None:
        return None
    said, hint = why
    details = {"code": "not_found", "state": row.state}
    return Failure(exits.NO_SUCH_AGENT, "not_found", f"{command}: {said}", hint, details)


def _why(row: AgentRow, agent: str, command: str) -> tuple[str, str] | None:
    if command == "stop" and row.group is not None:
        # Only its owner may: everything else reaches it by its name, a drain as well.
        drain = f", or after its turn with: genagent drain {agent}"
        ends = f"it ends with that group{drain if row.state == 'running' else ''}"
        return f"{agent} belongs to a group of another client{_pid(row)}", ends
    last = row.error or row.reason
    match row.state:
        case "restarting":
            return f"{agent} is being restarted (it ended: {last})", "ask again a little later"
        case "failed":
            return f"{agent} has failed for good: {last}", f"genagent stop {agent} frees the name"
        case "starting":
            return f"{agent} is not ready yet", "ask again a little later"
        case "stopping" | "exited":
            return f"{agent} is ending", "see when it is gone with: genagent list"
        case "running":
            return None  # It came meanwhile.


def taken(error: StartFailed, row: AgentRow | None, agent: str) -> Failure:
    """Return how a start fails whose name is taken, by the agent of *row* if that is known."""
    failure = failure_of(error, "start", agent)
    if row is not None and row.group is not None:
        failure.hint = (
            f"take another name; {agent} belongs to a group of another client{_pid(row)}, "
            "and its name is free when that group ends"
        )
    return failure


def _pid(row: AgentRow) -> str:
    return "" if row.group_owner_pid is None else f" (pid {row.group_owner_pid})"


def ran_too_long(error: TurnFailed, row: AgentRow | None, agent: str) -> Failure:
    """Return how a command fails whose turn was ended by its watchdog, with the limit."""
    failure = failure_of(error, agent=agent)
    limit = None if row is None else row.watchdog_ms
    is_limit = "" if limit is None else f", which is {limit} ms"
    failure.hint = (
        f"the turn ran longer than the watchdog_ms of {agent} allows{is_limit}; "
        "a start with -o watchdog_ms=MS sets another"
    )
    failure.details["watchdog_ms"] = limit
    return failure


def silent(late: CallTimeout, row: AgentRow | None, command: str, agent: str) -> Failure:
    """Return how a look at an agent fails that gave no answer."""
    details: dict[str, Any] = {"timeout_ms": late.timeout_ms}
    message = not_answered(late, command, agent)
    if row is not None:
        details |= {"state": row.state, "unresponsive_since_ms": row.unresponsive_since_ms}
        message += f"; to the daemon it is {state_of(row)}"
    hint = f"its log may say what it does: genagent logs {agent}"
    return Failure(exits.PENDING, "timeout", message, hint, details)
