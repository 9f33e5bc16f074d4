"""What one agent has asked of others: only as much may overtake what waits for it.

An answer passes whatever else waits for the agent, so there must be no more of them than
the agent asked for itself. It is counted here by headers alone: a call of another agent,
and what the agent says in a client's session. Who answers more, waits like everybody.
"""

from __future__ import annotations

from collections import Counter

from genagent_protocol.header import Header


class Asked:
    """The open questions of one agent, by whom they were put to: an agent, or a session."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def asks(self, header: Header) -> None:
        """The agent said this; what another agent or a session may answer is one question."""
        if header.kind in ("call", "ui_message"):
            self._open[header.to] += header.bodies

    def answers(self, header: Header) -> bool:
        """Whether this, whose sender is stamped, is what the agent asked for; it counts once.

        The end of a session answers whatever was asked in it.
        """
        if header.kind == "reply":
            return self._take(header.sender)
        session = f"{header.sender}.{header.ref}"
        if header.kind == "ui_message" and header.answers:
            return self._take(session)
        return header.kind == "ui_detach" and self._open.pop(session, 0) > 0

    def _take(self, whom: str) -> bool:
        # Not by indexing alone: a counter would keep a zero for everyone who ever came.
        left = self._open.pop(whom, 0)
        if left > 1:
            self._open[whom] = left - 1
        return left > 0

    def gone(self, whom: str) -> None:
        """That agent, or that client with all its sessions, answers nothing any more."""
        for text in [text for text in self._open if text.partition(".")[0] == whom]:
            del self._open[text]
