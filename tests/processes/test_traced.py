"""A dead process that a debugger keeps: nobody is told late of its end, and nothing waits for it.

Its tracer hears of the end first, and its parent, which would reap it, only when that let go.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from genagentd import kernel
from genagentd.client.client import Client
from support import fleet
from support.commands import ran
from support.daemons import PrivateDaemon, helper_of, zombies_below
from support.tracers import tracing
from support.waiting import until

pytestmark = pytest.mark.process


def _ticks(pid: int) -> int:
    """Return how long *pid* had a processor."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize("ends", ["killed", "exits"])
def test_the_end_of_a_traced_agent_is_told_truly_while_its_tracer_keeps_it(
    daemon: PrivateDaemon, client: Client, ends: str
) -> None:
    """It would be told when the debugger is closed, and the daemon computed until then."""
    handle = fleet.start(client, "a", [{"os_exit": 3}])
    client.at(handle).monitor()
    client.list()

    with tracing(handle.pid):
        if ends == "killed":
            os.kill(handle.pid, signal.SIGKILL)
        else:
            client.at(handle).submit_with_completion("end")
        reason = fleet.down(client, handle).reason.text
        assert kernel.command_of(handle.pid) == "ga:a", "it is kept"
        assert fleet.start(client, "a").pid != handle.pid
        before = _ticks(daemon.pid)
        assert [client.list()[0].name for _ in range(50)] == ["a"] * 50
        assert _ticks(daemon.pid) - before < 50

    assert reason == {"killed": "signal:9", "exits": "exit:3"}[ends]
    until(lambda: handle.pid not in zombies_below(daemon.pid), "it is reaped when that lets go")


def test_a_traced_tool_holds_up_neither_its_turn_nor_any_end(
    daemon: PrivateDaemon, client: Client
) -> None:
    turn: fleet.Turn = [{"spawn": "child"}, {"pause_ms": 600_000}]
    handle = fleet.start(client, "a", turn)
    client.at(handle).monitor()
    fleet.begin(client, handle)
    ((tool, _),) = until(lambda: fleet.tree(handle.pid), "it has a tool")

    with tracing(tool):
        os.kill(handle.pid, signal.SIGKILL)
        assert fleet.down(client, handle).reason.text == "signal:9"
        until(lambda: tool in zombies_below(daemon.pid), "it is the daemon's, and dead")
        assert ran(daemon, "genagentd", "stop").code == 0
        assert daemon.wait() == 0


def test_a_traced_helper_is_replaced(daemon: PrivateDaemon, client: Client) -> None:
    """Waiting for its end would stop the daemon, which ends it."""
    fleet.start(client, "a")
    helper = helper_of(daemon)

    with tracing(helper):
        os.kill(helper, signal.SIGKILL)
        assert fleet.start(client, "b").name == "b"

    until(lambda: not zombies_below(daemon.pid), "it is reaped when that lets go")


@pytest.mark.parametrize("ends", ["first", "with its daemon"])
def test_a_traced_helper_does_not_hold_up_the_end_of_its_daemon(
    daemon: PrivateDaemon, client: Client, ends: str
) -> None:
    """What started it remembers it, and would wait for it after everything else was over."""
    fleet.start(client, "a")
    helper = helper_of(daemon)

    with tracing(helper):
        if ends == "first":
            os.kill(helper, signal.SIGKILL)
            until(lambda: helper_of(daemon) != helper, "there is another one")
        assert ran(daemon, "genagentd", "stop").code == 0
        assert daemon.wait() == 0


def test_what_a_traced_daemon_left_ends_before_its_tracer_lets_go(
    daemon: PrivateDaemon, client: Client
) -> None:
    """The guardian would wait for the debugger, and the tools would go on working."""
    handle = fleet.start(client, "a", fleet.BUSY)
    _, tools = fleet.begin(client, handle)

    with tracing(daemon.pid):
        daemon.kill()
        assert daemon.wait() == 128 + signal.SIGKILL
        assert not any(kernel.is_alive(*tool) for tool in tools)


def test_the_exit_code_of_a_dead_process_is_there_before_it_is_reaped() -> None:
    for code in (0, 3, -signal.SIGKILL):
        end = f"os.kill(os.getpid(), {-code})" if code < 0 else f"os._exit({code})"
        with subprocess.Popen([sys.executable, "-c", f"import os; {end}"]) as process:
            kernel.await_end(process.pid)

            assert kernel.exit_code(process.pid) == code
            assert process.wait() == code


_HIDDEN = """
import ctypes, os
from genagentd import kernel

child = os.fork()
if child == 0:
    os.setuid(65534)
    os.kill(os.getpid(), 9)
# Root may know everything by this alone, and a container may have taken it.
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
libc.capget(header, sets)
for kind in range(3):
    sets[kind] &= ~(1 << 19)
assert libc.capset(header, sets) == 0
kernel.await_end(child)
print(kernel.exit_code(child), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_the_exit_code_that_is_not_ours_to_know_is_none() -> None:
    """The kernel shows it as zero, and a process that was killed would have ended well."""
    found = subprocess.run([sys.executable, "-c", _HIDDEN], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("None -9\n", "")
