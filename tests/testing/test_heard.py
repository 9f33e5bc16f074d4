"""A mailbox that collects: nothing is lost by waiting for something else."""

from __future__ import annotations

import pytest

from genagentd import Client, UsageError
from genagentd.messages import Admission, Completed, Completion, EventMessage
from genagentd.testing import (
    Gates,
    Heard,
    NotHeard,
    breaks,
    cannot_start,
    echoes,
    hangs,
    holds,
    says,
    scripted,
    until,
)

pytestmark = pytest.mark.process


def test_waiting_for_one_message_keeps_the_others(
    genagent_client: Client, genagent_heard: Heard
) -> None:
    """In the order in which they came; and what came before the waiting counts."""
    options = scripted(says("a", "b"), says("c"))
    handle = genagent_client.start_agent(None, name="a", backend="scripted", options=options)
    agent = genagent_client.at(handle)
    first = agent.submit_with_completion("1", stream_to=genagent_client.address).ref
    second = agent.submit_with_completion("2").ref

    last = genagent_heard.completion(second)
    assert genagent_heard.admission(first).refused is None
    done = genagent_heard.completion(first)

    assert isinstance(done.outcome, Completed)
    assert done.outcome.response.text == "ab"
    assert genagent_heard.messages.index(done) < genagent_heard.messages.index(last)
    assert [message.event.kind for message in genagent_heard.events(first)] == [
        "text",
        "text",
        "result",
    ]
    assert {type(message) for message in genagent_heard.messages} == {
        Admission,
        EventMessage,
        Completion,
    }


def test_what_was_not_heard_is_an_error_with_what_was(
    genagent_client: Client, genagent_heard: Heard, genagent_gates: Gates
) -> None:
    """A test that waits in vain should not need a debugger."""
    options = scripted(holds("here", "x"), gates=genagent_gates)
    handle = genagent_client.start_agent(None, name="a", backend="scripted", options=options)
    ref = genagent_client.at(handle).submit_with_completion("1").ref
    genagent_gates.wait_blocked("here")
    genagent_heard.admission(ref)

    with pytest.raises(NotHeard, match=r"(?s)no Completion of .*heard: .*Admission"):
        genagent_heard.completion(ref, within_ms=1)
    genagent_gates.release("here")


def test_a_down_that_does_not_come_asks_for_the_monitor(
    genagent_client: Client, genagent_heard: Heard
) -> None:
    """What is forgotten most often."""
    handle = genagent_client.start_agent(None, name="a", backend="echo")
    genagent_client.stop("a")

    with pytest.raises(NotHeard, match=r"no Down of 'a' \(is it monitored\?\)"):
        genagent_heard.down(handle, within_ms=1)


def test_a_turn_that_waits_at_a_gate_of_nobody_is_refused() -> None:
    """It would wait until its time is over, in another process."""
    with pytest.raises(UsageError, match="waits at the gate 'g'; give gates="):
        scripted(says("x"), [*says("y"), *holds("g")])


def test_each_kind_of_turn_does_what_its_name_says(
    genagent_client: Client, genagent_heard: Heard
) -> None:
    """Written down here, played in another process."""
    options = scripted(
        says("a", "b", input_tokens=3), echoes(), breaks("broken"), cannot_start("closed"), hangs()
    )
    handle = genagent_client.start_agent(None, name="a", backend="scripted", options=options)
    agent = genagent_client.at(handle)
    refs = [agent.submit_with_completion(f"prompt {n}").ref for n in range(5)]

    outcomes = [genagent_heard.completion(ref).outcome for ref in refs[:4]]

    first, second, third, fourth = outcomes
    assert isinstance(first, Completed)
    assert (first.response.text, first.response.usage) == ("ab", {"input_tokens": 3})
    assert isinstance(second, Completed)
    assert second.response.text == "prompt 1"
    assert str(third).count("broken") == 1
    assert str(fourth).count("closed") == 1
    until(
        lambda: genagent_client.runtime_snapshot("a").current_request is not None, "the last runs"
    )
    assert agent.interrupt_request(refs[4]) == "accepted"


def test_until_gives_up_with_what_it_waited_for() -> None:
    """And returns what the fact was, if it came."""
    assert until(lambda: "there", "something") == "there"
    with pytest.raises(AssertionError, match="the cows come home"):
        until(lambda: None, "the cows come home", within_ms=1)
