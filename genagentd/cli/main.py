"""The two programs, before anything is imported.

An import takes its time, and Ctrl-C in it ends the program as it ends any other: by the
signal, and in silence. `genagentd run` forks its guardian here, first of all: a guardian must
be small, and a fork after threads and sockets exist would be neither safe nor small.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

#: The modules that add commands to the program `genagent`.
_COMMANDS = ("lifecycle", "prompts", "tell", "attach", "looking", "logs")


def daemon_main() -> None:
    """Run the program `genagentd` and exit with its code."""
    _die_of_interrupts()
    from genagentd import kernel
    from genagentd.cli import streams
    from genagentd.daemon import guardian

    streams.reopen_closed()
    # What is left of a child, and how a child is begun, must not depend on who began us.
    guardian.begin()
    serves = _will_run(sys.argv[1:])
    if serves:
        kernel.be_called("genagentd")
        # Under a service manager the unit's control group does what the guardian would.
        if not os.environ.get("NOTIFY_SOCKET"):
            guardian.guard()
    from genagentd.cli import daemon_commands, program

    if not serves:
        _hear_interrupts()
    sys.exit(program.run(daemon_commands.app, "genagentd", sys.argv[1:]))


def client_main() -> None:
    """Run the program `genagent` and exit with its code."""
    _die_of_interrupts()
    from genagentd.cli import streams

    streams.reopen_closed()
    load_commands()
    from genagentd.cli import agents, program

    _hear_interrupts()
    sys.exit(program.run(agents.app, "genagent", sys.argv[1:]))


def _die_of_interrupts() -> None:
    """Have Ctrl-C end this process without a traceback, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _hear_interrupts() -> None:
    """Have it raise from now on: there is somebody who handles that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def load_commands() -> None:
    """Let every module add its commands to the program `genagent`."""
    for module in _COMMANDS:
        importlib.import_module(f"genagentd.cli.{module}")


def _will_run(arguments: list[str]) -> bool:
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    return verb == "run" and not {"--help", "-h"} & set(arguments)
