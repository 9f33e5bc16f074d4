"""A home for real programs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def home() -> Iterator[Path]:
    # Not below /tmp: codex complains about a home there.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        yield Path(path)
