"""What the helper leaves to the agents that are forked from it."""

from __future__ import annotations

import subprocess
import sys

#: Says in how many places new blocks of all small sizes do not lie side by side.
_COUNT = """
from genagentd.agent.preload import share
share()
strewn = 0
for block in range(48, 513, 16):
    made = [bytes(block - 33) for _ in range(12)]
    strewn += sum(id(b) != id(a) + block for a, b in zip(made, made[1:]))
print(strewn)
"""
_SIZES = len(range(48, 513, 16))


def test_what_an_agent_makes_lies_together() -> None:
    """Each gap that it would fill is on a page that all agents share, until one writes to it.

    One new pool for each size, and a second one where the first was nearly full; without
    the fillers it is about six for each.
    """
    said = subprocess.run([sys.executable, "-c", _COUNT], check=True, capture_output=True)

    assert int(said.stdout) <= 2 * _SIZES
