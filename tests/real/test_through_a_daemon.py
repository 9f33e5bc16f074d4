"""The real programs below a real daemon and agent, against a provider on loopback.

What a user would do on the first day: talk, let it use a tool, interrupt it, start it
again and go on, and find nothing left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.refs import AgentHandle
from genagentd.client.client import Client
from support.daemons import PrivateDaemon
from support.fake_provider import Answer, Says
from support.fleet import alive, gone, identities
from support.provider_thread import Loopback, loopback
from support.provider_turns import Heard, below, heard, start, submit, turn
from support.real_programs import claude, codex, duplex
from support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(120)]

TOOLS: dict[Any, Callable[[str], tuple[str, dict[str, object]]]] = {
    claude: lambda command: ("Bash", {"command": command, "description": "a test"}),
    duplex: lambda command: ("Bash", {"command": command, "description": "a test"}),
    codex: lambda command: ("exec_command", {"cmd": command, "login": False}),
}
ALLOWED: dict[Any, dict[str, object]] = {
    claude: {"allowed_tools": ["Bash"]},
    duplex: {"allowed_tools": ["Bash"]},
    codex: {"sandbox": "danger_full_access"},
}
each_program = pytest.mark.parametrize("program", [claude, duplex, codex])


@dataclass
class House:
    """A daemon, a provider, and agents that run one real program."""

    daemon: PrivateDaemon
    provider: Loopback
    home: Path
    program: Any

    def start(self, client: Client, **terms: Any) -> AgentHandle:
        options = self.program(self.home, self.provider, **ALLOWED[self.program])
        backend = "codex" if self.program is codex else "claude"
        chosen = {**options, "working_dir": str(self.home), "timeout_ms": 120_000}
        return start(client, backend, chosen, **terms)

    def tool(self, command: str) -> Answer:
        """Return an answer that has the program run *command*."""
        return Says(pieces=("Running",), tool=TOOLS[self.program](command))

    @property
    def told(self) -> str:
        """What the provider was last told."""
        return repr(self.provider.requests[-1].body)


@pytest.fixture
def house(daemon: PrivateDaemon, home: Path, program: Any) -> Iterator[House]:
    with loopback(Says()) as provider:
        yield House(daemon, provider, home, program)


def succeeded(done: Heard) -> Heard:
    assert done.ending == "completed", done.messages[-1]
    return done


@each_program
def test_a_conversation_with_a_tool_and_a_restart_of_everything(house: House) -> None:
    """The second turn knows the first, the tool really runs, and a new daemon goes on with it."""
    with Client(house.daemon.run) as client:
        handle = house.start(client)
        house.provider.answers(Says(pieces=("pears",)))
        first = succeeded(turn(client, handle, "apples"))
        wrote = house.home / "by-the-tool"
        house.provider.answers(house.tool(f"printf plums | tee {wrote}"), Says(pieces=("It ran.",)))
        second = succeeded(turn(client, handle, "figs"))
        told = house.told
        session = second.response.session_id
        left = below(handle)
        client.stop("a")

    logs = (house.daemon.places.logs / "a").glob("*.log")
    versions = [line for log in logs for line in log.read_text().splitlines() if "tested=" in line]
    house.daemon.stop()
    house.daemon.start()
    with Client(house.daemon.run) as client:
        again = house.start(client, session=session)
        house.provider.answers(Says(pieces=("after",)))
        third = succeeded(turn(client, again, "dates"))

    assert len(versions) == 1
    assert "unknown" not in versions[0]
    assert first.response.text == "pears"
    assert second.response.final_message == "It ran."
    assert wrote.read_text() == "plums"
    assert {"tool_use", "tool_result"} <= set(second.kinds)
    assert all(word in told for word in ("apples", "pears", "figs", "plums"))
    assert session is not None
    assert session == first.response.session_id
    assert len(left) == 0 or house.program is duplex
    assert third.response.text == "after"
    assert all(word in house.told for word in ("apples", "figs", "plums", "dates"))


@each_program
def test_an_interrupt_while_a_tool_runs_ends_the_tool_and_the_next_turn_goes_on(
    house: House,
) -> None:
    """Both programs start their tools in sessions of their own."""
    with Client(house.daemon.run) as client:
        handle = house.start(client)
        house.provider.answers(Says(pieces=("pears",)))
        succeeded(turn(client, handle, "apples"))
        tool = _busy_tool(house)
        ref = submit(client, handle, "figs")
        busy = identities([_pid_in(tool)])

        assert client.at(handle).interrupt_request(ref, timeout_ms=30_000) == "accepted"

        # A process that serves all turns is asked, not ended, and ends its tools on its own.
        if house.program is duplex:
            gone(busy, within_s=20)
        assert alive(busy) == []
        assert heard(client, ref).reason.code == "interrupted"
        assert below(handle) == [] or house.program is duplex
        house.provider.answers(Says(pieces=("after",)))
        after = succeeded(turn(client, handle, "dates"))
        assert after.response.text == "after"
        assert all(word in house.told for word in ("apples", "dates"))


@each_program
def test_a_program_in_a_tool_goes_with_the_daemon_that_was_killed(house: House) -> None:
    """The guardian ends what nobody else can."""
    with Client(house.daemon.run) as client:
        handle = house.start(client)
        tool = _busy_tool(house)
        submit(client, handle, "figs")
        busy = identities([_pid_in(tool)])
        everything = [*busy, *below(handle), (handle.pid, handle.started_ticks)]

        house.daemon.kill()

        gone(everything, within_s=20)


def _busy_tool(house: House) -> Path:
    """Have the next turn run a tool that does not end; return where it writes its pid."""
    pid = house.home / "pid"
    code = f"import os,time; open({str(pid)!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(600)"
    house.provider.answers(house.tool(f'python3 -c "{code}"'), Says())
    return pid


def _pid_in(path: Path) -> int:
    return int(until(lambda: path.read_text() if path.exists() else "", "the tool has begun"))
