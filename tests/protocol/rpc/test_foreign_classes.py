"""What did not come over a wire: texts and objects with classes, and code, of their own."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest

from genagent_protocol.rpc import (
    UNKNOWN_ERROR,
    AgentRpc,
    Envelope,
    Malformed,
    Rejected,
    Rpc,
    RpcError,
    read_message,
)
from support.rpc_house import OPS, OPS_ID, answer, called, handler, renderer_call


class Name(enum.StrEnum):
    """Texts that are more than texts."""

    CALL = "c-1"
    SURFACE = "main"
    FUNCTION = "echoText"
    CATALOG = OPS_ID
    VERSION = "1.0"
    TEXT = "hello"


class Shouting(str):
    """Text that is not what it prints."""

    def __str__(self) -> str:
        return "printed"

    def __len__(self) -> int:
        raise RuntimeError("no length")


class Broken(dict[str, Any]):
    """An object that cannot be read."""

    def _fails(self, *_of: object) -> Any:
        raise RuntimeError("not to be read")

    get = items = keys = values = __iter__ = __getitem__ = __len__ = __contains__ = _fails


class Liar:
    """A thing that does not even say what it is."""

    @property  # type: ignore[misc]  # it is not one that is meant to be used
    def __class__(self) -> type:
        raise RuntimeError("of no class")


def types_in(value: Any) -> set[type]:
    """Return the classes of all that is in a message."""
    found = {type(value)}
    items = [*value, *value.values()] if isinstance(value, dict) else value
    for item in items if isinstance(items, list) else ():
        found |= types_in(item)
    return found


@pytest.mark.parametrize("kind", [lambda text: text, Shouting])
def test_a_message_holds_plain_texts_whatever_they_were_given_as(
    kind: Callable[[Any], Any],
) -> None:
    """A strict writer takes no other, and what is pending must not change its mind."""
    call_id, surface, name = (kind(text) for text in (Name.CALL, Name.SURFACE, Name.FUNCTION))
    call = {"@call": name, "catalogId": kind(Name.CATALOG), "args": {"text": kind(Name.TEXT)}}
    rpc, to_agent = called(
        handler().call_agent_function(surface, call, function_call_id=call_id, version=Name.VERSION)
    )
    made = AgentRpc.new().call_renderer_function(call, surface, function_call_id=call_id)
    assert not isinstance(made, RpcError)
    agent, to_renderer = made
    request = renderer_call(name, {"text": kind(Name.TEXT)}, call_id=call_id, version=Name.VERSION)
    answered = handler().call_renderer_function(request)

    for message in (to_agent, to_renderer, answered):
        assert types_in(message) <= {dict, str}
        assert msgpack.packb(message, strict_types=True)
    for pending in (*rpc.pending.calls, *agent.pending.calls):
        kept = (pending.function_call_id, pending.surface_id, pending.name)
        assert kept == ("c-1", "main", "echoText")
        assert {*map(type, kept)} == {str}
    assert answered["rendererFunctionResponse"] == {
        "functionCallId": "c-1",
        "value": {"text": "hello"},
    }


def _with_each_part_replaced(message: Any, other: Any) -> Iterator[Any]:
    """Yield *message* with each of its parts, and all of it, replaced by *other* or made so."""
    yield other(message)
    if isinstance(message, dict):
        for key, inner in message.items():
            for changed in _with_each_part_replaced(inner, other):
                yield {**message, key: changed}


STRANGE = [
    lambda part: Broken(part) if isinstance(part, dict) else Broken(),
    lambda part: Shouting(part) if isinstance(part, str) else Shouting("a"),
    lambda _part: Liar(),
]


@pytest.mark.parametrize("other", STRANGE, ids=["broken", "shouting", "liar"])
def test_whatever_a_message_is_made_of_is_answered_or_settled(other: Any) -> None:
    """A refusal is a value, and never an exception."""
    rpc, _ = called(handler().call_agent_function("main", {"@call": "f"}, function_call_id="a"))
    agent_of = AgentRpc.new().call_renderer_function(
        {"@call": "f", "catalogId": "urn:x"}, function_call_id="a"
    )
    assert not isinstance(agent_of, RpcError)
    agent, _ = agent_of
    call = renderer_call("echoText", {"text": "x"})
    asked = {"version": "v1.0", "callAgentFunction": call["callRendererFunction"]}
    error = {"code": "E", "message": "m", "functionCallId": "a"}
    answers: list[tuple[Any, Any]] = [
        (rpc.handle_agent_function_response, answer("a", value={"x": ["y"]})),
        (rpc.handle_agent_function_response, answer("a", error={"code": "E", "message": "m"})),
        (agent.handle_renderer_function_response, {"rendererFunctionResponse": error}),
        (agent.handle_error, {"version": "v1.0", "error": error}),
    ]

    for message in _with_each_part_replaced(call, other):
        assert "rendererFunctionResponse" in Rpc.new([OPS]).call_renderer_function(message)
        assert isinstance(read_message(message, "agent"), Envelope | Malformed)
    for message in _with_each_part_replaced(asked, other):
        assert "agentFunctionResponse" in AgentRpc.new().answer_agent_function(message, OPS)
    for handle, given in answers:
        for message in _with_each_part_replaced(given, other):
            _, settled = handle(message)
            assert len(settled) <= 1


def test_an_answer_whose_own_code_fails_ends_its_call() -> None:
    """Whoever waits for it would wait for ever."""
    rpc, _ = called(handler().call_agent_function("main", {"@call": "f"}, function_call_id="a"))

    _, [settlement] = rpc.handle_agent_function_response(answer("a", value=Broken(x=1)))

    assert isinstance(settlement, Rejected)
    assert settlement.error.code == UNKNOWN_ERROR
