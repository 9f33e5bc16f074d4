"""A mailbox that collects: everything that arrived, in order, and waiting for what will.

Nothing is taken away by looking: a message that came before it was waited for counts
as well, and the whole order can be compared at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from genagent_protocol.envelopes import Admission, Completion, Down, EventMessage
from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd.client.boxes import Message
from genagentd.client.client import Client
from genagentd.client.mailbox import Mailbox
from genagentd.testing.waiting import DEADLINE_MS

Kind = TypeVar("Kind", Admission, Completion, Down, EventMessage)


class NotHeard(AssertionError):
    """The awaited message did not come in time; what did come is in the text."""


class Heard:
    """Everything that arrived in one mailbox, or in a client's own."""

    def __init__(self, source: Client | Mailbox) -> None:
        """Collect from *source*. Nobody else may receive from it, or both miss something."""
        self._source = source
        #: What was taken in so far, in the order in which it arrived.
        self.messages: list[Message] = []

    def until(
        self, matches: Callable[[Message], bool], what: str, within_ms: int = DEADLINE_MS
    ) -> Message:
        """Return the first message that *matches*, whether it came already or comes now.

        Raises:
            NotHeard: none came within *within_ms*.
        """
        for message in self.messages:
            if matches(message):
                return message
        deadline = monotonic() + within_ms / 1000
        while True:
            rest_ms = max(0, round((deadline - monotonic()) * 1000))
            message_now = self._source.receive(rest_ms)
            if message_now is None:
                raise NotHeard(f"within {within_ms} ms there was no {what}; heard: {self.messages}")
            self.messages.append(message_now)
            if matches(message_now):
                return message_now

    def admission(self, ref: RequestRef, within_ms: int = DEADLINE_MS) -> Admission:
        """Return the decision about *ref*; raises as `until`."""
        return self._about(Admission, ref, within_ms)

    def completion(self, ref: RequestRef, within_ms: int = DEADLINE_MS) -> Completion:
        """Return the outcome of *ref*; raises as `until`."""
        return self._about(Completion, ref, within_ms)

    def down(self, handle: AgentHandle, within_ms: int = DEADLINE_MS) -> Down:
        """Return the end of that process, if it is monitored; raises as `until`."""
        # A monitor that was forgotten is the most frequent reason why none comes.
        found = self.until(
            lambda message: (
                isinstance(message, Down) and message.handle.incarnation == handle.incarnation
            ),
            f"Down of {handle.name!r} (is it monitored?)",
            within_ms,
        )
        assert isinstance(found, Down)
        return found

    def events(self, ref: RequestRef) -> list[EventMessage]:
        """Return the events of *ref* among what was taken in so far. This does not wait."""
        return [m for m in self.messages if isinstance(m, EventMessage) and m.ref == ref]

    def _about(self, kind: type[Kind], ref: RequestRef, within_ms: int) -> Kind:
        found = self.until(
            lambda message: isinstance(message, kind) and getattr(message, "ref", None) == ref,
            f"{kind.__name__} of {ref}",
            within_ms,
        )
        assert isinstance(found, kind)
        return found
