"""The captured handle: what its guarantees come to when several agents and lives are about."""

from __future__ import annotations

import inspect

import pytest

from genagent_protocol.answers import NotFound
from genagent_protocol.envelopes import Admission, Completion, Down
from genagent_protocol.errors import CallTimeout, ProcessDown
from genagent_protocol.events import Completed
from genagent_protocol.reasons import INTERRUPTED, NOPROC, SHUTDOWN, ExitReason
from genagent_protocol.submission import Submission
from genagentd.client.aio import AsyncClient
from genagentd.client.boxes import about
from genagentd.client.captured import AsyncCaptured, Captured
from genagentd.client.client import Client
from genagentd.client.story import hear
from support import fleet
from support.background import in_background
from support.scenes import HANGS, PONG, WITHIN_MS, Scene, held

pytestmark = pytest.mark.process


def test_s097_a_submission_is_admitted_and_then_completed_under_its_ref(scene: Scene) -> None:
    """`submitted` comes back while the turn has not ended; the rest follows by message."""
    handle = scene.start(held())

    ref = scene.client.at(handle).submit_with_completion("p").ref

    assert fleet.admission(scene.client, ref).accepted
    scene.blocked()
    assert scene.silent()
    scene.release()
    assert isinstance(scene.outcome(ref), Completed)


def test_s098_s109_a_dead_process_says_nothing_at_all(scene: Scene) -> None:
    """No admission, no completion; only who watches hears the end."""
    handle = scene.start()
    scene.client.stop("a")
    captured = scene.client.at(handle)

    ref = captured.submit_with_completion("p").ref
    scene.watch(captured.handle)

    known = hear(Submission(ref=ref), fleet.down(scene.client, handle))
    assert (known.word, known.ended) == ("lost", NOPROC)
    assert scene.client.receive(0) is None


def test_s104_s107_a_completion_alone_is_final(scene: Scene) -> None:
    """Whatever the order of its messages, and whatever ends afterwards: it stays what it was."""
    handle = scene.start(on={"pre_turn": [{"skip": 1}]})
    captured = scene.client.at(handle)
    scene.watch(captured.handle)
    ref = captured.submit_with_completion("p").ref
    heard = [scene.client.receive(WITHIN_MS, matching=about(ref)) for _ in range(2)]
    scene.kill(handle)
    down = fleet.down(scene.client, handle)

    assert {type(message) for message in heard} == {Admission, Completion}
    for order in (heard, heard[::-1], [m for m in heard if isinstance(m, Completion)]):
        known = Submission(ref=ref)
        for message in [*order, down]:
            assert message is not None
            known = hear(known, message)
        assert (known.word, known.accepted, known.contradicted) == ("failed", True, False)


def test_s108_s109_s123_a_death_leaves_known_what_was_known(scene: Scene) -> None:
    """Refused, accepted and unheard of: each reads as what it was when the process was killed."""
    handle = scene.start(held(), PONG, max_pending_prompts=0)
    captured = scene.client.at(handle)
    scene.watch(captured.handle)
    active = captured.submit_with_completion("active").ref
    scene.blocked()
    refused = captured.submit_with_completion("too many").ref
    admissions = {ref: fleet.admission(scene.client, ref) for ref in (active, refused)}
    scene.kill(handle)
    down = fleet.down(scene.client, handle)
    unheard = captured.submit_with_completion("to nobody").ref

    words = {}
    for name, ref in (("active", active), ("refused", refused), ("unheard", unheard)):
        known = Submission(ref=ref)
        if ref in admissions:
            known = hear(known, admissions[ref])
        known = hear(known, down)
        words[name] = (known.word, known.accepted)
    assert words == {
        "active": ("uncertain", True),
        "refused": ("failed", False),
        "unheard": ("uncertain", None),
    }


def test_s111_an_old_handle_never_moves_the_successor(scene: Scene) -> None:
    """Its counters, its state and its backend's history do not change."""
    old = scene.client.at(scene.start())
    scene.client.stop("a")
    scene.start(name="a", backend={"history_file": str(scene.files / "successor.prompts")})
    before = (scene.state(), scene.client.runtime_snapshot("a"))

    ref = old.submit_with_completion("for the dead").ref
    assert old.notify("for the dead") == "not_alive"
    for call in (old.poll, old.cancel_request, old.interrupt_request):
        with pytest.raises(ProcessDown):
            call(ref)

    assert (scene.state(), scene.client.runtime_snapshot("a")) == before
    assert scene.client.at(scene.start(name="b")).poll(ref) == NotFound()
    assert scene.prompts("successor") == []


def test_s116_s117_a_cancel_may_come_after_the_dispatch(scene: Scene) -> None:
    """Sent before the admission was heard, and still too late: `current`, and the work ran."""
    handle = scene.start(held())
    captured = scene.client.at(handle)
    captured.notify({"block": "hook"})
    scene.blocked("hook")
    ref = captured.submit_with_completion("p").ref
    with pytest.raises(CallTimeout):
        captured.cancel_request(ref, timeout_ms=50)
    cancelled = in_background(lambda: captured.cancel_request(ref, timeout_ms=WITHIN_MS))
    scene.release("hook")

    assert cancelled.result(30) == "current"
    scene.blocked()
    scene.release()
    assert isinstance(scene.outcome(ref), Completed)


def test_s118_s120_a_dead_process_ends_a_call_and_is_told_to_who_notifies(scene: Scene) -> None:
    """Not an answer but the platform's failure, with its reason."""
    handle = scene.start()
    captured = scene.client.at(handle)
    ref = captured.submit_with_completion("p").ref
    assert captured.notify("event") == "ok"
    scene.client.stop("a")

    assert captured.notify("event") == "not_alive"
    for call in (captured.poll, captured.cancel_request, captured.interrupt_request):
        with pytest.raises(ProcessDown) as down:
            call(ref)
        assert down.value.reason in (NOPROC, SHUTDOWN)


@pytest.mark.parametrize(
    ("of", "default"),
    [(Captured, 5_000), (AsyncCaptured, 5_000), (Client, None), (AsyncClient, None)],
)
def test_s119_calls_by_handle_wait_five_seconds_and_calls_by_name_for_ever(
    of: type, default: int | None
) -> None:
    """Unless they are told otherwise."""
    for name in ("poll", "cancel_request", "interrupt_request"):
        parameters = inspect.signature(getattr(of, name)).parameters
        assert parameters["timeout_ms"].default == default


def test_c15_halting_and_streaming_mean_the_same_as_by_name(scene: Scene) -> None:
    """A submission may fail at a halt, and stream elsewhere, under its one ref (S090, S103)."""
    handle = scene.start()
    captured = scene.client.at(handle)
    with scene.client.mailbox() as sink:
        ref = captured.submit_with_completion("p", stream_to=sink).ref
        assert isinstance(scene.outcome(ref), Completed)
        events = [sink.receive(WITHIN_MS, matching=about(ref)) for _ in range(2)]
    scene.client.halt("a")
    refused = captured.submit_with_completion("p", on_halt="fail").ref

    assert None not in events
    assert fleet.admission(scene.client, refused).refused is not None


def test_c19_c27_neither_an_interrupt_nor_a_death_says_that_work_outside_settled(
    scene: Scene,
) -> None:
    """The answer is one word, the notice a reason; a tool kept for the session lives on (S238)."""
    turn = [{"spawn": ["sleep", "3600"], "for_session": True}, *HANGS]
    handle = scene.start(turn)
    captured = scene.client.at(handle)
    scene.watch(captured.handle)
    ref = captured.submit_with_completion("p", stream_to=scene.client.address).ref
    pids = fleet.event(scene.client, ref, "spawned")["pids"]
    tool = fleet.identities(pids)
    scene.wait_seen("stream text begun")

    assert captured.interrupt_request(ref) == "accepted"
    assert fleet.completion(scene.client, ref).outcome.reason == INTERRUPTED  # type: ignore[union-attr]  # it failed
    assert fleet.alive(tool) == list(pids)

    scene.kill(handle)
    down = fleet.down(scene.client, handle)
    assert (type(down), down.reason) == (Down, ExitReason("signal:9"))
    fleet.gone(tool)


def test_c31_a_cleanup_that_waits_leaves_its_coordinator_free(scene: Scene) -> None:
    """Run beside it, its deadline can report no more than "uncertain" (S116, S122)."""
    stuck, other = scene.start(held()), scene.start(name="b")
    captured = scene.client.at(stuck)
    captured.notify({"block": "hook"})
    scene.blocked("hook")
    ref = captured.submit_with_completion("p").ref
    cleanup = in_background(lambda: captured.cancel_request(ref, timeout_ms=300))

    served = [scene.client.at(other).submit_with_completion("p").ref for _ in range(3)]
    assert all(isinstance(scene.outcome(each), Completed) for each in served)

    with pytest.raises(CallTimeout):
        cleanup.result(30)
    known = Submission(ref=ref)
    assert (known.word, known.permit_returned) == ("sent", False)
    scene.release("hook")
    scene.blocked()
    scene.release()
    assert isinstance(scene.outcome(ref), Completed)
