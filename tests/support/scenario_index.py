"""Which test shows which numbered scenario and guarantee, read from the tests themselves.

    python -m support.scenario_index [--check]

A test shows what its name or docstring names (`test_s001_…`, "S070"); a module or a
class shows it with its docstring. The page is written from that and from nothing else,
so that none can be claimed that no test names.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "scenarios.md"

SCENARIOS = tuple(f"S{number:03}" for number in range(1, 271))
GUARANTEES = tuple(f"C{number}" for number in range(1, 32))

#: The first scenario of each part.
PARTS = {
    1: "Turns, asks, tells, polls and chains",
    59: "Notifications",
    70: "Completions",
    87: "Streams",
    97: "The captured handle",
    124: "Bounds",
    141: "Capture",
    153: "Hooks, and callbacks that fail",
    176: "Halting",
    188: "Retrying",
    199: "Interrupting",
    208: "Cancelling",
    215: "Draining and resetting",
    222: "Supervision",
    239: "Telemetry",
    249: "Backends",
    259: "Patterns",
}

#: How a scenario reads that was worded for another runtime than operating-system processes.
READINGS = {
    "S013, S016, S175, S194": (
        "a turn is no process of its own; an exception of any kind, `SystemExit` included, ends "
        "the turn alone. A segfault, `os._exit` or an out-of-memory kill in a turn ends the agent."
    ),
    "S014": "the turn's code leaves by `sys.exit`; what it says later is told by its turn number.",
    "S022, S093, S199": (
        "a turn is not killed but told to stop; the answer comes when its code has really ended, "
        "and one that does not end in its grace takes the agent with it (`turn_stuck`)."
    ),
    "S034": "the process that dies during a call ends the call with `ProcessDown`.",
    "S049": "a missing name or backend is a `UsageError` in the caller.",
    "S052": "a call of an unknown type is refused as that; a word of an unknown type is ignored.",
    "S053, S054": "messages of other agents and `Down` notices reach `handle_info`.",
    "S055, S094": "late and forged results are told by the number of their turn.",
    "S057, S058": "the daemon's own table is the registry; a dead process is in no answer of it.",
    "S068": (
        "the acknowledgement is `ok`: the event was handled, and its prompt goes to `handle_error`."
    ),
    "S099, S120": "no handle, or one of another host or runtime directory, is not local.",
    "S105, S198": "a turn cannot be started because its agent's group is closing.",
    "S141 to S148": "a turn that says too much fails; keeping a prefix instead is an opt-in.",
    "S227 to S232": "the owner of agents is a group of a client's connection.",
    "S229": "a group that lost its owner ends; whoever opens one finds it empty.",
    "S233": "a process that outlives the window is killed, and the DOWN says `signal:9`.",
    "S235": (
        "the daemon is the registry; agents that lose it end in order (`registry_lost`), and are "
        "killed by the kernel if the daemon was."
    ),
    "S236": "an agent stops others through `context.peers`.",
    "S239": "`prompt.*` and `turn.*` carry a ref; a change of phase has none.",
    "S255": "the offer of a finished turn is the only stranger that could try.",
}

_ID = re.compile(r"(?<![A-Za-z0-9])(S\d{3}|C\d{1,2})(?!\d)")
#: Where a guarantee of the captured handle is shown.
_OF_HANDLES = ("client/", "scenarios/", "protocol/test_submission")
_NAMED = re.compile(r"(?:^|_)([sc]\d+)(?=_|$)")


@dataclass(frozen=True)
class Shown:
    """One test, module or class, and what it shows."""

    file: str
    name: str
    ids: frozenset[str]
    named: frozenset[str]
    process: bool

    @property
    def sentence(self) -> str:
        """Its name without the ids."""
        words = [word for word in self.name.split("_")[1:] if not _NAMED.fullmatch(word)]
        return " ".join(words)


def shown() -> list[Shown]:
    """Read all tests."""
    return [each for path in sorted((ROOT / "tests").rglob("test_*.py")) for each in _in(path)]


def _in(path: Path) -> Iterator[Shown]:
    text = path.read_text(encoding="utf-8")
    process = "pytest.mark.process" in text
    file = str(path.relative_to(ROOT / "tests"))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("test_"):
                    continue
            case ast.ClassDef() | ast.Module():
                name = ""
            case _:
                continue
        named = frozenset(found.upper() for found in _NAMED.findall(name))
        ids = named | frozenset(_ID.findall(ast.get_docstring(node) or ""))
        if not file.startswith(_OF_HANDLES):
            # Elsewhere a C and a number is something else, such as a control character.
            ids = frozenset(each for each in ids if each.startswith("S"))
        if ids:
            yield Shown(file, name, ids, named, process)


def missing(tests: Iterable[Shown], wanted: Iterable[str]) -> list[str]:
    """Return which of *wanted* no test shows."""
    found = frozenset[str]().union(*(test.ids for test in tests))
    return [each for each in wanted if each not in found]


def page(tests: list[Shown]) -> str:
    """Return the whole page."""
    lines = [
        "# Scenarios",
        "",
        "What an agent does, scenario by scenario, and which tests show it: on the machine as a",
        "value, and on agents that are processes, with their daemon and a client. Run one with",
        "`scripts/test -k s001`. This page is written by `scripts/scenarios`.",
        "",
        "None is left out. Some were first worded for a runtime in which a turn is a process, too;",
        "the list at the end says how they read here.",
    ]
    for number, scenario in enumerate(SCENARIOS, 1):
        if number in PARTS:
            lines += ["", f"## {PARTS[number]}", "", *_HEAD]
        lines.append(_row(scenario, tests))
    lines += ["", "## Guarantees of the captured handle", "", *_HEAD]
    lines += [_row(guarantee, tests) for guarantee in GUARANTEES]
    lines += ["", "## How some of them read here", "", *_readings(READINGS), ""]
    return "\n".join(lines)


_HEAD = ("| | what holds | on values | on processes |", "| --- | --- | --- | --- |")


def _row(wanted: str, tests: list[Shown]) -> str:
    found = [test for test in tests if wanted in test.ids]
    # The one that is about nothing else says it best.
    best = min(
        (test for test in found if test.name),
        key=lambda test: (wanted not in test.named, len(test.ids), test.process),
        default=None,
    )
    sentence = (
        "every backend passes it, see the conformance suite" if best is None else best.sentence
    )
    values, processes = (
        ", ".join(sorted({_short(test.file) for test in found if test.process is process}))
        for process in (False, True)
    )
    return f"| {wanted} | {sentence} | {values} | {processes} |"


def _short(file: str) -> str:
    return file.removesuffix(".py").replace("/test_", "/")


def _readings(readings: Mapping[str, str]) -> list[str]:
    return [f"- **{ids}**: {reading}" for ids, reading in readings.items()]


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is current."""
    tests = shown()
    absent = missing(tests, (*SCENARIOS, *GUARANTEES))
    if absent:
        print(f"no test shows {', '.join(absent)}", file=sys.stderr)
        return 1
    if "--check" not in arguments:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page(tests), encoding="utf-8")
        return 0
    current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page(tests)
    if not current:
        print("docs/reference/scenarios.md is not current; run scripts/scenarios", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
