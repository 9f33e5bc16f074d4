"""Halting, resuming and retrying, on agents that are processes."""

from __future__ import annotations

import pytest

from genagent_protocol.answers import PollCompleted, PollFailed, PollPending
from genagent_protocol.errors import TurnFailed
from genagent_protocol.events import Completed
from genagent_protocol.failed import Failed
from genagent_protocol.reasons import (
    CANCELLED,
    DRAINING,
    HALTED,
    PRE_TURN_SKIPPED,
    SHUTDOWN,
    AgentTerminated,
    BackendFailed,
)
from genagent_protocol.refs import RequestRef
from support.background import in_background
from support.scenes import HANGS, PONG, Scene, fails, held, records, says
from support.waiting import until

pytestmark = pytest.mark.process

GATED_FAILURE = [{"gate": "turn", "timeout_ms": 60_000}, *fails("r")]
AGAIN = {"handle_error": [{"prompt": "again"}]}


def park(scene: Scene, on_halt: str = "queue") -> RequestRef:
    """Return a request whose retry is parked: its first attempt failed into a halt."""
    scene.start(GATED_FAILURE, PONG, on=AGAIN)
    ref = scene.client.tell_with_completion("a", "p", on_halt=on_halt)  # type: ignore[arg-type]  # a known word
    scene.blocked()
    scene.client.notify_ack("a", {"halt": 1})
    scene.release()
    scene.wait_seen("post_run")
    return ref


# --- halt


def test_s176_s177_a_halted_agent_accepts_and_keeps(scene: Scene) -> None:
    """Tell and ask wait, and run after the resume."""
    scene.start(says("halter"), says("told"), says("asked"), on={"handle_response": [{"halt": 1}]})
    scene.client.ask("a", "halter")

    ref = scene.client.tell("a", "p")
    asked = in_background(lambda: scene.client.ask("a", "p"))
    until(lambda: scene.client.runtime_snapshot("a").pending_prompts == 2, "both wait")
    assert scene.client.poll("a", ref) == PollPending()
    assert not asked.done()
    scene.client.resume("a")

    assert isinstance(scene.over(ref), PollCompleted)
    assert asked.result(30).text == "asked"


def test_s178_s184_an_idle_agent_is_halted_once_at_once(scene: Scene) -> None:
    """By an event or from outside, however often it is said."""
    scene.start()
    scene.client.notify_ack("a", {"halt": 1})
    assert scene.client.status("a").halted
    scene.client.halt("a")
    scene.client.halt("a")
    scene.client.notify_ack("a", {"halt": 1})

    assert scene.client.status("a").halted
    assert scene.seen().count("post_run") == 1
    scene.client.resume("a")
    assert scene.client.ask("a", "p").text == "pong"


def test_s179_s180_a_deferred_halt_applies_after_the_turn(scene: Scene) -> None:
    """Its result is delivered; a chain waits in its place until the resume."""
    scene.start(held("one"), says("two"), on={"handle_response": [{"prompt": "chained"}]})
    ref = scene.hold()
    scene.client.notify_ack("a", {"halt": 1})
    scene.release()
    assert isinstance(scene.outcome(ref), Completed)
    scene.wait_seen("post_run")

    snapshot = scene.client.runtime_snapshot("a")
    assert (snapshot.halted, snapshot.self_chain_pending, snapshot.phase) == (True, True, "idle")
    assert scene.prompts() == ["held"]
    scene.client.resume("a")
    scene.wait_seen("response two")


def test_s181_s245_a_halt_in_a_batch_lets_the_batch_finish(scene: Scene) -> None:
    """All three are handled, then the hook runs, then it is told, once, with the last state."""
    scene.start(held())
    ref = scene.hold()
    for event in ("first", {"halt": 1}, "last"):
        scene.client.notify_ack("a", event)
    with scene.client.telemetry() as mailbox:
        scene.state()  # answered after the agent heard that somebody watches
        scene.release()
        scene.outcome(ref)
        told = records(mailbox, lambda record: record.event == "halted")

    events = ['event "first"', 'event {"halt": 1}', 'event "last"']
    assert scene.seen()[-4:] == [*events, "post_run"]
    assert told[-1].metadata["agent_state"] == scene.state()
    assert scene.state()[-3:] == tuple(events)
    assert [record.event for record in told].count("halted") == 1


def test_s182_halting_while_halted_is_nothing_and_a_new_halt_is_one(scene: Scene) -> None:
    """Events change the state meanwhile; after a resume hook and record come again."""
    scene.start()
    with scene.client.telemetry() as mailbox:
        scene.client.halt("a")
        scene.client.notify_ack("a", {"halt": 1})
        scene.client.notify_ack("a", "and on")
        assert scene.state()[-1] == 'event "and on"'
        scene.client.resume("a")
        scene.client.notify_ack("a", {"halt": 2})
        scene.client.tell("a", "marker")
        told = records(mailbox, lambda record: record.event == "mailbox.queued")

    assert [record.event for record in told].count("halted") == 2
    assert scene.seen().count("post_run") == 2


def test_s183_resume_of_a_running_agent_is_nothing(scene: Scene) -> None:
    """Idle or in a turn."""
    scene.start(held())
    scene.client.resume("a")
    ref = scene.hold()
    scene.client.resume("a")
    scene.release()

    assert isinstance(scene.outcome(ref), Completed)
    assert not scene.client.status("a").halted


@pytest.mark.parametrize("taken_back", [False, True])
def test_s185_s186_a_halt_from_outside_waits_for_the_turn(scene: Scene, taken_back: bool) -> None:
    """Pending until the callbacks have run; a resume before that takes it back."""
    scene.start(held(), PONG)
    ref = scene.hold()
    queued = scene.client.tell("a", "queued")
    scene.client.halt("a")
    assert scene.client.status("a").halt_pending
    if taken_back:
        scene.client.resume("a")
        assert not scene.client.status("a").halt_pending
    scene.release()
    assert isinstance(scene.outcome(ref), Completed)

    if taken_back:
        assert isinstance(scene.over(queued), PollCompleted)
    else:
        scene.wait_seen("post_run")
        assert scene.client.poll("a", queued) == PollPending()
    assert scene.seen().count("post_run") == (0 if taken_back else 1)


def test_s187_s214_a_halted_agent_answers_its_calls(scene: Scene) -> None:
    """Poll, status, cancel and reset; what was cancelled does not run after the resume."""
    scene.start()
    scene.client.halt("a")
    ref = scene.client.tell("a", "p")

    assert scene.client.poll("a", ref) == PollPending()
    scene.client.reset_session("a")
    assert scene.client.cancel_request("a", ref) == "cancelled"
    assert scene.client.poll("a", ref) == PollFailed(CANCELLED)
    scene.client.resume("a")
    assert scene.client.status("a").queued == 0
    assert scene.prompts() == []


# --- retry


def test_s188_an_asker_waits_through_the_retry(scene: Scene) -> None:
    """And gets its success; one ref throughout."""
    scene.start(fails("r"), says("recovered"), on=AGAIN)

    assert scene.client.ask("a", "p").text == "recovered"

    assert scene.prompts() == ["p", "again"]
    assert len(set(scene.decided())) == 1


def test_s189_s113_a_tell_stays_pending_between_its_attempts(scene: Scene) -> None:
    """Attempt two of origin tell, and exactly one completion."""
    scene.start(fails("r"), held(), on=AGAIN)
    ref = scene.client.tell_with_completion("a", "p")
    scene.blocked()

    current = scene.client.runtime_snapshot("a").current_request
    assert scene.client.poll("a", ref) == PollPending()
    scene.release()

    assert current is not None
    assert (current.ref, current.origin, current.attempt) == (ref, "tell", 2)
    assert isinstance(scene.outcome(ref), Completed)
    assert scene.silent()


def test_s190_every_attempt_is_told_and_decided(scene: Scene) -> None:
    """Start and end with attempt 1, 2, 3, both callbacks for each failure."""
    plans = [{"prompt": "second"}, {"prompt": "third"}]
    scene.start(fails("r"), fails("s"), PONG, on={"handle_error": plans})
    with scene.client.telemetry() as mailbox:
        scene.client.ask("a", "first")
        told = records(mailbox, lambda record: record.event == "turn.stop")

    turns = [
        (record.event, record.metadata["attempt"])
        for record in told
        if record.event in ("turn.start", "turn.error", "turn.stop")
    ]
    assert turns == [
        *(("turn.start", 1), ("turn.error", 1)),
        *(("turn.start", 2), ("turn.error", 2)),
        *(("turn.start", 3), ("turn.stop", 3)),
    ]
    assert scene.seen(without=("pre_", "stream")) == [
        *("error backend_failed r", "post_turn backend_failed"),
        *("error backend_failed s", "post_turn backend_failed"),
        *("response pong", "post_turn completed"),
    ]


@pytest.mark.parametrize("last", [{"reply": 1}, {"halt": 1}])
def test_s191_the_last_error_is_delivered(scene: Scene, last: dict[str, object]) -> None:
    """And the agent is halted exactly if that was the decision."""
    scene.start(fails("r"), fails("last"), on={"handle_error": [{"prompt": "again"}, last]})

    with pytest.raises(TurnFailed) as error:
        scene.client.ask("a", "p")

    assert error.value.reason == BackendFailed("last")
    assert scene.client.status("a").halted == ("halt" in last)


def test_s192_a_retry_runs_before_older_prompts(scene: Scene) -> None:
    """Then first come, first served."""
    scene.start(GATED_FAILURE, PONG, PONG, PONG, on=AGAIN)
    scene.hold("first")
    refs = [scene.client.tell("a", f"queued {n}") for n in (1, 2)]
    scene.release()
    for ref in refs:
        scene.over(ref)

    assert scene.prompts() == ["first", "again", "queued 1", "queued 2"]


def test_s193_an_interrupted_attempt_is_not_tried_again(scene: Scene) -> None:
    """The request ends interrupted; the prompt runs as work of its own."""
    plans = [{"prompt": "again"}, {"prompt": "afterwards"}]
    scene.start(fails("r"), HANGS, PONG, on={"handle_error": plans})
    ref = scene.client.tell_with_completion("a", "p")
    scene.wait_seen("stream text begun")

    assert scene.client.interrupt_request("a", ref) == "accepted"

    assert scene.outcome(ref).reason.code == "interrupted"  # type: ignore[union-attr]  # it failed
    scene.wait_seen("post_turn completed")
    assert scene.prompts() == ["p", "again", "afterwards"]
    assert ref.text != scene.decided()[-1]


@pytest.mark.parametrize("turn", [HANGS, [{"raise": "ValueError"}]])
def test_s194_a_watchdog_or_a_crash_can_be_retried(
    scene: Scene, turn: list[dict[str, object]]
) -> None:
    """The caller gets the recovered result."""
    scene.start(turn, says("recovered"), on=AGAIN, watchdog_ms=500)

    assert scene.client.ask("a", "p").text == "recovered"


def test_s195_a_parked_retry_waits_for_resume(scene: Scene) -> None:
    """It is pending meanwhile."""
    ref = park(scene)

    assert scene.client.poll("a", ref) == PollPending()
    scene.client.resume("a")

    assert isinstance(scene.outcome(ref), Completed)


def test_s195_a_parked_retry_that_chose_to_fail_fails(scene: Scene) -> None:
    """With `halted`, once."""
    ref = park(scene, on_halt="fail")

    assert scene.outcome(ref) == Failed(HALTED)
    scene.client.resume("a")
    scene.state()
    assert scene.silent()
    assert scene.prompts() == ["p"]


def test_s195_a_parked_retry_can_be_cancelled(scene: Scene) -> None:
    """Telemetry says of which attempt."""
    ref = park(scene)
    with scene.client.telemetry() as mailbox:
        assert scene.client.cancel_request("a", ref) == "cancelled"
        [told] = records(mailbox, lambda record: record.event == "turn.cancelled")

    assert told.metadata["attempt"] == 2
    assert scene.outcome(ref) == Failed(CANCELLED)


def test_s195_a_parked_ask_hears_of_an_orderly_stop(scene: Scene) -> None:
    """As `agent_terminated`."""
    scene.start(GATED_FAILURE, PONG, on=AGAIN)
    asked = in_background(lambda: scene.client.ask("a", "p"))
    scene.blocked()
    scene.client.notify_ack("a", {"halt": 1})
    scene.release()
    scene.wait_seen("post_run")
    scene.client.stop("a")

    with pytest.raises(TurnFailed) as error:
        asked.result(30)
    assert error.value.reason == AgentTerminated(SHUTDOWN)


def test_s218_draining_fails_a_parked_retry(scene: Scene) -> None:
    """Its caller hears `draining`, and the agent exits."""
    ref = park(scene)

    scene.client.drain("a")

    assert scene.outcome(ref) == Failed(DRAINING)
    assert scene.prompts() == ["p"]


def test_s196_a_retry_that_its_gate_refuses_fails_with_that(scene: Scene) -> None:
    """To its own caller."""
    scene.start(fails("r"), PONG, on={**AGAIN, "pre_turn": [{}, {"skip": 1}]})

    assert scene.outcome(scene.client.tell_with_completion("a", "p")) == Failed(PRE_TURN_SKIPPED)


def test_s197_a_failed_event_turn_goes_on_under_a_new_ref(scene: Scene) -> None:
    """As the agent's own follow-up."""
    scene.start(fails("r"), held(), on=AGAIN)
    scene.client.notify("a", {"prompt": "from an event"})
    scene.blocked()

    current = scene.client.runtime_snapshot("a").current_request
    [failed] = scene.decided()
    scene.release()

    assert current is not None
    assert (current.origin, current.attempt) == ("self_chain", 1)
    assert current.ref.text != failed
