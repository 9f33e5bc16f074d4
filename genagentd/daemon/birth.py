"""What a newborn agent process does between its fork and its own first line.

The helper forks it as a sibling: the daemon is its real parent from the first moment
on, so its exit status is true, and its death signal fires when the daemon dies. The
helper announces the agent's pid; once the launch is over, whoever is not announced,
known or the helper is an orphan.

Said on the pipe: `pid N`, by the helper and by the agent, whoever comes first; then by
the agent `ready`, when it can be connected to.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import sys
import traceback
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn, Protocol

from genagentd import kernel

#: The agent's first module, by name: the daemon never imports it.
ENTRY = "genagentd.agent.entry"


class Duplicate(Protocol):
    """A descriptor on its way through the helper, as multiprocess carries it."""

    def detach(self) -> int:
        """Return the descriptor, which is the caller's from then on."""
        ...


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor that is handed to the newborn; the launcher says how it travels."""

    fd: int


def arrived(duplicate: Duplicate) -> Descriptor:
    """Return the descriptor as the newborn has it."""
    return Descriptor(duplicate.detach())


@dataclass(frozen=True, slots=True)
class Newborn:
    """Everything a newborn needs."""

    daemon: int
    socket: str
    cwd: str
    environ: dict[str, str]
    pipe: Descriptor
    log: Descriptor


def be_born(newborn: Newborn) -> bool:
    """Have the agent born, a child of our parent's; return whether it could be announced.

    Raises:
        OSError: no process could be started.
    """
    agent = kernel.fork_beside()
    if agent == 0:
        _live(newborn)
    try:
        _announce(newborn.pipe.fd, agent)
    except BrokenPipeError:
        return False  # The daemon gave this launch up; the agent is an orphan to it.
    return True


def _announce(pipe: int, pid: int) -> None:
    os.write(pipe, b"pid %d\n" % pid)


def be_born_and_leave(newborn: Newborn) -> NoReturn:
    """Run in a process that was started for this one birth."""
    os._exit(0 if be_born(newborn) else 1)


def _live(newborn: Newborn) -> NoReturn:
    pipe, log = newborn.pipe.fd, newborn.log.fd
    code = 1
    try:
        # The helper says it too, perhaps only after our `ready`.
        _announce(pipe, os.getpid())
        _settle(newborn, pipe, log)
        code = importlib.import_module(ENTRY).main(newborn.socket, pipe)
    except BaseException:  # noqa: BLE001  # this is the top of a process: its log gets the rest
        # The agent's code may have closed the streams, or put something of its own there.
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        _leave(code)


def _leave(code: int) -> NoReturn:
    """End with *code*, whatever the streams have become; what is not said yet is, if it can be."""
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
    finally:
        os._exit(code)


def _settle(newborn: Newborn, pipe: int, log: int) -> None:
    """Be the daemon's child and nobody's else, with exactly the given surroundings."""
    kernel.die_with_parent()
    if os.getppid() != newborn.daemon:
        os._exit(1)  # The daemon died meanwhile; its guardian has us now.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _leave_ends_to_the_daemon()
    os.setsid()
    kernel.adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _take_descriptors(pipe, log)
    os.environ.clear()
    os.environ.update(newborn.environ)
    os.chdir(newborn.cwd)


def _leave_ends_to_the_daemon() -> None:
    """Let the signals that ask for an end pass: only the daemon knows what is to become of it.

    A service manager may send them to the whole tree at once, and an agent that obeyed
    on its own would look as if it had crashed. Programs that it starts get the defaults
    by their exec, and so does a child that it forks.
    """
    agent = os.getpid()

    def asked(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != agent:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, asked)


def _take_descriptors(pipe: int, log: int) -> None:
    """Keep standard input (empty), the log as output and error, and the pipe; close the rest."""
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != pipe:
            try:
                os.close(fd)
            except OSError:
                continue  # The listing's own descriptor, closed already.
    # The helper's streams may be buffered for a file that is gone by now.
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
