"""The frozen core, spoken without a hello: it is answered by a daemon of any version."""

from __future__ import annotations

from genagent_protocol.envelopes import CoreState
from genagentd.client import calls
from genagentd.client.blocking import BlockingShell


def core_state(path: str, timeout_ms: int) -> CoreState:
    """Return who the daemon at the socket *path* is.

    Raises:
        NotReachable: none answers there in time.
        DaemonLost: it ended before it answered.
    """
    shell = BlockingShell(path, timeout_ms, introduce=False)
    try:
        return shell.run(calls.core_status(shell.talk), timeout_ms)
    finally:
        shell.close(linger_ms=0)


def stop_daemon(path: str, timeout_ms: int, *, force: bool) -> None:
    """Ask the daemon at the socket *path* to end; returns when it said that it will.

    Raises:
        NotReachable: none answers there in time.
        DaemonLost: it ended before it answered.
    """
    shell = BlockingShell(path, timeout_ms, introduce=False)
    try:
        shell.run(calls.core_stop(shell.talk, force=force), timeout_ms)
    finally:
        shell.close(linger_ms=0)
