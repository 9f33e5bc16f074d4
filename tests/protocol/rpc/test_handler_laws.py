"""The laws of a handler under any run of operations, against a plain model: R036.

The model is a dictionary of what is pending. Both ends keep the same table, so
both are put through the same run.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from genagent_protocol.rpc import (
    CANCELLED,
    DISPOSED,
    DUPLICATE,
    INVALID_FUNCTION_CALL,
    AgentRpc,
    Rejected,
    Resolved,
    Rpc,
    RpcError,
    RpcLimits,
    Settlement,
)
from support.rpc_house import OPS

MAX_PENDING = 4
IDS = st.sampled_from(["a", "b", "ab", "A", "call-1", "call-2", "", "ü"])
LIMITS = RpcLimits(max_pending=MAX_PENDING)


class BothEnds:
    """A renderer's and an agent's handler, always doing the same."""

    def __init__(self) -> None:
        self.renderer = Rpc.new([OPS], limits=LIMITS)
        self.agent = AgentRpc.new(limits=LIMITS)

    def call(self, call_id: str | None, name: str, timeout_ms: float | None) -> str | RpcError:
        """Call at both ends; return the id under which it is pending, or the refusal."""
        call = {"@call": name, "catalogId": "urn:x"}
        to_agent = self.renderer.call_agent_function(
            "main", call, function_call_id=call_id, timeout_ms=timeout_ms
        )
        to_renderer = self.agent.call_renderer_function(
            call, function_call_id=call_id, timeout_ms=timeout_ms
        )
        if isinstance(to_agent, RpcError) or isinstance(to_renderer, RpcError):
            assert to_agent == to_renderer
            assert isinstance(to_agent, RpcError)
            return to_agent
        self.renderer, sent = to_agent
        self.agent, also_sent = to_renderer
        made = _id_in(sent)
        assert made == _id_in(also_sent)
        return made

    def answer(self, body: dict[str, Any]) -> tuple[Settlement, ...]:
        """Hand the same answer to both."""
        self.renderer, one = self.renderer.handle_agent_function_response(
            {"agentFunctionResponse": body}
        )
        self.agent, other = self.agent.handle_renderer_function_response(
            {"rendererFunctionResponse": body}
        )
        assert one == other
        return one

    def timeout(self, call_id: str) -> tuple[Settlement, ...]:
        """Report the same timer to both."""
        self.renderer, one = self.renderer.timeout(call_id)
        self.agent, other = self.agent.timeout(call_id)
        assert one == other
        return one

    def cancel(self, call_id: str) -> tuple[Settlement, ...]:
        """Cancel the same call at both."""
        self.renderer, one = self.renderer.cancel(call_id, "no longer wanted")
        self.agent, other = self.agent.cancel(call_id, "no longer wanted")
        assert one == other
        return one

    def dispose(self) -> tuple[Settlement, ...]:
        """Dispose of both."""
        self.renderer, one = self.renderer.dispose("the end")
        self.agent, other = self.agent.dispose("the end")
        assert one == other
        return one


def _id_in(message: Any) -> str:
    (body,) = (value for key, value in message.items() if key != "version")
    made: str = body["functionCallId"]
    return made


class HandlerLaws(RuleBasedStateMachine):
    """Any run of operations, with a dictionary as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = BothEnds()
        self.pending: dict[str, float | None] = {}
        self.disposed = False
        self.registered = 0
        self.settled = 0

    def expect(self, settlements: tuple[Settlement, ...], call_id: str) -> None:
        """A pending call is settled by this, and nothing else is."""
        if call_id not in self.pending:
            assert settlements == ()
            return
        assert [settlement.call_id for settlement in settlements] == [call_id]
        del self.pending[call_id]
        self.settled += 1

    @rule(
        call_id=IDS | st.none(),
        name=st.sampled_from(["f", "", "g"]),
        timeout_ms=st.sampled_from([None, 0, -1, 50]),
    )
    def call(self, call_id: str | None, name: str, timeout_ms: float | None) -> None:
        """A call is registered, or refused and the handler is as it was."""
        before = (self.ends.renderer, self.ends.agent)
        outcome = self.ends.call(call_id, name, timeout_ms)
        if isinstance(outcome, RpcError):
            assert (self.ends.renderer, self.ends.agent) == before
            assert outcome.code == self.refusal_code(call_id, name)
            return
        assert self.refusal_code(call_id, name) is None
        assert outcome not in self.pending
        self.pending[outcome] = 30_000 if timeout_ms is None else timeout_ms or None
        if timeout_ms == -1:
            self.pending[outcome] = None
        self.registered += 1

    def refusal_code(self, call_id: str | None, name: str) -> str | None:
        """Return the code that a call is refused with, by the order of the checks."""
        if self.disposed:
            return DISPOSED
        if not name:
            return INVALID_FUNCTION_CALL
        if call_id in self.pending:
            return DUPLICATE
        return INVALID_FUNCTION_CALL if len(self.pending) == MAX_PENDING else None

    @rule(call_id=IDS, value=st.none() | st.integers(0, 3))
    def answer_with_a_value(self, call_id: str, value: int | None) -> None:
        """The call is resolved with it, if it is pending."""
        settlements = self.ends.answer({"functionCallId": call_id, "value": value})
        assert settlements in ((), (Resolved(call_id, value),))
        self.expect(settlements, call_id)

    @rule(call_id=IDS)
    def answer_with_an_error(self, call_id: str) -> None:
        """The call is rejected with its code, if it is pending."""
        error = {"code": "OWN", "message": "no"}
        settlements = self.ends.answer({"functionCallId": call_id, "error": error})
        assert settlements in ((), (Rejected(call_id, RpcError("OWN", "no", call_id)),))
        self.expect(settlements, call_id)

    @rule(call_id=IDS)
    def report_a_timer(self, call_id: str) -> None:
        """A timer ends the call, if it is pending."""
        self.expect(self.ends.timeout(call_id), call_id)

    @rule(call_id=IDS)
    def cancel(self, call_id: str) -> None:
        """Giving up ends the call, if it is pending."""
        self.expect(self.ends.cancel(call_id), call_id)

    @precondition(lambda self: self.registered > 5)
    @rule()
    def dispose(self) -> None:
        """All that is pending ends, in the order of the ids, and nothing comes after."""
        settlements = self.ends.dispose()
        assert [settlement.call_id for settlement in settlements] == sorted(self.pending)
        for settlement in settlements:
            assert isinstance(settlement, Rejected)
            assert settlement.error.code == CANCELLED
        self.settled += len(settlements)
        self.pending.clear()
        self.disposed = True

    @invariant()
    def what_is_pending_is_what_the_model_says(self) -> None:
        """Settled and pending together are what was registered."""
        for end in (self.ends.renderer, self.ends.agent):
            assert end.pending_ids() == tuple(sorted(self.pending))
            assert {i: end.pending_timeout(i) for i in end.pending_ids()} == self.pending
            assert end.disposed == self.disposed
            assert dict(end.pending) == {i: end.pending[i] for i in self.pending}
        assert self.settled + len(self.pending) == self.registered


TestHandlerLaws = HandlerLaws.TestCase


def test_every_order_of_late_events_settles_a_call_once() -> None:
    """Answer, error, timer, cancel and dispose race; the first one wins, whichever it is."""
    events = {
        "value": lambda ends: ends.answer({"functionCallId": "a", "value": 1}),
        "error": lambda ends: ends.answer({"functionCallId": "a", "error": {"message": "m"}}),
        "timer": lambda ends: ends.timeout("a"),
        "cancel": lambda ends: ends.cancel("a"),
        "dispose": lambda ends: ends.dispose(),
    }
    for order in itertools.permutations(events):
        ends = BothEnds()
        assert ends.call("a", "f", None) == "a"
        counts = [len(events[event](ends)) for event in order]
        assert counts == [1, 0, 0, 0, 0], order


@pytest.mark.parametrize("count", [1, 50])
def test_two_handlers_of_one_history_are_equal_and_hash_alike(count: int) -> None:
    """A handler is a value; who explores its states can recognise one it has seen."""

    def history() -> AgentRpc:
        rpc = AgentRpc.new()
        for number in range(count):
            outcome = rpc.call_renderer_function(
                {"@call": "f", "catalogId": "urn:x", "args": {"n": [number]}}
            )
            assert not isinstance(outcome, RpcError)
            rpc = outcome[0]
        return rpc

    assert history() == history()
    assert hash(history()) == hash(history())
    assert history() != AgentRpc.new()
