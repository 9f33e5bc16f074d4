"""What an agent says: encoded once, in order, and never waiting for who listens.

What one loop turn produced for one client and one class becomes one message, unless
it grows too large; another agent gets its envelopes one by one. What must be kept
is always handed over. Events are not: when the daemon has not taken in what it was
given already, they give way, and a gap says which ones, before anything else that
this client is told and no later than the daemon takes in more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from genagent_protocol import codec, schema
from genagent_protocol.answers import Refused
from genagent_protocol.envelopes import Completion, Credit, EventMessage, Gap, Reply, Telemetry
from genagent_protocol.errors import LocalWireError
from genagent_protocol.events import Event, Failed
from genagent_protocol.header import DAEMON, DeliveryClass, Header, encode_header
from genagent_protocol.plain import FrozenDict, Plain
from genagent_protocol.reasons import TaskCrashed
from genagent_protocol.refs import RequestRef
from genagentd.outbox import WINDOW_BYTES, Capacity, Outbox, Parcel

#: A coalesced message does not grow beyond this; a single larger envelope goes alone.
BATCH_BYTES = 256 * 1024


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
        #: By client connection, so that all its mailboxes share one order.
        self._open: dict[str, Batch] = {}
        self._closed: list[Parcel] = []
        self._stream: Stream | None = None
        # Nothing ever waits in it: it only keeps the account of the window.
        self._window = Outbox(
            Capacity(max_messages=0, max_bytes=0, max_droppable_bytes=0), window_bytes
        )
        #: Telemetry records that gave way since the last one that did not.
        self._lost_records = 0

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
        """Hand a record to the daemon, unless that is behind; the next one counts the lost."""
        if not self._window.passes():
            self._lost_records += 1
            return
        if self._lost_records:
            lost = FrozenDict({**record.measurements, "lost_before": self._lost_records})
            record = Telemetry(
                event=record.event,
                agent=record.agent,
                incarnation=record.incarnation,
                measurements=lost,
                metadata=record.metadata,
            )
        try:
            self.say(DAEMON, record)
        except LocalWireError:
            # A prompt and what it was rewritten from can be too much for one message.
            self._lost_records += 1
        else:
            self._lost_records = 0

    def credited(self, credit: Credit) -> None:
        """The daemon has taken in so much of what was said."""
        self._window.credited(credit.bytes)
        if self._window.passes():
            self._tell_missing()

    def _put(
        self,
        to: str,
        kind: str,
        body: bytes,
        delivery: DeliveryClass = "must_keep",
        ref: str | None = None,
        number: int = 0,
    ) -> None:
        client = _client(to)
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
            case Reply(call=call):
                return codec.encode(Reply(call=call, answer=Refused(_unsaid(error))))
            case Completion(agent=agent, ref=ref):
                failed = Failed(_unsaid(error))
                return codec.encode(Completion(agent=agent, ref=ref, outcome=failed))
        raise


def _unsaid(error: LocalWireError) -> TaskCrashed:
    return TaskCrashed(type(error).__name__, str(error))
