"""The switchboard hands on what it never reads, in order, and says what it could not do."""

from __future__ import annotations

import asyncio
import os
import typing
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import codec, envelopes, schema
from genagent_protocol.header import DAEMON, Header, decode_header, encode_header
from genagent_protocol.plain import FrozenDict
from genagent_protocol.refs import BootId, Incarnation, MailboxAddress, RequestRef
from genagentd.agent import incoming
from genagentd.arrivals import Message, Peer
from genagentd.channels import Connection, Listener
from genagentd.daemon import switchboard
from genagentd.daemon.switchboard import Client, Port, Sender, Switchboard
from genagentd.outbox import WINDOW_BYTES, Capacity, Outbox, Parcel
from support import wire_examples

BOOT = BootId("0123456789abcdef")
AGENT = Incarnation(BOOT, 1)


async def until(fact: Callable[[], object], what: str) -> None:
    """Let the loop run until *fact* holds."""
    async with asyncio.timeout(30):
        while not fact():
            await asyncio.sleep(0)


@dataclass
class Person:
    """A client at the other end of the wire."""

    connection: Connection
    heard: list[tuple[Header, bytes]] = field(default_factory=list)
    gone: bool = False
    clients: bool = False

    def says(self, to: str, kind: str, body: bytes, ref: str | None = None) -> None:
        header = Header(kind, to, ref=ref, size=len(body))
        assert self.connection.send(encode_header(header), body)

    def tells(self, envelope: object, to: str = DAEMON, ref: str | None = None) -> None:
        self.says(to, schema.tag_of(type(envelope)), codec.encode(envelope), ref)

    @property
    def envelopes(self) -> list[Any]:
        return [e for _, body in self.heard for e in codec.decode(envelopes.ToClient, body)]


@dataclass
class House:
    """A switchboard with one agent, whose process is this one, and what it reported."""

    board: Switchboard
    port: Port
    agent: Listener
    path: str
    heard: list[Message] = field(default_factory=list)
    control: list[tuple[Sender, bytes]] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    gone: list[Client] = field(default_factory=list)
    abuse: list[str] = field(default_factory=list)
    people: list[Person] = field(default_factory=list)

    async def person(self, *, welcome: bool = True) -> Person:
        heard: list[tuple[Header, bytes]] = []
        opened = asyncio.Event()
        connection = Connection(
            self.path,
            lambda m: heard.append((decode_header(m.header), m.body)),
            opened.set,
            lambda: None,
        )
        await opened.wait()
        person = Person(connection, heard)
        self.people.append(person)
        if welcome:
            before = len(self.control)
            person.tells(envelopes.Ping(call=1))
            await until(lambda: len(self.control) > before, "it was heard")
            sender = self.control[-1][0]
            assert isinstance(sender, Client)
            sender.welcome = True
        return person

    def client(self, person: Person) -> Client:
        return [s for s, _ in self.control if isinstance(s, Client)][self.people.index(person)]

    def agent_says(self, to: str, kind: str, body: bytes, **more: Any) -> None:
        header = Header(kind, to, size=len(body), **more)
        self.agent.send(self.heard[0].route, encode_header(header), body)

    @property
    def work(self) -> list[bytes]:
        return [message.body for message in self.heard[1:]]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    directory = Path(os.path.relpath(tmp_path))
    path = str(min(directory / "s", tmp_path / "s", key=lambda p: len(str(p))))
    reported: dict[str, Any] = {}
    board = Switchboard(
        BOOT,
        path,
        on_control=lambda sender, body: reported["house"].control.append((sender, body)),
        on_client=lambda client: reported["house"].clients.append(client),
        on_client_gone=lambda client: reported["house"].gone.append(client),
        on_abuse=lambda _port, detail: reported["house"].abuse.append(detail),
    )
    agent = Listener(path + "a", lambda m: reported["house"].heard.append(m), lambda _fd: None)
    port = Port(AGENT, "an agent", os.getpid())
    made = House(board, port, agent, path)
    reported["house"] = made
    opened = asyncio.Event()
    port.connection = Connection(
        path + "a", lambda m: board.hear_agent(port, m), opened.set, lambda: None
    )
    await opened.wait()
    board.open_port(port)
    board.say(port, envelopes.RefuseTurns())
    await until(lambda: made.heard, "the agent knows the daemon's route")
    yield made
    for person in made.people:
        person.connection.close()
    board.close_port(port)
    agent.close()
    board.close()


async def test_what_a_client_says_reaches_the_agent_unread_and_stamped(house: House) -> None:
    """The body may be anything; who said it is the daemon's word, not the client's."""
    person = await house.person()

    person.says(AGENT.text, "notify", b"\xff not msgpack")

    await until(lambda: house.work, "it arrived")
    assert house.work == [b"\xff not msgpack"]
    assert decode_header(house.heard[1].header).sender == house.client(person).text


async def test_a_forged_sender_is_overwritten(house: House) -> None:
    """A client cannot speak for another one."""
    person = await house.person()
    header = Header("notify", AGENT.text, sender=f"{BOOT}/99")

    person.connection.send(encode_header(header), b"x")

    await until(lambda: house.work, "it arrived")
    assert decode_header(house.heard[1].header).sender == house.client(person).text


async def test_what_an_agent_says_to_one_client_keeps_its_order(house: House) -> None:
    """Admission, events and completion are worth something only in order."""
    person = await house.person()
    address = house.client(person).text

    for number in range(2_000):
        house.agent_says(address, "completion", b"%d" % number)

    await until(lambda: len(person.heard) == 2_000, "all arrived")
    assert [int(body) for _, body in person.heard] == list(range(2_000))


async def test_the_daemons_word_comes_behind_what_the_agent_said(house: House) -> None:
    """A DOWN that overtook a completion would make it look lost."""
    person = await house.person()
    address = house.client(person).text
    for number in range(500):
        house.agent_says(address, "completion", b"%d" % number)
    await until(lambda: person.heard, "some arrived")

    assert house.port.connection is not None
    house.port.connection.read_to_end()
    house.board.say(house.client(person), envelopes.Pong.to(envelopes.Ping(call=1)))

    await until(lambda: person.heard[-1][0].kind == "pong", "the daemon was heard")
    kinds = [header.kind for header, _ in person.heard]
    assert kinds.index("pong") == len(kinds) - 1


async def test_a_stranger_is_not_handed_on_before_it_was_welcomed(house: House) -> None:
    """Without a version in common a message may mean something else."""
    person = await house.person(welcome=False)

    person.says(AGENT.text, "notify", b"x")
    person.tells(envelopes.Ping(call=1))

    await until(lambda: house.control, "the ping was heard")
    assert house.work == []
    assert house.board.foreign_frames == 1


async def test_an_agent_says_only_what_agents_say(house: House) -> None:
    """A forged DOWN would be believed by everyone who waits for one."""
    person = await house.person()

    house.agent_says(house.client(person).text, "down", b"x")

    await until(lambda: house.abuse, "it was noticed")
    assert person.heard == []


async def test_garbage_is_counted_and_the_connection_lives(house: House) -> None:
    """One bad program must not take another's connection, nor its own."""
    person = await house.person()

    person.connection.send(b"\xc1", b"")
    person.connection.send(b"", b"")
    person.says(AGENT.text, "notify", b"good")

    await until(lambda: house.work, "the good one arrived")
    assert house.board.foreign_frames == 2


async def test_garbage_is_taken_in_like_anything_else(house: House) -> None:
    """Uncounted, it would narrow its sender's window for good."""
    person = await house.person()

    person.connection.send(b"\xc1", b"x" * (WINDOW_BYTES // 4))

    await until(lambda: person.envelopes, "credit came")
    assert isinstance(person.envelopes[0], envelopes.Credit)


async def test_the_end_of_a_client_is_told_once_and_behind_its_last_word(house: House) -> None:
    """A cast of a program that exits at once still counts."""
    person = await house.person()
    client = house.client(person)
    person.says(AGENT.text, "notify", b"last word")

    person.connection.close(linger_ms=2_000)

    await until(lambda: house.gone and house.work, "its end was told and its word arrived")
    assert house.work == [b"last word"]
    assert house.gone == [client]


async def test_agents_that_were_called_hear_that_the_caller_is_gone(house: House) -> None:
    """Its queued asks are for nobody now."""
    person = await house.person()
    address = house.client(person).address
    person.says(AGENT.text, "call", b"ask", ref="1")
    await until(lambda: house.work, "the call arrived")

    person.connection.close()

    await until(lambda: len(house.work) == 2, "the agent was told")
    assert codec.decode(envelopes.ToAgent, house.work[1]) == [envelopes.CallerDown(caller=address)]


async def test_the_end_of_a_session_passes_a_full_inbox(house: House) -> None:
    """The agent would ask on in it; but nobody fills the daemon's memory in this way."""
    person = await house.person()
    house.port.outbox = Outbox(Capacity(max_messages=0, max_bytes=0, max_droppable_bytes=0), 0)

    for number in range(switchboard.MAX_KEPT_ENDS + 10):
        person.tells(envelopes.UiDetach(), AGENT.text, ref=str(number + 1))
    person.says(AGENT.text, "ui_detach", b"x" * 10_000, ref="1")
    person.says(AGENT.text, "call", b"refused", ref="77")

    await until(lambda: person.heard, "what came last was refused")
    assert len(house.port.outbox) == switchboard.MAX_KEPT_ENDS


async def test_a_full_inbox_is_said_to_whoever_submits(house: House) -> None:
    """Known never accepted is worth more than silence."""
    person = await house.person()
    small = Capacity(max_messages=3, max_bytes=10**6, max_droppable_bytes=0)
    house.port.outbox = Outbox(small, window_bytes=1)
    refs = [RequestRef(AGENT, f"{number:032x}") for number in range(6)]

    for ref in refs:
        person.says(AGENT.text, "submit", b"prompt", ref=ref.text)
    person.says(AGENT.text, "call", b"poll", ref="77")

    await until(lambda: len(person.heard) == 3, "the refusals arrived")
    undeliverable = [e.ref for e in person.envelopes if isinstance(e, envelopes.Undeliverable)]
    # One went out, three wait, two and the call were refused.
    assert undeliverable == refs[4:]
    assert person.envelopes[-1].call == 77


async def test_what_is_lost_in_a_full_inbox_is_in_the_log(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cast is answered by nothing, so the log alone can tell, and not with a flood of lines."""
    said: list[tuple[object, object]] = []
    monkeypatch.setattr(
        switchboard, "warn", lambda event, **facts: said.append((event, facts["lost"]))
    )
    person = await house.person()
    house.port.outbox = Outbox(Capacity(max_messages=0, max_bytes=0, max_droppable_bytes=0), 0)

    for kind in ("notify", "interrupt", "resume", "halt") * 30:
        person.says(AGENT.text, kind, b"cast")
    person.says(AGENT.text, "call", b"refused", ref="77")

    await until(lambda: person.heard, "what came last was refused")
    assert house.port.lost == 120
    assert said == [("inbox.full", 1), ("inbox.full", 10), ("inbox.full", 100)]


async def test_a_full_inbox_is_said_in_the_session_it_concerns(house: House) -> None:
    """The daemon settles nothing: the client ends the session, and its calls with it."""
    person = await house.person()
    small = Capacity(max_messages=0, max_bytes=0, max_droppable_bytes=0)
    house.port.outbox = Outbox(small, window_bytes=0)

    person.says(AGENT.text, "ui_message", b"x", ref="12")

    await until(lambda: person.heard, "it was said")
    [said] = person.envelopes
    assert isinstance(said, envelopes.UiUndeliverable)
    assert (said.session, said.reason.code) == (12, "inbox_full")


async def test_what_is_said_in_a_session_is_handed_on_unread(house: House) -> None:
    """With the connection that said it, which is what makes the session its own."""
    person = await house.person()

    person.says(AGENT.text, "ui_message", b"not even a message", ref="12")

    await until(lambda: house.work, "the agent has it")
    header = decode_header(house.heard[-1].header)
    assert house.work == [b"not even a message"]
    assert (header.sender, header.ref) == (house.client(person).text, "12")


@pytest.mark.parametrize("ref", ["", "x", "-1", "1.0", "9" * 400, "\u0661"])
@pytest.mark.parametrize("kind", ["submit", "call", "ui_message"])
async def test_a_ref_that_is_none_leaves_the_switchboard_at_work(
    house: House, kind: str, ref: str
) -> None:
    """It is the sender's word; what cannot be answered is counted, and the next one is served."""
    person = await house.person()
    small = Capacity(max_messages=0, max_bytes=0, max_droppable_bytes=0)
    house.port.outbox = Outbox(small, window_bytes=0)

    person.says(AGENT.text, kind, b"x", ref=ref)
    person.says(AGENT.text, "call", b"poll", ref="77")

    await until(lambda: person.heard, "the second one was refused")
    assert person.envelopes[-1].call == 77
    assert house.board.bad_frames == 1


async def test_events_under_a_ref_that_is_none_leave_a_gap_all_the_same(house: House) -> None:
    """An agent may write anything into a header."""
    person = await house.person()
    client = house.client(person)
    small = Capacity(max_messages=10**6, max_bytes=10**6, max_droppable_bytes=0)
    client.outbox = Outbox(small, window_bytes=1)
    client.outbox.passed(Parcel(Header("x", "y"), b""))
    house.agent_says(
        client.text, "event_message", b"e", delivery="droppable", ref="no ref", first=3, last=4
    )
    await until(lambda: len(client.outbox), "it is missing")

    house.board.credited(client, envelopes.Credit(messages=1, bytes=10**9))

    await until(lambda: person.heard, "it was told")
    assert person.envelopes == [envelopes.Gap(ref=None, first=3, last=4)]


async def test_a_client_that_does_not_read_loses_events_visibly_and_nothing_else(
    house: House,
) -> None:
    """Events give way with a gap; completions wait."""
    person = await house.person()
    client = house.client(person)
    small = Capacity(max_messages=10**6, max_bytes=10**6, max_droppable_bytes=600)
    client.outbox = Outbox(small, window_bytes=1)
    ref = RequestRef(AGENT, "0" * 32)
    for number in range(1, 11):
        house.agent_says(
            client.text,
            "event_message",
            b"e",
            delivery="droppable",
            ref=ref.text,
            first=number,
            last=number,
        )
    house.agent_says(client.text, "completion", b"done", ref=ref.text)
    await until(lambda: len(client.outbox) == 4, "they wait")

    house.board.credited(client, envelopes.Credit(messages=1, bytes=10**9))
    while len(client.outbox):
        house.board.credited(client, envelopes.Credit(messages=1, bytes=10**9))

    await until(lambda: person.heard and person.heard[-1][0].kind == "completion", "it came")
    kinds = [header.kind for header, _ in person.heard]
    assert kinds == ["event_message"] * 3 + ["gap", "completion"]
    assert codec.decode(envelopes.ToClient, person.heard[3][1]) == [
        envelopes.Gap(ref=ref, first=4, last=10)
    ]


def record(count: int | None) -> envelopes.Telemetry:
    """Return a record of an agent; with a *count* one that says how many gave way there."""
    if count is None:
        return envelopes.Telemetry(event="turn.start", agent="a")
    lost = FrozenDict(count=count)
    return envelopes.Telemetry(event=envelopes.RECORDS_LOST, agent="a", measurements=lost)


@given(
    st.lists(st.none() | st.integers(1, 10**6), max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_a_slow_subscriber_loses_no_record_silently(
    counts: list[int | None], reads: list[bool]
) -> None:
    """What it gets and what it is told to have lost make all there were, lost ones included."""
    told: list[Any] = []
    board = Switchboard.__new__(Switchboard)
    client = Client(1, MailboxAddress(BOOT, 1), b"", 1, watches_telemetry=True)
    client.outbox = Outbox(Capacity(max_messages=10, max_bytes=10**6, max_droppable_bytes=300), 1)
    board._clients = {client.text: client}
    board._send = lambda _to, parcel: told.extend(codec.decode(envelopes.ToClient, parcel.body))  # type: ignore[method-assign, assignment]  # the wire

    for said, read in zip(map(record, counts), reads, strict=False):
        board.broadcast_telemetry(codec.encode(said), said.records)
        if read:
            board.credited(client, envelopes.Credit(messages=1, bytes=10**9))
    while len(client.outbox):
        board.credited(client, envelopes.Credit(messages=1, bytes=10**9))

    heard = sum(one.records if isinstance(one, envelopes.Telemetry) else one.count for one in told)
    assert heard == sum(count or 1 for count in counts)


async def test_a_client_that_never_reads_is_cut_off_and_told(house: House) -> None:
    """What must be kept cannot be kept for ever; silence about it would be a lie."""
    person = await house.person()
    client = house.client(person)
    small = Capacity(max_messages=10**6, max_bytes=1_000, max_droppable_bytes=0)
    client.outbox = Outbox(small, window_bytes=1)

    for _ in range(10):
        house.agent_says(client.text, "completion", b"x" * 100)

    await until(lambda: person.heard and person.heard[-1][0].kind == "cut_off", "it was told")
    assert house.gone == [client]
    person.says(AGENT.text, "notify", b"too late")
    other = await house.person()
    other.says(AGENT.text, "notify", b"in time")
    await until(lambda: house.work, "another client is served")
    assert house.work == [b"in time"]


async def test_being_cut_off_is_an_end_that_called_agents_hear_once(house: House) -> None:
    """An agent would go on waiting for the answers of somebody whom nothing reaches."""
    person = await house.person()
    client = house.client(person)
    person.says(AGENT.text, "call", b"attach", ref="1")
    await until(lambda: house.work, "the call arrived")
    small = Capacity(max_messages=10**6, max_bytes=1_000, max_droppable_bytes=0)
    client.outbox = Outbox(small, window_bytes=1)

    client.watches_telemetry = True
    for _ in range(10):
        house.agent_says(client.text, "ui_message", b"x" * 100)
    await until(lambda: len(house.work) == 2, "the agent was told")
    assert (house.board.clients, house.board.telemetry_watched) == (0, False)
    person.connection.close()
    other = await house.person()
    other.says(AGENT.text, "notify", b"last")

    await until(lambda: house.work[-1] == b"last", "what comes later has arrived")
    down = envelopes.CallerDown(caller=client.address)
    assert [codec.decode(envelopes.ToAgent, body) for body in house.work[1:-1]] == [[down]]
    assert house.gone == [client]


async def test_the_end_of_a_caller_passes_a_full_inbox(house: House) -> None:
    """Nobody would say it again, and whoever was never heard has no end to tell."""
    person, other = await house.person(), await house.person()
    person.says(AGENT.text, "call", b"attach", ref="1")
    await until(lambda: house.work, "the call arrived")
    house.port.outbox = Outbox(Capacity(max_messages=0, max_bytes=0, max_droppable_bytes=0), 0)
    other.says(AGENT.text, "call", b"refused", ref="1")
    await until(lambda: other.heard, "its call was refused")

    person.connection.close()
    other.connection.close()

    await until(lambda: len(house.gone) == 2 and len(house.work) == 2, "both are gone, one is told")
    assert codec.decode(envelopes.ToAgent, house.work[1]) == [
        envelopes.CallerDown(caller=house.clients[0].address)
    ]


def of_daemon() -> list[object]:
    """Return one of everything that the daemon says to an agent."""
    unions = typing.get_args(incoming.FromDaemon)
    every = wire_examples.MESSAGES + wire_examples.ANSWERED[:1]
    found = [message for message in every if isinstance(message, unions)]
    assert {type(message) for message in found} == set(unions)
    return found


async def test_nothing_that_the_daemon_says_itself_is_refused_by_a_full_inbox(
    house: House,
) -> None:
    """The agent asked for it, or its end is wanted; nobody would say it again."""
    house.port.outbox = Outbox(Capacity(max_messages=0, max_bytes=0, max_droppable_bytes=0), 1)
    house.port.outbox.passed(Parcel(Header("x", "y"), b""))
    said = of_daemon()

    for envelope in said:
        house.board.say(house.port, envelope)
    while len(house.port.outbox):
        house.board.credited(house.port, envelopes.Credit(messages=1, bytes=10**9))

    await until(lambda: len(house.work) == len(said), "all of it arrived")
    heard = [envelope for body in house.work for envelope in codec.decode(envelopes.ToAgent, body)]
    assert sorted(map(repr, heard)) == sorted(map(repr, said))


async def test_the_answer_to_a_call_passes_what_waits_and_says_its_place(house: House) -> None:
    """Whoever waits for it may be what keeps the others waiting. Others' answers do not pass."""
    person = await house.person()
    other = Port(Incarnation(BOOT, 2), "another", os.getpid())
    house.board.open_port(other)
    house.agent_says(other.text, "call", b"ask", ref="1")
    await until(lambda: len(house.port.asked), "it was asked")
    house.port.outbox = Outbox(switchboard.AGENT_CAPACITY, window_bytes=1)
    house.port.outbox.passed(Parcel(Header("x", "y"), b""))
    for number in range(3):
        person.says(AGENT.text, "notify", b"%d" % number)
    await until(lambda: len(house.port.outbox) == 3, "they wait")

    for body in (b"asked for", b"not asked for"):
        header = encode_header(Header("reply", AGENT.text, behind=99))
        house.board.hear_agent(
            other, Message(b"", 0, Peer(os.getuid(), os.getgid(), os.getpid()), header, body)
        )

    await until(lambda: house.work, "the answer arrived")
    assert (house.work, decode_header(house.heard[-1].header).behind) == ([b"asked for"], 3)
    while len(house.port.outbox):
        house.board.credited(house.port, envelopes.Credit(messages=1, bytes=10**9))
    await until(lambda: len(house.work) == 5, "the rest arrived")
    assert house.work[1:] == [b"0", b"1", b"2", b"not asked for"]
    assert {decode_header(message.header).behind for message in house.heard[2:]} == {0}


async def test_a_client_whose_process_is_gone_is_gone_though_its_connection_is_open(
    house: House,
) -> None:
    """A process that it forked off may hold a copy of the connection; the end is told once."""
    anna = house.client(await house.person())
    assert house.clients == [anna]

    house.board.lost(anna)
    house.board.lost(anna)

    assert house.gone == [anna]
