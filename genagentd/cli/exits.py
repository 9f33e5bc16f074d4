"""What each failure means to whoever called: exit code, error code, and what to do.

The exit codes are a promise; scripts branch on them. Every command ends with one of
them and, on failure, with one line on standard error, or with one JSON object.
"""

from __future__ import annotations

from typing import Any

from genagent_protocol import schema
from genagent_protocol.errors import (
    CallTimeout,
    DaemonLost,
    FunctionFailed,
    GenAgentError,
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
from genagent_protocol.reasons import StartError
from genagentd.socket_path import UnusablePlace

OK = 0
FAILED = 1
USAGE = 2
NO_SUCH_AGENT = 3
REFUSED = 4
PENDING = 5
UNCERTAIN = 6
NOT_REACHABLE = 7
VERSION_MISMATCH = 8
NOT_ALLOWED = 9
BAD_CONFIGURATION = 78
INTERRUPTED = 130

#: Reasons of a refusal that have an exit code of their own.
_REFUSALS = {"not_found": NO_SUCH_AGENT, "not_alive": NO_SUCH_AGENT, "not_allowed": NOT_ALLOWED}
#: Start errors that say no, rather than that something went wrong.
_START_REFUSALS = {
    "already_started": REFUSED,
    "shutting_down": REFUSED,
    "resource_exhausted": REFUSED,
    "not_allowed": NOT_ALLOWED,
    "invalid_option": USAGE,
    "invalid_limits": USAGE,
}


class Failure(Exception):
    """How a command failed."""

    def __init__(
        self,
        exit_code: int,
        code: str,
        message: str,
        hint: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        self.exit_code = exit_code
        self.code = code
        self.message = message
        self.hint = hint
        self.details = details or {}
        super().__init__(message)


def failure_of(error: GenAgentError, command: str = "", agent: str = "") -> Failure:
    """Return how *command*, typed for *agent*, fails with *error*."""
    message = str(error)
    match error:
        case StartFailed(reason=reason):
            exit_code = _START_REFUSALS.get(reason.kind, FAILED)
            hint = _start_hint(reason, agent)
            return Failure(exit_code, reason.code, message, hint, _details(reason))
        case Refused(reason=reason):
            exit_code = _REFUSALS.get(reason.code, REFUSED)
            if reason.code == "not_found" and agent:
                message = f"{command}: no agent is named {agent}"
            hint = _refusal_hint(reason.code, agent or "NAME")
            return Failure(exit_code, reason.code, message, hint, _details(reason))
        case TurnFailed(reason=reason):
            hint = _log_hint(agent, "what code of the agent's own raised or returned is in its log")
            hint = hint if reason.code in _ITS_OWN_CODE else ""
            return Failure(FAILED, reason.code, message, hint, _details(reason))
        case FunctionFailed():
            return Failure(FAILED, "function_failed", message, "", {"code": error.code})
        case CallTimeout():
            message = not_answered(error, command, agent)
            hint = f"look at the agent with: genagent status {agent}" if agent else ""
            return Failure(PENDING, "timeout", message, hint, {"timeout_ms": error.timeout_ms})
        case ProcessDown():
            details = {"reason": str(error.reason)}
            return Failure(UNCERTAIN, "process_down", message, _log_hint(agent), details)
        case DaemonLost():
            return Failure(UNCERTAIN, "daemon_lost", message, "start one with: genagentd start")
        case NotReachable():
            return Failure(NOT_REACHABLE, "not_reachable", error.fact, error.hint)
        case VersionMismatch():
            return Failure(VERSION_MISMATCH, "version_mismatch", error.fact, error.hint)
        case TooLarge(reason=reason):
            return Failure(USAGE, reason.code, message, "", _details(reason))
        case SendBufferFull():
            return Failure(REFUSED, "send_buffer_full", message)
        case UnusablePlace():
            return Failure(BAD_CONFIGURATION, "bad_configuration", message)
        case UsageError():
            return Failure(USAGE, "usage", message)
        case _:
            return Failure(FAILED, schema.tag_of(type(error)), message)


def not_answered(late: CallTimeout, command: str, agent: str) -> str:
    """Return the sentence of a call that got no answer, about what was typed if that is known."""
    typed = " ".join(filter(None, (command or late.call, agent)))
    return f"{typed} got no answer within {late.timeout_ms} ms; {late.fate}"


#: Failures whose cause may be an exception in the agent's own code, which is in its log.
_ITS_OWN_CODE = ("pre_turn_skipped", "pre_turn_crashed", "pre_turn_invalid", "task_crashed")


def _start_hint(reason: StartError, agent: str) -> str:
    """Return what to do about a start whose error does not say that itself."""
    match reason.kind:
        case "already_started":
            return f"take another name, or free this one with: genagent stop {agent or 'NAME'}"
        case "exited":
            return _log_hint(agent, "what it printed is in its log")
        # Of any other directory the message says what to do.
        case "bad_directory" if reason.detail == "cwd":
            return "name a directory that the daemon can enter with: --cwd DIR"
        case _:
            return ""


def _log_hint(agent: str, why: str = "its log may say more") -> str:
    return f"{why}: genagent logs {agent}" if agent else ""


def _refusal_hint(code: str, agent: str) -> str:
    match code:
        case "not_found":
            return "see which there are with: genagent list"
        case "halted":
            return f"let it go on with: genagent resume {agent}"
        case "busy":
            return f"wait for the turn that runs, or stop it with: genagent interrupt {agent}"
        case "draining":
            return "it is ending; see when it is gone with: genagent list"
        case _:
            return ""


def _details(reason: object) -> dict[str, Any]:
    return {key: value for key, value in schema.dump(reason).items() if key != schema.TAG}
