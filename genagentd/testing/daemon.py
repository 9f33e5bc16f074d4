"""A daemon of its own for a test or a demonstration: real, private, and gone afterwards.

It lives in a short temporary directory, so that it meets neither the user's daemon nor
another test's. It ends with its owner, also with one that is interrupted or killed. This
does not remove the directory of an owner that was killed: its log stays there.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from genagent_protocol.errors import NotReachable
from genagentd.client.client import Client
from genagentd.paths import Places
from genagentd.socket_path import probe
from genagentd.testing.tied import Tied
from genagentd.testing.waiting import DEADLINE_MS, until


class PrivateDaemon:
    """One daemon in a runtime directory of its own. Use it as a context manager."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Prepare it; *environment* is added to the daemon's. This starts nothing."""
        self._added = dict(environment or {})
        self._tied: Tied | None = None
        #: Its runtime directory: give it to `Client`, or as `GENAGENT_RUN_DIR` to programs.
        self.run_dir = Path(tempfile.mkdtemp(prefix="ga"))

    @property
    def places(self) -> Places:
        """Its files."""
        return Places(self.run_dir, self.run_dir)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which the commands mean this daemon."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GENAGENT_", "NOTIFY_"))
        }
        return kept | {"GENAGENT_RUN_DIR": str(self.run_dir)} | self._added

    @property
    def log(self) -> str:
        """What it wrote so far."""
        path = self.run_dir / "stderr"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int:
        """The daemon's own process, which is not its guardian."""
        return until(lambda: int((self.places.lock.read_text().split() or ["0"])[0]), "its pid")

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more; after a kill its guardian cleans up first."""
        return self._tied is None or self._tied.ended

    def start(self) -> PrivateDaemon:
        """Run it, and return it when it answers. After an end it may be started again.

        Raises:
            AssertionError: it ended at once, or does not answer; its log is in the message.
        """
        self.stop()
        with (self.run_dir / "stderr").open("ab") as log:
            # Known before it runs: whoever interrupts the next line can still stop it.
            self._tied = Tied(self.environment)
            self._tied.start(log)
        until(self._answers, "the daemon answers")
        return self

    def _answers(self) -> bool:
        assert not self.ended, f"the daemon ended:\n{self.log}"
        try:
            probe(self.places.socket)
            with Client(self.run_dir) as client:
                return client.daemon_status().ready
        except NotReachable:
            return False

    def kill(self) -> None:
        """SIGKILL the daemon, to see what your program makes of it; its agents end with it."""
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Let it end, and its agents with it; by force if it takes too long. Twice is fine."""
        if self._tied is None:
            return
        try:
            self._tied.ask_to_end(DEADLINE_MS / 1000)
        finally:
            # Whoever interrupts the waiting does not want to wait for agents either.
            self._tied.ask_to_end(DEADLINE_MS / 1000)
            self._tied.release()
            self._tied = None

    def close(self) -> None:
        """Stop it and remove its directory, also if the waiting is interrupted."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.run_dir, ignore_errors=True)

    def __enter__(self) -> PrivateDaemon:
        try:
            return self.start()
        except BaseException:
            # Nobody leaves a block that was not entered.
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
