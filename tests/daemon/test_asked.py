"""Answers overtake only as far as an agent asked for them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.header import Header
from genagentd.daemon.asked import Asked

AGENT, CLIENT, SESSION = "0123456789abcdef-2", "0123456789abcdef/3", "0123456789abcdef/3.7"


def reply(sender: str = AGENT) -> Header:
    return Header("reply", "to", sender)


def said(kind: str, *, answers: bool = False) -> Header:
    """Return what the client says in its session."""
    return Header(kind, "to", CLIENT, ref="7", answers=answers)


def test_a_call_is_answered_once() -> None:
    """A second answer was not asked for."""
    asked = Asked()
    asked.asks(Header("call", AGENT, ref="1"))

    assert not asked.answers(reply("0123456789abcdef-9"))
    assert asked.answers(reply())
    assert not asked.answers(reply())


def test_what_a_client_asks_in_its_session_waits() -> None:
    """It has a place among what that client said; only what answers the agent passes."""
    asked = Asked()
    asked.asks(Header("ui_message", SESSION, bodies=2))

    assert not asked.answers(said("ui_message"))
    assert asked.answers(said("ui_message", answers=True))
    assert asked.answers(said("ui_message", answers=True))
    assert not asked.answers(said("ui_message", answers=True))


def test_the_end_of_a_session_answers_all_that_was_asked_in_it() -> None:
    """And of one in which nothing was asked, nobody waits for the end."""
    asked = Asked()
    assert not asked.answers(said("ui_detach"))
    asked.asks(Header("ui_message", SESSION, bodies=3))

    assert asked.answers(said("ui_detach"))
    assert len(asked) == 0


def test_who_is_gone_answers_nothing() -> None:
    """A long life of an agent keeps nothing of all who came by."""
    asked = Asked()
    for header in (
        Header("call", AGENT),
        Header("ui_message", SESSION),
        Header("call", AGENT + "0"),
    ):
        asked.asks(header)

    asked.gone(AGENT)
    asked.gone(CLIENT)

    assert len(asked) == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("call"), st.sampled_from(["a", "b"]), st.integers(1, 3)),
            st.tuples(st.just("reply"), st.sampled_from(["a", "b", "c"]), st.just(1)),
        )
    )
)
def test_there_are_never_more_answers_than_questions(done: list[tuple[str, str, int]]) -> None:
    """Whatever others say, they cannot have more of it pass than was asked of them."""
    asked, open_questions = Asked(), Counter[str]()

    for kind, whom, count in done:
        if kind == "call":
            asked.asks(Header("call", whom, bodies=count))
            open_questions[whom] += count
        else:
            assert asked.answers(reply(whom)) == (open_questions[whom] > 0)
            open_questions[whom] = max(0, open_questions[whom] - 1)
    assert len(asked) == open_questions.total()
