"""Halting: what it leaves waiting, what it fails, and that it happens once."""

from __future__ import annotations

from genagent_protocol.answers import CancelAnswer, Ok, PollCompleted, PollPending
from genagent_protocol.events import Failed
from genagent_protocol.reasons import AgentTerminated, ExitReason, Reason
from genagent_protocol.turns.decisions import Halt
from support.turns_scripted import ScriptedAgent
from support.turns_values import done, ref, response


def halted(agent: ScriptedAgent) -> bool:
    return agent.snapshot().halted


def test_s176_a_halted_agent_accepts_and_keeps() -> None:
    """Decision halts; tell afterwards: accepted, pending; resume runs it."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.script("handle_response", Halt())
    agent.end()

    assert agent.tell(2, "kept") == Ok()
    assert agent.poll(2) == PollPending()
    agent.resume()
    assert agent.prompts == ["p", "kept"]


def test_s177_an_ask_waits_for_resume() -> None:
    """Halted; the caller waits until resume."""
    agent = ScriptedAgent()
    agent.halt()
    assert agent.ask(1) is None
    agent.resume()
    agent.end()

    assert agent.reply(ref(1)) == done()


def test_s178_an_event_halts_an_idle_agent_at_once() -> None:
    """handle_event halts while idle."""
    agent = ScriptedAgent()
    agent.script("handle_event", Halt())
    agent.notify()

    assert halted(agent)


def test_s179_a_deferred_halt_applies_after_the_turn() -> None:
    """Its result was delivered."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.notify()
    agent.script("handle_event", Halt())
    assert not halted(agent)
    agent.end()

    assert halted(agent)
    assert agent.completions(1) == [done()]


def test_s180_a_chain_waits_in_its_slot_while_halted() -> None:
    """Chain decision plus deferred halt: pending self-chain; resume dispatches it."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.notify()
    agent.script("handle_response", "chained")
    agent.script("handle_event", Halt())
    agent.end()

    assert agent.snapshot().self_chain_pending
    assert agent.prompts == ["p"]
    agent.resume()
    assert agent.prompts == ["p", "chained"]


def test_s181_a_halt_in_a_batch_lets_the_batch_finish() -> None:
    """Events first, halt, last: all handled, then post_run, then the halted event."""
    agent = ScriptedAgent()
    agent.tell(1)
    for event in ("first", "halt", "last"):
        agent.notify(event)
    agent.script("handle_event", "from first", Halt())
    agent.end()

    assert agent.story[-5:] == [
        "handle_event 'first'",
        "handle_event 'halt'",
        "handle_event 'last'",
        "post_run",
        "halted",
    ]
    assert agent.snapshot().pending_prompts == 1


def test_s181_a_halting_turn_handles_its_events_before_post_run() -> None:
    """The same order when the decision halts."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.notify("e")
    agent.script("handle_response", Halt())
    agent.end()

    assert agent.story[-4:] == ["post_turn r1 ok", "handle_event 'e'", "post_run", "halted"]


def test_s181_a_rejected_event_may_halt_too() -> None:
    """handle_error of an overload halts: the rest of the batch, then post_run."""
    agent = ScriptedAgent()
    agent.halt()
    agent.resume()
    agent.forget()
    agent.tell(1)
    agent.notify("a")
    agent.notify("b")
    agent.script("handle_event", "x" * 2_000_000)
    agent.script("handle_error", Halt())
    agent.end()

    assert agent.story[-5:] == [
        "handle_event 'a'",
        "handle_error g1 overloaded",
        "handle_event 'b'",
        "post_run",
        "halted",
    ]


def test_s182_halting_while_halted_is_nothing_and_a_new_halt_is_one() -> None:
    """No second post_run or halted event; after resume both again."""
    agent = ScriptedAgent()
    agent.script("handle_event", Halt(), Halt())
    agent.notify()
    agent.notify()
    assert len(agent.handled("post_run")) == len(agent.emitted("halted")) == 1
    agent.resume()
    agent.script("handle_event", Halt())
    agent.notify()

    assert len(agent.handled("post_run")) == len(agent.emitted("halted")) == 2


def test_s183_resume_of_a_running_agent_is_nothing() -> None:
    """Not halted; no effect."""
    agent = ScriptedAgent()
    agent.tell(1)
    before = agent.agent
    agent.resume()

    assert agent.agent == before


def test_s184_a_halt_from_outside_is_one_halt() -> None:
    """Idle, twice: halted once, post_run once; resume works."""
    agent = ScriptedAgent()
    agent.halt()
    agent.halt()
    assert len(agent.handled("post_run")) == 1
    agent.resume()
    agent.tell(1)

    assert agent.prompts == ["p"]


def test_s185_a_halt_from_outside_waits_for_the_turn() -> None:
    """halt_pending until the turn's callbacks finish; the queued prompt stays."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.submit(2)
    agent.halt()
    assert agent.snapshot().halt_pending
    assert not halted(agent)
    agent.end()

    snapshot = agent.snapshot()
    assert (snapshot.halted, snapshot.halt_pending, snapshot.pending_prompts) == (True, False, 1)
    assert agent.completions(1) == [done()]


def test_s186_a_halt_that_has_not_come_can_be_taken_back() -> None:
    """External halt pending; resume: no post_run."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.halt()
    agent.resume()
    agent.end()

    assert not halted(agent)
    assert agent.handled("post_run") == []


def test_s187_a_halted_agent_answers_its_calls() -> None:
    """poll, status, cancel, reset_session."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.end()
    agent.halt()
    agent.tell(2)

    assert agent.poll(1) == PollCompleted(response())
    assert agent.status().halted
    assert agent.cancel(2) == CancelAnswer("cancelled")
    assert agent.reset() == Ok()


# A parked retry


def parked(kind: str, on_halt: str = "queue") -> ScriptedAgent:
    """Return a halted agent in whose slot the second attempt of request 1 waits."""
    agent = ScriptedAgent()
    if kind == "ask":
        agent.ask(1)
    else:
        agent.submit(1, on_halt="fail" if on_halt == "fail" else "queue")
    agent.notify()
    agent.script("handle_error", "again")
    agent.script("handle_event", Halt())
    agent.fail("r")
    return agent


def test_s195_a_parked_retry_waits_for_resume() -> None:
    """Ask and tell: pending, then resumed under the same ref."""
    tell, ask = parked("tell"), parked("ask")
    assert tell.poll(1) == PollPending()
    for agent in (tell, ask):
        assert agent.snapshot().self_chain_pending
        agent.resume()
        agent.end()

    assert tell.completions(1) == [done()]
    assert ask.reply(ref(1)) == done()


def test_s195_a_parked_retry_that_chose_to_fail_fails() -> None:
    """on_halt fail: halted, once."""
    agent = parked("tell", on_halt="fail")

    assert agent.completions(1) == [Failed(Reason("halted"))]
    assert not agent.snapshot().self_chain_pending
    (note,) = agent.emitted("turn.rejected")
    assert note.attempt == 2


def test_s195_a_parked_retry_can_be_cancelled() -> None:
    """cancel: cancelled, with attempt 2."""
    agent = parked("tell")
    assert agent.cancel(1) == CancelAnswer("cancelled")

    (note,) = agent.emitted("turn.cancelled")
    assert note.attempt == 2
    assert agent.completions(1) == [Failed(Reason("cancelled"))]
    assert not agent.snapshot().self_chain_pending


def test_s195_a_parked_ask_hears_of_an_orderly_stop() -> None:
    """agent_terminated, as for any waiting ask."""
    agent = parked("ask")
    agent.stop()

    assert agent.reply(ref(1)) == Failed(AgentTerminated(ExitReason("shutdown")))


def test_s218_draining_fails_a_parked_retry() -> None:
    """Its caller gets draining."""
    agent = parked("ask")
    agent.drain()

    assert agent.reply(ref(1)) == Failed(Reason("draining"))
    assert agent.exit == ExitReason("normal")
