"""Calls by name, groups, telemetry and mailboxes, against a real daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from genagent_backends.gates import Gates
from genagent_protocol import answers, requests
from genagent_protocol.answers import NotFound, PollCompleted, PollFailed, PollPending
from genagent_protocol.envelopes import Admission, Completion, Down, Telemetry
from genagent_protocol.errors import (
    CallTimeout,
    NotReachable,
    ProcessDown,
    Refused,
    StartFailed,
    TurnFailed,
    UsageError,
)
from genagent_protocol.events import Completed
from genagent_protocol.reasons import (
    INTERRUPTED,
    NORMAL,
    SHUTDOWN,
    BackendFailed,
    Overloaded,
    Reason,
)
from genagent_protocol.refs import RequestRef
from genagentd.client.aio import AsyncClient
from genagentd.client.calls import Lost, PollResult
from genagentd.client.client import Client
from genagentd.client.spec import AgentSpec
from genagentd.client.waiting import settled
from support import fleet
from support.daemons import PrivateDaemon
from support.fleet import HANGS, SAYS
from support.waiting import until

pytestmark = pytest.mark.process

WITHIN_MS = 30_000


@pytest.fixture
def gates() -> Iterator[Gates]:
    with Gates() as opened:
        yield opened


def echo(client: Client, name: object = "a", **terms: object) -> None:
    client.start_agent(AgentSpec(agent=None, name=name, backend="echo", **terms))  # type: ignore[arg-type]  # as given


def polled(client: Client, name: object, ref: RequestRef) -> PollResult:
    """Poll until it is not pending any more."""

    def known() -> tuple[PollResult] | None:
        found = client.poll(name, ref)
        return None if isinstance(found, PollPending) else (found,)

    return until(known, "the request is over")[0]


# --- prompts


def test_ask_returns_the_response_of_the_turn(client: Client) -> None:
    """The whole way round, once."""
    echo(client)

    assert client.ask("a", "hello").text == "hello"


def test_ask_raises_what_the_turn_failed_of(client: Client) -> None:
    """The reason is the backend's own."""
    fleet.start(client, "a", [{"error": "quota"}])

    with pytest.raises(TurnFailed) as error:
        client.ask("a", "hello")
    assert error.value.reason == BackendFailed("quota")


def test_tell_is_polled_until_it_is_completed(client: Client, gates: Gates) -> None:
    """Pending while it runs, then the response, then not found for what nobody told."""
    turn = [{"gate": "g", "timeout_ms": 60_000}, *SAYS]
    fleet.start(client, "a", turn, options={"gate_dir": gates.directory})

    ref = client.tell("a", "p")
    gates.wait_blocked("g", WITHIN_MS)
    assert client.poll("a", ref) == PollPending()
    assert client.poll("a", ref.text) == PollPending()
    gates.release("g")

    known = polled(client, "a", ref)
    assert isinstance(known, PollCompleted)
    assert known.response.text == "done"


def test_tell_with_completion_sends_one_completion_here(client: Client) -> None:
    """Correlated by ref; it may arrive before the call returns (S070)."""
    echo(client)

    ref = client.tell_with_completion("a", "hello")

    completion = client.receive(WITHIN_MS)
    assert isinstance(completion, Completion)
    assert completion.ref == ref
    assert isinstance(completion.outcome, Completed)
    assert client.receive(0) is None


def test_a_completion_goes_to_another_client_if_that_is_the_recipient(
    client: Client, house: PrivateDaemon
) -> None:
    """S076: only the recipient gets it; an address is all that has to be handed over."""
    echo(client)
    with Client(house.run) as other:
        ref = client.tell_with_completion("a", "hello", other.address)

        assert fleet.completion(other, ref).ref == ref
        assert client.receive(0) is None


def test_a_dead_recipient_loses_its_message_and_nothing_else(
    client: Client, house: PrivateDaemon
) -> None:
    """S077: the agent lives and the result can be polled."""
    echo(client)
    with Client(house.run) as other:
        address = other.address

    ref = client.tell_with_completion("a", "hello", address)

    assert isinstance(polled(client, "a", ref), PollCompleted)


def test_a_prompt_arrives_byte_for_byte(client: Client) -> None:
    """Newlines, quotes, control characters and emoji, 200 kB of them."""
    echo(client)
    prompt = "line\r\n'\"\\ \x00\x1b[31m \U0001f600 ä\u2028" * 8_000

    assert client.ask("a", prompt).text == prompt


def test_a_large_prompt_is_refused_by_the_agents_bound_not_by_the_wire(client: Client) -> None:
    """Between the queue's bound and the wire's limit the agent decides (D.1)."""
    fleet.start(client, "a", HANGS, options={"max_pending_prompt_bytes": 10})
    client.tell("a", "runs at once, outside the pending caps")

    with pytest.raises(Refused) as error:
        client.tell("a", "x" * 5_000_000)

    assert isinstance(error.value.reason, Overloaded)
    assert error.value.reason.incoming_bytes > 5_000_000


# --- control


def test_interrupt_stops_what_is_active_and_the_exact_one_says_whether_it_was(
    client: Client,
) -> None:
    """Three answers of the exact form (S078)."""
    handle = fleet.start(client, "a", HANGS)
    ref = client.at(handle).submit_with_completion("p", stream_to=client.address).ref
    fleet.event(client, ref, "text")
    other = RequestRef(handle.incarnation, "0" * 32)

    assert client.interrupt_request("a", other) == "not_current"
    assert client.interrupt_request("a", ref) == "accepted"
    assert client.interrupt_request("a", ref) == "idle"
    assert client.poll("a", ref) == PollFailed(INTERRUPTED)

    again = client.at(handle).submit_with_completion("p", stream_to=client.address).ref
    fleet.event(client, again, "text")
    client.interrupt("a")
    fleet.completion(client, again)
    assert client.poll("a", again) == PollFailed(INTERRUPTED)


def test_a_halted_agent_goes_on_after_resume(client: Client) -> None:
    """It admits meanwhile."""
    echo(client)
    client.halt("a")

    ref = client.tell("a", "p")
    assert client.status("a").halted
    assert client.poll("a", ref) == PollPending()
    client.resume("a")

    assert isinstance(polled(client, "a", ref), PollCompleted)


def test_notify_ack_says_when_the_event_was_handled(client: Client) -> None:
    """The callback has run when it returns; the cast only says that it was sent."""
    client.start_agent("support.talkers:Noting", name="a", backend="scripted", cwd=fleet.HERE)

    client.notify("a", {"n": 1})
    client.notify_ack("a", {"n": 2})

    assert client.status("a").agent_state == ({"n": 1}, {"n": 2})


def test_notify_to_nobody_is_fine_and_notify_ack_is_not(client: Client) -> None:
    """A cast is best effort; an acknowledgement needs someone who gives it."""
    client.notify("nobody", 1)

    with pytest.raises(Refused) as error:
        client.notify_ack("nobody", 1)
    assert error.value.reason.code == "not_found"


def test_a_snapshot_shows_counts_and_identities(client: Client, gates: Gates) -> None:
    """And no prompt, however one looks at it."""
    turn = [{"gate": "g", "timeout_ms": 60_000}, *SAYS]
    fleet.start(client, "a", turn, options={"gate_dir": gates.directory})
    ref = client.tell("a", "secret words")
    gates.wait_blocked("g", WITHIN_MS)
    client.tell("a", "more secret words")

    snapshot = client.runtime_snapshot("a")

    assert (snapshot.phase, snapshot.pending_prompts, snapshot.halted) == ("processing", 1, False)
    assert snapshot.current_request is not None
    assert (snapshot.current_request.ref, snapshot.current_request.origin) == (ref, "tell")
    assert "secret" not in repr(snapshot)
    gates.release("g")
    gates.release("g")


def test_a_session_is_reset_between_turns_and_not_during_one(client: Client) -> None:
    """Done when it returns; refused with `busy` while a turn runs."""
    echo(client)
    before = client.ask("a", "p").session_id
    client.reset_session("a")
    assert client.ask("a", "p").session_id != before

    handle = fleet.start(client, "b", HANGS)
    ref = client.at(handle).submit_with_completion("p", stream_to=client.address).ref
    fleet.event(client, ref, "text")
    with pytest.raises(Refused) as error:
        client.reset_session("b")
    assert error.value.reason.code == "busy"


# --- life


def test_start_twice_is_refused_and_names_the_holder(client: Client) -> None:
    """The first agent is untouched."""
    echo(client)
    first = client.whereis("a")

    with pytest.raises(StartFailed) as error:
        echo(client)

    assert error.value.reason.kind == "already_started"
    assert client.whereis("a") == first


def test_an_agent_that_cannot_start_leaves_nothing(client: Client) -> None:
    """E026: typed, and the name is usable at once."""
    with pytest.raises(StartFailed) as error:
        client.start_agent("nowhere:Nothing", name="a", backend="echo")
    assert error.value.reason.kind in ("import_failed", "unknown_agent")

    echo(client)
    assert client.whereis("a") is not None


def test_stop_says_how_it_ended_and_frees_the_name(client: Client) -> None:
    """Gone when it returns."""
    echo(client)

    assert client.stop("a") == SHUTDOWN
    assert client.whereis("a") is None
    with pytest.raises(Refused):
        client.stop("a")


def test_drain_returns_when_the_agent_is_gone(client: Client, gates: Gates) -> None:
    """The active turn finishes first; what is queued is refused; a limit changes nothing."""
    turn = [{"gate": "g", "timeout_ms": 60_000}, *SAYS]
    handle = fleet.start(client, "a", turn, options={"gate_dir": gates.directory})
    client.at(handle).monitor()
    ref = client.tell_with_completion("a", "active")
    gates.wait_blocked("g", WITHIN_MS)

    with pytest.raises(CallTimeout, match="not gone yet; it goes on draining"):
        client.drain("a", timeout_ms=2_000)
    with pytest.raises(Refused) as refused:
        client.tell("a", "too late")
    gates.release("g")

    assert refused.value.reason.code == "draining"
    assert isinstance(fleet.completion(client, ref).outcome, Completed)
    assert fleet.down(client, handle).reason == NORMAL


def test_drain_of_an_idle_agent_just_ends_it(client: Client) -> None:
    """Nothing to finish."""
    echo(client)

    client.drain("a", WITHIN_MS)

    assert client.whereis("a") is None


def test_a_drain_that_ends_in_another_way_says_so(client: Client, gates: Gates) -> None:
    """Killed while draining is not drained."""
    turn: fleet.Turn = [{"gate": "g", "timeout_ms": 60_000}, {"os_exit": 9}]
    fleet.start(client, "a", turn, options={"gate_dir": gates.directory})
    client.tell("a", "p")
    gates.wait_blocked("g", WITHIN_MS)
    gates.release("g")

    with pytest.raises((ProcessDown, Refused)):
        client.drain("a", WITHIN_MS)


@pytest.mark.parametrize("name", [1, 1.5, True, None, b"\x00", ("a", 1), {"k": "v"}, "a/b ä\n"])
def test_any_name_works(client: Client, name: object) -> None:
    """D29: any value that can be sent, sequences as tuples."""
    echo(client, name)

    handle = client.whereis(name)

    assert handle is not None
    assert client.ask(name, "hello").text == "hello"
    assert [row.name for row in client.list()] == [handle.name]
    client.stop(name)


def test_a_handle_can_be_a_name_and_is_no_address(client: Client) -> None:
    """D29: not found unless an agent was registered under it."""
    echo(client)
    handle = client.whereis("a")
    assert handle is not None

    assert client.whereis(handle) is None
    with pytest.raises(Refused):
        client.ask(handle, "hello")

    echo(client, handle)
    other = client.whereis(handle)
    assert other is not None
    assert other.incarnation != handle.incarnation
    assert client.ask(handle, "hello").text == "hello"
    client.stop(handle)


def test_a_ref_of_a_life_that_is_over_is_lost(client: Client) -> None:
    """D28: by name lost, and its successor never heard of it."""
    echo(client)
    ref = client.tell("a", "p")
    client.stop("a")
    assert client.poll("a", ref) == Lost(ref)

    echo(client)

    assert client.poll("a", ref) == Lost(ref)


def test_a_ref_of_another_agent_is_not_found(client: Client) -> None:
    """It is not lost while its own agent lives."""
    echo(client, "a")
    echo(client, "b")
    ref = client.tell("a", "p")

    assert client.poll("b", ref) == NotFound()


# --- groups


def test_the_agents_of_a_group_end_with_it(client: Client) -> None:
    """D40: the owner's scope is their life."""
    echo(client, "outside")
    with client.group() as group:
        handle = group.start_agent(None, name="inside", backend="echo")
        client.at(handle).monitor()
        assert client.ask("inside", "hello").text == "hello"

    assert fleet.down(client, handle).reason == SHUTDOWN
    assert [row.name for row in client.list()] == ["outside"]


def test_stop_reaches_only_the_group_it_is_told(client: Client) -> None:
    """Names are unique across groups; stopping is not."""
    with client.group() as group:
        client.start_agent(None, name="a", backend="echo", group=group)

        with pytest.raises(Refused) as error:
            client.stop("a")
        with pytest.raises(StartFailed):
            echo(client, "a")
        assert error.value.reason.code == "not_found"
        assert group.stop("a") == SHUTDOWN


def test_a_group_that_is_not_open_starts_nothing(client: Client) -> None:
    """Before, after, and on another client's connection."""
    group = client.group()
    for said in ("is not open", "was closed"):
        with pytest.raises(StartFailed, match=said) as error:
            group.start_agent(None, name="a", backend="echo")
        assert error.value.reason.kind == "group_not_running"
        with pytest.raises(UsageError, match=said):
            group.stop("a")
        with group:
            pass
    assert client.list() == ()


def test_whoever_closes_a_group_again_waits_again(client: Client) -> None:
    """A close that ran out of time has stopped nobody yet."""
    with client.group() as group:
        group.start_agent(None, name="a", backend="echo")
        with pytest.raises(CallTimeout):
            group.close(timeout_ms=0)
        with pytest.raises(UsageError, match="not open"):
            group.stop("a")
        with pytest.raises(UsageError, match="closing"):
            group.open()

        group.close()

        assert client.list() == ()
        group.close()
        group.open().start_agent(None, name="a", backend="echo")
    assert client.list() == ()


async def test_a_group_of_a_loop_is_closed_again_too(house: PrivateDaemon) -> None:
    """The two shells keep the same promise."""
    async with AsyncClient(house.run) as client:
        async with client.group() as group:
            await group.start_agent(None, name="a", backend="echo")
            with pytest.raises(CallTimeout):
                await group.close(timeout_ms=0)
        assert await client.list() == ()


def test_a_group_ends_with_its_owner(client: Client, house: PrivateDaemon) -> None:
    """A dead owner's agents are stopped."""
    owner = Client(house.run).connect()
    handle = owner.group().open().start_agent(None, name="a", backend="echo")
    client.at(handle).monitor()

    owner.close()

    assert fleet.down(client, handle).reason == SHUTDOWN


# --- telemetry, mailboxes, the daemon


def test_telemetry_has_every_record_after_the_answer(client: Client) -> None:
    """E059: nothing of what happens after the call is missing."""
    with client.telemetry() as records:
        echo(client)
        client.ask("a", "hello")
        heard: list[str] = []
        while "turn.stop" not in heard:
            record = records.receive(WITHIN_MS)
            assert isinstance(record, Telemetry)
            heard.append(record.event)

    assert heard.index("agent.started") < heard.index("turn.start") < heard.index("turn.stop")
    assert client.receive(0) is None


def test_mailboxes_of_one_client_are_apart(client: Client) -> None:
    """Each has an address; a closed one loses what comes."""
    echo(client)
    handle = client.whereis("a")
    assert handle is not None
    with client.mailbox() as one, client.mailbox() as two:
        assert len({one.address, two.address, client.address}) == 3
        client.at(handle).submit_with_completion("p", one)
        client.at(handle).monitor(two)
        client.drain("a")

        assert [type(one.receive(WITHIN_MS)) for _ in range(2)] == [Admission, Completion]
        assert isinstance(two.receive(WITHIN_MS), Down)
    assert client.receive(0) is None


def test_an_agent_can_be_the_recipient(client: Client) -> None:
    """D32: the message reaches its `handle_info`; one that has none drops it."""
    echo(client, "a")
    echo(client, "b")
    other = client.whereis("b")
    assert other is not None

    ref = client.tell_with_completion("a", "p", other)

    assert isinstance(polled(client, "a", ref), PollCompleted)
    assert client.ask("b", "still here").text == "still here"
    assert client.receive(0) is None


def test_the_daemon_says_who_it_is(client: Client, house: PrivateDaemon) -> None:
    """For status and for tests."""
    state = client.daemon_status()

    assert (state.pid, state.ready, state.clients) == (house.pid, True, 1)


async def test_the_same_with_asyncio(house: PrivateDaemon) -> None:
    """One walk through the other shell."""
    async with AsyncClient(house.run) as client, client.group() as group:
        handle = await group.start_agent(None, name="a", backend="echo")
        captured = client.at(handle)
        await captured.monitor()
        sent = await captured.submit_with_completion("hello", stream_to=client.address)
        kinds = []
        async for message in client:
            kinds.append(type(message).__name__)
            if isinstance(message, Completion):
                break
        known = await captured.poll(sent.ref)
        assert isinstance(known, PollCompleted)
        assert (await client.ask("a", "again")).text == "again"
        assert await client.whereis("b") is None
        assert [row.name for row in await client.list()] == ["a"]
        assert await client.stop("a", group=group) == SHUTDOWN
        assert isinstance(await client.receive(WITHIN_MS), Down)

    assert kinds == ["Admission", "EventMessage", "EventMessage", "EventMessage", "Completion"]


def test_nothing_runs_for_a_daemon_that_was_not_there(house: PrivateDaemon) -> None:
    """E058: `not reachable`, and nothing is kept to be sent later."""
    with pytest.raises(NotReachable):
        Client(house.run / "elsewhere").connect()


# --- a client of another make


@pytest.mark.timeout(60)
def test_a_malformed_request_is_refused_by_whoever_cannot_read_it(client: Client) -> None:
    """It names the call that waits: to be counted and dropped would be to wait for ever."""
    echo(client)
    handle = client.whereis("a")
    assert handle is not None
    start = requests.StartAgent(name="b", agent=None, backend="echo", session=5)  # type: ignore[arg-type]  # that is the point
    poll = requests.Poll(ref=5)  # type: ignore[arg-type]  # that is the point
    before = client.daemon_status().bad_frames

    of_daemon = client.shell.run(settled(client.shell.talk.request("x", start)), None)
    of_agent = client.shell.run(
        settled(client.shell.talk.call("x", handle.incarnation, poll)), None
    )

    assert of_daemon == of_agent == answers.Refused(Reason("malformed_request"))
    assert client.daemon_status().bad_frames == before + 1
    assert [row.name for row in client.list()] == ["a"]
