"""A function chooses the code it fails with by raising it; anything else it raises has one code."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol.errors import FunctionFailed
from genagent_protocol.rpc import AgentRpc, Catalog, Function, Prepared, Rpc

CALL = {"@call": "f", "catalogId": "c", "args": {}}


def raising(error: BaseException) -> Catalog:
    def body(_arguments: object, _scope: object) -> object:
        raise error

    return Catalog(
        catalog_id="c",
        functions=(Function.made("f", body, allowed_callers="rendererOrAgent"),),
    )


def renderer_answer(error: BaseException) -> Any:
    body = {"functionCallId": "1", "callFunction": CALL}
    answer: Any = Rpc.new([raising(error)]).call_renderer_function(
        {"version": "v1.0", "callRendererFunction": body}
    )
    return answer["rendererFunctionResponse"]["error"]


def agent_answer(error: BaseException) -> Any:
    body = {"surfaceId": "s", "functionCallId": "1", "callFunction": CALL}
    rpc = AgentRpc.new()
    prepared = rpc.prepare_agent_function(
        {"version": "v1.0", "callAgentFunction": body}, raising(error)
    )
    assert isinstance(prepared, Prepared)
    answer: Any = rpc.finish_agent_function(prepared, error)
    return answer["agentFunctionResponse"]["error"]


@pytest.mark.parametrize("answer", [renderer_answer, agent_answer])
def test_the_code_that_is_raised_is_the_code_of_the_answer(answer: Any) -> None:
    """Callers branch on it, at either end."""
    told = answer(FunctionFailed("BUILD_UNKNOWN", "no build of 9f2c"))

    assert told == {"code": "BUILD_UNKNOWN", "message": "no build of 9f2c"}


@pytest.mark.parametrize("answer", [renderer_answer, agent_answer])
@pytest.mark.parametrize("code", ["", "\ud800", 7, None])
def test_a_code_that_cannot_be_sent_is_an_execution_error(answer: Any, code: Any) -> None:
    """An answer that could not be sent would leave its caller waiting."""
    assert answer(FunctionFailed(code, "why")) == {"code": "EXECUTION_ERROR", "message": "why"}


@pytest.mark.parametrize("answer", [renderer_answer, agent_answer])
def test_a_text_that_cannot_be_sent_is_spelled_out(answer: Any) -> None:
    """As with every other exception."""
    assert answer(FunctionFailed("MINE", "\ud800"))["message"] == "\\ud800"
