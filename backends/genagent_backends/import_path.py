"""Libraries of ours are looked for where they are installed, not in the working directory.

An agent's working directory comes first on its import path, so that its own modules are
found there. A file in it that happens to be called like an optional part of a library
would otherwise be run in the library's place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_working_directory() -> Iterator[None]:
    """Leave the working directory out of the import path meanwhile."""
    before = sys.path
    sys.path = [entry for entry in before if not _is_here(entry)]
    try:
        yield
    finally:
        sys.path = before


def _is_here(entry: str) -> bool:
    try:
        return entry == "" or os.path.realpath(entry) == os.getcwd()
    except OSError:
        return False  # the working directory is gone, and nothing is found in it
