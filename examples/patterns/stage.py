"""How every pattern is shown: a daemon, a backend of your choice, and one line for each thing.

    python -m examples.patterns.debate                     # plays written-down answers
    python -m examples.patterns.debate --backend claude    # the same agents, a real provider
    python -m examples.patterns.debate --backend chat -o base_url=http://localhost:8080/v1

The daemon that runs is used. If none runs, a private one is started and ended again. What
fails is said in one line on stderr, and the program ends with exit code 1.
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
        if self.backend != "scripted":
            return Voice(self.backend, self.options)
        return Voice("scripted", scripted(*turns, repeat=repeat))

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
        sys.exit("failed: " + " ".join(str(why).split()))


@contextlib.contextmanager
def stage(what: str) -> Iterator[Stage]:
    """Read the command line and give a stage with a connected client."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--backend", default="scripted", help="scripted, echo, claude, codex, ...")
    parser.add_argument(
        "-o", dest="options", action="append", default=[], metavar="KEY=VALUE", help="for it"
    )
    given = parser.parse_args()
    options = {key: _value(text) for key, _, text in (o.partition("=") for o in given.options)}
    with _daemon() as run_dir, Client(run_dir) as client:
        here = Stage(client, given.backend, options, run_dir)
        try:
            yield here
        # Whoever runs a program wants to know what happened, and not where in it.
        except (GenAgentError, TimeoutError) as error:
            here.fail(error)


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
