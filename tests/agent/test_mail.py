"""What overtook is dealt with when it comes, and what has to wait keeps its place."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import codec, envelopes, schema
from genagent_protocol.answers import Ok
from genagent_protocol.header import DAEMON, Header
from genagent_protocol.reasons import NORMAL
from genagent_protocol.refs import AgentHandle, BootId, Incarnation, MailboxAddress, MonitorRef
from genagentd.agent.inbox import Frame
from genagentd.agent.mail import Mail
from genagentd.outbox import Capacity, Intake, Outbox, Parcel

BOOT = BootId("0123456789abcdef")
ANNA = AgentHandle("anna", Incarnation(BOOT, 9), 1, 2, "here")
CLIENT = MailboxAddress(BOOT, 3)
#: One message closes it.
WINDOW_BYTES = 400
#: What is said to the agent, in a few kinds; the number tells them apart.
KINDS = ("cast", "reply", "down of a call", "down", "caller_down")


@dataclass
class Link:
    """The daemon's queue to an agent in a callback, the wire, and what the agent does with it."""

    dealt_with: list[int] = field(default_factory=list)
    waits: deque[Frame] = field(default_factory=deque)
    wire: deque[Parcel] = field(default_factory=deque)
    outbox: Outbox = field(
        default_factory=lambda: Outbox(
            Capacity(max_messages=10**6, max_bytes=10**9, max_droppable_bytes=0), WINDOW_BYTES
        )
    )

    def __post_init__(self) -> None:
        calls = SimpleNamespace(
            answered=lambda _sender, reply: self.dealt_with.append(reply.call),
            ended=self._ended,
        )
        inbox: Any = SimpleNamespace(put=self.waits.append)
        outgoing: Any = SimpleNamespace(say=self._said)
        sessions: Any = SimpleNamespace(gone=lambda _client: None)
        self.mail = Mail(inbox, outgoing, calls, sessions)  # type: ignore[arg-type]  # fakes
        self.mail._intake = Intake(WINDOW_BYTES)

    def _ended(self, down: envelopes.Down) -> bool:
        of_a_call = down.monitor.number % 2 == 0
        if of_a_call:
            self.dealt_with.append(down.monitor.number // 2)
        return of_a_call

    def _said(self, _to: str, credit: envelopes.Credit) -> None:
        self.outbox.credited(credit.bytes)
        self.wire += self.outbox.take()  # type: ignore[arg-type]  # nothing here is droppable

    def say(self, kind: str, number: int) -> None:
        """Say that much to the agent, as the switchboard does."""
        envelope: object = envelopes.Notify(event=(number, "x" * 300))
        match kind:
            case "reply":
                envelope = envelopes.Reply(call=number, answer=Ok())
            case "down of a call" | "down":
                monitor = MonitorRef(2 * number + (kind == "down"))
                envelope = envelopes.Down(monitor=monitor, handle=ANNA, reason=NORMAL)
            case "caller_down":
                envelope = envelopes.CallerDown(caller=MailboxAddress(BOOT, number + 1))
        body = codec.encode(envelope)
        sender = CLIENT.text if kind == "cast" else DAEMON
        parcel = Parcel(Header(schema.tag_of(type(envelope)), "to", sender), body)
        if self.outbox.passes() or kind != "cast":
            marked = parcel._replace(header=parcel.header._replace(behind=len(self.outbox)))
            self.outbox.passed(marked)
            self.wire.append(marked)
        else:
            assert self.outbox.put(parcel)

    def arrive(self, most: int) -> None:
        while self.wire and most:
            parcel = self.wire.popleft()
            self.mail.arrived(parcel.header, parcel.body)
            most -= 1

    def taken(self) -> int | None:
        """Have the agent take one thing that waits, and return its number."""
        if not self.waits:
            return None
        frame = self.waits.popleft()
        self.mail.took(frame)
        match self.mail.open(frame):
            case envelopes.Notify(event=(number, _)):
                assert isinstance(number, int)
                return number
            case envelopes.Down(monitor=monitor):
                return monitor.number // 2
            case envelopes.CallerDown(caller=MailboxAddress(client=client)):
                return client - 1
        raise AssertionError(frame)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("say"), st.sampled_from(KINDS)),
            st.tuples(st.just("arrive"), st.integers(1, 5)),
            st.tuples(st.just("take"), st.just(0)),
        ),
        max_size=80,
    )
)
def test_answers_arrive_at_once_and_everything_else_in_its_order(
    done: list[tuple[str, Any]],
) -> None:
    """Whatever waits, where, and how little is taken: none of it is lost or overtaken."""
    link = Link()
    passing: list[int] = []
    waiting: list[int] = []
    taken: list[int | None] = []

    for number, (what, how) in enumerate(done):
        match what:
            case "say":
                link.say(how, number)
                (passing if how in ("reply", "down of a call") else waiting).append(number)
            case "arrive":
                link.arrive(how)
            case "take":
                taken.append(link.taken())
    link.arrive(10**6)

    assert link.dealt_with == passing
    while link.waits:
        taken.append(link.taken())
        link.arrive(10**6)
    assert [number for number in taken if number is not None] == waiting
    # Each was counted once; the window would drift otherwise.
    assert link.mail._intake.bytes == link.outbox._sent_bytes


def test_any_number_of_early_ends_does_not_close_the_window_to_what_they_wait_for() -> None:
    """They are told behind messages that come only when there is credit."""
    link = Link()
    for number in range(20):
        link.say("cast", number)
    for number in range(20, 40):
        link.say("down", number)

    found = []
    link.arrive(10**6)
    while (taken := link.taken()) is not None:
        found.append(taken)
        link.arrive(10**6)

    assert found == list(range(40))
