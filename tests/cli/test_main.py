"""What happens before anything is imported."""

from __future__ import annotations

import signal
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


#: Runs a program, and presses Ctrl-C at the moment when it imports a module.
_PRESSED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module and name not in pressed:
            pressed.append(name)
            os.kill(os.getpid(), signal.SIGINT)
pressed, (module, program, ignored) = [], sys.argv[1:]
if ignored == "True":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.meta_path.insert(0, Finder())
sys.argv = [program, "--help"]
from genagentd.cli import main
getattr(main, program)()
"""


def _pressed(module: str, program: str, *, ignored: bool) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PRESSED, module, program, str(ignored)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("daemon_main", "genagentd.kernel"),
        ("daemon_main", "click"),
        ("daemon_main", "genagentd.cli.beginning"),
        ("client_main", "genagentd.cli.streams"),
        ("client_main", "click"),
        ("client_main", "genagentd.cli.logs"),
    ],
)
def test_ctrl_c_while_a_program_begins_ends_it_in_silence(program: str, module: str) -> None:
    """Each press in the first quarter of a second printed a traceback."""
    ended = _pressed(module, program, ignored=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_who_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    """As what a shell begins in the background does."""
    ended = _pressed("click", "client_main", ignored=True)

    assert (ended.returncode, ended.stderr) == (0, "")
