"""S268: bounded attempts, one outcome, and nobody sleeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.patterns.company import Voice, Watch, shown
from examples.patterns.retry import begin, ended, passing
from genagentd import Client, TurnFailed
from genagentd.messages import BackendError
from genagentd.testing import breaks, hangs, says, scripted

pytestmark = pytest.mark.process

LONG_MS = 3_600_000


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def _voice(history: Path, *turns: Any) -> Voice:
    return Voice("scripted", {**scripted(*turns), "history_file": str(history)})


def _prompts(history: Path) -> list[str]:
    return [json.loads(line) for line in history.read_text().splitlines()]


@pytest.mark.parametrize("backoff_ms", [0, 1])
def test_s268_fail_twice_then_succeed_takes_three_attempts(
    genagent_client: Client, watch: Watch, history: Path, backoff_ms: int
) -> None:
    """At once or in time, each attempt runs the same prompt."""
    voice = _voice(history, breaks("busy"), breaks("busy"), says("done"))
    begin(genagent_client, "r", voice, backoff_ms=backoff_ms)
    genagent_client.tell("r", "do it")

    state = ended(genagent_client, watch, "r")

    assert (state["phase"], state["attempts"], state["answer"]) == ("done", 3, "done")
    assert _prompts(history) == ["do it"] * 3


def test_the_caller_of_a_persistent_one_hears_one_outcome(
    genagent_client: Client, history: Path
) -> None:
    """Its failed attempts are not its caller's business."""
    begin(genagent_client, "r", _voice(history, breaks("busy"), says("done")))

    assert genagent_client.ask("r", "do it").text == "done"


@pytest.mark.parametrize("backoff_ms", [0, 1])
def test_the_cap_ends_it(
    genagent_client: Client, watch: Watch, history: Path, backoff_ms: int
) -> None:
    """There is no third attempt."""
    voice = _voice(history, breaks("1"), breaks("2"), says("too late"))
    begin(genagent_client, "r", voice, most=2, backoff_ms=backoff_ms)
    genagent_client.tell("r", "do it")

    state = ended(genagent_client, watch, "r")

    assert state["phase"] == "failed"
    assert state["errors"] == ("backend_failed: 1", "backend_failed: 2")
    assert len(_prompts(history)) == 2


@pytest.mark.parametrize("backoff_ms", [0, 1])
def test_an_interrupted_turn_is_not_tried_again(
    genagent_client: Client, watch: Watch, history: Path, backoff_ms: int
) -> None:
    """Somebody wanted it to stop."""
    begin(genagent_client, "r", _voice(history, hangs(), says("again")), backoff_ms=backoff_ms)
    ref = genagent_client.tell("r", "do it")
    watch.until(lambda: history.exists(), "the turn runs")
    assert genagent_client.interrupt_request("r", ref) == "accepted"

    state = ended(genagent_client, watch, "r")

    assert (state["phase"], state["errors"]) == ("failed", ("interrupted",))
    assert _prompts(history) == ["do it"]


def test_a_turn_that_ran_out_of_time_is_not_tried_again(
    genagent_client: Client, watch: Watch, history: Path
) -> None:
    """It would run out of time again, and somebody pays for it."""
    voice = _voice(history, hangs(), says("again"))
    begin(genagent_client, "r", voice, limits={"watchdog_ms": 200})

    with pytest.raises(TurnFailed) as failed:
        genagent_client.ask("r", "do it")

    assert failed.value.reason.code == "timeout"
    assert ended(genagent_client, watch, "r")["attempts"] == 1


def test_a_cancel_during_the_pause_is_the_end(
    genagent_client: Client, watch: Watch, history: Path
) -> None:
    """Even if the timer's message comes after it; an interrupt finds nothing to stop."""
    voice = _voice(history, breaks("busy"), says("again"))
    begin(genagent_client, "r", voice, backoff_ms=LONG_MS)
    ref = genagent_client.tell("r", "do it")
    watch.until(lambda: shown(genagent_client, "r")["phase"] == "waiting", "it waits")
    assert genagent_client.interrupt_request("r", ref) == "idle"
    assert shown(genagent_client, "r")["phase"] == "waiting"

    genagent_client.notify_ack("r", "cancel")
    genagent_client.notify_ack("r", {"retry": ""})

    assert ended(genagent_client, watch, "r")["phase"] == "cancelled"
    genagent_client.resume("r")
    assert genagent_client.runtime_snapshot("r").pending_prompts == 0
    assert _prompts(history) == ["do it"]


def test_a_stale_timer_means_nothing(genagent_client: Client, watch: Watch, history: Path) -> None:
    """Only the token of the pause that is on leads to a turn."""
    voice = _voice(history, breaks("busy"), says("again"))
    begin(genagent_client, "r", voice, backoff_ms=LONG_MS)
    genagent_client.tell("r", "do it")
    watch.until(lambda: shown(genagent_client, "r")["phase"] == "waiting", "it waits")

    genagent_client.notify_ack("r", {"retry": "of an earlier pause"})

    assert shown(genagent_client, "r")["phase"] == "waiting"
    assert _prompts(history) == ["do it"]


def test_it_can_be_stopped_in_the_middle_of_a_long_pause(
    genagent_client: Client, watch: Watch, history: Path
) -> None:
    """An hour of backoff is no hour of stopping; it ends in an orderly way."""
    begin(genagent_client, "r", _voice(history, breaks("busy")), backoff_ms=LONG_MS)
    genagent_client.tell("r", "do it")
    watch.until(lambda: shown(genagent_client, "r")["phase"] == "waiting", "it waits")

    assert genagent_client.stop("r", timeout_ms=30_000).text == "shutdown"


def test_what_the_provider_rules_out_is_not_tried_again() -> None:
    """A wrong key stays wrong."""
    assert not passing(BackendError(provider="p", kind="auth", retryable=False))
    assert passing(BackendError(provider="p", kind="overloaded", retryable=True))
