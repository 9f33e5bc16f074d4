"""What can be seen of an agent, what it remembers, what starts it, what reaches it."""

from __future__ import annotations

import dataclasses

import pytest

from genagent_protocol.answers import CurrentRequest, NotFound, PollCompleted, Snapshot
from genagent_protocol.errors import StartFailed, TurnFailed, UsageError
from genagent_protocol.events import Completed
from support import fleet
from support.background import in_background
from support.scenes import PONG, Scene, fails, held, says
from support.waiting import until

pytestmark = pytest.mark.process

SECRET = "xyzzy-secret"


def test_s040_a_snapshot_of_an_idle_agent_has_counts_and_nothing_else(scene: Scene) -> None:
    """Exactly these fields, all at rest, whatever secrets state and session hold."""
    scene.start(says(SECRET), backend={"session_id": SECRET})
    scene.client.ask("a", SECRET)

    snapshot = scene.client.runtime_snapshot("a")

    assert snapshot == Snapshot(
        phase="idle",
        halted=False,
        halt_pending=False,
        draining=False,
        pending_prompts=0,
        pending_notifications=0,
        self_chain_pending=False,
        current_request=None,
    )
    assert SECRET not in repr(snapshot)


def test_s041_a_snapshot_of_a_busy_agent_counts_what_waits(scene: Scene) -> None:
    """One prompt, one notification, and the active request with its watchdog."""
    scene.start(held(), PONG)
    ref = scene.hold()
    scene.client.tell("a", "queued")
    scene.client.notify_ack("a", 1)

    snapshot = scene.client.runtime_snapshot("a")
    scene.release()

    assert snapshot.phase == "processing"
    assert (snapshot.pending_prompts, snapshot.pending_notifications) == (1, 1)
    current = snapshot.current_request
    assert current is not None
    assert current.elapsed_ms >= 0
    assert dataclasses.replace(current, elapsed_ms=0) == CurrentRequest(
        ref=ref, origin="tell", attempt=1, elapsed_ms=0, watchdog_ms=600_000
    )


def test_s042_origins_tell_where_a_prompt_came_from(scene: Scene) -> None:
    """An ask and an event."""
    scene.start(held(), held())
    origins = []
    asked = in_background(lambda: scene.client.ask("a", "p"))
    for event in (None, {"prompt": "p"}):
        if event is not None:
            scene.client.notify("a", event)
        scene.blocked()
        current = scene.client.runtime_snapshot("a").current_request
        assert current is not None
        origins.append(current.origin)
        scene.release()
        scene.idle()

    assert origins == ["ask", "event"]
    assert asked.result(30).text == "pong"


@pytest.mark.parametrize("most", [0, 1])
def test_s043_the_memory_of_results_is_bounded_by_count(scene: Scene, most: int) -> None:
    """With one place the older result is gone, with none both are."""
    scene.start(max_tell_results=most)
    refs = [scene.client.tell_with_completion("a", "p") for _ in range(2)]
    for ref in refs:
        scene.outcome(ref)

    found = [isinstance(scene.client.poll("a", ref), PollCompleted) for ref in refs]
    assert found == [False, most == 1]


def test_s044_the_memory_of_results_is_bounded_by_bytes(scene: Scene) -> None:
    """Three results of 300 kB in 700 kB: the oldest is gone."""
    # The text counts as text, as final message, as event and as terminal event.
    turn = [{"kind": "result", "text": "x" * 75_000}]
    scene.start(turn, backend={"repeat": True}, max_tell_result_bytes=700_000)

    refs = [scene.client.tell_with_completion("a", "p") for _ in range(3)]
    for ref in refs:
        scene.outcome(ref)

    found = [isinstance(scene.client.poll("a", ref), PollCompleted) for ref in refs]
    assert found == [False, True, True]


def test_s045_s046_a_memory_of_no_bytes_still_sends_completions(scene: Scene) -> None:
    """The completion does not depend on what is remembered."""
    scene.start(max_tell_result_bytes=0)

    ref = scene.client.tell_with_completion("a", "p")

    assert isinstance(scene.outcome(ref), Completed)
    assert scene.client.poll("a", ref) == NotFound()


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        *[("max_tell_results", value) for value in (-1, "many", "infinity", 1.5)],
        *[("max_tell_result_bytes", value) for value in (-1, 1.5)],
        *[("max_pending_prompts", value) for value in (-1, True, "infinity")],
        *[(f"max_pending_{what}", -1) for what in ("prompt_bytes", "notifications")],
        ("max_pending_notification_bytes", 0.5),
        *[("max_events_per_turn", value) for value in (0, -1, "many")],
        ("max_event_bytes_per_turn", 0),
        ("event_retention", "sometimes"),
    ],
)
def test_s047_s134_s147_s152_a_limit_that_is_none_fails_the_start(
    scene: Scene, limit: str, value: object
) -> None:
    """Typed, with the limit's name, and nothing of the agent is left."""
    with pytest.raises(StartFailed, match=limit) as error:
        scene.start(**{limit: value})  # type: ignore[arg-type]  # every limit goes there

    assert error.value.reason.kind == "invalid_limits"
    assert scene.client.list() == ()


def test_s048_limits_do_not_reach_init_agent_and_the_rest_does(scene: Scene) -> None:
    """`None` is the default of a limit; an option that only looks like one is the agent's."""
    scene.client.start_agent(
        "support.scenario_agents:ShowsOptions",
        name="a",
        backend="echo",
        options={"foo": "bar", "task_supervisor": "mine"},
        limits={"watchdog_ms": None, "max_pending_prompts": 3},
        cwd=fleet.HERE,
    )

    assert scene.state() == {"foo": "bar", "task_supervisor": "mine"}


def test_s049_a_missing_name_or_backend_raises_in_the_caller(scene: Scene) -> None:
    """Nothing was started, or sent."""
    with pytest.raises(UsageError, match="name"):
        scene.client.start_agent(None, backend="echo")  # type: ignore[call-overload]  # that is the point
    with pytest.raises(UsageError, match="backend"):
        scene.client.start_agent(None, name="a")  # type: ignore[call-overload]  # that is the point

    assert scene.client.list() == ()


def test_s050_s156_a_response_says_what_the_backend_was_given(scene: Scene) -> None:
    """What the gate made of the prompt, for a chained turn as well."""
    gate = [{"run": "rewritten"}, {"run": "rewritten, too"}]
    scene.start(on={"pre_turn": gate, "handle_response": [{"prompt": "more"}]})

    assert scene.client.ask("a", "p").prompt == "rewritten"
    scene.wait_seen("response pong", times=2)

    assert scene.prompts() == ["rewritten", "rewritten, too"]


def test_s051_an_agent_needs_no_more_than_one_callback(scene: Scene) -> None:
    """Success, error, success; notifications are ignored in silence."""
    scene.start(PONG, fails("r"), PONG, agent="Bare")

    assert scene.client.ask("a", "p").text == "pong"
    with pytest.raises(TurnFailed):
        scene.client.ask("a", "p")
    scene.client.notify_ack("a", "ignored")
    assert scene.client.ask("a", "p").text == "pong"


def test_s053_messages_reach_an_idle_agent_at_once(scene: Scene) -> None:
    """A peer's completion and the `Down` of a watched peer (D26)."""
    scene.start(agent="Listening")
    scene.start(says("from b"), name="b")

    scene.client.notify_ack("a", ["monitor", "b"])
    scene.client.notify_ack("a", ["tell", "b", "hello"])
    scene.wait_seen("info completion of b: from b")
    scene.client.stop("b")
    scene.wait_seen("info down shutdown")

    assert scene.prompts("b") == ["hello"]


def test_s053_a_completion_may_go_to_an_agent(scene: Scene) -> None:
    """A handle is a recipient: the message reaches its `handle_info` (D32)."""
    listener = scene.start(agent="Listening")
    scene.start(says("from b"), name="b")

    scene.client.tell_with_completion("b", "hello", listener)

    scene.wait_seen("info completion of b: from b")


def test_s054_a_message_in_a_turn_is_a_pending_notification(scene: Scene) -> None:
    """Handled after the turn, on the state it left."""
    listener = scene.start(held(), agent="Listening")
    scene.start(says("from b"), name="b")
    scene.hold()

    scene.client.tell_with_completion("b", "hello", listener)
    until(lambda: scene.client.runtime_snapshot("a").pending_notifications == 1, "it is kept")
    assert "info completion of b: from b" not in scene.seen()
    scene.release()
    scene.wait_seen("info completion of b: from b")

    assert scene.state()[-2:] == ("post_turn completed", "info completion of b: from b")


def test_s056_an_agent_knows_its_name_and_the_request_in_every_callback(scene: Scene) -> None:
    """In gate, stream, decision, hook, event and at the end; outside there is none."""
    scene.start(agent="NamesItself")
    ref = scene.client.tell_with_completion("a", "p")
    scene.outcome(ref)
    scene.client.notify_ack("a", 1)
    scene.client.stop("a")

    assert scene.seen() == [
        "pre_run a -",
        f"pre_turn a {ref.text}",
        f"stream a {ref.text}",
        f"stream a {ref.text}",
        f"response a {ref.text}",
        f"post_turn a {ref.text}",
        "event a -",
        "terminate_agent a -",
    ]


def test_s057_s058_only_the_living_are_listed_and_found(scene: Scene) -> None:
    """A stopped or killed agent is gone from both; a dead one is never found."""
    handles = {name: scene.start(name=name) for name in ("a", "b", "c")}
    assert {row.name for row in scene.client.list()} == {"a", "b", "c"}

    scene.client.stop("a")
    scene.watch(handles["b"])
    scene.kill(handles["b"])
    fleet.down(scene.client, handles["b"])

    assert {row.name for row in scene.client.list()} == {"c"}
    assert [scene.client.whereis(name) for name in ("a", "b")] == [None, None]
