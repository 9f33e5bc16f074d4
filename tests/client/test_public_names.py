"""The public surface: every name resolves, and none appears or goes by accident."""

from __future__ import annotations

import subprocess
import sys

import pytest

import genagentd
from genagent_protocol.reasons import CANCELLED, INTERRUPTED
from genagentd import messages


@pytest.mark.parametrize("name", genagentd.__all__)
def test_every_public_name_resolves(name: str) -> None:
    """They are imported on first use, so a typo would only show then."""
    assert getattr(genagentd, name) is not None
    assert name in dir(genagentd)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module; `hasattr` works."""
    assert not hasattr(genagentd, "Cleint")


def test_the_surface_is_what_it_was() -> None:
    """Adding or removing a public name is a decision: change this list with it."""
    assert sorted(genagentd.__all__) == sorted(
        [
            *("function", "FunctionFailed"),
            *("Agent", "Failed", "Halt", "NoReply", "Ok", "Prompt", "Run", "Skip", "Started"),
            *("Client", "AsyncClient", "AgentSpec", "RestartPolicy"),
            *("AgentHandle", "MailboxAddress", "MonitorRef", "RequestRef"),
            *("Admission", "Completion", "Down", "EventMessage", "Gap", "Message"),
            *("Telemetry", "TelemetryLost", "Undeliverable", "about", "hear", "Submission"),
            *("Completed", "Event", "Response", "Submitted", "Lost"),
            *("NotFound", "PollCompleted", "PollFailed", "PollPending"),
            *("AgentRow", "Snapshot", "Status"),
            *("GenAgentError", "UsageError", "SendBufferFull", "TooLarge"),
            *("Refused", "StartFailed", "TurnFailed"),
            *("CallError", "CallTimeout", "ProcessDown", "DaemonLost"),
            *("NotReachable", "VersionMismatch", "__version__"),
        ]
    )


def test_an_outcome_is_matched_with_the_public_names() -> None:
    """`Failed` is what an agent answers and what a turn came to: one word for who reads it."""
    outcome: messages.Outcome = messages.Failed(INTERRUPTED)
    match outcome:
        case genagentd.Completed():
            pytest.fail("it failed")
        case genagentd.Failed(reason):
            assert reason.code == "interrupted"
    assert outcome == genagentd.Failed(INTERRUPTED) == outcome
    assert hash(outcome) == hash(genagentd.Failed(INTERRUPTED))
    assert outcome != genagentd.Failed(CANCELLED)
    assert outcome != INTERRUPTED
    assert genagentd.Completed is messages.Completed


def test_every_message_has_its_name_there() -> None:
    """`genagentd.messages` is complete and has no dead names."""
    for name in messages.__all__:
        assert getattr(messages, name) is not None


def test_a_client_does_not_carry_daemon_agent_or_backends() -> None:
    """A program that only talks imports only what talks."""
    code = (
        "import sys; from genagentd import Client, AsyncClient\n"
        "rooms = ('genagentd.daemon', 'genagentd.agent', 'genagent_backends', 'multiprocess')\n"
        "print([m for m in sys.modules if m.startswith(rooms)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )

    assert done.stdout.strip() == "[]"
