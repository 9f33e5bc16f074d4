"""A child that the code of an agent forked is no agent: nothing of ours goes on in it.

It has copies of everything, the loops and the channel included, and would serve them
beside its parent. So code of the agent's is run inside `Home`, which lets nobody but the
agent come out, and a child that gets to one of our loops is ended by its selector.

This does not end a child that stays in its own code, execs or exits.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
from types import TracebackType

from genagentd.agent import log

#: The process of the agent, once there is one.
_agents: list[int] = []


def begin() -> None:
    """Note that this process is the agent."""
    _agents[:] = [os.getpid()]


def leave(error: BaseException | None = None) -> None:
    """End this process at once if it is a child of the agent's; *error* is what brought it here."""
    if not _agents or _agents[0] == os.getpid():
        return
    log.line(
        "fork.returned",
        pid=os.getpid(),
        agent_pid=_agents[0],
        error=None if error is None else log.class_of(error),
        why="a child that an agent's code forks has to end in that code, with os._exit",
    )
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    os._exit(_status(error))


class Home:
    """Code of the agent's is run inside; a child of the agent that comes out of it ends there.

    What was raised passes untouched: an exception may be code that objects to a look.
    """

    def __enter__(self) -> None:
        """Nothing happens yet."""

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Let the agent go on, and nobody else."""
        leave(error)


def _status(error: BaseException | None) -> int:
    if error is None:
        return 0
    with contextlib.suppress(BaseException):  # The exception is the agent's own code as well.
        if isinstance(error, SystemExit):
            return error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)
    return 1


class Selector(selectors.DefaultSelector):
    """What a loop of the agent waits with; in a child there is nothing to wait for."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, in the agent; end, in a child of it."""
        leave()
        return super().select(timeout)
