"""The strict reader, and that what is written survives every carrier: R102 to R104, R110."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.rpc import (
    AgentRpc,
    Envelope,
    Malformed,
    RpcError,
    malformed_report,
    read_message,
)
from genagent_protocol.rpc.messages import SENDERS, Kind, Sender
from support.rpc_house import OPS_ID, answer, called, handler, renderer_call

RESPONSE = {"functionCallId": "a", "value": 1}
ERROR = {"code": "E", "message": "failed"}
CALL = {"@call": "f", "catalogId": "urn:x", "args": {}}

WELL_FORMED: list[tuple[Sender, str, dict[str, Any]]] = [
    ("agent", "callRendererFunction", {"functionCallId": "a", "callFunction": CALL}),
    (
        "agent",
        "callRendererFunction",
        {"functionCallId": "", "callFunction": {"@call": "f", "catalogId": ""}, "surfaceId": "s"},
    ),
    ("agent", "agentFunctionResponse", RESPONSE),
    ("agent", "agentFunctionResponse", {"functionCallId": "a", "value": None}),
    ("agent", "agentFunctionResponse", {"functionCallId": "a", "error": ERROR}),
    ("agent", "agentFunctionResponse", {"functionCallId": "a", "error": {"message": "failed"}}),
    ("agent", "deleteSurface", {"surfaceId": "s"}),
    (
        "renderer",
        "callAgentFunction",
        {"surfaceId": "s", "functionCallId": "a", "callFunction": {"@call": "f"}},
    ),
    ("renderer", "rendererFunctionResponse", RESPONSE),
    ("renderer", "rendererFunctionResponse", {"functionCallId": "a", "error": ERROR}),
    ("renderer", "error", {**ERROR, "surfaceId": "s"}),
    ("renderer", "error", {**ERROR, "functionCallId": "a", "more": {"is": "allowed"}}),
    (
        "renderer",
        "error",
        {"code": "VALIDATION_FAILED", "message": "m", "surfaceId": "s", "path": "/"},
    ),
    ("renderer", "action", {"name": "submit"}),
]

MALFORMED: list[tuple[Sender, str, Any]] = [
    ("renderer", "rendererFunctionResponse", {"functionCallId": "a"}),
    ("renderer", "rendererFunctionResponse", {**RESPONSE, "error": ERROR}),
    ("renderer", "rendererFunctionResponse", {"value": 1}),
    ("renderer", "rendererFunctionResponse", {**RESPONSE, "more": 1}),
    ("renderer", "rendererFunctionResponse", {"functionCallId": 7, "value": 1}),
    ("renderer", "rendererFunctionResponse", {"functionCallId": "a", "error": {"message": "m"}}),
    ("renderer", "rendererFunctionResponse", {"functionCallId": "a", "error": {**ERROR, "x": 1}}),
    ("renderer", "rendererFunctionResponse", {"functionCallId": "a", "error": None}),
    ("agent", "agentFunctionResponse", {"functionCallId": "a"}),
    ("agent", "agentFunctionResponse", {**RESPONSE, "error": ERROR}),
    ("agent", "agentFunctionResponse", {"functionCallId": "a", "error": {"code": "E"}}),
    ("agent", "agentFunctionResponse", {"functionCallId": "a", "error": {"code": 7}}),
    ("agent", "callRendererFunction", {"functionCallId": "a"}),
    ("agent", "callRendererFunction", {"callFunction": CALL}),
    ("agent", "callRendererFunction", {"functionCallId": "a", "callFunction": {"@call": "f"}}),
    ("agent", "callRendererFunction", {"functionCallId": "a", "callFunction": {**CALL, "x": 1}}),
    (
        "agent",
        "callRendererFunction",
        {"functionCallId": "a", "callFunction": {**CALL, "args": []}},
    ),
    (
        "agent",
        "callRendererFunction",
        {"functionCallId": "a", "callFunction": {**CALL, "@call": ""}},
    ),
    (
        "agent",
        "callRendererFunction",
        {"functionCallId": "a", "callFunction": CALL, "surfaceId": None},
    ),
    ("agent", "callRendererFunction", "f"),
    ("agent", "callAgentFunction", {"surfaceId": "s", "functionCallId": "a", "callFunction": CALL}),
    ("renderer", "callRendererFunction", {"functionCallId": "a", "callFunction": CALL}),
    ("renderer", "callAgentFunction", {"functionCallId": "a", "callFunction": CALL}),
    ("renderer", "callAgentFunction", {"surfaceId": "s", "callFunction": CALL}),
    ("renderer", "error", ERROR),
    ("renderer", "error", {**ERROR, "surfaceId": "s", "functionCallId": "a"}),
    ("renderer", "error", {"code": "E", "functionCallId": "a"}),
    ("renderer", "error", {"message": "m", "functionCallId": "a"}),
    ("renderer", "error", {"code": 7, "message": "m", "functionCallId": "a"}),
    ("renderer", "error", {"code": [], "message": "m", "functionCallId": "a"}),
    ("renderer", "error", {"code": {}, "message": "m", "surfaceId": "s"}),
    ("renderer", "error", {**ERROR, "functionCallId": 7}),
    ("renderer", "error", {"code": "VALIDATION_FAILED", "message": "m", "surfaceId": "s"}),
    ("renderer", "error", {"code": "UNALLOWED_CHILD", "message": "m", "path": "/"}),
    (
        "renderer",
        "error",
        {"code": "UNALLOWED_PARENT", "message": "m", "surfaceId": "s", "path": "/", "x": 1},
    ),
    ("renderer", "updateDataModel", {"surfaceId": "s", "value": 1}),
    ("agent", "functionResponse", RESPONSE),
]


@pytest.mark.parametrize(("sender", "kind", "body"), WELL_FORMED)
def test_a_well_formed_message_is_an_envelope(sender: Sender, kind: str, body: Any) -> None:
    """What the protocol allows, from the side that may say it."""
    read = read_message({"version": "v1.0", kind: body}, sender)

    assert read == Envelope("v1.0", kind, body)  # type: ignore[arg-type]  # kind is one of them


@pytest.mark.parametrize(("sender", "kind", "body"), MALFORMED)
def test_r102_r104_a_malformed_message_is_refused(sender: Sender, kind: str, body: Any) -> None:
    """At the edge it is dropped or reported; nothing behind the edge has to think of it."""
    read = read_message({"version": "v1.0", kind: body}, sender)

    assert isinstance(read, Malformed)
    assert read.problem


@pytest.mark.parametrize(
    "message",
    [
        {"version": "v1.0"},
        {},
        {"version": "v1.0", "agentFunctionResponse": RESPONSE, "deleteSurface": {}},
        {"agentFunctionResponse": RESPONSE},
        {"version": "v0.9", "agentFunctionResponse": RESPONSE},
        {"version": 1.0, "agentFunctionResponse": RESPONSE},
        {"version": ["v1.0"], "agentFunctionResponse": RESPONSE},
        {"version": "v1.0", "agentFunctionResponse": RESPONSE, "more": 1},
        {"version": "v1.0", 7: RESPONSE},
        {"version": "v1.0", "agentFunctionResponse": {"functionCallId": "a", "value": {1}}},
        [{"version": "v1.0", "agentFunctionResponse": RESPONSE}],
        "message",
        None,
    ],
    ids=repr,
)
def test_r103_an_envelope_has_a_version_and_exactly_one_message(message: object) -> None:
    """Two messages in one would have no order, and a message without a version no meaning."""
    assert isinstance(read_message(message, "agent"), Malformed)


#: What stands where a field is expected: every kind of JSON, what is none, and what is too much.
INSTEAD: list[object] = [
    *(None, True, 7, 2**64, 0.5, float("nan")),
    *("", "a", "VALIDATION_FAILED", "\ud800", "x" * 70_000),
    *([], [[]], ["a"], {}, {"a": {}}, {7: 7}, b"a", {1}, object()),
]


def _with_one_thing_else(value: object) -> Iterator[object]:
    """Yield *value* with each of its parts replaced by each thing there may be instead."""
    yield from INSTEAD
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in _with_one_thing_else(inner))
            yield {other: held for other, held in value.items() if other != key}


@pytest.mark.parametrize(("sender", "kind", "body"), WELL_FORMED)
def test_whatever_stands_in_the_place_of_a_field_is_read_or_refused(
    sender: Sender, kind: str, body: Any
) -> None:
    """Whoever reads a message stands between a stranger and a process that must not end."""
    for message in _with_one_thing_else({"version": "v1.0", kind: body}):
        read = read_message(message, sender)

        assert isinstance(read, Envelope | Malformed)
        if isinstance(read, Malformed) and isinstance(message, dict):
            inner = message.get(kind)
            named = inner.get("functionCallId") if isinstance(inner, dict) else None
            assert read.function_call_id in (None, named)


def test_both_spellings_of_the_version_are_read() -> None:
    """The wire is moving from one to the other."""
    for version in ("v1.0", "1.0"):
        read = read_message({"version": version, "agentFunctionResponse": RESPONSE}, "agent")
        assert isinstance(read, Envelope)
        assert read.version == version


def test_a_message_that_contains_itself_is_malformed() -> None:
    """A cycle is endless depth."""
    message: dict[str, Any] = {"version": "v1.0"}
    message["deleteSurface"] = message

    assert isinstance(read_message(message, "agent"), Malformed)


def test_an_envelope_shares_nothing_with_the_message() -> None:
    """Whoever parsed the frame may reuse what it parsed."""
    message: dict[str, Any] = {"version": "v1.0", "action": {"context": {"a": [1]}}}
    read = read_message(message, "renderer")
    assert isinstance(read, Envelope)

    message["action"]["context"]["a"].append(2)

    assert read.body == {"context": {"a": [1]}}


def test_a_malformed_call_can_be_reported_under_its_id() -> None:
    """The agent learns that its call will never be answered."""
    malformed = read_message(
        {"version": "v1.0", "callRendererFunction": {"functionCallId": "c-42"}}, "agent"
    )
    assert isinstance(malformed, Malformed)

    report = malformed_report(malformed)

    assert report == {
        "version": "v1.0",
        "error": {
            "code": "INVALID_FUNCTION_CALL",
            "message": "callRendererFunction: callFunction is missing.",
            "functionCallId": "c-42",
        },
    }
    assert isinstance(read_message(report, "renderer"), Envelope)


def test_a_malformed_message_can_be_reported_under_its_surface_or_not_at_all() -> None:
    """The protocol has no address for a fault that names neither."""
    on_surface = malformed_report(Malformed("bad", surface_id="s"), "1.0")

    assert on_surface is not None
    assert on_surface["version"] == "1.0"
    assert isinstance(read_message(on_surface, "renderer"), Envelope)
    assert malformed_report(Malformed("bad")) is None


JSON_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
JSON = st.recursive(
    JSON_LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(KEYS, JSON, max_size=3)


def _survives(message: Any) -> None:
    packed = msgpack.unpackb(msgpack.packb(message), strict_map_key=True)
    written = json.loads(json.dumps(message, allow_nan=False))
    for carried in (packed, written):
        # Types count: 1, 1.0 and True are equal and not the same.
        assert repr(carried) == repr(message)


@given(args=ARGUMENTS, value=JSON, call_id=KEYS, surface_id=KEYS)
def test_r110_every_message_survives_msgpack_and_json_unchanged(
    args: dict[str, Any], value: Any, call_id: str, surface_id: str
) -> None:
    """The daemon carries msgpack, the field speaks JSON, and a message is one thing."""
    _, to_agent = called(
        handler().call_agent_function(
            surface_id, {"@call": "f", "args": args}, function_call_id=call_id
        )
    )
    outgoing = AgentRpc.new().call_renderer_function(
        {"@call": "f", "catalogId": "urn:x", "args": args}, surface_id, function_call_id=call_id
    )
    assert not isinstance(outgoing, RpcError)
    answered = handler().call_renderer_function(
        renderer_call("echoAny", {"value": {"@@path": value}}, call_id=call_id)
    )

    for message in (to_agent, outgoing[1], answered):
        _survives(message)
    assert isinstance(read_message(to_agent, "renderer"), Envelope)
    assert isinstance(read_message(outgoing[1], "agent"), Envelope)
    assert isinstance(read_message(answered, "renderer"), Envelope)


@given(value=JSON)
def test_a_settled_value_is_the_value_that_was_sent(value: Any) -> None:
    """Nothing is lost between an answer and its settlement."""
    rpc, _ = called(
        handler().call_agent_function(
            "main", {"@call": "f", "catalogId": OPS_ID}, function_call_id="a"
        )
    )

    _, (settlement,) = rpc.handle_agent_function_response(answer("a", value=value))

    assert repr(getattr(settlement, "value", "none")) == repr(value)


ODD = JSON | st.just(float("nan")) | st.binary(max_size=3) | st.just(2**70) | st.just("\ud800")
BODIES = st.dictionaries(KEYS | st.sampled_from(["value", "callFunction", "surfaceId"]), ODD)
MOVING: list[tuple[Sender, Kind]] = [
    (SENDERS[kind], kind)
    for kind in SENDERS
    if kind.endswith(("Function", "FunctionResponse", "error"))
]


@given(st.sampled_from(MOVING), st.data())
def test_the_id_is_found_whatever_is_broken_around_it(
    sent: tuple[Sender, Kind], data: st.DataObject
) -> None:
    """Whoever made the call waits for it; nobody else is told instead."""
    sender, kind = sent
    call_id = data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
    body = {**data.draw(BODIES), "functionCallId": call_id}
    keys = KEYS | st.sampled_from([*SENDERS])
    around = {"version": data.draw(ODD | st.just("v1.0")), **data.draw(st.dictionaries(keys, ODD))}

    read = read_message({**around, kind: body}, sender)

    if isinstance(read, Malformed):
        assert read.function_call_id == call_id
        assert read.calls(kind) == (call_id,)
        other: Sender = "agent" if sender == "renderer" else "renderer"
        elsewhere = read_message({**around, kind: body}, other)
        assert isinstance(elsewhere, Malformed)
        assert elsewhere.calls(kind) == ()
    else:
        assert read.body["functionCallId"] == call_id


def test_each_call_that_a_message_names_is_found_calls_first() -> None:
    """With two message keys it is none; both sides may wait, and may have one id."""
    message = {"version": "v1.0", "error": {"functionCallId": "b"}, "callAgentFunction": {}}
    message["rendererFunctionResponse"] = {"functionCallId": "b"}
    message["callAgentFunction"] = {"functionCallId": "a", "surfaceId": "s"}

    read = read_message(message, "renderer")

    assert isinstance(read, Malformed)
    assert (read.function_call_id, read.surface_id) == ("a", "s")
    assert read.calls("callAgentFunction") == ("a",)
    assert read.calls("rendererFunctionResponse", "error") == ("b", "b")


def test_an_answer_that_cannot_be_read_is_not_reported_as_a_call() -> None:
    """The agent would end a call of its own that has the same id."""
    malformed = read_message(
        {"version": "v1.0", "agentFunctionResponse": {"functionCallId": "call-1"}}, "agent"
    )

    assert isinstance(malformed, Malformed)
    assert malformed_report(malformed) is None
