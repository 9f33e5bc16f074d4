"""A dead process is told without asking anyone, and only where our pids mean something."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

from genagent_protocol.refs import BootId
from genagentd import kernel
from genagentd.client import forks, liveness
from support.peer import BOOT, handle


def test_our_own_process_counts_the_way_we_do() -> None:
    """Same namespace, same numbers."""
    assert liveness.same_pid_namespace(os.getpid())


def test_a_daemon_we_cannot_see_counts_otherwise() -> None:
    """The kernel shows a peer of another namespace as pid 0."""
    assert not liveness.same_pid_namespace(0)
    assert not liveness.same_pid_namespace(2**22 + 1)


def test_exactly_the_captured_process_is_alive() -> None:
    """A recycled pid is another process (C21)."""
    ours = dataclasses.replace(
        handle(), pid=os.getpid(), started_ticks=kernel.started_ticks(os.getpid())
    )
    recycled = dataclasses.replace(ours, started_ticks=ours.started_ticks - 1)

    assert liveness.is_alive(ours, BOOT, local=True)
    assert not liveness.is_alive(recycled, BOOT, local=True)


def test_an_agent_of_another_boot_is_dead() -> None:
    """Agents end with their daemon, whatever runs under their numbers now (D19)."""
    ours = dataclasses.replace(
        handle(), pid=os.getpid(), started_ticks=kernel.started_ticks(os.getpid())
    )

    assert not liveness.is_alive(ours, BootId("f" * 16), local=True)
    assert not liveness.is_alive(ours, BootId("f" * 16), local=False)


def test_outside_our_namespace_nothing_is_checked() -> None:
    """The numbers mean nothing, so a process of this boot counts as alive (D30)."""
    assert liveness.is_alive(handle(), BOOT, local=False)


def test_a_fork_is_known_in_the_child_and_not_in_the_parent() -> None:
    """Also in the child of a child, and without a system call."""
    before = forks.generation()
    child = os.fork()
    if child == 0:
        os._exit(0 if forks.generation() == before + 1 else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert forks.generation() == before


def test_a_started_program_is_no_fork() -> None:
    """It has its own memory and its own count."""
    code = "from genagentd.client import forks; print(forks.generation())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "0\n"
