"""A stub program in a directory: its scenario, its command, and what its runs got."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import support.fakecli as fakecli

Step = dict[str, object]


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of the stub was given."""

    argv: list[str]
    stdin: str | None
    heard: list[dict[str, object]]
    pid: int
    cwd: str
    env: list[str]
    helpers: list[int]


class StubCli:
    """One stub program. `path` is for the option `binary`, `env` for the option `env`."""

    def __init__(self, directory: Path, name: str = "stub") -> None:
        self._scenario = directory / f"{name}.json"
        self.path = str(directory / name)
        Path(self.path).write_text(
            f"""#!/bin/sh
if [ "$1" = --version ]; then . "{self.path}.version"; exit; fi
exec "{sys.executable}" -I -S "{fakecli.__file__}" "$@"
"""
        )
        self.answers_version("echo 2.1.332")
        os.chmod(self.path, 0o700)
        self.env = {"FAKECLI_SCENARIO": str(self._scenario)}

    def plays(self, *runs: list[Step]) -> None:
        """Set what each run does, the last one repeated."""
        self._scenario.write_text(json.dumps({"runs": runs}))

    def answers_version(self, commands: str) -> None:
        """Set the shell commands that run for `--version`; no run and no step counts them."""
        Path(f"{self.path}.version").write_text(commands)

    @property
    def options(self) -> dict[str, object]:
        """The options that make a backend run this stub."""
        return {"binary": self.path, "env": self.env}

    @property
    def runs(self) -> list[Run]:
        """What each run got so far."""
        folder = Path(f"{self._scenario}.log")
        found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        return [
            Run(
                run["argv"],
                run.get("stdin"),
                run.get("heard", []),
                run["pid"],
                run["cwd"],
                run["env"],
                run.get("helpers", []),
            )
            for run in found
        ]

    def end_helpers(self) -> None:
        """End what left the runs for sessions of their own: the agent's work, not a backend's."""
        for run in self.runs:
            for pid in run.helpers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
