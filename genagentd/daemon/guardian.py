"""The guardian: a tiny parent of the daemon that outlives its death and nothing else.

When the daemon is killed, its agents die by parent-death signal, but a tool that a
provider started in a session of its own lives on, because its subreaper is gone.
So the first process forks the daemon and stays behind as the next subreaper: it
forwards signals, waits for the daemon, ends and reaps whatever is left below it,
and exits with the daemon's status. Nothing is below it that was there before.

This does not cover guardian and daemon killed together; under systemd the unit's
control group does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from types import FrameType

from genagentd import kernel
from genagentd.daemon.standard_error import StandardError
from genagentd.log_line import moment
from genagentd.private_files import DAEMON_LOG, open_appending

#: The signals that the guardian hands on.
FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
#: Those of them that end a daemon before it serves. The others are held back till it listens.
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
#: What a caller has ignored for a reason of its own: `nohup` lets nobody end before it has
#: handlers, and a terminal that is not ours is not to stop us.
_CALLERS_OWN = (signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

#: Where the guardian's lines go. The daemon's own log is opened anew for each of them: while we
#: wait, the daemon goes on in another file of that name, and this one may be removed.
_stream = StandardError(open_appending)


def begin() -> None:
    """Depend on nothing that this program's caller ignored or blocked; call it first of all."""
    kernel.take_signals_anew(but=_CALLERS_OWN)


def guard() -> None:
    """Fork; return in the child, which becomes the daemon. The parent never returns.

    Call it before threads, sockets and heavy imports exist. In the child the signals that ask
    for an end do what they do by default, and the other forwarded ones are blocked; call
    `hold_back` before anybody can reach it, and `listen` once it has its handlers, before it
    starts anything.
    """
    if not kernel.sees_itself():
        return  # The daemon refuses to run, and there is nothing that we could find.
    begin()
    # Until either of us is ready for them, signals must neither be lost nor kill the guardian.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    if kernel.children(os.getpid()):
        # What was begun here before this program was, by a shell that became it (`job & exec`),
        # is not ours to end, nor is what that begins later. The guardian is the parent of none
        # of it, and so is no subreaper of it either.
        guardian = _fork_aside()
        if guardian:
            os._exit(_status(_outlive(guardian)))
    kernel.adopt_orphans()
    daemon = _fork_aside()
    if daemon:
        code = _outlive(daemon)
        end_descendants()
        if code < 0 and -code not in (signal.SIGTERM, signal.SIGINT):
            # It could not say so itself, and its agents have ended with it. Of those two it dies
            # only before there is anybody who could.
            warn("daemon.killed", pid=daemon, signal=-code)
        os._exit(_status(code))
    # Until it serves there is nothing that would have to end in order, and much that can wait
    # for ever: for a network disk, or for a configuration that is typed in.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _fork_aside() -> int:
    """Fork a process that ends in order when we are gone; return its pid, and 0 in it."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        # A group of its own, or Ctrl-C in a terminal would arrive twice: once from there, once
        # forwarded, and the second one means force.
        os.setpgid(0, 0)
        # That group is never in the terminal's foreground, and where `stty tostop` is set its
        # first line there would stop the daemon for good.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        kernel.die_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
    return pid


def hold_back() -> None:
    """Keep the forwarded signals for `listen`, if that comes: an end is one in order now."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)


def listen() -> None:
    """Take the forwarded signals from now on, also those that were held back until now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def _outlive(daemon: int) -> int:
    """Forward signals to *daemon* until it ends, and none after that; return as `_wait_for`."""
    kernel.be_called("genagentd-guard")
    _let_go_of_log()
    pidfd = os.pidfd_open(daemon)

    def forward(number: int, _frame: FrameType | None) -> None:
        kernel.signal_pidfd(pidfd, signal.Signals(number))
        # Whoever is stopped would never hear of it.
        kernel.signal_pidfd(pidfd, signal.SIGCONT)

    for number in FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    code = _wait_for(daemon)
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    return code


def _status(code: int) -> int:
    """Return the exit status that stands for *code*, which is negative for a signal."""
    return code if code >= 0 else 128 - code


def _wait_for(daemon: int) -> int:
    """Reap everything that ends below us until *daemon* does.

    Return its exit status, or the number of the signal that ended it as a negative one.
    """

    def reap(_number: int, _frame: FrameType | None) -> None:
        for child in kernel.children(os.getpid()):
            # Another end may come between the look and the reaping, and with it we do.
            with contextlib.suppress(ChildProcessError):
                if child != daemon:
                    os.waitpid(child, os.WNOHANG)

    signal.signal(signal.SIGCHLD, reap)
    signal.raise_signal(signal.SIGCHLD)
    kernel.await_end(daemon)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    reaped, raw = os.waitpid(daemon, os.WNOHANG)
    if not reaped:
        # A tracer is told of its end first, and what the daemon left must not wait for that.
        code = kernel.exit_code(daemon)
        if code is not None:
            return code
        _, raw = os.waitpid(daemon, 0)
    return os.waitstatus_to_exitcode(raw)


def end_descendants() -> None:
    """Kill and reap every descendant of this process until none is left that can be killed.

    A dying process hands its children to us, so looking again and again finds them.
    Whoever runs as another user is left, and named on standard error.
    """
    while _one_round():
        pass
    for left in kernel.tree_below(os.getpid()):
        if not kernel.kill_exactly(left.pid, left.started_ticks):
            _name_left(left.pid)


def _one_round() -> bool:
    """Kill every descendant and reap our own; False if there was nothing to reap."""
    for below in kernel.tree_below(os.getpid()):
        kernel.kill_exactly(below.pid, below.started_ticks)
    found = False
    # Only our own children are looked at again each time: thousands may be nested.
    while any([_reaped(pid) for pid in kernel.children(os.getpid())]):  # noqa: C419  # all of them
        found = True
    return found


def _reaped(pid: int) -> bool:
    # One that came to us since the look at all of them lives, and waiting for one that cannot
    # be killed would never end; but that may be dead by itself.
    if kernel.kill_exactly(pid):
        kernel.await_end(pid)
    # Nor does one end our wait that is dead and kept by a tracer.
    return os.waitpid(pid, os.WNOHANG)[0] != 0


def _name_left(pid: int) -> None:
    user = kernel.user_of(pid)
    if user is not None:
        warn("orphan.immune", pid=pid, uid=user)


def _let_go_of_log() -> None:
    """Hold the daemon's own log no longer, if standard error goes there and can go there again.

    A file of that name that somebody else opened for us stays ours as it is.
    """
    with contextlib.suppress(OSError):
        there = os.readlink("/proc/self/fd/2")
        if os.path.basename(there) == DAEMON_LOG:
            os.close(open_appending(there))
            _stream.keep(there)
            _stream.let_go()


def warn(event: str, **facts: object) -> None:
    """Write one line, as the daemon's log has it, where that log goes now."""
    said = {**facts, "event": event, "level": "warning", "timestamp": moment()}
    # What nobody reads, and a terminal that is not ours, must not keep us from ending.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        _stream.reopen()
    _stream.write(f"{json.dumps(said)}\n")
