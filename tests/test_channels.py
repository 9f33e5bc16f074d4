"""One socket is one connection: ordered, drained to its end, never resent, never reconnected."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from genagent_protocol.bounds import MAX_FRAME_BYTES
from genagent_protocol.errors import NotReachable, UsageError
from genagentd import channels, gate, kernel, socket_path, sockets
from genagentd.arrivals import Message
from genagentd.channels import BATCH, BlockingConnection, Connection, Listener
from genagentd.connections import Connections
from genagentd.socket_path import MAX_PATH_BYTES, check_path, listener_pid, probe
from genagentd.sockets import Socket
from support.background import in_background
from support.backlogs import crowded
from support.wires import Gone, Wires, received, until


@pytest.fixture
def wires() -> Iterator[Wires]:
    with tempfile.TemporaryDirectory(prefix="wires-") as directory:
        made = Wires(f"{directory}/s")
        yield made
        made.close()


@pytest.fixture
def stranger() -> Iterator[zmq.Socket[bytes]]:
    """A peer that speaks ZeroMQ and nothing else of ours."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = context.socket(zmq.DEALER)
    yield made
    made.close(0)
    context.term()


# --- order and the kernel's word


async def test_messages_arrive_as_they_were_sent(wires: Wires) -> None:
    """Order is what every promise about admission, events and completion is built on."""
    ear, mouth = await wires.pair()
    sent = [str(number).encode() for number in range(3 * BATCH)]

    for body in sent:
        assert mouth.connection.send(b"header of " + body, body)

    await until(lambda: len(ear.messages) == len(sent), "all arrived")
    assert ear.bodies == sent
    assert [message.header for message in ear.messages] == [b"header of " + body for body in sent]


async def test_answers_reach_the_route_a_message_came_by(wires: Wires) -> None:
    """Two peers of one listener never hear each other's answers."""
    ear, first = await wires.pair()
    second = await wires.mouth().opened()
    first.connection.send(b"", b"first")
    second.connection.send(b"", b"second")
    await until(lambda: len(ear.messages) == 2, "both were heard")

    for message in ear.messages:
        assert ear.listener.send(message.route, b"", b"to " + message.body)

    await until(lambda: first.bodies and second.bodies, "both heard")
    assert (first.bodies, second.bodies) == ([b"to first"], [b"to second"])


async def test_every_message_says_who_sent_it_by_the_kernels_word(wires: Wires) -> None:
    """Whoever reaches the socket is judged by what it is, not by what it says."""
    ear, mouth = await wires.pair()

    mouth.connection.send(b"", b"")

    await until(lambda: ear.messages, "it was heard")
    assert ear.messages[0].peer == (os.getuid(), os.getgid(), os.getpid())


# --- the end of a connection


@pytest.mark.parametrize("count", [1, 1_000])
async def test_what_a_peer_had_sent_comes_before_the_news_of_its_end(
    wires: Wires, count: int
) -> None:
    """A DOWN must not overtake what was said: the listener drains first, and tells once."""
    ear, mouth = await wires.pair()
    sent = [str(number).encode() for number in range(count)]

    for body in sent:
        mouth.connection.send(b"", body)
    mouth.connection.close(linger_ms=10_000)

    await until(lambda: ear.gone, "its end was told")
    assert ear.bodies == sent
    assert ear.news[-1] == Gone(ear.messages[0].route)
    assert len(ear.gone) == 1


async def test_a_connection_drains_before_it_tells_that_its_listener_is_gone(wires: Wires) -> None:
    """An agent's last words are read to the end, however late the daemon looks."""
    ear, mouth = await wires.pair()
    mouth.connection.send(b"", b"hello")
    await until(lambda: ear.messages, "the route is known")
    sent = [str(number).encode() for number in range(1_000)]

    for body in sent:
        ear.listener.send(ear.messages[0].route, b"", body)
    ear.listener.close(linger_ms=10_000)

    await until(lambda: "gone" in mouth.news, "its end was told")
    assert mouth.bodies == sent
    assert mouth.news[-1] == "gone"
    assert mouth.news.count("gone") == 1


async def test_a_peer_that_never_spoke_is_no_news(wires: Wires) -> None:
    """Probes and health checks come and go all day."""
    ear = wires.ear()
    for _ in range(3):
        probe(wires.path)
    silent = await wires.mouth().opened()
    silent.connection.close()

    last = await wires.mouth().opened()
    last.connection.send(b"", b"last")
    last.connection.close(linger_ms=10_000)

    await until(lambda: ear.gone, "the one that spoke is gone")
    assert ear.gone == [ear.messages[0].route]


async def test_nothing_is_sent_before_hands_were_shaken(wires: Wires) -> None:
    """libzmq would keep it and deliver it to whoever binds there later."""
    ear = wires.ear()
    mouth = wires.mouth()

    assert not mouth.connection.send(b"", b"too early")
    await mouth.opened()
    assert mouth.connection.send(b"", b"in time")

    await until(lambda: ear.messages, "something arrived")
    assert ear.bodies == [b"in time"]


async def test_nothing_is_sent_after_the_end(wires: Wires) -> None:
    """A refused send is known not to have happened."""
    ear, mouth = await wires.pair()
    ear.listener.close()
    await until(lambda: "gone" in mouth.news, "its end was told")

    assert not mouth.connection.send(b"", b"too late")
    mouth.connection.close()
    assert not mouth.connection.send(b"", b"later still")


async def test_a_successor_at_the_same_path_hears_nothing_of_before(wires: Wires) -> None:
    """What was said while nobody listened must not run hours later."""
    ear, mouth = await wires.pair()
    mouth.connection.send(b"", b"before")
    await until(lambda: ear.messages, "it was heard")
    ear.listener.close()
    mouth.connection.send(b"", b"perhaps it is gone already")
    await until(lambda: "gone" in mouth.news, "its end was told")

    successor = wires.ear()
    mouth.connection.send(b"", b"meanwhile")
    other = await wires.mouth().opened()
    other.connection.send(b"", b"after")

    await until(lambda: successor.messages, "something arrived")
    for _ in range(20):  # Time enough for anything that would connect again.
        await wires.mouth().opened()
    assert successor.bodies == [b"after"]
    assert mouth.news.count("open") == 1


async def test_a_send_to_a_peer_that_is_gone_says_so(wires: Wires) -> None:
    """A router drops what it cannot route in silence unless it is told not to."""
    ear, mouth = await wires.pair()
    mouth.connection.send(b"", b"hello")
    await until(lambda: ear.messages, "the route is known")
    route = ear.messages[0].route

    mouth.connection.close()

    await until(lambda: ear.gone, "its end was told")
    assert not ear.listener.send(route, b"", b"for nobody")
    assert not ear.listener.send(b"no such route", b"", b"for nobody")
    ear.listener.close()
    assert not ear.listener.send(route, b"", b"from nobody")


async def test_the_end_of_one_peer_does_not_make_the_loop_read_a_flood(wires: Wires) -> None:
    """While one floods and another leaves, everybody else still gets a turn of the loop."""
    ear, flood = await wires.pair()
    leaver = await wires.mouth().opened()
    leaver.connection.send(b"", b"bye")
    await until(lambda: ear.messages, "it was heard")
    for _ in range(20 * BATCH):
        flood.connection.send(b"", b"flood")
    leaver.connection.close()

    most_in_one_turn, heard = 0, len(ear.messages)
    while not ear.gone:
        await asyncio.sleep(0)
        most_in_one_turn = max(most_in_one_turn, len(ear.messages) - heard)
        heard = len(ear.messages)

    # A turn may serve the descriptor and the look again, and not more.
    assert most_in_one_turn <= 2 * BATCH


async def test_a_listener_closed_by_what_it_hears_says_no_more(wires: Wires) -> None:
    """Whoever closes a socket is not called by it again."""
    heard: list[bytes] = []

    def close(message: Message) -> None:
        heard.append(message.body)
        listener.close()

    listener = Listener(wires.path, close, lambda _route: heard.append(b"gone"))
    mouth = await wires.mouth().opened()
    for body in (b"one", b"two", b"three"):
        mouth.connection.send(b"", body)

    await until(lambda: "gone" in mouth.news, "it is closed")
    assert heard == [b"one"]


async def test_whoever_hears_a_message_may_fail_and_the_rest_is_still_heard(wires: Wires) -> None:
    """A bug about one message must not silence the socket for good."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: failures.append(what))
    ear, mouth = await wires.pair()

    def fail(message: Message) -> None:
        if message.body == b"3":
            raise ValueError("a bug")

    ear.then = fail
    for number in range(10):
        mouth.connection.send(b"", b"%d" % number)
    mouth.connection.close(linger_ms=10_000)

    await until(lambda: ear.gone, "its end was told")
    assert ear.bodies == [b"%d" % number for number in range(10)]
    assert len(failures) == 1


# --- which connection it was


def test_a_silent_connection_does_not_end_its_successor() -> None:
    """The kernel gives its descriptor to the next one before anyone looked."""
    known = Connections()
    known.accepted(20)
    first = known.ended(20)
    known.accepted(20)

    assert known.heard(b"\x00aaa1", 20) is None
    assert known.forget(first) is None
    assert known.knows(b"\x00aaa1")
    assert known.forget(known.ended(20)) == b"\x00aaa1"
    assert not known.knows(b"\x00aaa1")


@pytest.mark.parametrize("heard", [(b"\x00aaa1", b"\x00aaa2"), (b"\x00aaa2", b"\x00aaa1")])
def test_two_that_came_and_spoke_before_anyone_looked_are_told_apart(
    heard: tuple[bytes, bytes],
) -> None:
    """Whichever is heard first, the older one is over and the younger one lives on."""
    known = Connections()
    known.accepted(20)
    first = known.ended(20)
    known.accepted(20)

    assert known.heard(heard[0], 20) is None
    over = known.heard(heard[1], 20)

    assert over is not None
    assert known.forget(over) == b"\x00aaa1"
    assert known.forget(first) is None
    assert known.forget(known.ended(20)) == b"\x00aaa2"


async def test_a_descriptor_that_is_used_again_ends_only_who_had_it(wires: Wires) -> None:
    """Clients that follow each other get the same descriptor, and each has an end of its own."""
    ear = wires.ear()
    for number in range(20):
        mouth = await wires.mouth().opened()
        mouth.connection.send(b"", b"%d" % number)
        mouth.connection.close(linger_ms=10_000)
        if number % 3 == 0:
            await until(lambda: len(ear.gone) == number + 1, "its end was told")  # noqa: B023

    await until(lambda: len(ear.gone) == 20, "all ends were told")
    assert ear.bodies == [b"%d" % number for number in range(20)]
    for message in ear.messages:
        assert ear.news.index(message) < ear.news.index(Gone(message.route))
    assert len({message.route for message in ear.messages}) == len(set(ear.gone)) == 20
    assert len({message.fd for message in ear.messages}) < 20


# --- garbage


@pytest.mark.parametrize(
    "frames", [[b""], [b"alone"], [b"a", b"b", b"c"], [b"1", b"2", b"3", b"4", b"5"]]
)
async def test_frames_that_are_no_message_are_counted_and_the_connection_lives(
    wires: Wires, stranger: zmq.Socket[bytes], frames: list[bytes]
) -> None:
    """One bad program must not take down its own connection, or another's."""
    ear, mouth = await wires.pair()
    stranger.connect(f"ipc://{wires.path}")

    stranger.send_multipart(frames)
    stranger.send_multipart([b"good header", b"good body"])
    mouth.connection.send(b"", b"another")

    await until(lambda: len(ear.messages) == 2, "the good ones were heard")
    assert ear.listener.bad_frames == 1
    assert sorted(ear.bodies) == [b"another", b"good body"]


async def test_a_connection_counts_garbage_too(wires: Wires) -> None:
    """A client does not trust its listener more than the other way round."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    odd = context.socket(zmq.ROUTER)
    odd.bind(f"ipc://{wires.path}")
    mouth = await wires.mouth().opened()
    mouth.connection.send(b"", b"hello")
    route = (await asyncio.to_thread(odd.recv_multipart))[0]

    odd.send_multipart([route, b"one frame"])
    odd.send_multipart([route, b"h", b"b"])

    await until(lambda: mouth.bodies, "the good one was heard")
    assert mouth.connection.bad_frames == 1
    odd.close(0)
    context.term()


async def test_bytes_that_are_not_zeromq_reach_nobody(wires: Wires) -> None:
    """A browser, or a shell with nc, at the socket."""
    ear, mouth = await wires.pair()
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(wires.path)
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)

    mouth.connection.send(b"", b"still here")

    await until(lambda: ear.messages, "it was heard")
    assert ear.bodies == [b"still here"]
    assert ear.gone == []


# --- size


async def test_a_frame_at_the_limit_passes_and_one_above_ends_only_its_sender(
    wires: Wires,
) -> None:
    """libzmq's last guard: our own senders never get there, because they count before."""
    ear, mouth = await wires.pair()
    other = await wires.mouth().opened()

    mouth.connection.send(b"", b"x" * MAX_FRAME_BYTES)
    await until(lambda: ear.messages, "the largest frame arrived")
    mouth.connection.send(b"", b"x" * (MAX_FRAME_BYTES + 1))
    await until(lambda: "gone" in mouth.news, "the sender is out")
    other.connection.send(b"", b"another")

    await until(lambda: b"another" in ear.bodies, "the other one is heard")
    assert [len(body) for body in ear.bodies] == [MAX_FRAME_BYTES, 7]
    assert ear.gone == [ear.messages[0].route]


# --- missed wake-ups


async def test_no_wake_up_is_missed_when_both_ends_send_and_block(wires: Wires) -> None:
    """The descriptor is edge-triggered: a send, or a busy loop, may swallow the edge."""
    ear, mouth = await wires.pair()

    def answer_twice(message: Message) -> None:
        for _ in range(2):
            ear.listener.send(message.route, b"", message.body)

    async def speak(rounds: int) -> None:
        for number in range(rounds):
            mouth.connection.send(b"", b"%d" % number)
            if number % 7 == 0:
                # A callback that blocks: the loop sees nothing while edges come and go.
                sum(range(2_000))
            if number % 3 == 0:
                await asyncio.sleep(0)

    ear.then = answer_twice
    await asyncio.gather(*(speak(500) for _ in range(4)))

    await until(lambda: len(mouth.bodies) == 4_000, "every answer was read")


async def test_an_answer_sent_from_inside_a_turn_of_reading_arrives(wires: Wires) -> None:
    """Strict ping-pong leaves no second message that could wake a reader by luck."""
    ear, mouth = await wires.pair()

    def count_on(message: Message) -> None:
        number = int(message.body)
        if number < 2_000:
            mouth.connection.send(b"", b"%d" % (number + 1))

    mouth.then = count_on
    ear.then = lambda message: ear.listener.send(message.route, b"", message.body)
    mouth.connection.send(b"", b"1")

    await until(lambda: len(mouth.bodies) == 2_000, "every round was played")
    assert mouth.bodies[-1] == b"2000"


# --- paths


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_a_path_is_measured_in_bytes_and_refused_with_its_length_and_the_limit(
    letter: str,
) -> None:
    """A bare 'file name too long' helps nobody to choose another directory."""
    width = len(letter.encode())
    fitting = "/" + letter * ((MAX_PATH_BYTES - 1) // width)
    check_path(fitting)

    with pytest.raises(UsageError) as refused:
        check_path(fitting + letter * 2)

    length = len((fitting + letter * 2).encode())
    assert fitting in str(refused.value)
    assert str(length) in str(refused.value)
    assert str(MAX_PATH_BYTES) in str(refused.value)


def test_the_limit_is_that_of_libzmq() -> None:
    """It stands in a file that must not import it."""
    assert MAX_PATH_BYTES == zmq.IPC_PATH_MAX_LEN


async def test_ends_refuse_a_path_that_is_too_long_before_they_open_anything(
    wires: Wires,
) -> None:
    """Not even a socket is left behind."""
    long = "/tmp/" + "x" * MAX_PATH_BYTES
    with pytest.raises(UsageError):
        wires.ear(long)
    with pytest.raises(UsageError):
        wires.mouth(long)
    with pytest.raises(UsageError):
        BlockingConnection(long, 1_000)


async def test_a_listener_that_cannot_bind_says_why_and_leaves_nothing(wires: Wires) -> None:
    """The caller catches what any file operation would raise."""
    with pytest.raises(FileNotFoundError):
        wires.ear(f"{wires.path}.no/such/directory")

    assert (await wires.pair())[0].listener.closed is False


async def test_the_socket_is_its_owners_alone_whatever_the_umask(wires: Wires) -> None:
    """The mode of a socket file comes from the umask; ours must not come from the user's."""
    before = os.umask(0)
    try:
        wires.ear()
        assert os.umask(0) == 0
    finally:
        os.umask(before)

    assert stat.S_IMODE(Path(wires.path).stat().st_mode) & 0o077 == 0


async def test_binding_a_second_time_is_no_protection(wires: Wires) -> None:
    """libzmq takes a path over without a word: only the daemon's lock keeps two apart."""
    first = wires.ear()
    second = wires.ear()

    mouth = await wires.mouth().opened()
    mouth.connection.send(b"", b"who hears?")

    await until(lambda: second.messages, "the second one heard it")
    assert first.messages == []


@pytest.mark.parametrize("what", ["nothing", "file", "stale socket", "directory"])
def test_a_probe_says_at_once_that_nobody_listens(wires: Wires, what: str) -> None:
    """libzmq would try for ever."""
    match what:
        case "file":
            Path(wires.path).touch()
        case "directory":
            Path(wires.path).mkdir()
        case "stale socket":
            with socket.socket(socket.AF_UNIX) as stale:
                stale.bind(wires.path)

    with pytest.raises(NotReachable, match=wires.path):
        probe(wires.path)
    with pytest.raises(NotReachable, match="genagentd start"):
        BlockingConnection(wires.path, 60_000)


def test_a_probe_takes_a_full_backlog_for_a_busy_listener(wires: Wires) -> None:
    """Busy is not dead: taking it for dead would lead to a second one."""
    with crowded(wires.path):
        probe(wires.path)


@pytest.mark.parametrize("within_ms", [0, 20])
def test_who_listens_is_the_kernels_word_and_is_waited_for_only_so_long(
    wires: Wires, within_ms: int
) -> None:
    """Somebody who is there and lets nobody in is not nobody."""
    assert listener_pid(wires.path, within_ms) is None
    with crowded(wires.path) as busy:
        assert listener_pid(wires.path, within_ms) == 0

        while select.select([busy], [], [], 0)[0]:
            busy.accept()[0].close()

        assert listener_pid(wires.path, within_ms) == os.getpid()


def test_importing_the_look_at_a_path_does_not_load_libzmq() -> None:
    """The command line looks before it pays for anything."""
    assert "zmq" not in vars(socket_path)


# --- for code without a loop


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_who_ends_between_a_look_and_the_connection_is_not_waited_for(
    wires: Wires, looks: int
) -> None:
    """Nobody else would say that nothing comes any more: libzmq tries again, in a day."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as ends:
        ends.bind(wires.path)
        ends.listen(16)

        def end() -> None:
            for _ in range(looks):
                ends.accept()[0].close()
            os.unlink(wires.path)
            ends.close()

        ending = in_background(end)
        with pytest.raises(NotReachable, match="no daemon answers"):
            BlockingConnection(wires.path, 60_000)
        ending.result(30)


async def test_who_takes_the_place_of_one_that_ended_is_reached(wires: Wires) -> None:
    """Between a look and the connection there may be another one."""
    turned_away = socket.socket(socket.AF_UNIX)
    turned_away.bind(wires.path)
    turned_away.listen(16)
    connecting = asyncio.create_task(wires.blocking())
    for _ in range(3):
        (await asyncio.to_thread(turned_away.accept))[0].close()
    os.unlink(wires.path)
    ear = wires.ear()
    turned_away.close()

    connection = await connecting

    assert connection.send(b"header", b"hello")
    await until(lambda: ear.messages, "it was heard")


async def test_a_blocking_connection_talks_to_a_listener(wires: Wires) -> None:
    """The synchronous client is the same wire with another reader."""
    ear = wires.ear()
    connection = await wires.blocking()

    assert connection.send(b"header", b"question")
    await until(lambda: ear.messages, "it was heard")
    for number in range(3 * BATCH):
        ear.listener.send(ear.messages[0].route, b"", b"%d" % number)

    found: list[Message] = []
    while len(found) < 3 * BATCH:
        found += await asyncio.to_thread(received, connection, 30_000)
    assert [message.body for message in found] == [b"%d" % number for number in range(3 * BATCH)]
    assert ear.bodies == [b"question"]


async def test_taking_from_a_silent_connection_finds_nothing_and_does_not_wait(
    wires: Wires,
) -> None:
    """Waiting is the reader's own, on the descriptors, where a signal can end it."""
    wires.ear()
    connection = await wires.blocking()
    found: list[Message] = []

    assert not connection.take(found.append)
    assert found == []
    assert connection.open


async def test_a_blocking_reader_is_woken_by_the_end_and_drains_first(wires: Wires) -> None:
    """A wait without a limit must not outlive the daemon."""
    ear = wires.ear()
    connection = await wires.blocking()
    connection.send(b"", b"hello")
    await until(lambda: ear.messages, "the route is known")
    sent = [b"%d" % number for number in range(1_000)]
    for body in sent:
        ear.listener.send(ear.messages[0].route, b"", body)
    ear.listener.close(linger_ms=10_000)

    found: list[bytes] = []
    while connection.open:
        arrived = await asyncio.to_thread(received, connection, None)
        found += [message.body for message in arrived]

    assert found == sent
    assert received(connection) == []
    assert not connection.send(b"", b"too late")


async def test_a_blocking_connection_gives_up_on_a_listener_that_does_not_shake_hands(
    wires: Wires,
) -> None:
    """Something listens there, and it is stopped, or not ours."""
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(wires.path)
        mute.listen(5)

        with pytest.raises(NotReachable, match="within 20 ms"):
            await asyncio.to_thread(BlockingConnection, wires.path, 20)


def test_a_blocking_connection_has_one_deadline_for_all_that_it_waits_for(
    wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a look at a busy listener has taken is not there for shaking hands any more."""
    clock = [0.0]
    waited: list[int] = []

    def look(_path: str, within_ms: int) -> None:
        waited.append(within_ms)
        clock[0] += 4.0

    def hear(_socket: Socket, within_ms: int = 0) -> bool:
        waited.append(within_ms)
        return False

    monkeypatch.setattr(channels, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(channels, "probe", look)
    monkeypatch.setattr(Socket, "has_news", hear)

    for timeout_ms in (5_000, 3_000):
        with pytest.raises(NotReachable, match=f"within {timeout_ms} ms"):
            BlockingConnection(wires.path, timeout_ms)

    assert waited == [5_000, 1_000, 3_000, 0]


async def test_a_closed_blocking_connection_is_silent(wires: Wires) -> None:
    """Closing twice, and using it afterwards, is harmless."""
    wires.ear()
    connection = await wires.blocking()

    connection.close()
    connection.close()

    assert received(connection) == []
    assert not connection.send(b"", b"")


async def test_closing_twice_is_harmless(wires: Wires) -> None:
    """Ends close from several places; the first one does it."""
    ear, mouth = await wires.pair()

    for end in (ear.listener, mouth.connection, ear.listener, mouth.connection):
        end.close()

    assert ear.listener.closed
    assert mouth.connection.closed


# --- contexts


async def test_what_was_sent_with_a_linger_leaves_before_the_context_ends(wires: Wires) -> None:
    """A one-shot cast exits at once, and its message must not die with it."""
    ear, mouth = await wires.pair()
    theirs = sockets._contexts
    sockets._contexts = {}
    try:
        second = await wires.mouth().opened()
        second.connection.send(b"", b"a cast")
        second.connection.close(linger_ms=10_000)
        await asyncio.to_thread(sockets.end_context)
    finally:
        sockets._contexts = theirs

    await until(lambda: ear.messages, "it arrived")
    assert ear.bodies == [b"a cast"]
    assert mouth.connection.open


def test_ending_a_context_that_was_never_used_is_nothing() -> None:
    """Programs end it at exit without asking whether they ever connected."""
    theirs = sockets._contexts
    sockets._contexts = {}
    try:
        sockets.end_context()
    finally:
        sockets._contexts = theirs


def test_a_connection_needs_a_running_loop(wires: Wires) -> None:
    """A connection nobody reads would wait for ever."""
    with pytest.raises(RuntimeError):
        Connection(wires.path, lambda _m: None, lambda: None, lambda: None)


# --- room for more


class Room:
    """How many descriptors are said to be free; crowds are noted."""

    def __init__(self, free: int, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = free
        self.crowds: list[int] = []
        self.heard: list[bytes] = []
        self.gone: list[bytes] = []
        monkeypatch.setattr(kernel, "free_descriptors", lambda: self.free)
        monkeypatch.setattr(gate, "LOOK_AGAIN_S", 0.0)
        monkeypatch.setattr(gate, "RETIRED_S", 0.05)
        self.listener = Listener(
            path, lambda m: self.heard.append(m.body), self.gone.append, self.crowds.append
        )


@contextlib.contextmanager
def strangers(path: str, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that never say a word; who finds no place is left out."""
    came: list[socket.socket] = []
    try:
        for _ in range(count):
            stranger = socket.socket(socket.AF_UNIX)
            stranger.setblocking(False)
            came.append(stranger)
            try:
                stranger.connect(path)
            except BlockingIOError:
                break
        yield came
    finally:
        for stranger in came:
            stranger.close()


async def test_nobody_is_let_in_without_room_and_everybody_with(
    wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libzmq would take the process with it; who waits is let in later."""
    room = Room(2 * gate.PORTION + gate.SPARE - 1, wires.path, monkeypatch)
    wires.ends.append(room.listener)
    before = kernel.open_descriptors()
    mouth = wires.mouth()
    await until(lambda: room.crowds, "it was said that somebody waits")
    with strangers(wires.path, 100) as came:
        assert len(came) <= gate.PORTION
        for _ in range(100):
            await asyncio.sleep(0)
        assert not mouth.connection.open

        room.free += 1
        await mouth.opened()
        assert mouth.connection.send(b"header", b"body")
        await until(lambda: room.heard, "it was heard")

    assert room.crowds == [2 * gate.PORTION + gate.SPARE - 1]
    late = await wires.mouth().opened()
    mouth.connection.close()
    late.connection.close()
    await until(lambda: len(room.gone) == 1, "its end was told")
    await until(lambda: kernel.open_descriptors() <= before, "all came back")
    room.listener.close()
    assert not os.path.lexists(wires.path)


@pytest.mark.parametrize("free", [100, gate.ROOMY, gate.ROOMY + 1, 10_000])
async def test_who_comes_is_heard_however_much_room_there_is(
    wires: Wires, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """The way in changes with the room there is, also in between, and nothing else does."""
    room = Room(free, wires.path, monkeypatch)
    wires.ends.append(room.listener)
    monkeypatch.setattr(gate, "RECOUNT_S", 0.0)

    for number, now_free in enumerate([free, 100, 10_000, 100, 100, 10_000, free]):
        room.free = now_free
        mouth = await wires.mouth().opened()
        assert mouth.connection.send(b"header", b"%d" % number)
        await until(lambda: len(room.heard) > number, "it was heard")  # noqa: B023  # awaited here
        if number % 2:
            mouth.connection.close()

    await until(lambda: len(room.gone) == 3, "the ends were told")
    assert room.heard == [b"%d" % number for number in range(7)]
    assert stat.S_IMODE(os.stat(wires.path).st_mode) == 0o700
    assert os.listdir(os.path.dirname(wires.path)) == [os.path.basename(wires.path)]


@pytest.mark.parametrize("free", [100, 10_000])
async def test_a_path_that_is_somebody_elses_by_now_is_left_to_them(
    wires: Wires, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """An end would make another daemon unreachable that was started in a new directory."""
    room = Room(free, wires.path, monkeypatch)
    os.unlink(wires.path)
    other = wires.ear()

    room.listener.close()

    mouth = await wires.mouth().opened()
    assert mouth.connection.send(b"header", b"body")
    await until(lambda: other.bodies, "the other one is heard")


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("free", [100, 10_000])
async def test_a_listener_whose_file_was_removed_can_be_renewed(
    wires: Wires, monkeypatch: pytest.MonkeyPatch, free: int, left: bool
) -> None:
    """Whoever was connected stays so, and others come again."""
    room = Room(free, wires.path, monkeypatch)
    wires.ends.append(room.listener)
    first = await wires.mouth().opened()
    room.listener.gate.renew()
    os.unlink(wires.path)
    if left:  # by somebody who listened there since, and was killed
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(wires.path)
            killed.listen()

    room.listener.gate.renew()

    second = await wires.mouth().opened()
    for mouth in (first, second):
        assert mouth.connection.send(b"header", b"body")
    await until(lambda: len(room.heard) == 2, "both were heard")
