"""The switchboard: every message between clients and agents passes here, unread.

It reads headers, stamps who sent a message, and hands it on in order: what one
agent says to one client arrives as it was said, and the DOWN that the supervision
sends through the same queue comes behind it. To an agent, what a callback of it may be
waiting for overtakes what waits, and says behind how much it belongs. Bodies are opened
only when they are for the daemon itself, and that happens elsewhere.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from genagent_protocol import codec, schema
from genagent_protocol.answers import Refused
from genagent_protocol.envelopes import (
    CallerDown,
    Credit,
    CutOff,
    Gap,
    Reply,
    TelemetryLost,
    UiUndeliverable,
    Undeliverable,
)
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.header import DAEMON, Header, decode_header, encode_header
from genagent_protocol.plain import Plain
from genagent_protocol.reasons import Reason
from genagent_protocol.refs import (
    BootId,
    Incarnation,
    MailboxAddress,
    MalformedIdentity,
    RequestRef,
)
from genagentd.arrivals import Message
from genagentd.channels import Connection, Listener
from genagentd.daemon import brief
from genagentd.daemon.asked import Asked
from genagentd.daemon.report import warn
from genagentd.outbox import Capacity, Intake, Missing, Outbox, Parcel

MIB = 1024 * 1024
#: What may wait for a client that does not read, and for an agent that is busy (D4, D5).
CLIENT_CAPACITY = Capacity(max_messages=1_000_000, max_bytes=64 * MIB, max_droppable_bytes=16 * MIB)
AGENT_CAPACITY = Capacity(max_messages=10_000, max_bytes=64 * MIB, max_droppable_bytes=16 * MIB)

#: An agent that has said so many messages in a row, for so long, without our ever catching up,
#: is ended. Events do not count: they stop by themselves at the window.
FLOOD_MESSAGES = 10_000
FLOOD_S = 3.0

#: How many ends of sessions of one client are kept past full inboxes, and how large one may be.
MAX_KEPT_ENDS = 1_000
MAX_END_BYTES = 256

#: What an agent may say to others; anything else from it is abuse.
AGENT_SAYS = frozenset(
    {"admission", "event_message", "completion", "reply", "batch", "gap", "submit", "notify"}
    | {"call", "interrupt", "resume", "halt", "ui_message"}
)
CLIENT_SAYS = frozenset(
    {"submit", "notify", "call", "interrupt", "resume", "halt", "ui_message", "ui_detach"}
)
#: What the daemon says to an agent and a running callback may be waiting for, or what it may
#: say no longer. There is one for each question of the agent, for each of its monitors and
#: callers, and for each MiB that it said.
OVERTAKES = frozenset(
    {"reply", "unknown_type", "credit", "down", "caller_down", "telemetry_wanted"}
)
#: How the header of a call, or of what is said in a session, names it.
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(eq=False, slots=True)
class Client:
    """One connection of one client; its number is never given to another."""

    number: int
    address: MailboxAddress
    route: bytes
    pid: int
    outbox: Outbox = field(default_factory=lambda: Outbox(CLIENT_CAPACITY))
    intake: Intake = field(default_factory=Intake)
    welcome: bool = False
    cut_off: bool = False
    watches_telemetry: bool = False
    #: Telemetry records it was told of so far, which is how lost ones are counted.
    records: int = 0
    #: Agents that were called from here and may hold asks of it.
    called: set[str] = field(default_factory=set)
    #: Ends of sessions of it that were kept past a full inbox.
    kept_ends: int = 0

    @property
    def text(self) -> str:
        """Its route."""
        return self.address.text


@dataclass(eq=False, slots=True)
class Port:
    """The daemon's end of the channel to one life of one agent."""

    incarnation: Incarnation
    name: Plain
    pid: int
    connection: Connection | None = None
    outbox: Outbox = field(default_factory=lambda: Outbox(AGENT_CAPACITY))
    intake: Intake = field(default_factory=Intake)
    called: set[str] = field(default_factory=set)
    #: What it asked of others, whose answers pass what waits for it.
    asked: Asked = field(default_factory=Asked)
    #: Whether it was told that somebody watches telemetry.
    watched: bool = False
    #: Messages that must be kept, taken in since we last caught up with it.
    uncaught: int = 0
    #: Messages for it that were lost without a word to their sender: its inbox was full.
    lost: int = 0

    @property
    def number(self) -> int:
        """Its number among those who ask things of the daemon: agents have negative ones."""
        return -self.incarnation.number

    @property
    def text(self) -> str:
        """Its route."""
        return self.incarnation.text


Sender = Client | Port


class Switchboard:
    """All connections of one daemon."""

    def __init__(
        self,
        boot: BootId,
        path: str,
        *,
        on_control: Callable[[Sender, bytes], None],
        on_client: Callable[[Client], None],
        on_client_gone: Callable[[Client], None],
        on_abuse: Callable[[Port, str], None],
    ) -> None:
        self._boot = boot
        self._on_control = on_control
        self._on_client = on_client
        self._on_client_gone = on_client_gone
        self._on_abuse = on_abuse
        self._numbers = 0
        self._clients: dict[str, Client] = {}
        self._by_route: dict[bytes, Client] = {}
        self._ports: dict[str, Port] = {}
        self.bad_frames = 0
        self._listener = Listener(path, self._hear_client, self._client_gone, _warn_of_crowd)
        self._listener.gate.on_blocked = _warn_of_block

    @property
    def clients(self) -> int:
        """How many clients are connected and welcome; one that was cut off is neither."""
        return sum(client.welcome and not client.cut_off for client in self._clients.values())

    @property
    def foreign_frames(self) -> int:
        """Frames that were no message, headers that were none, and frames of strangers."""
        return self.bad_frames + self._listener.bad_frames

    @property
    def reachable(self) -> bool:
        """Whether who connects to our path comes to us."""
        return self._listener.gate.reachable

    def recounted(self, free: int) -> None:
        """So many descriptors will be free once every start has what it was promised."""
        self._listener.gate.recounted(free)

    def renew(self) -> None:
        """Be reachable again, if somebody removed the socket's file."""
        self._listener.gate.renew()

    def close(self) -> None:
        """Close the listener; what was said to clients has two seconds to leave."""
        self._listener.close(linger_ms=2_000)

    # --- from clients

    def _hear_client(self, message: Message) -> None:
        if message.peer.uid not in (os.getuid(), 0):
            self.bad_frames += 1
            return
        client = self._by_route.get(message.route) or self._new_client(message)
        if client.cut_off:
            return
        # Whatever it is: what is not counted narrows the sender's window for good.
        self._credit(client, message.body)
        try:
            header = decode_header(message.header)
        except RemoteWireError:
            self.bad_frames += 1
            return
        if header.to == DAEMON:
            self._on_control(client, message.body)
        elif client.welcome and header.kind in CLIENT_SAYS:
            self._to_port(client, header, message.body)
        else:
            self.bad_frames += 1

    def _new_client(self, message: Message) -> Client:
        self._numbers += 1
        address = MailboxAddress(self._boot, self._numbers)
        client = Client(self._numbers, address, message.route, message.peer.pid)
        self._clients[client.text] = client
        self._by_route[message.route] = client
        self._on_client(client)
        return client

    def lost(self, client: Client) -> None:
        """Its process is gone: its connection is over, whoever holds a copy of it."""
        self._client_gone(client.route)

    def _client_gone(self, route: bytes) -> None:
        client = self._by_route.pop(route, None)
        if client is None:
            return  # A stranger, who was not heard.
        del self._clients[client.text]
        if not client.cut_off:  # Otherwise its end has been told.
            self._tell_end(client)

    def _tell_end(self, client: Client) -> None:
        """Nothing is taken from that client or reaches it any more: tell whom it concerns."""
        self._tell_called(client, client.address)
        self._on_client_gone(client)

    def _tell_called(self, gone: Sender, address: MailboxAddress | Incarnation) -> None:
        for text in gone.called:
            port = self._ports.get(text)
            if port is not None:
                port.asked.gone(address.text)
                # There is one for each caller whose call had found room.
                self.say(port, CallerDown(caller=address))

    # --- from agents

    def open_port(self, port: Port) -> None:
        """Route messages for that incarnation to *port* from now on."""
        self._ports[port.text] = port

    def close_port(self, port: Port) -> None:
        """The incarnation is gone: nothing is routed to it or taken from it any more."""
        if self._ports.pop(port.text, None) is None:
            return
        self._tell_called(port, port.incarnation)
        for other in self._ports.values():
            other.asked.gone(port.text)
        if port.connection is not None:
            port.connection.close()

    def port(self, incarnation: Incarnation) -> Port | None:
        """Return the port of that incarnation, while it has one."""
        return self._ports.get(incarnation.text)

    def hear_agent(self, port: Port, message: Message) -> None:
        """Take one message of the agent behind *port*."""
        if message.peer.pid != port.pid:
            self.bad_frames += 1
            return
        try:
            header = decode_header(message.header)
        except RemoteWireError as error:
            self.bad_frames += 1
            self._on_abuse(port, str(error))
            return
        if header.delivery == "must_keep" and self._floods(port):
            self._on_abuse(port, f"it says more than we can hear, for longer than {FLOOD_S:g} s")
            return
        self._credit(port, message.body)
        if header.to == DAEMON:
            self._on_control(port, message.body)
        elif header.kind not in AGENT_SAYS:
            self._on_abuse(port, f"an agent does not say {header.kind}")
        elif "/" in header.to:
            self._to_mailbox(port, header, message.body)
        else:
            self._to_port(port, header, message.body)

    def _floods(self, port: Port) -> bool:
        """Whether the agent goes on and on; what we cannot read in time piles up here."""
        behind = None if port.connection is None else port.connection.behind_since
        if behind is None:
            port.uncaught = 0
            return False
        port.uncaught += 1
        return port.uncaught > FLOOD_MESSAGES and time.monotonic() - behind > FLOOD_S

    def sender(self, number: int) -> Sender | None:
        """Return the client, or with a negative number the agent, while it is connected."""
        if number < 0:
            return self._ports.get(Incarnation(self._boot, -number).text)
        return self._clients.get(MailboxAddress(self._boot, number).text)

    # --- handing on

    def _to_mailbox(self, sender: Port, header: Header, body: bytes) -> None:
        client = self._clients.get(header.to.partition(".")[0])
        if client is not None:  # Otherwise the recipient is gone and loses it.
            sender.asked.asks(header)
            self._post(client, Parcel(header._replace(sender=sender.text), body))

    def _to_port(self, sender: Sender, header: Header, body: bytes) -> None:
        port = self._ports.get(header.to)
        if port is None:
            return  # A dead process gets nothing; its monitors tell.
        # How much it overtook is our word.
        parcel = Parcel(header._replace(sender=sender.text, behind=0), body)
        if port.asked.answers(parcel.header):
            self._overtake(port, parcel)
        elif self._post(port, parcel):
            if header.kind == "call":
                sender.called.add(port.text)
                if isinstance(sender, Port):
                    sender.asked.asks(header)
        elif isinstance(sender, Client) and _is_kept_end(sender, parcel):
            sender.kept_ends += 1
            port.outbox.put_always(parcel)
        else:
            self._undeliverable(sender, port, header)

    def _undeliverable(self, sender: Sender, port: Port, header: Header) -> None:
        reason = Reason("inbox_full")
        ref = _request_ref(header)
        if header.kind == "submit" and ref is not None:
            self.say(sender, Undeliverable(agent=port.name, ref=ref, reason=reason))
        elif header.kind == "call" and _NUMBER.fullmatch(header.ref or ""):
            self.say(sender, Reply(call=int(header.ref or ""), answer=Refused(reason)))
        elif (
            header.kind == "ui_message"
            and isinstance(sender, Client)
            and _NUMBER.fullmatch(header.ref or "")
        ):
            self.say(sender, UiUndeliverable(session=int(header.ref or ""), reason=reason))
        elif header.kind in ("submit", "call", "ui_message"):
            self.bad_frames += 1
        else:
            _lost(port, header.kind)

    def say(self, to: Sender, envelope: object) -> None:
        """Send an envelope of the daemon's own, behind everything already handed on.

        To an agent it gets whatever else waits there: the agent asked for it, or its end is
        wanted, and nobody would say it again.
        """
        parcel = _of_daemon(to, envelope)
        if isinstance(to, Client):
            self._post(to, parcel)
        elif parcel.header.kind in OVERTAKES:
            self._overtake(to, parcel)
        elif not self._post(to, parcel):
            to.outbox.put_always(parcel)

    def broadcast_telemetry(self, body: bytes, records: int = 1) -> None:
        """Hand one telemetry record to every client that watches; it may be dropped visibly.

        It tells of so many *records*, and has so many numbers: if it is dropped itself,
        those are what is missing.
        """
        for client in self._clients.values():
            if client.watches_telemetry:
                header = Header("telemetry", client.text, DAEMON, "droppable", size=len(body))
                first, last = client.records + 1, client.records + records
                client.records = last
                numbered = header._replace(first=first, last=last)
                self._post(client, Parcel(numbered, body))

    @property
    def telemetry_watched(self) -> bool:
        """Whether any client watches telemetry."""
        return any(client.watches_telemetry for client in self._clients.values())

    def ports(self) -> Iterator[Port]:
        """Yield every open port."""
        yield from list(self._ports.values())

    def _post(self, to: Sender, parcel: Parcel) -> bool:
        """Send or queue; False when an agent's inbox is full."""
        if isinstance(to, Client) and to.cut_off:
            return True  # Nothing follows the word that it was cut off.
        if to.outbox.passes():
            to.outbox.passed(parcel)
            self._send(to, parcel)
            return True
        if to.outbox.put(parcel):
            return True
        if isinstance(to, Client):
            self._cut_off(to)
            return True
        return False

    def _overtake(self, port: Port, parcel: Parcel) -> None:
        """Send now, and say behind how many of those that wait it belongs."""
        # Were it to wait: whoever waits for it may be what keeps the others waiting.
        marked = parcel._replace(header=parcel.header._replace(behind=len(port.outbox)))
        port.outbox.passed(marked)
        self._send(port, marked)

    def _send(self, to: Sender, parcel: Parcel) -> None:
        header = encode_header(parcel.header)
        if isinstance(to, Client):
            self._listener.send(to.route, header, parcel.body)
        elif to.connection is not None:
            to.connection.send(header, parcel.body)

    def _cut_off(self, client: Client) -> None:
        waiting = client.outbox.bytes
        client.outbox = Outbox(CLIENT_CAPACITY)
        self.say(client, CutOff(waiting_bytes=waiting, limit_bytes=CLIENT_CAPACITY.max_bytes))
        client.cut_off = True
        client.watches_telemetry = False
        self._tell_end(client)

    # --- credit

    def _credit(self, sender: Sender, body: bytes) -> None:
        if sender.intake.took(len(body)):
            sender.intake.told()
            intake = sender.intake
            self.say(sender, Credit(messages=intake.messages, bytes=intake.bytes))

    def credited(self, peer: Sender, credit: Credit) -> None:
        """*peer* took in so much; send what it has room for now."""
        peer.outbox.credited(credit.bytes)
        for item in peer.outbox.take():
            if isinstance(item, Missing):
                # The peer will count it as taken in, so it has to count as sent.
                gap = _gap(item)
                peer.outbox.passed(gap)
                self._send(peer, gap)
            else:
                self._send(peer, item)


def _lost(port: Port, kind: str) -> None:
    """Count a message that nobody hears of; say so of the first, the tenth and so on."""
    port.lost += 1
    # What fills an inbox is often a flood, and must not become one of lines.
    if str(port.lost).strip("0") == "1":
        warn("inbox.full", agent=port.name, incarnation=port.text, kind=kind[:40], lost=port.lost)


def _warn_of_crowd(free: int) -> None:
    warn("clients.wait", free_descriptors=free)


def _warn_of_block(error: OSError) -> None:
    warn("socket.blocked", detail=str(error))


def _of_daemon(to: Sender, envelope: object) -> Parcel:
    """Return an envelope of the daemon's own, as a message."""
    body = brief.encoded(envelope)
    return Parcel(Header(schema.tag_of(type(envelope)), to.text, DAEMON, size=len(body)), body)


def _is_kept_end(client: Client, parcel: Parcel) -> bool:
    """Whether this ends a session, so that it is kept past a full inbox.

    The agent would hold the session, and ask in it, for as long as the client is connected.
    """
    small = len(parcel.body) <= MAX_END_BYTES
    return parcel.header.kind == "ui_detach" and small and client.kept_ends < MAX_KEPT_ENDS


def _request_ref(header: Header) -> RequestRef | None:
    """Return the ref that a header names. It is its sender's word, and may be anything."""
    try:
        return None if header.ref is None else RequestRef.parse(header.ref)
    except MalformedIdentity:
        return None


def _gap(missing: Missing) -> Parcel:
    """Return what is said in the place of messages that gave way."""
    header = missing.header
    said: Gap | TelemetryLost
    if header.kind == "telemetry":
        said = TelemetryLost(count=missing.last - missing.first + 1)
    else:
        said = Gap(ref=_request_ref(header), first=missing.first, last=missing.last)
    body = codec.encode(said)
    return Parcel(Header(schema.tag_of(type(said)), header.to, header.sender, size=len(body)), body)
