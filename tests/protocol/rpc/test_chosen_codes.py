"""A function chooses the code it fails with by raising it; anything else it raises has one code."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol import codec
from genagent_protocol.envelopes import UiMessage
from genagent_protocol.errors import FunctionFailed
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.rpc import AgentRpc, Catalog, Function, Prepared, Rpc, RpcError
from genagent_protocol.rpc.execution import in_place_of
from genagent_protocol.rpc.limits import MAX_ERROR_CHARACTERS
from genagent_protocol.rpc.messages import error_message, value_message

CALL = {"@call": "f", "catalogId": "c", "args": {}}
BODY = {"callFunction": CALL}


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


class _Odd(FunctionFailed):
    """Cannot even be asked what it says."""

    def __init__(self) -> None:
        Exception.__init__(self)

    @property
    def code(self) -> str:  # type: ignore[override]  # that is what is odd
        raise SystemExit

    text = code


@pytest.mark.parametrize("answer", [renderer_answer, agent_answer])
@pytest.mark.parametrize(
    "failure",
    [FunctionFailed("C" * 17_000_000, "t" * 17_000_000), _Odd(), FunctionFailed("C", None)],  # type: ignore[arg-type]
    ids=["huge", "odd", "no text"],
)
def test_whatever_a_function_raises_its_answer_can_be_sent(answer: Any, failure: Any) -> None:
    """One that is too large for a message would leave the caller to its timer."""
    told = answer(failure)

    assert 0 < len(told["code"]) <= MAX_ERROR_CHARACTERS
    assert 0 < len(told["message"]) <= MAX_ERROR_CHARACTERS


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RpcError(5, None), "EXECUTION_ERROR"),  # type: ignore[arg-type]
        (RpcError("\ud800", "\ud800"), "EXECUTION_ERROR"),
        (RpcError("C" * 17_000_000, "t"), "C" * MAX_ERROR_CHARACTERS),
        (RpcError("MINE", object()), "MINE"),  # type: ignore[arg-type]
    ],
    ids=["no texts", "surrogates", "huge", "an object"],
)
def test_an_error_that_a_body_returns_is_made_fit_to_be_sent(error: RpcError, code: str) -> None:
    """A body is foreign code, and an error is made without a check."""
    functions = (Function.made("f", lambda _args, _scope: error, allowed_callers="agentOnly"),)
    message = {"version": "v1.0", "callRendererFunction": {"functionCallId": "1", **BODY}}

    answer = Rpc.new([Catalog(catalog_id="c", functions=functions)]).call_renderer_function(message)

    frozen = freeze(answer)
    assert isinstance(frozen, FrozenDict)
    codec.encode(UiMessage(message=frozen))
    told: Any = answer["rendererFunctionResponse"]
    assert told["error"]["code"] == code


def test_an_answer_that_cannot_be_sent_has_another_in_its_place() -> None:
    """With the same id; what is no answer has none."""
    unsent = value_message("agentFunctionResponse", "1.0", "c-1", "x")

    text = "The answer cannot be sent: too large"
    assert in_place_of(unsent, "too large") == error_message(
        "agentFunctionResponse", "1.0", "c-1", "EXECUTION_ERROR", text
    )
    assert in_place_of({"version": "1.0", "error": {}}, "too large") is None
