"""What happens before anything is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from genagentd.cli import main


@pytest.mark.parametrize(
    ("arguments", "guarded"),
    [
        (["run"], True),
        (["run", "--log-format", "json"], True),
        (["--debug", "run"], True),
        (["run", "--help"], False),
        (["start"], False),
        (["status", "run"], False),
        ([], False),
    ],
)
def test_only_run_forks_a_guardian(arguments: list[str], guarded: bool) -> None:
    """A guardian for anything else would only be in the way."""
    assert main._will_run(arguments) is guarded


def test_the_guardian_is_forked_before_anything_heavy_is_imported() -> None:
    """It stays as long as the daemon, so it must be small (D12)."""
    code = (
        "import sys; import genagentd.cli.main, genagentd.daemon.guardian\n"
        "heavy = ('click', 'zmq', 'asyncio', 'msgpack', 'structlog', 'genagent_protocol')\n"
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )

    assert done.stdout.strip() == "[]"
