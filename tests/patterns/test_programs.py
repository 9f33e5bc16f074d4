"""Each pattern is a program: with a provider instead of written-down answers, unchanged."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from genagentd import Client
from genagentd.testing import PrivateDaemon, until
from support.fake_provider import Says, Sends
from support.provider_thread import Loopback, loopback

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        importlib.util.find_spec("httpx2") is None, reason="the extra `http` is not installed"
    ),
]

ROOT = Path(__file__).parents[2]
SHARED = ("company", "stage")
PATTERNS = sorted(
    path.stem for path in (ROOT / "examples/patterns").glob("*.py") if path.stem not in SHARED
)


@pytest.fixture(scope="module")
def provider() -> Iterator[Loopback]:
    """A server that speaks Chat Completions and always says the same."""
    with loopback(Says(pieces=("Why", "?"))) as running:
        yield running


def test_there_are_eleven() -> None:
    """And each has its page."""
    assert len(PATTERNS) == 11
    assert all((ROOT / f"docs/patterns/{name}.md").exists() for name in PATTERNS)


def _run(daemon: PrivateDaemon, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"examples.patterns.{name}", *arguments],
        cwd=ROOT,
        env=daemon.environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


def _chat(base_url: str) -> Sequence[str]:
    return ("--backend", "chat", "-o", f"base_url={base_url}", "-o", "model=m")


@pytest.mark.parametrize("name", PATTERNS)
def test_the_pattern_runs_with_a_provider(
    name: str, provider: Loopback, genagent_daemon: PrivateDaemon, genagent_client: Client
) -> None:
    """On the daemon that runs already, which keeps no agent of it."""
    provider.answers(Says(pieces=("Why", "?")))

    done = _run(genagent_daemon, name, *_chat(provider.base_url))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "private" not in done.stdout
    assert "Why?" in done.stdout
    assert provider.requests
    assert genagent_client.list() == ()


@pytest.mark.parametrize("name", PATTERNS)
def test_a_provider_that_is_not_there_is_one_line_and_leaves_no_agent(
    name: str, genagent_daemon: PrivateDaemon, genagent_client: Client
) -> None:
    """No traceback, no wait for what cannot come, and the next run finds its names free."""
    # Port 9 is `discard`: nothing listens there, and no server of a test ever does.
    done = _run(genagent_daemon, name, *_chat("http://127.0.0.1:9/v1"))

    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("failed: ")
    assert done.stderr.count("\n") == 1
    assert genagent_client.list() == ()


@pytest.mark.parametrize(
    ("name", "taken"), [("retry", "patient"), ("pipeline", "edit"), ("switchboard", "tests")]
)
def test_a_name_that_somebody_has_is_one_line_and_he_keeps_it(
    name: str, taken: str, genagent_daemon: PrivateDaemon, genagent_client: Client
) -> None:
    """Whatever the pattern had started before is stopped again."""
    incumbent = genagent_client.start_agent(None, name=taken, backend="echo")

    done = _run(genagent_daemon, name)

    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("failed: ")
    assert "already_started" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [row.handle for row in genagent_client.list()] == [incumbent]


def test_the_supervisor_counts_its_own_agents(
    genagent_daemon: PrivateDaemon, genagent_client: Client
) -> None:
    """A daemon that runs already has agents of others."""
    genagent_client.start_agent(None, name="stranger", backend="echo")

    done = _run(genagent_daemon, "supervisor")

    assert done.returncode == 0, done.stderr
    assert "its agents before clearing: 4" in done.stdout
    assert "its agents after clearing: 0" in done.stdout
    assert [row.name for row in genagent_client.list()] == ["stranger"]


@pytest.mark.parametrize("name", PATTERNS)
def test_ctrl_c_is_one_line_and_leaves_no_agent(
    name: str, provider: Loopback, genagent_daemon: PrivateDaemon, genagent_client: Client
) -> None:
    """In the middle of a turn that would go on: no traceback, and the code of an interrupt."""
    provider.answers(Sends(then="silence"))
    with subprocess.Popen(
        [sys.executable, "-m", f"examples.patterns.{name}", *_chat(provider.base_url)],
        cwd=ROOT,
        env=genagent_daemon.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        until(lambda: _working(genagent_client), "an agent is asking the provider")
        program.send_signal(signal.SIGINT)
        _, told = program.communicate(timeout=100)

    assert told == "interrupted; what it started is stopped\n"
    assert program.returncode == 130
    assert genagent_client.list() == ()


def _working(client: Client) -> bool:
    names = [row.name for row in client.list() if row.state == "running"]
    return any(client.runtime_snapshot(name).phase == "processing" for name in names)


def test_a_private_daemon_ends_with_a_pattern_that_is_interrupted(
    provider: Loopback, tmp_path: Path, nothing_left: None
) -> None:
    """Ctrl-C in a terminal reaches the whole group of the program; its daemon is not in it."""
    provider.answers(Sends(then="silence"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GENAGENT_")}
    with subprocess.Popen(
        [sys.executable, "-m", "examples.patterns.watcher", *_chat(provider.base_url)],
        cwd=ROOT,
        env=kept | {"GENAGENT_RUN_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        while "debug: tick" not in program.stdout.readline():
            pass
        os.killpg(program.pid, signal.SIGINT)
        _, told = program.communicate(timeout=100)

    assert told == "interrupted; what it started is stopped\n"
    assert program.returncode == 130


def test_options_for_no_backend_are_refused() -> None:
    """The written-down answers take none: whoever gives some has forgotten `--backend`."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.patterns.pool", "-o", "model=m"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 2
    assert "-o is for the backend: name it with --backend" in done.stderr


def test_a_pattern_that_is_run_as_a_file_says_how_it_is_run(genagent_daemon: PrivateDaemon) -> None:
    """Its agents are found as modules of the directory in which they work."""
    done = subprocess.run(
        [sys.executable, "examples/patterns/pool.py"],
        cwd=ROOT,
        env=genagent_daemon.environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert "run the script with python -m examples.patterns.pool" in done.stderr
