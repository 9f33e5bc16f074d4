"""What an end means: the reason a DOWN gives, the error a start gets, whether to go on.

The kernel's status decides. What the agent said about itself is believed only
together with the one exit status, or the one signal, that is reserved for it, because
nothing else could have been that status by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from genagent_protocol.plain import printable
from genagent_protocol.reasons import (
    NOPROC,
    NORMAL,
    ORDERLY,
    SHUTDOWN,
    TURN_STUCK,
    ExitReason,
    StartError,
)
from genagent_protocol.supervision.inputs import Cause, Exited, Signalled
from genagent_protocol.supervision.table import Child, Life
from genagent_protocol.supervision.terms import RestartPolicy, Terms

#: The exit status with which an agent tells that it gave its reason itself.
REASON_GIVEN_STATUS = 70
SIGKILL = 9
#: With this an agent's timer in the kernel ends it when it cannot end itself: a turn keeps the
#: interpreter, or what runs at its end does not come back.
SIGNAL_OF_LAST_RESORT = 64

#: The reasons an agent may give for its own end.
OWN_REASONS = frozenset(
    {
        "pre_run_failed",
        "pre_run_crashed",
        "pre_run_invalid",
        "callback_failed",
        "turn_stuck",
        "protocol_abuse",
        "registry_lost",
    }
)

# 2**32 times the shortest delay is past every ceiling; a larger power is only work.
_MAX_DOUBLINGS = 32


def exit_reason(life: Life) -> ExitReason:
    """Return why this life ended, in the words of its DOWN.

    `noproc` for a launch that produced no process.
    """
    match life.status:
        case None:
            return NOPROC
        case Exited(0):
            return NORMAL if life.asked is None else SHUTDOWN
        case Exited(code):
            return _own_reason(life, code) or ExitReason(f"exit:{code}")
        case Signalled(signal):
            if signal == SIGKILL and life.abuse is not None:
                return ExitReason("protocol_abuse", life.abuse)
            if signal == SIGNAL_OF_LAST_RESORT:
                return _decided(life)
            return ExitReason(f"signal:{signal}")
        case _:
            assert_never(life.status)


def _decided(life: Life) -> ExitReason:
    """Return why an agent wanted to end that its own timer ended; a turn kept it, else."""
    said = life.said
    if said is not None and said.text in ORDERLY:
        return NORMAL if life.asked is None else SHUTDOWN
    if said is not None and said.text in OWN_REASONS:
        return said
    return TURN_STUCK


def _own_reason(life: Life, code: int) -> ExitReason | None:
    said = life.said
    if code != REASON_GIVEN_STATUS or said is None or said.text not in OWN_REASONS:
        return None
    return said


def killed_for(life: Life) -> Cause | None:
    """Return for what we killed this life; None if it ended otherwise, if only just before."""
    return life.killed_for if life.status == Signalled(SIGKILL) else None


@dataclass(frozen=True, slots=True)
class Restart:
    """Go on after this wait; `times_ms` are the ends that count from now on."""

    after_ms: int
    times_ms: tuple[int, ...]


def next_restart(policy: RestartPolicy, times_ms: tuple[int, ...], now_ms: int) -> Restart | None:
    """Return how to go on after an end at *now_ms*, or None if it was one too many.

    *times_ms* are the earlier ends that led to a restart; those at least a whole
    period old no longer count.
    """
    recent = tuple(time for time in times_ms if now_ms - time < policy.period_ms)
    if len(recent) >= policy.max_restarts:
        return None
    delay_ms = policy.delay_ms * 2 ** min(len(recent), _MAX_DOUBLINGS)
    return Restart(min(delay_ms, policy.max_delay_ms), (*recent, now_ms))


def restart_due(child: Child, life: Life, reason: ExitReason) -> bool:
    """Return whether the policy wants this child back after *life* ended for *reason*.

    A restarted agent that was not ready again did not end well, whatever its status.
    """
    if not child.wanted:
        return False
    match child.terms.restart.kind:
        case "temporary":
            return False
        case "transient":
            return not life.ready or reason.text not in ORDERLY
        case "permanent":
            return True
        case _:
            assert_never(child.terms.restart.kind)


def start_error(child: Child, life: Life) -> StartError:
    """Return why this life never became ready: what was said, else how it ended."""
    if life.verdict is not None:
        return life.verdict
    ended = str(exit_reason(life))
    return StartError(
        kind="exited",
        message=f"the agent {_name(child.terms)} ended before it was ready ({ended}); "
        "its log has what it printed",
        detail=ended,
    )


def timed_out(terms: Terms) -> StartError:
    """Return the error of a start whose time is over."""
    return StartError(
        kind="start_timeout",
        message=f"the agent {_name(terms)} was not ready within {terms.start_timeout_ms} ms: "
        "its import, init_agent and the start of its session have to be done by then; "
        "raise the limit, or do less there",
        detail=terms.start_timeout_ms,
    )


def abused(terms: Terms, detail: str) -> StartError:
    """Return the error of a start whose agent broke the protocol."""
    return StartError(
        kind="exited",
        message=f"the agent {_name(terms)} broke the protocol while it was starting ({detail})",
        detail="protocol_abuse",
    )


def cut_off(terms: Terms) -> StartError:
    """Return the error of a start whose agent closed its channel and lived on."""
    return StartError(
        kind="exited",
        message=f"the agent {_name(terms)} closed its channel while it was starting",
        detail="channel_lost",
    )


def stopped_early(terms: Terms) -> StartError:
    """Return the error of a start that somebody stopped."""
    return StartError(
        kind="exited",
        message=f"the agent {_name(terms)} was stopped while it was starting",
        detail="stopped",
    )


def group_not_running(terms: Terms) -> StartError:
    """Return the error of a start in a group that is closed, closing or unknown."""
    return StartError(
        kind="group_not_running",
        message=f"the agent {_name(terms)} was not started: its group is not running",
        detail=terms.group,
    )


def shutting_down(terms: Terms) -> StartError:
    """Return the error of a start during the daemon's own shutdown."""
    return StartError(
        kind="shutting_down",
        message=f"the agent {_name(terms)} was not started: the daemon is shutting down",
    )


def invalid(terms: Terms, flaw: str) -> StartError:
    """Return the error of a start whose terms make no sense."""
    return StartError(
        kind="invalid_option",
        message=f"the agent {_name(terms)} was not started: {flaw}",
        detail=flaw,
    )


def already_started(holder: Child) -> StartError:
    """Return the error of a start under a name that *holder* has, naming it."""
    life = holder.life
    pid = f"pid {life.pid}, " if life is not None and life.pid is not None else ""
    advice = "; stop it first" if holder.failed else ""
    return StartError(
        kind="already_started",
        message=(
            f"the name {_name(holder.terms)} is taken by the agent "
            f"{holder.last} ({pid}{holder.phase}){advice}"
        ),
        detail=holder.last.text,
    )


def _name(terms: Terms) -> str:
    return printable(terms.name)
