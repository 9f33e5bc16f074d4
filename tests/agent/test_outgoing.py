"""What leaves: one order for each client, few messages, and gaps where events gave way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from genagent_protocol import codec, envelopes
from genagent_protocol.answers import Ok, PollFailed, Refused
from genagent_protocol.bounds import MAX_FRAME_BYTES
from genagent_protocol.envelopes import (
    Admission,
    Completion,
    Credit,
    EventMessage,
    Gap,
    Reply,
    Request,
    Telemetry,
)
from genagent_protocol.errors import LocalWireError
from genagent_protocol.events import Event, Failed, event
from genagent_protocol.header import DAEMON, Header, decode_header
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import INTERRUPTED, BackendFailed
from genagent_protocol.requests import StopAgent
from genagentd.agent.outgoing import BATCH_BYTES, RECORDS_BYTES, Outgoing
from genagentd.outbox import MESSAGE_COST_BYTES
from support.agent_life import CLIENT, INCARNATION, mint

TEXT = event("text", text="x" * 100)


@dataclass
class Wire:
    """What the agent handed over, message by message."""

    messages: list[tuple[Header, list[Any]]] = field(default_factory=list)
    scheduled: list[Callable[[], None]] = field(default_factory=list)

    def send(self, header: bytes, body: bytes) -> bool:
        read = decode_header(header)
        union: Any = envelopes.ToDaemon if read.to == DAEMON else envelopes.ToClient
        self.messages.append((read, codec.decode(union, body)))
        return True

    def loop_turn(self) -> None:
        scheduled, self.scheduled = self.scheduled, []
        for call in scheduled:
            call()

    @property
    def envelopes(self) -> list[Any]:
        return [envelope for _, found in self.messages for envelope in found]


def outgoing(wire: Wire, window_bytes: int = 1_000_000) -> Outgoing:
    """Return what an agent says into *wire*."""
    return Outgoing("anna", wire.send, wire.scheduled.append, window_bytes)


def replies(count: int, said: Outgoing, to: str = CLIENT.text) -> None:
    """Say so many replies."""
    for number in range(1, count + 1):
        said.say(to, Reply(call=number, answer=Ok()))


def test_what_one_loop_turn_says_to_one_client_is_one_message() -> None:
    """A message costs far more than what is in it."""
    wire = Wire()
    said = outgoing(wire)
    replies(3, said)
    said.say(CLIENT.text, Admission(agent="anna", ref=mint()))

    assert wire.messages == []
    wire.loop_turn()

    ((header, found),) = wire.messages
    assert (header.kind, header.bodies, header.to) == ("batch", 4, CLIENT.text)
    assert len(found) == 4


def test_a_batch_of_one_kind_keeps_its_kind_and_a_single_message_its_ref() -> None:
    """The header says as much as it can."""
    wire, ref = Wire(), mint()
    said = outgoing(wire)
    replies(2, said)
    said.flush()
    said.say(CLIENT.text, Admission(agent="anna", ref=ref), ref.text)
    said.flush()

    headers = [header for header, _ in wire.messages]
    assert [(h.kind, h.bodies, h.ref) for h in headers] == [
        ("reply", 2, None),
        ("admission", 1, ref.text),
    ]


def test_the_daemon_is_not_asked_before_what_was_said_to_an_agent_has_left() -> None:
    """It may be asked to stop that agent, and more may be told to it in the same loop turn."""
    wire = Wire()
    said = outgoing(wire)
    said.say(INCARNATION.text, Reply(call=1, answer=Ok()))
    for call in (2, 3):
        said.say(DAEMON, Request(call=call, request=StopAgent(name="b")))
    wire.loop_turn()

    assert [envelope.call for envelope in wire.envelopes] == [1, 2, 3]


def test_another_agent_gets_its_envelopes_one_by_one() -> None:
    """It tells work from answers by the header alone."""
    wire = Wire()
    said = outgoing(wire)
    replies(3, said, INCARNATION.text)
    said.flush()

    assert [header.bodies for header, _ in wire.messages] == [1, 1, 1]
    assert [found[0].call for _, found in wire.messages] == [1, 2, 3]


def test_a_message_does_not_grow_without_end() -> None:
    """What is coalesced stays well below what a frame may hold."""
    wire = Wire()
    said = outgoing(wire)
    large = PollFailed(BackendFailed("x" * 100_000))
    for number in range(5):
        said.say(CLIENT.text, Reply(call=number, answer=large))
    said.flush()

    sizes = [header.size for header, _ in wire.messages]
    assert sizes == [max(sizes), max(sizes), min(sizes)]
    assert max(sizes) <= BATCH_BYTES
    assert [reply.call for reply in wire.envelopes] == [0, 1, 2, 3, 4]


def test_all_mailboxes_of_a_client_share_one_order() -> None:
    """They arrive on one connection, so what was said first must not come last."""
    wire = Wire()
    said = outgoing(wire)
    for number, box in enumerate(("", ".1", "", ".1", ".1")):
        said.say(CLIENT.text + box, Reply(call=number, answer=Ok()))
    said.flush()

    assert [reply.call for reply in wire.envelopes] == [0, 1, 2, 3, 4]
    assert len(wire.messages) == 4


def test_events_are_droppable_and_numbered_and_cross_no_completion() -> None:
    """They travel together up to the next thing that has to be kept."""
    wire, ref = Wire(), mint()
    said = outgoing(wire)
    said.say(CLIENT.text, Admission(agent="anna", ref=ref))
    for _ in range(3):
        said.event(CLIENT.text, ref, TEXT)
    said.say(CLIENT.text, Completion(agent="anna", ref=ref, outcome=Failed(INTERRUPTED)))
    said.flush()

    found = [(h.kind, h.delivery, h.ref, h.first, h.last, h.bodies) for h, _ in wire.messages]
    assert found == [
        ("admission", "must_keep", None, 0, 0, 1),
        ("event_message", "droppable", ref.text, 1, 3, 3),
        ("completion", "must_keep", None, 0, 0, 1),
    ]


def test_the_numbers_of_a_stream_go_on_through_a_retry_and_begin_anew_for_another() -> None:
    """One ref is one stream."""
    wire, ref, other = Wire(), mint(), mint()
    said = outgoing(wire)
    for stream in (ref, ref, other):
        said.event(CLIENT.text, stream, TEXT)
        said.flush()

    assert [(h.first, h.last) for h, _ in wire.messages] == [(1, 1), (2, 2), (1, 1)]


def _full(wire: Wire) -> Outgoing:
    """Return what an agent says when its daemon takes nothing in."""
    said = outgoing(wire, window_bytes=1)
    said.say(DAEMON, envelopes.Ready())
    said.flush()
    return said


def test_events_give_way_and_a_gap_says_so_before_the_completion() -> None:
    """A turn never waits for a receiver, and a reader always knows what is missing."""
    wire, ref = Wire(), mint()
    said = _full(wire)
    for _ in range(4):
        said.event(CLIENT.text, ref, TEXT)
    completion = Completion(agent="anna", ref=ref, outcome=Failed(INTERRUPTED))
    said.say(CLIENT.text, completion)
    said.flush()

    assert wire.envelopes[1:] == [Gap(ref=ref, first=1, last=4), completion]


def test_a_gap_is_told_when_the_daemon_takes_in_more() -> None:
    """Not only with the next thing that happens, which may be long in coming."""
    wire, ref = Wire(), mint()
    said = _full(wire)
    for _ in range(2):
        said.event(CLIENT.text, ref, TEXT)
    said.credited(Credit(messages=1, bytes=10**9))
    said.event(CLIENT.text, ref, TEXT)
    said.flush()

    assert wire.envelopes[1] == Gap(ref=ref, first=1, last=2)
    last = wire.messages[-1][0]
    assert (last.first, last.last) == (3, 3)


def test_the_gap_of_a_stream_is_told_before_another_stream_begins() -> None:
    """Its reader may be another one than the next request's."""
    wire, ref, other = Wire(), mint(), mint()
    said = _full(wire)
    said.event(CLIENT.text, ref, TEXT)
    said.event("0123456789abcdef/9", other, TEXT)
    said.flush()

    assert wire.envelopes[1:] == [Gap(ref=ref, first=1, last=1)]


def test_what_was_said_counts_until_it_is_taken_in() -> None:
    """Bytes and messages both count, as the daemon counts them."""
    wire, ref = Wire(), mint()
    said = outgoing(wire, window_bytes=2_000)
    for _ in range(50):
        said.event(CLIENT.text, ref, TEXT)
        said.flush()

    passed = [header for header, _ in wire.messages]
    costs = [header.size + MESSAGE_COST_BYTES for header in passed]
    assert sum(costs) >= 2_000
    assert sum(costs[:-1]) < 2_000


def test_an_event_too_large_for_a_message_is_a_gap() -> None:
    """It was captured, and cannot be relayed."""
    wire, ref = Wire(), mint()
    said = outgoing(wire, window_bytes=10**9)
    huge = Event("text", FrozenDict(text="x" * (MAX_FRAME_BYTES + 1)))
    said.event(CLIENT.text, ref, huge)
    said.event(CLIENT.text, ref, TEXT)
    said.flush()

    assert wire.envelopes[0] == Gap(ref=ref, first=1, last=1)
    assert isinstance(wire.envelopes[1], EventMessage)


def test_what_somebody_waits_for_is_told_even_if_it_cannot_be_sent() -> None:
    """There is exactly one answer and one completion, whatever was to be in it."""
    wire, ref = Wire(), mint()
    said = outgoing(wire)
    huge = BackendFailed("x" * (MAX_FRAME_BYTES + 1))
    said.say(CLIENT.text, Reply(call=3, answer=Refused(huge)))
    said.say(CLIENT.text, Reply(call=4, answer=PollFailed(huge)))
    said.say(CLIENT.text, Reply(call=5, answer=Failed(huge)))
    said.say(CLIENT.text, Completion(agent="a", ref=ref, outcome=Failed(huge)))
    said.flush()

    refusal, poll, ask, completion = wire.envelopes
    # What was accepted and has failed is not refused.
    assert isinstance(refusal.answer, Refused)
    assert isinstance(poll.answer, PollFailed)
    assert isinstance(ask.answer, Failed)
    assert isinstance(completion.outcome, Failed)
    for told in (refusal.answer, poll.answer, ask.answer, completion.outcome):
        assert "over the frame limit" in str(told.reason)
    with pytest.raises(LocalWireError):
        said.say(CLIENT.text, Admission(agent="a", ref=ref, refused=huge))


def _records(wire: Wire) -> list[tuple[str, object]]:
    """Return the events of the records that were said, and how many each says are lost."""
    said = [e for e in wire.envelopes if isinstance(e, Telemetry)]
    return [(record.event, record.measurements.get("count")) for record in said]


def _record(event: str, size: int = 0) -> Telemetry:
    return Telemetry(event=event, agent="anna", metadata=FrozenDict(prompt="x" * size))


def test_a_record_too_large_for_a_message_is_lost_and_counted() -> None:
    """Nothing makes one today; it would not vanish without a word."""
    wire = Wire()
    said = outgoing(wire)
    said.telemetry(_record("prompt.start", MAX_FRAME_BYTES + 1))
    said.telemetry(_record("turn.start"))
    said.flush()

    assert _records(wire) == [("telemetry.lost", 1), ("turn.start", None)]


def test_records_do_not_give_way_to_what_else_is_said() -> None:
    """A turn's own completion may be larger than the window."""
    wire = Wire()
    said = _full(wire)
    said.telemetry(_record("turn.stop"))
    said.flush()

    assert _records(wire) == [("turn.stop", None)]


def test_records_that_give_way_are_counted_before_the_next_one() -> None:
    """Telemetry slows nobody, and says so."""
    wire = Wire()
    said = outgoing(wire)
    _fill_with_records(said)
    said.telemetry(_record("turn.stop"))
    said.telemetry(_record("turn.stop"))
    said.flush()
    wire.messages.clear()
    said.credited(Credit(messages=9, bytes=10**9))
    said.telemetry(_record("turn.start"))
    said.flush()

    assert _records(wire) == [("telemetry.lost", 2), ("turn.start", None)]


def test_records_that_gave_way_are_counted_also_if_no_other_follows() -> None:
    """It is told when the daemon has taken in more, and once."""
    wire = Wire()
    said = outgoing(wire)
    _fill_with_records(said)
    said.telemetry(_record("turn.stop"))
    said.flush()
    wire.messages.clear()
    for taken in (1, RECORDS_BYTES + 10_000, RECORDS_BYTES + 10_000):
        said.credited(Credit(messages=9, bytes=taken))
        said.flush()

    assert _records(wire) == [("telemetry.lost", 1)]


def _fill_with_records(said: Outgoing) -> None:
    for _ in range(4):
        said.telemetry(_record("prompt.start", RECORDS_BYTES // 4))
        said.flush()
