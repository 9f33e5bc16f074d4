"""Each failure has one exit code and one error code, and scripts may rely on them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import genagentd.cli
from genagent_protocol.errors import (
    CallTimeout,
    DaemonLost,
    GenAgentError,
    LocalWireError,
    NotReachable,
    ProcessDown,
    Refused,
    SendBufferFull,
    StartFailed,
    TooLarge,
    TurnFailed,
    UsageError,
    VersionMismatch,
)
from genagent_protocol.reasons import (
    CANCELLED,
    DRAINING,
    HALTED,
    INTERRUPTED,
    NOPROC,
    NOT_FOUND,
    Overloaded,
    PayloadTooLarge,
    Reason,
    StartError,
)
from genagentd.cli.exits import failure_of

OVERLOADED = Overloaded(
    queue="prompts",
    limit="count",
    pending_count=1,
    pending_bytes=2,
    incoming_bytes=3,
    max_count=1,
    max_bytes=9,
)


def not_started(kind: str, detail: str | None = None) -> StartFailed:
    error = StartError(kind=kind, message="m", detail=detail)  # type: ignore[arg-type]  # given by the table
    return StartFailed("m", error)


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (Refused("m", NOT_FOUND), 3, "not_found"),
        (Refused("m", Reason("not_alive")), 3, "not_alive"),
        (Refused("m", OVERLOADED), 4, "overloaded"),
        (Refused("m", HALTED), 4, "halted"),
        (Refused("m", DRAINING), 4, "draining"),
        (Refused("m", Reason("inbox_full")), 4, "inbox_full"),
        (Refused("m", Reason("not_allowed")), 9, "not_allowed"),
        (not_started("already_started"), 4, "already_started"),
        (not_started("shutting_down"), 4, "shutting_down"),
        (not_started("invalid_limits"), 2, "invalid_limits"),
        (not_started("import_failed"), 1, "import_failed"),
        (not_started("start_timeout"), 1, "start_timeout"),
        (TurnFailed("m", INTERRUPTED), 1, "interrupted"),
        (TurnFailed("m", CANCELLED), 1, "cancelled"),
        (CallTimeout("ask", 5), 5, "timeout"),
        (ProcessDown("ask", NOPROC), 6, "process_down"),
        (DaemonLost("ask"), 6, "daemon_lost"),
        (NotReachable("m"), 7, "not_reachable"),
        (VersionMismatch("m"), 8, "version_mismatch"),
        (TooLarge("m", PayloadTooLarge(size_bytes=2, limit_bytes=1)), 2, "payload_too_large"),
        (SendBufferFull("m"), 4, "send_buffer_full"),
        (UsageError("m"), 2, "usage"),
        (LocalWireError("m"), 1, "local_wire_error"),
    ],
)
def test_the_table(error: GenAgentError, exit_code: int, code: str) -> None:
    """The documented table, row by row (E046)."""
    failure = failure_of(error)

    assert (failure.exit_code, failure.code) == (exit_code, code)
    assert str(failure)


@pytest.mark.parametrize("error", [NotReachable, VersionMismatch])
def test_what_to_do_is_the_hint_and_not_said_twice(
    error: type[NotReachable | VersionMismatch],
) -> None:
    """A program shows the hint or leaves it out; whoever uses the library reads both."""
    failure = failure_of(error("nobody is there", hint="start one"))

    assert (failure.message, failure.hint) == ("nobody is there", "start one")
    assert str(error("nobody is there", hint="start one")) == "nobody is there; start one"


@pytest.mark.parametrize(
    ("error", "leads"),
    [
        (Refused("m", HALTED), "genagent resume a"),
        (Refused("m", DRAINING), "genagent list"),
        (Refused("m", Reason("busy")), "genagent interrupt a"),
        (not_started("exited"), "genagent logs a"),
        (not_started("bad_directory", "cwd"), "--cwd DIR"),
    ],
)
def test_a_refusal_leads_on(error: GenAgentError, leads: str) -> None:
    """A code alone leaves a person where they were."""
    assert leads in failure_of(error, "ask", "a").hint


def test_no_directory_of_the_daemon_is_taken_for_the_agents() -> None:
    """Where the log cannot be made, its message says what to do, and `--cwd` would not help."""
    assert failure_of(not_started("bad_directory"), "start", "a").hint == ""


@pytest.mark.parametrize(
    ("command", "agent", "said"),
    [("snapshot", "a", "snapshot a"), ("", "", "runtime_snapshot y"), ("call", "", "call")],
)
def test_a_call_without_an_answer_has_the_name_that_was_typed(
    command: str, agent: str, said: str
) -> None:
    """The name of the library's call is none that can be looked up among the commands."""
    late = CallTimeout("runtime_snapshot y", 5, fate="nothing was changed")

    told = failure_of(late, command, agent).message

    assert told == f"{said} got no answer within 5 ms; nothing was changed"


def test_the_numbers_of_a_refusal_are_in_its_details() -> None:
    """Scripts need not parse a sentence."""
    details = failure_of(Refused("m", OVERLOADED)).details

    assert details["pending_count"] == 1
    assert details["queue"] == "prompts"


def _codes_in_the_commands() -> Iterator[str]:
    """Yield every error code that a command writes down itself."""
    for module in Path(genagentd.cli.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Failure", "_left"):
                code = node.args[1]
                if isinstance(code, ast.Constant):
                    yield str(code.value)


def test_every_code_that_a_command_writes_down_is_promised() -> None:
    """A script that branches on codes has only the page to go by."""
    page = Path(__file__).parents[2] / "docs/reference/reasons.md"
    text = page.read_text(encoding="utf-8")
    codes = set(_codes_in_the_commands())

    assert {"usage", "timeout", "lost"} <= codes
    assert {code for code in codes if f"`{code}`" not in text} == set()
