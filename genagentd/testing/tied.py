"""A process that does not outlive its owner: it gets SIGTERM when that dies, however it dies.

The kernel sends the signal when the *thread* that started the process ends. So a thread
of its own starts it and stays until the process is `released`: a test may start a daemon
in a thread that is gone a moment later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import BinaryIO


class Tied:
    """One `genagentd run` that ends with the process that has it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Prepare it. This starts nothing."""
        self._environment = environment
        self._process: Future[subprocess.Popen[bytes]] = Future()
        self._released = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="private-daemon", daemon=True)
        self._log: BinaryIO | None = None

    def start(self, log: BinaryIO) -> None:
        """Run it; what it prints goes to *log*.

        Raises:
            OSError: the system does not allow it.
        """
        self._log = log
        self._keeper.start()
        self._process.result()

    def _keep(self) -> None:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "genagentd.testing.tied_run", str(os.getpid()), "run"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                cwd="/",
                # Ctrl-C in the terminal is for the owner, who ends what it has.
                start_new_session=True,
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, who waits has to hear of it
            self._process.set_exception(error)
            return
        self._process.set_result(process)
        self._released.wait()

    @property
    def ended(self) -> bool:
        """Whether it runs no more, or never did."""
        if self._keeper.ident is None or self._process.exception() is not None:
            return True
        return self._process.result().poll() is not None

    def ask_to_end(self, within_s: float) -> None:
        """Send SIGTERM and wait for the end, at most *within_s*. A second one means force."""
        if not self.ended:
            process = self._process.result()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(within_s)
            except subprocess.TimeoutExpired:
                return

    def release(self) -> None:
        """Let the thread end that it is tied to; a process that still runs gets SIGTERM by that."""
        self._released.set()
        if self._keeper.ident is not None:
            self._keeper.join()
