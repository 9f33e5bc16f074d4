"""What the daemon believes of what agents say, and what it tells them about who watches."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol import codec, envelopes
from genagent_protocol.refs import BootId, Incarnation
from genagent_protocol.supervision import inputs
from genagentd.daemon.control import Daemon
from genagentd.daemon.switchboard import Port


@given(st.lists(st.sampled_from(["comes", "goes", "record"]), max_size=30))
def test_an_agent_is_told_of_watchers_as_often_as_it_must_be(done: list[str]) -> None:
    """Whoever comes and goes costs an agent that hears and says nothing one message at most."""
    port = Port(Incarnation(BootId("0" * 16), 1), "a", 1)
    said: list[bool] = []
    records: list[bytes] = []
    board: Any = SimpleNamespace(
        telemetry_watched=False,
        ports=lambda: [port],
        say=lambda _to, wanted: said.append(wanted.on),
        broadcast_telemetry=lambda body, _records: records.append(body),
    )
    daemon = Daemon.__new__(Daemon)
    daemon._board = board

    for what in done:
        if what == "record":
            daemon._take_record(port, b"record", 1)
            # It says more than anybody wants at most once.
            assert not said or said[-1] == board.telemetry_watched
            continue
        board.telemetry_watched = what == "comes"
        daemon._tell_telemetry()
        # Whoever watches has every agent speak at once.
        assert not board.telemetry_watched or said[-1]

    assert all(now != before for before, now in itertools.pairwise(said))
    assert said.count(False) <= len(records)


def test_nothing_is_believed_that_stands_behind_what_an_agent_may_not_say() -> None:
    """One message holds several envelopes, and its sender is cut off in the middle of it."""
    port = Port(Incarnation(BootId("0" * 16), 1), "a", 1)
    open_ports = {port.incarnation: port}
    facts: list[Any] = []
    life = SimpleNamespace(cut_off=open_ports.clear)
    daemon: Any = Daemon.__new__(Daemon)
    daemon._board = SimpleNamespace(port=open_ports.get)
    daemon._feed = facts.append
    daemon.shell = SimpleNamespace(lives={port.incarnation: life})
    leaving = codec.encode(envelopes.Leaving())
    hello = codec.encode(envelopes.Hello(min_version=1, max_version=1, software="x"))

    daemon._control(port, codec.join([leaving, hello, leaving, hello]))

    assert [type(fact) for fact in facts] == [inputs.LeavingSaid, inputs.AbuseSeen]
