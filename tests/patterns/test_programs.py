"""Each pattern is a program: with a provider instead of written-down answers, unchanged."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
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


@pytest.mark.parametrize("name", PATTERNS)
def test_the_pattern_runs_with_a_provider(
    name: str, provider: Loopback, genagent_daemon: PrivateDaemon, genagent_client: Client
) -> None:
    """On the daemon that runs already, which keeps no agent of it."""
    provider.answers(Says(pieces=("Why", "?")))
    options = (f"base_url={provider.base_url}", "model=m")
    command = [sys.executable, "-m", f"examples.patterns.{name}", "--backend", "chat"]

    done = subprocess.run(
        [*command, *(word for option in options for word in ("-o", option))],
        cwd=ROOT,
        env=genagent_daemon.environment,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "private" not in done.stdout
    assert "Why?" in done.stdout
    assert provider.requests
    assert genagent_client.list() == ()
