"""A mailbox keeps the order of arrival, whatever is taken out of its middle."""

from __future__ import annotations

import pytest

from genagent_protocol.envelopes import Admission, Down, EventMessage, Gap, Telemetry, TelemetryLost
from genagent_protocol.errors import DaemonLost, UsageError
from genagent_protocol.events import event
from genagent_protocol.header import Header
from genagent_protocol.reasons import NORMAL
from genagent_protocol.refs import MonitorRef
from genagentd.client.boxes import Box, Holding, Message, about, anything
from support.peer import a_ref, handle


def admission(number: int) -> Admission:
    return Admission(agent="a", ref=a_ref(number))


def take(box: Box) -> Message:
    waiting = box.expect(anything, "receive")
    message = waiting.value()
    box.taken(waiting)
    return message


def a_box(*numbers: int) -> Box:
    box = Box(0, Holding())
    for number in numbers:
        box.put(admission(number), 10)
    return box


def test_messages_come_out_as_they_went_in() -> None:
    """Consuming in arrival order is what makes a completion known before the death notice."""
    box = a_box(1, 2, 3)

    assert [take(box) for _ in range(3)] == [admission(1), admission(2), admission(3)]


def test_taking_one_from_the_middle_leaves_the_others_in_their_order() -> None:
    """A selective receive must not reorder what it passes over."""
    box = a_box(1, 2, 3)

    assert box.expect(about(a_ref(2)), "receive").value() == admission(2)
    assert [take(box), take(box)] == [admission(1), admission(3)]


def test_who_waits_first_is_served_first() -> None:
    """Two readers of one mailbox share it fairly, and each message goes to one of them."""
    box = a_box()
    first, second = (box.expect(anything, "receive") for _ in range(2))

    box.put(admission(1), 10)
    box.put(admission(2), 10)

    assert first.value() == admission(1)
    assert second.value() == admission(2)
    assert len(box) == 0


def test_a_message_passes_a_waiter_it_does_not_match() -> None:
    """What nobody waits for is kept, and the waiter goes on waiting."""
    box = a_box()
    waiting = box.expect(about(a_ref(2)), "receive")

    box.put(admission(1), 10)

    assert not waiting.done
    assert take(box) == admission(1)


def test_a_message_nobody_fetched_goes_back_to_its_place() -> None:
    """A receive that was cancelled after it was served must not lose the message."""
    box = a_box()
    waiting = box.expect(anything, "receive")
    for number in (1, 2, 3):
        box.put(admission(number), 10)

    box.give_up(waiting)

    assert [take(box) for _ in range(3)] == [admission(1), admission(2), admission(3)]


def test_a_message_that_was_fetched_does_not_come_back() -> None:
    """Giving up after the message is in hand changes nothing."""
    box = a_box(1)
    waiting = box.expect(anything, "receive")
    box.taken(waiting)

    box.give_up(waiting)

    assert len(box) == 0


def test_nobody_is_served_after_giving_up() -> None:
    """A message for a waiter that is gone stays in the mailbox."""
    box = a_box()
    waiting = box.expect(anything, "receive")

    box.give_up(waiting)
    box.put(admission(1), 10)

    assert not waiting.done
    assert take(box) == admission(1)


def test_a_matching_function_that_raises_tells_its_caller_and_loses_nothing() -> None:
    """The error belongs to whoever wrote the function, not to the thread that reads."""

    def broken(_message: Message) -> bool:
        raise ZeroDivisionError

    box = a_box()
    waiting = box.expect(broken, "receive")
    box.put(admission(1), 10)

    with pytest.raises(ZeroDivisionError):
        waiting.value()
    assert take(box) == admission(1)


def test_a_matching_function_that_raises_at_once_loses_nothing_either() -> None:
    """The same, for what is in the mailbox already."""

    def broken(_message: Message) -> bool:
        raise ZeroDivisionError

    box = a_box(1)

    with pytest.raises(ZeroDivisionError):
        box.expect(broken, "receive").value()
    assert take(box) == admission(1)


def test_what_is_left_can_be_read_after_the_end_and_then_the_end_is_told() -> None:
    """A completion that arrived stays known; waiting for more would be for ever."""
    box = a_box(1)
    box.end(DaemonLost)

    assert take(box) == admission(1)
    with pytest.raises(DaemonLost):
        take(box)


def test_the_end_is_told_to_those_who_wait() -> None:
    """Nobody sleeps on a connection that is over."""
    box = a_box()
    waiting = box.expect(anything, "receive")

    box.end(DaemonLost)

    with pytest.raises(DaemonLost):
        waiting.value()


def test_a_closed_mailbox_is_empty_and_stays_so() -> None:
    """Closing gives back what it held."""
    holding = Holding()
    box = Box(3, holding)
    box.put(admission(1), 10)

    box.close(UsageError)
    box.put(admission(2), 10)

    assert (len(box), holding) == (0, Holding())
    with pytest.raises(UsageError):
        take(box)


def test_what_is_held_is_what_is_in_the_mailboxes() -> None:
    """The bound counts messages until they are taken, once each."""
    holding = Holding()
    one, two = Box(0, holding), Box(1, holding)
    one.put(admission(1), 10)
    two.put(admission(2), 30)
    assert holding == Holding(2, 40)

    take(one)
    assert holding == Holding(1, 30)

    back = two.expect(anything, "receive")
    two.give_up(back)
    assert holding == Holding(1, 30)


def test_news_of_a_request_are_its_messages_and_the_end_of_its_agent() -> None:
    """What `about` lets through is what decides the fate of one request."""
    matches = about(a_ref(1, incarnation=4))
    other = a_ref(2, incarnation=4)
    mine = a_ref(1, incarnation=4)

    assert matches(Admission(agent="a", ref=mine))
    assert matches(EventMessage(agent="a", ref=mine, event=event("text")))
    assert matches(Gap(ref=mine, first=1, last=2))
    assert matches(Down(monitor=MonitorRef(1), handle=handle(4), reason=NORMAL))
    assert not matches(Admission(agent="a", ref=other))
    assert not matches(Down(monitor=MonitorRef(1), handle=handle(5), reason=NORMAL))
    assert not matches(Telemetry(event="halted", agent="a"))


def dropped(number: int, first: int, last: int, kind: str = "event_message") -> Header:
    ref = None if kind == "telemetry" else a_ref(number).text
    return Header(kind, "daemon", ref=ref, first=first, last=last, bodies=last - first + 1)


def test_dropped_events_of_one_stream_leave_one_mark() -> None:
    """A reader that comes back sees which events are missing, not one mark for each."""
    box = a_box()

    box.miss(dropped(1, 3, 5))
    box.miss(dropped(1, 6, 6))

    assert take(box) == Gap(ref=a_ref(1), first=3, last=6)
    assert len(box) == 0


def test_dropped_events_of_two_streams_leave_two_marks() -> None:
    """A gap names the stream it is in."""
    box = a_box()

    box.miss(dropped(1, 3, 5))
    box.miss(dropped(2, 1, 1))

    assert take(box) == Gap(ref=a_ref(1), first=3, last=5)
    assert take(box) == Gap(ref=a_ref(2), first=1, last=1)


def test_dropped_telemetry_is_counted() -> None:
    """Records of many agents have no common stream; their number is what can be said."""
    box = a_box()

    box.miss(dropped(0, 1, 2, "telemetry"))
    box.miss(dropped(0, 3, 3, "telemetry"))

    assert take(box) == TelemetryLost(count=3)


def test_a_dropped_record_counts_as_many_as_it_stands_for() -> None:
    """One that says how many its agent lost has as many numbers in its header."""
    box = a_box()

    box.miss(dropped(0, 1, 7, "telemetry")._replace(bodies=1))
    box.miss(dropped(0, 8, 8, "telemetry"))

    assert take(box) == TelemetryLost(count=8)
