"""Notifications, completions and streams by name, on agents that are processes."""

from __future__ import annotations

import os
import signal

import pytest

from genagent_protocol.answers import NotFound, PollCompleted, PollFailed, PollPending
from genagent_protocol.envelopes import Completion, EventMessage
from genagent_protocol.errors import ProcessDown, Refused, TurnFailed, UsageError
from genagent_protocol.events import Completed
from genagent_protocol.failed import Failed
from genagent_protocol.reasons import (
    HALTED,
    INTERRUPTED,
    SHUTDOWN,
    AgentTerminated,
    BackendFailed,
    Overloaded,
)
from genagent_protocol.refs import RequestRef
from genagentd.client.client import Client
from support import fleet
from support.background import in_background
from support.scenes import HANGS, PONG, Scene, fails, held, says
from support.waiting import until

pytestmark = pytest.mark.process

TURN = ("pre_run", "pre_turn", "stream")


def streamed(client: Client, ref: RequestRef) -> list[str]:
    """Read up to the completion of *ref*; return what its stream said, in order."""
    said = []
    while not isinstance(message := client.receive(30_000), Completion):
        assert isinstance(message, EventMessage)
        assert message.ref == ref
        said.append(str(message.event.data.get("text", message.event.kind)))
    assert message.ref == ref
    return said


# --- notifications


def test_s059_an_idle_agent_runs_the_prompt_of_an_event(scene: Scene) -> None:
    """It is a turn of its own."""
    scene.start()

    scene.client.notify("a", {"prompt": "from an event"})
    scene.wait_seen("post_turn completed")

    assert scene.prompts() == ["from an event"]


def test_s060_s061_notifications_of_a_turn_survive_it_in_their_order(scene: Scene) -> None:
    """Five changes of state, none overwritten by the turn's own."""
    scene.start(held())
    ref = scene.hold()
    for number in range(5):
        scene.client.notify("a", number)
    assert scene.client.runtime_snapshot("a").pending_notifications == 5
    scene.release()
    scene.outcome(ref)

    assert scene.state()[-6:] == ("post_turn completed", *(f"event {n}" for n in range(5)))


@pytest.mark.parametrize("chained", [False, True])
def test_s062_s063_s064_the_prompt_of_a_deferred_event_queues_behind_all(
    scene: Scene, chained: bool
) -> None:
    """A chain and what was queued before run first."""
    plans = [{"prompt": "chained"}] if chained else []
    scene.start(held(), PONG, PONG, PONG, on={"handle_response": plans})
    scene.hold("first")
    queued = scene.client.tell("a", "queued")
    scene.client.notify_ack("a", {"prompt": "event"})
    scene.release()
    scene.over(queued)
    scene.wait_seen("pre_turn event")
    scene.idle()

    assert scene.prompts() == ["first", *(["chained"] if chained else []), "queued", "event"]


def test_s065_a_failing_turn_handles_its_notifications_too(scene: Scene) -> None:
    """After its error path."""
    scene.start([{"gate": "turn", "timeout_ms": 60_000}, *fails("r")])
    ref = scene.hold()
    scene.client.notify_ack("a", "kept")
    scene.release()
    scene.outcome(ref)

    assert scene.state()[-2:] == ("post_turn backend_failed", 'event "kept"')


def test_s066_s067_an_acknowledged_event_was_handled(scene: Scene) -> None:
    """Its state shows at once; a gate that declines its prompt changes nothing about that."""
    scene.start(on={"pre_turn": [{"skip": 1}]})

    scene.client.notify_ack("a", {"prompt": "declined"})

    assert scene.state()[-1] == "error pre_turn_skipped"
    assert scene.prompts() == []


def test_s068_a_prompt_that_does_not_fit_is_reported_and_not_in_the_acknowledgement(
    scene: Scene,
) -> None:
    """Halted and full: the event was handled, and its prompt goes to `handle_error` (D37)."""
    scene.start(max_pending_prompts=1)
    scene.client.halt("a")
    scene.client.tell("a", "in the only place")

    scene.client.notify_ack("a", {"prompt": "too many"})

    assert scene.state()[-1] == "error overloaded prompts count"
    assert scene.client.runtime_snapshot("a").pending_prompts == 1


def test_s069_a_halted_agent_handles_events_and_dispatches_nothing(scene: Scene) -> None:
    """A prompt of theirs waits for the resume."""
    scene.start()
    scene.client.halt("a")

    scene.client.notify_ack("a", {"prompt": "later"})

    assert scene.state()[-1] == 'event {"prompt": "later"}'
    assert scene.client.runtime_snapshot("a").pending_prompts == 1
    assert scene.prompts() == []
    scene.client.resume("a")
    scene.wait_seen("post_turn completed")


# --- completions


def test_s070_a_completion_follows_decision_and_post_turn(scene: Scene) -> None:
    """When it arrives, both have run; there is exactly one."""
    scene.start()

    ref = scene.client.tell_with_completion("a", "p")

    assert isinstance(scene.outcome(ref), Completed)
    assert scene.seen(without=TURN) == ["response pong", "post_turn completed"]
    scene.state()
    assert scene.silent()


def test_s071_completions_do_not_depend_on_the_memory(scene: Scene) -> None:
    """Both arrive although the first can no longer be polled."""
    scene.start(max_tell_results=1)

    refs = [scene.client.tell_with_completion("a", "p") for _ in range(2)]

    assert all(isinstance(scene.outcome(ref), Completed) for ref in refs)
    assert scene.client.poll("a", refs[0]) == NotFound()


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({"skip": 1}, "pre_turn_skipped"),
        ({"halt": 1}, "pre_turn_halted"),
        ({"garbage": 1}, "pre_turn_invalid"),
        ({"run": 7}, "pre_turn_invalid"),
        ({"raise": 1}, "pre_turn_skipped"),
    ],
)
def test_s072_s073_s104_s157_s158_s159_a_refusing_gate_completes_the_request(
    scene: Scene, plan: dict[str, object], code: str
) -> None:
    """One completion with the reason, poll agrees, and neither backend nor hook ran."""
    scene.start(on={"pre_turn": [plan]})

    ref = scene.client.tell_with_completion("a", "p")

    outcome = scene.outcome(ref)
    assert isinstance(outcome, Failed)
    assert outcome.reason.code == code
    assert scene.client.poll("a", ref) == PollFailed(outcome.reason)
    halted = "halt" in plan
    assert scene.client.status("a").halted == halted
    assert scene.seen(without=("pre_",)) == (["post_run"] if halted else [])
    assert scene.prompts() == []
    assert scene.silent()


def test_s074_a_rejected_tell_gets_no_completion_ever(scene: Scene) -> None:
    """Refused with its reason, without a ref; what was queued completes."""
    scene.start(held(), PONG, max_pending_prompts=1)
    scene.hold()
    queued = scene.client.tell_with_completion("a", "queued")

    with pytest.raises(Refused) as error:
        scene.client.tell_with_completion("a", "too many")
    scene.release()

    assert isinstance(error.value.reason, Overloaded)
    assert isinstance(scene.outcome(queued), Completed)
    scene.client.drain("a")
    assert len([m for m in fleet.rest(scene.client) if isinstance(m, Completion)]) == 1


def test_s075_each_bad_end_is_one_error_completion(scene: Scene) -> None:
    """Backend error, interrupt and watchdog."""
    scene.start(fails("r"), HANGS)
    scene.start(HANGS, name="b", watchdog_ms=50)

    failed = scene.client.tell_with_completion("a", "p")
    outcomes = [scene.outcome(failed)]
    interrupted = scene.client.tell_with_completion("a", "p")
    scene.wait_seen("stream text begun")
    scene.client.interrupt("a")
    outcomes.append(scene.outcome(interrupted))
    outcomes.append(scene.outcome(scene.client.tell_with_completion("b", "p")))

    codes = [outcome.reason.code for outcome in outcomes if isinstance(outcome, Failed)]
    assert codes == ["backend_failed", "interrupted", "timeout"]
    assert scene.silent()


def test_s078_a_race_of_result_and_interrupt_has_one_outcome(scene: Scene) -> None:
    """Whatever the interrupt answers, there is one outcome, and poll agrees with it."""
    scene.start(held(), backend={"repeat": True})
    for _ in range(12):
        ref = scene.hold()
        scene.release()
        answer = scene.client.interrupt_request("a", ref)
        outcome = scene.outcome(ref)

        assert answer in ("accepted", "idle")
        assert isinstance(outcome, Completed) or outcome == Failed(INTERRUPTED)
        if answer == "accepted":
            assert outcome == Failed(INTERRUPTED)
        known = scene.client.poll("a", ref)
        assert isinstance(known, PollCompleted) == isinstance(outcome, Completed)
        assert scene.silent()


def test_s080_s171_a_crashing_decision_ends_the_agent_before_the_completion(scene: Scene) -> None:
    """DOWN says `callback_failed`, both termination callbacks ran, and no completion comes."""
    handle = scene.start(on={"handle_response": [{"raise": 1}]})
    scene.watch(handle)

    ref = scene.client.tell_with_completion("a", "p")
    down = fleet.down(scene.client, handle)
    last = scene.seen()[-1]
    successor = scene.start()

    assert (down.reason.text, "LookupError" in str(down.reason)) == ("callback_failed", True)
    assert "a secret" not in str(down.reason)
    assert last.startswith("terminate_agent callback_failed")
    assert successor.incarnation != ref.incarnation
    scene.state()
    assert scene.silent()


def test_s081_a_tell_may_choose_to_fail_at_a_halted_agent(scene: Scene) -> None:
    """Refused at once; an ordinary one waits for the resume."""
    scene.start()
    scene.client.halt("a")

    with pytest.raises(Refused) as error:
        scene.client.tell_with_completion("a", "p", on_halt="fail")
    waiting = scene.client.tell_with_completion("a", "p")
    scene.client.resume("a")

    assert error.value.reason == HALTED
    assert isinstance(scene.outcome(waiting), Completed)


def test_s082_s083_a_halt_fails_what_chose_to_fail_and_keeps_the_rest(scene: Scene) -> None:
    """Each once; one that was cancelled before is not failed again."""
    scene.start(held(), PONG, on={"handle_response": [{"halt": 1}]})
    tell = scene.client.tell_with_completion
    scene.hold("halter")
    first = tell("a", "A", on_halt="fail")
    ordinary = tell("a", "ordinary")
    second, third = (tell("a", prompt, on_halt="fail") for prompt in ("B", "C"))
    assert scene.client.cancel_request("a", third) == "cancelled"
    scene.release()

    assert [scene.outcome(ref) for ref in (first, second)] == [Failed(HALTED)] * 2
    assert scene.outcome(third).reason.code == "cancelled"  # type: ignore[union-attr]  # it failed
    assert scene.client.poll("a", ordinary) == PollPending()
    scene.client.resume("a")
    assert isinstance(scene.outcome(ordinary), Completed)
    assert len([m for m in fleet.rest(scene.client) if isinstance(m, Completion)]) == 1


@pytest.mark.parametrize("bad", [{"on_halt": "perhaps"}, {"stream_to": "a"}, {"recipient": 7}])
def test_s084_a_bad_option_raises_before_anything_is_sent(
    scene: Scene, bad: dict[str, object]
) -> None:
    """The agent never hears of it."""
    scene.start()

    with pytest.raises(UsageError):
        scene.client.tell_with_completion("a", "p", **bad)  # type: ignore[arg-type]  # that is the point

    assert scene.state() == ("pre_run",)


def test_s079_s085_s110_s225_an_orderly_stop_answers_asks_and_invents_no_completion(
    scene: Scene,
) -> None:
    """Active and queued asks hear how it ended; told ones hear nothing but the DOWN."""
    handle = scene.start(held(), PONG, PONG)
    scene.watch(handle)
    active = in_background(lambda: scene.client.ask("a", "active"))
    scene.blocked()
    scene.client.tell_with_completion("a", "told")
    queued = in_background(lambda: scene.client.ask("a", "queued"))
    until(lambda: scene.client.status("a").queued == 2, "both are queued")

    assert scene.client.stop("a") == SHUTDOWN

    for ask in (active, queued):
        with pytest.raises(TurnFailed) as error:
            ask.result(30)
        assert error.value.reason == AgentTerminated(SHUTDOWN)
    assert fleet.down(scene.client, handle).reason == SHUTDOWN
    assert scene.silent()
    assert scene.client.whereis("a") is None
    assert scene.seen()[-1] == "terminate_agent shutdown"


def test_s086_an_ask_of_a_crashing_decision_gets_no_answer(scene: Scene) -> None:
    """The call ends as the process does."""
    scene.start(on={"handle_response": [{"garbage": 1}]})

    with pytest.raises(ProcessDown) as down:
        scene.client.ask("a", "p")
    assert down.value.reason.text == "callback_failed"


# --- streams


def test_s087_s106_events_come_in_order_and_then_the_completion(scene: Scene) -> None:
    """All of the stream, in its order, before the one completion."""
    scene.start([*({"kind": "text", "text": word} for word in "abc"), {"kind": "result"}])

    ref = scene.client.tell_with_completion("a", "p", stream_to=scene.client.address)

    assert streamed(scene.client, ref) == ["a", "b", "c", "result"]


def test_s088_the_callback_sees_an_event_before_its_listener_does(scene: Scene) -> None:
    """When the message is there, the callback has written the event down."""
    scene.start(HANGS)

    ref = scene.client.tell_with_completion("a", "p", stream_to=scene.client.address)
    fleet.event(scene.client, ref, "text")

    assert "stream text begun" in scene.seen()


def test_s089_without_a_target_no_event_is_relayed(scene: Scene) -> None:
    """The first message is the completion."""
    scene.start()

    ref = scene.client.tell_with_completion("a", "p")

    assert streamed(scene.client, ref) == []


def test_s091_each_request_has_its_own_events(scene: Scene) -> None:
    """All of the first before any of the second."""
    scene.start(held("one"), says("two"))
    here = scene.client.address
    first = scene.client.tell_with_completion("a", "p", stream_to=here)
    second = scene.client.tell_with_completion("a", "p", stream_to=here)
    scene.release()

    assert streamed(scene.client, first) == ["one", "result"]
    assert streamed(scene.client, second) == ["two", "result"]


def test_s092_s148_a_request_that_never_ran_streams_nothing(scene: Scene) -> None:
    """Cancelled in the queue, declined by the gate or the backend, or an event too many."""
    scene.start(
        held(),
        [{"error": "no"}],
        says("too many"),
        on={"pre_turn": [{}, {"skip": 1}]},
        max_events_per_turn=1,
    )
    here = scene.client.address
    tell = scene.client.tell_with_completion
    scene.hold()
    cancelled, skipped, declined, overflowing = (tell("a", "p", stream_to=here) for _ in range(4))
    scene.client.cancel_request("a", cancelled)
    scene.release()

    assert streamed(scene.client, cancelled) == []
    assert isinstance(scene.client.receive(30_000), Completion)  # the one that was held
    assert streamed(scene.client, skipped) == []
    assert streamed(scene.client, declined) == []
    assert streamed(scene.client, overflowing) == ["too many"]


@pytest.mark.parametrize("why", ["interrupt", "watchdog"])
def test_s093_a_stopped_turn_streams_nothing_after_its_completion(scene: Scene, why: str) -> None:
    """The next request streams as usual."""
    scene.start(HANGS, says("next"), watchdog_ms=1_000 if why == "watchdog" else None)
    here = scene.client.address
    ref = scene.client.tell_with_completion("a", "p", stream_to=here)
    scene.wait_seen("stream text begun")
    if why == "interrupt":
        scene.client.interrupt("a")

    assert streamed(scene.client, ref) == ["begun"]
    after = scene.client.tell_with_completion("a", "p", stream_to=here)
    assert streamed(scene.client, after) == ["next", "result"]


def test_s095_a_dead_stream_receiver_is_the_turns_least_worry(scene: Scene) -> None:
    """The turn completes and the agent lives."""
    scene.start()
    with Client(scene.house.run) as other:
        gone = other.address

    ref = scene.client.tell_with_completion("a", "p", stream_to=gone)

    assert isinstance(scene.outcome(ref), Completed)
    assert scene.client.status("a").state == "idle"


def test_s095_a_stopped_stream_receiver_does_not_hold_the_turn_up(scene: Scene) -> None:
    """A turn never waits for who listens (D5)."""
    scene.start([{"many": 900, "event": {"kind": "text", "text": "x" * 500}}, {"kind": "result"}])
    sink = scene.start(name="sink", agent="Listening")
    os.kill(sink.pid, signal.SIGSTOP)
    try:
        ref = scene.client.tell_with_completion("a", "p", stream_to=sink)
        assert isinstance(scene.outcome(ref), Completed)
    finally:
        os.kill(sink.pid, signal.SIGCONT)


def test_s096_s113_every_attempt_streams_under_the_same_ref(scene: Scene) -> None:
    """Both attempts, the first one's error included, then one completion."""
    scene.start(fails("r"), PONG, on={"handle_error": [{"prompt": "again"}]})

    ref = scene.client.tell_with_completion("a", "p", stream_to=scene.client.address)

    assert streamed(scene.client, ref) == ["so far", "error", "pong", "result"]
    scene.state()
    assert scene.silent()


def test_s004_s075_the_reason_is_the_backends_own(scene: Scene) -> None:
    """A structured one survives as it is."""
    scene.start(fails({"code": 7, "why": ["a", "b"]}))

    outcome = scene.outcome(scene.client.tell_with_completion("a", "p"))

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.reason, BackendFailed)
    assert outcome.reason.reason == {"code": 7, "why": ("a", "b")}
