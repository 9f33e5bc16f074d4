"""Each call asks what it must, in order, and reads its answer strictly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given

from genagent_protocol import answers, requests
from genagent_protocol.answers import AgentRow, Listing, Refused
from genagent_protocol.envelopes import Call, Down, Interrupt, Notify, Request, Submit
from genagent_protocol.errors import (
    DaemonLost,
    ProcessDown,
    RemoteWireError,
    StartFailed,
    TurnFailed,
    UsageError,
)
from genagent_protocol.errors import Refused as RefusedError
from genagent_protocol.events import Completed, EventCoverage, Failed, Response, event
from genagent_protocol.reasons import (
    DRAINING,
    INTERRUPTED,
    NORMAL,
    NOT_FOUND,
    SHUTDOWN,
    SHUTTING_DOWN,
    ExitReason,
    StartError,
)
from genagent_protocol.refs import BootId, Incarnation, RequestRef
from genagent_protocol.supervision.effects import GroupRunning, NotStarted, Started, Stopped
from genagentd.client import calls
from genagentd.client.session import attach
from genagentd.client.spec import AgentSpec
from genagentd.client.waiting import Script
from support.peer import FOUND, NOBODY, OK, OWN, Peer, a_ref, handle
from support.plain_values import anything

RESPONSE = Response(
    text="t", final_message="t", events=(), terminal=event("result"), event_coverage=EventCoverage()
)


def asked(peer: Peer) -> list[Any]:
    """Return what was asked of the daemon and of agents, without the watches."""
    inner = [e.request for _, e in peer.heard if isinstance(e, Request | Call)]
    return [request for request in inner if not isinstance(request, requests.MonitorAgent)]


# --- by name


def test_ask_looks_up_then_asks_and_returns_the_response() -> None:
    """Two questions, and the answer is the turn's outcome."""
    peer = Peer()

    response = peer.play(calls.ask(peer.talk, "a", "p"), FOUND, Completed(RESPONSE))

    assert response == RESPONSE
    [lookup, ask] = asked(peer)
    assert lookup == requests.Whereis(name="a")
    assert (ask.prompt, ask.ref.incarnation) == ("p", handle().incarnation)


def test_ask_raises_what_the_turn_failed_of() -> None:
    """An accepted prompt whose turn failed is not a refusal."""
    peer = Peer()

    with pytest.raises(TurnFailed, match="interrupted") as error:
        peer.play(calls.ask(peer.talk, "a", "p"), FOUND, Failed(INTERRUPTED))
    assert error.value.reason == INTERRUPTED


def test_a_refusal_raises_with_its_typed_reason() -> None:
    """Callers branch on the code, people read the sentence."""
    peer = Peer()

    with pytest.raises(RefusedError, match="draining") as error:
        peer.play(calls.tell(peer.talk, "a", "p"), FOUND, Refused(DRAINING))
    assert error.value.reason == DRAINING


@pytest.mark.parametrize(
    "script",
    [
        lambda talk: calls.ask(talk, "x", "p"),
        lambda talk: calls.tell(talk, "x", "p"),
        lambda talk: calls.notify_ack(talk, "x", 1),
        lambda talk: calls.cancel_request(talk, "x", a_ref()),
        lambda talk: calls.interrupt_request(talk, "x", a_ref()),
        lambda talk: calls.status(talk, "x"),
        lambda talk: calls.snapshot(talk, "x"),
        lambda talk: calls.reset_session(talk, "x"),
        lambda talk: calls.drain(talk, "x"),
    ],
)
def test_a_name_that_nobody_has_is_not_found(script: Any) -> None:
    """Synchronous calls say so; nothing is sent to anyone."""
    peer = Peer()

    with pytest.raises(RefusedError, match="no agent is named x") as error:
        peer.play(script(peer.talk), NOBODY)
    assert error.value.reason == NOT_FOUND
    assert len(peer.heard) == 1


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        (lambda talk: calls.ask(talk, handle(), "p"), NOBODY),
        (lambda talk: calls.stop(talk, handle(), None), Refused(NOT_FOUND)),
    ],
)
def test_who_takes_a_handle_for_an_agent_is_told_what_it_is(script: Any, answer: Any) -> None:
    """A handle is a name like any other, and rarely meant as one."""
    peer = Peer()

    with pytest.raises(RefusedError, match=r"use handle\.name, or at\(handle\)"):
        peer.play(script(peer.talk), answer)


def test_a_cast_to_a_name_that_nobody_has_is_fine() -> None:
    """`ok` always: a best-effort send to nobody is a best-effort send."""
    peer = Peer()

    peer.play(calls.cast(peer.talk, "interrupt", "x", Interrupt()), NOBODY)

    assert len(peer.heard) == 1


def test_a_cast_goes_to_the_one_that_was_found() -> None:
    """Once, and nothing is waited for."""
    peer = Peer()

    peer.play(calls.cast(peer.talk, "notify", "a", Notify(event=1)), FOUND)

    header, envelope = peer.heard[-1]
    assert (header.to, envelope) == (handle().incarnation.text, Notify(event=1))


def test_tell_returns_the_ref_it_minted() -> None:
    """The ref exists for the caller only once the prompt was accepted."""
    peer = Peer()

    ref = peer.play(calls.tell(peer.talk, "a", "p"), FOUND, OK)

    assert asked(peer)[-1] == requests.Tell(ref=ref, prompt="p")


def test_tell_with_completion_says_where_the_completion_goes() -> None:
    """Recipient, events and halting travel with the prompt."""
    peer = Peer()

    ref = peer.play(
        calls.tell_with_completion(
            peer.talk, "a", "p", recipient=OWN, on_halt="fail", stream_to=handle(2)
        ),
        FOUND,
        OK,
    )

    assert asked(peer)[-1] == requests.Tell(
        ref=ref, prompt="p", recipient=OWN, on_halt="fail", stream_to=handle(2).incarnation
    )


@pytest.mark.parametrize(
    "script",
    [
        lambda talk: calls.ask(talk, "a", cast("str", 1)),
        lambda talk: calls.ask(talk, object(), "p"),
        lambda talk: calls.notify_ack(talk, "a", {1, 2}),
        lambda talk: calls.poll(talk, "a", "x"),
        lambda talk: calls.tell_with_completion(
            talk, "a", "p", recipient=None, on_halt="queue", stream_to=None
        ),
        lambda talk: calls.tell_with_completion(
            talk, "a", "p", recipient=OWN, on_halt="maybe", stream_to=None
        ),
        lambda talk: calls.tell_with_completion(
            talk, "a", "p", recipient=OWN, on_halt="queue", stream_to="x"
        ),
    ],
)
def test_arguments_are_checked_before_anything_is_asked(script: Any) -> None:
    """S084: raises before anything is sent, the lookup included."""
    peer = Peer()

    with pytest.raises(UsageError):
        peer.play(script(peer.talk))
    assert peer.listen() == []


@pytest.mark.parametrize(
    "known",
    [
        answers.PollPending(),
        answers.PollCompleted(RESPONSE),
        answers.PollFailed(INTERRUPTED),
        answers.NotFound(),
    ],
)
def test_poll_returns_what_the_agent_knows(known: object) -> None:
    """Four answers of the agent that the ref belongs to."""
    peer = Peer()

    assert peer.play(calls.poll(peer.talk, "a", a_ref()), FOUND, known) == known


def listing(*numbers: int) -> Listing:
    return Listing(rows=tuple(AgentRow(name=n, state="running", handle=handle(n)) for n in numbers))


def test_a_ref_of_a_dead_incarnation_is_lost() -> None:
    """Its results died with it; a successor of the name cannot know them (D28)."""
    peer = Peer()
    old = a_ref(incarnation=9)

    assert peer.play(calls.poll(peer.talk, "a", old), FOUND, listing(1, 2)) == calls.Lost(old)


def test_a_ref_of_another_boot_is_lost() -> None:
    """E038: after a restart of the daemon, never `pending`."""
    peer = Peer()
    old = RequestRef(Incarnation(BootId("f" * 16), 1), "0" * 32)

    assert peer.play(calls.poll(peer.talk, "a", old), NOBODY, listing()) == calls.Lost(old)


def test_a_ref_of_another_living_agent_is_not_found() -> None:
    """It is not lost: that agent still knows it; this one never did."""
    peer = Peer()
    other = a_ref(incarnation=2)

    known = peer.play(calls.poll(peer.talk, "a", other), FOUND, listing(1, 2))

    assert known == answers.NotFound()


def test_cancel_and_interrupt_answer_in_words() -> None:
    """People branch on them."""
    peer = Peer()

    cancelled = peer.play(
        calls.cancel_request(peer.talk, "a", a_ref()), FOUND, answers.CancelAnswer("current")
    )
    interrupted = peer.play(
        calls.interrupt_request(peer.talk, "a", a_ref()), FOUND, answers.InterruptAnswer("idle")
    )

    assert (cancelled, interrupted) == ("current", "idle")


def test_stop_says_how_the_agent_ended() -> None:
    """One question to the daemon, which answers when the name is free."""
    peer = Peer()

    reason = peer.play(calls.stop(peer.talk, "a", 5), Stopped(SHUTDOWN))

    assert reason == SHUTDOWN
    assert asked(peer) == [requests.StopAgent(name="a", group=5)]


def test_start_returns_the_handle() -> None:
    """Ready for work when it returns."""
    peer = Peer()
    spec = AgentSpec(agent=None, name="a", backend="echo")

    assert peer.play(calls.start_agent(peer.talk, spec, None), Started(handle())) == handle()


def test_a_start_that_failed_raises_its_typed_reason() -> None:
    """Nothing is left of it, and the reason says what to do."""
    peer = Peer()
    spec = AgentSpec(agent=None, name="a", backend="echo")
    error = StartError(kind="import_failed", message="no module app")

    with pytest.raises(StartFailed, match="no module app") as failed:
        peer.play(calls.start_agent(peer.talk, spec, None), NotStarted(error))
    assert failed.value.reason == error


def test_an_answer_of_the_wrong_kind_is_not_taken_for_success() -> None:
    """Values of another version are never read as something they are not."""
    peer = Peer()

    with pytest.raises(RemoteWireError):
        peer.play(calls.stop(peer.talk, "a", None), GroupRunning(1))
    with pytest.raises(RemoteWireError):
        peer.play(calls.status(peer.talk, "a"), FOUND, OK)
    with pytest.raises(RemoteWireError):
        peer.play(calls.ask(peer.talk, "a", "p"), FOUND, OK)
    with pytest.raises(RemoteWireError):
        peer.play(calls.tell(peer.talk, "a", "p"), FOUND, answers.NotFound())


# --- drain


def down(peer: Peer, reason: ExitReason) -> Any:
    watch = next(
        e.request
        for _, e in peer.heard
        if isinstance(e, Request) and isinstance(e.request, requests.MonitorAgent)
    )
    return lambda: peer.say(Down(monitor=watch.monitor, handle=watch.handle, reason=reason))


def drain(*, reason: ExitReason) -> None:
    peer = Peer()
    peer.play(calls.drain(peer.talk, "a"), FOUND, OK, lambda: down(peer, reason)())


def test_drain_returns_after_a_normal_end() -> None:
    """Not at the promise: at the DOWN."""
    drain(reason=NORMAL)


def test_drain_tells_another_end() -> None:
    """A crash while draining is not a drain."""
    with pytest.raises(ProcessDown, match="signal:9"):
        drain(reason=ExitReason("signal:9"))


@pytest.mark.parametrize(("reason", "well"), [(NORMAL, True), (ExitReason("signal:9"), False)])
def test_an_agent_may_end_before_it_could_answer_the_drain(reason: ExitReason, well: bool) -> None:
    """An idle agent may be gone before its answer is out; the reason decides."""
    peer = Peer()
    script = calls.drain(peer.talk, "a")

    if well:
        peer.play(script, FOUND, lambda: down(peer, reason)())
    else:
        with pytest.raises(ProcessDown):
            peer.play(script, FOUND, lambda: down(peer, reason)())


def test_a_drain_whose_daemon_is_lost_says_so() -> None:
    """E050: it does not wait for a DOWN that cannot come."""
    peer = Peer()

    with pytest.raises(DaemonLost):
        peer.play(calls.drain(peer.talk, "a"), FOUND, OK, peer.talk.end)


# --- by handle


def test_submit_mints_one_ref_and_sends_one_message() -> None:
    """C2, C13: exactly one, and the ref returned is the ref sent."""
    peer = Peer()

    sent = calls.submit(peer.talk, handle(), "p", OWN, "queue", None)
    peer.listen()

    [(header, envelope)] = peer.heard
    assert envelope == Submit(ref=sent.ref, prompt="p", recipient=OWN)
    assert (header.to, header.ref) == (handle().incarnation.text, sent.ref.text)


def test_each_submission_is_new_work() -> None:
    """C6, S112: the same prompt twice is two requests."""
    peer = Peer()

    refs = {calls.submit(peer.talk, handle(), "p", OWN, "queue", None).ref for _ in range(20)}

    assert len(refs) == 20
    assert len(peer.listen()) == 20


def test_submitting_keeps_nothing() -> None:
    """C28: no table, no watch, no timer is left behind by a submission."""
    peer = Peer()
    peer.listen()
    before = {name: repr(value) for name, value in vars(peer.talk).items() if name[1:] in _TABLES}

    calls.submit(peer.talk, handle(), "p", OWN, "queue", None)

    after = {name: repr(value) for name, value in vars(peer.talk).items() if name[1:] in _TABLES}
    assert before == after
    assert len(before) == len(_TABLES)


_TABLES = ("calls", "watches", "watch_of", "monitors", "boxes")


def test_a_submission_to_a_lost_daemon_is_submitted_and_not_sent() -> None:
    """D30: the same answer as for a dead process; the DOWN tells."""
    peer = Peer()
    peer.listen()
    peer.talk.end()

    sent = calls.submit(peer.talk, handle(), "p", OWN, "queue", None)

    assert sent.ref.incarnation == handle().incarnation
    assert peer.listen() == []


def test_calls_by_handle_look_nothing_up() -> None:
    """C4: no name is asked for; the route is the captured incarnation."""
    peer = Peer()

    peer.play(calls.poll_at(peer.talk, handle(), a_ref()), answers.PollPending())
    peer.play(calls.cancel_at(peer.talk, handle(), a_ref()), answers.CancelAnswer("cancelled"))
    peer.play(calls.interrupt_at(peer.talk, handle(), a_ref()), answers.InterruptAnswer("accepted"))

    assert not [r for r in asked(peer) if isinstance(r, requests.Whereis)]
    agents = {header.to for header, e in peer.heard if isinstance(e, Call)}
    assert agents == {handle().incarnation.text}


# --- groups


def test_groups_are_opened_and_closed_by_their_number() -> None:
    """D40."""
    peer = Peer()

    number = peer.play(calls.open_group(peer.talk), GroupRunning(4))
    peer.play(calls.close_group(peer.talk, number), OK)

    assert asked(peer) == [requests.OpenGroup(), requests.CloseGroup(group=4)]


def test_a_group_that_has_ended_meanwhile_is_closed() -> None:
    """Whoever ran out of time asks again, and the last agent may have gone in between."""
    peer = Peer()

    peer.play(calls.close_group(peer.talk, 4), Refused(NOT_FOUND))
    with pytest.raises(RefusedError, match="shutting_down"):
        peer.play(calls.close_group(peer.talk, 4), Refused(SHUTTING_DOWN))


# --- what callers hand over

#: Every call with one argument that may be anything.
USES: dict[str, Callable[[Peer, Any], Script[Any]]] = {
    "ask a name": lambda peer, value: calls.ask(peer.talk, value, "p"),
    "ask a prompt": lambda peer, value: calls.ask(peer.talk, "a", value),
    "tell to": lambda peer, value: calls.tell_with_completion(
        peer.talk, "a", "p", recipient=value, on_halt="queue", stream_to=None
    ),
    "tell on halt": lambda peer, value: calls.tell_with_completion(
        peer.talk, "a", "p", recipient=OWN, on_halt=value, stream_to=None
    ),
    "tell events to": lambda peer, value: calls.tell_with_completion(
        peer.talk, "a", "p", recipient=OWN, on_halt="queue", stream_to=value
    ),
    "poll": lambda peer, value: calls.poll(peer.talk, "a", value),
    "cancel": lambda peer, value: calls.cancel_request(peer.talk, "a", value),
    "interrupt": lambda peer, value: calls.interrupt_request(peer.talk, "a", value),
    "notify": lambda peer, value: calls.notify_ack(peer.talk, "a", value),
    "attach": lambda peer, value: attach(peer.talk, value, (), {}, awaits=True),
    "attach catalogs": lambda peer, value: attach(peer.talk, "a", value, {}, awaits=True),
    "attach a catalog": lambda peer, value: attach(peer.talk, "a", [value], {}, awaits=True),
    "attach a catalog of": lambda peer, value: attach(
        peer.talk, "a", [{"catalogId": value, "functions": {}}], {}, awaits=True
    ),
    "attach functions": lambda peer, value: attach(peer.talk, "a", (), value, awaits=True),
}


@pytest.mark.parametrize("use", USES)
@given(value=anything)
def test_whatever_a_call_is_given_is_refused_or_read(use: str, value: object) -> None:
    """What the other side cannot read is answered late or never; `Peer` reads as it does."""
    peer = Peer()
    script = USES[use](peer, value)

    with contextlib.suppress(UsageError):
        for _ in "12":
            next(script)
            peer.listen()
            peer.reply(FOUND)
