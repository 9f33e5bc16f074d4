"""An agent in a callback hears what that callback waits for, however much else waits."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.envelopes import Telemetry
from genagent_protocol.errors import Refused, SendBufferFull
from genagent_protocol.refs import AgentHandle
from genagentd.client.client import Client
from genagentd.client.core import core_state
from genagentd.daemon.switchboard import AGENT_CAPACITY
from genagentd.outbox import WINDOW_BYTES
from support import fleet, held_agents
from support.daemons import PrivateDaemon
from support.waiting import until

pytestmark = pytest.mark.process

HEAVY = "x" * 1_048_000
#: Each goes into what the one before leaves free; the last is smaller than any word of the daemon.
SIZES = (100_000, 10_000, 1_000, 1)
#: More than the daemon hands on without credit, and more than it keeps for one agent.
OVER_THE_WINDOW = WINDOW_BYTES // len(HEAVY) + 2
OVER_THE_INBOX = OVER_THE_WINDOW + AGENT_CAPACITY.max_bytes // len(HEAVY) + 2


def held(client: Client, **terms: Any) -> AgentHandle:
    """Start the agent that is held, and another one for it."""
    client.start_agent(None, name="b", backend="echo")
    cwd = Path(held_agents.__file__).parents[1]
    return client.start_agent(
        "support.held_agents:Held", name="a", backend="echo", cwd=cwd, **terms
    )


def load(client: Client, times: int) -> None:
    """Have that many heavy notifications wait for it, and what little fits beside them."""

    def sent(event: str) -> bool:
        try:
            client.notify("a", event)
        except SendBufferFull:
            return False
        return True

    for event in [HEAVY] * times + [HEAVY[:size] for size in SIZES for _ in range(12)]:
        until(partial(sent, event), "there is room to send")
    client.list()  # On the same connection: all of them are at the daemon before the answer.


def let_go(handle: AgentHandle) -> None:
    os.kill(handle.pid, signal.SIGUSR1)


def shown(client: Client, lines: int) -> Any:
    """Return what it did, once it answers and there are so many things."""

    def state() -> Any:
        try:
            found: Any = client.status("a", timeout_ms=60_000).agent_state
        except Refused:  # What waits has filled its inbox.
            return None
        return found if len(found) >= lines else None

    return until(state, "it has done so much")


@pytest.mark.parametrize(
    ("wanted", "outcome"), [("ask", "hello"), ("whereis", "AgentHandle"), ("start", "started")]
)
@pytest.mark.parametrize("waiting", [OVER_THE_WINDOW, OVER_THE_INBOX])
def test_an_awaited_answer_arrives_whatever_else_waits(
    client: Client, wanted: str, outcome: str, waiting: int
) -> None:
    """Nothing but the return of the callback would make room for it."""
    a = held(client, may_start=True)
    client.notify("a", {"do": wanted})
    load(client, waiting)

    let_go(a)

    assert shown(client, 1) == (outcome,)


def test_a_persons_answer_arrives_whatever_other_clients_said(
    daemon: PrivateDaemon, client: Client
) -> None:
    """The yes that a callback waits for is not behind five large messages."""
    a = held(client)
    with Client(daemon.run) as person:
        functions = {"ask": lambda _arguments: "yes"}
        session = person.attach("a", catalogs=[held_agents.PERSON], functions=functions)
        served = threading.Thread(target=session.serve)
        served.start()
        client.notify("a", {"do": "call"})
        load(client, OVER_THE_WINDOW)

        let_go(a)

        assert shown(client, 1) == ("yes",)
        client.stop("a")
        served.join(60)


def test_a_callback_does_not_wait_for_a_person_who_left(
    daemon: PrivateDaemon, client: Client
) -> None:
    """Nobody would answer any more, whatever waits for the agent."""
    a = held(client)
    with Client(daemon.run) as person:
        person.attach("a", catalogs=[held_agents.PERSON], functions={"ask": lambda _a: "yes"})
        client.notify("a", {"do": "call"})
        load(client, OVER_THE_WINDOW)

    until(lambda: core_state(str(daemon.places.socket), 30_000).clients == 1, "the daemon knows")
    let_go(a)

    assert shown(client, 1)[0] in ("NO_CLIENT", "CANCELLED")


def test_a_monitor_is_told_once_and_in_its_place_however_much_waits(client: Client) -> None:
    """Exactly one Down, also past a full inbox, and behind what was said before."""
    a = held(client)
    client.notify_ack("a", {"do": "monitor"})
    client.notify("a", {"do": "held"})
    load(client, OVER_THE_WINDOW)
    client.notify("a", {"do": "said before"})
    load(client, OVER_THE_INBOX)

    client.stop("b")
    let_go(a)

    assert shown(client, 4) == ("watching", "held", "said before", "Down")


def test_an_agent_is_asked_to_stop_however_much_waits(
    daemon: PrivateDaemon, client: Client
) -> None:
    """First it is asked, then one waits, and only then is it killed."""
    a = held(client, limits={"shutdown_ms": None})
    client.at(a).monitor()
    client.notify("a", {"do": "held"})
    load(client, OVER_THE_INBOX)
    with Client(daemon.run) as other:
        stopping = threading.Thread(target=other.stop, args=("a",))
        stopping.start()
        until(lambda: "stopping" in [row.state for row in client.list()], "it is being stopped")

        let_go(a)

        assert fleet.down(client, a).reason.text == "shutdown"
        stopping.join(60)


def test_an_agent_hears_that_it_is_watched_however_much_waits(
    daemon: PrivateDaemon, client: Client
) -> None:
    """Who watches hears of an agent that runs already."""
    a = held(client)
    client.notify("a", {"do": "held"})
    load(client, OVER_THE_INBOX)
    with Client(daemon.run) as watcher:
        records = watcher.telemetry()

        let_go(a)

        # One that is its own: the daemon has records about it as well.
        assert records.receive(60_000, matching=_is_told_by_an_agent)


def _is_told_by_an_agent(message: object) -> bool:
    return isinstance(message, Telemetry) and message.incarnation is not None
