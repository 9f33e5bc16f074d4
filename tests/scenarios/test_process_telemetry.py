"""What an agent's life tells: to a client that watches, and to a handler inside the agent."""

from __future__ import annotations

import json

import pytest

from genagent_protocol.envelopes import Telemetry
from genagent_protocol.errors import Refused, TurnFailed
from genagent_protocol.plain import FrozenDict
from genagentd.client.mailbox import Mailbox
from support import fleet
from support.scenes import HANGS, PONG, Scene, fails, held, records

pytestmark = pytest.mark.process


def until_event(mailbox: Mailbox, name: str) -> list[Telemetry]:
    """Read up to the first record of that name."""
    return records(mailbox, lambda record: record.event == name)


def until_idle(mailbox: Mailbox) -> list[Telemetry]:
    """Read up to the return to idle."""
    return records(
        mailbox,
        lambda record: record.event == "state.changed" and record.metadata["to"] == "idle",
    )


def named(told: list[Telemetry], *names: str) -> list[Telemetry]:
    """Return the records of these names, in order."""
    return [record for record in told if record.event in names]


def test_s239_s240_one_turn_is_told_from_start_to_end(scene: Scene) -> None:
    """In order, all of this agent and of one ref; `turn.*` has no content."""
    scene.start()
    with scene.client.telemetry() as mailbox:
        ref = scene.client.tell("a", "secret words")
        told = until_idle(mailbox)

    changed = named(told, "state.changed")
    assert [(r.metadata["from"], r.metadata["to"]) for r in changed] == [
        ("idle", "processing"),
        ("processing", "idle"),
    ]
    assert [r.event for r in told if r.event.startswith(("prompt.", "turn."))] == [
        *("prompt.start", "turn.start", "prompt.stop", "turn.stop"),
    ]
    assert {record.agent for record in told} == {"a"}
    turns = named(told, "turn.start", "turn.stop")
    assert {record.metadata["ref"] for record in turns} == {ref.text}
    assert {record.metadata["origin"] for record in turns} == {"tell"}
    began, ended = turns
    assert isinstance(began.measurements["system_time_ms"], int)
    assert int(str(ended.measurements["duration_ms"])) >= 0
    assert "secret" not in repr(turns)
    [start] = named(told, "prompt.start")
    assert start.metadata["prompt"] == "secret words"
    assert start.metadata["rewritten"] is False


def test_s239_an_agent_that_is_started_under_a_watch_is_told_from_its_first_record(
    scene: Scene,
) -> None:
    """A client gets all of them: what precedes the first message, and an end before that."""
    with scene.client.telemetry() as mailbox:
        scene.start()
        begun = until_idle(mailbox)
        scene.start(name="b", on={"pre_run": [{"fail": "r"}]})
        ended = until_event(mailbox, "terminated")

    assert [r.metadata for r in named(begun, "state.changed")] == [{"from": None, "to": "idle"}]
    [last] = named(ended, "terminated")
    assert (last.agent, last.metadata["reason"]["text"]) == ("b", "pre_run_failed")  # type: ignore[index, call-overload]  # a map


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (fails("r"), "backend_or_callback_error"),
        (HANGS, "timeout"),
        ([{"raise": "ValueError"}], "task_crashed"),
        ([*HANGS], "interrupted"),
    ],
)
def test_s241_turn_errors_have_a_bounded_kind(
    scene: Scene, turn: list[dict[str, object]], kind: str
) -> None:
    """And what a watchdog stopped took at least that long."""
    scene.start(turn, watchdog_ms=50 if kind == "timeout" else None)
    with scene.client.telemetry() as mailbox:
        ref = scene.client.tell("a", "p")
        if kind == "interrupted":
            scene.wait_seen("stream text begun")
            scene.client.interrupt_request("a", ref)
        [*_, error] = until_event(mailbox, "turn.error")

    assert (error.metadata["ref"], error.metadata["reason_kind"]) == (ref.text, kind)
    assert "reason" not in error.metadata
    assert int(str(error.measurements["duration_ms"])) >= (50 if kind == "timeout" else 0)


def test_s242_an_overload_is_told_in_full_and_as_a_kind(scene: Scene) -> None:
    """`input.rejected` has the numbers, `turn.rejected` a ref that nobody holds."""
    scene.start(held(), max_pending_prompts=0)
    scene.hold()
    with scene.client.telemetry() as mailbox:
        with pytest.raises(Refused):
            scene.client.tell("a", "p")
        told = until_event(mailbox, "turn.rejected")
    scene.release()

    [rejected] = named(told, "input.rejected")
    reason = rejected.metadata["reason"]
    assert isinstance(reason, FrozenDict)
    assert (reason["queue"], reason["limit"], reason["max_count"]) == ("prompts", "count", 0)
    assert told[-1].metadata["reason_kind"] == "overloaded"
    assert told[-1].metadata["ref"]


def test_s243_a_gate_skip_is_a_rejection_alone(scene: Scene) -> None:
    """No start, no error."""
    scene.start(on={"pre_turn": [{"skip": 1}]})
    with scene.client.telemetry() as mailbox:
        with pytest.raises(TurnFailed):
            scene.client.ask("a", "p")
        scene.client.notify_ack("a", "marker")
        told = until_event(mailbox, "event.received")

    assert [r.event for r in told if r.event.startswith(("turn.", "prompt."))] == ["turn.rejected"]
    assert named(told, "turn.rejected")[0].metadata["reason_kind"] == "pre_turn_skipped"


def test_s244_the_depth_counts_up_with_each_admission(scene: Scene) -> None:
    """It is the depth after the prompt has joined."""
    scene.start(held(), PONG, PONG, PONG)
    scene.hold()
    with scene.client.telemetry() as mailbox:
        for _ in range(3):
            scene.client.tell("a", "p")
        told = records(mailbox, lambda record: record.measurements.get("depth") == 3)
    scene.release()

    assert [r.measurements["depth"] for r in named(told, "mailbox.queued")] == [1, 2, 3]


def test_s246_an_event_is_told_on_arrival_even_if_it_is_refused(scene: Scene) -> None:
    """With the event itself."""
    scene.start(held(), max_pending_notifications=0)
    scene.hold()
    with scene.client.telemetry() as mailbox:
        scene.client.notify("a", {"ci_failed": "x"})
        told = until_event(mailbox, "input.rejected")
    scene.release()

    [received] = named(told, "event.received")
    assert received.metadata["event"] == {"ci_failed": "x"}


def test_s247_an_orderly_end_is_told_by_the_agent_and_a_kill_is_not(scene: Scene) -> None:
    """What the daemon tells of the death comes in both cases."""
    with scene.client.telemetry() as mailbox:
        scene.start()
        scene.client.stop("a")
        stopped = until_event(mailbox, "agent.down")
        handle = scene.start()
        scene.watch(handle)
        scene.kill(handle)
        fleet.down(scene.client, handle)
        killed = until_event(mailbox, "agent.down")

    [terminated] = named(stopped, "terminated")
    assert terminated.metadata["reason"] == {"t": "exit_reason", "text": "shutdown"}
    assert named(killed, "terminated") == []


def test_s248_a_cancelled_request_is_told_and_never_starts(scene: Scene) -> None:
    """With its kind and its attempt."""
    scene.start(held(), PONG)
    scene.hold()
    with scene.client.telemetry() as mailbox:
        ref = scene.client.tell("a", "queued")
        scene.client.cancel_request("a", ref)
        scene.release()
        told = until_idle(mailbox)

    [cancelled] = named(told, "turn.cancelled")
    assert cancelled.metadata["ref"] == ref.text
    assert cancelled.metadata["reason_kind"] == "caller_cancelled"
    assert cancelled.metadata["attempt"] == 1
    assert ref.text not in [r.metadata["ref"] for r in named(told, "turn.start")]


def test_a_handler_inside_the_agent_hears_the_same_records(scene: Scene) -> None:
    """`telemetry.attach` in the agent's own code; nobody else has to watch (E)."""
    scene.start(agent="Watched")
    scene.client.ask("a", "p")
    scene.client.notify_ack("a", "event")

    events = [json.loads(line)["event"] for line in scene.seen() if line.startswith("{")]
    assert events == [
        "state.changed",
        *("prompt.start", "turn.start", "state.changed"),
        *("prompt.stop", "turn.stop", "state.changed"),
        "event.received",
    ]
