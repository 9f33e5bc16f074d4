"""How many descriptors this process may still open, counting those that are spoken for.

A start takes its descriptors one after the other until its channel is open. Judged by
what is open alone, many starts at once would all fit, and fail in the middle.
"""

from __future__ import annotations

import resource
from collections.abc import Hashable

from genagentd import kernel

#: Descriptors one agent takes in the daemon, and what is kept free for everything else.
PER_AGENT = 10
RESERVED = 64


class Exhausted(Exception):
    """There are none left for one more agent; the message says how many there are."""


class Allowance:
    """The descriptors that starts under way have been promised."""

    def __init__(self) -> None:
        self._promised: set[Hashable] = set()

    def promise(self, start: Hashable) -> int:
        """Keep the descriptors of one agent for *start*, until it is `settled`.

        Returns how many are left once everybody has what was promised.

        Raises:
            Exhausted: there are not enough; nothing was kept.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = kernel.open_descriptors()
        if used + PER_AGENT * (len(self._promised) + 1) + RESERVED > limit:
            raise Exhausted(
                f"{used} of {limit} descriptors are in use, {len(self._promised)} agents are "
                f"starting, each takes up to {PER_AGENT}, and {RESERVED} are kept for clients: "
                "raise the limit (LimitNOFILE, ulimit -n), or stop agents"
            )
        self._promised.add(start)
        return limit - used - PER_AGENT * len(self._promised)

    def settled(self, start: Hashable) -> None:
        """*start* has taken what it takes, or never will; again is fine."""
        self._promised.discard(start)
