"""The daemon's table as a value: who holds which name, which life it is in, who watches.

A name is held by one `Child` from the request that started it until its last DOWN
is out; a child lives one incarnation (`Life`) at a time. Everything that can be
derived is derived, so that no two fields can disagree. The questions at the end
read the table and change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from genagent_protocol.reasons import ExitReason, StartError
from genagent_protocol.refs import AgentHandle, BootId, Incarnation, MonitorRef, RequestRef
from genagent_protocol.supervision.inputs import Call, Cause, ExitStatus, TimerKind
from genagent_protocol.supervision.keyed import Keyed
from genagent_protocol.supervision.terms import Terms

Phase = Literal["starting", "running", "stopping", "exited", "restarting", "failed"]
#: How far a shutdown is: agents finish their turns, or are stopped, or are killed.
Shutdown = Literal["draining", "stopping", "forced"]
GroupEnd = Literal["closed", "owner_gone"]
#: A client's monitor: whose it is, and what that client calls it.
Watch = tuple[int, MonitorRef]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One incarnation, from its launch until it exited and its channel is drained.

    `verdict` is why the start failed, once that is certain; the first one stands.
    `missed` will be why, unless its process has just ended.
    `asked` is what the agent was last asked for over its channel. `killed_for` is why
    its end is decided: the order went out, or goes out when it is born.
    `leaves` are the requests without an outcome that it named last, None if it never did.
    `monitors` has the handle that each watch over it was asked with.
    """

    incarnation: Incarnation
    pid: int | None = None
    started_ticks: int = 0
    ready: bool = False
    verdict: StartError | None = None
    missed: StartError | None = None
    asked: Literal["drain", "stop"] | None = None
    killed_for: Cause | None = None
    abuse: str | None = None
    said: ExitReason | None = None
    leaves: tuple[RequestRef, ...] | None = None
    status: ExitStatus | None = None
    exited_at_ms: int = 0
    drained: bool = False
    armed: frozenset[TimerKind] = frozenset()
    monitors: Keyed[Watch, AgentHandle] = field(default_factory=Keyed)

    @property
    def alive(self) -> bool:
        """Whether its process may exist: launched, and not known to have exited."""
        return self.status is None

    @property
    def killed(self) -> bool:
        """Whether its end is decided, for whatever."""
        return self.killed_for is not None

    @property
    def reachable(self) -> bool:
        """Whether orders over its channel can still arrive."""
        return self.ready and self.alive and not self.drained and not self.killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """What holds a name. Without a life it waits for its restart, or has failed for good.

    `last` is its latest incarnation. `wanted` is false once someone asked for its
    end: it is not restarted. `proven` says that it was ready at least once, so
    that its restart policy applies. `restarts` holds when the recent ends that
    led to a restart happened, oldest first; `ended_at_ms` is when the latest life
    did, of one that waits or has failed.
    """

    terms: Terms
    last: Incarnation
    life: Life | None
    starter: Call = None
    stoppers: tuple[Call, ...] = ()
    wanted: bool = True
    proven: bool = False
    failed: bool = False
    restarts: tuple[int, ...] = ()
    ended_at_ms: int = 0
    reason: ExitReason | None = None
    error: StartError | None = None

    @property
    def phase(self) -> Phase:
        """What `list` and `status` call the state it is in."""
        life = self.life
        if life is None:
            return "failed" if self.failed else "restarting"
        if not life.alive:
            return "exited"
        if life.killed or life.asked is not None:
            return "stopping"
        return "running" if life.ready else "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A set of agents that end with their owner; closing, it takes no more starts."""

    owner: int
    owner_pid: int | None = None
    #: Why it is closing.
    cause: GroupEnd | None = None
    closers: tuple[Call, ...] = ()

    @property
    def closing(self) -> bool:
        """Whether its end has begun."""
        return self.cause is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Everything the daemon knows about its agents. Built by `empty`, changed by `advance`.

    `keys` finds the child of a living incarnation by its number, `watched` the
    incarnation of a client's monitor. Numbers only grow.
    """

    boot: BootId
    place: str
    next_incarnation: int = 1
    next_group: int = 1
    children: Keyed[bytes, Child] = field(default_factory=Keyed)
    keys: Keyed[int, bytes] = field(default_factory=Keyed)
    watched: Keyed[Watch, Incarnation] = field(default_factory=Keyed)
    groups: Keyed[int, Group] = field(default_factory=Keyed)
    shutdown: Shutdown | None = None
    finished: bool = False


def empty(boot: BootId, place: str) -> Table:
    """Return the table of a daemon that just started.

    `place` is the host and runtime directory that its handles name.
    """
    return Table(boot=boot, place=place)


def handle_of(table: Table, child: Child) -> AgentHandle | None:
    """Return the handle of the child's current incarnation, or None before it is born."""
    life = child.life
    if life is None or life.pid is None:
        return None
    return AgentHandle(
        name=child.terms.name,
        incarnation=life.incarnation,
        pid=life.pid,
        started_ticks=life.started_ticks,
        place=table.place,
    )


def whereis(table: Table, key: bytes) -> AgentHandle | None:
    """Return the handle of the ready agent that holds *key*, in whichever group.

    Never one whose process is known to have exited, and never one that is still
    starting or cannot be talked to any more.

    This does not promise that it lives when the answer is read: monitor it.
    """
    child = table.children.get(key)
    if child is None or child.life is None:
        return None
    life = child.life
    return handle_of(table, child) if life.ready and life.alive and not life.drained else None


def child_of(table: Table, incarnation: Incarnation) -> Child | None:
    """Return the child that lives this incarnation now, or None if it is dead or a stranger."""
    if incarnation.boot != table.boot:
        return None
    key = table.keys.get(incarnation.number)
    return None if key is None else table.children[key]
