"""What an operator may see of the table: one row for each name that is held.

Rows are identities, phases, counts and reasons; they hold no spec and no content.
"""

from __future__ import annotations

from dataclasses import dataclass

from genagent_protocol.plain import Plain
from genagent_protocol.reasons import ExitReason, StartError
from genagent_protocol.refs import Incarnation
from genagent_protocol.supervision.table import Child, Phase, Table
from genagent_protocol.supervision.terms import RestartKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One held name. `pid` is None before birth and between two lives.

    `restarts` counts those within the policy's period as of the last end.
    `reason` is how the last life ended, `error` why it was never ready; both are
    None in the first life.
    """

    name: Plain
    incarnation: Incarnation
    phase: Phase
    pid: int | None
    group: int | None
    restart: RestartKind
    restarts: int
    reason: ExitReason | None
    error: StartError | None


def rows(table: Table) -> tuple[Row, ...]:
    """Return every held name, in the order in which they were taken."""
    return tuple(_row(child) for child in table.children.values())


def row(table: Table, key: bytes) -> Row | None:
    """Return the row of the name *key*, or None if nobody holds it."""
    child = table.children.get(key)
    return None if child is None else _row(child)


def _row(child: Child) -> Row:
    return Row(
        name=child.terms.name,
        incarnation=child.last,
        phase=child.phase,
        pid=None if child.life is None else child.life.pid,
        group=child.terms.group,
        restart=child.terms.restart.kind,
        restarts=len(child.restarts),
        reason=child.reason,
        error=child.error,
    )
