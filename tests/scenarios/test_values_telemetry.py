"""What subscribers hear: every attempt once, and nothing that is nobody's business."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genagent_protocol.bounds import Limits
from genagent_protocol.reasons import Overloaded, Reason
from genagent_protocol.turns.decisions import Halt, Skip
from genagent_protocol.turns.effects import Emit
from support.turns_scripted import ScriptedAgent, raises
from support.turns_values import ref

CONTENT = ("prompt", "original_prompt", "event", "reason")


def names(agent: ScriptedAgent) -> list[str]:
    return [effect.name for effect in agent.effects if isinstance(effect, Emit)]


def test_s239_one_turn_is_told_from_start_to_end() -> None:
    """prompt.start, prompt.stop, idle to processing to idle."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.end()

    assert names(agent) == [
        "state.changed",
        *("prompt.start", "turn.start", "state.changed"),
        *("prompt.stop", "turn.stop", "state.changed"),
    ]
    phases = [(note.was, note.now) for note in agent.emitted("state.changed")]
    assert phases == [(None, "idle"), ("idle", "processing"), ("processing", "idle")]
    assert {note.ref for note in agent.emitted("prompt.start", "prompt.stop")} == {ref(1)}


def test_s240_turn_events_share_ref_and_origin_and_carry_no_content() -> None:
    """start and stop of one turn; no prompt text inside; the stop names its turn."""
    agent = ScriptedAgent()
    agent.ask(1, "the secret prompt")
    agent.end("the secret answer")
    start, stop = agent.emitted("turn.start", "turn.stop")

    assert (start.ref, start.origin, start.attempt) == (stop.ref, stop.origin, stop.attempt)
    assert stop.turn == 1
    assert "secret" not in repr((start, stop))


def interrupt(agent: ScriptedAgent) -> None:
    agent.interrupt()
    agent.stopped()


def watchdog(agent: ScriptedAgent) -> None:
    agent.deadline("watchdog")
    agent.stopped()


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda agent: agent.fail("a secret reason"), "backend_or_callback_error"),
        (watchdog, "timeout"),
        (lambda agent: agent.crash(), "task_crashed"),
        (interrupt, "interrupted"),
    ],
)
def test_s241_turn_errors_have_a_bounded_kind(
    end: Callable[[ScriptedAgent], None], kind: str
) -> None:
    """Backend error, watchdog, crash, interrupt."""
    agent = ScriptedAgent()
    agent.tell(1)
    end(agent)
    (note,) = agent.emitted("turn.error")

    assert (note.reason_kind, note.turn) == (kind, 1)
    assert "secret" not in repr(note)


def test_s242_an_overload_is_told_in_full_and_as_a_kind() -> None:
    """input.rejected with the full reason; turn.rejected overloaded."""
    agent = ScriptedAgent(Limits(max_pending_prompts=0))
    agent.tell(1)
    agent.tell(2)
    rejected, turn = agent.emitted("input.rejected", "turn.rejected")

    assert isinstance(rejected.reason, Overloaded)
    assert (turn.reason_kind, turn.reason) == ("overloaded", None)


def test_an_overload_of_a_notification_is_told_once() -> None:
    """Only input.rejected: there was no prompt."""
    agent = ScriptedAgent(Limits(max_pending_notifications=0))
    agent.tell(1)
    agent.notify()

    assert len(agent.emitted("input.rejected")) == 1
    assert agent.emitted("turn.rejected") == []


def test_s243_a_gate_skip_is_a_rejection_alone() -> None:
    """turn.rejected only, no start, no error."""
    agent = ScriptedAgent()
    agent.script("pre_turn", Skip())
    agent.tell(1)

    assert names(agent) == ["state.changed", "turn.rejected"]


@pytest.mark.parametrize(
    ("origin", "kind"), [("tell", "pre_turn_skipped"), ("event", "pre_turn_crashed:OSError")]
)
def test_a_gate_that_raises_is_told_by_who_asked(origin: str, kind: str) -> None:
    """An ask or tell whose gate raised is reported as skipped."""
    agent = ScriptedAgent()
    agent.script("pre_turn", raises("pre_turn", "OSError"))
    if origin == "tell":
        agent.tell(1)
    else:
        agent.script("handle_event", "go")
        agent.notify()
    (note,) = agent.emitted("turn.rejected")

    assert (note.reason_kind, note.origin) == (kind, origin)


def test_s244_the_depth_counts_up_with_each_admission() -> None:
    """Queued prompts."""
    agent = ScriptedAgent()
    for number in range(1, 5):
        agent.tell(number)

    assert [note.depth for note in agent.emitted("mailbox.queued")] == [1, 2, 3]


def test_s245_a_halt_is_told_once_after_post_run() -> None:
    """halted once."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.script("handle_response", Halt())
    agent.end()

    assert len(agent.emitted("halted")) == 1
    assert agent.story[-2:] == ["post_run", "halted"]


def test_s246_an_event_is_told_on_arrival_even_if_it_is_refused() -> None:
    """event.received with the raw event; not while draining."""
    agent = ScriptedAgent(Limits(max_pending_notifications=0))
    agent.notify("idle")
    agent.tell(1)
    agent.notify("refused")
    agent.drain()
    agent.notify("draining")

    assert [note.event for note in agent.emitted("event.received")] == ["idle", "refused"]
    assert agent.emitted("input.rejected")[-1].reason == Reason("draining")


@pytest.mark.parametrize("why", ["caller_cancelled", "caller_down"])
def test_s248_a_removed_request_is_told_with_its_kind_and_attempt(why: str) -> None:
    """turn.cancelled with kind and attempt, no start for it."""
    agent = ScriptedAgent()
    agent.tell(1)
    if why == "caller_down":
        agent.ask(2)
        agent.caller_down()
    else:
        agent.tell(2)
        agent.cancel(2)
    agent.end()
    (note,) = agent.emitted("turn.cancelled")

    assert (note.ref, note.reason_kind, note.attempt) == (ref(2), why, 1)
    assert [start.ref for start in agent.emitted("turn.start")] == [ref(1)]


def test_every_attempt_that_starts_is_told_to_end_once() -> None:
    """Each (ref, attempt) has one start and one stop or error."""
    agent = ScriptedAgent()
    agent.tell(1)
    agent.script("handle_error", "again", "and again")
    agent.fail()
    agent.crash()
    agent.script("handle_response", "chain")
    agent.end()
    agent.end()

    starts = [(note.ref, note.attempt) for note in agent.emitted("turn.start")]
    ends = [(note.ref, note.attempt) for note in agent.emitted("turn.stop", "turn.error")]
    assert starts == ends
    assert len(starts) == len(set(starts)) == 4


def test_turn_events_never_carry_content() -> None:
    """They are for metrics: no prompt, no event, no raw reason."""
    agent = ScriptedAgent(Limits(max_pending_prompts=1))
    agent.tell(1)
    agent.tell(2)
    agent.tell(3)
    agent.cancel(2)
    agent.fail()
    agent.script("pre_turn", Skip())
    agent.tell(4)
    notes = [e for e in agent.effects if isinstance(e, Emit) and e.name.startswith("turn.")]

    assert {note.name for note in notes} == {
        "turn.start",
        "turn.error",
        "turn.rejected",
        "turn.cancelled",
    }
    assert all(getattr(note, field) is None for note in notes for field in CONTENT)
