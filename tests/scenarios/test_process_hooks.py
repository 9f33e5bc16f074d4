"""Hooks, and callbacks that fail, on agents that are processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from genagent_protocol.errors import CallTimeout, StartFailed, TurnFailed
from genagent_protocol.events import Completed
from genagent_protocol.reasons import BackendFailed
from support import fleet
from support.background import in_background
from support.scenes import PONG, Scene, fails, held
from support.waiting import until

pytestmark = pytest.mark.process

#: Fits nothing that a callback may answer, or raises.
BAD = [{"raise": 1}, {"garbage": 1}]


def logs(scene: Scene) -> str:
    """Return everything that daemon and agents wrote."""
    return "".join(path.read_text() for path in scene.house.run.rglob("*.log")) + scene.house.log


def test_s153_pre_run_comes_before_anything_else(scene: Scene) -> None:
    """The first gate sees the state that it left."""
    scene.start()
    scene.client.ask("a", "p")

    assert scene.state()[:2] == ("pre_run", "pre_turn p")


def test_s154_a_blocked_pre_run_delays_calls_and_nothing_else(scene: Scene) -> None:
    """The start has returned, whereis and notify do not wait; every synchronous call does."""
    handle = scene.start(on={"pre_run": [{"block": "hook"}]})
    scene.blocked("hook")

    assert scene.client.whereis("a") == handle
    scene.client.notify("a", "early")
    for call in (
        lambda: scene.client.status("a", timeout_ms=50),
        lambda: scene.client.runtime_snapshot("a", timeout_ms=50),
        lambda: scene.client.notify_ack("a", "waits", timeout_ms=50),
        lambda: scene.client.tell("a", "p", timeout_ms=50),
    ):
        with pytest.raises(CallTimeout):
            call()
    scene.release("hook")

    scene.wait_seen("post_turn completed")
    assert scene.state()[:3] == ("pre_run", 'event "early"', 'event "waits"')


@pytest.mark.parametrize(
    ("plan", "text", "detail"),
    [
        ({"fail": "r"}, "pre_run_failed", "r"),
        ({"raise": 1}, "pre_run_crashed", "LookupError"),
        ({"garbage": 1}, "pre_run_invalid", None),
    ],
)
def test_s155_a_bad_pre_run_ends_the_agent_with_its_reason(
    scene: Scene, plan: dict[str, object], text: str, detail: object
) -> None:
    """The DOWN says it, and `terminate_agent` got it; the name is free."""
    handle = scene.start(on={"pre_run": [{"block": "hook", **plan}]})
    scene.watch(handle)
    scene.blocked("hook")
    scene.release("hook")

    reason = fleet.down(scene.client, handle).reason

    assert (reason.text, reason.detail) == (text, detail)
    assert scene.seen()[-1] == f"terminate_agent {reason}"
    assert scene.client.whereis("a") is None


@pytest.mark.parametrize("plan", BAD)
def test_s160_a_gate_that_fails_on_a_chain_tells_handle_error(
    scene: Scene, plan: dict[str, object]
) -> None:
    """The first caller has its success already."""
    scene.start(on={"pre_turn": [{}, plan], "handle_response": [{"prompt": "more"}]})

    assert scene.client.ask("a", "p").text == "pong"

    code = "pre_turn_crashed LookupError" if "raise" in plan else "pre_turn_invalid"
    scene.wait_seen(f"error {code}")
    assert scene.prompts() == ["p"]


@pytest.mark.parametrize(
    ("plan", "code"), [({"skip": 1}, "pre_turn_skipped"), ({"garbage": 1}, "pre_turn_invalid")]
)
def test_s161_a_refused_event_prompt_tells_handle_error(
    scene: Scene, plan: dict[str, object], code: str
) -> None:
    """And the agent is not halted."""
    scene.start(on={"pre_turn": [plan]})

    scene.client.notify_ack("a", {"prompt": "p"})

    assert scene.state()[-1] == f"error {code}"
    assert not scene.client.status("a").halted


def test_s162_a_gate_that_always_refuses_does_not_keep_others_from_the_agent(scene: Scene) -> None:
    """While gate and `handle_error` go round in circles, calls are answered."""
    many = 50
    scene.start(on={"pre_turn": [{"skip": 1}] * many, "handle_error": [{"prompt": "again"}] * many})
    scene.client.notify_ack("a", {"prompt": "p"})

    statuses = [scene.client.status("a", timeout_ms=10_000) for _ in range(5)]
    scene.wait_seen("post_turn completed")

    assert len(statuses) == 5
    assert scene.prompts() == ["again"]


def test_s163_a_blocked_gate_delays_calls_and_nothing_else(scene: Scene) -> None:
    """Status, poll, tell and acknowledgement wait; notify and whereis do not."""
    handle = scene.start(on={"pre_turn": [{"block": "hook"}]})
    asked = in_background(lambda: scene.client.ask("a", "p"))
    scene.blocked("hook")

    assert scene.client.whereis("a") == handle
    scene.client.notify("a", "kept")
    for call in (
        lambda: scene.client.status("a", timeout_ms=50),
        lambda: scene.client.tell("a", "told", timeout_ms=50),
        lambda: scene.client.notify_ack("a", "waits", timeout_ms=50),
    ):
        with pytest.raises(CallTimeout):
            call()
    scene.release("hook")

    assert asked.result(30).text == "pong"


@pytest.mark.parametrize("turn", [PONG, fails("r")])
def test_s164_post_turn_follows_the_decision_and_its_state_is_kept(
    scene: Scene, turn: list[dict[str, object]]
) -> None:
    """With the same outcome, after success as after failure."""
    scene.start(turn)
    scene.outcome(scene.client.tell_with_completion("a", "p"))

    decision, hook = scene.state()[-2:]
    assert (decision, hook) in (
        ("response pong", "post_turn completed"),
        ("error backend_failed r", "post_turn backend_failed"),
    )


def test_s165_s158_post_run_comes_after_decision_and_post_turn(scene: Scene) -> None:
    """And before the caller's answer."""
    scene.start(on={"handle_response": [{"halt": 1}]})

    scene.client.ask("a", "p")

    assert scene.seen()[-3:] == ["response pong", "post_turn completed", "post_run"]
    assert scene.client.status("a").halted


@pytest.mark.parametrize("plan", BAD)
def test_s166_a_bad_post_turn_changes_nothing(scene: Scene, plan: dict[str, object]) -> None:
    """The decision stands and the caller has its result; the state is the decision's."""
    scene.start(on={"post_turn": [plan], "handle_response": [{"halt": 1}]})

    ref = scene.client.tell_with_completion("a", "p")

    assert isinstance(scene.outcome(ref), Completed)
    assert scene.client.status("a").halted
    assert scene.state()[-1] == "response pong"


@pytest.mark.parametrize("plan", BAD)
def test_s167_a_halt_completes_without_its_post_run(scene: Scene, plan: dict[str, object]) -> None:
    """The agent is halted and can be resumed."""
    scene.start(on={"post_run": [plan]})
    scene.client.halt("a")

    assert scene.client.status("a").halted
    scene.client.resume("a")
    assert scene.client.ask("a", "p").text == "pong"


def test_s168_a_stop_runs_no_post_run(scene: Scene) -> None:
    """Only `terminate_agent`."""
    scene.start()
    scene.client.stop("a")

    assert scene.seen() == ["pre_run", "terminate_agent shutdown"]


@pytest.mark.parametrize("plan", BAD)
def test_s169_a_bad_handle_event_is_as_good_as_none(scene: Scene, plan: dict[str, object]) -> None:
    """Idle or after a turn: the old state is kept, and who waits is answered."""
    scene.start(held(), on={"handle_event": [plan, plan]})
    scene.client.notify_ack("a", "idle")
    asked = in_background(lambda: scene.client.ask("a", "p"))
    scene.blocked()
    scene.client.notify_ack("a", "deferred")
    scene.release()

    assert asked.result(30).text == "pong"
    assert not [line for line in scene.state() if line.startswith("event")]


@pytest.mark.parametrize("plan", BAD)
def test_s170_s174_a_bad_handle_error_leaves_the_caller_its_reason(
    scene: Scene, plan: dict[str, object]
) -> None:
    """The log names agent, callback and class, and not what was said."""
    scene.start(fails("r"), on={"handle_error": [plan]})

    with pytest.raises(TurnFailed) as error:
        scene.client.ask("a", "p")

    assert error.value.reason == BackendFailed("r")
    assert scene.client.status("a").state == "idle"
    if "raise" in plan:
        until(lambda: "callback=handle_error" in logs(scene), "it is logged")
        assert "LookupError" in logs(scene)
        assert "a secret" not in logs(scene)


@pytest.mark.parametrize("plan", BAD)
def test_s171_s172_an_agent_ends_even_if_its_last_callbacks_fail(
    scene: Scene, plan: dict[str, object]
) -> None:
    """The decision's failure is the reason; what fails afterwards is only logged."""
    scene.client.start_agent(
        "support.scenario_agents:Acting",
        name="a",
        backend="support.scenario_backends:Clinging",
        options={
            "on": {"handle_response": [plan], "terminate_agent": [plan]},
            "file": str(scene.files / "a.seen"),
            "backend": {"file": str(scene.files / "b.seen")},
        },
        cwd=fleet.HERE,
    )
    handle = scene.client.whereis("a")
    assert handle is not None
    scene.watch(handle)
    scene.client.tell("a", "p")

    assert fleet.down(scene.client, handle).reason.text == "callback_failed"
    assert scene.seen()[-1].startswith("terminate_agent callback_failed")
    assert scene.seen("b") == ["terminated after 1 turns"]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"on": {"init_agent": [{"fail": "no"}]}}, "init_agent_failed"),
        ({"on": {"init_agent": [{"garbage": 1}]}}, "init_agent_failed"),
        ({"on": {"init_agent": [{"raise": 1}]}}, "init_failed"),
        ({"backend": {"start_error": "no"}}, "backend_start_failed"),
    ],
)
def test_s173_a_failed_start_is_told_by_who_failed(
    scene: Scene, options: dict[str, object], kind: str
) -> None:
    """Nothing is registered, and no termination callback runs."""
    with pytest.raises(StartFailed) as error:
        scene.client.start_agent(
            "support.scenario_agents:Acting",
            name="a",
            backend="scripted",
            options={"file": str(scene.files / "a.seen"), **options},
            cwd=fleet.HERE,
        )

    assert error.value.reason.kind == kind
    assert "a secret" not in str(error.value)
    assert scene.client.whereis("a") is None
    assert scene.seen() == []


def test_s174_no_secret_is_in_a_log_or_on_a_command_line(scene: Scene) -> None:
    """State, session, prompt, event and reply; also when a turn crashes."""
    secret = "xyzzy-plugh"
    scene.start(
        [{"kind": "text", "text": secret}, {"raise": "ValueError", "message": secret}],
        backend={"session_id": secret},
    )
    handle = scene.client.whereis("a")
    assert handle is not None
    scene.client.notify_ack("a", secret)
    with pytest.raises(TurnFailed):
        scene.client.ask("a", secret)

    until(lambda: "turn.crashed" in logs(scene), "the crash is logged")
    assert "ValueError" in logs(scene)
    assert secret not in logs(scene)
    for part in ("cmdline", "environ"):
        read = Path(f"/proc/{handle.pid}/{part}").read_bytes()
        assert read
        assert secret.encode() not in read


def test_s175_a_stream_callback_that_raises_crashes_the_turn_alone(scene: Scene) -> None:
    """The agent is alive, and its state is that of the dispatch."""
    scene.start(PONG, PONG, on={"handle_stream_event": [{"raise": 1}]})

    with pytest.raises(TurnFailed) as error:
        scene.client.ask("a", "p")

    assert error.value.reason.code == "task_crashed"
    assert "stream text pong" not in scene.state()
    assert scene.client.ask("a", "p").text == "pong"
