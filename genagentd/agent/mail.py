"""What arrives and what leaves: frames for the inbox, answers for those who wait for them.

A frame is kept unopened until its turn comes, except for what a running callback may
be waiting for: answers to calls of this agent, credit, and the end of an agent it
has called or of a client it waits for. The daemon is told what was taken in when it was dealt with,
so that what waits here is bounded by its window. What overtook others on its way and has
to wait after all, waits behind them.
"""

from __future__ import annotations

from collections import deque

from genagent_protocol import codec
from genagent_protocol.envelopes import (
    CallerDown,
    Credit,
    Down,
    Reply,
    TelemetryWanted,
    UiDetach,
    UiMessage,
    UnknownType,
)
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.header import DAEMON, Header
from genagentd.agent import incoming, log
from genagentd.agent.calls import Calls
from genagentd.agent.inbox import Frame, Inbox
from genagentd.agent.outgoing import Outgoing
from genagentd.agent.sessions import Sessions
from genagentd.outbox import Intake


class Mail:
    """Used in the coordinator."""

    def __init__(
        self,
        inbox: Inbox,
        outgoing: Outgoing,
        calls: Calls,
        sessions: Sessions,
        *,
        watched: bool = False,
    ) -> None:
        #: Whether the daemon wants telemetry; it may change its mind before anything is told.
        self.watched = watched
        self._inbox = inbox
        self._sessions = sessions
        self._outgoing = outgoing
        self._calls = calls
        self._intake = Intake()
        #: How many frames have come in their order, and what waits until so many have.
        self._in_order = 0
        self._early: deque[tuple[int, Frame]] = deque()

    def arrived(self, header: Header, body: bytes) -> None:
        """A frame came: deal with it at once if somebody may be waiting, else keep it."""
        early = header.behind > 0
        frame = Frame(header, body, credited=early)
        if early:
            # It came out of the window's order, and could keep the window closed to those that
            # it waits for. There are no more of them than this agent asked for.
            self._count(frame)
        else:
            self._in_order += 1
        if header.kind not in incoming.PASSING or not self._passed(frame):
            if early:
                self._early.append((self._in_order + header.behind, frame))
            else:
                self._inbox.put(frame)
        while self._early and self._early[0][0] <= self._in_order:
            self._inbox.put(self._early.popleft()[1])

    def _passed(self, frame: Frame) -> bool:
        """Deal with a frame that may not have to wait; False if it has to.

        One that nobody could deal with is taken in, too: what stays unaccounted for narrows the
        daemon's window for good, until this agent hears nobody any more.
        """
        passed = True
        try:
            passed = self._dealt_with(frame.header, self.open(frame))
        finally:
            if passed:
                self.took(frame)
        return passed

    def _dealt_with(
        self, header: Header, said: incoming.FromDaemon | incoming.FromOthers | None
    ) -> bool:
        """Deal with an answer, credit, or the end of who was called; False if it has to wait."""
        match said:
            case Reply():
                self._calls.answered(header.sender, said)
            case Credit():
                self._outgoing.credited(said)
            case TelemetryWanted():
                self.watched = said.on
            case UnknownType():
                log.line("message.unknown_to_daemon", type=said.tag)
                self._calls.not_known(said)
            case Down() if not self._calls.ended(said):
                return False
            case UiMessage():
                if not self._sessions.settle(header.sender, header.ref, said.message):
                    return False
            case UiDetach() if not self._sessions.detach(header.sender, header.ref):
                return False  # Its attach may still wait here.
            case CallerDown():
                # The turns hear of it too, and in its place.
                self._sessions.gone(said.caller.text)
                return False
        return True

    def open(self, frame: Frame) -> incoming.FromDaemon | incoming.FromOthers | None:
        """Return the envelope of *frame*, or None if there is none that this agent knows.

        Somebody who called for something unknown, or in a way that cannot be read, is told;
        anything else is logged.
        """
        header = frame.header
        try:
            return incoming.opened(header, frame.body)
        except codec.UnknownMessage as unknown:
            owed = incoming.owed_for_unknown(header, unknown)
            if owed is not None:
                self._outgoing.say(header.sender, owed)
            log.line("message.unknown", sender=header.sender, type=unknown.tag)
        except RemoteWireError as bad:
            if isinstance(bad, codec.MalformedMessage):
                refusal = incoming.owed_for_malformed(header, bad)
                if refusal is not None:
                    self._outgoing.say(header.sender, refusal)
            log.line("message.malformed", sender=header.sender, kind=header.kind)
        return None

    def took(self, frame: Frame) -> None:
        """*frame* was dealt with; tell the daemon when it is time to."""
        if not frame.credited:
            self._count(frame)

    def _count(self, frame: Frame) -> None:
        if self._intake.took(len(frame.body)):
            self._intake.told()
            credit = Credit(messages=self._intake.messages, bytes=self._intake.bytes)
            self._outgoing.say(DAEMON, credit)
