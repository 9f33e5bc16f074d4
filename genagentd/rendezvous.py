"""A place where one process finds us, and nobody else does.

Whoever else comes is turned away by the kernel's word on who it is; once that one
has said its first word, the file is gone, and nobody can come.
"""

from __future__ import annotations

from collections.abc import Callable

from genagentd.arrivals import OnMessage
from genagentd.channels import Bound
from genagentd.entrance import Entrance

#: So many may be on their way in at once.
BACKLOG = 16


class Rendezvous(Bound):
    """Made inside a running loop; what arrives waits until that runs again."""

    def __init__(
        self, path: str, on_message: OnMessage, on_gone: Callable[[bytes], None], pid: int
    ) -> None:
        """Be there at *path* for that process.

        Raises:
            UsageError: the path is too long.
            OSError: the directory, or what this process may open, does not allow it.
        """
        super().__init__(path, on_message, on_gone)
        self._socket.hear_only(pid)
        try:
            self._entrance = Entrance(path, 0, BACKLOG)
            self.accept_from(self._entrance)
        except OSError:
            super().close()
            raise

    def is_there(self) -> bool:
        """Whether who connects to the path comes to us."""
        return self._entrance.is_there()

    def met(self) -> None:
        """Who was waited for is here: be found no more."""
        self._entrance.remove()

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket; with a linger, what was sent has that long to leave."""
        if not self.closed:
            self.met()
        super().close(linger_ms)
