"""An agent that cannot be reached is told apart from one that is not there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from genagent_protocol.answers import AgentRow
from genagent_protocol.errors import CallTimeout
from genagent_protocol.reasons import ExitReason, StartError
from genagentd.cli import exits
from genagentd.cli.standing import in_trouble, not_asked, row_of, silent, state_of, troubles

KILLED = ExitReason("signal:9")
BROKEN = StartError(kind="import_failed", message="no module named app")


def row(state: Any, **fields: Any) -> AgentRow:
    return AgentRow(name="a", state=state, **fields)


@pytest.mark.parametrize(
    ("known", "command", "said", "hint"),
    [
        (
            row("restarting", reason=KILLED),
            "ask",
            r"a is being restarted \(.*signal:9",
            "later",
        ),
        (row("failed", reason=KILLED), "ask", "ask: a has failed for good: signal:9", "stop a"),
        (row("failed", error=BROKEN), "tell", "for good: import_failed: no module", "stop a"),
        (row("starting"), "notify", "notify: a is not ready yet", "later"),
        (row("stopping"), "drain", "drain: a is ending", "list"),
        (row("running", group=3), "stop", "stop: a belongs to a group of another", "drain a"),
        (row("failed", group=3, reason=KILLED), "stop", "stop: a belongs to a group", "group"),
    ],
)
def test_a_command_says_why_it_did_not_find_an_agent_that_is_listed(
    known: AgentRow, command: str, said: str, hint: str
) -> None:
    """The exit code stays that of an agent that is not there: nothing was sent to one."""
    failure = not_asked([known], command, "a")

    assert failure is not None
    assert re.search(said, failure.message)
    assert hint in failure.hint
    assert (failure.exit_code, failure.code) == (exits.NO_SUCH_AGENT, "not_found")
    assert failure.details["state"] == known.state


@pytest.mark.parametrize("rows", [[], [row("running")], [AgentRow(name=1, state="failed")]])
def test_of_an_agent_that_is_not_listed_or_has_come_nothing_is_known(rows: list[Any]) -> None:
    """Then what the daemon answered stands. The number 1 is no agent called 1."""
    assert not_asked(rows, "ask", "a") is None
    assert not_asked(rows, "ask", "1") is None


def test_whoever_does_not_run_as_it_should_is_counted() -> None:
    """One that failed for good has no process, and was not counted anywhere."""
    ill = row("running", unresponsive_since_ms=5_000)
    rows = [row("running"), ill, row("failed"), row("failed"), row("restarting")]

    assert troubles(rows) == {"restarting": 1, "failed": 2, "unresponsive": 1}
    assert in_trouble(rows) == ", 1 restarting, 2 failed, 1 unresponsive"
    assert in_trouble([row("running")]) == ""
    assert set(troubles(None).values()) == {None}
    assert in_trouble(None) == ""


def test_a_look_without_an_answer_says_what_the_daemon_knows() -> None:
    """And not that its effect is unknown, nor to try the same again."""
    late = CallTimeout("agent_status a", 4_000, fate="nothing was changed")
    failure = silent(late, row("running", unresponsive_since_ms=5_000), "status", "a")

    assert failure.message == (
        "status a got no answer within 4000 ms; nothing was changed; "
        "to the daemon it is running, unresponsive for 5s"
    )
    assert "genagent status" not in failure.hint
    assert failure.exit_code == exits.PENDING
    assert failure.details == {
        "timeout_ms": 4_000,
        "state": "running",
        "unresponsive_since_ms": 5_000,
    }
    assert silent(late, None, "status", "a").message == str(late).removeprefix("agent_")


def test_a_state_says_how_the_life_before_ended_only_when_there_is_another_one() -> None:
    """An agent that runs again does not look as if it had failed."""
    assert state_of(row("running", reason=KILLED)) == "running (last end: signal:9)"
    assert state_of(row("failed", error=BROKEN)) == "failed (import_failed)"
    assert row_of([row("failed")], "b") is None
