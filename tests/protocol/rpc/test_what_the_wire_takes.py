"""Whatever a handler says can be sent: the bounds of the RPC are within those of the wire."""

from __future__ import annotations

from typing import Any

import pytest

from genagent_protocol import codec
from genagent_protocol.envelopes import UiMessage
from genagent_protocol.plain import MAX_ITEMS, MAX_KEY_CHARS, FrozenDict, freeze
from genagent_protocol.rpc import (
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    AgentRpc,
    Catalog,
    Function,
    Malformed,
    Message,
    RpcError,
    read_message,
)
from genagent_protocol.rpc.json_values import Unfit, copied
from genagent_protocol.rpc.limits import MAX_ID_CHARACTERS, RpcLimits
from support.rpc_house import handler

TOO_WIDE: dict[str, Any] = {
    "list": [None] * (MAX_ITEMS + 1),
    "object": dict.fromkeys(map(str, range(MAX_ITEMS + 1))),
    "key": {"k" * (MAX_KEY_CHARS + 1): 1},
    "inside": {"a": [[0] * (MAX_ITEMS + 1)]},
}
JUST_FITS: list[Any] = [[None] * MAX_ITEMS, {"k" * MAX_KEY_CHARS: 1}]
WIDE_ID = "\N{SNOWMAN}" * MAX_ID_CHARACTERS


def sent(message: Message) -> UiMessage:
    """Send the message and return what arrives."""
    frozen = freeze(message)
    assert isinstance(frozen, FrozenDict)
    [arrived] = codec.decode(UiMessage, codec.encode(UiMessage(message=frozen)))
    assert isinstance(arrived, UiMessage)
    return arrived


def calling(call_id: str) -> dict[str, Any]:
    body = {"surfaceId": "main", "functionCallId": call_id, "callFunction": {"@call": "give"}}
    return {"version": "v1.0", "callAgentFunction": body}


def answered(value: object, call_id: str = "c") -> dict[str, Any]:
    registry = Catalog(
        catalog_id="urn:agent", functions=(Function.made("give", body=lambda _args, _scope: value),)
    )
    answer = AgentRpc.new().answer_agent_function(calling(call_id), registry)
    body = sent(answer).message["agentFunctionResponse"]
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize("value", TOO_WIDE.values(), ids=TOO_WIDE)
def test_a_value_that_is_too_wide_for_the_wire_is_an_execution_error(value: Any) -> None:
    """JSON could hold it, but a message with it would never leave, and its caller wait."""
    assert answered(value)["error"]["code"] == EXECUTION_ERROR


@pytest.mark.parametrize("value", TOO_WIDE.values(), ids=TOO_WIDE)
def test_arguments_that_are_too_wide_for_the_wire_are_refused(value: Any) -> None:
    """With a code, from either end."""
    call = {"@call": "x", "catalogId": "urn:x", "args": {"value": value}}

    for made in (
        handler().call_agent_function("main", call),
        AgentRpc.new().call_renderer_function(call),
    ):
        assert isinstance(made, RpcError)
        assert made.code == INVALID_FUNCTION_CALL


@pytest.mark.parametrize("value", JUST_FITS, ids=["list", "key"])
def test_what_just_fits_arrives(value: Any) -> None:
    """The bounds are the wire's own, not narrower."""
    got = answered(value)["value"]

    assert len(got) == len(value)


@pytest.mark.parametrize("size", [MAX_ITEMS - 1, MAX_ITEMS, MAX_ITEMS + 1])
@pytest.mark.parametrize("make", [lambda n: [0] * n, lambda n: dict.fromkeys(map(str, range(n)))])
def test_what_is_taken_can_be_frozen(make: Any, size: int) -> None:
    """The two checks may not disagree: what one takes, the other does."""
    copy = copied(make(size), max_bytes=RpcLimits().max_value_bytes)

    assert isinstance(copy, Unfit) == (size > MAX_ITEMS)
    if not isinstance(copy, Unfit):
        freeze(copy.value)


def test_the_longest_id_and_the_largest_value_fit_into_one_message() -> None:
    """An answer repeats the id of its call, however long that is."""
    largest = "x" * (RpcLimits().max_value_bytes - 16)

    body = answered(largest, WIDE_ID)

    assert (body["functionCallId"], body["value"]) == (WIDE_ID, largest)


LONG = "x" * (MAX_ID_CHARACTERS + 1)


@pytest.mark.parametrize(
    ("call", "ids"),
    [
        ({"@call": LONG, "catalogId": "urn:x"}, {}),
        ({"@call": "x", "catalogId": LONG}, {}),
        ({"@call": "x", "catalogId": "urn:x"}, {"surface_id": LONG}),
        ({"@call": "x", "catalogId": "urn:x"}, {"function_call_id": LONG}),
    ],
    ids=["function", "catalog", "surface", "call"],
)
def test_a_name_that_is_too_long_is_refused(call: Any, ids: dict[str, str]) -> None:
    """Without a bound the message might not fit, and the call wait for an answer for ever."""
    for made in (
        AgentRpc.new().call_renderer_function(call, **ids),  # type: ignore[arg-type]
        handler().call_agent_function(**{"surface_id": "main", "call": call, **ids}),
    ):
        assert isinstance(made, RpcError)
        assert made.code == INVALID_FUNCTION_CALL


def test_a_message_with_an_id_that_is_too_long_is_malformed() -> None:
    """It names nothing that an answer could repeat, so whoever answers says `unknown`."""
    read = read_message(calling(LONG), "renderer")

    assert isinstance(read, Malformed)
    assert read.function_call_id is None
    refused = AgentRpc.new().prepare_agent_function(
        calling(LONG), Catalog(catalog_id="urn:agent", functions=())
    )
    assert isinstance(refused, dict)
    assert "unknown" in str(refused)
