"""The two programs, before anything heavy is imported.

`genagentd run` forks its guardian here, first of all: a guardian must be small, and a
fork after threads and sockets exist would be neither safe nor small.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

from genagentd import kernel
from genagentd.cli import streams
from genagentd.daemon import guardian

#: The modules that add commands to the program `genagent`.
_COMMANDS = ("lifecycle", "prompts", "tell", "attach", "looking", "logs")


def daemon_main() -> None:
    """Run the program `genagentd` and exit with its code."""
    streams.reopen_closed()
    # What is left of a child, and how a child is begun, must not depend on who began us.
    guardian.begin()
    if _will_run(sys.argv[1:]):
        kernel.be_called("genagentd")
        # Under a service manager the unit's control group does what the guardian would.
        if not os.environ.get("NOTIFY_SOCKET"):
            # Until the guardian is there, Ctrl-C just ends this process, without a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            guardian.guard()
    from genagentd.cli import daemon_commands, program

    sys.exit(program.run(daemon_commands.app, "genagentd", sys.argv[1:]))


def client_main() -> None:
    """Run the program `genagent` and exit with its code."""
    streams.reopen_closed()
    load_commands()
    from genagentd.cli import agents, program

    sys.exit(program.run(agents.app, "genagent", sys.argv[1:]))


def load_commands() -> None:
    """Let every module add its commands to the program `genagent`."""
    for module in _COMMANDS:
        importlib.import_module(f"genagentd.cli.{module}")


def _will_run(arguments: list[str]) -> bool:
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    return verb == "run" and not {"--help", "-h"} & set(arguments)
