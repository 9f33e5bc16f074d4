"""Whatever a turn began ends with it, in whatever session; what the session needs stays."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from genagent_protocol.envelopes import Admission, Completion, Down, EventMessage
from genagent_protocol.events import Completed, Failed
from genagentd import kernel
from genagentd.client.client import Client
from support import fleet
from support.daemons import PrivateDaemon, zombies_below
from support.figures import Figures, counts
from support.waiting import until

pytestmark = pytest.mark.process

#: A provider's program with a tool in a session of its own, one that was orphaned, and one
#: that nobody was told of; none of them obeys INT or TERM.
DEAF: fleet.Turn = [
    {"spawn": "grandchild", "deaf": True},
    {"spawn": "orphan", "deaf": True},
    {"spawn": "unmanaged", "deaf": True},
]


@pytest.mark.parametrize("how", ["interrupt", "watchdog", "stop", "crash", "kill", "end"])
def test_E002_every_way_a_turn_ends_takes_its_whole_tree(client: Client, how: str) -> None:
    """E002: also what called setsid, forked twice, and is deaf to requests."""
    last: dict[str, fleet.Turn] = {
        "crash": [{"pause_ms": 200}, {"raise": "ValueError"}],
        "end": [{"pause_ms": 200}, {"kind": "result"}],
    }
    limits = {"watchdog_ms": 1_000} if how == "watchdog" else {}
    turn: fleet.Turn = [*DEAF, *last.get(how, [{"hang": "idle"}])]
    handle = fleet.start(client, "a", turn, fleet.SAYS, options=limits)
    client.at(handle).monitor()
    ref, begun = fleet.begin(client, handle, spawns=3)
    assert len(begun) == 4

    match how:
        case "interrupt":
            assert client.interrupt_request("a", ref) == "accepted"
        case "stop":
            assert client.stop("a").text == "shutdown"
        case "kill":
            os.kill(handle.pid, signal.SIGKILL)
            fleet.down(client, handle)
        case _:
            fleet.completion(client, ref)

    # The news comes when the turn is over, and by then its processes are gone, too.
    fleet.gone(begun, within_s=0)
    if how not in ("stop", "kill"):
        assert client.ask("a", "and on").text == "done"
        assert kernel.children(handle.pid) == []


@pytest.mark.parametrize("how", ["interrupt", "watchdog", "stop", "crash", "end"])
def test_E002_an_agent_without_descriptors_leaves_none_of_it_either(
    client: Client, how: str
) -> None:
    """E002: what has to be opened in order to look is kept back for that."""
    last: dict[str, fleet.Turn] = {
        "crash": [{"pause_ms": 200}, {"raise": "ValueError"}],
        "end": [{"pause_ms": 200}, {"kind": "result"}],
    }
    limits = {"watchdog_ms": 1_000} if how == "watchdog" else {}
    turn: fleet.Turn = [*DEAF, {"kind": "text"}, *last.get(how, [{"hang": "idle"}])]
    handle = fleet.start(client, "a", turn, fleet.SAYS, agent="Leaky", options=limits)
    client.at(handle).monitor()
    ref, begun = fleet.begin(client, handle, spawns=3)
    fleet.event(client, ref, "text")

    match how:
        case "interrupt":
            assert client.interrupt_request("a", ref) == "accepted"
        case "stop":
            assert client.stop("a").text == "shutdown"
        case _:
            fleet.completion(client, ref)

    fleet.gone(begun, within_s=0)
    if how != "stop":
        assert client.ask("a", "and on").text == "done"
        assert kernel.children(handle.pid) == []


@pytest.mark.parametrize("how", ["interrupt", "watchdog", "end"])
def test_a_process_of_the_session_outlives_the_turn_and_ends_with_the_agent(
    client: Client, how: str
) -> None:
    """A duplex program serves many turns; only what the turn itself began is swept."""
    first: fleet.Turn = [{"spawn": "grandchild", "for_session": True}, {"kind": "result"}]
    second: fleet.Turn = [
        {"spawn": "orphan"},
        {"pause_ms": 200} if how == "end" else {"hang": "idle"},
        {"kind": "result"},
    ]
    handle = fleet.start(client, "a", first, second, options={"watchdog_ms": 1_500})
    client.at(handle).monitor()
    ref, session = fleet.begin(client, handle)
    fleet.completion(client, ref)
    assert len(fleet.alive(session)) == 2

    ref, of_turn = fleet.begin(client, handle)
    if how == "interrupt":
        assert client.interrupt_request("a", ref) == "accepted"
    fleet.completion(client, ref)

    assert fleet.alive(of_turn) == []
    assert len(fleet.alive(session)) == 2
    client.stop("a")
    fleet.gone(session, within_s=2)


def test_F029_a_provider_that_is_silent_for_ever_is_ended_by_the_watchdog(
    client: Client, figures: Figures
) -> None:
    """F029: on time, with its tree; the next turn works."""
    handle = fleet.start(
        client, "a", fleet.BUSY_WITH_ORPHAN, fleet.SAYS, options={"watchdog_ms": 2_000}
    )
    began = time.monotonic()
    ref, begun = fleet.begin(client, handle, spawns=2)

    outcome = fleet.completion(client, ref).outcome

    took_ms = (time.monotonic() - began) * 1000
    assert isinstance(outcome, Failed)
    assert outcome.reason.code == "timeout"
    assert fleet.alive(begun) == []
    assert client.ask("a", "and on").text == "done"
    figures.note(
        "F029",
        "a watchdog of 2000 ms ended turn and tree after",
        f"{took_ms:.0f} ms",
        "2100 ms + grace 1000 ms",
        met=2_000 <= took_ms <= 3_100,
    )


def test_F030_a_program_that_ignores_term_is_killed_at_the_end_of_its_grace(
    client: Client, figures: Figures
) -> None:
    """F030: asked first, killed then."""
    handle = fleet.start(client, "a", [*DEAF, {"hang": "idle"}])
    ref, begun = fleet.begin(client, handle, spawns=3)
    began = time.monotonic()

    assert client.interrupt_request("a", ref) == "accepted"

    took_ms = (time.monotonic() - began) * 1000
    assert fleet.alive(begun) == []
    figures.note(
        "F030",
        "deaf programs of a turn are killed after (grace 500 ms)",
        f"{took_ms:.0f} ms",
        "500 ms +- 1000 ms",
        met=took_ms <= 1_500,
    )


@counts(short=30, full=500)
def test_F031_interrupts_at_random_moments_leave_nothing_and_end_each_request_once(
    daemon: PrivateDaemon, client: Client, figures: Figures, count: int
) -> None:
    """F031: 0 to 50 ms after it was sent, whatever the turn is doing then."""
    turn: fleet.Turn = [
        {"kind": "text", "text": "1"},
        {"spawn": "orphan"},
        {"kind": "text", "text": "2"},
        {"pause_ms": 10},
        {"spawn": "child"},
        {"kind": "text", "text": "3"},
        {"pause_ms": 10},
        {"kind": "result"},
    ]
    chance = random.Random(31)
    handle = fleet.start(client, "a", turn)
    client.at(handle).monitor()
    completed, interrupted, late, doubled = 0, 0, 0, 0
    for _ in range(count):
        ref = client.at(handle).submit_with_completion("go", stream_to=client.address).ref
        ended = False
        heard = client.receive(chance.randrange(51), matching=lambda m: isinstance(m, Down))
        assert heard is None
        while client.interrupt_request("a", ref) == "not_current":
            pass
        # Behind the answer to this, everything about the request has arrived.
        client.status("a")
        for message in fleet.rest(client):
            match message:
                case Completion(ref=found, outcome=outcome) if found == ref:
                    doubled += ended
                    ended = True
                    completed += isinstance(outcome, Completed)
                    interrupted += isinstance(outcome, Failed)
                case EventMessage() | Completion():
                    late += ended or message.ref != ref
                case Admission():
                    pass
                case other:
                    raise AssertionError(f"unexpected: {other}")
        assert ended
    assert kernel.children(handle.pid) == []
    until(lambda: not zombies_below(daemon.pid), "there is no zombie", within_s=2)
    figures.note(
        "F031",
        f"{count} interrupts: ended exactly once; late events, second ends, processes left",
        f"{completed + interrupted}; {late}, {doubled}, {len(kernel.children(handle.pid))}",
        f"{count}; 0, 0, 0",
        met=completed + interrupted == count and late == doubled == 0,
    )
    assert (completed + interrupted, late, doubled) == (count, 0, 0)
    assert interrupted > 0


@pytest.mark.parametrize(
    ("how", "stuck"), [("blocked", True), ("stubborn", True), ("held", False), ("busy", True)]
)
def test_a_turn_that_cannot_be_stopped_ends_the_agent_not_the_promise(
    client: Client, how: str, stuck: bool
) -> None:
    """Never two turns alive; an interpreter that is held has to let go before anyone can tell."""
    turn: fleet.Turn = [{"spawn": "grandchild"}, {"pause_ms": 50}]
    hang = {"hang": how, "for_ms": 4_000}
    handle = fleet.start(
        client, "a", [*turn, hang, {"kind": "result"}], options={"interrupt_grace_ms": 500}
    )
    client.at(handle).monitor()
    ref, begun = fleet.begin(client, handle)
    client.receive(100, matching=lambda m: isinstance(m, Down))

    client.interrupt("a")

    if stuck:
        assert fleet.down(client, handle).reason.text == "turn_stuck"
        fleet.gone(begun, within_s=2)
    else:
        outcome = fleet.completion(client, ref).outcome
        assert isinstance(outcome, Completed | Failed)
        assert fleet.alive(begun) == []
        assert client.whereis("a") == handle


def test_a_stop_of_an_agent_that_holds_the_interpreter_kills_it_in_time(client: Client) -> None:
    """It cannot hear that it is to end, so the window of its stop decides."""
    turn: fleet.Turn = [{"spawn": "grandchild"}, {"pause_ms": 50}, {"hang": "held"}]
    handle = fleet.start(client, "a", turn, options={"shutdown_ms": 500})
    _, begun = fleet.begin(client, handle)
    client.receive(200, matching=lambda m: isinstance(m, Down))

    assert client.stop("a").text == "signal:9"

    fleet.gone([*begun, fleet.of(handle)], within_s=2)
