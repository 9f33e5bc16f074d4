"""The numbered guarantees of the captured handle, against a real daemon and real agents.

C1, C5-C7 and C28 are also shown on the conversation alone; here the same calls go
through processes.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pytest

from genagent_backends.gates import Gates
from genagent_protocol.answers import NotFound, PollCompleted, PollFailed, PollPending
from genagent_protocol.envelopes import Admission, Completion, Down, EventMessage
from genagent_protocol.errors import CallTimeout, ProcessDown, UsageError
from genagent_protocol.events import Completed, Failed
from genagent_protocol.reasons import (
    CANCELLED,
    INTERRUPTED,
    NOPROC,
    NORMAL,
    SHUTDOWN,
    ExitReason,
    Overloaded,
)
from genagent_protocol.refs import AgentHandle, RequestRef
from genagent_protocol.submission import Submission
from genagentd.client.boxes import Message, about
from genagentd.client.client import Client
from genagentd.client.story import hear
from support import fleet
from support.background import in_background
from support.daemons import PrivateDaemon
from support.fleet import HANGS, SAYS

pytestmark = pytest.mark.process

WITHIN_MS = 30_000
Steps: TypeAlias = Sequence[Mapping[str, object]]


@pytest.fixture
def gates() -> Iterator[Gates]:
    with Gates() as opened:
        yield opened


def start(
    client: Client,
    *turns: Steps,
    agent: str | None = None,
    options: Mapping[str, object] | None = None,
) -> AgentHandle:
    """Start the agent `a`, which plays *turns* again and again."""
    script = {"script": list(turns or (SAYS,)), "repeat": True, **(options or {})}
    spelled = None if agent is None else f"support.talkers:{agent}"
    return client.start_agent(spelled, name="a", backend="scripted", options=script, cwd=fleet.HERE)


def gated(client: Client, gates: Gates, **limits: int) -> AgentHandle:
    """Start an agent whose every turn waits at the gate `turn`."""
    turn = [{"gate": "turn", "timeout_ms": 60_000}, *SAYS]
    options = {"gate_dir": gates.directory, **limits}
    return start(client, turn, options=options)


def held(client: Client, gates: Gates, handle: AgentHandle) -> RequestRef:
    """Submit a prompt and wait until its turn is held at the gate."""
    ref = client.at(handle).submit_with_completion("held").ref
    gates.wait_blocked("turn", WITHIN_MS)
    assert fleet.admission(client, ref).accepted
    return ref


def story(client: Client, ref: RequestRef) -> tuple[Submission, list[Message]]:
    """Listen until no more can be known of *ref*; return what is known and what was heard."""
    known, heard = Submission(ref=ref), list[Message]()
    while not known.permit_returned:
        message = client.receive(WITHIN_MS, matching=about(ref))
        assert message is not None, f"nothing more was heard after {heard}"
        heard.append(message)
        known = hear(known, message)
    return known, heard


def kill(handle: AgentHandle) -> None:
    os.kill(handle.pid, signal.SIGKILL)


# --- submission


def test_c1_a_bad_argument_raises_and_nothing_is_sent(client: Client, house: PrivateDaemon) -> None:
    """Checked first: no ref exists, and the agent's counters do not move (S099)."""
    other = Client(house.run).connect()
    handle = start(client)
    captured = client.at(handle)
    bad: list[Any] = [
        lambda: client.at("a"),  # type: ignore[arg-type]  # that is the point
        lambda: client.at(dataclasses.replace(handle, place="elsewhere:/run")),
        lambda: captured.submit_with_completion(7),  # type: ignore[arg-type]  # that is the point
        lambda: captured.submit_with_completion("p", None),  # type: ignore[arg-type]  # as above
        lambda: captured.submit_with_completion("p", on_halt="maybe"),  # type: ignore[arg-type]  # as above
        lambda: captured.submit_with_completion("p", stream_to="a"),  # type: ignore[arg-type]  # as above
        lambda: captured.submit_with_completion("\ud800"),
        lambda: captured.monitor(5),  # type: ignore[arg-type]  # as above
        lambda: captured.monitor(other.mailbox()),
        lambda: client.demonitor(5),  # type: ignore[arg-type]  # as above
        lambda: client.start_agent(None, name="b", backend="echo", group=5),  # type: ignore[call-overload]  # as above
        lambda: client.stop("a", group=5),  # type: ignore[arg-type]  # as above
        lambda: client.receive(0, matching=5),  # type: ignore[arg-type]  # as above
    ]

    for call in bad:
        with pytest.raises(UsageError):
            call()

    other.close()
    assert client.receive(0) is None
    assert client.runtime_snapshot("a").pending_prompts == 0


def test_c2_c13_one_ref_names_the_request_everywhere(client: Client, gates: Gates) -> None:
    """Admission, poll, cancel, interrupt and completion speak of the ref that submit returned."""
    handle = gated(client, gates)
    captured = client.at(handle)

    ref = held(client, gates, handle)
    snapshot = client.runtime_snapshot("a").current_request

    assert snapshot is not None
    assert snapshot.ref == ref
    assert captured.poll(ref) == PollPending()
    assert captured.cancel_request(ref) == "current"
    gates.release("turn")
    completion = fleet.completion(client, ref)
    assert isinstance(completion.outcome, Completed)
    assert captured.poll(ref) == PollCompleted(completion.outcome.response)


def test_c3_a_dead_process_gets_the_same_answer(client: Client) -> None:
    """`Submitted` means sent; the death notice tells the rest (S098)."""
    handle = start(client)
    client.stop("a")

    ref = client.at(handle).submit_with_completion("p").ref
    monitor = client.at(handle).monitor()

    assert ref.incarnation == handle.incarnation
    [down] = [client.receive(WITHIN_MS)]
    assert down == Down(monitor=monitor, handle=handle, reason=NOPROC)
    assert client.receive(0) is None


def test_c4_an_old_handle_never_reaches_a_successor(client: Client) -> None:
    """No lookup, no retargeting: the successor's history, state and counters do not move."""
    old = start(client)
    client.stop("a")
    new = start(client)
    captured = client.at(old)

    ref = captured.submit_with_completion("for the dead").ref
    assert captured.notify("for the dead") == "not_alive"
    for call in (captured.poll, captured.cancel_request, captured.interrupt_request):
        with pytest.raises(ProcessDown) as down:
            call(ref)
        assert down.value.reason == NOPROC

    assert new.incarnation != old.incarnation
    assert client.status("a").agent_state == ()
    assert client.at(new).poll(ref) == NotFound()


def test_c5_submitting_does_not_wait_for_a_blocked_agent(client: Client) -> None:
    """An agent stuck in a callback is sent to all the same; its admission comes later (S100)."""
    handle = start(client, agent="Held")
    captured = client.at(handle)
    captured.notify("block")
    assert client.whereis("a") == handle

    ref = captured.submit_with_completion("p").ref
    with pytest.raises(CallTimeout):
        captured.poll(ref, timeout_ms=100)

    os.kill(handle.pid, signal.SIGUSR1)
    known, _ = story(client, ref)
    assert known.word == "completed"


def test_c6_each_submission_is_new_work(client: Client) -> None:
    """Two of the same prompt are two refs and two turns (S112)."""
    handle = start(client)

    refs = [client.at(handle).submit_with_completion("same").ref for _ in range(2)]

    assert refs[0] != refs[1]
    for ref in refs:
        assert isinstance(fleet.completion(client, ref).outcome, Completed)


# --- admission


def test_c7_c8_a_rejected_request_leaves_no_trace(client: Client, gates: Gates) -> None:
    """One admission with the reason, then nothing: no completion, no result (S101)."""
    handle = gated(client, gates, max_pending_prompts=0)
    captured = client.at(handle)
    held(client, gates, handle)

    ref = captured.submit_with_completion("too many").ref
    known, heard = story(client, ref)

    assert [type(message) for message in heard] == [Admission]
    assert isinstance(known.refusal, Overloaded)
    assert captured.poll(ref) == NotFound()
    assert captured.cancel_request(ref) == "not_found"
    gates.release("turn")


def test_c8_a_halted_agent_rejects_only_who_asked_for_that(client: Client) -> None:
    """`on_halt="fail"` is refused with `halted`; the default waits for the resume (S103)."""
    handle = start(client)
    captured = client.at(handle)
    client.halt("a")

    refused, _ = story(client, captured.submit_with_completion("p", on_halt="fail").ref)
    waiting = captured.submit_with_completion("p").ref
    assert fleet.admission(client, waiting).accepted
    client.resume("a")

    assert refused.refusal is not None
    assert refused.refusal.code == "halted"
    assert isinstance(fleet.completion(client, waiting).outcome, Completed)


def test_c9_c10_a_gate_that_says_no_is_accepted_work(client: Client) -> None:
    """One error completion and at most one admission, in either order (S104)."""
    handle = start(client, agent="Skipping")

    known, heard = story(client, client.at(handle).submit_with_completion("p").ref)

    assert known.accepted
    assert isinstance(known.outcome, Failed)
    assert known.outcome.reason.code == "pre_turn_skipped"
    assert len([message for message in heard if isinstance(message, Completion)]) == 1


def test_c11_admission_then_events_then_completion(client: Client) -> None:
    """For one recipient in this order, events in stream order (S106)."""
    turn: Steps = [{"many": 30, "event": {"kind": "text", "text": "x"}}, {"kind": "result"}]
    handle = start(client, turn)

    ref = client.at(handle).submit_with_completion("p", stream_to=client.address).ref
    _, heard = story(client, ref)

    kinds = [type(message) for message in heard]
    assert kinds == [Admission, *[EventMessage] * 31, Completion]


def test_c12_retries_add_no_admission_and_no_completion(client: Client) -> None:
    """One admission and one final completion over three attempts (S113)."""
    handle = start(
        client,
        [{"error": "first"}],
        [{"error": "second"}],
        SAYS,
        agent="Retrying",
        options={"repeat": False},
    )

    known, heard = story(client, client.at(handle).submit_with_completion("p").ref)

    assert known.word == "completed"
    assert [type(message) for message in heard] == [Admission, Completion]


# --- completion and control


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_c14_an_end_invents_no_completion(client: Client, gates: Gates, end: str) -> None:
    """Active and queued requests get the DOWN and nothing else (S079, S110)."""
    handle = gated(client, gates)
    captured = client.at(handle)
    captured.monitor()
    active = held(client, gates, handle)
    queued = captured.submit_with_completion("queued").ref
    assert fleet.admission(client, queued).accepted

    if end == "stop":
        client.stop("a")
    else:
        kill(handle)

    down = client.receive(WITHIN_MS)
    assert isinstance(down, Down)
    assert down.reason == (SHUTDOWN if end == "stop" else ExitReason("signal:9"))
    assert client.receive(0) is None
    assert active.incarnation == queued.incarnation


def test_c15_events_go_to_their_own_recipient(client: Client) -> None:
    """The sink gets the events, the recipient admission and completion (S090)."""
    handle = start(client)
    with client.mailbox() as sink, client.mailbox() as recipient:
        client.at(handle).submit_with_completion("p", recipient, stream_to=sink)

        first = [recipient.receive(WITHIN_MS) for _ in range(2)]
        events = [sink.receive(WITHIN_MS) for _ in range(2)]

    assert [type(message) for message in first] == [Admission, Completion]
    assert [m.event.kind for m in events if isinstance(m, EventMessage)] == ["text", "result"]
    assert client.receive(0) is None


def test_c16_a_queued_request_is_cancelled_by_its_ref(client: Client, gates: Gates) -> None:
    """Its completion says cancelled, once, and its place is free again (S114)."""
    handle = gated(client, gates, max_pending_prompts=1)
    captured = client.at(handle)
    held(client, gates, handle)
    queued = captured.submit_with_completion("queued").ref
    assert fleet.admission(client, queued).accepted

    assert captured.cancel_request(queued) == "cancelled"

    assert fleet.completion(client, queued).outcome == Failed(CANCELLED)
    assert captured.cancel_request(queued) == "cancelled"
    again = captured.submit_with_completion("in its place").ref
    assert fleet.admission(client, again).accepted
    gates.release("turn")
    gates.release("turn")


def test_c16_c19_an_active_request_is_interrupted_by_its_ref(client: Client) -> None:
    """`current` tells to interrupt; `accepted` comes when the turn's code has ended (S115)."""
    handle = start(client, HANGS)
    captured = client.at(handle)
    ref = captured.submit_with_completion("p", stream_to=client.address).ref
    fleet.event(client, ref, "text")

    assert captured.cancel_request(ref) == "current"
    assert captured.interrupt_request(ref) == "accepted"

    assert fleet.completion(client, ref).outcome == Failed(INTERRUPTED)
    assert captured.poll(ref) == PollFailed(INTERRUPTED)
    assert captured.interrupt_request(ref) == "idle"


def test_c17_the_death_of_the_process_ends_a_call_without_a_limit(client: Client) -> None:
    """As the platform's failure, not as an answer (S118)."""
    handle = start(client)
    ref = client.tell("a", "p")
    os.kill(handle.pid, signal.SIGSTOP)
    call = in_background(lambda: client.at(handle).poll(ref, None))
    kill(handle)

    with pytest.raises(ProcessDown) as down:
        call.result(WITHIN_MS / 1000)

    assert down.value.reason == ExitReason("signal:9")


def test_c18_a_call_is_not_answered_while_a_callback_blocks(client: Client) -> None:
    """The limit passes and the fate is unknown; here the late cancel still worked (S116)."""
    handle = start(client, agent="Held")
    captured = client.at(handle)
    captured.notify("block")
    ref = captured.submit_with_completion("p").ref

    with pytest.raises(CallTimeout, match="effect is unknown"):
        captured.cancel_request(ref, timeout_ms=50)

    os.kill(handle.pid, signal.SIGUSR1)
    known, _ = story(client, ref)
    assert known.word in ("completed", "cancelled")


def test_c20_not_found_is_no_evidence_of_cancellation(client: Client) -> None:
    """A result that was evicted reads like one that never was."""
    handle = start(client, options={"max_tell_results": 1})
    captured = client.at(handle)
    refs = [captured.submit_with_completion("p").ref for _ in range(2)]
    for ref in refs:
        assert isinstance(fleet.completion(client, ref).outcome, Completed)

    assert captured.poll(refs[0]) == NotFound()
    assert isinstance(captured.poll(refs[1]), PollCompleted)


def test_c21_notify_checks_the_process_and_sends_once(client: Client) -> None:
    """`ok` without a round trip; `not_alive` for a dead one; a name is no handle (S120)."""
    handle = start(client, agent="Noting")
    assert client.at(handle).notify({"n": 1}) == "ok"
    assert client.status("a").agent_state == ({"n": 1},)

    client.stop("a")

    assert client.at(handle).notify({"n": 2}) == "not_alive"
    with pytest.raises(UsageError):
        client.at("a").notify(1)  # type: ignore[arg-type]  # that is the point


# --- watching for death


def test_c22_c23_a_completion_before_the_death_stays_known(client: Client) -> None:
    """All comes on one connection in order: the outcome, then the DOWN."""
    handle = start(client)
    captured = client.at(handle)
    captured.monitor()

    ref = captured.submit_with_completion("p").ref
    client.drain("a")
    heard = [client.receive(WITHIN_MS) for _ in range(3)]

    assert [type(message) for message in heard] == [Admission, Completion, Down]
    known = Submission(ref=ref)
    for message in heard:
        assert message is not None
        known = hear(known, message)
    assert (known.word, known.contradicted) == ("completed", False)
    assert known.ended == NORMAL


def test_c24_accepted_then_dead_is_accepted_with_an_unknown_outcome(
    client: Client, gates: Gates
) -> None:
    """S108."""
    handle = gated(client, gates)
    client.at(handle).monitor()
    ref = held(client, gates, handle)

    kill(handle)

    known = hear(Submission(ref=ref).hear_admitted(), fleet.down(client, handle))
    assert (known.word, known.accepted) == ("uncertain", True)


def test_c25_death_alone_leaves_even_acceptance_unknown(client: Client) -> None:
    """S109: sent to a process that was killed before it could process it."""
    handle = start(client)
    captured = client.at(handle)
    captured.monitor()
    assert client.whereis("a") == handle  # by now the daemon knows who watches
    os.kill(handle.pid, signal.SIGSTOP)
    ref = captured.submit_with_completion("p").ref
    kill(handle)
    known, heard = story(client, ref)

    assert [type(message) for message in heard] == [Down]
    assert (known.word, known.accepted) == ("uncertain", None)


def test_c26_rejected_then_dead_is_rejected(client: Client, gates: Gates) -> None:
    """S123: certain, whatever happens to the process afterwards."""
    handle = gated(client, gates, max_pending_prompts=0)
    client.at(handle).monitor()
    held(client, gates, handle)
    ref = client.at(handle).submit_with_completion("too many").ref
    refusal = fleet.admission(client, ref)

    kill(handle)

    known = hear(hear(Submission(ref=ref), refusal), fleet.down(client, handle))
    assert (known.accepted, known.permit_returned) == (False, True)


# --- caller-side flow control


def test_c28_the_bounds_of_an_agent_do_not_bound_what_is_sent_to_it(client: Client) -> None:
    """S121: all are submitted; the decisions come when the agent gets to them."""
    handle = start(client, agent="Held", options={"max_pending_prompts": 1})
    captured = client.at(handle)
    captured.notify("block")

    refs = [captured.submit_with_completion(f"p{n}").ref for n in range(20)]
    os.kill(handle.pid, signal.SIGUSR1)
    stories = [story(client, ref)[0] for ref in refs]

    words = [known.word for known in stories]
    refused = [known for known in stories if isinstance(known.refusal, Overloaded)]
    assert words.count("completed") >= 1
    assert len(refused) >= 1
    assert words.count("completed") + len(refused) == 20


def test_c29_c30_a_permit_comes_back_only_with_a_fate(client: Client, gates: Gates) -> None:
    """S122: the caller's own limit is not one."""
    handle = gated(client, gates)
    ref = held(client, gates, handle)
    known = Submission(ref=ref).hear_admitted()

    assert client.receive(50, matching=about(ref)) is None
    assert not known.permit_returned

    gates.release("turn")
    known = hear(known, fleet.completion(client, ref))
    assert known.permit_returned
