"""Every reason has a code to branch on and prints as one line."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.plain import Plain
from genagent_protocol.reasons import (
    AgentTerminated,
    BackendError,
    BackendFailed,
    Code,
    EventCaptureOverflow,
    ExitReason,
    Failure,
    Overloaded,
    PayloadTooLarge,
    PreTurnCrashed,
    Reason,
    ResetFailed,
    StartError,
    TaskCrashed,
)
from support.plain_values import plain, texts

lines = texts
reasons: st.SearchStrategy[Failure | ExitReason | StartError] = st.one_of(
    st.builds(Reason, st.sampled_from(get_args(Code))),
    st.builds(TaskCrashed, lines, lines),
    st.builds(PreTurnCrashed, lines),
    st.builds(BackendFailed, plain),
    st.builds(
        BackendError,
        provider=lines,
        kind=lines,
        retryable=st.booleans(),
        status=st.none() | st.integers(100, 599),
        message=lines,
        raw=plain,
    ),
    st.builds(ResetFailed, lines),
    st.builds(PayloadTooLarge, st.integers(0), st.integers(0)),
    st.from_type(Overloaded),
    st.builds(
        EventCaptureOverflow,
        limit=st.sampled_from(("events", "bytes")),
        max_events=st.integers(0),
        max_bytes=st.integers(0),
        retained_events=st.integers(0),
        retained_bytes=st.integers(0),
        rejected_event_kind=lines,
        rejected_event_bytes=st.integers(0),
    ),
    st.builds(ExitReason, lines, plain),
    st.builds(AgentTerminated, st.builds(ExitReason, lines, plain)),
    st.builds(StartError, kind=st.just("exited"), message=lines, log=st.none() | lines),
)


@given(reason=reasons)
def test_a_reason_prints_as_one_line_whatever_is_in_it(
    reason: Failure | ExitReason | StartError,
) -> None:
    """What a backend or a crash said goes into terminals, logs and one-line errors."""
    assert str(reason).isprintable()
    if isinstance(reason, StartError):
        assert reason.message.isprintable()


@pytest.mark.parametrize("kind", get_args(Failure))
def test_every_failure_has_a_code_of_its_own(kind: type) -> None:
    """Callers branch on it, so no two kinds may share one, and no kind may lack one."""
    codes = [getattr(other, "code", None) for other in get_args(Failure) if other is not Reason]

    if kind is Reason:
        assert {"code"} == {field.name for field in fields(kind)}
        assert not set(get_args(Code)) & set(codes)
    else:
        assert isinstance(kind.code, str)  # type: ignore[attr-defined]  # that is the question
        assert codes.count(kind.code) == 1  # type: ignore[attr-defined]


def test_a_start_error_has_its_kind_as_its_code() -> None:
    """Whoever holds some reason need not ask which sort it is."""
    error = StartError(kind="start_timeout", message="too slow", log="/logs/a/1.log")

    assert error.code == "start_timeout"
    assert str(error) == "start_timeout: too slow (see /logs/a/1.log)"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (ExitReason("exit:3"), "exit:3"),
        (ExitReason("callback_failed", "ValueError"), "callback_failed: ValueError"),
        (ExitReason("pre_run_failed", 0), "pre_run_failed: 0"),
        (TaskCrashed("ValueError"), "task_crashed: ValueError"),
        (TaskCrashed("ValueError", "no"), "task_crashed: ValueError: no"),
        (AgentTerminated(ExitReason("normal")), "agent_terminated: normal"),
        (BackendFailed("no\nluck"), "backend_failed: no\\nluck"),
    ],
)
def test_a_reason_is_shown_with_its_detail(reason: object, shown: str) -> None:
    """The detail is often the only clue; None means that there is none, 0 does not."""
    assert str(reason) == shown


@given(detail=plain)
def test_two_reasons_are_equal_when_they_say_the_same(detail: Plain) -> None:
    """They are values: compared, remembered and sent."""
    assert hash(ExitReason("callback_failed", detail)) == hash(
        ExitReason("callback_failed", detail)
    )
