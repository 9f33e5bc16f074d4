"""The daemon's side of a conversation, without a socket: it hears frames and says frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from genagent_protocol import codec, schema
from genagent_protocol.answers import Found, Ok
from genagent_protocol.envelopes import (
    Call,
    Reply,
    Request,
    ToAgent,
    ToDaemon,
    Welcome,
)
from genagent_protocol.header import (
    DAEMON,
    DeliveryClass,
    Header,
    decode_header,
    encode_header,
)
from genagent_protocol.plain import Plain
from genagent_protocol.refs import AgentHandle, BootId, Incarnation, MailboxAddress, RequestRef
from genagent_protocol.requests import DemonitorAgent, MonitorAgent
from genagentd.client.conversation import Conversation
from genagentd.client.waiting import Script, Waiting

BOOT = BootId("0123456789abcdef")
PLACE = "host:/run/here"
OWN = MailboxAddress(BOOT, 7)


def handle(number: int = 1, name: Plain = "a", place: str = PLACE) -> AgentHandle:
    """Return a handle of an agent of this daemon that has no process."""
    incarnation = Incarnation(BOOT, number)
    return AgentHandle(name=name, incarnation=incarnation, pid=0, started_ticks=0, place=place)


def a_ref(number: int = 1, incarnation: int = 1) -> RequestRef:
    """Return a ref; equal numbers, equal refs."""
    return RequestRef(Incarnation(BOOT, incarnation), f"{number:032x}")


@dataclass
class Peer:
    """A daemon with one client, which has been welcomed."""

    talk: Conversation = field(default_factory=Conversation)
    #: Everything heard so far: header and envelope.
    heard: list[tuple[Header, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.say(Welcome(version=1, boot=BOOT, mailbox=OWN, place=PLACE, software="test"))

    def listen(self) -> list[Any]:
        """Take what the client has to send, and return its envelopes."""
        new = [self._read(*frames) for frames in self.talk.outgoing()]
        self.heard += new
        return [envelope for _, envelope in new]

    @staticmethod
    def _read(header_frame: bytes, body: bytes) -> tuple[Header, Any]:
        header = decode_header(header_frame)
        assert header.size == len(body)
        union = ToDaemon if header.to == DAEMON else ToAgent
        [envelope] = codec.decode(union, body)
        assert header.kind == schema.tag_of(type(envelope))
        return header, envelope

    def say(
        self,
        *envelopes: object,
        to: MailboxAddress = OWN,
        delivery: DeliveryClass = "must_keep",
        ref: RequestRef | None = None,
        first: int = 0,
        last: int = 0,
    ) -> None:
        """Send one message that carries all *envelopes*."""
        body = codec.join(codec.encode(envelope) for envelope in envelopes)
        header = Header(
            kind=schema.tag_of(type(envelopes[0])),
            to=to.text,
            sender=DAEMON,
            delivery=delivery,
            ref=None if ref is None else ref.text,
            first=first,
            last=last,
            bodies=len(envelopes),
            size=len(body),
        )
        self.talk.take(encode_header(header), body)

    def reply(self, answer: Any) -> None:
        """Answer the newest call or request."""
        self.say(Reply(call=self.last_call(), answer=answer))

    def last_call(self) -> int:
        """Return the number of the newest call or request that waits for an answer."""
        for _, envelope in reversed(self.heard):
            if isinstance(envelope, Call):
                return envelope.call
            watches = (MonitorAgent, DemonitorAgent)
            if isinstance(envelope, Request) and not isinstance(envelope.request, watches):
                return envelope.call
        raise AssertionError("nothing was asked")

    def play(self, script: Script[Any], *answers: Any) -> Any:
        """Run *script*, answering each of its questions in turn; return what it returns."""
        left = list(answers)
        while True:
            try:
                waiting = next(script)
            except StopIteration as end:
                self.listen()
                assert not left, f"nobody asked for {left}"
                return end.value
            self.listen()
            self._settle(waiting, left.pop(0))

    def _settle(self, waiting: Waiting[Any], answer: Any) -> None:
        if isinstance(answer, Exception):
            waiting.fail(answer)
        elif callable(answer):
            answer()
        else:
            self.reply(answer)
        assert waiting.done


FOUND = Found(handle=handle())
NOBODY = Found(handle=None)
OK = Ok()
