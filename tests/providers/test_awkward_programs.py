"""Programs that misbehave, below a real agent: the turn ends as documented, the next one works.

The stub does what programs were reported to do. Only what needs the agent process is
shown here: its memory, its watchdog, its queue, and that nothing outlives the turn.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from genagent_protocol.envelopes import Admission, Completion, EventMessage
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import EventCaptureOverflow
from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd.client.client import Client
from support.backend_cli import Step, StubCli
from support.daemons import PrivateDaemon
from support.figures import Figures
from support.fleet import alive, identities
from support.provider_turns import (
    agents_end,
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

INIT: Step = {"line": {"type": "system", "subtype": "init", "session_id": "s-1"}}
TOOL: Step = {
    "line": {
        "type": "assistant",
        "message": {"id": "m", "content": [{"type": "tool_use", "id": "t", "name": "Bash"}]},
    }
}
RESULT: Step = {"line": {"type": "result", "result": "done", "session_id": "s-1"}}
SILENCE: Step = {"silence": True}
STUBBORN: Step = {"ignore": ["SIGINT", "SIGTERM"]}
DONE: list[Step] = [INIT, RESULT]


def says(text: str) -> Step:
    content = [{"type": "text", "text": text}]
    return {"line": {"type": "assistant", "message": {"id": "m", "content": content}}}


def logged(house: PrivateDaemon) -> str:
    """Return what the lives of the agent wrote to their logs so far."""
    return "".join(log.read_text() for log in (house.places.logs / "a").glob("*.log"))


def peak_bytes(handle: AgentHandle) -> int:
    """Return the most memory that the agent's process has had so far."""
    status = Path(f"/proc/{handle.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("size", [70_000, 300_000, 5_000_000])
def test_E073_a_long_line_below_the_cap_is_read(client: Client, stub: StubCli, size: int) -> None:
    """E073: line readers that stop at 64 KiB end turns that were fine."""
    stub.plays([INIT, {"long": size}, RESULT])
    handle = start(client, "claude", stub.options)

    assert turn(client, handle).response.text == "done"


def test_E073_a_long_text_is_an_event_and_the_capture_limit_is_its_cap(
    client: Client, stub: StubCli
) -> None:
    """E073: what the line limit lets through is still more than a turn keeps by default."""
    text = "x" * 2_000_000
    stub.plays([INIT, says(text), {"line": {"type": "result", "session_id": "s-1"}}])
    small = start(client, "claude", stub.options)
    large = start(
        client, "claude", stub.options, "b", limits={"max_event_bytes_per_turn": 3_000_000}
    )

    assert isinstance(turn(client, small).reason, EventCaptureOverflow)
    assert below(small) == []
    assert turn(client, large).response.text == text


def test_F027_E073_a_line_over_the_cap_ends_the_turn_in_bounded_memory(
    client: Client, stub: StubCli, figures: Figures
) -> None:
    """F027, E073: 40 MB in one line are `line_too_long`, at most 64 MiB more, and forgotten."""
    stub.plays(DONE, [INIT, {"long": 40_000_000}, RESULT], DONE)
    handle = start(client, "claude", stub.options)
    turn(client, handle)
    before = peak_bytes(handle)

    failed = turn(client, handle)

    assert failed.failure.kind == "line_too_long"
    more = (peak_bytes(handle) - before) / 1024 / 1024
    figures.note("F027", "a line of 40 MB: memory", f"+{more:.0f} MiB", "+64 MiB", met=more <= 64)
    assert more <= 64
    assert turn(client, handle).response.text == "done"
    assert "--resume=s-1" in stub.runs[-1].argv


def test_F028_E074_a_full_standard_error_holds_up_nobody(client: Client, stub: StubCli) -> None:
    """F028, E074: 2 MB of it before the first line, and its end explains a failure."""
    stub.plays(
        [{"stderr": 2_000_000}, *DONE],
        [{"stderr": 2_000_000}, {"complain": "\nno credit left"}, {"exit": 1}],
    )
    handle = start(client, "claude", stub.options)

    assert turn(client, handle).response.text == "done"
    assert turn(client, handle).failure.message.endswith("no credit left")


def test_the_version_that_runs_is_in_the_agents_log_once_for_each_life(
    client: Client, house: PrivateDaemon, stub: StubCli
) -> None:
    """It is what a report of a strange turn needs first; a version never tried is a warning."""
    stub.plays(DONE)
    stub.answers_version("echo 9.9.9")
    handle = start(client, "claude", stub.options)
    for _ in range(3):
        assert turn(client, handle).response.text == "done"

    until(lambda: "version=" in logged(house), "it is logged")
    line = "program.untested program=claude version=9.9.9 tested=2.1.197-2.1.332"
    assert logged(house).count(line) == 1


def test_an_old_name_of_an_option_is_told_in_the_agents_log(
    client: Client, house: PrivateDaemon, stub: StubCli, tmp_path: Path
) -> None:
    """A warning that Python keeps from users would reach nobody before the name is gone."""
    start(client, "claude", {**stub.options, "cwd": str(tmp_path)})

    until(lambda: "option cwd is an old name of working_dir" in logged(house), "it is told")


@pytest.fixture
def terminal() -> Iterator[int]:
    with ExitStack() as opened:
        ours, theirs = os.openpty()
        opened.callback(os.close, ours)
        opened.callback(os.close, theirs)
        yield theirs


@pytest.mark.parametrize("from_where", ["a terminal", "a service manager", "an open pipe"])
def test_E075_a_program_that_reads_its_input_to_the_end_answers_at_once(
    terminal: int, tmp_path: Path, from_where: str
) -> None:
    """E075: its input is the prompt alone, wherever the daemon was started from."""
    reading, writing = os.pipe()
    inputs = {
        "a terminal": terminal,
        "a service manager": subprocess.DEVNULL,
        "an open pipe": reading,
    }
    stub = StubCli(tmp_path)
    stub.plays([{"read_stdin": True}, *DONE])
    daemon = PrivateDaemon(stdin=inputs[from_where]).start()
    try:
        with Client(daemon.run) as client, agents_end(client, daemon):
            handle = start(client, "claude", stub.options)
            assert turn(client, handle, "all of it").response.text == "done"
            client.stop("a")
    finally:
        daemon.stop()
        daemon.cleanup()
        os.close(reading)
        os.close(writing)

    assert stub.runs[0].stdin == "all of it"


@pytest.mark.parametrize(
    ("options", "limits", "fired"),
    [
        ({"idle_timeout_ms": 400}, {}, "idle_timeout"),
        ({"timeout_ms": 400}, {}, "timeout"),
        ({}, {"watchdog_ms": 400}, "watchdog"),
    ],
    ids=["idle", "whole-turn", "watchdog"],
)
def test_E076_F029_a_program_that_falls_silent_is_ended_by_the_clock_that_was_set(
    client: Client,
    stub: StubCli,
    options: dict[str, int],
    limits: dict[str, int],
    fired: str,
) -> None:
    """E076, F029: after a tool call, for ever; its tools end with it and the next turn is fine."""
    stub.plays([{"helpers": 3}, INIT, TOOL, SILENCE], DONE)
    handle = start(client, "claude", {**stub.options, **options}, limits=limits)

    failed = turn(client, handle)

    if fired == "watchdog":
        assert failed.reason.code == "timeout"
    else:
        assert failed.failure.kind == fired
        assert failed.failure.raw == FrozenDict(clock=fired, after_ms=400)
    assert len(program(stub)) == 4
    assert below(handle) == []
    assert turn(client, handle).response.text == "done"
    assert "--resume=s-1" in stub.runs[-1].argv


@pytest.mark.parametrize("result", [True, False], ids=["succeeded", "failed"])
def test_E078_helpers_of_a_program_are_gone_when_its_turn_is_over(
    client: Client, stub: StubCli, result: bool
) -> None:
    """E078: three of them, in sessions of their own, that hold its pipes; it exits with 0."""
    stub.plays([{"helpers": 3}, INIT, *([RESULT] if result else []), {"exit": 0}])
    handle = start(client, "claude", stub.options)

    done = turn(client, handle)

    if result:
        assert done.response.text == "done"
    else:
        assert done.failure.kind == "provider_error"
    assert len(program(stub)) == 4
    assert below(handle) == []


def test_E087_F030_a_program_that_ignores_signals_is_killed_and_the_queue_goes_on(
    client: Client, stub: StubCli
) -> None:
    """E087, F030: the state stays true all the time, and both later prompts run."""
    stub.plays([STUBBORN, {"helpers": 1}, INIT, TOOL, SILENCE], DONE)
    handle = start(client, "claude", stub.options, limits={"interrupt_grace_ms": 2_000})
    current, *queued = (submit(client, handle, prompt) for prompt in ("one", "two", "three"))
    first_event(client, current, "tool_use")
    tree = identities(program(stub))
    during = client.status("a")

    stopped = client.at(handle).interrupt_request(current)
    killed = alive(tree)
    outcomes = [heard(client, ref) for ref in (current, *queued)]

    assert (during.state, during.current_request, during.queued) == ("processing", current, 2)
    assert stopped == "accepted"
    assert killed == []
    assert outcomes[0].reason.code == "interrupted"
    assert [done.response.text for done in outcomes[1:]] == ["done", "done"]
    after = client.status("a")
    assert (after.state, after.current_request, after.queued) == ("idle", None, 0)


def test_E083_an_interrupt_stops_the_agent_it_is_for_and_no_other(
    client: Client, tmp_path: Path
) -> None:
    """E083: with the ref of another agent's request it stops nobody."""
    stubs = [StubCli(tmp_path, name) for name in ("one", "two")]
    for stub in stubs:
        stub.plays([{"helpers": 1}, INIT, TOOL, SILENCE])
    handles = [
        start(client, "claude", stub.options, name) for stub, name in zip(stubs, "ab", strict=True)
    ]
    refs = [submit(client, handle) for handle in handles]
    for ref in refs:
        first_event(client, ref, "tool_use")
    trees = [identities(program(stub)) for stub in stubs]

    assert client.interrupt_request("a", refs[1]) == "not_current"
    assert [len(alive(tree)) for tree in trees] == [2, 2]
    assert client.interrupt_request("a", refs[0]) == "accepted"
    assert [len(alive(tree)) for tree in trees] == [0, 2]
    assert heard(client, refs[0]).reason.code == "interrupted"
    assert client.status("b").current_request == refs[1]


def test_E086_nothing_of_an_interrupted_turn_comes_after_its_end(
    client: Client, stub: StubCli, tmp_path: Path
) -> None:
    """E086: interrupted in mid-flood with the next prompt sent at once, which waits its turn."""
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}
    flood = tmp_path / "flood.jsonl"
    line = json.dumps({"type": "stream_event", "event": delta})
    flood.write_text(f"{line}\n" * 200_000)
    stub.plays([INIT, {"file": str(flood)}, SILENCE], DONE)
    limits = {"max_events_per_turn": 4_000, "event_retention": "compact"}
    handle = start(client, "claude", stub.options, limits=limits)
    old = submit(client, handle, "old")
    first_event(client, old, "text")

    client.interrupt("a")
    new = submit(client, handle, "new")
    order: list[tuple[RequestRef, bool]] = []
    while sum(over for _, over in order) < 2:
        message = client.receive(60_000)
        assert isinstance(message, Admission | EventMessage | Completion)
        order.append((message.ref, isinstance(message, Completion)))

    end = order.index((old, True))
    assert {ref for ref, _ in order[end + 1 :]} == {new}
    assert (new, True) not in order[:end]
