"""Function calls between a client and an agent, over a real daemon, through every way they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.envelopes import Down
from genagent_protocol.errors import CallTimeout, FunctionFailed, Refused, StartFailed
from genagent_protocol.refs import AgentHandle
from genagentd.cli import exits
from genagentd.client.aio import AsyncClient
from genagentd.client.client import Client
from genagentd.client.session import Session
from genagentd.rpc import Catalog, Function
from support.commands import command
from support.daemons import PrivateDaemon
from support.desk import CATALOG
from support.waiting import until

pytestmark = pytest.mark.process

PERSON = Catalog(catalog_id=CATALOG, functions=(Function.made("ask", allowed_callers="agentOnly"),))
TESTS = str(Path(__file__).parents[1])


def begin(client: Client, agent: str = "Clerk", name: str = "clerk") -> AgentHandle:
    return client.start_agent(f"support.desk:{agent}", name=name, backend="echo", cwd=TESTS)


def attached(client: Client, answer: Any, name: str = "clerk") -> Session:
    return client.attach(name, catalogs=[PERSON], functions={"ask": answer})


def wanted(where: str, **more: object) -> str:
    return json.dumps({"call": "ask", "args": {"title": "Ship it?"}, "in": where, **more})


def settled(client: Client, count: int = 1, name: str = "clerk") -> list[Any]:
    """Return what became of the agent's calls, once there are so many."""

    def known() -> list[Any]:
        shown: Any = client.status(name).agent_state
        found = list(shown["settled"])
        return found if len(found) >= count else []

    return until(known, f"{count} calls are settled")


def question_is_here(client: Client, session: Session) -> None:
    """Wait until the agent's call has arrived; nobody looks at it yet."""

    def here() -> int:
        client.daemon_status()  # A blocking client takes in what has come only while it waits.
        return len(session._box)

    until(here, "the question has come")


def dropped(client: Client) -> Any:
    shown: Any = client.status("clerk").agent_state
    return shown["dropped"]


class Served:
    """A session that is served by a thread, until it is over."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._thread = threading.Thread(target=session.serve)

    def __enter__(self) -> Session:
        self._thread.start()
        return self.session

    def __exit__(self, *_: object) -> None:
        self.session.close()
        self._thread.join()


@pytest.mark.parametrize("where", ["turn", "async"])
def test_an_agents_call_is_resolved_once_with_what_its_client_answers(
    client: Client, where: str
) -> None:
    """From a turn and from an awaited callback alike (R111)."""
    begin(client)
    asked: list[Any] = []

    def answer(arguments: dict[str, Any]) -> object:
        asked.append(arguments)
        return {"approved": True}

    with Served(attached(client, answer)):
        client.ask("clerk", wanted(where))

        assert settled(client) == [{"approved": True}]
    assert asked == [{"title": "Ship it?"}]
    assert dropped(client) == 0


def test_a_request_is_not_waited_for_and_its_settlement_comes_as_an_event(client: Client) -> None:
    """An agent that must stay responsive asks so."""
    begin(client)

    with Served(attached(client, lambda _: "yes")):
        client.ask("clerk", wanted("request"))

        [event] = settled(client)
    assert event["value"] == "yes"
    assert event["function"] == "ask"


def test_a_plain_callback_cannot_wait_and_is_told_so(client: Client) -> None:
    """It would block the loop that has to take the answer."""
    begin(client)
    client.notify_ack("clerk", "def")

    assert settled(client) == ["UsageError"]


def test_a_call_that_nobody_serves_fails_at_once(client: Client) -> None:
    """Without a client an agent must not hang."""
    begin(client)
    client.ask("clerk", wanted("turn"))

    assert [call["code"] for call in settled(client)] == ["NO_CLIENT"]


@pytest.mark.parametrize("where", ["turn", "async", "request"])
def test_a_client_that_detaches_leaves_its_calls_cancelled(client: Client, where: str) -> None:
    """Also while a callback waits: the end of a session passes it (R112)."""
    begin(client)
    session = attached(client, lambda _: "too late")
    client.tell("clerk", wanted(where))
    question_is_here(client, session)

    session.close()

    [call] = settled(client)
    assert call.get("code", call.get("error", {}).get("code")) == "CANCELLED"


_ASKER = """
import sys
from genagentd import Client
from genagentd.rpc import Catalog, Function
catalog = Catalog(catalog_id=sys.argv[2],
                  functions=(Function.made("ask", allowed_callers="agentOnly"),))
def ask(arguments):
    print("asked", flush=True)
    sys.stdin.readline()
with Client(sys.argv[1]) as client, client.attach("clerk", catalogs=[catalog],
                                                  functions={"ask": ask}) as session:
    print("attached", flush=True)
    session.serve()
"""


@pytest.mark.parametrize("where", ["turn", "async"])
def test_a_client_that_is_killed_leaves_its_calls_cancelled(
    client: Client, daemon: PrivateDaemon, where: str
) -> None:
    """No word of goodbye is needed: its connection ended (R112)."""
    begin(client)
    with subprocess.Popen(
        [sys.executable, "-c", _ASKER, str(daemon.run), CATALOG],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as person:
        assert person.stdout is not None
        assert person.stdout.readline() == "attached\n"
        client.tell("clerk", wanted(where))
        assert person.stdout.readline() == "asked\n"

        person.kill()

        assert [call["code"] for call in settled(client)] == ["CANCELLED"]


def test_a_client_that_is_cut_off_leaves_its_calls_cancelled(
    client: Client, daemon: PrivateDaemon
) -> None:
    """It is connected still, and yet nothing of it can come; the next client is asked instead."""
    begin(client)
    with Client(daemon.run) as deaf, Client(daemon.run) as other:
        unread = attached(deaf, lambda _: "never")  # It takes nothing in, because it never waits.
        client.tell("clerk", wanted("request", big=1_000_000, count=80))

        events = settled(client, 80)
        with Served(attached(other, lambda _: "asked instead")):
            client.ask("clerk", wanted("turn"))
            assert settled(client, 81)[-1] == "asked instead"

        assert {event["error"]["code"] for event in events} == {"CANCELLED"}
        assert not unread.serve()
        assert unread.over == "the connection to the daemon is lost (noconnection)"


def test_a_function_that_ctrl_c_ends_leaves_its_caller_an_answer(client: Client) -> None:
    """Whoever pressed it may go on with the session, and the agent goes on at once."""
    begin(client)

    def interrupted(_arguments: object) -> object:
        raise KeyboardInterrupt

    with attached(client, interrupted) as session:
        client.tell("clerk", wanted("turn"))
        with pytest.raises(KeyboardInterrupt):
            session.serve()

        assert [call["code"] for call in settled(client)] == ["CANCELLED"]
        assert session.over is None


async def test_in_asyncio_a_function_that_will_not_be_cancelled_does_not_hold_the_close(
    daemon: PrivateDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is over all the same."""
    monkeypatch.setattr("genagentd.client.session.CANCEL_S", 0.05)
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def stubborn(_arguments: object) -> object:
        begun.set()
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        return None

    async with AsyncClient(daemon.run) as client:
        await client.start_agent("support.desk:Clerk", name="clerk", backend="echo", cwd=TESTS)
        session = await client.attach("clerk", catalogs=[PERSON], functions={"ask": stubborn})
        await client.tell("clerk", wanted("turn"))
        await begun.wait()

        await session.close()
        assert session.over == "the session was closed"
        let_go.set()


def test_a_code_of_any_length_is_an_answer_in_both_directions(client: Client) -> None:
    """Cut like the text: an answer that is larger than a message would never come."""
    begin(client)

    def fails(_arguments: object) -> object:
        raise FunctionFailed("C" * 17_000_000, "it failed")

    with Served(attached(client, fails)):
        client.ask("clerk", wanted("turn"))
        [call] = settled(client)
        assert (call["code"], call["text"]) == ("C" * 2_000, "it failed")
    with client.attach("clerk") as session:
        with pytest.raises(FunctionFailed) as failed:
            session.call("fails_at_length", timeout_ms=0)
        assert failed.value.code == "C" * 2_000


def test_a_late_answer_is_dropped_and_counted(client: Client) -> None:
    """The timer fires first, and the client is not asked again (R113)."""
    begin(client)
    asked: list[Any] = []

    def answer(arguments: dict[str, Any]) -> object:
        asked.append(arguments)
        assert settled(client)[0]["code"] == "TIMEOUT"
        return "too late"

    with Served(attached(client, answer)):
        client.ask("clerk", wanted("turn", timeout_ms=50))

        until(lambda: dropped(client) == 1, "the late answer is counted")
    assert [call["code"] for call in settled(client)] == ["TIMEOUT"]
    assert len(asked) == 1


def test_an_interrupted_turn_gives_its_call_up(client: Client) -> None:
    """Whoever stops waiting must not leave a call behind."""
    begin(client)
    session = attached(client, lambda _: "too late")
    client.tell("clerk", wanted("turn"))
    question_is_here(client, session)

    client.interrupt("clerk")
    until(lambda: client.status("clerk").state == "idle", "the turn has ended")

    session.serve(0)
    until(lambda: dropped(client) == 1, "the answer found nobody")
    assert session.over is None
    session.close()


@pytest.mark.parametrize(
    ("function", "arguments", "code"),
    [
        ("nothing_like_it", {}, "UNKNOWN_FUNCTION"),
        ("look_up_build", {"sha": 7}, "INVALID_FUNCTION_CALL"),
        ("look_up_build", {"sha": "unknown"}, "BUILD_UNKNOWN"),
        ("breaks", {}, "EXECUTION_ERROR"),
        ("exits", {}, "EXECUTION_ERROR"),
        ("unsendable", {}, "EXECUTION_ERROR"),
    ],
)
def test_a_call_that_fails_is_answered_with_its_code(
    client: Client, function: str, arguments: dict[str, Any], code: str
) -> None:
    """Whatever an agent's function does, its caller hears it and the agent lives (R114)."""
    handle = begin(client)
    with client.attach("clerk") as session:
        with pytest.raises(FunctionFailed) as failed:
            session.call(function, arguments)

        assert failed.value.code == code
        assert session.call("look_up_build", {"sha": "9f"}) == {"green": True, "sha": "9f"}
    assert client.whereis("clerk") == handle


def test_both_may_call_each_other_inside_a_call(client: Client) -> None:
    """The client that waits serves meanwhile, so neither waits for ever."""
    begin(client)
    with attached(client, lambda _: "asked back") as session:
        assert session.call("asks_back") == "asked back"


def test_a_function_that_never_comes_back_leaves_the_agent_alive(client: Client) -> None:
    """Its caller hears TIMEOUT; status, other calls, and an end in order go on."""
    begin(client)
    with client.attach("clerk") as session:
        with pytest.raises(FunctionFailed) as failed:
            session.call("hangs", timeout_ms=50)

        assert failed.value.code == "TIMEOUT"
        assert session.call("slowly", {"n": 1}) == {"n": 1}
        assert client.status("clerk").state == "idle"
        client.stop("clerk")
        assert not session.serve()
        assert str(session.ended) == "shutdown"


def test_an_agent_that_dies_leaves_no_call_hanging(client: Client) -> None:
    """Its end settles what was open in the session, after all that it had said (R115)."""
    handle = begin(client)
    monitor = client.at(handle).monitor()
    with client.attach(handle) as session:
        killer = threading.Timer(0.1, os.kill, (handle.pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(FunctionFailed) as failed:
            session.call("hangs", timeout_ms=0)
        killer.join()

        assert failed.value.code == "CANCELLED"
        assert "signal:9" in failed.value.text
        assert str(session.ended) == "signal:9"
        assert not session.serve()
        with pytest.raises(FunctionFailed) as refused:
            session.call("slowly")
        assert refused.value.code == "DISPOSED"
    down = client.receive(30_000)
    assert isinstance(down, Down)
    assert down.monitor == monitor


def test_a_daemon_that_dies_leaves_no_call_hanging(client: Client, daemon: PrivateDaemon) -> None:
    """Then nobody is left who could say DOWN, and the connection says it."""
    handle = begin(client)
    with client.attach(handle) as session:
        killer = threading.Timer(0.1, daemon.kill)
        killer.start()
        with pytest.raises(FunctionFailed) as failed:
            session.call("hangs", timeout_ms=0)
        killer.join()

        assert failed.value.code == "CANCELLED"
        assert "the connection to the daemon is lost" in failed.value.text
        assert "agent" not in str(session.over)


def test_a_command_that_loses_the_daemon_says_so(client: Client, daemon: PrivateDaemon) -> None:
    """With the exit code of what is uncertain: the function did not fail."""
    begin(client)
    called = subprocess.Popen(
        command("genagent", "call", "clerk", "begins", "--json"),
        env=daemon.environ,
        stdout=subprocess.PIPE,
    )
    with called:
        assert settled(client) == ["begun"]
        daemon.kill()
        assert called.stdout is not None
        told = json.loads(called.stdout.read())

    assert (called.returncode, told["error"]["code"]) == (exits.UNCERTAIN, "daemon_lost")
    assert told["error"]["details"] == {"code": "CANCELLED"}


def test_a_restarted_agent_is_another_and_knows_no_session(client: Client) -> None:
    """A session never turns to a successor of the same name."""
    begin(client)
    session = client.attach("clerk")
    client.stop("clerk")
    begin(client)

    with pytest.raises(FunctionFailed) as failed:
        session.call("look_up_build", {"sha": "9f"})

    assert failed.value.code in ("CANCELLED", "DISPOSED")
    session.close()


def test_the_first_client_that_serves_the_catalog_is_asked_and_no_other(
    client: Client, daemon: PrivateDaemon
) -> None:
    """A question goes to one person."""
    begin(client)
    with (
        Client(daemon.run) as other,
        client.attach("clerk"),
        Served(attached(other, lambda _: "first")),
        Client(daemon.run) as third,
        Served(attached(third, lambda _: "second")),
    ):
        client.ask("clerk", wanted("turn"))

        assert settled(client) == ["first"]


def test_an_agent_whose_functions_cannot_be_used_does_not_start(client: Client) -> None:
    """A schema that is none shows at once, and not to the first person who attaches."""
    with pytest.raises(
        StartFailed, match=r"BadClerk\.\w+: the schema of its arguments: "
    ) as failed:
        begin(client, "BadClerk")

    assert failed.value.reason.code == "init_failed"
    assert client.whereis("clerk") is None


def test_to_attach_to_nobody_is_refused(client: Client) -> None:
    """By its name, like every call by name."""
    with pytest.raises(Refused) as refused:
        client.attach("nobody")

    assert refused.value.reason.code == "not_found"


def test_an_attach_that_is_given_up_leaves_no_session(client: Client) -> None:
    """The agent opens it when it comes to it, and then hears that nobody wants it."""
    begin(client)
    holding = attached(client, lambda _: "done")
    client.tell("clerk", wanted("async"))
    question_is_here(client, holding)

    with pytest.raises(CallTimeout):
        client.attach("clerk", catalogs=[PERSON], timeout_ms=100)

    holding.close()
    settled(client)
    client.ask("clerk", wanted("turn"))
    assert [call["code"] for call in settled(client, 2)] == ["CANCELLED", "NO_CLIENT"]


async def test_in_asyncio_a_slow_function_does_not_hold_up_the_next(
    daemon: PrivateDaemon,
) -> None:
    """People take their time, and the client goes on."""
    both = asyncio.Event()
    waiting: list[int] = []

    async def ask(_arguments: dict[str, Any]) -> object:
        waiting.append(1)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return "both were asked"

    async with AsyncClient(daemon.run) as client:
        handles = [
            await client.start_agent("support.desk:Clerk", name=name, backend="echo", cwd=TESTS)
            for name in ("one", "two")
        ]
        sessions = [
            await client.attach(name, catalogs=[PERSON], functions={"ask": ask})
            for name in ("one", "two")
        ]
        values = await asyncio.gather(*(session.call("asks_back") for session in sessions))
        assert values == ["both were asked"] * 2

        with pytest.raises(FunctionFailed) as failed:
            await sessions[0].call("hangs", timeout_ms=50)
        assert failed.value.code == "TIMEOUT"
        for session in sessions:
            await session.close()
        os.kill(handles[0].pid, signal.SIGKILL)  # It still hangs in that function.


async def test_in_asyncio_the_end_of_the_agent_settles_its_calls(daemon: PrivateDaemon) -> None:
    """As in the blocking client."""
    async with AsyncClient(daemon.run) as client:
        handle = await client.start_agent(
            "support.desk:Clerk", name="clerk", backend="echo", cwd=TESTS
        )
        async with await client.attach("clerk") as session:
            hanging = asyncio.create_task(session.call("hangs", timeout_ms=0))
            await asyncio.sleep(0)
            os.kill(handle.pid, signal.SIGKILL)

            with pytest.raises(FunctionFailed) as failed:
                await hanging
            assert failed.value.code == "CANCELLED"
            assert not await session.serve()
