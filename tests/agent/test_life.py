"""A life from the daemon's hello to the last word, over a real socket."""

from __future__ import annotations

from genagent_protocol import envelopes, requests
from genagent_protocol.answers import Ok, PollCompleted, Snapshot, Status
from genagent_protocol.events import Completed
from genagent_protocol.header import DAEMON, Header
from genagent_protocol.reasons import SHUTDOWN
from genagent_protocol.refs import Incarnation
from genagentd.outbox import WINDOW_BYTES
from support.agent_life import BOOT, CLIENT, INCARNATION, living, mint
from support.wire_examples import ANSWERED, ASKED, MESSAGES

TALK = {"script": [[{"kind": "text", "text": "hi"}, {"kind": "result"}]], "repeat": True}
OTHER = Incarnation(BOOT, 9)
EVERYTHING = (*MESSAGES, *ASKED, *ANSWERED)


async def test_a_submission_is_admitted_streamed_and_completed_in_that_order() -> None:
    """What a client hears of one request comes in the one order it may rely on."""
    async with living(options=TALK) as agent:
        ref = agent.submit("hello", stream=True)
        await agent.completion(ref)

        told = [said.envelope for said in agent.said if said.header.to == CLIENT.text]
        kinds = [type(envelope).__name__ for envelope in told]
        assert kinds == ["Admission", "EventMessage", "EventMessage", "Completion"]
        assert {envelope.ref for envelope in told} == {ref}


async def test_an_ask_is_answered_with_its_outcome_and_a_status_with_the_transcript() -> None:
    """The plain agent keeps what was said, and shows it."""
    async with living(options=TALK) as agent:
        answer = await agent.call(requests.Ask(ref=mint(), prompt="hello"))
        status = await agent.call(requests.GetStatus())

        assert isinstance(answer, Completed)
        assert answer.response.text == "hi"
        assert isinstance(status, Status)
        assert (status.name, status.state) == ("anna", "idle")
        assert [entry["text"] for entry in status.agent_state] == ["hi"]  # type: ignore[union-attr, index, call-overload]  # the plain agent shows a list of maps


async def test_a_told_prompt_can_be_polled() -> None:
    """Without a recipient the outcome is only remembered."""
    async with living(options=TALK) as agent:
        ref = mint()
        accepted = await agent.call(requests.Tell(ref=ref, prompt="hello", recipient=CLIENT))
        await agent.completion(ref)
        found = await agent.call(requests.Poll(ref=ref))
        snapshot = await agent.call(requests.GetSnapshot())

        assert accepted == Ok()
        assert isinstance(found, PollCompleted)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.current_request is None


async def test_a_stopped_agent_says_why_it_exits_and_exits_with_zero() -> None:
    """The daemon believes the kernel's status first."""
    async with living(options=TALK) as agent:
        last = await agent.stop()

        assert last == envelopes.Exiting(reason=SHUTDOWN)
        assert await agent.life == 0


async def test_an_agent_of_large_options_is_not_deaf() -> None:
    """They travel in the hello, which is counted like any other message."""
    turn = [{"kind": "text", "text": "x" * (WINDOW_BYTES + 1)}]
    async with living(options={"script": [turn]}) as agent:
        assert await agent.owed_bytes() == 0


async def test_whatever_an_agent_was_told_it_accounts_for_in_the_end() -> None:
    """What it takes and does not count narrows the daemon's window for good.

    That is everything it can be told by anybody, and what nobody can read.
    """
    ends = (envelopes.StopAsked, envelopes.RefuseTurns, envelopes.Resume, envelopes.Halt)
    told = [
        one
        for one in EVERYTHING
        if not isinstance(one, (*ends, envelopes.Ping))
        and not isinstance(getattr(one, "request", None), requests.Drain)
    ]
    async with living(options=TALK) as agent:
        for sender in (DAEMON, CLIENT.text, OTHER.text):
            for envelope in told:
                agent.say(envelope, sender, "1")
            for behind in (0, 2):
                agent.send(Header("reply", INCARNATION.text, sender, behind=behind), b"\xc1")

        assert await agent.owed_bytes() == 0
