"""Long runs with many names, groups, clients and clocks, against a naive ledger.

The world checks each order as in the closure; the ledger adds what a small closure
cannot hold: real times, several policies, and the reasons read off a long list.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from genagent_protocol.refs import AgentHandle, Incarnation, MonitorRef
from genagent_protocol.supervision import rules
from genagent_protocol.supervision.effects import (
    Answer,
    AskToStop,
    Dispose,
    Effect,
    Emit,
    GroupRunning,
    Launch,
    NotStarted,
    ReportUnresolved,
    SendDown,
    Started,
    WarnOfUnknown,
)
from genagent_protocol.supervision.inputs import (
    AgentReady,
    ClientGone,
    DeadlinePassed,
    DemonitorRequested,
    ExitStatus,
    GroupCloseRequested,
    GroupOpenRequested,
    Input,
    LaunchFailed,
    MonitorRequested,
    ProcessExited,
    ShutdownRequested,
    StartRequested,
    StopRequested,
)
from genagent_protocol.supervision.table import empty
from genagent_protocol.supervision.terms import RestartPolicy
from support.supervision_explorer import check
from support.supervision_ledger import Ledger
from support.supervision_phases import born, drained, key_of, start
from support.supervision_world import (
    BOOT,
    PLACE,
    STATUSES,
    World,
    captured,
    happen,
    life,
    perform,
    possible,
)

NAMES = ("a", "b", "c")
CLIENTS = (1, 2)

names = st.sampled_from(NAMES)
clients = st.sampled_from(CLIENTS)
elapsed = st.sampled_from((0, 1, 30, 400))
policies = st.builds(
    RestartPolicy,
    kind=st.sampled_from(("temporary", "transient", "permanent")),
    max_restarts=st.integers(0, 3),
    period_ms=st.sampled_from((50, 1_000)),
    delay_ms=st.sampled_from((0, 10)),
    max_delay_ms=st.sampled_from((10, 25)),
)


class Supervising(RuleBasedStateMachine):
    """One daemon's table, driven by everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = empty(BOOT, PLACE)
        self.world = World(tickets=frozenset())
        self.ledger = Ledger()
        self.now_ms = 0
        self.calls = 0
        self.proven: set[bytes] = set()
        self.groups: dict[int, int] = {}

    def call(self) -> str:
        """Return a call that was never made before."""
        self.calls += 1
        return f"call {self.calls}"

    @rule(name=names, client=clients, policy=policies, group=st.sampled_from((0, 0, 1, 2)))
    def start(self, name: str, client: int, policy: RestartPolicy, group: int) -> None:
        """A client starts an agent, sometimes in a group that may not be its own."""
        self.tell(start(self.call(), client, name=name, group=group or None, restart=policy))

    @rule(name=names, client=clients, group=st.sampled_from((0, 0, 1, 2)))
    def stop(self, name: str, client: int, group: int) -> None:
        """A client stops an agent."""
        child = self.table.children.get(key_of(name))
        meant = group or None
        hit = child is not None and child.terms.group == meant
        if hit and (meant is None or self.groups.get(meant) == client):
            self.ledger.unwanted(key_of(name), "exited")
        self.tell(StopRequested(call=self.call(), client=client, key=key_of(name), group=meant))

    @rule(client=clients, back=st.integers(0, 4), ours=st.sampled_from((True, True, False)))
    def monitor(self, client: int, back: int, ours: bool) -> None:
        """A client watches one of the last lives, which may be over or foreign."""
        number = max(len(self.world.processes) - back, 1)
        handle = captured(number) if ours else _foreign(number)
        self.calls += 1
        ref = MonitorRef(self.calls)
        self.tell(MonitorRequested(call=None, client=client, monitor=ref, handle=handle))

    @rule(client=clients, back=st.integers(0, 5))
    def demonitor(self, client: int, back: int) -> None:
        """A client lets go of one of its last watches, or of another one's number."""
        ref = MonitorRef(max(self.calls - back, 0))
        self.tell(DemonitorRequested(call=self.call(), client=client, monitor=ref))

    @rule(client=clients)
    def open_group(self, client: int) -> None:
        """A client opens a group."""
        self.tell(GroupOpenRequested(call=self.call(), client=client))

    @rule(client=clients, group=st.integers(1, 3))
    def close_group(self, client: int, group: int) -> None:
        """A client closes a group, which may not be its own."""
        if self.groups.get(group) == client:
            self._group_ends(group)
        self.tell(GroupCloseRequested(call=self.call(), client=client, group=group))

    @precondition(lambda self: self.calls > 15)
    @rule(client=clients)
    def client_gone(self, client: int) -> None:
        """A client's connection ends."""
        for group, owner in tuple(self.groups.items()):
            if owner == client:
                self._group_ends(group)
        self.tell(ClientGone(client))

    @rule(indexes=st.lists(st.integers(0, 40), min_size=1, max_size=5), elapsed_ms=elapsed)
    def something_happens(self, indexes: list[int], elapsed_ms: int) -> None:
        """Processes, channels and deadlines do what they may do next."""
        self.now_ms += elapsed_ms
        for index in indexes:
            facts = possible(self.world, now_ms=self.now_ms)
            if facts:
                self.tell(facts[index % len(facts)])

    @rule()
    def every_launch_comes_up(self) -> None:
        """The usual case: what was launched is born and ready."""
        for number, process in enumerate(self.world.processes, 1):
            if not process.born and not process.over:
                self.tell(born(number))
            process = self.world.process(life(number))
            if process.speaking and "ready" not in process.spoke:
                self.tell(AgentReady(life(number)))

    @rule(back=st.integers(0, 2), status=st.sampled_from(STATUSES), first=st.booleans())
    def an_agent_ends(self, back: int, status: ExitStatus, first: bool) -> None:
        """A process exits and its channel ends, whichever comes first."""
        living = [n for n, p in enumerate(self.world.processes, 1) if p.alive and not p.drained]
        for number in living[-1 - back :][:1]:
            exit_fact = ProcessExited(incarnation=life(number), status=status, now_ms=self.now_ms)
            facts: tuple[Input, Input] = (exit_fact, drained(number))
            for fact in facts if first else reversed(facts):
                self.tell(fact)

    @rule(elapsed_ms=elapsed)
    def every_wait_is_over(self, elapsed_ms: int) -> None:
        """What waits for its restart is launched."""
        self.now_ms += elapsed_ms
        for timer in sorted(self.world.armed, key=repr):
            if timer.kind == "restart":
                self.tell(DeadlinePassed(timer))

    @rule(index=st.integers(0, 40))
    def a_late_deadline(self, index: int) -> None:
        """A deadline that was disarmed was in the queue already."""
        late = [timer for timer in self.world.ever_armed if timer not in self.world.armed]
        if late:
            timer = sorted(late, key=repr)[index % len(late)]
            advanced = rules.advance(self.table, DeadlinePassed(timer))
            assert (advanced.table, advanced.effects) == (self.table, ())

    @precondition(lambda self: self.calls > 30)
    @rule(grace_ms=st.sampled_from((0, 5, 9_000)), forced=st.booleans())
    def shutdown(self, grace_ms: int, forced: bool) -> None:
        """The daemon is told to end, for the first time or again."""
        if forced or not self.world.shutdowns:
            self.ledger.shut_down(killing=self.world.shutdowns > 0)
        self.tell(ShutdownRequested(grace_ms=grace_ms, forced=forced))

    def _group_ends(self, group: int) -> None:
        for child in tuple(self.table.children.values()):
            if child.terms.group == group and child.wanted:
                self.ledger.unwanted(child.terms.key, "group_not_running")

    def tell(self, fact: Input) -> None:
        """Report *fact*, and compare every order with the world and the ledger."""
        watches = self.world.watches
        self.world = happen(self.world, fact)
        if isinstance(fact, MonitorRequested):
            assert len(self.world.watches) == len(watches) + 1
        who = getattr(fact, "incarnation", None)
        if isinstance(fact, DeadlinePassed):
            who = fact.timer.incarnation
            if fact.timer.kind == "shutdown":
                self.ledger.shut_down(killing=True)
        if isinstance(who, Incarnation):
            self.ledger.heard(who, fact)
        advanced = rules.advance(self.table, fact)
        self.table = advanced.table
        self.world = perform(self.world, fact, advanced.effects)
        for effect in advanced.effects:
            self._compare(fact, effect)
        if isinstance(fact, ProcessExited | LaunchFailed) or isinstance(who, Incarnation):
            self._compare_restart(who, advanced.effects)

    def _compare(self, fact: Input, effect: Effect) -> None:
        match effect:
            case Launch():
                self.ledger.launched(effect, first=isinstance(fact, StartRequested))
                if isinstance(fact, StartRequested):
                    self.proven.discard(effect.terms.key)
            case ReportUnresolved():
                assert effect.refs == self.ledger.lives[effect.incarnation].last_words()
            case WarnOfUnknown():
                assert self.ledger.lives[effect.incarnation].last_words() is None
            case AskToStop():
                self.ledger.ordered(effect)
            case SendDown() if effect.handle.incarnation in self.ledger.lives:
                if not isinstance(fact, MonitorRequested):
                    assert effect.reason == self.ledger.lives[effect.handle.incarnation].reason()
            case Answer(_, Started(handle)):
                assert self.ledger.lives[handle.incarnation].was_ready
                self.proven.add(self.ledger.lives[handle.incarnation].terms.key)
            case Answer(_, NotStarted(error)) if not isinstance(fact, StartRequested):
                who = getattr(fact, "incarnation", None)
                assert isinstance(who, Incarnation)
                assert error.kind == self.ledger.lives[who].start_error()
            case Answer(_, GroupRunning(group)):
                assert group not in self.groups
                assert isinstance(fact, GroupOpenRequested)
                self.groups[group] = fact.client

    def _compare_restart(self, who: object, effects: tuple[Effect, ...]) -> None:
        if not any(isinstance(effect, Dispose) for effect in effects):
            return
        assert isinstance(who, Incarnation)
        life = self.ledger.lives[who]
        ends = [line for line in life.lines if isinstance(line, ProcessExited | LaunchFailed)]
        proven = life.terms.key in self.proven
        wait = self.ledger.wait_ms(life, ends[0].now_ms, proven=proven)
        reports = [e for e in effects if isinstance(e, Emit)]
        waits = [e.metadata["after_ms"] for e in reports if e.event == "agent.restarting"]
        failed = any(e.event == "agent.failed" for e in reports)
        assert (waits, failed) == (
            ([], True) if wait == "failed" else ([] if wait is None else [wait], False)
        )

    @invariant()
    def the_table_agrees_with_the_world(self) -> None:
        """Names, lives, monitors and groups are where they should be."""
        check(self.table, self.world)

    def teardown(self) -> None:
        """Whatever state it was in, a forced end leaves nothing and answers everyone."""
        for _ in range(2):
            self.shutdown(grace_ms=5, forced=True)
        for _ in range(10_000):
            facts = possible(self.world, words=False, now_ms=self.now_ms)
            if not facts:
                break
            self.tell(facts[-1])
        assert self.table.finished
        assert not self.world.waiting


def _foreign(number: int) -> AgentHandle:
    handle = captured(number)
    boot = type(BOOT)("f" * 16)
    return AgentHandle(
        name=handle.name,
        incarnation=Incarnation(boot, number),
        pid=handle.pid,
        started_ticks=handle.started_ticks,
        place=handle.place,
    )


TestSupervising = Supervising.TestCase
TestSupervising.settings = settings(max_examples=60, stateful_step_count=120, deadline=None)
