"""Every page does what it shows: commands are run, snippets too, links lead somewhere."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.documents import Bench, Fence, fences, matches, steps

ROOT = Path(__file__).parents[1]
DECISIONS = ROOT / "docs/decisions"
PAGES = [
    path
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    )
    if path.exists() and (path.parent != DECISIONS or path.name == "README.md")
]
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)")

#: Pages that are about the repository are played in it.
_IN_THE_REPOSITORY = ("docs/patterns/",)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _played(page: Path) -> list[Fence]:
    return [
        fence
        for fence in fences(page, ROOT)
        if fence.language not in ("text", "") or "output" in fence.words or fence.value("file")
    ]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    run_dir = Path(tempfile.mkdtemp(prefix="ga"))
    made = Bench(directory=tmp_path, run_dir=run_dir)
    yield made
    made.clear()
    shutil.rmtree(run_dir, ignore_errors=True)


@pytest.mark.process
@pytest.mark.parametrize("page", [page for page in PAGES if _played(page)], ids=_name)
def test_the_page_does_what_it_shows(page: Path, bench: Bench) -> None:
    """A reader who copies it line by line sees what is printed there."""
    if _name(page).startswith(_IN_THE_REPOSITORY):
        if not (ROOT / "examples/patterns").is_dir():
            pytest.skip("the examples are not part of an installed distribution")
        bench.directory = ROOT

    for fence in _played(page):
        bench.play(fence)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links to files of the repository; pages elsewhere are not looked at."""
    missing = [
        link
        for link in _LINK.findall(page.read_text(encoding="utf-8"))
        if not os.path.exists(page.parent / link.strip())
    ]

    assert missing == []


def test_every_page_can_be_reached() -> None:
    """A page that nothing links to is not there for a reader."""
    linked = {
        (page.parent / link.strip()).resolve()
        for page in PAGES
        for link in _LINK.findall(page.read_text(encoding="utf-8"))
    }

    lost = [
        _name(page)
        for page in PAGES
        if page.resolve() not in linked and _name(page) not in ("README.md", "CONTRIBUTING.md")
    ]
    assert lost == []


def test_every_decision_is_in_the_index_with_its_number_and_title() -> None:
    """A record that is not listed is found by nobody, and two of one number by half."""
    records = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")
    numbers = [path.name[:4] for path in records]
    rows = []
    for path in records:
        number, _, title = path.read_text(encoding="utf-8").splitlines()[0].partition(". ")
        assert number == f"# {int(path.name[:4])}", path.name
        rows.append(f"- [{path.name[:4]}]({path.name}) {title}")

    assert len(set(numbers)) == len(numbers)
    index = (DECISIONS / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in index if line.startswith("- ")] == rows


def test_a_console_block_is_read_command_by_command() -> None:
    """Continuations belong to their command, and an exit code may be named."""
    found = steps("$ echo a \\\n> b\nprinted\n$ false  # exit 1\n")

    assert [(step.command, step.code, step.expected) for step in found] == [
        ("echo a \\\nb", 0, "printed"),
        ("false  # exit 1", 1, ""),
    ]


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("running (pid 29692)", "running (pid 1234567)", True),
        ("a\n...\nz", "a\nb\nc\nz", True),
        ("a ... c", "a b c", True),
        ("a", "a\nb", False),
        ("failed: x", "failed: y", False),
    ],
)
def test_what_may_differ_and_what_may_not(expected: str, printed: str, same: bool) -> None:
    """Pids differ from run to run, words do not."""
    assert matches(expected, printed) is same
