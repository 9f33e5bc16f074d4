"""Processes are known by number and start, signalled by pidfd, and found wherever they hide."""

from __future__ import annotations

import os
import platform
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genagentd import kernel
from support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("nothing_left")]

#: A number that no process ever has: one above the largest.
NOBODY = 2**22 + 1
WAITS = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"


@contextmanager
def running(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs *code*; it and what it left behind are gone at the end."""
    before = set(kernel.children(os.getpid()))
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            for pid in list(kernel.descendants(process.pid)):
                kernel.kill_exactly(pid)
            process.kill()
    # What it left behind came to us, because the tests adopt orphans.
    for pid in set(kernel.children(os.getpid())) - before:
        kernel.kill_exactly(pid)
        os.waitpid(pid, 0)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- identity


@pytest.mark.parametrize(
    "name", [b") (", b"x) Z 1 1 (", b"(((", b")))", b"a b c", b"\xff\xfe", b" ", b"1 2 3 4 5"]
)
def test_a_process_may_be_called_whatever_it_likes(name: bytes) -> None:
    """The name stands unescaped in the middle of the line that says everything else."""
    code = f"open('/proc/self/comm', 'wb').write({name!r})\n{WAITS}"
    with running(code) as process:
        assert line(process) == "ready"

        found = kernel.stat(process.pid)

        assert found is not None
        assert found.pid == process.pid
        assert found.parent == os.getpid()
        assert found.state in "RS"
        assert 0 < found.started_ticks <= kernel.ticks_now()


@pytest.mark.parametrize(("name", "shown"), [(b"a b)", "a b)"), (b"x\x1b[2J\xff", "x?[2J\ufffd")])
def test_the_name_of_a_process_can_be_shown(name: bytes, shown: str) -> None:
    """It goes into a log, which may be a terminal's."""
    code = f"open('/proc/self/comm', 'wb').write({name!r})\n{WAITS}"
    with running(code) as process:
        assert line(process) == "ready"

        assert kernel.command_of(process.pid) == shown

    assert kernel.command_of(NOBODY) == ""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ga:a", "ga:a"),
        ("x" * 16, "x" * 15),
        ("ga:" + "\u00e9" * 7, "ga:" + "\u00e9" * 6),
        ("", ""),
    ],
    ids=["short", "long", "cut between characters", "none"],
)
def test_a_process_is_called_as_much_of_its_name_as_there_is_room_for(
    name: str, shown: str
) -> None:
    code = f"from genagentd import kernel; kernel.be_called({name!r})\n{WAITS}"
    with running(code) as process:
        assert line(process) == "ready"

        assert kernel.command_of(process.pid) == shown


def test_nobody_is_no_process() -> None:
    """Each question has an answer for what is not there."""
    assert kernel.stat(NOBODY) is None
    assert kernel.started_ticks(NOBODY) == 0
    assert not kernel.is_alive(NOBODY, 0)
    assert kernel.children(NOBODY) == []
    assert list(kernel.descendants(NOBODY)) == []
    assert kernel.open_pidfd(NOBODY) is None
    assert not kernel.kill_exactly(NOBODY)


def test_alive_means_this_process_and_not_its_number() -> None:
    """A number is used again; a number and a start are not."""
    pid, ticks = os.getpid(), kernel.started_ticks(os.getpid())

    assert kernel.is_alive(pid, ticks)
    assert not kernel.is_alive(pid, ticks + 1)
    assert not kernel.is_alive(pid, 0)


def test_a_zombie_is_dead_and_still_there() -> None:
    """It has a number and a start, and runs no more."""
    with running(WAITS) as process:
        assert line(process) == "ready"
        ticks = kernel.started_ticks(process.pid)
        assert kernel.is_alive(process.pid, ticks)

        os.kill(process.pid, signal.SIGKILL)
        until(lambda: not kernel.is_alive(process.pid, ticks), "it is dead")

        found = kernel.stat(process.pid)
        assert found is not None
        assert found.state == "Z"
        assert found.started_ticks == ticks
        assert process.pid in kernel.children(os.getpid())

        process.wait()
        assert kernel.stat(process.pid) is None
        assert process.pid not in kernel.children(os.getpid())


#: Its first thread ends, and another one does not.
HEADLESS = """
import ctypes, threading
print("ready", flush=True)
threading.Thread(target=threading.Event().wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_as_long_as_one_of_its_threads() -> None:
    """Where the first one has ended, `/proc` says of the process what it says of a dead one."""
    with running(HEADLESS) as process:
        ticks = kernel.started_ticks(process.pid)
        until(lambda: (found := kernel.stat(process.pid)) and found.state == "Z", "it has ended")

        found = kernel.stat(process.pid)
        assert found is not None
        assert not found.ended
        assert kernel.is_alive(process.pid, ticks)

        process.kill()
        until(lambda: not kernel.is_alive(process.pid, ticks), "it is dead")


# --- pidfds


def test_a_pidfd_becomes_readable_when_its_process_ends() -> None:
    """That is how an end is noticed, without asking again and again."""
    with running(WAITS) as process:
        assert line(process) == "ready"
        pidfd = kernel.open_pidfd(process.pid)
        assert pidfd is not None
        assert not os.get_inheritable(pidfd)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(0) == []

        assert kernel.signal_pidfd(pidfd, signal.SIGTERM)

        assert poll.poll(60_000) == [(pidfd, select.POLLIN)]
        process.wait()
        assert process.returncode == -signal.SIGTERM
        assert not kernel.signal_pidfd(pidfd, signal.SIGTERM)
        os.close(pidfd)


def test_only_the_process_that_was_meant_is_killed() -> None:
    """A stranger with the same number started at another tick."""
    with running(WAITS) as process:
        assert line(process) == "ready"
        ticks = kernel.started_ticks(process.pid)

        assert not kernel.kill_exactly(process.pid, ticks + 1)
        assert process.poll() is None

        assert kernel.kill_exactly(process.pid, ticks)
        assert process.wait(60) == -signal.SIGKILL
        assert not kernel.kill_exactly(process.pid, ticks)


def test_killing_leaves_no_descriptor_open() -> None:
    """It opens one on the way, and is called often."""
    with running(WAITS) as process:
        assert line(process) == "ready"
        before = kernel.open_descriptors()

        for _ in range(5):
            kernel.kill_exactly(process.pid, 1)
        kernel.kill_exactly(process.pid)
        process.wait()
        kernel.kill_exactly(process.pid)

        assert kernel.open_descriptors() == before


def test_open_descriptors_are_counted_without_the_one_that_counts() -> None:
    """The number decides whether another agent may start."""
    before = kernel.open_descriptors()
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]

    assert kernel.open_descriptors() == before + 3

    for fd in opened:
        os.close(fd)
    assert kernel.open_descriptors() == before


# --- families


FAMILY = """
import os, subprocess, sys, time
from genagentd import kernel

if sys.argv[1:] == ["adopts"]:
    kernel.adopt_orphans()
sleeps = [sys.executable, "-c", "import time; time.sleep(1000)"]
plain = subprocess.Popen(sleeps).pid
apart = subprocess.Popen(sleeps, start_new_session=True).pid
read, write = os.pipe()
parent = os.fork()
if parent == 0:
    child = os.fork()
    if child == 0:
        os.setsid()
        os.write(write, str(os.getpid()).encode())
        os.execv(sleeps[0], sleeps)
    os._exit(0)
os.waitpid(parent, 0)
print(plain, apart, os.read(read, 20).decode(), flush=True)
sys.stdin.read()
"""


def test_descendants_are_found_in_sessions_of_their_own_and_after_a_double_fork() -> None:
    """Daemons that agents start do all of this, and have to be ended with them."""
    with running(FAMILY, "adopts") as process:
        plain, apart, orphan = map(int, line(process).split())

        found = list(kernel.descendants(process.pid))

        assert set(found) == {plain, apart, orphan}
        assert set(kernel.children(process.pid)) == {plain, apart, orphan}
        assert {os.getsid(apart), os.getsid(orphan)} == {apart, orphan}


def test_an_orphan_goes_to_the_nearest_who_adopts() -> None:
    """Without that it would go to init, where nobody of us finds it."""
    with running(FAMILY) as process:
        plain, apart, orphan = map(int, line(process).split())

        assert set(kernel.descendants(process.pid)) == {plain, apart}
        found = kernel.stat(orphan)
        assert found is not None
        assert found.parent == os.getpid()


NESTED = """
import subprocess, sys
depth = int(sys.argv[1])
if depth:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]])
else:
    print("ready", flush=True)
sys.stdin.read()
"""


def test_parents_come_before_their_children() -> None:
    """Whoever is killed first cannot start another one."""
    with running(NESTED, "3", NESTED) as process:
        assert line(process) == "ready"

        found = list(kernel.descendants(process.pid))

        assert len(found) == 3
        parents = [stat.parent for stat in map(kernel.stat, found) if stat is not None]
        assert parents == [process.pid, *found[:-1]]


def test_descendants_are_found_however_deep_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that begins itself again and again ends no agent; each is looked at once."""
    depth = 3 * sys.getrecursionlimit()
    looked_at = []

    def children(pid: int) -> list[int]:
        looked_at.append(pid)
        return [pid + 1] if pid < depth else []

    monkeypatch.setattr(kernel, "children", children)

    assert list(kernel.descendants(0)) == list(range(1, depth + 1))
    assert looked_at == list(range(depth + 1))


def test_a_tree_is_whole_before_anybody_of_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who dies hands its children to somebody else, and nobody would find them below it."""
    below = {pid: [pid + 1] for pid in range(60)}

    def as_it_is(pid: int) -> kernel.Stat:
        return kernel.Stat(pid, "S", parent=pid - 1, session=pid, threads=1, started_ticks=7)

    monkeypatch.setattr(kernel, "children", lambda pid: below.get(pid, []))
    monkeypatch.setattr(kernel, "stat", as_it_is)
    killed = []
    for found in kernel.tree_below(0):
        killed.append(found.pid)
        below.pop(found.pid, None)

    assert killed == list(range(1, 61))


def test_children_of_every_thread_are_children() -> None:
    """The kernel lists them by the thread that forked them."""
    started: list[subprocess.Popen[str]] = []
    found, done = threading.Event(), threading.Event()

    def start() -> None:
        with running(WAITS) as process:
            line(process)
            started.append(process)
            found.set()
            done.wait(60)

    thread = threading.Thread(target=start)
    thread.start()
    assert found.wait(60)

    assert started[0].pid in kernel.children(os.getpid())

    done.set()
    thread.join()


DYING = """
import os, subprocess, sys
code = '''
import os, sys, time
from genagentd import kernel
kernel.die_with_parent()
print(os.getpid(), flush=True)
time.sleep(1000)
'''
subprocess.Popen([sys.executable, "-c", code])
sys.stdin.read()
"""


def test_who_asked_for_it_dies_with_its_parent() -> None:
    """Also when the parent is killed and can do nothing any more."""
    with running(DYING) as process:
        child = int(line(process))
        ticks = kernel.started_ticks(child)
        assert kernel.is_alive(child, ticks)

        process.kill()

        until(lambda: not kernel.is_alive(child, ticks), "the child is dead")


def test_more_signals_than_a_loop_takes_are_no_tracebacks() -> None:
    """A callback that has hundreds of processes end is enough, and the loop wakes all the same."""
    code = """\
        import asyncio, signal
        from genagentd import kernel

        async def main():
            woken = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, woken.set)
            kernel.wake_in_silence()
            for _ in range(2_000):
                signal.raise_signal(signal.SIGCHLD)
            await woken.wait()
            print("woken")

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr) == ("woken\n", "")


def test_what_the_kernel_refuses_is_an_error_with_its_name() -> None:
    """Silence would leave orphans behind later."""
    with pytest.raises(OSError, match="prctl"):
        kernel._prctl(-1, 0)


def _beside(code: str) -> str:
    """Run *code* in a process forked beside a child of ours; return what that process said."""
    program = (
        "import os, random, signal, subprocess, sys, threading\n"
        "from genagentd import kernel\n"
        "beside, before = os.getpid(), random.random()\n"
        "if kernel.fork_beside() == 0:\n" + textwrap.indent(code, "    ") + "    os._exit(0)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return ran.stdout


def test_a_process_forked_beside_us_is_our_parents_child() -> None:
    said = _beside("print(os.getppid() != beside, os.getpid() != beside, flush=True)\n")

    assert said == "True True\n"


def test_a_process_forked_beside_us_can_do_what_any_can() -> None:
    """Its threads, its children, its own forks and its random numbers are its own."""
    said = _beside(
        "heard = []\n"
        "thread = threading.Thread(target=heard.append, args=(1,))\n"
        "thread.start()\n"
        "thread.join()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(3)\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "ran = subprocess.run(['true']).returncode\n"
        "main = threading.main_thread() is threading.current_thread()\n"
        "print(heard, status, ran, main, flush=True)\n"
    )

    assert said == "[1] 3 0 True\n"


def test_an_architecture_without_a_number_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")

    with pytest.raises(OSError, match=r"clone\(2\) has no known number on vax"):
        kernel.fork_beside()


def test_whoever_is_outside_of_the_user_namespace_is_known() -> None:
    """Inside, what belongs to the system belongs to that one, and root is nobody there."""
    shown = "from genagentd import kernel\nprint(kernel.outside_user())\n"
    here = kernel.outside_user()
    if here is not None:
        assert here == int(Path("/proc/sys/kernel/overflowuid").read_text())
    inside = subprocess.run(
        ["unshare", "--user", sys.executable, "-c", shown], capture_output=True, text=True
    )
    if inside.returncode:
        pytest.skip("this user may not make a user namespace (unshare --user)")
    assert inside.stdout.strip() == Path("/proc/sys/kernel/overflowuid").read_text().strip()
