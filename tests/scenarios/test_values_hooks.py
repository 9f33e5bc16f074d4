"""The hooks around turns and runs, and what a callback that fails costs."""

from __future__ import annotations

import pytest

from genagent_protocol.bounds import Limits
from genagent_protocol.events import Failed
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import (
    PRE_TURN_HALTED,
    PRE_TURN_INVALID,
    PRE_TURN_SKIPPED,
    SHUTDOWN,
    ExitReason,
    Failure,
    PreTurnCrashed,
    Reason,
    TaskCrashed,
)
from genagent_protocol.turns.decisions import Declined, Halt, Invalid, Run, Skip
from genagent_protocol.turns.effects import (
    DropTurn,
    Exit,
    HandleError,
    KeepTurn,
    PostTurn,
    SendCompletion,
    Terminate,
)
from support.turns_scripted import Answer, ScriptedAgent, raises
from support.turns_values import done, failed, ref


def errors(agent: ScriptedAgent) -> list[Failure]:
    return [c.reason for c in agent.handled("handle_error") if isinstance(c, HandleError)]


def test_s153_pre_run_comes_before_anything_else() -> None:
    """Before any turn, after init."""
    agent = ScriptedAgent()
    agent.tell(1)

    assert agent.story[:2] == ["pre_run", "pre_turn p"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Declined("no disk"), ExitReason("pre_run_failed", "no disk")),
        (raises("pre_run", "OSError"), ExitReason("pre_run_crashed", "OSError")),
        (Invalid(), ExitReason("pre_run_invalid")),
        (Halt(), ExitReason("pre_run_invalid")),
    ],
    ids=["failed", "raises", "garbage", "halt"],
)
def test_s155_a_bad_pre_run_ends_the_agent_with_its_reason(
    answer: Answer, reason: ExitReason
) -> None:
    """Both termination callbacks get that reason."""
    agent = ScriptedAgent(opening=answer)

    assert agent.orders(Terminate, Exit) == [Terminate(reason, within_ms=5_000), Exit(reason)]


@pytest.mark.parametrize(("sent", "rewritten"), [("rewritten", True), ("p", False)])
def test_s156_telemetry_shows_what_the_gate_rewrote(sent: str, rewritten: bool) -> None:
    """The backend receives the rewritten prompt; an identical one is not rewritten."""
    agent = ScriptedAgent()
    agent.script("pre_turn", Run(sent))
    agent.tell(1, "p")

    (start,) = agent.emitted("prompt.start")
    assert agent.prompts == [sent]
    assert (start.prompt, start.original_prompt, start.rewritten) == (sent, "p", rewritten)


@pytest.mark.parametrize(
    ("answer", "reason", "halted"),
    [
        (Skip(), PRE_TURN_SKIPPED, False),
        (Halt(), PRE_TURN_HALTED, True),
        (raises("pre_turn"), PRE_TURN_SKIPPED, False),
        (Invalid(), PRE_TURN_INVALID, False),
    ],
    ids=["s157 skip", "s158 halt", "s159 raises", "garbage"],
)
def test_s157_s158_s159_a_refused_ask_hears_why(
    answer: Answer, reason: Reason, halted: bool
) -> None:
    """The agent is alive and idle, the script unused, no post_turn; a halt runs post_run once."""
    agent = ScriptedAgent()
    agent.script("pre_turn", answer)
    agent.ask(1)

    assert agent.reply(ref(1)) == Failed(reason)
    assert agent.prompts == []
    assert agent.handled("post_turn") == []
    assert agent.snapshot().halted is halted
    assert len(agent.handled("post_run")) == int(halted)


def test_s160_a_gate_that_raises_on_a_chain_tells_handle_error() -> None:
    """pre_turn_crashed with the class, prompt.error; the caller has its success already."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.script("handle_response", "chained")
    agent.script("pre_turn", raises("pre_turn", "KeyError"))
    agent.end()

    assert agent.reply(ref(1)) == done()
    assert errors(agent) == [PreTurnCrashed("KeyError")]
    assert [note.reason for note in agent.emitted("prompt.error")] == [PreTurnCrashed("KeyError")]


@pytest.mark.parametrize(
    ("answer", "reason"), [(Skip(), PRE_TURN_SKIPPED), (Invalid(), PRE_TURN_INVALID)]
)
def test_s161_a_refused_event_prompt_tells_handle_error(answer: Answer, reason: Reason) -> None:
    """Skip or garbage on an event prompt: handle_error gets the reason; not halted."""
    agent = ScriptedAgent()
    agent.script("handle_event", "go")
    agent.script("pre_turn", answer)
    agent.notify()

    assert errors(agent) == [reason]
    assert not agent.snapshot().halted
    assert agent.handled("post_turn") == []


def test_s161_a_gate_that_halts_an_event_prompt_just_halts() -> None:
    """No handle_error; the halt transition."""
    agent = ScriptedAgent()
    agent.script("handle_event", "go")
    agent.script("pre_turn", Halt())
    agent.notify()

    assert errors(agent) == []
    assert agent.snapshot().halted


def test_s162_a_gate_that_always_refuses_does_not_keep_others_from_the_agent() -> None:
    """Gate refuses generated prompts, handle_error re-prompts: calls are answered in between."""
    agent = ScriptedAgent()
    agent.script("handle_event", "go")
    agent.script("pre_turn", *[Skip()] * 5)
    agent.script("handle_error", *["go again"] * 5)
    agent.notify()
    for _ in range(4):
        assert agent.snapshot().self_chain_pending
        agent.deadline("pace")

    agent.submit(1, "behind it")
    assert "admission r1 ok" in agent.story
    agent.deadline("pace")
    assert agent.prompts == ["go again"]
    agent.end()
    assert agent.prompts == ["go again", "behind it"]


def test_a_refused_prompt_may_be_followed_by_one_that_does_not_fit() -> None:
    """handle_error answers the gate's refusal with too large a prompt: it hears of that, once."""
    agent = ScriptedAgent(Limits(max_pending_prompt_bytes=10))
    agent.script("handle_event", "go")
    agent.script("pre_turn", Skip())
    agent.script("handle_error", "x" * 50, "y" * 50)
    agent.notify()

    assert [reason.code for reason in errors(agent)] == ["pre_turn_skipped", "overloaded"]
    assert not agent.snapshot().self_chain_pending


def test_s164_post_turn_follows_the_decision_with_the_same_outcome() -> None:
    """Success and failure: after the decision callback, same outcome, same ref."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.end()
    agent.tell(2)
    agent.fail("r")

    assert agent.handled("post_turn") == [PostTurn(ref(1), done()), PostTurn(ref(2), failed("r"))]
    order = ["handle_response r1", "post_turn r1 ok", "handle_error r2 backend_failed"]
    assert [line for line in agent.story if line in order] == order


def test_s165_post_run_sees_decision_and_post_turn() -> None:
    """Decision halts: decision, then post_turn, then post_run."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.script("handle_response", Halt())
    agent.end()

    assert agent.story[-4:] == ["handle_response r1", "post_turn r1 ok", "post_run", "halted"]


@pytest.mark.parametrize("answer", [raises("post_turn"), Halt()], ids=["raises", "garbage"])
def test_s166_a_bad_post_turn_changes_nothing(answer: Answer) -> None:
    """Logged, the decision stands, the caller gets its result."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.script("handle_response", "chained")
    agent.script("post_turn", answer)
    agent.end()

    assert agent.reply(ref(1)) == done()
    assert agent.prompts == ["p", "chained"]
    assert [note.callback for note in agent.emitted("callback.failed")] == ["post_turn"]


def test_s167_a_halt_completes_without_its_post_run() -> None:
    """post_run raises: the halt completes."""
    agent = ScriptedAgent()
    agent.script("post_run", raises("post_run"))
    agent.halt()

    assert agent.snapshot().halted
    assert len(agent.emitted("halted")) == 1


def test_s168_a_stop_runs_no_post_run() -> None:
    """Normal stop: post_run does not run, the termination callbacks do."""
    agent = ScriptedAgent()
    agent.stop()

    assert agent.handled("post_run") == []
    assert agent.orders(Terminate) == [Terminate(SHUTDOWN, within_ms=5_000)]


@pytest.mark.parametrize("answer", [raises("handle_event"), Skip()], ids=["raises", "garbage"])
def test_s169_a_bad_handle_event_is_as_good_as_none(answer: Answer) -> None:
    """Idle and at the end of a turn: old state kept, a waiting ask still answered."""
    agent = ScriptedAgent()
    agent.script("handle_event", answer, answer)
    agent.notify()
    agent.ask(1)
    agent.notify()
    agent.end()

    assert agent.reply(ref(1)) == done()
    assert agent.exit is None
    assert len(agent.emitted("callback.failed")) == 2


@pytest.mark.parametrize("answer", [raises("handle_error"), Skip()], ids=["raises", "garbage"])
def test_s170_a_bad_handle_error_leaves_the_caller_its_reason(answer: Answer) -> None:
    """The caller gets the original reason, the agent lives, the note has no message."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.script("handle_error", answer)
    agent.fail("r")

    assert agent.reply(ref(1)) == failed("r")
    assert agent.exit is None
    (note,) = agent.emitted("callback.failed")
    assert note.error in ("ValueError", "invalid_return")


@pytest.mark.parametrize(
    ("answer", "error"),
    [(raises("handle_response", "KeyError"), "KeyError"), (Skip(), "invalid_return")],
    ids=["raises", "garbage"],
)
def test_s171_a_bad_handle_response_ends_the_agent(answer: Answer, error: str) -> None:
    """callback_failed with the class, both termination callbacks, no completion."""
    agent = ScriptedAgent()
    agent.submit(1)
    agent.script("handle_response", answer)
    agent.end()
    reason = ExitReason(
        "callback_failed", FrozenDict({"callback": "handle_response", "error": error})
    )

    assert agent.orders(Terminate, Exit) == [Terminate(reason, (ref(1),), 5_000), Exit(reason)]
    assert agent.orders(SendCompletion) == []


def test_s175_a_stream_callback_that_raises_crashes_the_turn_alone() -> None:
    """task_crashed outcome, agent alive, state of dispatch."""
    agent = ScriptedAgent()
    agent.ask(1)
    agent.crash("ZeroDivisionError")

    assert agent.reply(ref(1)) == Failed(TaskCrashed("ZeroDivisionError"))
    assert agent.orders(KeepTurn, DropTurn) == [DropTurn(1)]
    assert agent.exit is None
