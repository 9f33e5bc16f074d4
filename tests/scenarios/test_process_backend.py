"""Scripts, gates and checkpoints, through agents that are processes."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import NotFound
from genagent_protocol.errors import Refused, TurnFailed
from genagent_protocol.events import Completed
from genagent_protocol.failed import Failed
from genagent_protocol.reasons import BackendFailed, TaskCrashed
from support import fleet
from support.scenes import PONG, Scene, Turn, fails, held, says

pytestmark = pytest.mark.process

CHECKPOINT = {"checkpoint": "s-1"}


def test_s249_scripts_are_used_in_order_and_then_there_are_none(scene: Scene) -> None:
    """The history has every attempt, also the one past the last script."""
    scene.start(says("one"), fails("r"))

    assert scene.client.ask("a", "p1").text == "one"
    reasons = []
    for prompt in ("p2", "p3"):
        with pytest.raises(TurnFailed) as error:
            scene.client.ask("a", prompt)
        reasons.append(error.value.reason)

    assert reasons == [BackendFailed("r"), BackendFailed("no_script")]
    assert scene.prompts() == ["p1", "p2", "p3"]


def test_s250_a_script_can_state_the_prompt_it_got(scene: Scene) -> None:
    """What the gate made of it."""
    turn: Turn = [{"echo": True}, {"kind": "result"}]
    scene.start(turn, on={"pre_turn": [{"run": "rewritten"}]})

    assert scene.client.ask("a", "p").text == "rewritten"


def test_s251_a_gate_holds_a_turn_until_its_release_or_its_end(scene: Scene) -> None:
    """Announced, released; one that nobody releases crashes its turn after a time."""
    scene.start(held(), [{"gate": "turn", "timeout_ms": 10}])
    ref = scene.hold()
    scene.release()
    assert isinstance(scene.outcome(ref), Completed)

    with pytest.raises(TurnFailed) as error:
        scene.client.ask("a", "p")
    assert isinstance(error.value.reason, TaskCrashed)
    assert error.value.reason.error.endswith("GateTimeout")


@pytest.mark.parametrize("retention", ["exact", "compact"])
def test_s253_a_checkpoint_outlives_a_failed_turn(scene: Scene, retention: str) -> None:
    """The next prompt goes on under the id."""
    terms = {} if retention == "exact" else {"event_retention": retention}
    scene.start([CHECKPOINT, *fails("r")], PONG, **terms)  # type: ignore[arg-type]  # limits
    with pytest.raises(TurnFailed):
        scene.client.ask("a", "p")

    assert scene.client.ask("a", "p").session_id == "s-1"


@pytest.mark.parametrize("end", ["interrupt", "watchdog", "crash", "overflow"])
def test_s254_a_checkpoint_outlives_every_bad_end(scene: Scene, end: str) -> None:
    """And nothing is kept of a turn that had none."""
    ends: dict[str, list[dict[str, object]]] = {
        "crash": [{"raise": "ValueError"}],
        "overflow": [{"many": 5, "event": {"kind": "text", "text": "x"}}],
    }
    turn = ends.get(end, [{"kind": "text", "text": "begun"}, {"hang": "idle"}])
    scene.start(
        turn,
        PONG,
        [CHECKPOINT, *turn],
        PONG,
        watchdog_ms=1_000 if end == "watchdog" else None,
        max_events_per_turn=4,
    )
    ids = []
    for times in (1, 2):
        ref = scene.client.tell_with_completion("a", "p")
        if end == "interrupt":
            scene.wait_seen("stream text begun", times=times)
            scene.client.interrupt("a")
        assert isinstance(scene.outcome(ref), Failed)
        ids.append(scene.client.ask("a", "p").session_id)

    assert ids == [None, "s-1"]


def test_s255_a_checkpoint_after_the_turn_is_not_current(scene: Scene) -> None:
    """Whoever keeps the offer of a finished turn cannot touch its successor."""
    scene.client.start_agent(
        "support.scenario_agents:Bare",
        name="a",
        backend="support.scenario_backends:Late",
        cwd=fleet.HERE,
    )

    scene.client.ask("a", "p")

    assert scene.client.ask("a", "p").text == "not_current"
    assert scene.client.ask("a", "p").session_id is None


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        (["s-1", "s-1"], None),
        (["s-1", "s-2"], "conflicting_session_id"),
        (["a\nb"], "invalid_session_id"),
        ([""], "invalid_session_id"),
        (["x" * 1_025], "invalid_session_id"),
    ],
)
def test_s256_a_refused_checkpoint_fails_the_turn_despite_its_result(
    scene: Scene, ids: list[str], code: str | None
) -> None:
    """The same id twice is fine; the first that was acknowledged is kept."""
    scene.start([*({"checkpoint": each} for each in ids), *PONG], PONG)
    outcome = scene.outcome(scene.client.tell_with_completion("a", "p"))

    assert (outcome.reason.code if isinstance(outcome, Failed) else None) == code
    kept = "s-1" if "s-1" in ids else None
    assert scene.client.ask("a", "p").session_id == kept


def test_s052_an_unknown_ref_or_name_harms_nobody(scene: Scene) -> None:
    """Refused as what it is; the agent is alive."""
    handle = scene.start()
    stranger = scene.client.at(handle).submit_with_completion("p").ref
    fleet.completion(scene.client, stranger)
    scene.start(name="b")

    assert scene.client.poll("b", stranger) == NotFound()
    assert scene.client.cancel_request("b", stranger) == "not_found"
    with pytest.raises(Refused):
        scene.client.reset_session("c")
    assert scene.client.ask("b", "p").text == "pong"
