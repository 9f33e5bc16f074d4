"""Running the two programs, in this process or as processes of their own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from genagentd.cli import program
from support.daemons import PrivateDaemon


@dataclass(frozen=True)
class Ran:
    """What a command did: exit code, standard output and error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object it printed."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The code of the error object it printed."""
        found = self.json
        assert found["ok"] is False
        assert set(found["error"]) == {"code", "message", "hint", "details"}
        return str(found["error"]["code"])


class Command(Protocol):
    """Runs one command."""

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran: ...


def ran(place: PrivateDaemon, *arguments: str, stdin: bytes = b"") -> Ran:
    """Run a command as a process of its own."""
    done = subprocess.run(
        command(*arguments), env=place.environ, input=stdin, capture_output=True, timeout=60
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def command(program: str, *arguments: str) -> list[str]:
    main = {"genagentd": "daemon_main", "genagent": "client_main"}[program]
    code = f"import sys; sys.argv[0] = {program!r}; from genagentd.cli.main import {main}; {main}()"
    return [sys.executable, "-c", code, *arguments]


def runner(app: Any, prog: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return what runs *app* here, with captured streams."""

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = program.run(app, prog, list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out.decode(), captured.err.decode())

    return run
