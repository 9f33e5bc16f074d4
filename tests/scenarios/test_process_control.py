"""Interrupt, cancel, drain and reset, on agents that are processes."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import NotFound, PollCompleted, PollFailed, PollPending
from genagent_protocol.envelopes import Completion
from genagent_protocol.errors import CallTimeout, ProcessDown, Refused, TurnFailed
from genagent_protocol.events import Completed
from genagent_protocol.failed import Failed
from genagent_protocol.reasons import CANCELLED, DRAINING, INTERRUPTED, NORMAL
from genagent_protocol.refs import AgentHandle, RequestRef
from support import fleet
from support.background import in_background
from support.scenes import HANGS, PONG, Scene, held
from support.waiting import until

pytestmark = pytest.mark.process


def stranger(handle: AgentHandle) -> RequestRef:
    """Return a ref that this process never heard of."""
    return RequestRef(handle.incarnation, "0" * 32)


# --- interrupt


def test_s199_an_interrupt_stops_the_turn_and_tells_the_asker(scene: Scene) -> None:
    """The turn's code has ended, and the agent is idle."""
    scene.start(HANGS, PONG)
    asked = in_background(lambda: scene.client.ask("a", "p"))
    scene.wait_seen("stream text begun")
    scene.client.interrupt("a")

    with pytest.raises(TurnFailed) as error:
        asked.result(30)
    assert error.value.reason == INTERRUPTED
    assert scene.client.ask("a", "p").text == "pong"


def test_s200_s203_an_idle_agent_has_nothing_to_interrupt(scene: Scene) -> None:
    """Later turns are unaffected."""
    handle = scene.start()
    scene.client.interrupt("a")

    assert scene.client.interrupt_request("a", stranger(handle)) == "idle"
    assert scene.client.ask("a", "p").text == "pong"


def test_s201_an_exact_interrupt_is_acknowledged_when_all_is_done(scene: Scene) -> None:
    """Poll says so at once, the error path has run once, and a second one finds it idle."""
    scene.start(HANGS)
    ref = scene.client.tell("a", "p")
    scene.wait_seen("stream text begun")

    assert scene.client.interrupt_request("a", ref) == "accepted"
    assert scene.client.poll("a", ref) == PollFailed(INTERRUPTED)
    assert scene.seen()[-2:] == ["error interrupted", "post_turn interrupted"]
    assert scene.client.interrupt_request("a", ref) == "idle"
    assert scene.seen().count("error interrupted") == 1


def test_s202_s204_s205_only_the_active_ref_is_interrupted(scene: Scene) -> None:
    """Not a finished one, not a queued one, not one of an earlier life."""
    former = scene.start()
    old = scene.client.tell("a", "p")
    scene.over(old)
    scene.client.stop("a")
    scene.start(PONG, held(), PONG)
    finished = scene.client.tell("a", "p")
    scene.over(finished)
    active = scene.hold()
    queued = scene.client.tell("a", "queued")

    for ref in (finished, queued, old, stranger(former)):
        assert scene.client.interrupt_request("a", ref) == "not_current"
    assert scene.client.poll("a", queued) == PollPending()
    scene.release()

    assert isinstance(scene.outcome(active), Completed)
    assert isinstance(scene.over(queued), PollCompleted)


def test_s206_s207_after_an_interrupt_the_queue_goes_on_unless_the_agent_halts(
    scene: Scene,
) -> None:
    """The first time it goes on, the second time `handle_error` halts."""
    scene.start(HANGS, HANGS, PONG, on={"handle_error": [{}, {"halt": 1}]})
    first, second, third = (scene.client.tell("a", f"p{n}") for n in range(3))
    scene.wait_seen("stream text begun")
    scene.client.interrupt_request("a", first)
    scene.wait_seen("stream text begun", times=2)
    scene.client.interrupt_request("a", second)

    assert scene.client.status("a").halted
    assert scene.client.poll("a", third) == PollPending()
    assert scene.prompts() == ["p0", "p1"]


# --- cancel


def test_s209_s212_cancelling_again_says_the_same_while_it_is_remembered(scene: Scene) -> None:
    """One completion and one record; once its result is forgotten, it is not found."""
    scene.start(held(), PONG, max_tell_results=1)
    scene.hold()
    ref = scene.client.tell_with_completion("a", "queued")

    assert [scene.client.cancel_request("a", ref) for _ in range(3)] == ["cancelled"] * 3
    assert scene.client.poll("a", ref) == PollFailed(CANCELLED)
    scene.release()
    scene.idle()

    assert scene.client.cancel_request("a", ref) == "not_found"
    found = [m for m in fleet.rest(scene.client) if isinstance(m, Completion) and m.ref == ref]
    assert len(found) == 1


def test_s210_s211_what_runs_is_finished_unknown_or_an_ask_is_not_cancelled(scene: Scene) -> None:
    """Each with its own word; the turn goes on."""
    handle = scene.start(PONG, held(), PONG)
    finished = scene.client.tell("a", "p")
    scene.over(finished)
    active = scene.hold()
    asked = in_background(lambda: scene.client.ask("a", "asked"))
    until(lambda: scene.client.status("a").queued == 1, "the ask is queued")

    assert scene.client.cancel_request("a", active) == "current"
    assert scene.client.cancel_request("a", finished) == "already_finished"
    assert scene.client.cancel_request("a", stranger(handle)) == "not_found"
    scene.release()

    assert isinstance(scene.outcome(active), Completed)
    assert asked.result(30).text == "pong"


def test_s213_cancelling_one_does_not_touch_its_neighbours(scene: Scene) -> None:
    """A, B, C: B is cancelled, before and after C runs."""
    scene.start(held(), PONG)
    scene.hold("A")
    second, third = (scene.client.tell_with_completion("a", prompt) for prompt in "BC")

    assert scene.client.cancel_request("a", second) == "cancelled"
    scene.release()
    assert isinstance(scene.outcome(third), Completed)
    assert scene.client.cancel_request("a", second) == "cancelled"

    assert scene.prompts() == ["A", "C"]


# --- drain


def test_s215_s102_a_drain_finishes_the_turn_and_refuses_the_rest(scene: Scene) -> None:
    """Queued and new work hears `draining`; no follow-up runs; the exit is `normal`."""
    handle = scene.start(held(), PONG, on={"handle_response": [{"prompt": "more"}]})
    captured = scene.client.at(handle)
    scene.watch(captured.handle)
    active = scene.hold()
    asked = in_background(lambda: scene.client.ask("a", "queued"))
    until(lambda: scene.client.status("a").queued == 1, "the ask is queued")
    told = scene.client.tell_with_completion("a", "queued, too")
    scene.client.notify_ack("a", "deferred")
    drained = in_background(lambda: scene.client.drain("a"))
    until(lambda: scene.client.runtime_snapshot("a").draining, "it drains")

    snapshot = scene.client.runtime_snapshot("a")
    assert (snapshot.pending_prompts, snapshot.pending_notifications) == (0, 0)
    for call in (
        lambda: scene.client.ask("a", "new"),
        lambda: scene.client.tell("a", "new"),
        lambda: scene.client.notify_ack("a", "new"),
    ):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.reason == DRAINING
    scene.client.notify("a", "ignored")
    submitted = captured.submit_with_completion("new").ref
    assert fleet.admission(scene.client, submitted).refused == DRAINING
    with pytest.raises(TurnFailed) as failed:
        asked.result(30)
    assert failed.value.reason == DRAINING
    assert scene.outcome(told) == Failed(DRAINING)
    scene.release()

    assert isinstance(scene.outcome(active), Completed)
    drained.result(30)
    assert fleet.down(scene.client, handle).reason == NORMAL
    assert scene.prompts() == ["held"]
    assert scene.seen()[-1] == "terminate_agent normal"
    assert not [line for line in scene.seen() if line.startswith("event")]
    assert not [m for m in fleet.rest(scene.client) if isinstance(m, Completion)]


def test_s216_an_idle_agent_drains_at_once(scene: Scene) -> None:
    """Cleanup ran; a second drain finds nobody."""
    scene.start()

    scene.client.drain("a")

    assert scene.seen() == ["pre_run", "terminate_agent normal"]
    with pytest.raises(Refused) as error:
        scene.client.drain("a")
    assert error.value.reason.code == "not_found"


def test_s217_a_caller_that_gives_up_does_not_undo_a_drain(scene: Scene) -> None:
    """It goes on draining, and exits after its turn."""
    handle = scene.start(held())
    scene.watch(handle)
    scene.hold()

    with pytest.raises(CallTimeout):
        scene.client.drain("a", timeout_ms=50)
    assert scene.client.runtime_snapshot("a").draining
    scene.release()

    assert fleet.down(scene.client, handle).reason == NORMAL


def test_s219_a_drain_that_ends_in_a_crash_says_so(scene: Scene) -> None:
    """With the reason of the process's end."""
    scene.start(held(), on={"handle_response": [{"raise": 1}]})
    scene.hold()
    drained = in_background(lambda: scene.client.drain("a"))
    until(lambda: scene.client.runtime_snapshot("a").draining, "it drains")
    scene.release()

    with pytest.raises(ProcessDown) as down:
        drained.result(30)
    assert down.value.reason.text == "callback_failed"


# --- reset


def test_s220_a_reset_between_turns_keeps_the_callback_state(scene: Scene) -> None:
    """The conversation begins anew."""
    scene.start(backend={"session_id": "s-1"})
    before = scene.client.ask("a", "p")
    state = scene.state()

    scene.client.reset_session("a")

    assert scene.state() == state
    assert before.session_id == "s-1"
    assert scene.client.ask("a", "p").session_id is None


def test_s221_a_reset_is_refused_with_the_reason(scene: Scene) -> None:
    """In a turn, without a backend that can, and when that raises: the session is as it was."""
    for name, backend in (("b", "Remembering"), ("c", "Stubborn")):
        path = f"support.scenario_backends:{backend}"
        scene.client.start_agent(
            "support.scenario_agents:Bare", name=name, backend=path, cwd=fleet.HERE
        )
        scene.client.ask(name, "p")
    scene.start(held())
    scene.hold()

    codes = []
    for name in ("a", "b", "c", "nobody"):
        with pytest.raises(Refused) as error:
            scene.client.reset_session(name)
        codes.append(error.value.reason.code)
    scene.release()

    assert codes == ["busy", "unsupported", "backend_reset_failed", "not_found"]
    assert scene.client.ask("c", "p").text == "goes on with s-1"
    assert scene.client.poll("nobody", stranger(scene.start(name="d"))) == NotFound()
