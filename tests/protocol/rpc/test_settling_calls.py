"""How calls to an agent end: scenarios R022 to R036."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol.rpc import (
    CANCELLED,
    TIMEOUT,
    UNKNOWN_ERROR,
    Rejected,
    Resolved,
    Rpc,
    RpcLimits,
    Settlement,
)
from support.rpc_house import OPS, answer, called, handler, pending_with


def rejection(settlements: tuple[Settlement, ...]) -> Rejected:
    """Return the one settlement, which is a rejection."""
    (settlement,) = settlements
    assert isinstance(settlement, Rejected)
    return settlement


def test_r022_an_answer_with_a_value_resolves_the_call() -> None:
    """This is what the call was made for."""
    rpc, settlements = pending_with(handler(), "a").handle_agent_function_response(
        answer("a", value={"n": [1]})
    )

    assert settlements == (Resolved("a", {"n": [1]}),)
    assert rpc.pending_ids() == ()


def test_r023_null_is_a_value() -> None:
    """A function that returns nothing has answered all the same."""
    _, settlements = pending_with(handler(), "a").handle_agent_function_response(
        answer("a", value=None)
    )

    assert settlements == (Resolved("a", None),)


def test_r024_the_agents_own_code_passes_through() -> None:
    """Callers branch on what the agent says, not on what this library knows."""
    _, settlements = pending_with(handler(), "a").handle_agent_function_response(
        answer("a", error={"code": "PROVIDER_NOT_FOUND", "message": "no such provider"})
    )

    error = rejection(settlements).error
    assert (error.code, error.message, error.function_call_id) == (
        "PROVIDER_NOT_FOUND",
        "no such provider",
        "a",
    )


@pytest.mark.parametrize(
    "error",
    [{"message": "boom"}, {}, {"code": "", "message": "boom"}, {"code": 7}, "boom", ["boom"], 7],
    ids=repr,
)
def test_r025_an_error_without_a_code_is_unknown_error(error: Any) -> None:
    """An agent that says only that it failed has failed; the call does not stay pending."""
    rpc, settlements = pending_with(handler(), "a").handle_agent_function_response(
        answer("a", error=error)
    )

    rejected = rejection(settlements).error
    assert rejected.code == UNKNOWN_ERROR
    assert rejected.message
    assert rpc.pending_ids() == ()


def test_an_error_that_is_null_is_no_error() -> None:
    """Some encoders write every field; a value beside it is the answer."""
    _, settlements = pending_with(handler(), "a").handle_agent_function_response(
        answer("a", value=1, error=None)
    )

    assert settlements == (Resolved("a", 1),)


def test_r026_an_answer_to_an_id_never_called_changes_nothing() -> None:
    """It may be late, or meant for someone else."""
    rpc = pending_with(handler(), "a")

    after, settlements = rpc.handle_agent_function_response(answer("ghost", value=1))

    assert settlements == ()
    assert after == rpc


def test_r027_the_second_answer_gives_nothing() -> None:
    """A call is settled once; who waited for it has gone on."""
    rpc, _ = pending_with(handler(), "a").handle_agent_function_response(answer("a", value=1))

    after, settlements = rpc.handle_agent_function_response(answer("a", value=2))

    assert settlements == ()
    assert after == rpc


def test_r028_a_timer_rejects_the_call_and_names_the_function() -> None:
    """The text goes to a person or a log, where the id alone says little."""
    rpc, settlements = pending_with(handler(), "a").timeout("a")

    error = rejection(settlements).error
    assert error.code == TIMEOUT
    assert "lookUp" in error.message
    assert "30000 ms" in error.message
    assert rpc.handle_agent_function_response(answer("a", value=1)) == (rpc, ())


def test_r029_a_timer_that_fires_after_the_answer_gives_nothing() -> None:
    """A host may not be able to stop a timer that is already on its way."""
    rpc, _ = pending_with(handler(), "a").handle_agent_function_response(answer("a", value=1))

    assert rpc.timeout("a") == (rpc, ())


def test_a_timer_is_honoured_for_a_call_without_a_timeout() -> None:
    """The host is the judge of time; the handler has no clock to contradict it."""
    rpc, _ = called(
        handler().call_agent_function("main", {"@call": "f"}, function_call_id="a", timeout_ms=0)
    )

    _, settlements = rpc.timeout("a")

    assert rejection(settlements).error.code == TIMEOUT


def test_r030_a_cancelled_call_is_rejected_with_the_reason_once() -> None:
    """The reason is the host's; nobody else knows it."""
    rpc, settlements = pending_with(handler(), "a").cancel("a", "the window was closed")

    error = rejection(settlements).error
    assert error.code == CANCELLED
    assert "the window was closed" in error.message
    assert rpc.cancel("a", "again") == (rpc, ())


def test_r031_answers_settle_their_own_calls_in_any_order() -> None:
    """Agents answer when they can, not in the order of the calls."""
    rpc = pending_with(handler(), "a", "b", "c")

    rpc, third = rpc.handle_agent_function_response(answer("c", value=3))
    rpc, first = rpc.handle_agent_function_response(answer("a", value=1))

    assert third == (Resolved("c", 3),)
    assert first == (Resolved("a", 1),)
    assert rpc.pending_ids() == ("b",)


def test_r032_an_id_that_begins_like_another_settles_only_itself() -> None:
    """Ids are compared whole."""
    rpc, settlements = pending_with(handler(), "a", "ab").handle_agent_function_response(
        answer("a", value=1)
    )

    assert settlements == (Resolved("a", 1),)
    assert rpc.pending_ids() == ("ab",)


def test_r033_dispose_cancels_every_call_in_the_order_of_ids() -> None:
    """The order is the same on every machine, so that what follows from it is too."""
    rpc, settlements = pending_with(handler(), "b", "a").dispose("the client left")

    assert [settlement.call_id for settlement in settlements] == ["a", "b"]
    for settlement in settlements:
        assert isinstance(settlement, Rejected)
        assert settlement.error.code == CANCELLED
        assert settlement.call_id in settlement.error.message
        assert "the client left" in settlement.error.message
    assert rpc.pending_ids() == ()
    assert rpc.disposed


def test_r034_dispose_is_idempotent() -> None:
    """Two parts of a host may both clean up."""
    rpc, _ = pending_with(handler(), "a").dispose()

    assert rpc.dispose() == (rpc, ())


def test_r035_what_comes_after_dispose_gives_nothing() -> None:
    """Every call was settled when the handler was disposed, and none is settled twice."""
    rpc, _ = pending_with(handler(), "a").dispose()

    assert rpc.handle_agent_function_response(answer("a", value=1)) == (rpc, ())
    assert rpc.timeout("a") == (rpc, ())
    assert rpc.cancel("a", "late") == (rpc, ())


def test_the_inner_part_of_an_answer_is_taken_without_its_envelope() -> None:
    """A host that has parsed the message hands on the part that matters."""
    inner = {"functionCallId": "a", "value": 1}

    _, settlements = pending_with(handler(), "a").handle_agent_function_response(inner)

    assert settlements == (Resolved("a", 1),)


def test_a_settlement_shares_nothing_with_the_message_it_came_from() -> None:
    """The host may reuse what it has received."""
    message = answer("a", value={"list": [1]})

    _, settlements = pending_with(handler(), "a").handle_agent_function_response(message)
    message["agentFunctionResponse"]["value"]["list"].append(2)

    assert settlements == (Resolved("a", {"list": [1]}),)


@pytest.mark.parametrize(
    "value", [float("nan"), 2**64, "\ud800", {1: "x"}, b"bytes", {1, 2}], ids=repr
)
def test_an_answer_that_json_cannot_hold_rejects_the_call(value: object) -> None:
    """The agent has answered, though nobody can use it; waiting longer would help nobody."""
    rpc, settlements = pending_with(handler(), "a").handle_agent_function_response(
        answer("a", value=value)
    )

    assert rejection(settlements).error.code == UNKNOWN_ERROR
    assert rpc.pending_ids() == ()


def test_an_answer_that_is_too_large_rejects_the_call() -> None:
    """What one session may make a client hold is bounded."""
    rpc = pending_with(Rpc.new([OPS], limits=RpcLimits(max_value_bytes=100)), "a")

    _, settlements = rpc.handle_agent_function_response(answer("a", value="x" * 200))

    assert rejection(settlements).error.code == UNKNOWN_ERROR


@pytest.mark.parametrize(
    "message",
    [
        None,
        7,
        "a",
        [],
        {},
        {"version": "v1.0"},
        {"version": "v1.0", "agentFunctionResponse": None},
        {"version": "v1.0", "agentFunctionResponse": ["a"]},
        {"version": "v1.0", "agentFunctionResponse": {"functionCallId": 7, "value": 1}},
        {"version": "v1.0", "agentFunctionResponse": {"functionCallId": ["a"], "value": 1}},
        {"version": "v1.0", "rendererFunctionResponse": {"functionCallId": "a", "value": 1}},
    ],
    ids=repr,
)
def test_a_malformed_answer_changes_nothing(message: object) -> None:
    """It names no call, so it settles none."""
    rpc = pending_with(handler(), "a")

    assert rpc.handle_agent_function_response(message) == (rpc, ())


@pytest.mark.parametrize("call_id", [None, 7, "", "b", b"a"], ids=repr)
def test_timers_and_cancels_of_nothing_change_nothing(call_id: Any) -> None:
    """A host may report what it no longer has any right to."""
    rpc = pending_with(handler(), "a")

    assert rpc.timeout(call_id) == (rpc, ())
    assert rpc.cancel(call_id, "x") == (rpc, ())
    assert rpc.pending_timeout(call_id) is None
