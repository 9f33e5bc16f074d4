"""What the service manager is told, in systemd's notification protocol.

Silent where nobody listens, and never waiting: a service manager that is slow or gone
is no reason to keep agents waiting. What it did not take, because too much waits for it
already, is kept and told again; of each kind the latest only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import time
from collections.abc import MutableMapping

#: What the service manager puts into our environment, for us and for nobody below us.
_OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
#: How long after a notification that was not taken the next try is, if nothing comes before.
RETRY_S = 1.0


class ServiceManager:
    """The line to systemd, if there is one."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Take what concerns us out of *environ*, so that no process of ours inherits it."""
        found = {name: environ.pop(name, "") for name in _OURS}
        self._address = _address(found["NOTIFY_SOCKET"])
        self._watchdog_s = _watchdog_s(found["WATCHDOG_USEC"], found["WATCHDOG_PID"])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None
        self._status = ""
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        #: What was not taken yet, in its order, by the name of its first assignment.
        self._untold: dict[str, str] = {}
        self._retry: asyncio.TimerHandle | None = None

    def ready(self) -> None:
        """Say that the daemon serves, or does so with its new configuration."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """Say that the configuration is being read again; `ready` has to follow."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self) -> None:
        """Say that the end has begun, once."""
        if not self._stopping:
            self._stopping = True
            self._tell("STOPPING=1")

    def status(self, agents: int, clients: int) -> None:
        """Say how many agents and clients there are, and that they are to end, if that changed."""
        ending = "stopping: " if self._stopping else ""
        status = f"STATUS={ending}{_count(agents, 'agent')}, {_count(clients, 'client')}"
        if status != self._status:
            self._status = status
            self._tell(status)

    def _tell(self, *assignments: str) -> None:
        """Send one notification behind those that were not taken yet, or keep it with them."""
        if self._socket is not None:
            name = assignments[0].partition("=")[0]
            self._untold.pop(name, None)
            self._untold[name] = "\n".join(assignments)
            self._tell_the_rest()

    def _tell_the_rest(self) -> None:
        """Send what was not taken yet, as far as it is taken now."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for name, message in tuple(self._untold.items()):
            try:
                self._send(message)
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(RETRY_S, self._tell_the_rest)
                return
            except OSError:
                return  # Nobody is there; if somebody is again, the next occasion tells it.
            del self._untold[name]

    def _send(self, message: str) -> None:
        assert self._socket is not None
        self._socket.sendto(message.encode(), socket.MSG_DONTWAIT, self._address)

    def keep_watchdog_fed(self) -> None:
        """Ping at half the period, from the loop itself: a blocked loop stops pinging."""
        if self._socket is not None and self._watchdog_s is not None:
            # The latest one is all that counts, and a lost one is followed by another.
            with contextlib.suppress(OSError):
                self._send("WATCHDOG=1")
            self._tell_the_rest()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._watchdog_s / 2, self.keep_watchdog_fed)

    def close(self) -> None:
        """Stop pinging, and say what is left if that can be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._tell_the_rest()
            if self._retry is not None:
                self._retry.cancel()
            self._socket.close()
            self._socket = None


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _address(named: str) -> str:
    # A leading @ names an abstract socket.
    return "\0" + named[1:] if named.startswith("@") else named


def _watchdog_s(usec: str, pid: str) -> float | None:
    """Return the period, if there is a watchdog and it watches this process."""
    # What is no such number was not set by a service manager.
    if not re.fullmatch("0*[1-9][0-9]{0,17}", usec) or pid not in ("", str(os.getpid())):
        return None
    return int(usec) / 1_000_000
