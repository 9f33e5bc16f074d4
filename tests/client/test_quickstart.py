"""The quick start is a program that runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from genagentd import Client
from support.daemons import REPOSITORY, PrivateDaemon

pytestmark = pytest.mark.process

SCRIPT = REPOSITORY / "examples/quickstart.py"


def test_the_quick_start_runs_as_it_is_printed(house: PrivateDaemon) -> None:
    """What a stranger tries first: its agent is defined in the script itself."""
    done = run(house.environ)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "What does quickstart.py do?",
        "Add tests for it",
        f"{{'path': '{SCRIPT.parent}', 'responses': 2, 'events': ({{'ci_failed': 'test_auth'}},)}}",
    ]


def run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    if not SCRIPT.exists():
        pytest.skip("the examples are not part of an installed distribution")
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )


def test_without_a_daemon_it_says_so_in_one_line(tmp_path: Path, house: PrivateDaemon) -> None:
    """The step that is forgotten first."""
    done = run(house.environ | {"GENAGENT_RUN_DIR": str(tmp_path)})

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "genagentd start" in done.stderr


def test_a_backend_that_does_not_exist_is_one_line(house: PrivateDaemon) -> None:
    """What may be meant is in it."""
    done = run(house.environ, "claud")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "claud" in done.stderr


def test_a_name_that_somebody_has_is_one_line_and_he_keeps_it(house: PrivateDaemon) -> None:
    """What it did not start it does not stop."""
    with Client(house.run) as client:
        incumbent = client.start_agent(None, name="my-coder", backend="echo")

        done = run(house.environ)

        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "already_started" in done.stderr
        assert client.whereis("my-coder") == incumbent
        client.stop("my-coder")
