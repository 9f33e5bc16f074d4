"""What one request is known to be, folded from the messages of a mailbox.

The fold belongs to whoever wants to know: the client keeps no table of what it sent.
"""

from __future__ import annotations

from genagent_protocol.envelopes import (
    Admission,
    Completion,
    Down,
    EventMessage,
    Gap,
    Undeliverable,
)
from genagent_protocol.submission import Submission
from genagentd.client.boxes import Message, about


def hear(story: Submission, message: Message) -> Submission:
    """Return what is known of the request after *message*; news of others change nothing."""
    if not about(story.ref)(message):
        return story
    match message:
        case Admission(refused=None):
            return story.hear_admitted()
        case Admission(refused=reason) if reason is not None:
            return story.hear_refused(reason)
        case Undeliverable(reason=reason):
            return story.hear_refused(reason)
        case EventMessage():
            return story.hear_event()
        case Gap():
            return story.hear_gap(message.first, message.last)
        case Completion():
            return story.hear_completed(message.outcome)
        case Down():
            return story.hear_down(message.reason)
        case _:
            return story
