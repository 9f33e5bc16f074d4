"""A DOWN needs two facts, says the kernel's reason, and comes once to each monitor."""

from __future__ import annotations

from itertools import permutations

import pytest

from genagent_protocol.errors import InvalidTransition
from genagent_protocol.reasons import ExitReason
from genagent_protocol.refs import AgentHandle, BootId, Incarnation, MonitorRef
from genagent_protocol.supervision.effects import (
    Answer,
    ArmDeadline,
    DisarmDeadline,
    Dispose,
    Done,
    DrainNow,
    Effect,
    Kill,
    Refused,
    ReportUnresolved,
    SendDown,
    Sweep,
    WarnOfUnknown,
)
from genagent_protocol.supervision.inputs import (
    AbuseSeen,
    AgentReady,
    ClientGone,
    Exited,
    ExitSaid,
    ExitStatus,
    Input,
    LeavingSaid,
    MonitorRequested,
    ProcessExited,
    ShutdownRequested,
    Signalled,
    Timer,
)
from genagent_protocol.supervision.keyed import Keyed
from genagent_protocol.supervision.verdicts import OWN_REASONS
from support.supervision_phases import (
    born,
    demonitor,
    dies,
    drained,
    exits,
    monitor,
    passes,
    start,
    stop,
)
from support.supervision_rehearsal import Rehearsal, position
from support.supervision_world import STUCK, accepted, captured, life

ACCOUNTS = ReportUnresolved | WarnOfUnknown


def watched() -> Rehearsal:
    """Return a daemon with one running agent and one monitor of client 1 on it."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(monitor())
    return daemon


@pytest.mark.parametrize("facts", list(permutations([dies(), drained()])))
def test_a_down_waits_for_both_facts_in_either_order(facts: tuple[Input, Input]) -> None:
    """The exit alone would overtake what was said, the channel alone proves no death."""
    daemon = watched()

    daemon.tell(facts[0])
    assert daemon.downs() == []
    daemon.tell(facts[1])

    assert daemon.downs() == [(1, ExitReason("signal:9"))]


def test_every_monitor_hears_exactly_one_down_with_the_handle_it_gave() -> None:
    """Two watches are two messages, also from one client."""
    daemon = watched()
    daemon.tell(monitor(2), monitor(1, client=2), dies(), drained())

    downs = [e for e in daemon.orders if isinstance(e, SendDown)]

    assert [(e.client, e.monitor.number) for e in downs] == [(1, 1), (1, 2), (2, 1)]
    assert {e.handle for e in downs} == {captured(1)}


def test_a_monitor_between_the_two_facts_still_hears_the_reason() -> None:
    """The life is not over until its channel is."""
    daemon = watched()
    daemon.tell(dies(), monitor(2), drained())

    assert daemon.downs() == [(1, ExitReason("signal:9")), (2, ExitReason("signal:9"))]


def test_a_monitor_of_a_starting_agent_works() -> None:
    """Whoever lost the race for a name can wait for the winner's fate."""
    daemon = Rehearsal(start(), born(), monitor(), AgentReady(life(1)), exits(), drained())

    assert daemon.downs() == [(1, ExitReason("normal"))]


STRANGER = AgentHandle(
    name="a",
    incarnation=Incarnation(BootId("f" * 16), 1),
    pid=101,
    started_ticks=1,
    place="host:/run",
)


@pytest.mark.parametrize("handle", [captured(1), captured(7), STRANGER])
def test_a_monitor_of_what_does_not_live_is_told_noproc_at_once(handle: AgentHandle) -> None:
    """Dead, never launched, or of another boot: for the watcher it is all the same."""
    daemon = Rehearsal()
    daemon.run_agent(start())
    daemon.tell(exits(), drained())

    orders = daemon.tell(MonitorRequested(call="m", client=1, monitor=MonitorRef(1), handle=handle))

    assert orders == [
        Answer("m", Done()),
        SendDown(client=1, monitor=MonitorRef(1), handle=handle, reason=ExitReason("noproc")),
    ]


def test_a_monitor_that_nobody_waits_for_is_not_answered() -> None:
    """A watch set in the stream of submissions needs no round trip."""
    assert watched().tell(monitor(2, call=None)) == []


def test_a_monitor_ref_in_use_is_refused_and_the_first_watch_stands() -> None:
    """Two DOWNs under one ref could not be told apart."""
    daemon = watched()

    daemon.tell(monitor(1, call="twice"))

    assert isinstance(daemon.answer("twice"), Refused)
    daemon.tell(dies(), drained())
    assert len(daemon.downs()) == 1


def test_a_monitor_ref_may_be_used_again_after_its_down() -> None:
    """Only two watches at the same time would be ambiguous."""
    daemon = watched()
    daemon.tell(dies(), drained(), monitor(1, call="again"))

    assert daemon.answer("again") == Done()
    assert [reason.text for _, reason in daemon.downs()] == ["signal:9", "noproc"]


def test_no_down_follows_a_demonitor() -> None:
    """The answer is a promise that this watch is over."""
    daemon = watched()

    daemon.tell(monitor(2), demonitor(1), dies(), drained())

    assert [ref for ref, _ in daemon.downs()] == [2]


def test_demonitor_of_another_clients_ref_leaves_that_watch_alone() -> None:
    """Refs are unique per connection, so two clients have a monitor 1."""
    daemon = watched()

    daemon.tell(demonitor(1, client=2), dies(), drained())

    assert len(daemon.downs(client=1)) == 1


def test_a_client_that_is_gone_hears_no_down() -> None:
    """Its number is never used again, so there is nobody to tell."""
    daemon = watched()

    daemon.tell(monitor(1, client=2), ClientGone(1), dies(), drained())

    assert daemon.downs(client=1) == []
    assert len(daemon.downs(client=2)) == 1


def test_what_the_dead_left_behind_is_swept_before_its_channel_is_waited_for() -> None:
    """A child forked without exec holds the socket open and would hold the DOWN back."""
    daemon = watched()

    orders = daemon.tell(dies())

    assert orders == [Sweep(life(1)), ArmDeadline(Timer("drain", life(1)), 250)]


def test_a_channel_held_open_is_read_out_and_counts_as_drained() -> None:
    """A stranger that keeps a descriptor cannot keep a death secret."""
    daemon = watched()
    daemon.tell(dies())

    assert daemon.tell(passes("drain")) == [DrainNow(life(1))]
    daemon.tell(drained(held=True))

    assert len(daemon.downs()) == 1
    assert "channel.held" in daemon.reports()


def test_a_channel_that_ended_in_time_is_not_reported_as_held() -> None:
    """An alarm that rings on every exit is no alarm."""
    daemon = watched()

    daemon.tell(dies())
    orders = daemon.tell(drained())

    assert orders[0] == DisarmDeadline(Timer("drain", life(1)))
    assert "channel.held" not in daemon.reports()


def test_a_dead_agent_is_swept_also_when_its_channel_ended_first() -> None:
    """Closing the channel says nothing about what it started."""
    daemon = watched()

    orders = daemon.tell(drained(), dies())

    assert position(orders, Sweep) < position(orders, SendDown)


def test_the_down_goes_out_before_the_life_is_disposed_of() -> None:
    """The shell closes the channel last, behind all it had to forward."""
    orders = watched().tell(dies(), drained())

    assert position(orders, SendDown) < position(orders, Dispose)


def test_a_process_that_outlives_its_channel_is_killed() -> None:
    """Nothing may stay alive and unreachable."""
    daemon = watched()

    assert daemon.tell(drained()) == [ArmDeadline(Timer("leave", life(1)), 5_000)]
    assert daemon.tell(passes("leave")) == [Kill(life(1))]
    assert "channel.lost" in daemon.reports()


def test_a_process_that_leaves_right_after_its_channel_is_not_killed() -> None:
    """That is how every orderly exit looks."""
    daemon = watched()

    daemon.tell(drained(), exits())

    assert daemon.count(Kill) == 0
    assert daemon.downs() == [(1, ExitReason("normal"))]


R1, R2 = accepted("r1"), accepted("r2")
LEAVES_1 = LeavingSaid(life(1), (R1,))
LEAVES_BOTH = LeavingSaid(life(1), (R1, R2))
EXITS_2 = ExitSaid(life(1), STUCK, (R2,))
LEAVES_NOTHING = LeavingSaid(life(1), ())


@pytest.mark.parametrize(
    ("facts", "account"),
    [
        ((stop(), LEAVES_1), [ReportUnresolved(life(1), (R1,))]),
        ((stop(), LEAVES_1, LEAVES_BOTH), [ReportUnresolved(life(1), (R1, R2))]),
        ((stop(), LEAVES_BOTH, EXITS_2), [ReportUnresolved(life(1), (R2,))]),
        ((stop(), LEAVES_BOTH, LEAVES_NOTHING), []),
        ((stop(), LEAVES_BOTH, ExitSaid(life(1), STUCK)), []),
        ((stop(), LEAVES_NOTHING, passes("stop")), []),
        ((stop(), LEAVES_1, passes("stop")), [ReportUnresolved(life(1), (R1,))]),
        ((ExitSaid(life(1), STUCK, (R1,)),), [ReportUnresolved(life(1), (R1,))]),
        ((stop(),), [WarnOfUnknown(life(1))]),
        ((ShutdownRequested(grace_ms=9),), [WarnOfUnknown(life(1))]),
        ((), []),
        ((AbuseSeen(life(1), "flood"),), []),
    ],
)
@pytest.mark.parametrize("last", list(permutations([dies(), drained()])))
def test_requests_without_an_outcome_are_named_by_the_last_word_of_their_agent(
    facts: tuple[Input, ...], account: list[Effect], last: tuple[Input, Input]
) -> None:
    """Who was asked to end and said nothing was frozen; who was not asked may have had none."""
    daemon = watched()
    assert not [e for e in daemon.tell(*facts, last[0]) if isinstance(e, ACCOUNTS)], "too early"

    orders = daemon.tell(last[1])

    assert [e for e in orders if isinstance(e, ACCOUNTS)] == account
    # Behind the news of its end, and before its name is forgotten.
    told = [type(e) for e in orders if isinstance(e, SendDown | Dispose | ACCOUNTS)]
    assert told == [SendDown, *map(type, account), Dispose]


def test_who_could_not_be_asked_when_the_daemon_ended_is_accounted_for_too() -> None:
    """Its channel was gone: nobody could ask, and its requests end with it all the same."""
    daemon = watched()

    daemon.tell(drained(), ShutdownRequested(grace_ms=9), passes("shutdown", None))

    assert WarnOfUnknown(life(1)) in daemon.tell(dies())


def test_what_a_dying_agent_says_last_is_heard_before_it_is_accounted_for() -> None:
    """The kernel is often faster than the channel."""
    daemon = watched()

    daemon.tell(stop(), dies(), LEAVES_1)

    assert ReportUnresolved(life(1), (R1,)) in daemon.tell(drained())


def test_a_start_that_fails_leaves_no_request() -> None:
    """It took none, and was killed without being asked."""
    daemon = Rehearsal(start(), born(), stop(), dies(), drained())

    assert not [e for e in daemon.orders if isinstance(e, ACCOUNTS)]


SAID = ExitReason("callback_failed", "ValueError")


@pytest.mark.parametrize(
    ("before", "status", "reason"),
    [
        ((), Exited(0), "normal"),
        ((stop(),), Exited(0), "shutdown"),
        ((ShutdownRequested(grace_ms=9),), Exited(0), "shutdown"),
        ((ShutdownRequested(grace_ms=9, forced=True),), Exited(0), "shutdown"),
        ((), Exited(1), "exit:1"),
        ((stop(),), Exited(1), "exit:1"),
        ((), Exited(255), "exit:255"),
        ((), Signalled(9), "signal:9"),
        ((), Signalled(11), "signal:11"),
        ((), Signalled(64), "turn_stuck"),
        ((ExitSaid(life(1), SAID),), Signalled(64), "callback_failed: ValueError"),
        ((ExitSaid(life(1), ExitReason("normal")),), Signalled(64), "normal"),
        ((ExitSaid(life(1), ExitReason("shutdown")), stop()), Signalled(64), "shutdown"),
        ((ExitSaid(life(1), ExitReason("signal:9")),), Signalled(64), "turn_stuck"),
        ((stop(), passes("stop")), Signalled(9), "signal:9"),
        ((stop(), passes("stop")), Exited(0), "shutdown"),
        ((stop(),), Signalled(15), "signal:15"),
        ((), Exited(70), "exit:70"),
        ((ExitSaid(life(1), SAID),), Exited(70), "callback_failed: ValueError"),
        ((ExitSaid(life(1), SAID), stop()), Exited(70), "callback_failed: ValueError"),
        ((ExitSaid(life(1), SAID),), Exited(0), "normal"),
        ((ExitSaid(life(1), SAID),), Exited(1), "exit:1"),
        ((ExitSaid(life(1), SAID),), Signalled(9), "signal:9"),
        ((ExitSaid(life(1), ExitReason("normal")),), Exited(70), "exit:70"),
        ((ExitSaid(life(1), ExitReason("signal:9")),), Exited(70), "exit:70"),
        ((ExitSaid(life(1), ExitReason("noproc")),), Exited(70), "exit:70"),
        ((AbuseSeen(life(1), "flood"),), Signalled(9), "protocol_abuse: flood"),
        ((AbuseSeen(life(1), "flood"),), Exited(1), "exit:1"),
        ((stop(), passes("stop"), AbuseSeen(life(1), "flood")), Signalled(9), "signal:9"),
    ],
)
def test_the_reason_is_what_the_kernel_says(
    before: tuple[Input, ...], status: ExitStatus, reason: str
) -> None:
    """Only the reserved status lets an agent speak for itself."""
    daemon = watched()

    daemon.tell(*before, ProcessExited(incarnation=life(1), status=status, now_ms=0), drained())

    assert [str(down) for _, down in daemon.downs()] == [reason]


@pytest.mark.parametrize(
    ("before", "status", "killed_for"),
    [
        ((stop(), passes("stop")), Signalled(9), "stop"),
        ((AbuseSeen(life(1), "flood"),), Signalled(9), "abuse"),
        ((drained(), passes("leave")), Signalled(9), "channel"),
        ((ShutdownRequested(grace_ms=9), passes("shutdown", None)), Signalled(9), "shutdown"),
        ((stop(), passes("stop")), Exited(0), None),
        ((stop(), passes("stop")), Signalled(11), None),
        ((stop(),), Signalled(9), None),
        ((), Signalled(9), None),
    ],
)
def test_a_life_that_the_daemon_killed_is_disposed_of_with_the_cause(
    before: tuple[Input, ...], status: ExitStatus, killed_for: str | None
) -> None:
    """The kernel's word is the same for a kill of anybody's, and its log has no other."""
    daemon = watched()
    daemon.tell(*before)
    orders = daemon.tell(ProcessExited(incarnation=life(1), status=status, now_ms=0))
    if drained() not in before:
        orders = daemon.tell(drained())

    assert [e.killed_for for e in orders if isinstance(e, Dispose)] == [killed_for]


@pytest.mark.parametrize("text", sorted(OWN_REASONS))
def test_an_agent_may_give_each_of_its_own_reasons(text: str) -> None:
    """With the reserved status they are believed, detail and all."""
    said = ExitReason(text, ("detail", 1))
    daemon = watched()

    daemon.tell(ExitSaid(life(1), said), exits(70), drained())

    assert daemon.downs() == [(1, said)]


def test_the_last_reason_an_agent_said_counts() -> None:
    """It may fail once more on its way out."""
    daemon = watched()
    daemon.tell(ExitSaid(life(1), SAID), ExitSaid(life(1), ExitReason("turn_stuck")))

    daemon.tell(exits(70), drained())

    assert daemon.downs() == [(1, ExitReason("turn_stuck"))]


def test_an_agent_that_abuses_the_protocol_is_killed_once() -> None:
    """The second thing it does wrong changes nothing any more."""
    daemon = watched()

    daemon.tell(AbuseSeen(life(1), "flood"), AbuseSeen(life(1), "nonsense"))
    daemon.tell(dies(), drained())

    assert daemon.count(Kill) == 1
    assert daemon.downs() == [(1, ExitReason("protocol_abuse", "flood"))]


@pytest.mark.parametrize("fact", [born(), exits(), drained(), AgentReady(life(1))])
def test_facts_about_a_life_that_is_over_are_ignored(fact: Input) -> None:
    """A queue may still hold them when the rules are done with that incarnation."""
    daemon = watched()
    daemon.tell(dies(), drained())
    before = daemon.table

    assert daemon.tell(fact) == []
    assert daemon.table == before


@pytest.mark.parametrize(
    "fact",
    [
        ProcessExited(incarnation=life(9), status=Exited(0), now_ms=0),
        AgentReady(Incarnation(BootId("f" * 16), 1)),
        drained(0),
        passes("stop", 9),
    ],
)
def test_facts_about_a_life_that_never_was_are_a_bug_of_the_shell(fact: Input) -> None:
    """Ignoring them would hide a mixed-up route."""
    daemon = watched()

    with pytest.raises(InvalidTransition, match="never launched"):
        daemon.tell(fact)


def test_who_goes_costs_as_much_whatever_it_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgotten one by one, thousands of watches kept the daemon from everything else."""
    copied: list[int] = []
    copy = Keyed._copy

    def counted(keyed: Keyed[object, object]) -> Keyed[object, object]:
        copied[-1] += 1
        return copy(keyed)

    for watches in (1, 50):
        daemon = watched()
        daemon.tell(*(monitor(ref) for ref in range(2, watches + 1)), monitor(1, client=2))
        copied.append(0)
        with monkeypatch.context() as patched:
            patched.setattr(Keyed, "_copy", counted)
            daemon.tell(ClientGone(1))
        assert [e.client for e in daemon.tell(dies(), drained()) if isinstance(e, SendDown)] == [2]

    assert copied[0] == copied[1] > 0
