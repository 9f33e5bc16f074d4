"""What is known of a request is folded from its messages, and from no others."""

from __future__ import annotations

import pytest

from genagent_protocol.envelopes import (
    Admission,
    Completion,
    Down,
    EventMessage,
    Gap,
    Telemetry,
    Undeliverable,
)
from genagent_protocol.events import Failed, event
from genagent_protocol.reasons import DRAINING, INTERRUPTED, NORMAL, Reason
from genagent_protocol.refs import MonitorRef
from genagent_protocol.submission import Submission
from genagentd.client.boxes import Message
from genagentd.client.story import hear
from support.peer import a_ref, handle

ADMITTED = Admission(agent="a", ref=a_ref())
REFUSED = Admission(agent="a", ref=a_ref(), refused=DRAINING)
EVENT = EventMessage(agent="a", ref=a_ref(), event=event("text"))
GAP = Gap(ref=a_ref(), first=1, last=3)
DONE = Completion(agent="a", ref=a_ref(), outcome=Failed(INTERRUPTED))
UNDELIVERABLE = Undeliverable(agent="a", ref=a_ref(), reason=Reason("inbox_full"))
DOWN = Down(monitor=MonitorRef(1), handle=handle(), reason=NORMAL)


def told(*messages: Message) -> Submission:
    story = Submission(ref=a_ref())
    for message in messages:
        story = hear(story, message)
    return story


@pytest.mark.parametrize(
    ("messages", "word", "accepted"),
    [
        ((), "sent", None),
        ((ADMITTED,), "accepted", True),
        ((ADMITTED, EVENT), "started", True),
        ((ADMITTED, GAP), "started", True),
        ((ADMITTED, EVENT, DONE), "failed", True),
        ((DONE, ADMITTED), "failed", True),
        ((DONE, DOWN), "failed", True),
        ((REFUSED,), "failed", False),
        ((REFUSED, DOWN), "failed", False),
        ((UNDELIVERABLE,), "failed", False),
        ((ADMITTED, DOWN), "uncertain", True),
        ((DOWN,), "uncertain", None),
    ],
)
def test_what_was_heard_decides_what_is_known(
    messages: tuple[Message, ...], word: str, accepted: bool | None
) -> None:
    """C9-C11, C23-C26: each sequence has one meaning."""
    story = told(*messages)

    assert (story.word, story.accepted, story.contradicted) == (word, accepted, False)


def test_news_of_others_change_nothing() -> None:
    """A mailbox holds the messages of many requests and many agents."""
    others: list[Message] = [
        Admission(agent="a", ref=a_ref(2)),
        Completion(agent="a", ref=a_ref(2), outcome=Failed(INTERRUPTED)),
        Down(monitor=MonitorRef(2), handle=handle(9), reason=NORMAL),
        Telemetry(event="halted", agent="a"),
    ]

    assert told(*others) == told()


def test_events_and_gaps_are_counted() -> None:
    """A stream that lost events says how many."""
    story = told(ADMITTED, EVENT, EVENT, GAP)

    assert (story.events, story.missing) == (2, 3)
