"""Whether this process is still the one that made something, without asking the kernel."""

from __future__ import annotations

import os

_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603  # a fact about the process, and there is one process
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def generation() -> int:
    """Return a number that is another one in every process that was forked off this one."""
    return _forks
