"""The quick start is a program that runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.daemons import REPOSITORY, PrivateDaemon

pytestmark = pytest.mark.process


def test_the_quick_start_runs_as_it_is_printed(house: PrivateDaemon) -> None:
    """What a stranger tries first: its agent is defined in the script itself."""
    script = REPOSITORY / "examples/quickstart.py"
    if not script.exists():
        pytest.skip("the examples are not part of an installed distribution")

    done = subprocess.run(
        [sys.executable, str(script)],
        env=house.environ,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "What does quickstart.py do?",
        "Add tests for it",
        f"{{'path': '{script.parent}', 'responses': 2, 'events': ({{'ci_failed': 'test_auth'}},)}}",
    ]
