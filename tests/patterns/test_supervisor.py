"""S263: fan out, fan in, partial failure, deadlines, stale reports, and nobody left behind."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from examples.patterns.company import Voice, Watch, shown
from examples.patterns.supervisor import finished, running
from genagentd import Client, Refused
from genagentd.testing import Gates, breaks, echoes, hangs, holds, says, scripted, until

pytestmark = pytest.mark.process

PLAN = says("a\nb\nc")


def _lead(*turns: Any, **more: Any) -> Voice:
    return Voice("scripted", scripted(*turns, **more))


def _crew(*turns: Any, gates: Gates | None = None) -> Voice:
    return Voice("scripted", {"voices": [scripted(turn, gates=gates) for turn in turns]})


def _names(client: Client) -> list[str]:
    return [str(row.name) for row in client.list()]


def test_all_results_make_one_synthesis_and_all_workers_go(
    genagent_client: Client, watch: Watch
) -> None:
    """A second run under the same name starts clean."""
    for _ in range(2):
        lead, crew = _lead(PLAN, echoes()), _crew(says("1"), says("2"), says("3"))
        with running(genagent_client, "lead", "task", lead, crew):
            job = finished(genagent_client, watch, "lead")
            assert job["phase"] == "done"
            assert job["report"].splitlines()[1:] == ["- a: 1", "- b: 2", "- c: 3"]
        assert _names(genagent_client) == []


def test_s263_what_succeeded_is_put_together_although_a_part_failed(
    genagent_client: Client, watch: Watch
) -> None:
    """Partial success is still worth a report; the failure stays visible."""
    crew = _crew(says("1"), breaks("busy"), says("3"))
    with running(genagent_client, "lead", "task", _lead(PLAN, echoes()), crew):
        job = finished(genagent_client, watch, "lead")

    assert job["phase"] == "done"
    assert job["report"].splitlines()[1:] == ["- a: 1", "- c: 3"]
    assert job["parts"][1]["failure"] == "backend_failed: busy"


def test_without_any_success_there_is_no_synthesis(genagent_client: Client, watch: Watch) -> None:
    """The second turn of the lead would have been one."""
    crew = _crew(*[breaks("busy")] * 3)
    with running(genagent_client, "lead", "task", _lead(PLAN, says("invented")), crew):
        job = finished(genagent_client, watch, "lead")

    assert (job["phase"], job["report"], job["failure"]) == ("failed", "", "no part succeeded")


def test_a_dead_worker_is_a_failed_part(
    genagent_client: Client, watch: Watch, genagent_gates: Gates
) -> None:
    """Its Down tells; nobody waits for its report."""
    crew = _crew(says("1"), holds("b", "never"), says("3"), gates=genagent_gates)
    with running(genagent_client, "lead", "task", _lead(PLAN, echoes()), crew):
        genagent_gates.wait_blocked("b", 30_000)
        worker = next(row for row in genagent_client.list() if str(row.name).endswith("/2"))
        assert worker.handle is not None
        os.kill(worker.handle.pid, signal.SIGKILL)
        job = finished(genagent_client, watch, "lead")

    assert job["phase"] == "done"
    assert job["parts"][1]["failure"] == "gone (signal:9)"


def test_a_missed_deadline_is_a_failed_part(genagent_client: Client, watch: Watch) -> None:
    """A worker that never ends does not hold the others up."""
    crew = _crew(says("1"), hangs(), says("3"))
    lead = _lead(PLAN, echoes())
    with running(genagent_client, "lead", "task", lead, crew, deadline_ms=1_500):
        job = finished(genagent_client, watch, "lead")

    assert job["phase"] == "done"
    assert job["parts"][1]["failure"] == "missed the deadline"


def test_stale_and_double_reports_change_nothing(
    genagent_client: Client, watch: Watch, genagent_gates: Gates
) -> None:
    """A report counts once, in its own run."""
    crew = _crew(says("1"), holds("b", "2"), says("3"), gates=genagent_gates)
    with running(genagent_client, "lead", "task", _lead(PLAN, echoes()), crew):
        genagent_gates.wait_blocked("b", 30_000)
        watch.until(
            lambda: (
                [p["result"] for p in shown(genagent_client, "lead")["parts"]] == ["1", None, "3"]
            ),
            "two are there",
        )
        run = shown(genagent_client, "lead")["run"]
        genagent_client.notify_ack("lead", {"run": "old", "number": 1, "result": "stale"})
        genagent_client.notify_ack("lead", {"run": run, "number": 0, "result": "double"})
        genagent_gates.release("b")
        job = finished(genagent_client, watch, "lead")

    assert [part["result"] for part in job["parts"]] == ["1", "2", "3"]


def test_a_user_s_turn_in_between_is_not_the_synthesis(
    genagent_client: Client, watch: Watch, genagent_gates: Gates
) -> None:
    """The turn that runs exactly the synthesis prompt is."""
    crew = _crew(says("1"), holds("b", "2"), says("3"), gates=genagent_gates)
    lead = _lead(PLAN, says("small talk"), echoes())
    with running(genagent_client, "lead", "task", lead, crew):
        genagent_gates.wait_blocked("b", 30_000)
        assert genagent_client.ask("lead", "how is it going?").text == "small talk"
        genagent_gates.release("b")
        job = finished(genagent_client, watch, "lead")

    assert job["report"].splitlines()[1:] == ["- a: 1", "- b: 2", "- c: 3"]


def test_a_refused_synthesis_fails_the_run(
    genagent_client: Client, watch: Watch, genagent_gates: Gates
) -> None:
    """The last report comes during another turn, and there is no room for what it leads to."""
    crew = _crew(says("1"), holds("b", "2"), says("3"), gates=genagent_gates)
    lead = _lead(PLAN, holds("talk", "small talk"), echoes(), gates=genagent_gates)
    limits = {"max_pending_prompts": 0}
    with running(genagent_client, "lead", "task", lead, crew, limits=limits):
        genagent_gates.wait_blocked("b", 30_000)
        watch.until(
            lambda: (
                [p["result"] for p in shown(genagent_client, "lead")["parts"]] == ["1", None, "3"]
            ),
            "two are there",
        )
        genagent_client.tell("lead", "how is it going?")
        genagent_gates.wait_blocked("talk")
        genagent_gates.release("b")
        watch.until(
            lambda: genagent_client.runtime_snapshot("lead").pending_notifications == 1,
            "the report waits",
        )
        genagent_gates.release("talk")
        job = finished(genagent_client, watch, "lead")

    assert job["phase"] == "failed"
    assert job["failure"].startswith("the synthesis was refused: overloaded")


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_coordinator_that_is_gone_leaves_no_worker(
    genagent_client: Client, watch: Watch, genagent_gates: Gates, end: str
) -> None:
    """Whoever ran it clears up, whatever ended it."""
    crew = _crew(holds("a", "1"), holds("b", "2"), holds("c", "3"), gates=genagent_gates)
    with running(genagent_client, "lead", "task", _lead(PLAN), crew):
        for gate in ("a", "b", "c"):
            genagent_gates.wait_blocked(gate, 30_000)
        handle = genagent_client.whereis("lead")
        assert handle is not None
        if end == "kill":
            os.kill(handle.pid, signal.SIGKILL)
        else:
            genagent_client.stop("lead")
        until(lambda: genagent_client.whereis("lead") is None, "it is gone")
        assert len(_names(genagent_client)) >= 3
        with pytest.raises(Refused):
            finished(genagent_client, watch, "lead")

    assert _names(genagent_client) == []


def test_a_worker_that_cannot_start_takes_those_before_it_along(
    genagent_client: Client, watch: Watch
) -> None:
    """The second voice is none: it refuses its start."""
    crew = Voice("scripted", {"voices": [scripted(says("1")), {"start_error": "no"}]})
    with running(genagent_client, "lead", "task", _lead(PLAN), crew):
        job = finished(genagent_client, watch, "lead")
        assert job["phase"] == "failed"
        assert "worker 2 could not be started" in job["failure"]
        assert _names(genagent_client) == ["lead"]
