"""Each pattern is a program: with a provider instead of written-down answers, unchanged."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from genagentd import Client
from genagentd.testing import PrivateDaemon
from support.fake_provider import Says
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
