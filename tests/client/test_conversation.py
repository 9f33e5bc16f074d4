"""Every call is settled once, every monitor yields one DOWN, and nothing is sent twice."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol import codec
from genagent_protocol.answers import CancelAnswer, NotFound, Ok
from genagent_protocol.envelopes import (
    Admission,
    Call,
    Completion,
    Credit,
    CutOff,
    Down,
    EventMessage,
    Gap,
    Hello,
    Notify,
    Ping,
    Pong,
    Reply,
    Request,
    Submit,
    Telemetry,
    Undeliverable,
    UnknownType,
    VersionRefused,
)
from genagent_protocol.errors import (
    CallTimeout,
    DaemonLost,
    ProcessDown,
    SendBufferFull,
    UsageError,
    VersionMismatch,
)
from genagent_protocol.events import Failed, event
from genagent_protocol.header import DAEMON, Header, encode_header
from genagent_protocol.reasons import INTERRUPTED, NOCONNECTION, NOPROC, NORMAL, Reason
from genagent_protocol.refs import MailboxAddress
from genagent_protocol.requests import (
    DemonitorAgent,
    GetStatus,
    ListAgents,
    MonitorAgent,
    Poll,
    WatchTelemetry,
)
from genagent_protocol.schema import tag_of
from genagentd.client import boxes, conversation
from genagentd.client.boxes import Box, anything
from genagentd.client.conversation import Conversation
from genagentd.outbox import MESSAGE_COST_BYTES
from support.peer import BOOT, OWN, PLACE, Peer, a_ref, handle
from support.wire_examples import ASKED


def taken(box: Box) -> list[Any]:
    """Return and remove everything in *box*."""
    found = []
    while len(box):
        waiting = box.expect(anything, "receive")
        found.append(waiting.value())
        box.taken(waiting)
    return found


def poll(talk: Conversation, incarnation: int = 1) -> Any:
    return talk.call("poll", handle(incarnation).incarnation, Poll(ref=a_ref()))


def test_the_first_words_are_the_versions_we_speak() -> None:
    """A daemon that does not share one must be able to say so before anything is done."""
    talk = Conversation()

    talk.hello()

    [frames] = talk.outgoing()
    [said] = codec.decode(Hello, frames.body)
    assert (said.min_version, said.max_version) == (1, 1)
    assert not talk.welcome.done


def test_the_welcome_says_who_we_are() -> None:
    """Addresses and the locality of handles come from it."""
    peer = Peer()

    assert peer.talk.place == PLACE
    assert peer.talk.address(peer.talk.own) == OWN


def test_a_daemon_of_another_version_is_named_with_both_ranges_and_what_to_do() -> None:
    """An old daemon and a new client are told apart by a sentence, not by odd errors (E039)."""
    talk = Conversation()
    refused = VersionRefused(min_version=2, max_version=3, software="9.9")
    body = codec.encode(refused)
    talk.take(encode_header(Header("version_refused", "", DAEMON, size=len(body))), body)

    with pytest.raises(VersionMismatch, match=r"1 to 1.*2 to 3.*genagentd stop"):
        talk.welcome.value()


# --- calls


def test_an_answer_settles_its_call_and_no_other() -> None:
    """Answers are matched by number: the second question never gets the first one's answer."""
    peer = Peer()
    first, second = poll(peer.talk), poll(peer.talk)
    peer.listen()

    peer.say(Reply(call=second.number, answer=NotFound()))

    assert second.value() == NotFound()
    assert not first.done


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: tag_of(type(asked.request)))
def test_only_what_looks_is_known_to_have_changed_nothing(asked: Any) -> None:
    """Whatever takes the answer's place: the end of the agent, or of the connection."""
    looks = ("whereis", "list_agents", "poll", "get_status", "get_snapshot")
    fate = "nothing was changed" if tag_of(type(asked.request)) in looks else "effect is unknown"
    peer = Peer()
    if isinstance(asked, Request):
        waiting = peer.talk.request("x", asked.request)
    else:
        waiting = peer.talk.call("x", handle().incarnation, asked.request)

    peer.talk.end()

    with pytest.raises(DaemonLost, match=fate):
        waiting.value()


def test_a_late_answer_is_dropped() -> None:
    """After a timeout the call is over; its answer must not reach anybody (E051)."""
    peer = Peer()
    late = poll(peer.talk)
    peer.talk.give_up(late)
    late.fail(CallTimeout("poll", 10))

    peer.say(Reply(call=late.number, answer=NotFound()))

    with pytest.raises(CallTimeout):
        late.value()


def test_a_second_answer_changes_nothing() -> None:
    """Exactly one answer counts, whatever the peer sends."""
    peer = Peer()
    waiting = poll(peer.talk)

    peer.say(Reply(call=waiting.number, answer=NotFound()))
    peer.say(Reply(call=waiting.number, answer=Ok()))

    assert waiting.value() == NotFound()


def test_a_call_to_an_agent_watches_it_first() -> None:
    """A dead agent answers nothing: only a watch set before the call can end it."""
    peer = Peer()

    poll(peer.talk)

    watch, call = peer.listen()
    assert isinstance(watch, Request)
    assert isinstance(watch.request, MonitorAgent)
    assert watch.request.handle.incarnation == handle().incarnation
    assert isinstance(call, Call)
    header = peer.heard[-1][0]
    assert (header.to, header.ref) == (handle().incarnation.text, str(call.call))


def test_one_incarnation_is_watched_once_however_many_calls_it_gets() -> None:
    """The watch is kept for the life of the agent, so later calls are one message each."""
    peer = Peer()
    for _ in range(3):
        poll(peer.talk)
        peer.listen()

    watches = [e for _, e in peer.heard if isinstance(e, Request)]
    assert len(watches) == 1


def test_the_end_of_the_agent_ends_its_calls_and_no_others() -> None:
    """The caller learns the reason instead of waiting for ever (C17, S118)."""
    peer = Peer()
    mine, other = poll(peer.talk, 1), poll(peer.talk, 2)
    watch = peer.listen()[0].request.monitor

    peer.say(Down(monitor=watch, handle=handle(1), reason=NOPROC))

    with pytest.raises(ProcessDown, match="noproc") as down:
        mine.value()
    assert down.value.reason == NOPROC
    assert not other.done
    assert len(peer.talk.own) == 0


def test_an_answer_before_the_end_counts() -> None:
    """Order of arrival: what the agent answered before it died was answered."""
    peer = Peer()
    waiting = poll(peer.talk)
    watch = peer.listen()[0].request.monitor

    peer.say(Reply(call=waiting.number, answer=NotFound()))
    peer.say(Down(monitor=watch, handle=handle(), reason=NORMAL))

    assert waiting.value() == NotFound()


def test_a_call_after_the_end_watches_anew() -> None:
    """A dead incarnation is dead for later calls too: the new watch says noproc at once."""
    peer = Peer()
    poll(peer.talk)
    first = peer.listen()[0].request.monitor
    peer.say(Down(monitor=first, handle=handle(), reason=NORMAL))

    again = poll(peer.talk)
    second = peer.listen()[0].request.monitor
    peer.say(Down(monitor=second, handle=handle(), reason=NOPROC))

    assert second != first
    with pytest.raises(ProcessDown):
        again.value()


def test_the_end_of_an_agent_can_be_waited_for() -> None:
    """Draining returns when the process is gone, not when it promised to go."""
    peer = Peer()
    end = peer.talk.end_of("drain", handle().incarnation)
    watch = peer.listen()[0].request.monitor

    peer.say(Down(monitor=watch, handle=handle(), reason=NORMAL))

    assert end.value() == NORMAL


def test_a_type_the_other_side_does_not_know_ends_the_call() -> None:
    """A newer question to an older peer is answered by a typed no, not by silence."""
    peer = Peer()
    waiting = peer.talk.request("list", ListAgents())

    peer.say(UnknownType(tag="list_agents", call=waiting.number))

    with pytest.raises(VersionMismatch, match="list_agents"):
        waiting.value()


def test_a_bad_frame_is_counted_and_the_next_one_understood() -> None:
    """One broken message costs one message."""
    peer = Peer()
    waiting = peer.talk.request("list", ListAgents())

    peer.talk.take(b"\xc1", b"\xc1")
    peer.talk.take(encode_header(Header("reply", OWN.text, size=1)), b"\xc1")
    peer.say(Reply(call=waiting.number, answer=Ok()))

    assert peer.talk.bad_frames == 2
    assert waiting.value() == Ok()


# --- monitors


def test_a_monitor_puts_one_down_into_the_mailbox() -> None:
    """Exactly one, whatever arrives, and behind what was said before (C22)."""
    peer = Peer()
    monitor = peer.talk.monitor(handle(), peer.talk.own)
    completion = Completion(agent="a", ref=a_ref(), outcome=Failed(INTERRUPTED))
    down = Down(monitor=monitor, handle=handle(), reason=NORMAL)

    peer.say(completion)
    peer.say(down)
    peer.say(down)

    assert taken(peer.talk.own) == [completion, down]


def test_a_monitor_is_set_before_what_is_submitted_after_it() -> None:
    """Both go to the daemon in this order on one connection; nothing needs to be waited for."""
    peer = Peer()
    peer.talk.monitor(handle(), peer.talk.own)
    peer.talk.cast(handle().incarnation, Submit(ref=a_ref(), prompt="p", recipient=OWN), a_ref())

    assert [type(envelope) for envelope in peer.listen()] == [Request, Submit]


def test_a_down_can_be_sent_to_another_mailbox_of_the_client() -> None:
    """It arrives with the messages of the agent that are sent there."""
    peer = Peer()
    box = peer.talk.open_box()
    monitor = peer.talk.monitor(handle(), box)

    peer.say(Down(monitor=monitor, handle=handle(), reason=NORMAL))

    assert len(peer.talk.own) == 0
    assert len(box) == 1


def test_no_down_arrives_after_demonitor() -> None:
    """Even one that is on its way already."""
    peer = Peer()
    monitor = peer.talk.monitor(handle(), peer.talk.own)
    peer.listen()

    assert peer.talk.demonitor(monitor)
    [said] = peer.listen()
    peer.say(Down(monitor=monitor, handle=handle(), reason=NORMAL))

    assert said.request == DemonitorAgent(monitor=monitor)
    assert taken(peer.talk.own) == []


def test_demonitor_says_when_it_comes_too_late() -> None:
    """The caller then knows to look for the DOWN in its mailbox."""
    peer = Peer()
    monitor = peer.talk.monitor(handle(), peer.talk.own)
    peer.say(Down(monitor=monitor, handle=handle(), reason=NORMAL))

    assert not peer.talk.demonitor(monitor)


# --- the end of the connection


def test_the_loss_of_the_daemon_ends_everything_once() -> None:
    """Each waiting call is lost, and each monitor yields one DOWN `noconnection` (E050)."""
    peer = Peer()
    waiting = poll(peer.talk)
    end = peer.talk.end_of("drain", handle(2).incarnation)
    first = peer.talk.monitor(handle(3), peer.talk.own)
    second = peer.talk.monitor(handle(3), peer.talk.own)

    peer.talk.end()
    peer.talk.end()

    for one in (waiting, end):
        with pytest.raises(DaemonLost):
            one.value()
    assert taken(peer.talk.own) == [
        Down(monitor=first, handle=handle(3), reason=NOCONNECTION),
        Down(monitor=second, handle=handle(3), reason=NOCONNECTION),
    ]


def test_a_client_that_was_cut_off_is_told_like_one_that_lost_its_daemon() -> None:
    """The daemon threw away what was not read: nothing more can be trusted to arrive (D4)."""
    peer = Peer()
    monitor = peer.talk.monitor(handle(), peer.talk.own)

    peer.say(CutOff(waiting_bytes=1, limit_bytes=1))

    assert taken(peer.talk.own) == [Down(monitor=monitor, handle=handle(), reason=NOCONNECTION)]
    assert peer.talk.ended


def test_nothing_is_sent_after_the_end_and_what_is_asked_is_lost() -> None:
    """A submission to a lost daemon must not run when another one comes up (E058)."""
    peer = Peer()
    peer.listen()
    peer.talk.end()

    peer.talk.cast(handle().incarnation, Notify(event=1))
    monitor = peer.talk.monitor(handle(), peer.talk.own)
    waiting = poll(peer.talk)

    assert peer.listen() == []
    assert taken(peer.talk.own) == [Down(monitor=monitor, handle=handle(), reason=NOCONNECTION)]
    with pytest.raises(DaemonLost, match="nothing was sent"):
        waiting.value()


def test_a_completion_that_arrived_before_the_loss_is_still_there() -> None:
    """Known stays known (C23)."""
    peer = Peer()
    completion = Completion(agent="a", ref=a_ref(), outcome=Failed(INTERRUPTED))
    peer.say(completion)

    peer.talk.end()

    assert taken(peer.talk.own) == [completion]


# --- mailboxes


def test_messages_go_to_the_box_they_are_addressed_to() -> None:
    """A recipient of its own gets its messages and nothing else (S076, S090)."""
    peer = Peer()
    box = peer.talk.open_box()
    address = peer.talk.address(box)
    mine, other = Admission(agent="a", ref=a_ref(1)), Admission(agent="a", ref=a_ref(2))

    peer.say(mine, to=address)
    peer.say(other)

    assert address == MailboxAddress(BOOT, OWN.client, box.number)
    assert taken(box) == [mine]
    assert taken(peer.talk.own) == [other]


def test_a_closed_box_loses_its_messages_and_nothing_else() -> None:
    """A dead recipient is nobody's problem (C15)."""
    peer = Peer()
    box = peer.talk.open_box()
    address = peer.talk.address(box)

    peer.talk.close_box(box)
    peer.say(Admission(agent="a", ref=a_ref(1)), to=address)

    assert taken(peer.talk.own) == []
    with pytest.raises(UsageError, match="closed"):
        box.expect(anything, "receive").value()


def test_one_message_may_carry_many_envelopes_in_order() -> None:
    """The daemon puts together what one loop turn produced."""
    peer = Peer()
    said = [EventMessage(agent="a", ref=a_ref(), event=event("text", n=n)) for n in range(5)]

    peer.say(*said)

    assert taken(peer.talk.own) == said


def test_an_undeliverable_submission_is_told_to_its_sender() -> None:
    """The daemon does not open the body, so the answer goes to the sender's own mailbox."""
    peer = Peer()
    told = Undeliverable(agent="a", ref=a_ref(), reason=Reason("inbox_full"))

    peer.say(told)

    assert taken(peer.talk.own) == [told]


def test_telemetry_goes_to_those_who_asked_for_it() -> None:
    """And the daemon is told when nobody wants it any more."""
    peer = Peer()
    first, second = peer.talk.open_box(), peer.talk.open_box()
    peer.talk.watch_telemetry(first)
    peer.talk.watch_telemetry(second)
    record = Telemetry(event="halted", agent="a")

    peer.say(record)
    peer.talk.close_box(first)
    assert peer.listen() == []
    peer.talk.close_box(second)

    assert [envelope.request for envelope in peer.listen()] == [WatchTelemetry(on=False)]
    assert len(peer.talk.own) == 0


# --- flow


def credits_of(peer: Peer) -> list[Credit]:
    return [envelope for envelope in peer.listen() if isinstance(envelope, Credit)]


def fill(peer: Peer, monkeypatch: pytest.MonkeyPatch, *, messages: int) -> None:
    """Make the mailboxes full with that many messages."""
    monkeypatch.setattr(boxes, "MAX_MESSAGES", messages)
    for number in range(messages):
        peer.say(Admission(agent="a", ref=a_ref(number + 100)))


def big(number: int) -> Completion:
    """Return a message that uses up a step of the window."""
    text = "x" * 1_100_000
    return Completion(agent=text, ref=a_ref(number), outcome=Failed(INTERRUPTED))


def test_what_was_taken_in_is_credited_step_by_step() -> None:
    """Totals, not differences: a lost credit costs nothing."""
    peer = Peer()

    for number in range(3):
        peer.say(big(number))

    totals = [credit.bytes for credit in credits_of(peer)]
    assert len(totals) == 3
    assert totals == sorted(totals)


def test_an_interrupted_reader_has_taken_its_message_in() -> None:
    """Uncounted, every Ctrl-C would narrow the daemon's window by a message, for good."""
    peer = Peer()

    def interrupted(_message: object) -> bool:
        raise KeyboardInterrupt

    peer.talk.own.expect(interrupted, "receive")
    with pytest.raises(KeyboardInterrupt):
        peer.say(big(1))
    peer.talk.looked()

    assert len(credits_of(peer)) == 1


def test_a_full_mailbox_stops_the_credit_until_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by what the reader reads (D33)."""
    peer = Peer()
    fill(peer, monkeypatch, messages=3)

    peer.say(big(1))
    assert credits_of(peer) == []

    taken(peer.talk.own)
    peer.talk.looked()
    assert len(credits_of(peer)) == 1


def test_a_waiting_call_keeps_the_credit_going_and_events_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answer comes on the same connection, behind the events that nobody reads."""
    peer = Peer()
    fill(peer, monkeypatch, messages=3)
    waiting = poll(peer.talk)
    peer.listen()

    noise = [EventMessage(agent="a", ref=a_ref(), event=event("text", s="x" * 10**6))] * 2
    peer.say(*noise, delivery="droppable", ref=a_ref(), first=4, last=5)

    assert len(credits_of(peer)) == 1
    peer.say(Reply(call=waiting.number, answer=NotFound()))
    assert waiting.value() == NotFound()
    assert taken(peer.talk.own)[-1] == Gap(ref=a_ref(), first=4, last=5)


def test_what_must_be_kept_is_kept_in_a_full_mailbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admissions, completions and DOWNs are never dropped."""
    peer = Peer()
    fill(peer, monkeypatch, messages=2)

    completion = Completion(agent="a", ref=a_ref(), outcome=Failed(INTERRUPTED))
    peer.say(completion)

    assert taken(peer.talk.own)[-1] == completion


def test_at_twice_the_bound_the_credit_stops_even_for_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mailbox nobody reads cannot grow without end."""
    peer = Peer()
    fill(peer, monkeypatch, messages=2)
    poll(peer.talk)
    peer.listen()

    peer.say(big(1))
    assert len(credits_of(peer)) == 1
    peer.say(big(2))
    assert credits_of(peer) == []


def test_sends_beyond_the_bound_are_refused_and_nothing_of_them_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A daemon that is behind is not buried in memory of ours; a known no is given (D5)."""
    peer = Peer()
    peer.listen()
    used = sum(header.size + MESSAGE_COST_BYTES for header, _ in peer.heard)
    monkeypatch.setattr(conversation, "SEND_BOUND_BYTES", used + 1_000)

    peer.talk.cast(handle().incarnation, Notify(event="x" * 400))
    with pytest.raises(SendBufferFull, match="nothing was sent"):
        peer.talk.cast(handle().incarnation, Notify(event="x" * 400))

    assert len(peer.listen()) == 1


def sent_until_refused(peer: Peer) -> int:
    """Return how many of the same messages could be sent."""
    for number in range(100):
        try:
            peer.talk.cast(handle().incarnation, Notify(event="x" * 400))
        except SendBufferFull:
            return number
    raise AssertionError("nothing bounds what is sent")


def test_credit_makes_room_for_sends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a daemon that claims more than was sent makes no more room than that."""
    peer = Peer()
    monkeypatch.setattr(conversation, "SEND_BOUND_BYTES", 2_000)
    before = sent_until_refused(peer)

    peer.say(Credit(messages=100, bytes=10**9))

    assert sent_until_refused(peer) == before > 0


def test_whoever_is_refused_was_crowded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is when a shell looks for credit first, so that no stale account refuses anything."""
    peer = Peer()
    monkeypatch.setattr(conversation, "SEND_BOUND_BYTES", 2_000)
    before = peer.talk.crowded
    sent_until_refused(peer)

    assert not before
    assert peer.talk.crowded
    peer.say(Credit(messages=100, bytes=10**9))
    assert not peer.talk.crowded


def test_what_the_daemon_has_read_is_known_from_an_answer_to_something_later() -> None:
    """That is how closing knows that nothing is on its way any more."""
    peer = Peer()
    known = [peer.talk.unconfirmed]

    peer.talk.cast(handle().incarnation, Notify(event=1))
    known.append(peer.talk.unconfirmed)
    ping = peer.talk.core("ping", Ping)
    peer.say(Pong.to(Ping(call=ping.number)))
    known.append(peer.talk.unconfirmed)

    assert known == [False, True, False]


def test_an_older_answer_does_not_confirm_a_younger_cast() -> None:
    """Only what was sent before the answered call has been read for certain."""
    peer = Peer()
    status = peer.talk.call("status", handle().incarnation, GetStatus())
    peer.talk.cast(handle().incarnation, Notify(event=1))

    peer.say(Reply(call=status.number, answer=CancelAnswer("cancelled")))

    assert peer.talk.unconfirmed


def test_messages_to_the_daemon_say_so() -> None:
    """The route of the daemon is a word, the route of an agent its incarnation."""
    peer = Peer()
    peer.talk.request("list", ListAgents())
    peer.listen()

    assert peer.heard[-1][0].to == DAEMON
