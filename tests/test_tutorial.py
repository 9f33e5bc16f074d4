"""The tutorial, followed to the letter by somebody who has nothing: the transcript is the test.

A new virtual environment, an empty directory, and the wheel that would be published; what
needs a provider or a service manager is read, the rest is typed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.documents import Bench, fences

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/tutorial.md"

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    if not (ROOT / "genagentd").is_dir():
        pytest.skip("the sources are not here: nothing to build a wheel from")
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--quiet", "--wheel", "--outdir", str(target), "."]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    (made,) = target.glob("*.whl")
    return made


@pytest.fixture
def newcomer(wheel: Path, tmp_path: Path) -> Iterator[Bench]:
    """An empty directory in which a virtual environment called .venv will be made."""
    directory = tmp_path / "empty"
    directory.mkdir()
    run_dir = Path(tempfile.mkdtemp(prefix="ga"))
    bench = Bench(
        directory,
        run_dir,
        programs=directory / ".venv/bin",
        added={
            "GENAGENTD": str(wheel),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_QUIET": "1",
        },
    )
    yield bench
    bench.clear()
    shutil.rmtree(run_dir, ignore_errors=True)


def test_a_newcomer_gets_from_nothing_to_an_agent_of_their_own(newcomer: Bench) -> None:
    """Every line that can be typed here is typed, in order, and shows what the page shows."""
    blocks = fences(PAGE, ROOT)
    install, rest = blocks[0], blocks[1:]
    assert 'pip install "$GENAGENTD"' in install.text

    newcomer.type(install)
    for block in rest:
        newcomer.play(block)

    print("\n".join(newcomer.transcript))
    typed = [line for line in newcomer.transcript if line.startswith("$ ")]
    assert len(typed) > 20
    installed = subprocess.run(
        [str(newcomer.programs / "python"), "-c", "import genagentd; print(genagentd.__file__)"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert installed.startswith(str(newcomer.directory))


def test_its_parts_are_in_the_order_that_was_promised() -> None:
    """Install, an agent, streaming, a handle and its end, a provider, a service."""
    heads = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    numbered = [head for head in heads if head[0].isdigit()]
    wanted = ("Install", "agent", "come", "name", "handle", "provider", "service")
    assert all(word in head for word, head in zip(wanted, numbered, strict=True))
