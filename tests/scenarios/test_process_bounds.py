"""Bounds of queues and of what a turn may say, on agents that are processes."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import PollCompleted, PollFailed
from genagent_protocol.envelopes import Telemetry
from genagent_protocol.errors import Refused, TurnFailed
from genagent_protocol.events import Completed
from genagent_protocol.failed import Failed
from genagent_protocol.plain import encoded_size
from genagent_protocol.reasons import (
    CANCELLED,
    INTERRUPTED,
    BackendFailed,
    EventCaptureOverflow,
    Overloaded,
)
from support.background import in_background
from support.scenes import PONG, WITHIN_MS, Scene, fails, held, says

pytestmark = pytest.mark.process


def overload(scene: Scene, prompt: str = "x") -> Overloaded:
    """Tell a prompt that does not fit and return the refusal."""
    with pytest.raises(Refused) as error:
        scene.client.tell("a", prompt)
    assert isinstance(error.value.reason, Overloaded)
    return error.value.reason


def overflow(scene: Scene) -> EventCaptureOverflow:
    """Ask, and return how the turn said too much."""
    with pytest.raises(TurnFailed) as error:
        scene.client.ask("a", "p")
    assert isinstance(error.value.reason, EventCaptureOverflow)
    return error.value.reason


# --- queues


def test_s124_a_full_queue_refuses_tell_and_ask_with_the_numbers(scene: Scene) -> None:
    """And takes the next one once a place is free."""
    scene.start(held(), held(), PONG, max_pending_prompts=1)
    scene.hold()
    scene.client.tell("a", "queued")

    refusal = overload(scene, "x")
    with pytest.raises(Refused) as asked:
        scene.client.ask("a", "x")
    scene.release()
    scene.blocked()
    last = scene.client.tell("a", "fits again")
    scene.release()

    assert refusal == Overloaded(
        queue="prompts",
        limit="count",
        pending_count=1,
        pending_bytes=encoded_size("queued"),
        incoming_bytes=encoded_size("x"),
        max_count=1,
        max_bytes=1_048_576,
    )
    assert asked.value.reason == refusal
    assert isinstance(scene.over(last), PollCompleted)


def test_s125_an_exact_fit_is_admitted_and_one_more_byte_is_not(scene: Scene) -> None:
    """The cap is the size of "small"."""
    scene.start(held(), PONG, max_pending_prompt_bytes=encoded_size("small"))
    scene.hold()

    scene.client.tell("a", "small")

    assert overload(scene, "x").limit == "bytes"
    scene.release()


def test_s126_s139_caps_of_zero_still_let_an_idle_agent_work(scene: Scene) -> None:
    """The active prompt is outside of them, whatever its size."""
    scene.start(held(), PONG, max_pending_prompts=0, max_pending_notifications=0)
    scene.hold("x" * 100_000)

    assert (overload(scene).queue, overload(scene).limit) == ("prompts", "count")
    with pytest.raises(Refused) as error:
        scene.client.notify_ack("a", 1)
    scene.release()

    assert isinstance(error.value.reason, Overloaded)
    assert (error.value.reason.queue, error.value.reason.limit) == ("notifications", "count")


def test_s127_notifications_are_bounded_like_prompts(scene: Scene) -> None:
    """By count and by bytes; a cast that does not fit is told by telemetry alone."""
    scene.start(held(), max_pending_notification_bytes=encoded_size("event"))
    scene.hold()
    with pytest.raises(Refused) as large:
        scene.client.notify_ack("a", "larger event")
    scene.client.notify_ack("a", "event")
    with scene.client.telemetry() as records:
        scene.client.notify("a", "dropped")
        told = records.receive(
            WITHIN_MS, matching=lambda record: getattr(record, "event", "") == "input.rejected"
        )
    scene.release()
    scene.idle()

    assert isinstance(large.value.reason, Overloaded)
    assert large.value.reason.limit == "bytes"
    assert isinstance(told, Telemetry)
    assert 'event "dropped"' not in scene.seen()
    assert 'event "event"' in scene.seen()


def test_s128_exactly_as_many_are_accepted_as_fit(scene: Scene) -> None:
    """Twenty at once, from twenty threads, for three places."""
    scene.start(held(), PONG, PONG, PONG, max_pending_prompts=3)
    scene.hold()

    tells = [in_background(lambda: scene.client.tell("a", "p")) for _ in range(20)]
    refused = [call for call in tells if isinstance(call.exception(30), Refused)]

    assert len(refused) == 17
    assert scene.client.runtime_snapshot("a").pending_prompts == 3
    scene.release()


def test_s129_a_halted_agent_keeps_what_it_admitted_within_its_cap(scene: Scene) -> None:
    """The next is refused; the resume runs what was kept and frees its place."""
    scene.start(max_pending_prompts=1)
    scene.client.halt("a")
    kept = scene.client.tell("a", "kept")

    assert overload(scene).queue == "prompts"
    scene.client.resume("a")

    assert isinstance(scene.over(kept), PollCompleted)
    scene.client.halt("a")
    scene.client.tell("a", "in the free place")


def test_s130_an_event_prompt_that_does_not_fit_is_told_to_handle_error(scene: Scene) -> None:
    """What is queued is unaffected."""
    scene.start(held(), PONG, max_pending_prompts=1)
    scene.hold()
    queued = scene.client.tell("a", "queued")
    scene.client.notify_ack("a", {"prompt": "generated"})
    scene.release()

    assert isinstance(scene.over(queued), PollCompleted)
    assert "error overloaded prompts count" in scene.seen()
    assert scene.prompts() == ["held", "queued"]


@pytest.mark.parametrize(("bytes_", "runs"), [(300, True), (100, False)])
def test_s131_s132_a_chain_has_a_place_of_its_own_and_has_to_fit_the_bytes(
    scene: Scene, bytes_: int, runs: bool
) -> None:
    """Two hundred characters, in a queue without a single place."""
    scene.start(
        max_pending_prompts=0,
        max_pending_prompt_bytes=bytes_,
        on={"handle_response": [{"prompt": "x" * 200}]},
    )
    scene.client.ask("a", "p")
    scene.wait_seen("response pong" if runs else "error overloaded self_chain bytes", times=1)
    scene.idle()

    assert scene.prompts() == ["p", *(["x" * 200] if runs else [])]
    assert ("error overloaded self_chain bytes" in scene.seen()) is not runs


def test_s133_an_interrupt_gives_the_room_of_notifications_back(scene: Scene) -> None:
    """The deferred one is handled, and the next one fits."""
    scene.start(held(), held(), max_pending_notifications=1)
    ref = scene.hold()
    scene.client.notify_ack("a", 1)
    with pytest.raises(Refused):
        scene.client.notify_ack("a", 2)

    assert scene.client.interrupt_request("a", ref) == "accepted"

    assert scene.state()[-1] == "event 1"
    scene.hold("next")
    scene.client.notify_ack("a", 3)
    scene.release()


def test_s135_s114_s208_a_cancelled_tell_frees_its_place_at_once(scene: Scene) -> None:
    """An equal prompt fits in its place, and the cancelled one never reaches the backend."""
    size = encoded_size("queued")
    scene.start(held(), PONG, max_pending_prompts=1, max_pending_prompt_bytes=size)
    scene.hold()
    ref = scene.client.tell_with_completion("a", "queued")

    assert scene.client.cancel_request("a", ref) == "cancelled"
    again = scene.client.tell_with_completion("a", "qveved")
    scene.release()

    assert scene.outcome(ref) == Failed(CANCELLED)
    assert isinstance(scene.outcome(again), Completed)
    assert scene.prompts() == ["held", "qveved"]


def test_s136_a_halt_makes_room_before_its_events_are_handled(scene: Scene) -> None:
    """What chose to fail leaves the full queue, and the event's prompt takes the place."""
    scene.start(held(), PONG, max_pending_prompts=1, on={"handle_response": [{"halt": 1}]})
    scene.hold()
    opted = scene.client.tell_with_completion("a", "opted in", on_halt="fail")
    scene.client.notify_ack("a", {"prompt": "generated"})
    scene.release()

    assert scene.outcome(opted).reason.code == "halted"  # type: ignore[union-attr]  # it failed
    scene.wait_seen("post_run")
    assert scene.client.runtime_snapshot("a").pending_prompts == 1
    scene.client.resume("a")
    scene.wait_seen("pre_turn generated")


def test_s137_a_retry_that_does_not_fit_delivers_the_first_error(scene: Scene) -> None:
    """`handle_error` hears of both, and its second prompt is nobody's request."""
    plans = [{"prompt": "x" * 200}, {"prompt": "short"}]
    scene.start(fails("r"), PONG, on={"handle_error": plans}, max_pending_prompt_bytes=100)

    outcome = scene.outcome(ref := scene.client.tell_with_completion("a", "p"))
    scene.wait_seen("response pong")

    assert outcome == Failed(BackendFailed("r"))
    assert [line for line in scene.seen() if line.startswith("error")] == [
        "error backend_failed r",
        "error overloaded self_chain bytes",
    ]
    assert scene.decided()[0] == ref.text
    assert ref.text not in scene.decided()[1:]


def test_s140_breaking_both_limits_is_reported_as_count(scene: Scene) -> None:
    """Count is looked at first."""
    scene.start(held(), PONG, max_pending_prompts=1, max_pending_prompt_bytes=10)
    scene.hold()
    scene.client.tell("a", "queued")

    assert overload(scene, "x" * 100).limit == "count"
    scene.release()


# --- capture


def test_s141_one_event_too_many_fails_the_turn(scene: Scene) -> None:
    """A thousand texts and a result are 1,001; poll shows the same."""
    scene.start([{"many": 1_000, "event": {"kind": "text", "text": "x"}}, {"kind": "result"}])

    ref = scene.client.tell("a", "p")
    known = scene.over(ref)

    assert isinstance(known, PollFailed)
    assert isinstance(known.reason, EventCaptureOverflow)
    found = known.reason
    assert (found.limit, found.max_events, found.retained_events) == ("events", 1_000, 1_000)
    assert found.rejected_event_kind == "result"
    assert scene.seen().count("stream text x") == 1_000


def test_s142_one_event_too_large_fails_the_turn(scene: Scene) -> None:
    """No callback saw it, nothing of it was kept, and the next turn is fine."""
    scene.start([{"big": 1_000}, {"kind": "result"}], PONG, max_event_bytes_per_turn=256)

    found = overflow(scene)

    assert (found.limit, found.retained_events, found.retained_bytes) == ("bytes", 0, 0)
    assert not [line for line in scene.seen() if line.startswith("stream")]
    assert scene.client.ask("a", "p").text == "pong"


def test_s143_s144_an_error_keeps_its_reason_if_it_fits_and_leaves_no_secret_if_not(
    scene: Scene,
) -> None:
    """Its kind is told, its reason is nowhere."""
    scene.start(fails("secret " * 100), fails("r"), max_event_bytes_per_turn=256)

    found = overflow(scene)
    with pytest.raises(TurnFailed) as fitting:
        scene.client.ask("a", "p")

    assert found.rejected_event_kind == "error"
    assert "secret" not in f"{found!r} {scene.seen()}"
    assert fitting.value.reason == BackendFailed("r")


def test_s145_an_endless_stream_is_cut_off(scene: Scene) -> None:
    """Three callbacks, the stream is closed, the agent is usable."""
    endless = [{"many": 1_000_000_000, "event": {"kind": "text", "text": "on"}}]
    scene.start(endless, PONG, max_events_per_turn=3)

    assert overflow(scene).retained_events == 3
    assert scene.seen().count("stream text on") == 3
    assert scene.client.ask("a", "p").text == "pong"


def test_s146_an_interrupt_before_the_overflow_wins(scene: Scene) -> None:
    """The next turn is unaffected."""
    scene.start([*says("x")[:1], *held()], PONG, max_events_per_turn=2)
    ref = scene.hold()

    assert scene.client.interrupt_request("a", ref) == "accepted"

    assert scene.outcome(ref) == Failed(INTERRUPTED)
    assert scene.client.ask("a", "p").text == "pong"


def test_s149_s150_s151_compact_keeps_a_prefix_and_the_whole_meaning(scene: Scene) -> None:
    """An opt-in: success with what fits, a count of the rest, and every callback."""
    usage = {"kind": "usage", "input_tokens": 1}
    scene.start(
        [{"many": 1_500, "event": {"kind": "text", "text": "x"}}, usage, {"kind": "result"}],
        [{"kind": "tool_result", "out": "y" * 300}, {"kind": "text", "text": "z"}, *PONG[1:]],
        event_retention="compact",
        max_event_bytes_per_turn=30_000,
    )

    response = scene.client.ask("a", "p")
    coverage = response.event_coverage
    assert (coverage.mode, coverage.observed_events) == ("compact", 1_502)
    assert coverage.retained_events + coverage.omitted_events == 1_502
    assert len(response.events) == coverage.retained_events == 1_000
    assert coverage.first_omission is not None
    assert (coverage.first_omission.limit, coverage.first_omission.event_kind) == ("events", "text")
    assert response.text == "x" * 1_500
    assert response.usage == {"input_tokens": 1}
    assert response.terminal.kind == "result"
    assert scene.seen().count("stream text x") == 1_500


def test_s150_s151_compact_omits_everything_after_its_first_omission(scene: Scene) -> None:
    """Also what would fit again; the terminal event is kept apart."""
    scene.start(
        [{"kind": "tool_result", "out": "y" * 300}, {"kind": "text", "text": "z"}, *PONG[1:]],
        event_retention="compact",
        max_event_bytes_per_turn=256,
    )

    response = scene.client.ask("a", "p")

    coverage = response.event_coverage
    assert response.events == ()
    assert (coverage.observed_events, coverage.omitted_events) == (3, 3)
    assert coverage.first_omission is not None
    assert coverage.first_omission.event_kind == "tool_result"
    assert (response.text, response.terminal.kind) == ("z", "result")
