"""What a newborn agent process does between its fork and its own first line.

The helper forks it as a sibling: the daemon is its real parent from the first moment
on, so its exit status is true, and its death signal fires when the daemon dies. It does
all that needs to know nothing, lives one life that nobody hears, and waits at its cradle
for the order that says who it is to be; it can be found by the daemon by then. The helper
announces its pid with that order; once the launch is over, whoever is not announced,
known, waiting or the helper is an orphan.

Said on the pipe: `pid N`, by the helper and by the agent, whoever comes first; then by
the agent `ready`: it can be connected to.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn, Protocol

from genagentd import kernel
from genagentd.socket_path import of_agent

#: The agent's first module and what it tries out before, by name: the daemon imports neither.
ENTRY = "genagentd.agent.entry"
REHEARSAL = "genagentd.agent.rehearsal"
#: The most one order may take; the rest of a newborn's surroundings are descriptors.
MAX_ORDER_BYTES = 192 * 1024
#: Room for one whole order in a socket: what Linux allows everybody, unless it was told otherwise.
SOCKET_BYTES = 208 * 1024


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
    cwd: str
    environ: dict[str, str]
    pipe: Descriptor
    log: Descriptor


class BadOrder(ValueError):
    """An order that no newborn could be handed; the message says why."""


def write_order(newborn: Newborn) -> tuple[bytes, list[int]]:
    """Return the order that makes somebody *newborn*: text, and descriptors beside it.

    Raises:
        BadOrder: its environment takes too much, or holds what none can hold.
    """
    variables = [f"{name}={value}" for name, value in newborn.environ.items()]
    # None of it can hold a NUL, and so nothing grows on its way.
    fields = [str(newborn.daemon), newborn.cwd, *variables]
    order = os.fsencode("\0".join(fields))
    if order.count(b"\0") != len(fields) - 1:
        raise BadOrder("no variable holds a NUL character")
    if len(order) > MAX_ORDER_BYTES:
        raise BadOrder(
            f"the agent's environment and directory take {len(order)} bytes, the limit is "
            f"{MAX_ORDER_BYTES}: have the daemon pass less of its own (pass_env), or add less"
        )
    return order, [newborn.pipe.fd, newborn.log.fd]


def read_order(order: bytes, descriptors: list[int]) -> Newborn:
    """Return the newborn that an order describes, with the descriptors as they arrived."""
    daemon, cwd, *variables = os.fsdecode(order).split("\0")
    environ = dict(variable.split("=", 1) for variable in variables)
    pipe, log = map(Descriptor, descriptors)
    return Newborn(int(daemon), cwd, environ, pipe, log)


class Waiting:
    """A newborn that is to become whoever the first order says, and ends if none comes."""

    def __init__(self, directory: str) -> None:
        """Fork it, a child of our parent's, who finds it in *directory*.

        Raises:
            OSError: no process could be started.
        """
        ours, cradle = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self._ours = ours
        try:
            with cradle:
                self.pid = kernel.fork_beside()
                if self.pid == 0:
                    _live(cradle, directory)
        except OSError:
            ours.close()
            raise

    def become(self, order: bytes, descriptors: list[int]) -> bool:
        """Hand *order* over and announce the pid; return whether anybody wanted to know.

        Raises:
            ConnectionError: it has ended; the order is as good as new.
        """
        with self._ours:
            socket.send_fds(self._ours, [order], descriptors)
        try:
            _announce(descriptors[0], self.pid)
        except BrokenPipeError:
            return False  # The daemon gave this launch up; the agent is an orphan to it.
        return True


def _announce(pipe: int, pid: int) -> None:
    os.write(pipe, b"pid %d\n" % pid)


def be_born_and_leave(newborn: Newborn, directory: str) -> NoReturn:
    """Run in a process that was started for this one birth."""
    os._exit(0 if Waiting(directory).become(*write_order(newborn)) else 1)


def _live(cradle: socket.socket, directory: str) -> NoReturn:
    code = 1
    try:
        _settle(cradle)
        kernel.be_called("genagent-new")
        entry = importlib.import_module(ENTRY)
        pid = os.getpid()
        beginning = entry.Beginning(of_agent(directory, pid, kernel.started_ticks(pid)))
        # The daemon makes the directory anew, if it has to, before there is an order.
        with contextlib.suppress(OSError):
            beginning.be_found()
        importlib.import_module(REHEARSAL).begin_once()
        newborn = _wait(cradle)
        if newborn is None:
            # The helper is gone, and another one has newborns of its own.
            beginning.give_up()
            os._exit(0)
        # First of all: what fails from here on is told in the agent's own log.
        _take_streams(newborn.log.fd)
        beginning.be_found()
        _tell(newborn.pipe.fd)
        _become(newborn)
        code = entry.main(beginning)
    except BaseException:  # noqa: BLE001  # this is the top of a process: its log gets the rest
        # The agent's code may have closed the streams, or put something of its own there.
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        _leave(code)


def _wait(cradle: socket.socket) -> Newborn | None:
    """Return who we are to be, once somebody is wanted; None if nobody ever will be."""
    with cradle:
        text, descriptors, _, _ = socket.recv_fds(cradle, MAX_ORDER_BYTES, 2)
    return read_order(text, descriptors) if text else None


def _tell(pipe: int) -> None:
    """Say that we are there, and leave the pipe."""
    # The helper says the pid too, perhaps only after our `ready`.
    _announce(pipe, os.getpid())
    os.write(pipe, b"ready\n")
    os.close(pipe)


def _leave(code: int) -> NoReturn:
    """End with *code*, whatever the streams have become; what is not said yet is, if it can be."""
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
    finally:
        os._exit(code)


def _settle(cradle: socket.socket) -> None:
    """Be the daemon's child and nobody else's."""
    kernel.die_with_parent()
    _leave_ends_to_the_daemon()
    # Whatever the code and the programs of an agent do with signals begins here.
    kernel.take_signals_anew()
    os.setsid()
    kernel.adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _close_all_but(cradle.fileno())


def _become(newborn: Newborn) -> None:
    """Take exactly the given environment and directory."""
    if os.getppid() != newborn.daemon:
        os._exit(1)  # The daemon died before we could ask to die with it.
    os.environ.clear()
    os.environ.update(newborn.environ)
    _look_again()
    os.chdir(newborn.cwd)


def _look_again() -> None:
    """Have what was taken from the environment before, and kept, be taken from this one.

    Not what Python itself takes at its start: its own variables (PYTHON*), and the encoding
    of files and names by LANG and LC_*.
    """
    time.tzset()
    tempfile.tempdir = None


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


def _take_streams(log: int) -> None:
    """Have an empty standard input, and the log as output and error."""
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)
    # The helper's streams may be buffered for a file that is gone by now.
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def _close_all_but(kept: int) -> None:
    """Close every descriptor but the standard streams and *kept*."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != kept:
            try:
                os.close(fd)
            except OSError:
                continue  # The listing's own descriptor, closed already.
