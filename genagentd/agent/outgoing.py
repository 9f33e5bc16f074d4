"""What an agent says: encoded once, in order, and never waiting for who listens.

What one loop turn produced for one client and one class becomes one message, unless
it grows too large; another agent gets its envelopes one by one. What must be kept
is always handed over. Events are not: when the daemon has not taken in what it was
given already, they give way, and a gap says which ones, before anything else that
this client is told and no later than the daemon takes in more. Telemetry records have
an account of their own and give way only to each other; a record says how many did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from genagent_protocol import codec, schema
from genagent_protocol.answers import PollCompleted, PollFailed, Refused
from genagent_protocol.envelopes import (
    RECORDS_LOST,
    Completion,
    Credit,
    EventMessage,
    Gap,
    Reply,
    Telemetry,
)
from genagent_protocol.errors import LocalWireError
from genagent_protocol.events import Completed, Event, Failed
from genagent_protocol.header import DAEMON, DeliveryClass, Header, encode_header
from genagent_protocol.plain import EMPTY, FrozenDict, Plain
from genagent_protocol.reasons import TaskCrashed
from genagent_protocol.refs import RequestRef
from genagentd.outbox import WINDOW_BYTES, Capacity, Outbox, Parcel

#: A coalesced message does not grow beyond this; a single larger envelope goes alone.
BATCH_BYTES = 256 * 1024
#: Bytes of telemetry records that the daemon may owe us before further ones give way.
RECORDS_BYTES = 4 * 1024 * 1024

_RECORD = schema.tag_of(Telemetry)


@dataclass(slots=True)
class Batch:
    """Envelopes for one recipient, all of one class, on their way into one message."""

    to: str
    kind: str
    delivery: DeliveryClass = "must_keep"
    ref: str | None = None
    first: int = 0
    last: int = 0
    bodies: list[bytes] = field(default_factory=list, repr=False)
    size: int = 0

    def takes(self, to: str, delivery: DeliveryClass, ref: str | None, size_bytes: int) -> bool:
        """Whether an envelope may join: it is for the same, and neither is an agent's."""
        same = (self.to, self.delivery) == (to, delivery) and "/" in to
        if delivery == "droppable":
            same = same and self.ref == ref
        return same and self.size + size_bytes <= BATCH_BYTES

    def add(self, kind: str, body: bytes) -> None:
        """Take one more envelope in."""
        if self.bodies and kind != self.kind:
            self.kind = "batch"
        self.bodies.append(body)
        self.size += len(body)

    def parcel(self) -> Parcel:
        """Return the message."""
        one = len(self.bodies) == 1
        header = Header(
            kind=self.kind,
            to=self.to,
            delivery=self.delivery,
            ref=self.ref if one or self.delivery == "droppable" else None,
            first=self.first,
            last=self.last,
            bodies=len(self.bodies),
            size=self.size,
        )
        return Parcel(header, codec.join(self.bodies))


@dataclass(slots=True)
class Stream:
    """The events of one request for one recipient: how many there were, which are missing."""

    to: str
    ref: RequestRef
    last: int = 0
    missing_from: int = 0


class Records:
    """The telemetry records under way to the daemon, and what gave way to them.

    What an answer or an event weighs does not count: a record of the largest turn must
    not be lost for the sake of that turn's own completion.
    """

    def __init__(self) -> None:
        #: For each record under way: how much had been sent with it, and its cost.
        self._under_way: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._lost = 0
        self._last_lost: Telemetry | None = None

    @property
    def open(self) -> bool:
        """Whether another record may go."""
        return self._bytes < RECORDS_BYTES

    def sent(self, position: int, cost_bytes: int) -> None:
        """A record went, and *position* bytes have been sent in all."""
        self._under_way.append((position, cost_bytes))
        self._bytes += cost_bytes

    def credited(self, taken_bytes: int) -> None:
        """The daemon has taken in so much of all that was sent."""
        while self._under_way and self._under_way[0][0] <= taken_bytes:
            self._bytes -= self._under_way.popleft()[1]

    def lost(self, record: Telemetry) -> None:
        """*record* gave way."""
        self._lost += 1
        self._last_lost = record

    def told(self) -> Telemetry | None:
        """Return what counts those that gave way since the last time, if any did."""
        last, self._last_lost = self._last_lost, None
        if last is None:
            return None
        count, self._lost = self._lost, 0
        measurements = FrozenDict(count=count)
        return replace(last, event=RECORDS_LOST, measurements=measurements, metadata=EMPTY)


class Outgoing:
    """Everything this agent says, towards its one connection."""

    def __init__(
        self,
        agent: Plain,
        send: Callable[[bytes, bytes], bool],
        flush_soon: Callable[[Callable[[], None]], object],
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._agent = agent
        self._send = send
        self._flush_soon = flush_soon
        self._scheduled = False
        #: By client connection, so that all its mailboxes share one order. Agents and the daemon
        #: share one, too: what the daemon is asked must not overtake what an agent was told.
        self._open: dict[str, Batch] = {}
        self._closed: list[Parcel] = []
        self._stream: Stream | None = None
        # Nothing ever waits in it: it only keeps the account of the window.
        self._window = Outbox(
            Capacity(max_messages=0, max_bytes=0, max_droppable_bytes=0), window_bytes
        )
        self._sent_bytes = 0
        self._records = Records()

    def say(self, to: str, envelope: object, ref: str | None = None) -> None:
        """Say what must be kept; it leaves with the end of this loop turn, or with `flush`.

        Raises:
            LocalWireError: it is larger than a message may be, and nobody waits for it.
        """
        stream = self._stream
        if stream is not None and _client(stream.to) == _client(to):
            self._tell_missing()
        self._put(to, schema.tag_of(type(envelope)), _encoded(envelope), ref=ref)

    def event(self, to: str, ref: RequestRef, event: Event) -> None:
        """Relay one event, or leave a gap where it would have been."""
        stream = self._streaming(to, ref)
        stream.last += 1
        if not self._window.passes():
            stream.missing_from = stream.missing_from or stream.last
            return
        try:
            body = codec.encode(EventMessage(agent=self._agent, ref=ref, event=event))
        except LocalWireError:
            stream.missing_from = stream.missing_from or stream.last
            return
        self._tell_missing(stream.last - 1)
        self._put(to, "event_message", body, "droppable", ref.text, stream.last)

    def _streaming(self, to: str, ref: RequestRef) -> Stream:
        stream = self._stream
        # One request streams at a time, its retries included, so the one before is over.
        if stream is None or stream.ref != ref:
            self._tell_missing()
            stream = self._stream = Stream(to, ref)
        return stream

    def _tell_missing(self, last: int | None = None) -> None:
        """Say which events of the stream gave way, if any did and were not told yet."""
        stream = self._stream
        if stream is None or not stream.missing_from:
            return
        gap = Gap(ref=stream.ref, first=stream.missing_from, last=last or stream.last)
        stream.missing_from = 0
        self._put(stream.to, "gap", codec.encode(gap), ref=stream.ref.text)

    def telemetry(self, record: Telemetry) -> None:
        """Hand a record to the daemon, unless it has not taken in many others yet.

        Those that gave way are counted by a record of their own, before the next one, and
        no later than the daemon takes in more.
        """
        if not self._records.open:
            self._records.lost(record)
            return
        self._tell_lost()
        try:
            self.say(DAEMON, record)
        except LocalWireError:
            self._records.lost(record)

    def _tell_lost(self) -> None:
        told = self._records.told()
        if told is not None:
            self.say(DAEMON, told)

    def credited(self, credit: Credit) -> None:
        """The daemon has taken in so much of what was said."""
        self._window.credited(credit.bytes)
        self._records.credited(credit.bytes)
        if self._window.passes():
            self._tell_missing()
        if self._records.open:
            self._tell_lost()

    def _put(
        self,
        to: str,
        kind: str,
        body: bytes,
        delivery: DeliveryClass = "must_keep",
        ref: str | None = None,
        number: int = 0,
    ) -> None:
        client = _client(to) if "/" in to else DAEMON
        batch = self._open.get(client)
        if batch is None or not batch.takes(to, delivery, ref, len(body)):
            if batch is not None:
                self._close(client)
            batch = self._open[client] = Batch(to, kind, delivery, ref, number)
        batch.add(kind, body)
        batch.last = number
        if not self._scheduled:
            self._scheduled = True
            self._flush_soon(self._flush_scheduled)

    def _close(self, client: str) -> None:
        parcel = self._open.pop(client).parcel()
        self._window.passed(parcel)
        self._sent_bytes += parcel.cost_bytes
        if parcel.header.kind == _RECORD:
            self._records.sent(self._sent_bytes, parcel.cost_bytes)
        self._closed.append(parcel)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand over everything said so far, now."""
        for client in list(self._open):
            self._close(client)
        for parcel in self._closed:
            self._send(encode_header(parcel.header), parcel.body)
        self._closed.clear()


def _client(to: str) -> str:
    return to.partition(".")[0]


def _encoded(envelope: object) -> bytes:
    """Return the body of *envelope*; where somebody waits for it, of what can be said instead."""
    try:
        return codec.encode(envelope)
    except LocalWireError as error:
        match envelope:
            case Reply(call=call, answer=answer):
                return codec.encode(Reply(call=call, answer=_instead(answer, _unsaid(error))))
            case Completion(agent=agent, ref=ref):
                failed = Failed(_unsaid(error))
                return codec.encode(Completion(agent=agent, ref=ref, outcome=failed))
        raise


def _instead(answer: object, why: TaskCrashed) -> Refused | Failed | PollFailed:
    """Return what is told in place of *answer*: what was accepted was not refused."""
    match answer:
        case Completed() | Failed():
            return Failed(why)
        case PollCompleted() | PollFailed():
            return PollFailed(why)
        case _:
            return Refused(why)


def _unsaid(error: LocalWireError) -> TaskCrashed:
    return TaskCrashed(type(error).__name__, str(error))
