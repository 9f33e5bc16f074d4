"""However a provider's turn is ended, its whole process tree is ended with it.

The tree is a program and three tools in sessions of their own, which hold its pipes.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd.agent.child import GRACE_MS
from genagentd.client.client import Client
from support.backend_cli import Step, StubCli
from support.figures import Figures, counts
from support.fleet import Identity, alive, gone, identities, rest
from support.provider_turns import (
    below,
    first_event,
    heard,
    program,
    start,
    submit,
    turn,
)
from support.waiting import until

pytestmark = pytest.mark.process

BEGUN: dict[str, Step] = {
    "claude": {"line": {"type": "system", "subtype": "init", "session_id": "s-1"}},
    "codex": {
        "line": {"type": "item.started", "item": {"id": "i", "type": "command_execution"}},
    },
}
FIRST = {"claude": "session", "codex": "tool_use"}
DONE: dict[str, Step] = {
    "claude": {"line": {"type": "result", "result": "done", "session_id": "s-1"}},
    "codex": {"line": {"type": "turn.completed"}},
}
#: More than any of its turns may take to be ended.
SOON_S = 20.0
each_program = pytest.mark.parametrize("name", ["claude", "codex"])


def busy(
    client: Client, stub: StubCli, name: str, **terms: Any
) -> tuple[AgentHandle, RequestRef, list[Identity]]:
    """Begin a turn whose program and tools work for ever, and return who they are."""
    stub.plays([{"helpers": 3}, BEGUN[name], {"silence": True}], [DONE[name]])
    handle = start(client, name, stub.options, **terms)
    ref = submit(client, handle)
    first_event(client, ref, FIRST[name])
    tree = identities(program(stub))
    assert len(alive(tree)) == 4
    return handle, ref, tree


@each_program
def test_an_interrupt_ends_the_tree_before_it_is_answered(
    client: Client, stub: StubCli, name: str
) -> None:
    """And the next turn runs."""
    handle, ref, tree = busy(client, stub, name)

    assert client.at(handle).interrupt_request(ref) == "accepted"

    assert alive(tree) == []
    assert heard(client, ref).reason.code == "interrupted"
    assert turn(client, handle).kinds[-1] == "result"


@each_program
def test_the_watchdog_ends_the_tree_before_it_is_told(
    client: Client, stub: StubCli, name: str
) -> None:
    """F029: nobody has to ask."""
    handle, ref, tree = busy(client, stub, name, limits={"watchdog_ms": 1_500})

    assert heard(client, ref).reason.code == "timeout"

    assert alive(tree) == []
    assert turn(client, handle).kinds[-1] == "result"


@each_program
def test_a_stop_ends_the_tree_before_it_is_answered(
    client: Client, stub: StubCli, name: str
) -> None:
    """The agent is gone, and so is all that it began."""
    _, _, tree = busy(client, stub, name, limits={"shutdown_ms": 500})

    client.stop("a")

    assert alive(tree) == []


@each_program
def test_the_tree_of_an_agent_that_was_killed_goes_with_it(
    client: Client, stub: StubCli, name: str
) -> None:
    """The daemon ends what the agent could not."""
    handle, _, tree = busy(client, stub, name)

    os.kill(handle.pid, signal.SIGKILL)

    gone(tree, within_s=SOON_S)


# -- one process for all turns ------------------------------------------------------------------

INTERRUPTED: list[Step] = [{"until": "interrupt"}, DONE["claude"]]


def duplex(client: Client, stub: StubCli, *steps: Step, **terms: Any) -> AgentHandle:
    """Start an agent whose turns share a process that plays *steps*."""
    stub.plays([*steps, {"hear": True}])
    return start(client, "claude", {**stub.options, "mode": "duplex"}, **terms)


def test_a_session_process_survives_an_interrupt_with_what_lives_below_it(
    client: Client, stub: StubCli
) -> None:
    """It begins with the first turn and serves the second; both end with the agent."""
    hear: Step = {"hear": True}
    first: list[Step] = [{"helpers": 1}, hear, BEGUN["claude"], *INTERRUPTED]
    handle = duplex(client, stub, *first, hear, BEGUN["claude"], DONE["claude"])
    ref = submit(client, handle, "one")
    first_event(client, ref, "session")
    tree = identities(program(stub))

    assert client.at(handle).interrupt_request(ref) == "accepted"
    assert alive(tree) == [pid for pid, _ in tree]
    assert heard(client, ref).reason.code == "interrupted"
    assert turn(client, handle, "two").response.text == "done"
    assert len(stub.runs) == 1
    client.stop("a")
    assert alive(tree) == []


def test_the_watchdog_spares_a_session_process(client: Client, stub: StubCli) -> None:
    """The turn was too long; the process is innocent."""
    hear: Step = {"hear": True}
    handle = duplex(
        client,
        stub,
        *(hear, BEGUN["claude"], *INTERRUPTED, hear, BEGUN["claude"], DONE["claude"]),
        limits={"watchdog_ms": 800},
    )

    assert turn(client, handle, "one").reason.code == "timeout"
    assert turn(client, handle, "two").response.text == "done"
    assert len(stub.runs) == 1


def test_a_session_process_that_ignores_an_interrupt_is_ended(
    client: Client, stub: StubCli
) -> None:
    """E087: inside the grace of the turn, so that the agent lives; the next turn resumes."""
    stubborn: Step = {"ignore": ["SIGINT", "SIGTERM"]}
    stub.plays(
        [stubborn, {"helpers": 1}, {"hear": True}, BEGUN["claude"], {"silence": True}],
        [{"hear": True}, BEGUN["claude"], DONE["claude"], {"hear": True}],
    )
    handle = start(client, "claude", {**stub.options, "mode": "duplex"})
    ref = submit(client, handle, "one")
    first_event(client, ref, "session")
    tree = identities(program(stub))

    assert client.at(handle).interrupt_request(ref) == "accepted"
    assert alive(tree) == []
    assert turn(client, handle, "two").response.text == "done"
    assert "--resume=s-1" in stub.runs[1].argv


def test_a_session_process_that_does_not_answer_is_ended_inside_a_short_grace(
    client: Client, stub: StubCli
) -> None:
    """It ends on the first signal, and the agent lives."""
    hear: Step = {"hear": True}
    stub.plays([hear, BEGUN["claude"], {"silence": True}], [hear, BEGUN["claude"], DONE["claude"]])
    options = {**stub.options, "mode": "duplex"}
    handle = start(client, "claude", options, limits={"interrupt_grace_ms": 800})
    ref = submit(client, handle, "one")
    first_event(client, ref, "session")

    assert client.at(handle).interrupt_request(ref) == "accepted"
    assert heard(client, ref).reason.code == "interrupted"
    assert turn(client, handle, "two").response.text == "done"


def test_a_session_process_that_reads_nothing_is_ended_by_an_interrupt(
    client: Client, stub: StubCli, tmp_path: Path
) -> None:
    """The pipe is full of answers to its questions; the agent lives, and the next turn resumes."""
    asked = tmp_path / "asked"
    hear: Step = {"hear": True}
    deaf: list[Step] = [hear, BEGUN["claude"], {"asks": 1_000}, {"touch": str(asked)}]
    stub.plays([*deaf, {"silence": True}], [hear, BEGUN["claude"], DONE["claude"], hear])
    handle = start(client, "claude", {**stub.options, "mode": "duplex"})
    ref = submit(client, handle, "one")
    until(asked.exists, "it has asked")

    assert client.at(handle).interrupt_request(ref) == "accepted"
    assert heard(client, ref).reason.code == "interrupted"
    assert turn(client, handle, "two").response.text == "done"
    assert "--resume=s-1" in stub.runs[1].argv


def test_a_session_process_goes_with_its_agent(client: Client, stub: StubCli) -> None:
    """Between turns, too, when nothing of a turn is there to be ended."""
    hear: Step = {"hear": True}
    handle = duplex(client, stub, {"helpers": 1}, hear, BEGUN["claude"], DONE["claude"])
    turn(client, handle)
    tree = identities(program(stub))
    assert len(alive(tree)) == 2

    os.kill(handle.pid, signal.SIGKILL)

    gone(tree, within_s=SOON_S)


# -- at any moment ------------------------------------------------------------------------------

#: What an interrupt may find the program doing.
DOINGS: list[list[Step]] = [
    [{"helpers": 1}, BEGUN["claude"], {"silence": True}],
    [BEGUN["claude"], DONE["claude"]],
    [{"read_stdin": True}, {"helpers": 2}, BEGUN["claude"], DONE["claude"]],
    [{"ignore": ["SIGINT"]}, BEGUN["claude"], {"silence": True}],
    [{"on_interrupt": [DONE["claude"]]}, BEGUN["claude"], {"silence": True}],
]
LATEST_MS = 150


def chance_of(count: int) -> random.Random:
    """Return chance that a failing run can be repeated with."""
    seed = int(os.environ.get("GENAGENT_TEST_SEED") or random.randrange(2**32))
    print(f"\nGENAGENT_TEST_SEED={seed} for {count} turns")
    return random.Random(seed)


@counts(short=12, full=500)
def test_F031_E082_interrupts_at_random_moments_leave_nothing(
    client: Client, stub: StubCli, figures: Figures, count: int
) -> None:
    """F031, E082: no process, no hang, one completion for each ref, and no event after it."""
    chance = chance_of(count)
    stub.plays(*(chance.choice(DOINGS) for _ in range(count)))
    handle = start(client, "claude", stub.options, limits={"interrupt_grace_ms": 1_000})
    came_to: Counter[str] = Counter()
    left = 0
    for _ in range(count):
        ref = submit(client, handle)
        # The moment is what this is about; nothing is waited for.
        time.sleep(chance.uniform(0, LATEST_MS) / 1000)
        answer = client.at(handle).interrupt_request(ref, timeout_ms=30_000)
        done = heard(client, ref)
        left += len(below(handle))
        came_to[f"{answer}, {done.ending}"] += 1
    late = list(rest(client, 200))

    print(dict(came_to))
    assert came_to.keys() <= {"accepted, interrupted", "idle, completed"}
    what = f"{count} interrupts at random moments:"
    figures.note("F031", f"{what} processes left", left, "0", met=left == 0)
    figures.note("F031", f"{what} completions", came_to.total(), str(count), met=True)
    figures.note("F031", f"{what} late messages", len(late), "0", met=late == [])
    assert (left, late) == (0, [])


@counts(short=12, full=300)
def test_E082_interrupts_while_a_session_process_starts_leave_none_behind(
    client: Client, stub: StubCli, figures: Figures, count: int
) -> None:
    """E082: one that the turn did not get is nobody's, and one that does not answer is ended."""
    chance = chance_of(count)
    stub.plays([{"hear": True}, {"silence": True}])
    options = {**stub.options, "mode": "duplex"}
    handle = start(client, "claude", options, limits={"interrupt_grace_ms": 1_000})
    left = 0
    for _ in range(count):
        ref = submit(client, handle)
        # The moment is what this is about; nothing is waited for.
        time.sleep(chance.uniform(0, 8) / 1000)
        answer = client.at(handle).interrupt_request(ref, timeout_ms=30_000)
        assert (answer, heard(client, ref).ending) == ("accepted", "interrupted")
        left += len(below(handle))

    what = f"{count} interrupts while a process for the session starts: processes left"
    figures.note("E082", what, left, "0", met=left == 0)
    assert left == 0


# -- how long it takes --------------------------------------------------------------------------


def took_ms(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return (time.monotonic() - began) * 1000


@counts(short=1, full=5)
def test_F028_a_full_standard_error_costs_little(
    client: Client, stub: StubCli, figures: Figures, count: int
) -> None:
    """F028: 2 MB of it are read while the program still writes."""
    quiet: list[Step] = [DONE["claude"]]
    loud: list[Step] = [{"stderr": 2_000_000}, *quiet]
    stub.plays(*[quiet, loud] * count)
    handle = start(client, "claude", stub.options)
    times = [took_ms(lambda: turn(client, handle).response) for _ in range(2 * count)]

    more = max(second - first for first, second in zip(times[::2], times[1::2], strict=True))
    figures.note("F028", "2 MB on stderr: more", f"{more:.0f} ms", "1000 ms", met=more <= 1_000)


@counts(short=1, full=5)
def test_F029_the_watchdog_is_on_time(
    client: Client, stub: StubCli, figures: Figures, count: int
) -> None:
    """F029: a silent program and its tools are gone, and that is told, soon after it fired."""
    watchdog_ms = 2_000
    stub.plays([{"helpers": 3}, BEGUN["claude"], {"silence": True}])
    handle = start(client, "claude", stub.options, limits={"watchdog_ms": watchdog_ms})
    times = [took_ms(lambda: turn(client, handle).reason) for _ in range(count)]

    off = max(abs(time_ms - watchdog_ms) for time_ms in times) / watchdog_ms
    figures.note("F029", "told after the setting", f"{off:.1%}", "5%", met=off <= 0.05)
    assert min(times) >= watchdog_ms
    assert below(handle) == []


@counts(short=1, full=5)
def test_F030_a_program_that_ignores_signals_is_killed_on_time(
    client: Client, stub: StubCli, figures: Figures, count: int
) -> None:
    """F030: one grace after SIGINT, one after SIGTERM."""
    stubborn: Step = {"ignore": ["SIGINT", "SIGTERM"]}
    stub.plays([stubborn, BEGUN["claude"], {"silence": True}])
    handle = start(client, "claude", stub.options)
    times = []
    for _ in range(count):
        ref = submit(client, handle)
        first_event(client, ref, "session")
        times.append(took_ms(partial(client.at(handle).interrupt_request, ref)))
        assert heard(client, ref).reason.code == "interrupted"

    off = max(abs(time_ms - 2 * GRACE_MS) for time_ms in times)
    what = f"killed, beside two graces of {GRACE_MS} ms"
    figures.note("F030", what, f"{off:.0f} ms", "1000 ms", met=off <= 1_000)
    assert below(handle) == []
