"""The fixtures, as somebody uses them whose project has nothing of ours but the package."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import genagentd
from genagentd import Client
from genagentd.testing import Gates, Heard, PrivateDaemon, scripted

pytestmark = pytest.mark.process

_TESTS = """
from genagentd.testing import says, scripted


def test_leaves_an_agent_behind(genagent_client):
    options = scripted(says("hi"))
    genagent_client.start_agent(None, name="a", backend="scripted", options=options)
    assert genagent_client.ask("a", "x").text == "hi"


def test_finds_none(genagent_client, genagent_daemon):
    assert genagent_client.list() == ()
    print("RUN_DIR", genagent_daemon.run_dir)
"""


def _pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "GENAGENT_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_pytest_finds_the_fixtures_by_itself(tmp_path: Path) -> None:
    """No conftest, no configuration; agents are stopped between tests, the daemon at the end."""
    (tmp_path / "test_mine.py").write_text(_TESTS)

    done = _pytest(tmp_path, "-q", "-s")

    assert done.returncode == 0, done.stdout + done.stderr
    run_dir = done.stdout.partition("RUN_DIR ")[2].split()[0]
    assert not Path(run_dir).exists()


def test_the_fixtures_say_what_they_are(tmp_path: Path) -> None:
    """`pytest --fixtures` is where people look."""
    listed = _pytest(tmp_path, "--fixtures", "-q").stdout

    for fixture in ("genagent_daemon", "genagent_client", "genagent_heard", "genagent_gates"):
        assert fixture in listed
    assert "no docstring available" not in listed.partition("genagent_daemon")[2][:400]


def test_a_run_that_uses_no_fixture_carries_nothing_of_ours() -> None:
    """Every pytest in the environment loads the plugin: it must cost nothing."""
    (found,) = [e for e in entry_points(group="pytest11") if e.value.startswith("genagentd")]
    code = (
        f"import sys, {found.value}\n"
        "print([m for m in sys.modules if m.startswith(('genagentd.client', 'zmq', 'msgpack'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )

    assert done.stdout.strip() == "[]"


def test_the_product_needs_nothing_of_it() -> None:
    """What is for tests must not be carried by what runs."""
    package = Path(genagentd.__file__).parent
    users = [
        path
        for path in package.rglob("*.py")
        if "genagentd.testing" in path.read_text(encoding="utf-8")
        and path.parent != package / "testing"
    ]

    assert users == []


def test_the_fixtures_belong_together(
    genagent_client: Client,
    genagent_heard: Heard,
    genagent_gates: Gates,
    genagent_daemon: PrivateDaemon,
) -> None:
    """The gates are those of the agent, the mailbox is the client's, the daemon is running."""
    turn = [{"gate": "here"}, {"kind": "result", "text": "through"}]
    options = scripted(turn, gates=genagent_gates)
    handle = genagent_client.start_agent(None, name="a", backend="scripted", options=options)

    ref = genagent_client.at(handle).submit_with_completion("x").ref
    genagent_gates.wait_blocked("here")
    genagent_gates.release("here")

    assert genagent_heard.completion(ref).ref == ref
    assert genagent_client.daemon_status().pid == genagent_daemon.pid


_FAILS = """
from genagentd import Agent, NoReply, Started
from genagentd.testing import says, scripted


class Talks(Agent):
    def init_agent(self, options):
        print("this is the reason")
        return Started(options, None)

    def handle_response(self, ref, response, state):
        return NoReply(state)


def start(client, name):
    client.start_agent(Talks, name=name, backend="scripted", options=scripted(says("hi")))


def test_that_passes(genagent_client):
    start(genagent_client, "calm")


def test_that_fails(genagent_client):
    start(genagent_client, "loud")
    assert genagent_client.ask("loud", "x").text == "something else"
"""


def test_a_failure_shows_what_the_agents_printed(tmp_path: Path) -> None:
    """Their logs are in a directory that is gone when the run is over."""
    (tmp_path / "test_mine.py").write_text(_FAILS)

    done = _pytest(tmp_path, "-q")

    assert "1 failed, 1 passed" in done.stdout
    assert "printed by loud" in done.stdout
    assert "printed by calm" not in done.stdout  # that was another test's agent
    assert done.stdout.count("this is the reason") >= 1
