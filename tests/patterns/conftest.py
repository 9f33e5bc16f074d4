"""The patterns are programs: found in the repository, behind what is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from examples.patterns.company import Watch
    from genagentd import Client

REPOSITORY = Path(__file__).parents[2]
if not (REPOSITORY / "examples/patterns").is_dir():
    collect_ignore_glob = ["test_*.py"]
# At the end: the installed packages stay the ones that are tested.
sys.path.append(str(REPOSITORY))


@pytest.fixture
def watch(genagent_client: Client) -> Iterator[Watch]:
    """What waits for a fact about an agent."""
    from examples.patterns.company import Watch

    watch = Watch(genagent_client)
    yield watch
    watch.close()
