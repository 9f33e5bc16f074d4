"""What one client and its daemon say to each other on one connection, as bookkeeping.

Frames go in, and frames to send, settled calls and filled mailboxes come out. There
is no socket, clock, thread or lock in here; a shell that has them calls one method
at a time. Nothing is ever sent twice, and nothing is sent after the connection ended.

What is promised to the shell's user: every call is settled once (an answer, the end
of the agent it was sent to, or the end of the connection), and every monitor yields
exactly one `Down` (`noconnection` when the connection ends first).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from genagent_protocol import codec, schema
from genagent_protocol.answers import AgentAnswer
from genagent_protocol.envelopes import (
    MAX_VERSION,
    MIN_VERSION,
    Admission,
    Call,
    Completion,
    CoreState,
    CoreStatus,
    CoreStop,
    Credit,
    CutOff,
    DaemonAnswer,
    Down,
    EventMessage,
    FromAgent,
    Gap,
    Hello,
    Ping,
    Pong,
    Reply,
    Request,
    Stopping,
    Telemetry,
    TelemetryLost,
    ToClient,
    UiDetach,
    UiMessage,
    UiUndeliverable,
    Undeliverable,
    UnknownType,
    VersionRefused,
    Welcome,
)
from genagent_protocol.errors import (
    DaemonLost,
    ProcessDown,
    RemoteWireError,
    SendBufferFull,
    UsageError,
    VersionMismatch,
)
from genagent_protocol.header import DAEMON, Header, decode_header, encode_header
from genagent_protocol.reasons import NOCONNECTION, ExitReason
from genagent_protocol.refs import AgentHandle, Incarnation, MailboxAddress, MonitorRef, RequestRef
from genagent_protocol.requests import (
    AgentRequest,
    DaemonRequest,
    DemonitorAgent,
    MonitorAgent,
    WatchTelemetry,
)
from genagentd.client.bound import SEND_BOUND_BYTES, answers, takes_back
from genagentd.client.boxes import Box, Holding, Message, box_number
from genagentd.client.outstanding import Frames, Open, Watch, Watched, bare_handle, fate_of
from genagentd.client.waiting import Waiting
from genagentd.outbox import MESSAGE_COST_BYTES, Intake
from genagentd.version import __version__

#: How long connecting may take.
CONNECT_TIMEOUT_MS = 5_000
#: How long the end of a connection waits for the daemon to read what was sent.
LINGER_MS = 2_000
#: What became of a call that was begun after the connection had ended.
NOT_SENT = "nothing was sent"

Answer: TypeAlias = AgentAnswer | DaemonAnswer


class Conversation:
    """One connection, from its first frame to its end."""

    def __init__(self) -> None:
        self.welcome: Waiting[Welcome] = Waiting("hello")
        self.ended = False
        self.bad_frames = 0
        self._place = ""
        self._address: MailboxAddress | None = None
        self._outgoing: list[Frames] = []
        self._numbers = 0
        self._calls: dict[int, Open] = {}
        self._watches: dict[Incarnation, Watch] = {}
        self._watch_of: dict[int, Incarnation] = {}
        self._monitors: dict[int, Watched] = {}
        self._holding = Holding()
        self.own = Box(0, self._holding)
        self._boxes = {0: self.own}
        #: Boxes that are sessions, and the one agent that speaks in each.
        self._sessions: dict[int, str] = {}
        self._telemetry: list[Box] = []
        self._intake = Intake()
        self._credit_due = False
        self._sent_bytes = 0
        self._taken_bytes = 0
        self._sent_messages = 0
        self._last_cast = 0
        self._known_taken = 0

    # --- identity

    @property
    def place(self) -> str:
        """The host and runtime directory of the daemon."""
        return self._place

    def address(self, box: Box) -> MailboxAddress:
        """Return where messages for *box* go. Only after the welcome; needs no lock."""
        own = self._address
        assert own is not None
        return own if box is self.own else MailboxAddress(own.boot, own.client, box.number)

    def next_number(self) -> int:
        """Return a number that nothing else on this connection has."""
        self._numbers += 1
        return self._numbers

    # --- what leaves

    def outgoing(self) -> list[Frames]:
        """Return what is to be sent now, in order, and forget it."""
        ready, self._outgoing = self._outgoing, []
        return ready

    @property
    def unconfirmed(self) -> bool:
        """Whether something was sent that the daemon is not known to have read."""
        return not self.ended and self._last_cast > self._known_taken

    @property
    def crowded(self) -> bool:
        """Whether what follows may be refused: take in first what the daemon says of that."""
        return self._sent_bytes - self._taken_bytes > SEND_BOUND_BYTES // 2

    def _post(self, to: str, envelope: object, ref: str | None = None) -> None:
        body = codec.encode(envelope)
        cost = len(body) + MESSAGE_COST_BYTES
        waiting = self._sent_bytes - self._taken_bytes
        if waiting + cost > SEND_BOUND_BYTES and not takes_back(envelope):
            raise SendBufferFull(
                f"{waiting} bytes are on their way and not taken in by the daemon, and the limit "
                f"is {SEND_BOUND_BYTES}; nothing was sent, try again when it has caught up"
            )
        kind, answer = schema.tag_of(type(envelope)), answers(envelope)
        header = Header(kind, to, ref=ref, size=len(body), answers=answer)
        self._sent_bytes += cost
        self._sent_messages += 1
        self._outgoing.append(Frames(encode_header(header), body))

    def hello(self) -> None:
        """Say the first words; `welcome` is settled by the answer."""
        self._post(
            DAEMON,
            Hello(min_version=MIN_VERSION, max_version=MAX_VERSION, software=__version__),
        )

    def core(self, what: str, kind: type[Ping | CoreStatus]) -> Waiting[Any]:
        """Ask a question of the frozen core, which is answered for every version."""
        return self._ask_daemon(what, kind, lambda call: kind(call=call))

    def stop_daemon(self, what: str, *, force: bool) -> Waiting[Any]:
        """Ask the daemon to end; answered before it does."""
        return self._ask_daemon(what, CoreStop, lambda call: CoreStop(call=call, force=force))

    def request(self, what: str, request: DaemonRequest) -> Waiting[Answer]:
        """Ask the daemon itself."""
        return self._ask_daemon(what, type(request), lambda n: Request(call=n, request=request))

    def _ask_daemon(
        self, what: str, asked: type, envelope: Callable[[int], object]
    ) -> Waiting[Any]:
        return self._ask(what, DAEMON, asked, lambda call: self._post(DAEMON, envelope(call)))

    def call(self, what: str, incarnation: Incarnation, request: AgentRequest) -> Waiting[Answer]:
        """Ask one agent. Its end, seen through a watch set before, settles the call too."""

        def post(call: int) -> Watch:
            watch = self._watch(incarnation)
            envelope = Call(call=call, request=request)
            self._post(incarnation.text, envelope, ref=str(call))
            watch.calls.add(call)
            return watch

        return self._ask(what, incarnation.text, type(request), post)

    def _ask(
        self, what: str, to: str, asked: type, post: Callable[[int], Watch | None]
    ) -> Waiting[Any]:
        call = self.next_number()
        waiting: Waiting[Any] = Waiting(what, call, fate_of(asked))
        if self.ended:
            waiting.fail(DaemonLost(what, fate=NOT_SENT))
            return waiting
        watch = post(call)
        self._calls[call] = Open(waiting, to, watch, self._sent_messages)
        self._give_credit()
        return waiting

    def give_up(self, waiting: Waiting[Any]) -> None:
        """Nobody waits for that call any more; a late answer is dropped."""
        self._close_call(waiting.number)

    def _close_call(self, call: int) -> Waiting[Any] | None:
        found = self._calls.pop(call, None)
        if found is None:
            return None
        if found.watch is not None:
            found.watch.calls.discard(call)
        return found.waiting

    def end_of(self, what: str, incarnation: Incarnation) -> Waiting[ExitReason]:
        """Wait for the end of that incarnation, behind everything it had said."""
        waiting: Waiting[ExitReason] = Waiting(what)
        if self.ended:
            waiting.fail(DaemonLost(what, fate=NOT_SENT))
        else:
            self._watch(incarnation).ends.append(waiting)
        return waiting

    def cast(
        self, incarnation: Incarnation, envelope: object, ref: RequestRef | None = None
    ) -> None:
        """Send once and expect nothing. After the end of the connection nothing is sent."""
        if self.ended:
            return
        self._post(incarnation.text, envelope, ref=None if ref is None else ref.text)
        self._last_cast = self._sent_messages

    def say(self, session: Box, envelope: UiMessage | UiDetach) -> None:
        """Say something in a session; nothing after the end of it or of the connection."""
        to = self._sessions.get(session.number)
        if to is not None and not self.ended:
            self._post(to, envelope, ref=str(session.number))
            self._last_cast = self._sent_messages

    # --- monitors

    def monitor(self, handle: AgentHandle, box: Box) -> MonitorRef:
        """Put exactly one `Down` into *box* when that incarnation is gone."""
        monitor = MonitorRef(self.next_number())
        if self.ended:
            box.put(Down(monitor=monitor, handle=handle, reason=NOCONNECTION), MESSAGE_COST_BYTES)
            return monitor
        self._send_watch(monitor, handle)
        self._monitors[monitor.number] = Watched(handle, box)
        self._last_cast = self._sent_messages
        return monitor

    def demonitor(self, monitor: MonitorRef) -> bool:
        """Forget the monitor; False when its `Down` has arrived already."""
        if self._monitors.pop(monitor.number, None) is None:
            return False
        self._post_request(DemonitorAgent(monitor=monitor))
        self._last_cast = self._sent_messages
        return True

    def _send_watch(self, monitor: MonitorRef, handle: AgentHandle) -> None:
        self._post_request(MonitorAgent(monitor=monitor, handle=handle))

    def _post_request(self, request: DaemonRequest) -> None:
        # Its answer says nothing that is not known, and is dropped like a late one.
        self._post(DAEMON, Request(call=self.next_number(), request=request))

    def _watch(self, incarnation: Incarnation) -> Watch:
        watch = self._watches.get(incarnation)
        if watch is None:
            watch = Watch(MonitorRef(self.next_number()))
            self._send_watch(watch.monitor, bare_handle(incarnation, self._place))
            self._watches[incarnation] = watch
            self._watch_of[watch.monitor.number] = incarnation
        return watch

    # --- mailboxes

    def open_box(self) -> Box:
        """Return a new mailbox with an address of its own."""
        box = Box(self.next_number(), self._holding)
        self._boxes[box.number] = box
        return box

    def open_session(self, incarnation: Incarnation) -> Box:
        """Return a new mailbox in which that incarnation may speak, and nobody else."""
        box = self.open_box()
        self._sessions[box.number] = incarnation.text
        return box

    def close_box(self, box: Box) -> None:
        """Forget the mailbox: what is in it, and what will come."""
        self._boxes.pop(box.number, None)
        self._sessions.pop(box.number, None)
        if box in self._telemetry:
            self._telemetry.remove(box)
            if not self._telemetry and not self.ended:
                self._post_request(WatchTelemetry(on=False))
        box.close(lambda what: UsageError(f"{what}: this mailbox is closed"))
        self._give_credit()

    def watch_telemetry(self, box: Box) -> None:
        """Put every telemetry record that arrives into *box* too."""
        self._telemetry.append(box)

    def looked(self) -> None:
        """Someone took a message out, or waits for one: perhaps more may come now."""
        self._give_credit()

    # --- what arrives

    def take(self, header_frame: bytes, body: bytes) -> None:
        """Take in one message. What is not ours to understand is counted and dropped."""
        try:
            header = decode_header(header_frame)
            envelopes = [] if self._gives_way(header) else self._believed(header, body)
        except RemoteWireError:
            self.bad_frames += 1
            envelopes = []
        else:
            if self._gives_way(header):
                self._miss(header)
        # Counted first: a Ctrl-C while it is heard must not narrow the daemon's window for good.
        if self._intake.took(len(body)):
            self._credit_due = True
        cost = (len(body) + MESSAGE_COST_BYTES) // max(len(envelopes), 1)
        for envelope in envelopes:
            self._hear(header, envelope, cost)
        self._give_credit()

    def _believed(self, header: Header, body: bytes) -> list[Any]:
        """Return what *body* says, without what its sender may not say.

        Raises:
            RemoteWireError: it is nothing, or an agent speaks for the daemon.
        """
        if header.sender == DAEMON:
            return codec.decode(ToClient, body)
        said = codec.decode(FromAgent, body)
        believed = [envelope for envelope in said if self._may_say(header, envelope)]
        # What is not is dropped alone: an answer that somebody waits for may stand beside it.
        self.bad_frames += len(believed) < len(said)
        return believed

    def _may_say(self, header: Header, said: FromAgent) -> bool:
        sender = header.sender
        if isinstance(said, Reply):
            asked = self._calls.get(said.call)
            return asked is None or asked.to == sender
        if isinstance(said, UiMessage):
            # A session that was closed meanwhile has no box, and what was on its way is lost.
            number = box_number(header)
            return number not in self._boxes or self._sessions.get(number) == sender
        return said.ref is None or said.ref.incarnation.text == sender

    def _gives_way(self, header: Header) -> bool:
        return header.delivery == "droppable" and self._holding.exceeds()

    def _miss(self, header: Header) -> None:
        for box in self._boxes_of(header):
            box.miss(header)

    def _boxes_of(self, header: Header) -> list[Box]:
        if header.kind == "telemetry":
            return self._telemetry
        box = self._boxes.get(box_number(header))
        return [] if box is None else [box]

    def _hear(self, header: Header, envelope: Any, cost: int) -> None:
        match envelope:
            case Reply():
                self._answered(envelope.call, envelope.answer)
            case (
                Admission() | EventMessage() | Completion() | Gap() | Undeliverable() | UiMessage()
            ):
                self._deliver(header, envelope, cost)
            case UiUndeliverable():
                if envelope.session in self._sessions:
                    self._boxes[envelope.session].put(envelope, cost)
            case Telemetry() | TelemetryLost():
                for box in self._telemetry:
                    box.put(envelope, cost)
            case Down():
                self._down(envelope, cost)
            case Credit():
                self._taken_bytes = max(self._taken_bytes, min(envelope.bytes, self._sent_bytes))
            case Pong() | CoreState() | Stopping():
                self._answered(envelope.call, envelope)
            case Welcome():
                self._welcomed(envelope)
            case VersionRefused():
                self._version_refused(envelope)
            case UnknownType():
                self._unknown(envelope)
            case CutOff():
                self.end()

    def _deliver(self, header: Header, message: Message, cost: int) -> None:
        for box in self._boxes_of(header):
            box.put(message, cost)

    def _welcomed(self, welcome: Welcome) -> None:
        self._place = welcome.place
        self._address = welcome.mailbox
        self.welcome.settle(welcome)

    def _version_refused(self, refused: VersionRefused) -> None:
        self.welcome.fail(
            VersionMismatch(
                f"this client speaks protocol {MIN_VERSION} to {MAX_VERSION}, and the daemon "
                f"(genagentd {refused.software}) {refused.min_version} to {refused.max_version}",
                hint="stop it and start one of this version: genagentd stop; genagentd start",
            )
        )

    def _unknown(self, unknown: UnknownType) -> None:
        if unknown.call is not None and (waiting := self._close_call(unknown.call)) is not None:
            waiting.fail(
                VersionMismatch(f"the other side does not know {unknown.tag}; nothing was done")
            )

    def _answered(self, call: int, answer: Any) -> None:
        found = self._calls.get(call)
        if found is not None:
            # Whoever answered had read the call, and the daemon all that was sent before it.
            self._known_taken = max(self._known_taken, found.position)
            self._close_call(call)
            found.waiting.settle(answer)

    def _down(self, down: Down, cost: int) -> None:
        number = down.monitor.number
        incarnation = self._watch_of.pop(number, None)
        if incarnation is not None:
            self._watch_ended(self._watches.pop(incarnation), down.reason)
        elif number in self._monitors:
            self._monitors.pop(number).box.put(down, cost)

    def _watch_ended(self, watch: Watch, reason: ExitReason) -> None:
        for call in tuple(watch.calls):
            waiting = self._close_call(call)
            assert waiting is not None
            waiting.fail(ProcessDown(waiting.what, reason, fate=waiting.fate))
        for end in watch.ends:
            end.settle(reason)

    # --- credit

    def _give_credit(self) -> None:
        if self._credit_due and not self.ended and self._takes_more():
            self._credit_due = False
            self._intake.told()
            self._post(DAEMON, Credit(messages=self._intake.messages, bytes=self._intake.bytes))

    def _takes_more(self) -> bool:
        """Whether the daemon may send on.

        Full mailboxes stop it. But while someone waits for an answer, it has to come:
        then events give way, and what must be kept may use the bound once more.
        """
        if not self._holding.exceeds():
            return True
        return self._someone_waits() and not self._holding.exceeds(2)

    def _someone_waits(self) -> bool:
        return bool(self._calls) or any(box.awaited for box in self._boxes.values())

    # --- the end

    def end(self) -> None:
        """The connection is over: tell everyone, once."""
        if self.ended:
            return
        self.ended = True
        self._outgoing.clear()
        self.welcome.fail(DaemonLost("hello", fate=NOT_SENT))
        for call in self._calls.values():
            call.waiting.fail(DaemonLost(call.waiting.what, fate=call.waiting.fate))
        self._calls.clear()
        for watch in self._watches.values():
            for end in watch.ends:
                end.fail(DaemonLost(end.what))
        self._watches.clear()
        for number, watched in self._monitors.items():
            down = Down(monitor=MonitorRef(number), handle=watched.handle, reason=NOCONNECTION)
            watched.box.put(down, MESSAGE_COST_BYTES)
        self._monitors.clear()
        for box in self._boxes.values():
            box.end(lambda what: DaemonLost(what, fate="nothing more will arrive"))
