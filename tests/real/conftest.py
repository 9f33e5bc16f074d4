"""A home for real programs, and this process's ZeroMQ context."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from genagentd import channels


@pytest.fixture(scope="session", autouse=True)
def _context() -> None:
    """It stays open; its descriptors are no test's leak."""
    channels._context().socket(zmq.DEALER).close(0)


@pytest.fixture
def home() -> Iterator[Path]:
    # Not below /tmp: codex complains about a home there.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        yield Path(path)
