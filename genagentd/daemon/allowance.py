"""How many descriptors this process may still open, counting those that are spoken for.

A start takes its descriptors one after the other until its channel is open. Judged by
what is open alone, many starts at once would all fit, and fail in the middle.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Hashable

from genagentd import kernel
from genagentd.unusable import NoRoom

#: What the daemon itself takes, one agent in it, and what is kept free for everything else.
ITS_OWN = 26
PER_AGENT = 10
RESERVED = 64
#: With less than this nobody could be let in, or no agent started.
LEAST = ITS_OWN + PER_AGENT + RESERVED


class Exhausted(Exception):
    """There are none left for one more agent; the message says how many there are."""


def check() -> None:
    """See that this process may open what a daemon of one agent needs.

    Raises:
        NoRoom: it may not; the message says how many it may, and needs.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < LEAST:
        raise NoRoom(
            errno.EMFILE,
            f"this daemon may open {limit} files and needs {LEAST} at least, for clients and one "
            "agent: allow more (ulimit -n; LimitNOFILE= of a service)",
        )


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
