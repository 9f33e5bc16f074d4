"""An agent that writes down what its turn machine hears and orders, in its own process.

Loaded by agent processes, from `tests` as their directory. The file has every line
that was true when the process ended, however it ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from genagent_protocol.plain import FrozenDict
from genagent_protocol.turns.recording import Recorder
from genagentd.agent import shell
from support.scenario_agents import Listening


class _File(list[str]):
    """Lines that are in a file as soon as they are here."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def __iadd__(self, lines: Iterable[str]) -> Self:  # type: ignore[override,misc]  # a list takes this and more
        with open(self._path, "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        return self


class Recorded(Listening):
    """Acts as planned. The option `recording` names the file."""

    def init_agent(self, options: FrozenDict) -> Any:
        recorder = Recorder()
        recorder.lines = _File(str(options["recording"]))
        # The machine is made after this: the shell is given these two instead of its own.
        vars(shell).update(begin=recorder.begin, advance=recorder.advance)
        return super().init_agent(options)
