"""An outbox keeps order, drops only what may be dropped, and always says what it dropped."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.header import Header
from genagentd.outbox import MESSAGE_COST_BYTES, Capacity, Intake, Missing, Outbox, Parcel

WIDE = Capacity(max_messages=1_000, max_bytes=1_000_000, max_droppable_bytes=1_000_000)


def kept(body: bytes = b"completion") -> Parcel:
    return Parcel(Header("completion", "to", "agent"), body)


def event(number: int, stream: str = "a", body: bytes = b"event", bodies: int = 1) -> Parcel:
    last = number + bodies - 1
    header = Header("event_message", "to", "agent", "droppable", stream, number, last, bodies)
    return Parcel(header, body)


def gap(number: int, stream: str | None = "a") -> Parcel:
    """Return an agent's own gap of one event; in a larger body its header names no stream."""
    return Parcel(Header("gap", "to", "agent", ref=stream), b"%d" % number)


def mark(outbox: Outbox, parcel: Parcel) -> Parcel:
    """Send something in the place of a mark, as the owner of an outbox has to."""
    outbox.passed(parcel)
    return parcel


def taken(outbox: Outbox) -> list[Parcel | tuple[str | None, int, int]]:
    """Take what may go; a mark as its stream and numbers."""
    found: list[Parcel | tuple[str | None, int, int]] = []
    for item in outbox.take():
        if isinstance(item, Missing):
            mark(outbox, kept(b""))
            found.append((item.header.ref, item.first, item.last))
        else:
            found.append(item)
    return found


# --- examples


def test_a_message_passes_while_the_window_is_open_and_nothing_waits() -> None:
    """The usual case costs no queue."""
    outbox = Outbox(WIDE, window_bytes=2 * kept().cost_bytes)

    assert outbox.passes()
    outbox.passed(kept())
    assert outbox.passes()
    outbox.passed(kept())
    assert not outbox.passes()


def test_nothing_passes_what_waits() -> None:
    """A later message that found the window open again would overtake the earlier ones."""
    outbox = Outbox(WIDE, window_bytes=1)
    outbox.passed(kept(b"first"))
    outbox.put(kept(b"second"))

    outbox.credited(10**9)

    assert not outbox.passes()
    assert taken(outbox) == [kept(b"second")]


def test_credit_opens_the_window_for_as_much_as_was_taken_in() -> None:
    """What the peer has not taken in must not pile up in the sockets."""
    cost = kept().cost_bytes
    outbox = Outbox(WIDE, window_bytes=2 * cost)
    for _ in range(5):
        outbox.put(kept())

    assert len(taken(outbox)) == 2
    outbox.credited(cost)
    assert len(taken(outbox)) == 1
    outbox.credited(cost)
    assert taken(outbox) == []


def test_credit_for_more_than_was_sent_opens_no_larger_window() -> None:
    """A peer that lies about what it took in gains nothing."""
    outbox = Outbox(WIDE, window_bytes=kept().cost_bytes)
    outbox.credited(10**15)
    for _ in range(3):
        outbox.put(kept())

    assert len(taken(outbox)) == 1


def test_what_goes_out_in_the_place_of_a_mark_counts_like_a_message() -> None:
    """The receiver counts it as taken in: uncounted marks would hold the window open for ever."""
    small = Capacity(max_messages=10, max_bytes=10**6, max_droppable_bytes=0)
    told = kept(b"gap")
    outbox = Outbox(small, window_bytes=told.cost_bytes)
    receiver = Intake(window_bytes=4)
    for number in range(1, 101):
        outbox.put(event(number, stream=str(number)))
        for _ in outbox.take():
            outbox.passed(told)
            receiver.took(len(told.body))
        outbox.credited(receiver.bytes)

    outbox.put(kept())
    outbox.put(kept())

    assert len(taken(outbox)) == 1


def test_events_give_way_to_what_must_be_kept() -> None:
    """A client is cut off for what must be kept alone, never because events wait too."""
    capacity = Capacity(
        max_messages=100, max_bytes=kept().cost_bytes, max_droppable_bytes=event(1).cost_bytes
    )
    outbox = Outbox(capacity, window_bytes=0)

    assert outbox.put(event(1))
    assert outbox.put(kept())
    assert not outbox.put(kept())


def test_the_marks_of_streams_that_alternate_do_not_pile_up() -> None:
    """Two agents that talk to one stalled client cost it two marks, however long it stalls."""
    outbox = Outbox(Capacity(max_messages=9, max_bytes=10**6, max_droppable_bytes=0))

    for number in range(1, 1_001):
        assert outbox.put(event(number, "a"))
        assert outbox.put(event(number, "b"))

    assert outbox.bytes == 2 * MESSAGE_COST_BYTES
    assert outbox.dropped == 2_000
    assert taken(outbox) == [("a", 1, 1_000), ("b", 1, 1_000)]


@pytest.mark.parametrize("stream", ["a", None])
def test_a_mark_does_not_grow_past_a_gap_of_its_agent(stream: str | None) -> None:
    """It would tell what the gap tells as well, and what comes after that too early."""
    outbox = Outbox(Capacity(max_messages=9, max_bytes=10**6, max_droppable_bytes=0))

    outbox.put(event(1))
    outbox.put(gap(2, stream))
    outbox.put(event(3))
    outbox.put(event(4))

    assert taken(outbox) == [("a", 1, 1), gap(2, stream), ("a", 3, 4)]


def test_a_mark_does_not_end_with_what_another_sender_says() -> None:
    """Only what one sender says has an order."""
    outbox = Outbox(Capacity(max_messages=9, max_bytes=10**6, max_droppable_bytes=0))
    other = Parcel(Header("reply", "to", "another agent"), b"")

    outbox.put(event(1))
    outbox.put(other)
    outbox.put(event(2))

    assert taken(outbox) == [("a", 1, 2), other]


def test_a_mark_that_cannot_be_kept_is_no_silent_loss() -> None:
    """Marks are owed like completions: the owner learns that the bound is reached."""
    bound = Capacity(max_messages=9, max_bytes=MESSAGE_COST_BYTES, max_droppable_bytes=0)
    outbox = Outbox(bound, window_bytes=0)

    assert outbox.put(event(1, "a"))
    assert outbox.put(event(2, "a"))
    assert not outbox.put(event(1, "b"))


def test_a_batch_of_events_is_missed_as_a_whole() -> None:
    """Its header names the first and the last; the count is that of its envelopes."""
    outbox = Outbox(Capacity(max_messages=9, max_bytes=10**6, max_droppable_bytes=0))

    outbox.put(event(3, bodies=5))
    outbox.put(event(8, bodies=2))

    assert outbox.dropped == 7
    assert taken(outbox) == [("a", 3, 9)]


def test_credit_is_given_each_quarter_of_a_window() -> None:
    """Often enough that the window never closes for a reader, rarely enough to cost nothing."""
    intake = Intake(window_bytes=4 * (100 + MESSAGE_COST_BYTES))

    assert intake.took(100)
    intake.told()
    assert not intake.took(50)
    assert intake.took(100)
    assert intake.messages == 3
    assert intake.bytes == 250 + 3 * MESSAGE_COST_BYTES


# --- against a model that is nothing but lists


@dataclass
class Model:
    """What an outbox should do, by counting everything anew each time."""

    capacity: Capacity
    window_bytes: int
    waiting: list[Parcel | list[int | str | None]] = field(default_factory=list)
    unconfirmed: list[int] = field(default_factory=list)

    def cost(self, droppable: bool) -> int:
        return sum(
            item.cost_bytes
            for item in self.waiting
            if isinstance(item, Parcel) and (item.header.delivery == "droppable") == droppable
        )

    @property
    def kept_bytes(self) -> int:
        marks = sum(1 for item in self.waiting if isinstance(item, list))
        return self.cost(droppable=False) + marks * MESSAGE_COST_BYTES

    def put(self, parcel: Parcel) -> bool:
        droppable = parcel.header.delivery == "droppable"
        parcels = sum(1 for item in self.waiting if isinstance(item, Parcel))
        fits = (
            self.cost(droppable=True) + parcel.cost_bytes <= self.capacity.max_droppable_bytes
            if droppable
            else self.kept_bytes + parcel.cost_bytes <= self.capacity.max_bytes
        )
        if parcels < self.capacity.max_messages and fits:
            self.waiting.append(parcel)
            return True
        return droppable and self.miss(parcel.header)

    def miss(self, header: Header) -> bool:
        for item in reversed(self.waiting):
            if isinstance(item, Parcel) and (
                item.header.delivery == "must_keep" or item.header.ref == header.ref
            ):
                break
            if isinstance(item, list) and item[0] == header.ref:
                item[2] = header.last
                return True
        if self.kept_bytes + MESSAGE_COST_BYTES > self.capacity.max_bytes:
            return False
        self.waiting.append([header.ref, header.first, header.last])
        return True

    def take(self) -> list[Parcel | tuple[int | str | None, ...]]:
        found: list[Parcel | tuple[int | str | None, ...]] = []
        while self.waiting and sum(self.unconfirmed) < self.window_bytes:
            item = self.waiting.pop(0)
            self.unconfirmed.append(
                item.cost_bytes if isinstance(item, Parcel) else MESSAGE_COST_BYTES
            )
            found.append(item if isinstance(item, Parcel) else tuple(item))
        return found


@dataclass
class Streams:
    """What was put, numbered as its senders number it."""

    last: dict[str, int] = field(default_factory=dict)

    def next(self, stream: str, size: int) -> Parcel:
        self.last[stream] = self.last.get(stream, 0) + 1
        return event(self.last[stream], stream, b"e" * size)

    def gap(self, stream: str, *, named: bool) -> Parcel:
        self.last[stream] = self.last.get(stream, 0) + 1
        return gap(self.last[stream], stream if named else None)


sizes = st.integers(0, 600)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), sizes),
        st.tuples(st.sampled_from(["a", "b", "c"]), sizes),
        st.tuples(st.just("gap"), st.integers(0, 1)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("credit"), st.integers(1, 5)),
    ),
    max_size=60,
)
capacities = st.builds(
    Capacity,
    max_messages=st.integers(0, 8),
    max_bytes=st.integers(0, 3_000),
    max_droppable_bytes=st.integers(0, 2_000),
)


@given(capacities, st.integers(1, 2_000), operations)
def test_an_outbox_agrees_with_plain_lists(
    capacity: Capacity, window_bytes: int, done: list[tuple[str, int]]
) -> None:
    """Running totals, marks and windows never drift from counting everything by hand."""
    outbox, model, streams = (
        Outbox(capacity, window_bytes),
        Model(capacity, window_bytes),
        Streams(),
    )
    confirmed = 0

    for what, number in done:
        match what:
            case "take":
                assert taken(outbox) == model.take()
            case "credit":
                confirmed += sum(model.unconfirmed[:number])
                del model.unconfirmed[:number]
                outbox.credited(confirmed)
            case "keep":
                parcel = kept(b"k" * number)
                assert outbox.put(parcel) == model.put(parcel)
            case "gap":
                parcel = streams.gap("a", named=bool(number))
                assert outbox.put(parcel) == model.put(parcel)
            case _:
                parcel = streams.next(what, number)
                assert outbox.put(parcel) == model.put(parcel)
        assert outbox.bytes == model.kept_bytes + model.cost(droppable=True)
        assert len(outbox) == len(model.waiting)


@given(capacities, st.integers(1, 2_000), operations)
def test_nothing_is_lost_without_a_mark_and_nothing_overtakes(
    capacity: Capacity, window_bytes: int, done: list[tuple[str, int]]
) -> None:
    """Each stream arrives as all its numbers in order, sent or marked; what is kept, in full."""
    outbox, streams = Outbox(capacity, window_bytes), Streams()
    accepted: list[Parcel] = []
    owed: dict[str, list[int]] = {}
    arrived: list[Parcel | tuple[str | None, int, int]] = []

    for number, (what, size) in enumerate(done):
        match what:
            case "take" | "credit":
                outbox.credited(10**9)
                arrived += taken(outbox)
            case "keep":
                parcel = kept(b"%d" % number + b"k" * size)
                if outbox.put(parcel):
                    accepted.append(parcel)
            case "gap":
                parcel = streams.gap("a", named=bool(size))
                if outbox.put(parcel):
                    accepted.append(parcel)
                    owed.setdefault("a", []).append(int(parcel.body))
            case _:
                parcel = streams.next(what, size)
                if outbox.put(parcel):
                    owed.setdefault(what, []).append(parcel.header.first)
        assert outbox.bytes <= capacity.max_bytes + capacity.max_droppable_bytes
    while len(outbox):
        outbox.credited(10**9)
        arrived += taken(outbox)

    told: dict[str, list[int]] = {}
    for item in arrived:
        if not isinstance(item, Parcel):
            stream, first, last = item
        elif item.header.kind == "gap":
            stream, first, last = "a", int(item.body), int(item.body)
        else:
            stream, first, last = item.header.ref, item.header.first, item.header.last
        if first:
            assert stream is not None
            told.setdefault(stream, []).extend(range(first, last + 1))
    assert [item for item in arrived if isinstance(item, Parcel) and not item.header.first] == (
        accepted
    )
    assert set(told) == set(owed)
    for stream, numbers in told.items():
        assert numbers == sorted(set(numbers))
        assert set(owed[stream]) <= set(numbers)


@pytest.mark.parametrize("size", [0, 1, 4_096])
def test_both_ends_count_a_message_alike(size: int) -> None:
    """Credit is a sum of costs: if the two ends differed, the window would drift."""
    intake = Intake()

    intake.took(size)

    assert intake.bytes == kept(b"x" * size).cost_bytes
