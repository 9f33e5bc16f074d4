"""What a fault test measured, beside what was promised: printed, and written as a page.

The long version of a test insists on its target; the short one, which runs among
other tests on busy machines, only insists on the fact and notes the figure.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from genagentd.version import __version__


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    case: str
    what: str
    found: str
    target: str
    met: bool
    long: bool


@dataclass
class Figures:
    """What one test notes; `long` when it runs at full counts."""

    long: bool
    noted: list[Figure] = field(default_factory=list)

    def note(self, case: str, what: str, found: object, target: str, *, met: bool) -> None:
        """Print and keep one figure; in the long version it has to meet its target."""
        figure = Figure(case, what, str(found), target, met, self.long)
        self.noted.append(figure)
        print(f"\n{case}: {what}: {found} (target {target}){'' if met else ' MISSED'}")
        if self.long:
            assert met, f"{case}: {what} was {found}, and the target is {target}"


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


def page(noted: Sequence[Figure]) -> str:
    """Return the page that shows them."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    cores = len(os.sched_getaffinity(0))
    lines = [
        "# Faults: what was tried, and what was measured",
        "",
        "Written by `make fault`; do not edit. Each case kills, stops, floods or confuses real",
        "processes. The E and F numbers are explained by the names of the tests in",
        "`tests/processes/` and `tests/providers/`.",
        "",
        f"genagentd {__version__}, Python {platform.python_version()}, {date}, {cores} cores.",
        "",
        "| case | what | found | target | |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {f.case} | {f.what} | {f.found} | {f.target} | {'met' if f.met else '**missed**'} |"
        for f in sorted(noted, key=lambda f: (f.case, f.what))
    ]
    return "\n".join(lines) + "\n"
