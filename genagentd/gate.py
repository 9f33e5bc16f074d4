"""Who comes is let in only while there are descriptors for it; until then it waits outside.

libzmq aborts the process when it accepts a connection and no descriptor is left. So it
gets a listening socket only when nobody can come to that any more, because another one
took its place, and when there is room for all who can be waiting there. With very
much room it gets the one that they come to, until there is less. What people come to
stays until its successor is in place. Nothing here accepts a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import time
from collections import Counter
from collections.abc import Callable

from genagentd import kernel
from genagentd.entrance import Entrance, is_abandoned

#: With more free descriptors, whoever comes is let in at once, and so many may wait. It is more
#: than all who can come while the loop is busy elsewhere.
ROOMY = 8_192
BACKLOG = 100
#: How often it is looked whether that is still so, while somebody comes: in time, and in people.
RECOUNT_S = 1.0
RECOUNT_EVERY = 128
#: With fewer, nobody may be let in at once, whatever that costs.
CLOSE = 1_024
#: With fewer, so many are let in at a time, two descriptors each, and so many are spared.
PORTION = 16
SPARE = 16
LEAST = 2 * PORTION + SPARE
#: How soon it is looked again whether there is room for a portion, and whether one is inside.
LOOK_AGAIN_S = 0.2
LOOK_SOON_S = 0.002
#: How long an entrance that nobody comes to any more is kept for who was on the way to it.
RETIRED_S = 1.0


class Gate:
    """The entrances of one listener, one after the other, in a running loop."""

    def __init__(
        self,
        path: str,
        accept_from: Callable[[Entrance], None],
        leave: Callable[[Entrance], None],
        hear_news: Callable[[], None],
        on_crowd: Callable[[int], None],
    ) -> None:
        """Be reachable at *path*.

        `accept_from` has whoever waits at an entrance let in, and owns its socket from then
        on; `leave` closes that and every connection that came by it. `hear_news` tells what
        was accepted and ended meanwhile. `on_crowd` gets the number of free descriptors
        when somebody begins to wait.

        Raises:
            OSError: the directory, or what this process may open, does not allow it.
        """
        self._path = path
        self._accept_from = accept_from
        self._leave = leave
        self._hear_news = hear_news
        self._on_crowd = on_crowd
        #: Hears why no other entrance could be made when one was wanted; once, until one could.
        self.on_blocked: Callable[[OSError], None] = lambda _error: None
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._front: Entrance | None = None
        #: Whether who comes to the front is let in at once.
        self._wide_open = False
        self._crowded = False
        self._blocked = False
        self._closed = False
        #: When it is tried again to have an entrance, if there is none that can be reached.
        self._retry: asyncio.TimerHandle | None = None
        #: How many connections there are by each entrance.
        self._inside: Counter[str] = Counter()
        #: Entrances that nobody comes to any more, and by which somebody still is there.
        self._retired: dict[str, Entrance] = {}
        #: Acceptances since the descriptors were counted, and when that was.
        self._uncounted = 0
        self._counted_at = 0.0
        #: The last one that nobody comes to any more, and by which some may be on the way in.
        self._given: Entrance | None = None
        self._open(self._count())

    @property
    def reachable(self) -> bool:
        """Whether who connects to the path comes to us."""
        return self._front is not None and self._front.is_there()

    def accepted(self, name: str) -> None:
        """Somebody was let in by that entrance."""
        self._inside[name] += 1
        self._uncounted += 1
        if self._front is None or not self._wide_open:
            return
        late = time.monotonic() > self._counted_at + RECOUNT_S
        if late or self._uncounted > RECOUNT_EVERY:
            self.recounted(self._count())

    def recounted(self, free: int) -> None:
        """So many descriptors are free, or will be when what was promised has been taken."""
        front = self._front
        if front is None or not self._wide_open or free > ROOMY:
            return
        if not self._replace(front, free):
            if free >= CLOSE:
                return
            # Nobody reaches us for now; who does not stop coming would end us.
            front.remove()
            self._front, self._wide_open = None, False
            self._retry_later()
        self._given = front
        self._retire_later(front)

    def ended(self, name: str) -> None:
        """A connection by that entrance is over."""
        self._inside[name] -= 1
        if self._inside[name] == 0:
            retired = self._retired.pop(name, None)
            if retired is not None:
                self._retire_later(retired)

    def renew(self) -> None:
        """Be reachable again, if somebody removed the file; does nothing while there is one.

        One that a killed process has left is none. Only who may have no rival asks for this.
        """
        # Whoever knocks at our own would be somebody who came.
        if not (self._closed or self.reachable) and is_abandoned(self._path):
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self._renew()

    def _renew(self) -> None:
        if self._closed or os.path.lexists(self._path):
            return
        front, was_wide = self._front, self._wide_open
        free = self._count()
        if not self._replace(front, free):
            self._retry_later()
        elif front is not None and was_wide:
            self._given = front
            self._retire_later(front)
        elif front is not None:
            self._loop.remove_reader(front.fd)
            if free < LEAST:
                # Nobody comes to it any more, and who waits there cannot be let in.
                os.close(front.fd)
            else:
                self._given = front
                self._accept_from(front)
                self._retire_later(front)

    def close(self) -> None:
        """Be reachable no longer; who is inside is not touched."""
        self._closed = True
        front, self._front = self._front, None
        if front is None:
            return
        front.remove()
        if not self._wide_open:
            self._loop.remove_reader(front.fd)
            os.close(front.fd)

    def _open(self, free: int) -> None:
        """Have a new entrance at the path, in the place of the one that was there.

        Raises:
            OSError: it could not be made, and the one that was there still is.
        """
        roomy = free > ROOMY
        front = Entrance(self._path, next(self._numbers), BACKLOG if roomy else PORTION - 1)
        self._front, self._wide_open = front, roomy
        if roomy:
            self._accept_from(front)
        else:
            self._loop.add_reader(front.fd, self._knocked)

    def _count(self) -> int:
        self._uncounted, self._counted_at = 0, time.monotonic()
        return kernel.free_descriptors()

    def _knocked(self) -> None:
        """Somebody waits at the front: let that portion in, if there is room for all of it."""
        front = self._front
        if front is None or self._wide_open:
            return
        self._loop.remove_reader(front.fd)
        if self._given is not None and _is_waited_at(self._given):
            # Who waits there is being let in, and has no descriptor yet that could be counted.
            self._loop.call_later(LOOK_SOON_S, self._look_at, front)
            return
        free = self._count()
        if free < LEAST:
            if not self._crowded:
                self._crowded = True
                self._on_crowd(free)
        elif self._replace(front, free):
            self._crowded = False
            self._given = front
            self._accept_from(front)
            self._retire_later(front)
            return
        self._loop.call_later(LOOK_AGAIN_S, self._look_at, front)

    def _look_at(self, front: Entrance) -> None:
        if front is self._front:
            self._loop.add_reader(front.fd, self._knocked)

    def _replace(self, front: Entrance | None, free: int) -> bool:
        """Have nobody come to *front* any more; False if that cannot be, and nothing changed."""
        # If the path is somebody else's by now, it stays theirs; if it is free, it is ours.
        if os.path.lexists(self._path) and not (front is not None and front.is_there()):
            self._front = None
            return True
        try:
            self._open(free)
        except OSError as error:
            if not self._blocked:
                self._blocked = True
                self.on_blocked(error)
            return False
        self._blocked = False
        return True

    def _retry_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(LOOK_AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._renew()

    def _retire_later(self, entrance: Entrance) -> None:
        self._loop.call_later(RETIRED_S, self._retire, entrance)

    def _retire(self, entrance: Entrance, quiet: bool = False) -> None:
        """Leave *entrance* once nobody waits there and nobody is inside by it."""
        if self._closed:
            return
        self._hear_news()
        if self._inside[entrance.name] > 0:
            self._retired[entrance.name] = entrance
        elif _is_waited_at(entrance) or entrance.is_there():
            # Somebody may have put the file back that was another one's before.
            self._retire_later(entrance)
        elif not quiet:
            # Who is no longer waiting may be let in, and the news of it be on its way.
            self._loop.call_later(RETIRED_S, self._retire, entrance, True)
        else:
            del self._inside[entrance.name]
            if self._given is entrance:
                self._given = None
            self._leave(entrance)


def _is_waited_at(entrance: Entrance) -> bool:
    """Whether somebody waits there to be let in."""
    waiting = select.poll()
    waiting.register(entrance.fd, select.POLLIN)
    return bool(waiting.poll(0))
