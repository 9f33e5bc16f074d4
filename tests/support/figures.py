"""What a fault test measured, beside what was promised: printed, and written as a page.

The long version of a test insists on its targets; a short one, which runs among other
tests on busy machines, insists on the facts and notes the figures. The page lists every
case that was tried, with its outcome, and the figures of everything but the short ones.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from genagentd.version import __version__

#: A test with a count runs short, or in full; any other runs in one way only.
Length: TypeAlias = Literal["short", "full", "only"]
_FROM_WORST = ("failed", "not tried", "passed", "skipped")
_PROPERTY = "figure"
_CASE = re.compile(r"\b[EF]\d{3}\b")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    case: str
    what: str
    found: str
    target: str
    met: bool
    length: Length = "only"


@dataclass
class Figures:
    """What one test notes."""

    length: Length = "only"
    noted: list[Figure] = field(default_factory=list)

    def note(self, case: str, what: str, found: object, target: str, *, met: bool) -> None:
        """Print and keep one figure; at full counts it has to meet its target."""
        self.noted.append(Figure(case, what, str(found), target, met, self.length))
        print(f"\n{case}: {what}: {found} (target {target}){'' if met else ' MISSED'}")
        if self.length == "full":
            assert met, f"{case}: {what} was {found}, and the target is {target}"

    def as_properties(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """Yield them as pytest carries them from the process of a test to that of the run."""
        for figure in self.noted:
            yield _PROPERTY, dataclasses.asdict(figure)


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value that *share* of them do not exceed."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def counts(short: int, full: int) -> pytest.MarkDecorator:
    """Run the test with a small *count*, and with the full one under `make fault`."""
    return pytest.mark.parametrize(
        "count",
        [
            pytest.param(short, id=f"short-{short}"),
            pytest.param(
                full, id=f"full-{full}", marks=[pytest.mark.slow, pytest.mark.timeout(900)]
            ),
        ],
    )


def length_of(item: pytest.Item) -> Length:
    """Return how long a version of its test *item* is."""
    match re.search(r"\b(short|full)-\d+\b", item.name):
        case re.Match() as found:
            return "short" if found[1] == "short" else "full"
        case _:
            return "only"


@dataclass(frozen=True, slots=True)
class Trial:
    """One test of one or more cases, and how it ended."""

    cases: tuple[str, ...]
    sentence: str
    where: str
    outcome: str


def trial(item: pytest.Item, outcome: str) -> Trial | None:
    """Return what *item* tried, if that is a case; its name or its docstring says which."""
    name = item.name.partition("[")[0].replace("_", " ")
    told = getattr(getattr(item, "function", None), "__doc__", "") or ""
    cases = tuple(sorted(set(_CASE.findall(f"{name} {told}"))))
    if not cases or length_of(item) == "short":
        return None
    sentence = " ".join(word for word in name.split()[1:] if not _CASE.fullmatch(word))
    return Trial(cases, sentence, Path(item.path).name, outcome)


@dataclass(eq=False)
class Report:
    """Everything one run noted; what was left out, or cut off, stays `not tried`."""

    figures: list[Figure] = field(default_factory=list)
    #: By the id of the test.
    trials: dict[str, Trial] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what the test noted; pytest calls this, wherever the test ran."""
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == _PROPERTY and isinstance(value, dict):
                    self.figures.append(Figure(**value))

    def lines(self) -> Iterable[str]:
        """Yield the figures, one a line, for the terminal."""
        for f in sorted(self.figures, key=lambda f: (f.case, f.what)):
            verdict = "met" if f.met else "MISSED"
            yield f"{f.case} {f.what}: {f.found} (target {f.target}) {verdict}"

    def page(self) -> str:
        """Return the page that shows it all."""
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        cores = len(os.sched_getaffinity(0))
        return "\n".join(
            [
                "# Faults: what was tried, and what was measured",
                "",
                "Written by `make fault`; do not edit. Each case kills, stops, floods or confuses",
                "real processes. A number beginning with F is a fault with a figure that it has to",
                "keep, one beginning with E a complaint that users of such tools have published.",
                "",
                f"genagentd {__version__}, Python {platform.python_version()}, {date}, "
                f"{cores} cores.",
                "",
                "## Figures",
                "",
                "| case | what | found | target | |",
                "| --- | --- | --- | --- | --- |",
                *self._figure_rows(),
                "",
                "## Cases",
                "",
                "| case | what was tried | where | outcome |",
                "| --- | --- | --- | --- |",
                *self._trial_rows(),
                "",
            ]
        )

    def _figure_rows(self) -> Iterable[str]:
        for f in sorted(self.figures, key=lambda f: (f.case, f.what)):
            if f.length != "short":
                verdict = "met" if f.met else "**missed**"
                yield f"| {f.case} | {f.what} | {f.found} | {f.target} | {verdict} |"

    def _trial_rows(self) -> Iterable[str]:
        merged: dict[tuple[tuple[str, ...], str, str], set[str]] = {}
        for one in self.trials.values():
            merged.setdefault((one.cases, one.sentence, one.where), set()).add(one.outcome)
        for (cases, sentence, where), outcomes in sorted(merged.items()):
            worst = next(word for word in _FROM_WORST if word in outcomes)
            outcome = worst if worst in ("passed", "skipped") else f"**{worst}**"
            yield f"| {', '.join(cases)} | {sentence} | `{where}` | {outcome} |"
