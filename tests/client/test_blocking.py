"""The shell without a loop: no thread, one lock, one reader for all."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol import requests
from genagent_protocol.answers import Found, Listing, NotFound
from genagent_protocol.envelopes import Admission, Credit, Down, Reply, Request, Submit
from genagent_protocol.errors import (
    CallTimeout,
    DaemonLost,
    NotReachable,
    ProcessDown,
    SendBufferFull,
    UsageError,
    VersionMismatch,
)
from genagent_protocol.reasons import NOCONNECTION, NOPROC
from genagentd.client import conversation
from genagentd.client.captured import Captured
from genagentd.client.client import Client
from genagentd.client.core import core_state
from support.background import in_background
from support.fake_daemon import FakeDaemon, fake_daemon
from support.peer import a_ref, handle
from support.waiting import until


def listing(_request: Any) -> Listing:
    return Listing(rows=())


# --- connecting


def test_no_daemon_is_told_at_once(tmp_path: Path) -> None:
    """ZeroMQ itself would try for ever (D3)."""
    with pytest.raises(NotReachable, match="genagentd start"):
        Client(tmp_path).connect()


def test_a_daemon_of_another_version_is_told(nothing_left: None) -> None:
    """E039: typed, with both versions; and the core still answers."""
    with fake_daemon(version=2) as fake:
        with pytest.raises(VersionMismatch, match="2 to 2"):
            Client(fake.run).connect()
        assert core_state(fake.path, 5_000).software == "fake"


def test_a_daemon_that_does_not_welcome_is_not_waited_for_for_ever(fake: FakeDaemon) -> None:
    """The time to connect is bounded, whatever the other side does."""
    fake.silent = True

    with pytest.raises(NotReachable, match="50 ms"):
        Client(fake.run).connect(timeout_ms=50)


def test_a_client_is_made_without_connecting_and_connects_once(fake: FakeDaemon) -> None:
    """Constructing names a daemon; using what is not connected is a usage error."""
    client = Client(fake.run)
    with pytest.raises(UsageError, match="not connected"):
        client.list()

    with client, pytest.raises(UsageError, match="connected before"):
        client.connect()
    with pytest.raises(UsageError, match="closed"):
        client.list()


def test_a_client_that_was_not_closed_warns_and_leaves_nothing(fake: FakeDaemon) -> None:
    """The finalizer closes the socket, says whose fault it was, and raises nothing."""
    clients = [Client(fake.run).connect()]

    with pytest.warns(ResourceWarning, match="Client was not closed"):
        clients.clear()


# --- calls


def test_a_call_without_an_answer_ends_at_its_limit_and_the_next_one_is_right(
    fake: FakeDaemon,
) -> None:
    """E051: the late answer to the first question must not answer the second."""
    fake.answer = lambda request: (
        Found(handle=handle()) if isinstance(request, requests.Whereis) else None
    )
    with Client(fake.run) as client:
        with pytest.raises(CallTimeout, match="list got no answer within 20 ms"):
            client.list(timeout_ms=20)
        late = fake.wait_for(Request)
        fake.say(Reply(call=late.call, answer=Listing(rows=())))

        assert client.whereis("a", timeout_ms=5_000) == handle()


def test_a_call_by_handle_has_a_limit_of_its_own() -> None:
    """S119: five seconds by handle, none by name."""
    for name in ("poll", "cancel_request", "interrupt_request"):
        assert inspect.signature(getattr(Captured, name)).parameters["timeout_ms"].default == 5_000
    for name in ("ask", "tell", "poll", "cancel_request", "interrupt_request", "drain", "list"):
        assert inspect.signature(getattr(Client, name)).parameters["timeout_ms"].default is None


def test_the_end_of_an_agent_ends_the_calls_to_it(fake: FakeDaemon) -> None:
    """S118: a process failure, not an answer."""
    with Client(fake.run) as client:
        future = in_background(lambda: client.at(handle()).poll(a_ref(), None))
        watch = fake.wait_for(Request).request
        fake.say(Down(monitor=watch.monitor, handle=handle(), reason=NOPROC))

        with pytest.raises(ProcessDown, match="noproc"):
            future.result(10)


def test_the_loss_of_the_daemon_ends_a_call_without_a_limit(fake: FakeDaemon) -> None:
    """E050: nobody waits for ever; each monitor yields its DOWN."""
    with Client(fake.run) as client:
        monitor = client.at(handle()).monitor()
        future = in_background(client.list)
        fake.wait_for(Request, 2)

        fake.close()

        with pytest.raises(DaemonLost, match="nothing was changed"):
            future.result(10)
        down = client.receive()
        assert isinstance(down, Down)
        assert (down.monitor, down.reason) == (monitor, NOCONNECTION)
        with pytest.raises(DaemonLost, match="nothing more will arrive"):
            client.receive()
        with pytest.raises(DaemonLost, match="nothing was sent"):
            client.list()


# --- receiving


def test_receive_gives_up_after_its_limit_and_loses_nothing(fake: FakeDaemon) -> None:
    """None is no message; the next one is still the next one."""
    with Client(fake.run) as client:
        assert client.receive(0) is None
        assert client.receive(10) is None

        said = Admission(agent="a", ref=a_ref())
        fake.say(said)
        assert client.receive(10_000) == said


def test_iterating_yields_what_arrives_and_raises_when_nothing_more_can(fake: FakeDaemon) -> None:
    """A loop over messages does not end silently when the daemon is lost."""
    said = [Admission(agent="a", ref=a_ref(n)) for n in range(3)]
    with Client(fake.run) as client:
        fake.say(*said)
        heard = []
        for message in client:
            heard.append(message)
            if len(heard) == 3:
                break
        assert heard == said

        fake.close()
        with pytest.raises(DaemonLost):
            list(client)


# --- threads


def test_a_thread_that_waits_does_not_hold_up_a_thread_that_sends(fake: FakeDaemon) -> None:
    """Submitting never waits for anyone, least of all for a reader that sleeps."""
    with Client(fake.run) as client:
        future = in_background(client.receive)
        until(lambda: client.shell._reader is not None, "the other thread sleeps")

        sent = client.at(handle()).submit_with_completion("p")

        assert fake.wait_for(Submit).ref == sent.ref
        said = Admission(agent="a", ref=sent.ref)
        fake.say(said)
        assert future.result(10) == said


def test_whoever_sleeps_is_woken_by_news_that_another_thread_took_in(fake: FakeDaemon) -> None:
    """One reads for all: the answer of one may be on the socket with the message of another."""
    fake.answer = listing
    with Client(fake.run) as client, ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(client.list) for _ in range(400)]
        receivers = [pool.submit(client.receive, 30_000) for _ in range(4)]
        for number in range(4):
            fake.say(Admission(agent="a", ref=a_ref(number)))

        assert [future.result(30) for future in futures] == [()] * 400
        heard = [future.result(30) for future in receivers]
        assert {m.ref for m in heard if isinstance(m, Admission)} == {a_ref(n) for n in range(4)}


def test_no_message_is_missed_while_many_threads_send(fake: FakeDaemon) -> None:
    """E054: ZeroMQ's descriptor is edge-triggered, and sending may take the edge."""
    total = 2_000
    with Client(fake.run) as client, ThreadPoolExecutor(3) as pool:
        captured = client.at(handle())
        senders = [
            pool.submit(lambda: [captured.submit_with_completion("p") for _ in range(500)])
            for _ in range(2)
        ]
        for number in range(total):
            fake.say(Admission(agent="a", ref=a_ref(number)))
        heard = [client.receive(20_000) for _ in range(total)]

        assert [m.ref for m in heard if isinstance(m, Admission)] == [
            a_ref(n) for n in range(total)
        ]
        for sender in senders:
            sender.result(30)


def test_a_limit_is_kept_while_another_thread_reads(fake: FakeDaemon) -> None:
    """A follower wakes up by itself when its time is over."""
    with Client(fake.run) as client:
        future = in_background(lambda: client.receive(30_000))
        until(lambda: client.shell._reader is not None, "the other thread sleeps")

        with pytest.raises(CallTimeout):
            client.list(timeout_ms=20)

        fake.say(Admission(agent="a", ref=a_ref()))
        assert future.result(10) is not None


def test_closing_wakes_a_thread_that_waits(fake: FakeDaemon) -> None:
    """A receive in another thread ends with a typed error, not with the process."""
    with Client(fake.run) as client:
        future = in_background(client.receive)
        until(lambda: client.shell._reader is not None, "the other thread sleeps")

        client.close()

        with pytest.raises((DaemonLost, UsageError)):
            future.result(10)


def test_ctrl_c_in_the_reader_leaves_the_client_usable(fake: FakeDaemon) -> None:
    """The interrupted call is over, nothing it had taken is lost, and the others go on."""
    fake.answer = listing
    with Client(fake.run) as client:
        caller = threading.get_ident()

        def interrupt() -> None:
            until(lambda: client.shell._reader == caller, "the main thread sleeps")
            signal.pthread_kill(caller, signal.SIGINT)

        future = in_background(interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.receive()
        future.result(10)

        assert client.list(timeout_ms=10_000) == ()
        fake.say(Admission(agent="a", ref=a_ref()))
        assert client.receive(10_000) is not None


# --- the end


def test_closing_waits_until_the_daemon_has_read_what_was_sent(fake: FakeDaemon) -> None:
    """A program may notify, close and exit: the event is not lost with the process (D2)."""
    with Client(fake.run) as client:
        client.at(handle()).submit_with_completion("x" * 4_000_000)

    assert any(isinstance(envelope, Submit) for envelope in fake.heard)


def test_closing_does_not_wait_longer_than_its_linger(fake: FakeDaemon) -> None:
    """E052: a daemon that hangs does not keep its clients."""
    client = Client(fake.run).connect()
    client.at(handle()).submit_with_completion("p")
    fake.wait_for(Submit)
    fake.silent = True

    began = time.monotonic()
    client.close(linger_ms=50)

    assert time.monotonic() - began < 30


def test_a_client_used_after_a_fork_says_so_and_the_parent_goes_on(fake: FakeDaemon) -> None:
    """E055: the child must not touch the socket, and its exit must not close the parent's."""
    fake.answer = listing
    with Client(fake.run) as client:
        child = os.fork()
        if child == 0:
            os._exit(_in_the_child(client))
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert client.list(timeout_ms=10_000) == ()


def _in_the_child(client: Client) -> int:
    try:
        try:
            client.list()
        except UsageError as error:
            client.close()
            del client
            gc.collect()
            return 0 if "fork" in str(error) else 2
    except BaseException:
        traceback.print_exc()
    return 1


def test_closing_a_mailbox_that_watches_telemetry_tells_the_daemon(fake: FakeDaemon) -> None:
    """Nobody should be sent what nobody reads."""
    with Client(fake.run) as client:
        with client.telemetry() as mailbox:
            assert mailbox.count == 0
        off = fake.wait_for(Request, 2)

    assert off.request == requests.WatchTelemetry(on=False)


def test_what_was_received_is_credited(fake: FakeDaemon) -> None:
    """The daemon sends on only if it hears that we keep up."""
    with Client(fake.run) as client:
        for number in range(6):
            fake.say(Admission(agent="x" * 400_000, ref=a_ref(number)))
        for _ in range(6):
            assert client.receive(10_000) is not None

        assert fake.wait_for(Credit).bytes > 1_000_000


@pytest.mark.parametrize("what", ["cast", "call"])
def test_a_client_that_only_sends_hears_what_was_taken_in(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Nobody waits, so nobody reads: what was sent in all must not be held against it for ever."""
    fake.answer = lambda _request: NotFound()
    monkeypatch.setattr(conversation, "SEND_BOUND_BYTES", 8_000)
    with Client(fake.run) as client:
        to = client.at(handle())

        def goes() -> bool:
            try:
                to.submit_with_completion("x" * 1_000) if what == "cast" else to.poll(a_ref())
            except SendBufferFull:
                return False
            return True

        while goes():
            pass
        fake.say(Credit(messages=100, bytes=10**9))

        assert until(goes, "the credit is heard")


def test_a_poll_answer_is_returned(fake: FakeDaemon) -> None:
    """The plain way through, once."""
    fake.answer = lambda _request: NotFound()
    with Client(fake.run) as client:
        assert client.at(handle()).poll(a_ref()) == NotFound()
