"""Turns, asks, tells, polls and chains, on agents that are processes."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import NotFound, PollCompleted, PollFailed, PollPending
from genagent_protocol.errors import CallTimeout, ProcessDown, Refused, StartFailed, TurnFailed
from genagent_protocol.reasons import (
    NO_TERMINAL_EVENT,
    TIMEOUT,
    UNKNOWN,
    BackendFailed,
    TaskCrashed,
)
from genagent_protocol.refs import RequestRef
from support import fleet
from support.background import in_background
from support.scenes import HANGS, PONG, WITHIN_MS, Scene, fails, held, says
from support.waiting import until

pytestmark = pytest.mark.process


def failure(scene: Scene, prompt: str = "p") -> object:
    """Ask, and return the reason why the turn failed."""
    with pytest.raises(TurnFailed) as error:
        scene.client.ask("a", prompt)
    return error.value.reason


def test_s001_an_ask_is_answered_with_the_response(scene: Scene) -> None:
    """Idle agent, script "pong": the asker gets it, the decision ran once, the agent is idle."""
    scene.start(says("pong"))

    assert scene.client.ask("a", "ping").text == "pong"

    assert scene.seen().count("response pong") == 1
    assert scene.client.runtime_snapshot("a").phase == "idle"


def test_s002_s003_a_tell_comes_back_at_once_and_is_polled(scene: Scene) -> None:
    """The ref comes without waiting for the backend: pending while held, then completed."""
    handle = scene.start(held())

    ref = scene.client.tell("a", "ping")
    scene.blocked()
    assert scene.client.poll("a", ref) == PollPending()
    assert scene.client.poll("a", RequestRef(handle.incarnation, "0" * 32)) == NotFound()
    scene.release()

    assert isinstance(scene.over(ref), PollCompleted)


def test_s004_s010_a_failed_turn_is_told_with_its_reason(scene: Scene) -> None:
    """To who polls or asks, and to `handle_error`."""
    scene.start(fails("r"), fails("s"))

    assert scene.over(scene.client.tell("a", "p")) == PollFailed(BackendFailed("r"))
    assert failure(scene) == BackendFailed("s")
    assert [line for line in scene.seen() if line.startswith("error")] == [
        "error backend_failed r",
        "error backend_failed s",
    ]


def test_s005_a_second_ask_waits_and_both_get_their_own(scene: Scene) -> None:
    """One is queued while the other is held; nobody gets the other's answer."""
    scene.start(held("one"), says("two"))
    first = in_background(lambda: scene.client.ask("a", "first"))
    scene.blocked()
    second = in_background(lambda: scene.client.ask("a", "second"))
    until(lambda: scene.client.status("a").queued == 1, "the second is queued")

    assert not second.done()
    scene.release()

    assert first.result(30).text == "one"
    assert second.result(30).text == "two"


def test_s006_queued_tells_run_in_their_order_one_at_a_time(scene: Scene) -> None:
    """Three tells behind a held turn: each turn ends before the next one begins."""
    scene.start(held(), PONG, PONG, PONG)
    scene.hold("p0")
    refs = [scene.client.tell("a", f"p{n}") for n in (1, 2, 3)]
    scene.release()
    for ref in refs:
        scene.over(ref)

    turns = [f"pre_turn p{n}" for n in range(4)]
    assert scene.prompts() == ["p0", "p1", "p2", "p3"]
    assert scene.seen(without=("pre_run", "stream", "response")) == [
        line for turn in turns for line in (turn, "post_turn completed")
    ]


def test_s007_the_asker_of_a_chaining_turn_gets_the_first_response(scene: Scene) -> None:
    """The chained turn has a ref of its own and the origin self_chain."""
    scene.start(says("one"), held("two"), on={"handle_response": [{"prompt": "more"}]})

    assert scene.client.ask("a", "p").text == "one"
    scene.blocked()
    current = scene.client.runtime_snapshot("a").current_request
    scene.release()
    scene.wait_seen("response two")

    assert current is not None
    assert current.origin == "self_chain"
    assert current.ref.text not in scene.decided()[:1]


def test_s008_a_chained_prompt_runs_before_a_queued_one(scene: Scene) -> None:
    """First, chained, queued."""
    scene.start(held(), PONG, PONG, on={"handle_response": [{"prompt": "chained"}]})
    scene.hold("first")
    ref = scene.client.tell("a", "queued")
    scene.release()
    scene.over(ref)

    assert scene.prompts() == ["first", "chained", "queued"]


def test_s009_s023_a_prompt_that_cannot_be_dispatched_fails_alone(scene: Scene) -> None:
    """The asker gets the reason, no stream callback ran, and the next ask works."""
    scene.start([{"error": "no"}], PONG)

    assert failure(scene) == BackendFailed("no")

    assert not [line for line in scene.seen() if line.startswith("stream")]
    assert scene.client.ask("a", "p").text == "pong"


def test_s011_s012_an_end_without_a_reason_has_one(scene: Scene) -> None:
    """An `error` event without a reason is `unknown`; no terminal event is told as that."""
    scene.start([{"kind": "error"}], [{"kind": "text", "text": "and then"}])

    assert failure(scene) == UNKNOWN
    assert failure(scene) == NO_TERMINAL_EVENT


def test_s013_a_stream_that_raises_crashes_the_turn_alone(scene: Scene) -> None:
    """The agent is alive and idle."""
    scene.start([{"raise": "ValueError", "message": "m"}], PONG)

    assert failure(scene) == TaskCrashed("ValueError", "m")
    assert scene.client.ask("a", "p").text == "pong"


def test_s014_a_turn_that_leaves_without_a_result_has_crashed(scene: Scene) -> None:
    """`sys.exit` in a turn ends that turn; what is queued then completes."""
    scene.start([{"gate": "turn", "timeout_ms": 60_000}, {"exit": 0}], PONG)
    first = scene.hold()
    second = scene.client.tell("a", "queued")
    scene.release()

    assert scene.outcome(first).reason.code == "task_crashed"  # type: ignore[union-attr]  # it failed
    assert isinstance(scene.over(second), PollCompleted)


def test_s015_what_follows_the_terminal_event_appears_nowhere(scene: Scene) -> None:
    """Neither a callback nor the response sees it."""
    scene.start([*says("pong"), {"kind": "text", "text": "late"}])

    response = scene.client.ask("a", "p")

    assert [event.kind for event in response.events] == ["text", "result"]
    assert "stream text late" not in scene.seen()


def test_s016_a_stream_of_something_else_crashes_the_turn_alone(scene: Scene) -> None:
    """An element that is no Event is the turn's crash, not the agent's end."""
    scene.client.start_agent(
        "support.scenario_agents:Bare",
        name="a",
        backend="support.scenario_backends:Rambling",
        cwd=fleet.HERE,
    )

    assert failure(scene).code == "task_crashed"  # type: ignore[attr-defined]  # it has one
    assert scene.client.whereis("a") is not None


def test_s017_a_watchdog_stops_the_turn_and_fails_it_with_timeout(scene: Scene) -> None:
    """The agent is idle afterwards and takes the next request."""
    scene.start(HANGS, PONG, watchdog_ms=500)

    assert failure(scene) == TIMEOUT
    assert scene.client.ask("a", "p").text == "pong"


@pytest.mark.parametrize("value", [0, -5, "text", 1.5, "forever"])
def test_s018_any_other_watchdog_fails_the_start(scene: Scene, value: object) -> None:
    """Positive whole milliseconds or infinity, nothing else; nothing is registered."""
    with pytest.raises(StartFailed) as error:
        scene.start(watchdog_ms=value)

    assert error.value.reason.kind == "invalid_limits"
    assert scene.client.whereis("a") is None


@pytest.mark.parametrize("value", [60_000, "infinity"])
def test_s018_a_watchdog_is_positive_or_infinite(scene: Scene, value: object) -> None:
    """The snapshot shows which: None is no limit."""
    scene.start(held(), watchdog_ms=value)
    scene.hold()

    current = scene.client.runtime_snapshot("a").current_request
    scene.release()

    assert current is not None
    assert current.watchdog_ms == (None if value == "infinity" else value)


def test_s019_decision_and_hook_see_the_whole_stream_state(scene: Scene) -> None:
    """Also what the stream callback made of the terminal event."""
    scene.start()
    scene.client.ask("a", "p")

    assert scene.state() == (
        "pre_run",
        "pre_turn p",
        "stream text pong",
        "stream result",
        "response pong",
        "post_turn completed",
    )


@pytest.mark.parametrize("end", [[{"kind": "error", "reason": "r"}], []])
def test_s020_s021_a_turn_that_ended_by_itself_keeps_its_stream_state(
    scene: Scene, end: list[dict[str, object]]
) -> None:
    """After an `error` event as after a stream without an end."""
    scene.start([{"kind": "text", "text": "so far"}, *end])
    failure(scene)

    assert scene.state()[2] == "stream text so far"
    assert scene.state()[-1].startswith("post_turn")


def test_s022_s039_an_interrupted_turn_leaves_the_state_of_its_dispatch(scene: Scene) -> None:
    """Status shows the retained state, before and after: never the stream's own."""
    scene.start(HANGS)
    ref = scene.client.tell("a", "p")
    scene.wait_seen("stream text begun")

    assert scene.state() == ("pre_run", "pre_turn p")
    assert scene.client.interrupt_request("a", ref) == "accepted"
    assert scene.state() == (
        *("pre_run", "pre_turn p"),
        *("error interrupted", "post_turn interrupted"),
    )


@pytest.mark.parametrize(("agent", "copies"), [("CountsCopies", 1), ("CountsCopiesWatching", 3)])
def test_s022_the_state_is_copied_for_those_who_can_touch_it(
    scene: Scene, agent: str, copies: int
) -> None:
    """Once at the start, and in front of each turn that hands it to user code."""
    scene.client.start_agent(
        f"support.scenario_agents:{agent}", name="a", backend="echo", cwd=fleet.HERE
    )
    for _ in range(2):
        scene.client.ask("a", "p")

    assert scene.state() == copies


def test_s024_s025_s026_s027_a_response_is_folded_from_its_events(scene: Scene) -> None:
    """Terminal text wins, chunks are joined, messages set off, the last usage counts."""
    texts = [{"kind": "text", "text": word} for word in ("hel", "lo")]
    first, second = (
        {"kind": "text", "text": word, "message_boundary": True} for word in ("first ", "second")
    )
    usage = [{"kind": "usage", "input_tokens": n} for n in (1, 2)]
    scene.start(
        [*texts, {"kind": "result", "text": ""}],
        [*texts, {"kind": "result"}],
        [first, {"kind": "text", "text": "message"}, second, {"kind": "result"}],
        [*usage, {"kind": "result"}],
    )

    empty, joined, messages, used = (scene.client.ask("a", "p") for _ in range(4))

    assert empty.text == ""
    assert joined.text == "hello"
    assert (messages.text, messages.final_message) == ("first message\n\nsecond", "second")
    assert joined.usage is None
    assert used.usage == {"input_tokens": 2}


def test_s028_the_session_keeps_an_id_that_the_next_turn_does_not_repeat(scene: Scene) -> None:
    """The session remembers it; each response says what its own turn said."""
    scene.client.start_agent(
        "support.scenario_agents:Bare",
        name="a",
        backend="support.scenario_backends:Remembering",
        cwd=fleet.HERE,
    )

    first, second = (scene.client.ask("a", "p") for _ in range(2))

    assert (first.session_id, second.session_id) == ("s-1", None)
    assert second.text == "goes on with s-1"


def test_s029_a_name_that_is_taken_stays_with_its_holder(scene: Scene) -> None:
    """The second start names the first agent, which is untouched."""
    first = scene.start()

    with pytest.raises(StartFailed) as error:
        scene.start()

    assert error.value.reason.kind == "already_started"
    assert scene.client.whereis("a") == first
    assert scene.state() == ("pre_run",)


@pytest.mark.parametrize("name", ["text", ("worker", 3), 7, None, {"k": "v"}, b"\x00\xff"])
def test_s030_any_value_is_a_name(scene: Scene, name: object) -> None:
    """Text, tuples, numbers and more: all calls by name work."""
    scene.client.start_agent(None, name=name, backend="echo")

    assert scene.client.ask(name, "hello").text == "hello"
    assert scene.client.whereis(name) is not None
    assert scene.client.status(name).state == "idle"


def test_s031_s032_a_handle_given_as_a_name_is_a_name(scene: Scene) -> None:
    """Not found unless an agent was registered under it; then that one answers."""
    handle = scene.start()
    for call in (scene.client.status, scene.client.stop, scene.client.runtime_snapshot):
        with pytest.raises(Refused) as error:
            call(handle)
        assert error.value.reason.code == "not_found"
    assert scene.client.whereis("a") == handle

    scene.client.start_agent(None, name=handle, backend="echo")

    assert scene.client.ask(handle, "hello").text == "hello"
    assert scene.prompts() == []


def test_s033_an_absent_name_is_not_found_and_casts_to_it_are_fine(scene: Scene) -> None:
    """Every synchronous call says so; notify, interrupt, resume and halt say nothing."""
    client = scene.client
    ref = RequestRef(scene.start().incarnation, "0" * 32)
    for call in (
        lambda: client.ask("nobody", "p"),
        lambda: client.tell("nobody", "p"),
        lambda: client.tell_with_completion("nobody", "p"),
        lambda: client.notify_ack("nobody", 1),
        lambda: client.interrupt_request("nobody", ref),
        lambda: client.cancel_request("nobody", ref),
        lambda: client.status("nobody"),
        lambda: client.runtime_snapshot("nobody"),
        lambda: client.reset_session("nobody"),
        lambda: client.drain("nobody"),
        lambda: client.stop("nobody"),
    ):
        with pytest.raises(Refused) as error:
            call()
        assert error.value.reason.code == "not_found"
    assert client.poll("nobody", ref) == NotFound()

    client.notify("nobody", 1)
    client.interrupt("nobody")
    client.resume("nobody")
    client.halt("nobody")


def test_s034_a_process_that_dies_during_a_call_ends_the_call(scene: Scene) -> None:
    """As what it is; it is never turned into `not_found`."""
    handle = scene.start(held())
    call = in_background(lambda: scene.client.ask("a", "p"))
    scene.blocked()
    scene.kill(handle)

    with pytest.raises(ProcessDown) as down:
        call.result(30)
    assert down.value.reason.text == "signal:9"


def test_s035_an_ask_that_times_out_leaves_its_work_queued(scene: Scene) -> None:
    """The caller gives up; the prompt runs later."""
    scene.start(held(), PONG)
    scene.hold()

    with pytest.raises(CallTimeout):
        scene.client.ask("a", "patient", timeout_ms=20)
    assert scene.client.status("a").queued == 1
    scene.release()
    scene.wait_seen("post_turn completed", times=2)

    assert scene.prompts() == ["held", "patient"]


def test_s036_s248_the_queued_ask_of_a_dead_caller_never_runs(scene: Scene) -> None:
    """Its place is free again, telemetry says why, and the backend never sees it."""
    scene.start(held(), PONG)
    scene.hold()
    with scene.client.telemetry() as records:
        caller = scene.elsewhere("client.ask('a', 'for the dead')")
        until(lambda: scene.client.status("a").queued == 1, "the ask is queued")
        caller.kill()
        caller.wait()
        cancelled = records.receive(
            WITHIN_MS, matching=lambda record: getattr(record, "event", "") == "turn.cancelled"
        )
        until(lambda: scene.client.status("a").queued == 0, "its place is free")
    scene.release()
    scene.idle()

    assert cancelled.metadata["reason_kind"] == "caller_down"  # type: ignore[union-attr]  # a record
    assert scene.prompts() == ["held"]


def test_s037_s038_an_active_ask_runs_on_without_its_caller(scene: Scene) -> None:
    """All callbacks run as usual, and nothing crashes."""
    scene.start(held(), PONG)
    caller = scene.elsewhere("client.ask('a', 'p')")
    scene.blocked()
    caller.kill()
    caller.wait()
    scene.release()
    scene.wait_seen("post_turn completed")

    assert scene.client.ask("a", "next").text == "pong"
