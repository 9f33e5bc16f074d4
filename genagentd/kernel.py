"""What only the Linux kernel can say or do: identities, pidfds, parents, orphans.

A process is identified by its pid and the tick it started at, never by its name;
it is signalled through a pidfd, so that no signal can reach a stranger who got the
same number. Standard library only and cheap to import: the guardian and every
newborn agent start with this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import select
import signal
import stat as modes
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

#: How often to ask for the exit code of a dead process whose tracer keeps it to itself.
UNTOLD_S = 1.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15
#: What the kernel keeps of a process's name.
_NAME_BYTES = 15

#: `clone(2)` has a number of its own on each architecture; `clone3`, which has one for all, is
#: closed in many containers.
_CLONE = {
    "x86_64": 56,
    "aarch64": 220,
    "riscv64": 220,
    "loongarch64": 220,
    "ppc64le": 120,
}
_CLONE_PARENT = 0x8000

#: How many users a namespace holds that leaves out nobody.
_ALL_USERS = 2**32 - 1

#: What a process may open that may open as many as it likes.
_UNLIMITED = 1_048_576

_libc = ctypes.CDLL(None, use_errno=True)
#: The same library, called without letting go of the interpreter's lock.
_libc_locked = ctypes.PyDLL(None, use_errno=True)


class Stat(NamedTuple):
    """The parts of `/proc/<pid>/stat` that identify a process and say how it is."""

    pid: int
    state: str
    parent: int
    session: int
    threads: int
    started_ticks: int

    @property
    def ended(self) -> bool:
        """Whether it runs no more, reaped or not: the only question that `state` alone misleads.

        The state is the first thread's. Where that has ended before the others, a process
        that lives has the state of a dead one.
        """
        return self.state in "ZX" and self.threads <= 1


def _prctl(option: int, value: int | bytes) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value!r}): {os.strerror(code)}")


def be_called(name: str) -> None:
    """Have `ps` and `top` show this process as *name*, as much of it as the kernel keeps.

    For people: nothing here finds a process by its name. Call it from the first thread.
    """
    # Where a filter forbids that, nobody is the worse for it.
    with contextlib.suppress(OSError):
        _prctl(_PR_SET_NAME, name.encode()[:_NAME_BYTES].decode(errors="ignore").encode())


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies (child subreaper)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Ask for *number* when the thread that is this process's parent ends.

    This does not help if the parent is dead already: compare `os.getppid()` after
    the call. A fork clears it.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def take_signals_anew(but: Collection[signal.Signals] = ()) -> None:
    """Block no signal, and have each that is ignored do what it does by default, except for *but*.

    A program begins with what its parent ignored and blocked. Who ignores SIGCHLD hears of no
    child, and a blocked signal is one that never comes. What has a handler keeps it, and what
    the interpreter itself ignores (SIGPIPE, SIGXFSZ) stays so.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, *but}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def fork_beside() -> int:
    """Fork a process that is not our child but our parent's, from its first moment on.

    Returns its pid, or 0 in the new process. What `os.register_at_fork` knows is done as
    `os.fork` does it. Only for a process with one thread: the C library is not told, so
    its own locks stay as they are, and its handlers for forks do not run.

    Raises:
        OSError: the system does not allow it, or this architecture is none that we know.
    """
    number = _CLONE.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"clone(2) has no known number on {platform.machine()}")
    flags = ctypes.c_long(_CLONE_PARENT | signal.SIGCHLD)
    nothing = ctypes.c_long(0)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc_locked.syscall(ctypes.c_long(number), flags, *[nothing] * 4)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    code = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, f"clone: {os.strerror(code)}")
    return pid


def wake_in_silence() -> None:
    """Have nothing printed where more signals come than the loop takes; it wakes all the same.

    Call it behind asyncio's own `add_signal_handler`, which asks for a traceback each time.
    """
    signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)


def stat(pid: int) -> Stat | None:
    """Return what `/proc` says about *pid*, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command stands in parentheses and may contain anything, parentheses too.
    fields = text[text.rindex(b")") + 2 :].split()
    parent, session, threads, started = (int(fields[place]) for place in (1, 3, 17, 19))
    return Stat(pid, fields[0].decode(), parent, session, threads, started)


def started_ticks(pid: int) -> int:
    """Return the tick *pid* started at, or 0 if there is no such process."""
    found = stat(pid)
    return 0 if found is None else found.started_ticks


def ticks_now() -> int:
    """Return the present moment in the unit of `started_ticks`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def is_alive(pid: int, ticks: int) -> bool:
    """Whether exactly this process runs: same number, same start, and not a zombie."""
    found = stat(pid)
    return found is not None and found.started_ticks == ticks and not found.ended


def exit_code(pid: int) -> int | None:
    """Return the exit code of a dead process that nobody reaped, negative for a signal.

    For one that is traced: its tracer is told of its end first, and till then its parent is not.
    None if we cannot know: one that ran as another user may not let us.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            status = int(file.read().split()[-1])
    except OSError:
        return None
    # Whoever may not know it is shown a zero.
    return None if status == 0 and _hides(pid) else os.waitstatus_to_exitcode(status)


def end_of_child(pid: int, pidfd: int) -> int | None:
    """Reap the dead child *pid*, held as *pidfd*, and return its exit code, negative for a signal.

    A tracer may keep it for as long as it likes. It is dead all the same, and its code is told if
    it can be known; whoever looks for orphans reaps it later. None asks to be asked again, after
    `UNTOLD_S`.

    Raises:
        ChildProcessError: somebody else has reaped it.
    """
    found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    if found is None:
        return exit_code(pid)
    return found.si_status * (1 if found.si_code == os.CLD_EXITED else -1)


def _hides(pid: int) -> bool:
    """Whether the dead process *pid* keeps from us what only some may know."""
    try:
        os.readlink(f"/proc/{pid}/cwd")
    except OSError as error:
        return error.errno != errno.ENOENT  # Who may look finds that the dead have none.
    return True


def await_end(pid: int) -> None:
    """Return when *pid* has ended, whether it can be reaped or not; at once if there is none."""
    pidfd = open_pidfd(pid)
    if pidfd is not None:
        look = select.poll()
        look.register(pidfd, select.POLLIN)
        look.poll()
        os.close(pidfd)


def command_of(pid: int) -> str:
    """Return the name that *pid* goes by, empty if there is no such process. It proves nothing."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read().decode("utf-8", "replace").removesuffix("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # A process may call itself whatever it likes.
    return "".join(character if character.isprintable() else "?" for character in name)


def children(pid: int) -> list[int]:
    """Return the direct children of *pid*, zombies too."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += _children_of_task(pid, task)
    return found


def _children_of_task(pid: int, task: str) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> Iterator[int]:
    """Yield every descendant of *pid*, parents before children. A snapshot, not a promise."""
    # However deep they are nested: what a turn begins is not bounded by our own stack.
    waiting = children(pid)
    while waiting:
        child = waiting.pop()
        yield child
        waiting += children(child)


def tree_below(pid: int) -> list[Stat]:
    """Return every descendant of *pid* as it is now, parents before children.

    It is whole before anything is done to it: who kills while it looks loses the children of
    each that dies at once, and finds them one level at a time where they are adopted.
    """
    return [found for below in descendants(pid) if (found := stat(below)) is not None]


def open_pidfd(pid: int) -> int | None:
    """Return a pidfd of *pid*, closed on exec, or None if there is no such process."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def signal_pidfd(pidfd: int, number: signal.Signals) -> bool:
    """Send *number* to exactly that process; False if that cannot be: nothing was sent.

    It is gone, or it runs as somebody else (what `sudo` started) and is beyond us.
    """
    try:
        signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_exactly(pid: int, ticks: int | None = None) -> bool:
    """SIGKILL *pid* through a pidfd, if it still is the process that started at *ticks*.

    False if nothing was sent; one that is dead and not reaped takes it like one that lives.
    """
    pidfd = open_pidfd(pid)
    if pidfd is None:
        return False
    try:
        if ticks is not None and started_ticks(pid) != ticks:
            return False
        return signal_pidfd(pidfd, signal.SIGKILL)
    finally:
        os.close(pidfd)


def sees_itself() -> bool:
    """Whether `/proc` is the one of our pid namespace; otherwise it is of no use to us."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def writes_removed(pid: int) -> bool:
    """Whether standard error of *pid* is a file that was removed; False if nobody can tell."""
    try:
        found = os.stat(f"/proc/{pid}/fd/2")
    except OSError:
        return False
    return modes.S_ISREG(found.st_mode) and found.st_nlink == 0


def user_of(pid: int) -> int | None:
    """Return the user that *pid* runs as, or None if there is no such process."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None


def outside_user() -> int | None:
    """Return whom the files of users outside of our user namespace seem to belong to.

    None if every user is inside. Where root itself is outside, as in a sandbox, the whole
    system seems to belong to that one.
    """
    try:
        with open("/proc/self/uid_map", "rb") as file:
            inside = sum(int(line.split()[2]) for line in file)
        if inside >= _ALL_USERS:
            return None
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            return int(file.read())
    except FileNotFoundError:
        return None


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    # Linux 6.2 and later say it at once; before, the size is 0 and all have to be listed.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1


def free_descriptors() -> int:
    """Return how many descriptors this process may still open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _UNLIMITED if limit == resource.RLIM_INFINITY else limit
    return most - open_descriptors()
