"""What is typed and cannot be meant is said, in one line and with the code of a usage error."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from genagent_protocol.answers import AgentRow
from genagent_protocol.reasons import ExitReason
from genagentd import Refused
from genagentd.cli.standing import state_of
from genagentd.client.client import Client
from support.commands import Command, command
from support.daemons import PrivateDaemon
from support.waiting import until

pytestmark = pytest.mark.process

_AGENTS = """
import os
from genagentd import Agent, Started, NoReply

class Slow(Agent):
    def init_agent(self, options):
        with open(options["gate"], "rb") as gate:
            gate.read()
        return Started({}, None)

    def handle_response(self, ref, response, state):
        return NoReply(state)

class Clumsy(Slow):
    def init_agent(self, options):
        return Started(options, None)

    def handle_event(self, event, state):
        raise RuntimeError(event)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("start", "a", "-o", "chunk=4", "-o", "chunk=5"),
        ("start", "a", "--env", "A=1", "--env", "A=1"),
    ],
)
def test_what_is_given_twice_is_refused(genagent: Command, arguments: tuple[str, ...]) -> None:
    """Nobody could say which of the two is meant."""
    done = genagent(*arguments)

    assert done.code == 2
    assert "is given 2 times" in done.err
    assert genagent("list", "--json").json["agents"] == []


@pytest.mark.parametrize("verb", ["ask", "tell", "notify"])
def test_a_prompt_from_two_places_is_refused_by_that_name(
    genagent: Command, tmp_path: Path, verb: str
) -> None:
    """How a prompt may be given is another question."""
    done = genagent(verb, "a", "hi", "--file", str(tmp_path / "f"))

    assert done.code == 2
    assert "is given twice, as an argument and as --file; give one of them" in done.err


@pytest.mark.parametrize("agent", ["todo", "todo.py:Slow", "./todo.py:Slow", "a/b.py:Slow"])
def test_an_agent_that_is_spelled_as_a_file_is_a_usage_error(
    genagent: Command, tmp_path: Path, agent: str
) -> None:
    """As one without a class; what to write is said."""
    (tmp_path / "todo.py").write_text(_AGENTS)

    done = genagent("start", "a", "--agent", agent, "--cwd", str(tmp_path))

    assert done.code == 2
    assert "is not of the form package.module:Class" in done.err
    assert ("; write todo:Slow" in done.err) == ("todo.py" in agent)


def test_json_that_is_broken_is_sent_as_text_and_said(genagent: Command) -> None:
    """An event may be any text; that this was meant for one is unlikely."""
    genagent("start", "a")

    broken = genagent("notify", "a", '{"a":1')
    assert (broken.code, broken.out, broken.err) == (0, "sent\n", "sent as text: it is no JSON\n")
    for whole in ('{"a":1}', "a", "[1]", '"a'):
        assert genagent("notify", "a", whole).err == ""
    assert genagent("notify", "a", '{"a":1', "--json").err == ""


def test_a_table_stays_narrow_whatever_the_reason() -> None:
    """One agent that failed for a long reason would push all columns off the screen."""
    row = AgentRow(name="a", state="failed", reason=ExitReason("callback_failed", "x" * 900))

    assert len(state_of(row, 40)) < 60
    assert len(state_of(row)) < 250


def test_an_ack_comes_also_of_an_event_that_broke_the_callback(
    genagent: Command, tmp_path: Path
) -> None:
    """It says that the event was handled, and not how; the page says so, too."""
    (tmp_path / "agents.py").write_text(_AGENTS)
    start = ("start", "a", "--agent", "agents:Clumsy", "--cwd", str(tmp_path))
    assert genagent(*start).code == 0

    assert genagent("notify", "a", "--ack", "x").out == "accepted\n"


def test_a_start_that_nobody_waits_for_goes_on_and_says_so(
    house: PrivateDaemon, genagent: Command, tmp_path: Path
) -> None:
    """Ctrl-C is an end of the waiting, as with ask and tell."""
    (tmp_path / "agents.py").write_text(_AGENTS)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    given = ("start", "slow", "--agent", "agents:Slow", "--cwd", str(tmp_path))
    with subprocess.Popen(
        command("genagent", *given, "-o", f"gate={gate}"),
        env=house.environ,
        stderr=subprocess.PIPE,
        text=True,
    ) as start:
        writer = until(lambda: _opened(gate), "the agent is in its init_agent")
        start.send_signal(signal.SIGINT)
        _, told = start.communicate(timeout=60)

    assert start.returncode == 130
    assert told == (
        "genagent: stopped waiting; slow goes on starting "
        "(genagent status slow; genagent stop slow)\n"
    )
    os.close(writer)
    until(lambda: " running " in genagent("list").out, "it is ready")


def _opened(gate: Path) -> int | None:
    try:
        return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_python_says_of_a_stop_what_it_says_of_every_call(house: PrivateDaemon) -> None:
    """The name that nobody has."""
    with Client(house.run) as client, pytest.raises(Refused, match="no agent is named nobody"):
        client.stop("nobody")
