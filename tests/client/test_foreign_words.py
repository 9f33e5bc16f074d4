"""A client believes an agent only about itself, and the daemon alone about everything else."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol import codec, schema
from genagent_protocol.answers import NotFound, Ok
from genagent_protocol.envelopes import (
    Admission,
    Completion,
    Credit,
    CutOff,
    Down,
    EventMessage,
    Gap,
    Reply,
    Telemetry,
    Undeliverable,
    Welcome,
)
from genagent_protocol.events import Failed, event
from genagent_protocol.header import DAEMON, Header, encode_header
from genagent_protocol.reasons import INTERRUPTED, NORMAL, Reason
from genagent_protocol.refs import MailboxAddress, MonitorRef, RequestRef
from genagent_protocol.requests import GetStatus, ListAgents, Poll
from genagentd.client.boxes import anything
from support.peer import BOOT, OWN, Peer, a_ref, handle

AGENT = handle(1)
OTHER = handle(2)


def says(peer: Peer, sender: str, *envelopes: object, kind: str | None = None) -> None:
    """Let *sender* say these to the client, as the daemon hands it on."""
    body = codec.join(codec.encode(envelope) for envelope in envelopes)
    tag = schema.tag_of(type(envelopes[0]))
    header = Header(kind or tag, OWN.text, sender, bodies=len(envelopes), size=len(body))
    peer.talk.take(encode_header(header), body)


def news(ref: RequestRef) -> list[Any]:
    """Return everything an agent may say about a request."""
    return [
        Admission(agent="a", ref=ref),
        EventMessage(agent="a", ref=ref, event=event("text")),
        Gap(ref=ref, first=1, last=2),
        Completion(agent="a", ref=ref, outcome=Failed(INTERRUPTED)),
    ]


@pytest.mark.parametrize("number", range(4))
def test_an_agent_is_believed_about_its_own_requests(number: int) -> None:
    """The ref names the life that speaks."""
    peer = Peer()
    message = news(a_ref(incarnation=1))[number]

    says(peer, AGENT.incarnation.text, message)

    assert len(peer.talk.own) == 1
    assert peer.talk.bad_frames == 0


@pytest.mark.parametrize("number", range(4))
def test_an_agent_cannot_speak_about_the_requests_of_another(number: int) -> None:
    """A forged completion would be taken for the answer."""
    peer = Peer()
    message = news(a_ref(incarnation=1))[number]

    says(peer, OTHER.incarnation.text, message)

    assert len(peer.talk.own) == 0
    assert peer.talk.bad_frames == 1


@pytest.mark.parametrize("number", range(4))
def test_what_nobody_believes_is_dropped_alone(number: int) -> None:
    """What several clients have made one agent say leaves it in one body: theirs, and an answer."""
    peer = Peer()
    asked = peer.talk.call("status", OTHER.incarnation, GetStatus())
    answer = Reply(call=asked.number, answer=Ok())
    foreign = news(a_ref(incarnation=1))[number]
    own = news(a_ref(incarnation=2))

    says(peer, OTHER.incarnation.text, own[0], foreign, answer, *own[1:], kind="batch")

    assert asked.value() == Ok()
    heard = [peer.talk.own.expect(anything, "receive").value() for _ in own]
    assert heard == own
    assert len(peer.talk.own) == 0
    assert peer.talk.bad_frames == 1


@pytest.mark.parametrize(
    "word",
    [
        Down(monitor=MonitorRef(1), handle=AGENT, reason=NORMAL),
        CutOff(waiting_bytes=1, limit_bytes=1),
        Credit(messages=1, bytes=10**9),
        Undeliverable(agent="a", ref=a_ref(), reason=Reason("inbox_full")),
        Telemetry(event="agent.down", agent="a"),
        Welcome(
            version=1, boot=BOOT, mailbox=MailboxAddress(BOOT, 9), place="elsewhere", software="x"
        ),
    ],
    ids=lambda word: type(word).__name__,
)
def test_an_agent_cannot_speak_for_the_daemon(word: object) -> None:
    """The switchboard does not open what it hands on, so its receiver has to look."""
    peer = Peer()
    place = peer.talk.place
    admission = Admission(agent="a", ref=a_ref())

    says(peer, AGENT.incarnation.text, word)
    says(peer, AGENT.incarnation.text, admission, word, kind="batch")

    assert peer.talk.bad_frames == 2
    assert not peer.talk.ended
    assert peer.talk.place == place
    assert len(peer.talk.own) == 0


def test_only_who_was_asked_may_answer_or_the_daemon_in_its_place() -> None:
    """Call numbers are small and can be guessed."""
    peer = Peer()
    asked = peer.talk.call("poll", AGENT.incarnation, Poll(ref=a_ref()))
    listed = peer.talk.request("list", ListAgents())

    for call in (asked.number, listed.number):
        says(peer, OTHER.incarnation.text, Reply(call=call, answer=Ok()))
    says(peer, AGENT.incarnation.text, Reply(call=listed.number, answer=Ok()))
    assert not asked.done
    assert not listed.done
    assert peer.talk.bad_frames == 3

    says(peer, AGENT.incarnation.text, Reply(call=asked.number, answer=NotFound()))
    says(peer, DAEMON, Reply(call=listed.number, answer=Ok()))
    assert asked.value() == NotFound()
    assert listed.value() == Ok()


def test_a_late_answer_is_dropped_and_is_no_offence() -> None:
    """Its caller gave up; that is nobody's fault."""
    peer = Peer()
    asked = peer.talk.call("poll", AGENT.incarnation, Poll(ref=a_ref()))
    peer.talk.give_up(asked)

    says(peer, AGENT.incarnation.text, Reply(call=asked.number, answer=Ok()))

    assert peer.talk.bad_frames == 0
