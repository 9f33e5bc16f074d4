"""The approval example is a program that runs, whoever answers."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from genagentd import Client
from support.commands import command
from support.daemons import REPOSITORY, PrivateDaemon

pytestmark = pytest.mark.process

SCRIPT = REPOSITORY / "examples/approval.py"
TASK = "deploy build 9f2c to production"


@pytest.fixture(autouse=True)
def _examples() -> None:
    if not SCRIPT.exists():
        pytest.skip("the examples are not part of an installed distribution")


def run(house: PrivateDaemon, argv: list[str], answer: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env=house.environ,
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )


@pytest.mark.parametrize(
    ("answer", "told", "verdict"),
    [
        ("yes\n", TASK, "approved"),
        ("no\n", "the turn failed: pre_turn_skipped", "refused"),
        ("", "the turn failed: pre_turn_skipped", "not approved (NO_ANSWER)"),
    ],
    ids=["yes", "no", "nobody"],
)
def test_nothing_risky_runs_without_a_yes(
    house: PrivateDaemon, answer: str, told: str, verdict: str
) -> None:
    """The question reaches the person, and the answer decides; no answer is a no."""
    done = run(house, [sys.executable, str(SCRIPT)], answer)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"May I go on? {TASK}"
    assert lines[-1] == str([f"{verdict}: {TASK}"])
    assert told in done.stdout


@pytest.mark.parametrize("redirected", ["< /dev/null", "0> /dev/null", "<&-"])
def test_input_that_cannot_be_read_is_no_answer(house: PrivateDaemon, redirected: str) -> None:
    """At its end, not for reading, or closed: the agent hears at once that nobody answers."""
    argv = shlex.join([sys.executable, str(SCRIPT)])

    done = run(house, ["/bin/sh", "-c", f"{argv} {redirected}"], "")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str([f"not approved (NO_ANSWER): {TASK}"])


@contextmanager
def asked(house: PrivateDaemon) -> Iterator[subprocess.Popen[str]]:
    """The program, when it has shown its question."""
    with subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        env=house.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == f"May I go on? {TASK}\n"
        yield program


def test_ctrl_c_at_the_question_stops_the_agent(house: PrivateDaemon) -> None:
    """Nobody else would, and nothing is worth a traceback."""
    with asked(house) as program, Client(house.run) as client:
        assert program.stdout is not None
        assert program.stderr is not None

        program.send_signal(signal.SIGINT)

        assert program.wait(60) == 130
        assert program.stderr.read() == ""
        assert client.whereis("deployer") is None


def test_a_question_of_an_agent_that_died_keeps_nobody_waiting(house: PrivateDaemon) -> None:
    """Nobody types anything: the program ends all the same, and says why."""
    with asked(house) as program, Client(house.run) as client:
        assert program.stdout is not None
        assert program.stderr is not None
        deployer = client.whereis("deployer")
        assert deployer is not None

        os.kill(deployer.pid, signal.SIGKILL)

        assert program.wait(60) == 1
        said = program.stderr.read()
    assert "signal:9" in said
    assert said.count("\n") == 1


def test_a_terminal_answers_in_place_of_the_script(house: PrivateDaemon) -> None:
    """The catalog is the terminal's, so `genagent attach` fits."""
    started = run(house, [sys.executable, str(SCRIPT), "--only-start"], "")
    assert started.returncode == 0, started.stderr
    with subprocess.Popen(
        command("genagent", "attach", "deployer"),
        env=house.environ,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as terminal:
        assert terminal.stdin is not None
        assert terminal.stderr is not None
        assert terminal.stderr.readline() == "attached to deployer; Ctrl-C detaches\n"
        terminal.stdin.write("perhaps\nyes\n")
        terminal.stdin.flush()

        asked = run(house, command("genagent", "ask", "deployer", TASK), "")
        seen = run(house, command("genagent", "call", "deployer", "verdicts"), "")
        stopped = run(house, command("genagent", "stop", "deployer"), "")

        assert (asked.returncode, asked.stdout) == (0, f"{TASK}\n")
        assert seen.stdout == f'["approved: {TASK}"]\n'
        assert stopped.returncode == 0
        assert terminal.wait(60) == 0
        shown = terminal.stderr.read()
    assert shown.count("yes or no?") == 2
    assert "May I go on?" in shown
