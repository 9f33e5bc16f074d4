"""Somebody who traces a process and takes no news of it, as a debugger at its prompt does."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

_SEIZE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
seized = libc.ptrace(0x4206, int(sys.argv[1]), 0, 0)
print(os.strerror(ctypes.get_errno()) if seized else "", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def tracing(pid: int) -> Iterator[None]:
    """Trace *pid* until this ends; skip the test where that is not allowed."""
    with subprocess.Popen(
        [sys.executable, "-c", _SEIZE, str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tracer:
        assert tracer.stdout is not None
        refused = tracer.stdout.readline().strip()
        if refused:
            pytest.skip(f"nobody may trace a process here: {refused}")
        yield
        # What it reads ends, and with it the tracer.
