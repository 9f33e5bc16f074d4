"""A start succeeds at Ready; a failed one is told only when nothing of it is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from genagent_protocol.reasons import StartError
from genagent_protocol.supervision.effects import (
    ArmDeadline,
    DisarmDeadline,
    Dispose,
    GiveUpLaunch,
    Kill,
    Launch,
    NotStarted,
    Started,
    Stopped,
    Sweep,
)
from genagent_protocol.supervision.inputs import (
    AbuseSeen,
    AgentReady,
    AgentRefused,
    ChannelFailed,
    ChannelMissed,
    ExitSaid,
    Input,
    LaunchFailed,
    ShutdownRequested,
    StartRequested,
    Timer,
)
from genagent_protocol.supervision.terms import MOST_RESTARTS, RestartPolicy, Terms
from support.supervision_phases import (
    ONCE,
    born,
    dies,
    drained,
    exits,
    monitor,
    passes,
    start,
    stop,
    terms,
)
from support.supervision_rehearsal import Rehearsal, position
from support.supervision_world import (
    NO_CHANNEL,
    NO_PROCESS,
    NOT_FOUND,
    REFUSAL,
    STUCK,
    captured,
    life,
)


def error_of(daemon: Rehearsal, call: str = "start") -> StartError:
    """Return the start error that the starter was told."""
    answer = daemon.answer(call)
    assert isinstance(answer, NotStarted)
    return answer.error


def test_a_start_is_answered_at_ready_with_the_handle_of_the_process() -> None:
    """The handle names the pid and start time that the kernel reported."""
    daemon = Rehearsal(start(), born())
    assert daemon.answers("start") == []

    daemon.tell(AgentReady(life(1)))

    assert daemon.answer("start") == Started(captured(1))


def test_the_start_deadline_is_armed_before_the_launch() -> None:
    """A launch that never reports must not hold a name for ever."""
    orders = Rehearsal().tell(start())

    assert orders == [ArmDeadline(Timer("start", life(1)), 60_000), Launch(life(1), start().terms)]


MISSED = ChannelMissed(life(1), NOT_FOUND)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ((passes("start"), dies(), drained()), "start_timeout"),
        ((exits(3), drained()), "exited"),
        ((drained(), exits(3)), "exited"),
        ((AgentRefused(life(1), REFUSAL), exits(1), drained()), "init_failed"),
        ((exits(1), AgentRefused(life(1), REFUSAL), drained()), "init_failed"),
        ((AgentRefused(life(1), REFUSAL), passes("start"), dies(), drained()), "init_failed"),
        ((passes("start"), AgentRefused(life(1), REFUSAL), dies(), drained()), "start_timeout"),
        ((ChannelFailed(life(1), NO_CHANNEL), drained(), dies()), "resource_exhausted"),
        ((ChannelFailed(life(1), NO_CHANNEL), dies(), drained()), "resource_exhausted"),
        ((exits(1), ChannelFailed(life(1), NO_CHANNEL), drained()), "exited"),
        ((MISSED, passes("missed"), dies(), drained()), "bad_directory"),
        ((MISSED, exits(1), drained()), "exited"),
        ((MISSED, drained(), exits(1)), "exited"),
        (
            (MISSED, AgentRefused(life(1), REFUSAL), passes("missed"), dies(), drained()),
            "init_failed",
        ),
        ((AgentRefused(life(1), REFUSAL), MISSED, exits(1), drained()), "init_failed"),
        ((MISSED, passes("start"), dies(), drained()), "start_timeout"),
        ((MISSED, ChannelFailed(life(1), NO_CHANNEL), dies(), drained()), "resource_exhausted"),
        ((MISSED, stop(), dies(), drained()), "exited"),
        ((AbuseSeen(life(1), "flood"), dies(), drained()), "exited"),
        ((drained(), passes("leave"), dies()), "exited"),
        ((stop(), dies(), drained()), "exited"),
        ((ShutdownRequested(grace_ms=9), dies(), drained()), "shutting_down"),
    ],
)
def test_the_first_certain_reason_is_the_start_error(facts: tuple[Input, ...], kind: str) -> None:
    """What follows from a failure does not explain it."""
    daemon = Rehearsal(start(), born())

    for fact in facts:
        assert daemon.answers("start") == [], "told before it was over"
        daemon.tell(fact)

    assert error_of(daemon).kind == kind
    assert not daemon.table.children


def test_an_agent_that_is_not_found_is_given_a_moment_to_have_ended() -> None:
    """Whoever ends closes its files before the kernel says so, and then its exit explains it."""
    daemon = Rehearsal(start(), born())

    assert daemon.tell(MISSED) == [ArmDeadline(Timer("missed", life(1)), 100)]
    orders = daemon.tell(exits(3))

    assert DisarmDeadline(Timer("missed", life(1))) in orders
    assert daemon.count(Kill) == 0
    assert daemon.tell(passes("missed")) == []


def test_an_agent_that_is_not_found_and_lives_on_is_killed() -> None:
    """It waits at a place where nobody will look for it any more."""
    daemon = Rehearsal(start(), born(), MISSED)

    orders = daemon.tell(passes("missed"))

    assert orders == [DisarmDeadline(Timer("start", life(1))), Kill(life(1))]
    assert daemon.tell(exits(3), drained())
    assert error_of(daemon) == NOT_FOUND


def test_the_first_word_on_why_an_agent_was_not_found_counts() -> None:
    """Who met a stranger hears later that this connection ended, too."""
    second = ChannelMissed(life(1), StartError(kind="bad_directory", message="and now it ended"))
    daemon = Rehearsal(start(), born(), MISSED)

    assert daemon.tell(second) == []
    assert daemon.tell(passes("missed"), second, dies(), second, drained())

    assert error_of(daemon) == NOT_FOUND


def test_an_agent_that_is_heard_was_not_missed() -> None:
    """Should it ever be so, a running agent is not killed over it."""
    daemon = Rehearsal(start(), born(), MISSED, AgentReady(life(1)))

    assert daemon.tell(passes("missed")) == []
    assert daemon.answer("start") == Started(captured(1))


def test_a_process_that_exits_before_ready_is_reported_with_its_status() -> None:
    """The status is often all there is to go by."""
    daemon = Rehearsal(start(), born(), exits(3), drained())

    assert error_of(daemon).detail == "exit:3"
    assert "exit:3" in error_of(daemon).message


def test_a_failed_start_is_told_behind_everything_that_removes_it() -> None:
    """Who hears of it can start the name again at once, and finds no process."""
    daemon = Rehearsal(start(), born(), exits(3))

    orders = daemon.tell(drained())

    assert position(orders, Dispose) < len(orders) - 1
    assert orders[-1].__class__.__name__ == "Answer"
    daemon.tell(start("again"))
    assert daemon.count(Launch) == 2


def test_a_failed_launch_is_told_at_once() -> None:
    """There is no process to wait for."""
    daemon = Rehearsal(start())

    daemon.tell(LaunchFailed(incarnation=life(1), error=NO_PROCESS, now_ms=0))

    assert error_of(daemon) == NO_PROCESS
    assert daemon.count(Sweep) == 0
    assert daemon.reports() == ["agent.starting", "agent.start_failed"]


def test_a_start_given_up_before_the_birth_is_killed_at_the_birth() -> None:
    """An order to kill what is not there yet would be lost."""
    daemon = Rehearsal(start())
    assert daemon.tell(passes("start")) == [GiveUpLaunch(life(1))]

    assert daemon.tell(born()) == [Kill(life(1))]


def test_a_start_given_up_before_the_birth_may_still_fail_to_launch() -> None:
    """The reason it was given up stands."""
    daemon = Rehearsal(start(), passes("start"))

    daemon.tell(LaunchFailed(incarnation=life(1), error=NO_PROCESS, now_ms=0))

    assert error_of(daemon).kind == "start_timeout"


def test_ready_comes_too_late_once_the_start_was_given_up() -> None:
    """The kill is on its way: a handle now would be a handle to a corpse."""
    daemon = Rehearsal(start(), born(), passes("start"))

    daemon.tell(AgentReady(life(1)), dies(), drained())

    assert error_of(daemon).kind == "start_timeout"


def test_ready_said_before_a_death_counts_in_either_order() -> None:
    """The kernel may be faster than the channel; what was said first is heard first."""
    daemon = Rehearsal(start(), born(), dies(), AgentReady(life(1)), drained())
    other = Rehearsal(start(), born(), AgentReady(life(1)), dies(), drained())

    assert daemon.answer("start") == other.answer("start") == Started(captured(1))


@pytest.mark.parametrize("word", [AgentReady(life(1)), AgentRefused(life(1), REFUSAL)])
def test_what_an_agent_says_after_ready_does_not_change_its_start(word: Input) -> None:
    """An agent is user code; saying a word twice must not hurt the daemon."""
    daemon = Rehearsal()
    daemon.run_agent(start())

    assert daemon.tell(word) == []
    assert daemon.answer("start") == Started(captured(1))


def test_a_restart_policy_does_not_apply_to_a_start_that_was_never_ready() -> None:
    """A wrong option would otherwise crash in a loop while its starter waits."""
    daemon = Rehearsal(start(restart=ONCE), born(), exits(1), drained())

    assert error_of(daemon).kind == "exited"
    assert daemon.count(Launch) == 1


def test_a_stop_of_a_starting_agent_answers_both_callers_when_it_is_gone() -> None:
    """It cannot be asked over a channel that it does not read yet, so it is killed."""
    daemon = Rehearsal(start(), born())

    assert Kill(life(1)) in daemon.tell(stop())
    daemon.tell(dies(), drained())

    assert error_of(daemon).detail == "stopped"
    stopped = daemon.answer("stop")
    assert isinstance(stopped, Stopped)
    assert stopped.reason.text == "signal:9"


def test_a_stop_of_an_agent_that_never_had_a_process_says_noproc() -> None:
    """There was no life whose end could have a reason."""
    daemon = Rehearsal(start(), stop())

    daemon.tell(LaunchFailed(incarnation=life(1), error=NO_PROCESS, now_ms=0))

    stopped = daemon.answer("stop")
    assert isinstance(stopped, Stopped)
    assert stopped.reason.text == "noproc"


def test_a_watch_over_a_launch_that_fails_ends_with_noproc() -> None:
    """No process ever was, so there is no other truth to tell."""
    daemon = Rehearsal(start(), monitor())

    daemon.tell(LaunchFailed(incarnation=life(1), error=NO_PROCESS, now_ms=0))

    assert [(ref, reason.text) for ref, reason in daemon.downs()] == [(1, "noproc")]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (replace(terms(), start_timeout_ms=0), "start_timeout_ms"),
        (replace(terms(), shutdown_ms=-1), "shutdown_ms"),
        (terms(restart=RestartPolicy(max_restarts=-1)), "max_restarts"),
        (terms(restart=RestartPolicy(max_restarts=MOST_RESTARTS + 1)), "max_restarts"),
        (terms(restart=RestartPolicy(period_ms=0)), "period_ms"),
        (terms(restart=RestartPolicy(delay_ms=-1)), "delay_ms"),
        (terms(restart=RestartPolicy(delay_ms=20_000)), "max_delay_ms"),
    ],
)
def test_terms_whose_numbers_make_no_sense_start_nothing(asked: Terms, named: str) -> None:
    """They come from other programs; a negative delay must not become a busy loop."""
    daemon = Rehearsal(StartRequested(call="start", client=1, terms=asked))

    assert error_of(daemon).kind == "invalid_option"
    assert named in error_of(daemon).message
    assert daemon.count(Launch) == 0


def test_terms_at_their_edges_are_taken() -> None:
    """Zero restarts, no delay and no window are wishes, not mistakes."""
    edge = RestartPolicy(max_restarts=0, period_ms=1, delay_ms=0, max_delay_ms=0)
    daemon = Rehearsal(
        start("a", name="a", restart=edge, shutdown_ms=0),
        start("b", name="b", restart=RestartPolicy(max_restarts=MOST_RESTARTS), shutdown_ms=None),
    )

    assert daemon.count(Launch) == 2


def test_every_start_error_is_one_line_that_names_the_agent() -> None:
    """It is printed as it is, in a terminal, to someone who started fifty."""
    for facts in (
        (passes("start"), dies(), drained()),
        (exits(3), drained()),
        (AbuseSeen(life(1), "flood"), dies(), drained()),
        (drained(), passes("leave"), dies()),
        (ExitSaid(life(1), STUCK), stop(), dies(), drained()),
        (ShutdownRequested(grace_ms=9), dies(), drained()),
    ):
        daemon = Rehearsal(start(name="a\nb"), born())
        daemon.tell(*(stop(name="a\nb") if fact == stop() else fact for fact in facts))

        message = error_of(daemon).message
        assert "a\\nb" in message
        assert "\n" not in message
