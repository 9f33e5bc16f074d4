"""Which connection a message came by, although descriptors are used again at once.

The news that a connection ended names its descriptor, and the kernel gives that to
the next one, perhaps to one that never says a word. So connections are numbered as
they are accepted, and a route, which is never used twice, gets the number of the
connection it was first heard on. Nothing here has a socket.
"""

from __future__ import annotations


class Connections:
    """The connections of one listener: tell it what was accepted, heard and ended, in order."""

    def __init__(self) -> None:
        self._accepted = 0
        self._latest: dict[int, int] = {}
        self._number_of: dict[bytes, int] = {}
        self._route_of: dict[int, bytes] = {}

    def accepted(self, fd: int) -> None:
        """A new connection has this descriptor."""
        self._latest[fd] = self._next()

    def ended(self, fd: int) -> int:
        """Return the number of the connection that had this descriptor last."""
        return self._latest.get(fd, 0)

    def knows(self, route: bytes) -> bool:
        """Whether *route* was heard and is not forgotten."""
        return route in self._number_of

    def heard(self, route: bytes, fd: int) -> int | None:
        """A first message came by this route and descriptor.

        Every acceptance that happened before has to be told before. Returns the
        number of another connection, if this shows that it is over: its end is to be
        told once everything that has arrived is read.
        """
        number = self._latest.get(fd, 0)
        other = self._route_of.get(number)
        if other is None:
            self._name(route, number)
            return None
        # Both used this descriptor before anyone looked. Routes are numbered upwards, so the
        # lower one came first, and only the last one can still be there.
        over = self._next()
        self._name(max(route, other), number)
        self._name(min(route, other), over)
        return over

    def forget(self, number: int) -> bytes | None:
        """Forget an ended connection; return its route, if a message ever came by it."""
        route = self._route_of.pop(number, None)
        if route is not None:
            del self._number_of[route]
        return route

    def _next(self) -> int:
        self._accepted += 1
        return self._accepted

    def _name(self, route: bytes, number: int) -> None:
        self._number_of[route] = number
        self._route_of[number] = route
