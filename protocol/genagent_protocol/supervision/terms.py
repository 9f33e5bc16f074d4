"""What a start asks the daemon to keep: the agent's name, its limits, and when to restart it.

Terms never change while the name is held, and a start whose terms have a `flaw` is
refused. The machine looks at no field of `spec`: it is the launcher's recipe and
passes through untouched.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from genagent_protocol.plain import Plain

#: The most restarts a policy may allow in its period: each is remembered for that long.
MOST_RESTARTS = 1_000

RestartKind = Literal["temporary", "transient", "permanent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """When an agent that ended is started anew, and when the daemon gives up.

    `temporary` is never restarted, `transient` after any end but `normal` and
    `shutdown`, `permanent` after every end but a stop: a drained one is back
    with an empty queue. At most `max_restarts` happen within any `period_ms`;
    the next end after that leaves the agent `failed`. The wait before a restart
    doubles with each one in the period, from `delay_ms` up to `max_delay_ms`.

    This does not apply to a start whose agent never became ready, and it
    restores nothing: a restarted agent is a new incarnation.
    """

    kind: RestartKind = "temporary"
    max_restarts: int = 5
    period_ms: int = 60_000
    delay_ms: int = 200
    max_delay_ms: int = 10_000


TEMPORARY = RestartPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """One agent as its starter asked for it.

    `key` is the name's canonical encoding, by which names are compared. `group`
    is None for the global group. `spec` is opaque and hashable. `shutdown_ms` is
    how long a stop waits before it kills, None for as long as it takes;
    `start_timeout_ms` runs from the launch to readiness.
    """

    name: Plain
    key: bytes
    spec: Hashable
    group: int | None = None
    restart: RestartPolicy = TEMPORARY
    shutdown_ms: int | None = 5_000
    start_timeout_ms: int = 60_000


def flaw(terms: Terms) -> str | None:
    """Return what is wrong with the numbers of *terms*, in a few words, or None."""
    restart = terms.restart
    checks = (
        ("start_timeout_ms", terms.start_timeout_ms, 1, None),
        ("shutdown_ms", terms.shutdown_ms or 0, 0, None),
        ("restart.max_restarts", restart.max_restarts, 0, MOST_RESTARTS),
        ("restart.period_ms", restart.period_ms, 1, None),
        ("restart.delay_ms", restart.delay_ms, 0, None),
        ("restart.max_delay_ms", restart.max_delay_ms, restart.delay_ms, None),
    )
    for name, value, least, most in checks:
        if value < least:
            return f"{name} is {value}, and the least is {least}"
        if most is not None and value > most:
            return f"{name} is {value}, and the most is {most}"
    return None
