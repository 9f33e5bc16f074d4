"""The frozen core, spoken without a hello: it is answered by a daemon of any version."""

from __future__ import annotations

import time

from genagent_protocol.envelopes import CoreState
from genagentd.client import calls
from genagentd.client.blocking import BlockingShell


def core_state(path: str, timeout_ms: int) -> CoreState:
    """Return who the daemon at the socket *path* is.

    Raises:
        NotReachable: none answers there in time.
        DaemonLost: it ended before it answered.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    shell = BlockingShell(path, timeout_ms, introduce=False)
    try:
        return shell.run(calls.core_status(shell.talk), _left_ms(deadline))
    finally:
        shell.close(linger_ms=0)


def stop_daemon(path: str, timeout_ms: int, *, force: bool) -> None:
    """Ask the daemon at the socket *path* to end; returns when it said that it will.

    Raises:
        NotReachable: none answers there in time.
        DaemonLost: it ended before it answered.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    shell = BlockingShell(path, timeout_ms, introduce=False)
    try:
        shell.run(calls.core_stop(shell.talk, force=force), _left_ms(deadline))
    finally:
        shell.close(linger_ms=0)


def _left_ms(deadline: float) -> int:
    """Return what connecting has left: the time is for both."""
    return max(round((deadline - time.monotonic()) * 1000), 0)
