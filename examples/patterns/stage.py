"""How every pattern is shown: a daemon, a backend of your choice, and one line for each thing.

    python -m examples.patterns.debate                     # plays written-down answers
    python -m examples.patterns.debate --backend claude    # the same agents, a real provider
    python -m examples.patterns.debate --backend chat -o base_url=http://localhost:8080/v1

The daemon that runs is used. If none runs, a private one is started and ended again. What
fails is said in one line on stderr, and the program ends with exit code 1; after Ctrl-C
with 130, when what it started is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from examples.patterns.company import Voice
from genagentd import Client, GenAgentError, NotReachable
from genagentd.testing import PrivateDaemon, scripted

Turn = list[dict[str, object]]

#: The backend that plays written-down answers, and takes no other options.
_WRITTEN_DOWN = "scripted"


@dataclass(frozen=True)
class Stage:
    """Where a pattern is shown."""

    client: Client
    backend: str
    options: Mapping[str, object]
    #: The runtime directory of a private daemon; None is the user's own.
    run_dir: Path | None = None

    def voice(self, *turns: Turn, repeat: bool = False) -> Voice:
        """Return the chosen backend; only the scripted one needs to know its *turns*."""
        if self.backend != _WRITTEN_DOWN:
            return Voice(self.backend, self.options)
        return Voice(_WRITTEN_DOWN, scripted(*turns, repeat=repeat))

    def say(self, text: str) -> None:
        """Print one line of progress at once; a long answer is cut."""
        indent = text[: len(text) - len(text.lstrip())]
        line = indent + " ".join(text.split())
        print(line if len(line) <= 100 else f"{line[:99]}…", flush=True)

    def fail(self, why: object) -> NoReturn:
        """End the program here: its agents are stopped on the way out.

        Raises:
            SystemExit: always, with one line and exit code 1.
        """
        _fail(why)


@contextlib.contextmanager
def stage(what: str) -> Iterator[Stage]:
    """Read the command line and give a stage with a connected client."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument(
        "--backend", default=_WRITTEN_DOWN, help="scripted, echo, claude, codex, ..."
    )
    parser.add_argument(
        "-o", dest="options", action="append", default=[], metavar="KEY=VALUE", help="for it"
    )
    given = parser.parse_args()
    if given.options and given.backend == _WRITTEN_DOWN:
        parser.error("-o is for the backend: name it with --backend")
    options = {key: _value(text) for key, _, text in (o.partition("=") for o in given.options)}
    try:
        with _daemon() as run_dir, Client(run_dir) as client:
            yield Stage(client, given.backend, options, run_dir)
    # Whoever runs a program wants to know what happened, and not where in it.
    except (GenAgentError, TimeoutError) as error:
        _fail(error)
    except KeyboardInterrupt as interrupt:
        # On the way here everything was stopped, unless a second one came in between.
        again = isinstance(interrupt.__context__, KeyboardInterrupt)
        left = "agents may be left: genagent list" if again else "what it started is stopped"
        print(f"interrupted; {left}", file=sys.stderr)
        sys.exit(130)


def _fail(why: object) -> NoReturn:
    sys.exit("failed: " + " ".join(str(why).split()))


def _value(text: str) -> object:
    """Return what *text* means as JSON, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextlib.contextmanager
def _daemon() -> Iterator[Path | None]:
    """Give the runtime directory of a daemon that runs; None is the user's own."""
    try:
        with Client():
            own = True
    except NotReachable:
        own = False
    if own:
        yield None
        return
    print("no daemon runs here: starting a private one", flush=True)
    with PrivateDaemon() as private:
        yield private.run_dir
