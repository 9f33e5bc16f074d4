"""Plant each known bug, run the test that is there for it, and see it fail.

    python -m support.mutation [WORD …]

A test that cannot fail is worse than none. Every room that keeps a machine lists
bugs in its `mutants.py`; each is planted in a process of its own, and its killer
has to notice. With words only the mutants whose title (`turns: a queue …`) has one of them are run.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTS = sorted((ROOT / "tests").rglob("mutants.py"))
#: A mutant that hangs its killer counts as found, but not as found well.
LIMIT_S = 120
#: Unlike anything that Python or pytest exits with by themselves.
SURVIVED, KILLED, BROKEN = 40, 41, 42


class Mutant(Protocol):
    """What a room's list is made of."""

    @property
    def name(self) -> str: ...

    @property
    def plant(self) -> Callable[[], None]: ...

    @property
    def killer(self) -> str: ...


@dataclass
class Witness:
    """A pytest plugin that keeps what failed first, and how long its trace was."""

    test: str = ""
    trace: int | None = None

    def pytest_configure(self) -> None:
        """Keep what a planted bug fails on out of the collection of real failures."""
        from hypothesis import Phase, settings  # pytest wants to be the first to import it

        # That it fails is the question, not how simply: no time is spent on shrinking.
        # And it fails each time or never, whoever asks.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants", database=None, phases=phases, derandomize=True, deadline=None
        )
        settings.load_profile("mutants")

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Look at the first failure; later ones may follow from it."""
        if call.excinfo is None or self.test or call.excinfo.errisinstance(pytest.skip.Exception):
            return
        self.test = item.nodeid.partition("::")[2]
        found = getattr(call.excinfo.value, "trace", None)
        self.trace = len(found) if isinstance(found, list) else None


def load(path: Path) -> ModuleType:
    """Return the module of a list of mutants."""
    spec = importlib.util.spec_from_file_location(f"mutants_of_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def mutants(path: Path) -> tuple[Mutant, ...]:
    """Return the mutants of one list."""
    found: tuple[Mutant, ...] = load(path).MUTANTS
    return found


def run_one(path: Path, index: int) -> int:
    """Plant one mutant in this process and run its killer; say on the last line what fell."""
    mutant = mutants(path)[index]
    mutant.plant()
    witness = Witness()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--rootdir", str(ROOT)]
    status = pytest.main([*options, str(ROOT / mutant.killer)], plugins=[witness])
    print(f"\n{witness.test}\t{'' if witness.trace is None else witness.trace}")
    if status == pytest.ExitCode.OK:
        return SURVIVED
    return KILLED if status == pytest.ExitCode.TESTS_FAILED and witness.test else BROKEN


def plant_all() -> int:
    """Plant all in this process, one after the other; raises where the lines of one are gone."""
    planted = 0
    for path in LISTS:
        for mutant in mutants(path):
            mutant.plant()
            planted += 1
    return planted


def in_its_own_process(path: Path, index: int) -> tuple[int, str, str, float]:
    """Return the verdict on one mutant, the test and trace length, and the seconds."""
    began = time.monotonic()
    command = [sys.executable, "-m", "support.mutation", "--one", str(path), str(index)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    try:
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return KILLED, "(hangs)", "", time.monotonic() - began
    seconds = time.monotonic() - began
    test, _, trace = ran.stdout.rstrip("\n").rpartition("\n")[2].partition("\t")
    if ran.returncode not in (SURVIVED, KILLED):
        sys.stderr.write(ran.stdout[-2_000:] + ran.stderr[-2_000:])
    return ran.returncode, test, trace, seconds


def title(path: Path, mutant: Mutant) -> str:
    """Return the mutant's name with its room in front."""
    return f"{path.parent.name}: {mutant.name}"


def chosen(words: list[str]) -> Iterator[tuple[Path, int, Mutant]]:
    """Yield the mutants whose names contain one of *words*, or all."""
    for path in LISTS:
        for index, mutant in enumerate(mutants(path)):
            if not words or any(word in title(path, mutant) for word in words):
                yield path, index, mutant


def main(words: list[str]) -> int:
    """Print one line per mutant; return 0 if all were found."""
    missed = 0
    print(f"{'mutant':<66} {'found by':<58} {'trace':>5} {'s':>5}")
    wanted = list(chosen(words))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        verdicts = pool.map(lambda one: in_its_own_process(one[0], one[1]), wanted)
        for (path, _, mutant), (verdict, test, trace, seconds) in zip(
            wanted, verdicts, strict=True
        ):
            missed += verdict != KILLED
            shown = {SURVIVED: "SURVIVED", KILLED: test}.get(verdict, f"BROKEN {test}")
            room = path.parent.name
            print(
                f"{room + ': ' + mutant.name:<66.66} {shown:<58.58} {trace:>5} {seconds:>5.1f}",
                flush=True,
            )
    print(f"{len(wanted) - missed} of {len(wanted)} found")
    return 1 if missed or not wanted else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.exit(run_one(Path(sys.argv[2]), int(sys.argv[3])))
    sys.exit(main(sys.argv[1:]))
