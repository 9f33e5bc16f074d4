"""What a newborn's pipe says reaches the daemon in an order that it can use."""

from __future__ import annotations

import itertools
import os

import pytest

from genagentd.daemon.children import BirthPipe

_AGENT_SAYS = (b"pid 7\n", b"ready\n")
_HELPER_SAYS = b"pid 7\n"


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("cuts", list(itertools.combinations(range(1, 20), 2)))
async def test_the_pid_is_told_once_and_before_ready(place: int, cuts: tuple[int, int]) -> None:
    """The helper may speak before, between and after the words of the agent, in any pieces."""
    told: list[object] = []
    pipe = BirthPipe(told.append, lambda: told.append("ready"), lambda: told.append("end"))
    lines = list(_AGENT_SAYS)
    lines.insert(place, _HELPER_SAYS)
    said = b"".join(lines)

    for start, end in itertools.pairwise((0, *cuts, len(said))):
        os.write(pipe.write_fd, said[start:end])
        pipe.read()
    pipe.sent()
    pipe.read()

    assert told == [7, "ready", "end"]
