"""Bugs that could have been written, and the test that finds each.

A mutant changes one function of the rules in memory, where the rules look it up.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from genagent_protocol.supervision import endings, lives, requests, settling, verdicts

_HERE = "tests/protocol/supervision/"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug: `plant` writes it into the running rules, `killer` must then fail."""

    name: str
    plant: Callable[[], None]
    killer: str


def _rewrite(function: Callable[..., object], old: str, new: str) -> Callable[[], None]:
    """Return what puts *function* back into its module with *old* replaced by *new*."""

    def plant() -> None:
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(old) == 1, f"{old!r} is not once in {function.__name__}"
        module = sys.modules[function.__module__]
        code = compile(source.replace(old, new), f"<mutant of {function.__name__}>", "exec")
        exec(code, vars(module))

    return plant


def _mutant(name: str, function: Callable[..., object], old: str, new: str, killer: str) -> Mutant:
    return Mutant(name, _rewrite(function, old, new), _HERE + killer)


CLOSURE = "test_closure.py"

MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "a birth that nobody wants is waited for",
        lives.kill,
        "draft.order(GiveUpLaunch(who) if life.pid is None else Kill(who))",
        "draft.order(*[] if life.pid is None else [Kill(who)])",
        CLOSURE,
    ),
    _mutant(
        "a DOWN goes out at the exit, before the channel is drained",
        lives.exited,
        "if life.drained:",
        "if True:",
        CLOSURE,
    ),
    _mutant(
        "a DOWN goes out at the end of the channel, before the exit",
        lives.drained,
        "if not life.alive:",
        "if True:",
        CLOSURE,
    ),
    _mutant(
        "the second of two monitors hears no DOWN",
        lives._send_downs,
        "in life.monitors.items():",
        "in list(life.monitors.items())[:1]:",
        "test_ends.py",
    ),
    _mutant(
        "a DOWN leaves its watch behind",
        lives._send_downs,
        "draft.table = replace(draft.table, watched=watched)",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "a demonitored watch still hears the DOWN",
        requests._unwatch,
        "draft.put_life(child, replace(life, monitors=life.monitors.without(*over_it)))",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "a monitor of a dead incarnation waits for ever",
        requests.monitor,
        "if child is None:",
        "if child is None:\n        return\n    if child is None:",
        CLOSURE,
    ),
    _mutant(
        "a name is free while its agent starts",
        requests._why_not,
        "if holder is None:",
        "if holder is None or not holder.proven:",
        CLOSURE,
    ),
    _mutant(
        "a start in a closing group is taken",
        requests._runs,
        "and not draft.table.groups[number].closing",
        "",
        "test_groups.py",
    ),
    _mutant(
        "a group hears any client",
        requests._owns,
        "and group.owner == client",
        "",
        "test_groups.py",
    ),
    _mutant(
        "a global stop reaches an agent of a group",
        requests.stop,
        "child.terms.group != request.group",
        "request.group not in (None, child.terms.group)",
        "test_stops.py",
    ),
    _mutant(
        "a group outlives its owner",
        requests.client_gone,
        "if group.owner == fact.client:",
        "if False:",
        "test_groups.py",
    ),
    _mutant(
        "the watches of a client that is gone stay",
        requests.client_gone,
        "if watch[0] == fact.client",
        "if False",
        "test_ends.py",
    ),
    _mutant(
        "Ready is taken although the start was given up",
        lives.ready,
        "if life.ready or life.killed or life.verdict is not None:",
        "if life.ready:",
        "test_starts.py",
    ),
    _mutant(
        "a failed start is told before its process is gone",
        lives.refused,
        "draft.put_life(child, replace(life, verdict=fact.error))",
        "draft.put_life(child, replace(life, verdict=fact.error))\n"
        "        draft.answer(child.starter, NotStarted(fact.error))",
        CLOSURE,
    ),
    _mutant(
        "the last error of a start wins",
        lives.refused,
        "if not life.ready and life.verdict is None:",
        "if not life.ready:",
        "test_starts.py",
    ),
    _mutant(
        "an unborn process that was given up is not killed at its birth",
        lives.born,
        "if life.killed:",
        "if False:",
        CLOSURE,
    ),
    _mutant(
        "an unborn process is killed before its birth",
        lives.kill,
        "GiveUpLaunch(who) if life.pid is None else Kill(who)",
        "Kill(who)",
        CLOSURE,
    ),
    _mutant(
        "a process is killed twice",
        lives.kill,
        "if not life.alive or life.killed:",
        "if not life.alive:",
        CLOSURE,
    ),
    _mutant(
        "a deadline that was disarmed is obeyed",
        lives.deadline_passed,
        "if subject is None or timer.kind not in subject[1].armed:",
        "if subject is None:",
        "test_cells.py",
    ),
    _mutant(
        "the deadlines of a dead process stay armed",
        lives.exited,
        "child = draft.disarm(child, life.armed)",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "a process that outlives its channel lives on unreachable",
        lives.drained,
        "elif not life.killed:",
        "elif False:",
        "test_ends.py",
    ),
    _mutant(
        "the first word of an agent on what it leaves counts",
        lives.said,
        "leaves=fact.unresolved",
        "leaves=life.leaves or fact.unresolved",
        CLOSURE,
    ),
    _mutant(
        "what an agent would leave is not kept for when it is killed",
        lives.leaving,
        "draft.put_life(child, replace(life, leaves=fact.unresolved))",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "an agent that left nothing is said to have been frozen",
        lives._account,
        "life.leaves is None",
        "True",
        "test_ends.py",
    ),
    _mutant(
        "whoever was killed unasked is said to have been frozen",
        lives._account,
        "(life.asked is not None or _unasked(draft, life))",
        "True",
        CLOSURE,
    ),
    _mutant(
        "what an agent leaves is told when it is forgotten",
        lives._end,
        "_account(draft, life)\n    # Why an unborn process ended is the error of its start.\n"
        "    ended = None if life.status is None else reason\n"
        "    draft.order(Dispose(life.incarnation, ended, verdicts.killed_for(life)))",
        "ended = None if life.status is None else reason\n"
        "    draft.order(Dispose(life.incarnation, ended, verdicts.killed_for(life)))\n"
        "    _account(draft, life)",
        "test_ends.py",
    ),
    _mutant(
        "every end of a life that was to be killed is the kill's",
        verdicts.killed_for,
        "life.killed_for if life.status == Signalled(SIGKILL) else None",
        "life.killed_for",
        "test_ends.py",
    ),
    _mutant(
        "an agent that is not found is not waited for",
        lives.channel_missed,
        'draft.arm(child, "missed", MISSED_WAIT_MS)',
        'kill(draft, child, "channel", fact.error)',
        CLOSURE,
    ),
    _mutant(
        "an agent that is not found is waited for until its start times out",
        lives.channel_missed,
        'draft.arm(child, "missed", MISSED_WAIT_MS)',
        "pass",
        "test_starts.py",
    ),
    _mutant(
        "a doomed process is still missed",
        lives.kill,
        '"missed", ',
        "",
        "test_cells.py",
    ),
    _mutant(
        "the last word on why an agent was not found counts",
        lives.channel_missed,
        " and life.missed is None",
        "",
        "test_starts.py",
    ),
    _mutant(
        "what the dead left behind is not swept",
        lives.exited,
        "draft.order(Sweep(life.incarnation))",
        "pass",
        "test_ends.py",
    ),
    _mutant(
        "status 0 is normal although it was asked for",
        verdicts.exit_reason,
        "return NORMAL if life.asked is None else SHUTDOWN",
        "return NORMAL",
        "test_ends.py",
    ),
    _mutant(
        "an agent is believed with any status",
        verdicts._own_reason,
        "code != REASON_GIVEN_STATUS or ",
        "",
        "test_ends.py",
    ),
    _mutant(
        "an agent may give any reason",
        verdicts._own_reason,
        "or said.text not in OWN_REASONS",
        "",
        "test_ends.py",
    ),
    _mutant(
        "a transient agent that ended well comes back",
        verdicts.restart_due,
        "return not life.ready or reason.text not in ORDERLY",
        "return True",
        "test_restarts.py",
    ),
    _mutant(
        "a stopped permanent agent comes back",
        verdicts.restart_due,
        "if not child.wanted:",
        "if False:",
        CLOSURE,
    ),
    _mutant(
        "a start that was never ready is retried",
        lives._end,
        "child.proven and ",
        "",
        "test_starts.py",
    ),
    _mutant(
        "one restart too many",
        verdicts.next_restart,
        ">= policy.max_restarts",
        "> policy.max_restarts",
        "test_restarts.py",
    ),
    _mutant(
        "an end exactly a period old still counts",
        verdicts.next_restart,
        "< policy.period_ms",
        "<= policy.period_ms",
        "test_restarts.py",
    ),
    _mutant(
        "the wait before a restart does not grow",
        verdicts.next_restart,
        "policy.delay_ms * 2 ** min(len(recent), _MAX_DOUBLINGS)",
        "policy.delay_ms",
        "test_restarts.py",
    ),
    _mutant(
        "a stop during the wait leaves its deadline armed",
        endings.end_child,
        'if child.phase == "restarting":',
        "if False:",
        CLOSURE,
    ),
    _mutant(
        "a second stop asks again",
        endings._ask,
        'if life.asked == "stop" or life.asked == wish:',
        "if False:",
        CLOSURE,
    ),
    _mutant(
        "a stop is never followed by a kill",
        endings._ask,
        'if wish == "stop" and child.terms.shutdown_ms is not None:',
        "if False:",
        "test_stops.py",
    ),
    _mutant(
        "one agent of a closing group is stopped before another refuses turns",
        endings.close_group,
        "draft.order(RefuseTurns(child.life.incarnation))",
        "draft.order(RefuseTurns(child.life.incarnation))\n"
        '            end_child(draft, child, "group")',
        "test_groups.py",
    ),
    _mutant(
        "why a group ends is told anew by whoever comes later",
        endings.close_group,
        "cause=group.cause or cause",
        "cause=cause",
        "test_groups.py",
    ),
    _mutant(
        "a group is closed while an agent is left",
        settling.settle_group,
        " or any(c.terms.group == number for c in table.children.values())",
        "",
        CLOSURE,
    ),
    _mutant(
        "the callers of a stop are forgotten",
        settling.forget,
        "for call in child.stoppers:",
        "for call in child.stoppers[1:]:",
        CLOSURE,
    ),
    _mutant(
        "a start is taken during the shutdown",
        requests._why_not,
        "if draft.table.shutdown is not None:",
        "if False:",
        "test_shutdown.py",
    ),
    _mutant(
        "the shutdown is complete while agents are left",
        settling.settle_shutdown,
        "table.finished or table.children",
        "table.finished",
        CLOSURE,
    ),
    _mutant(
        "the shutdown is complete twice",
        settling.settle_shutdown,
        "draft.table = replace(table, finished=True)",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "nobody accounts for whom the daemon's end could not ask",
        lives._unasked,
        "return life.ready and life.killed and draft.table.shutdown is not None",
        "return False",
        CLOSURE,
    ),
    _mutant(
        "who wishes for the end as well cuts turns off",
        endings.shut_down,
        "if fact.forced:\n            settling",
        "if True:\n            settling",
        "test_shutdown.py",
    ),
    _mutant(
        "a second request to shut down is taken for an echo",
        endings.shut_down,
        "settling.disarm_shutdown(draft)\n            _kill_all(draft)",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "a forced shutdown waits for turns",
        endings.shut_down,
        "elif fact.forced:",
        "elif False:",
        CLOSURE,
    ),
    _mutant(
        "a drain goes on to the end of the grace",
        endings.last_words_due,
        "_end_all(draft, drain=False)",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "last words are due when the grace ends",
        endings._begin_shutdown,
        "grace_ms - last_ms",
        "grace_ms",
        "test_shutdown.py",
    ),
    _mutant(
        "the deadlines of a shutdown that is forced stay armed",
        endings.shut_down,
        "settling.disarm_shutdown(draft)",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "last words are due after the grace is over",
        endings.grace_passed,
        "settling.disarm_shutdown(draft, passed=settling.GRACE)",
        "pass",
        CLOSURE,
    ),
    _mutant(
        "the end of the grace kills nobody",
        endings.grace_passed,
        "_kill_all(draft)",
        "pass",
        "test_shutdown.py",
    ),
    _mutant(
        "a drain takes back a stop",
        endings._ask,
        'life.asked == "stop" or ',
        "",
        "test_shutdown.py",
    ),
)
