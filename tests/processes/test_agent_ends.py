"""How an agent's end is told: once to everyone who asked, for the true reason, soon.

The kernel is the witness. What an agent says, or what waits to be said, changes
neither the reason nor the number of DOWNs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from functools import reduce

import pytest

from genagent_backends.gates import Gates
from genagent_protocol.envelopes import Completion, Down
from genagent_protocol.errors import ProcessDown
from genagent_protocol.refs import AgentHandle, Incarnation
from genagent_protocol.submission import Submission
from genagentd import kernel
from genagentd.client.calls import Lost
from genagentd.client.client import Client
from genagentd.client.story import hear
from support import fleet
from support.daemons import PrivateDaemon, living_below, zombies_below
from support.figures import Figures, counts, percentile
from support.waiting import until

pytestmark = pytest.mark.process


@counts(short=20, full=200)
def test_F003_a_killed_agent_is_told_once_to_every_monitor_and_soon(
    client: Client, figures: Figures, count: int
) -> None:
    """F003: exactly one DOWN for each of three monitors, within milliseconds of the kill."""
    waited_ms = []
    for number in range(count):
        handle = fleet.start(client, f"a{number}")
        monitors = [client.at(handle).monitor() for _ in range(3)]
        client.list()  # behind the monitors, so that they are there before the kill
        killed = time.monotonic()
        os.kill(handle.pid, signal.SIGKILL)
        downs = [client.receive(30_000) for _ in monitors]
        waited_ms.append((time.monotonic() - killed) * 1000)
        assert [(d.monitor, d.reason.text) for d in downs if isinstance(d, Down)] == [
            (monitor, "signal:9") for monitor in monitors
        ]
    assert list(fleet.rest(client)) == []
    waited_ms.sort()
    p50, p99 = percentile(waited_ms, 0.5), percentile(waited_ms, 0.99)
    what = f"{count} kills, 3 monitors each: DOWN"
    figures.note("F003", f"{what} p50", f"{p50:.1f} ms", "50 ms", met=p50 <= 50)
    figures.note("F003", f"{what} p99", f"{p99:.1f} ms", "500 ms", met=p99 <= 500)


_ENDS: list[tuple[str, fleet.Turn, str | None]] = [
    ("normal", [{"os_exit": 0}], None),
    ("exit:3", [{"os_exit": 3}], None),
    ("exit:70", [{"os_exit": 70}], None),
    ("signal:11", [{"kill": "SIGSEGV"}], None),
    ("signal:6", [{"kill": "SIGABRT"}], None),
    ("signal:12", [{"kill": "SIGUSR2"}], None),
    ("signal:9", [{"kill": "SIGKILL"}], None),
    ("callback_failed", fleet.SAYS, "Clumsy"),
]


@counts(short=8, full=100)
def test_F004_the_reason_is_what_the_kernel_says(
    client: Client, figures: Figures, count: int
) -> None:
    """F004: exits, crashes and signals, each told as what it was."""
    exact = 0
    for number in range(count):
        reason, turn, agent = _ENDS[number % len(_ENDS)]
        handle = fleet.start(client, f"a{number}", turn, agent=agent)
        client.at(handle).monitor()
        client.at(handle).submit_with_completion("end")
        exact += fleet.down(client, handle).reason.text == reason
    figures.note("F004", f"exact reasons of {count} ends", exact, str(count), met=exact == count)
    assert exact == count


@pytest.mark.parametrize(
    "how", ["awaits", "waits", "keeps the interpreter", "ignores signals", "blocks signals"]
)
@pytest.mark.parametrize("end", ["callback_failed", "turn_stuck", "shutdown"])
def test_F004_what_does_not_come_back_from_its_end_changes_neither_that_nor_its_reason(
    client: Client, how: str, end: str
) -> None:
    """F004: an end that was decided comes, also if nobody asked for it and would kill."""
    limits = {"shutdown_ms": 300, "interrupt_grace_ms": 100, "watchdog_ms": 100}
    turn: fleet.Turn = [{"hang": "busy", "for_ms": 600_000}] if end == "turn_stuck" else fleet.SAYS
    options = {**limits, "how": how}
    handle = fleet.start(client, "a", turn, agent="HangsAtTheEnd", options=options)
    client.at(handle).monitor()

    if end == "shutdown":
        client.drain("a")
    else:
        client.at(handle).submit_with_completion("end")

    expected = "normal" if end == "shutdown" else end
    assert fleet.down(client, handle).reason.text == expected


def test_F004_an_end_that_lets_no_signal_through_is_ended_by_the_one_that_nobody_blocks(
    client: Client,
) -> None:
    """F004: what was decided cannot be told apart then; that it ends, it does."""
    options = {"shutdown_ms": 300, "how": "blocks signals at its end"}
    handle = fleet.start(client, "a", fleet.SAYS, agent="HangsAtTheEnd", options=options)
    client.at(handle).monitor()

    with pytest.raises(ProcessDown, match="signal:9"):
        client.drain("a")

    assert fleet.down(client, handle).reason.text == "signal:9"


def test_F004_a_process_that_used_up_its_processor_time_says_so(client: Client) -> None:
    """F004: a limit of the system is a signal like any other."""
    handle = fleet.start(client, "a", [{"hang": "busy", "for_ms": 20_000}], agent="Strict")
    client.at(handle).monitor()

    client.at(handle).submit_with_completion("use it up")

    assert fleet.down(client, handle).reason.text == f"signal:{int(signal.SIGXCPU)}"


def test_F005_a_monitor_of_a_dead_or_unknown_process_fires_at_once(
    client: Client, figures: Figures
) -> None:
    """F005: nobody waits for the end of what is not there."""
    handle = fleet.start(client, "a")
    client.stop("a")
    unknown = AgentHandle(
        name="b",
        incarnation=Incarnation(handle.incarnation.boot, 999),
        pid=handle.pid,
        started_ticks=1,
        place=handle.place,
    )
    slowest_ms = 0.0
    for dead in (handle, unknown):
        began = time.monotonic()
        client.at(dead).monitor()
        assert fleet.down(client, dead).reason.text == "noproc"
        slowest_ms = max(slowest_ms, (time.monotonic() - began) * 1000)
    figures.note(
        "F005",
        "noproc for a dead and an unknown process",
        f"{slowest_ms:.1f} ms",
        "100 ms",
        met=slowest_ms <= 100,
    )


@counts(short=20, full=1_000)
def test_F006_an_old_handle_never_reaches_the_replacement(
    client: Client, figures: Figures, count: int
) -> None:
    """F006: whatever is sent with it, the successor of the same name hears nothing of it."""
    old = fleet.start(client, "a")
    client.stop("a")
    new = fleet.start(client, "a")
    captured, ref = client.at(old), client.at(old).submit_with_completion("too late").ref
    answered = 0
    for _ in range(count):
        captured.submit_with_completion("too late")
        answered += captured.notify("too late") != "not_alive"
        captured.monitor()
        for call in (captured.poll, captured.cancel_request, captured.interrupt_request):
            with contextlib.suppress(ProcessDown):
                call(ref, timeout_ms=None)
                answered += 1
    assert client.whereis("a") == new
    assert client.ask("a", "for you").text == "done"
    heard = list(fleet.rest(client))
    assert [m.reason.text for m in heard if isinstance(m, Down)] == ["noproc"] * count
    answered += len(heard) - count
    assert client.status("a").agent_state[0]["prompt"] == "for you"  # type: ignore[index, call-overload]  # its transcript
    figures.note(
        "F006",
        f"answers by the replacement to {count} of each call",
        answered,
        "0",
        met=answered == 0,
    )
    assert answered == 0


@pytest.mark.parametrize(("number", "reason"), [(9, "signal:9"), (11, "signal:11")])
def test_E003_a_process_killed_in_a_turn_takes_its_tools_with_it(
    client: Client, number: int, reason: str
) -> None:
    """E003: one DOWN; the turn's programs end, too; the request ends uncertain, for good."""
    handle = fleet.start(client, "a", fleet.BUSY_WITH_ORPHAN)
    client.at(handle).monitor()
    ref, begun = fleet.begin(client, handle, spawns=2)
    assert len(fleet.alive(begun)) == 3

    os.kill(handle.pid, number)

    ended = fleet.down(client, handle)
    assert ended.reason.text == reason
    fleet.gone(begun, within_s=2)
    # The daemon has answered since: whatever else it had to say of that life is here.
    assert client.poll("a", ref) == Lost(ref)
    with pytest.raises(ProcessDown, match="noproc"):
        client.at(handle).poll(ref)
    others = list(fleet.rest(client))
    assert [m for m in others if isinstance(m, Completion | Down)] == []
    story = reduce(hear, [*others, ended], Submission(ref=ref))
    assert (story.word, story.accepted, story.final) == ("uncertain", True, False)


@pytest.mark.parametrize(("number", "reason"), [(9, "signal:9"), (11, "signal:11")])
def test_E003_who_waits_for_the_answer_hears_that_the_process_is_down(
    client: Client, number: int, reason: str
) -> None:
    """E003: an answer that cannot come any more is not waited for, and not made up."""
    handle = fleet.start(client, "a", [{"kill": signal.Signals(number).name}])

    with pytest.raises(ProcessDown) as down:
        client.ask("a", "end")

    assert down.value.reason.text == reason
    assert client.whereis("a") is None
    assert not kernel.is_alive(handle.pid, handle.started_ticks)


@counts(short=20, full=50)
def test_F035_E013_many_exits_at_once_leave_no_zombie(
    daemon: PrivateDaemon, client: Client, figures: Figures, count: int
) -> None:
    """F035, E013: signals of children coalesce; ends must not."""
    turn: fleet.Turn = [{"gate": "together", "timeout_ms": 60_000}, {"os_exit": 0}]
    assert daemon.guardian is not None
    guardian = daemon.guardian.pid
    with Gates() as gates:
        options = {"gate_dir": gates.directory}
        handles = [fleet.start(client, f"a{n}", turn, options=options) for n in range(count)]
        for handle in handles:
            client.at(handle).monitor()
            client.at(handle).submit_with_completion("leave together")
        for _ in handles:
            gates.wait_blocked("together", 60_000)
        left = time.monotonic()
        for _ in handles:
            gates.release("together")
        reasons = [fleet.down(client, handle).reason.text for handle in handles]
    until(lambda: not zombies_below(guardian), "there is no zombie", within_s=10)
    took_ms = (time.monotonic() - left) * 1000
    figures.note(
        "F035", f"{count} exits at once: DOWNs", len(reasons), str(count), met=len(reasons) == count
    )
    figures.note(
        "F035",
        f"{count} exits at once: the last zombie is reaped after",
        f"{took_ms:.0f} ms",
        "2000 ms",
        met=took_ms <= 2_000,
    )
    assert reasons == ["normal"] * count
    # What is left below the guardian: the daemon, the helper, and the helper's tracker.
    assert len(living_below(guardian)) <= 3
