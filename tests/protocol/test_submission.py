"""What a client may know of one request, in every order in which it can hear things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from genagent_protocol.events import Completed, EventCoverage, Failed, Outcome, Response, event
from genagent_protocol.plain import EMPTY
from genagent_protocol.reasons import CANCELLED, NOCONNECTION, NOPROC, ExitReason, Reason
from genagent_protocol.refs import BootId, Incarnation, RequestRef
from genagent_protocol.submission import Submission

REF = RequestRef.mint(Incarnation(BootId("0123456789abcdef"), 1), bytes(16))
KILLED = ExitReason("signal:9")
DRAINING = Reason("draining")
DONE = Completed(
    Response(
        text="hi",
        final_message="hi",
        events=(),
        terminal=event("result"),
        event_coverage=EventCoverage(),
        metadata=EMPTY,
    )
)
BROKEN = Failed(Reason("no_terminal_event"))

Hear = Callable[[Submission], Submission]

#: Everything that can be heard of one ref.
ALPHABET: dict[str, Hear] = {
    "admitted": lambda known: known.hear_admitted(),
    "refused": lambda known: known.hear_refused(DRAINING),
    "event": lambda known: known.hear_event(),
    "gap": lambda known: known.hear_gap(3, 4),
    "done": lambda known: known.hear_completed(DONE),
    "broken": lambda known: known.hear_completed(BROKEN),
    "cancelled": lambda known: known.hear_cancelled(),
    "killed": lambda known: known.hear_down(KILLED),
    "noproc": lambda known: known.hear_down(NOPROC),
    "noconnection": lambda known: known.hear_down(NOCONNECTION),
}
DOWNS = ("killed", "noproc", "noconnection")
OUTCOMES: dict[str, Outcome] = {"done": DONE, "broken": BROKEN, "cancelled": Failed(CANCELLED)}
PROOFS = ("admitted", "event", "gap", *OUTCOMES)


def heard(*facts: str) -> Submission:
    """Return what is known after *facts*."""
    known = Submission(ref=REF)
    for fact in facts:
        known = ALPHABET[fact](known)
    return known


def every_story(length: int) -> Iterator[tuple[tuple[str, ...], tuple[Submission, ...]]]:
    """Yield every sequence of up to *length* facts with what was known along it."""
    stories: list[tuple[tuple[str, ...], tuple[Submission, ...]]] = [((), (heard(),))]
    while stories:
        facts, known = stories.pop()
        yield facts, known
        if len(facts) < length:
            stories += [
                ((*facts, name), (*known, hear(known[-1]))) for name, hear in ALPHABET.items()
            ]


def word_by_hand(facts: tuple[str, ...]) -> str:
    """Return the word for a story, read off the list of its facts."""
    for index, fact in enumerate(facts):
        if fact in OUTCOMES:
            return {"done": "completed", "broken": "failed", "cancelled": "cancelled"}[fact]
        if fact == "refused" and not set(facts[:index]) & set(PROOFS):
            return "failed"
    downs = [fact for fact in facts if fact in DOWNS]
    if downs:
        return "uncertain" if set(facts) & set(PROOFS) or downs[0] != "noproc" else "lost"
    if "event" in facts or "gap" in facts:
        return "started"
    return "accepted" if "admitted" in facts else "sent"


def test_every_story_up_to_five_facts_ends_in_the_right_word() -> None:
    """111,111 stories: no order of messages makes a client believe what it cannot know."""
    seen = 0
    for facts, known in every_story(5):
        seen += 1
        assert known[-1].word == word_by_hand(facts), facts
    assert seen == sum(10**length for length in range(6))


def test_knowledge_only_grows() -> None:
    """What a client was told once is never taken back by what comes later."""
    for facts, known in every_story(4):
        for before, after in pairwise(known):
            assert before.accepted in (None, after.accepted), facts
            assert before.outcome in (None, after.outcome), facts
            assert before.refusal in (None, after.refusal), facts
            assert before.ended in (None, after.ended), facts
            assert not (before.permit_returned and not after.permit_returned), facts
            assert not (before.contradicted and not after.contradicted), facts


def test_a_permit_comes_back_only_for_the_four_reasons() -> None:
    """Whoever frees it earlier replaces work that may still be running."""
    for facts, known in every_story(4):
        returned = known[-1].permit_returned
        reasons = set(facts) & {"refused", *OUTCOMES, *DOWNS}
        assert not returned or reasons, facts
        assert returned or not reasons - {"refused"}, facts


#: What an agent that keeps the protocol can say, and where its process may end.
LAWFUL = (
    ("refused",),
    ("admitted", "done"),
    ("admitted", "event", "gap", "event", "done"),
    ("admitted", "event", "broken"),
    ("admitted", "cancelled", "cancelled"),
    ("broken", "admitted"),
    ("broken",),
    ("event", "admitted", "done"),
    ("admitted", "done", "event"),
)


@pytest.mark.parametrize("story", LAWFUL)
@pytest.mark.parametrize("down", DOWNS)
def test_a_lawful_story_is_never_called_contradicted(story: tuple[str, ...], down: str) -> None:
    """The process may end after any of its words, and be heard of twice."""
    for length in range(len(story) + 1):
        assert not heard(*story[:length], down, "noconnection").contradicted


@pytest.mark.parametrize(
    "story",
    [
        ("done", "done"),
        ("done", "broken"),
        ("done", "cancelled"),
        ("cancelled", "done"),
        ("admitted", "admitted"),
        ("admitted", "refused"),
        ("refused", "admitted"),
        ("refused", "refused"),
        ("refused", "done"),
        ("refused", "event"),
        ("refused", "gap"),
        ("done", "refused"),
        ("event", "refused"),
        ("killed", "admitted"),
        ("killed", "done"),
        ("noconnection", "event"),
    ],
)
def test_a_contradiction_is_marked_and_changes_nothing_known(story: tuple[str, str]) -> None:
    """A faulty agent must not make a finished request unfinished, nor break its reader."""
    first, second = heard(story[0]), heard(*story)

    assert not first.contradicted
    assert second.contradicted
    assert first.outcome in (None, second.outcome)
    assert first.refusal == second.refusal


def test_a_gap_that_ends_before_it_begins_is_a_contradiction() -> None:
    """It would count a negative number of events."""
    assert heard().hear_gap(4, 3).contradicted
    assert heard().hear_gap(4, 4).missing == 1


def test_a_completion_before_the_admission_finishes_the_request() -> None:
    """A gate that refuses to run it is faster than the admission; C9, C10, S104."""
    known = heard("broken", "admitted")

    assert (known.word, known.accepted, known.permit_returned) == ("failed", True, True)


def test_a_completion_without_an_admission_stays_known_after_the_death() -> None:
    """The outcome is proof enough; C23, S107."""
    known = heard("done", "killed")

    assert (known.word, known.accepted, known.outcome) == ("completed", True, DONE)


def test_an_admission_and_a_death_leave_the_outcome_unknown() -> None:
    """It was accepted, it may have run, nobody can tell; C24, S108."""
    known = heard("admitted", "killed")

    assert (known.word, known.accepted, known.final) == ("uncertain", True, False)


def test_a_death_alone_leaves_even_the_acceptance_unknown() -> None:
    """The agent may have taken it and died before it could say so; C25, S109."""
    known = heard("killed")

    assert (known.word, known.accepted) == ("uncertain", None)


def test_a_watch_over_the_dead_tells_that_the_request_is_lost() -> None:
    """The process was over before anyone watched, and said nothing of it; D28."""
    assert heard("noproc").word == "lost"
    assert heard("admitted", "noproc").word == "uncertain"


def test_a_refusal_stays_known_after_the_death() -> None:
    """It was never accepted, so there is nothing to be uncertain of; C26, S123."""
    known = heard("refused", "killed")

    assert (known.word, known.accepted, known.refusal) == ("failed", False, DRAINING)


def test_a_lost_connection_is_no_more_than_a_death() -> None:
    """The daemon's crash leaves the same knowledge."""
    assert heard("admitted", "noconnection").word == "uncertain"
    assert heard("done", "noconnection").word == "completed"
    assert heard("noconnection").accepted is None


def test_silence_keeps_the_permit() -> None:
    """The caller's own timeout tells nothing about the request; C30, S122."""
    assert not heard().permit_returned
    assert not heard("admitted", "event").permit_returned


def test_events_and_gaps_are_counted() -> None:
    """A reader of a stream knows how much of it it has."""
    known = heard("admitted", "event", "gap", "event")

    assert (known.events, known.missing, known.word) == (2, 2, "started")
