"""The published conformance cases and schemas: R101 and R109 as far as the data is not ours."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    INVALID_FUNCTION_CALL,
    AgentRpc,
    Body,
    Catalog,
    DataContext,
    Envelope,
    ExpressionFault,
    Function,
    Malformed,
    Rejected,
    Resolved,
    Rpc,
    RpcError,
    Surface,
    basic_bodies,
    read_message,
    resolver_for,
)
from genagent_protocol.rpc.messages import SENDERS, Sender
from genagent_protocol.rpc.paths import joined
from genagent_protocol.rpc.templates import template_parts
from support.rpc_data import BASIC_CATALOG, own, published, published_cases
from support.rpc_house import (
    BASIC,
    OPS,
    called,
    catalog_of,
    code_of,
    constant,
    error_of,
    form,
    handler,
    loaded,
    raising,
    renderer_call,
    response_of,
    value_of,
)

BODIES: dict[str, Body] = {
    "playMedia": constant({"playing": True, "timestamp": 0}),
    "openExternalUrl": constant({"opened": True}),
    "calculateTax": lambda args, _scope: args["amount"] * 0.1,  # type: ignore[operator]  # a number
    "failingFunction": raising(RuntimeError("An error occurred during function execution.")),
}
OTHER_ID = "urn:other"


def conformance(suite: str) -> list[Any]:
    """Return the cases of a suite."""
    return published_cases(f"conformance/{suite}.yaml")


def rpc_catalog(args: dict[str, Any], expected_text: str) -> Catalog:
    """Return the catalog that a case of the RPC suite describes."""
    call = args["message"].get("callRendererFunction", {}).get("callFunction", {})
    catalog_id = args.get("catalogId", call.get("catalogId", OTHER_ID))
    functions = [
        Function.made(
            name,
            BODIES.get(name, constant(None)),
            arguments=described.get("parameters"),
            allowed_callers=described.get("allowedCallers", "rendererOnly"),
            requires_user_activation=described.get("requiresUserActivation", False),
        )
        for name, described in args.get("functionMetadata", {}).items()
    ]
    return catalog_of(
        *functions,
        catalog_id=OTHER_ID if "Catalog not found" in expected_text else catalog_id,
        version=args.get("catalogVersion", "v1.0").removeprefix("v"),
    )


@pytest.mark.parametrize("case", conformance("rpc_functions"))
def test_conformance_of_the_rpc(case: dict[str, Any]) -> None:
    """Upstream's own cases of the handler."""
    if "outboundCall" in case["args"]:
        check_outbound(case)
    else:
        check_inbound(case)


def check_inbound(case: dict[str, Any]) -> None:
    """Hand a message to the reader, and to the handler if it is a call."""
    args, expected = case["args"], case["expect"]
    (kind,) = args["message"].keys() - {"version"}
    read = read_message(args["message"], SENDERS[kind])
    if "error" in expected:
        assert isinstance(read, Malformed)
        assert expected["error"]["message"] in read.problem
        return
    assert isinstance(read, Envelope)
    if expected["response"] is None:
        rpc = handler()
        assert rpc.handle_agent_function_response(args["message"]) == (rpc, ())
        return
    check_response(args, expected["response"])


def check_response(args: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare the handler's answer with the one expected."""
    body = expected["rendererFunctionResponse"]
    rpc = Rpc.new([rpc_catalog(args, body.get("error", {}).get("message", ""))])
    answer = rpc.call_renderer_function(
        args["message"], user_activated=args.get("userActivationPresent", False)
    )
    assert answer["version"] == expected["version"]
    assert response_of(answer)["functionCallId"] == body["functionCallId"]
    if "error" in body:
        code, text = error_of(answer)
        assert code == body["error"]["code"]
        assert body["error"].get("message", "") in text
    else:
        assert value_of(answer) == body["value"]


def check_outbound(case: dict[str, Any]) -> None:
    """Start a call of the agent and feed what the case says happens."""
    args = case["args"]
    outbound = args["outboundCall"]
    call_id = outbound["functionCallId"]
    outcome = handler().call_agent_function(
        outbound["surfaceId"],
        outbound["callFunction"],
        function_call_id=call_id,
        timeout_ms=outbound.get("timeoutMs"),
    )
    rpc, message = called(outcome)
    assert message["callAgentFunction"]["callFunction"] == outbound["callFunction"]
    if "secondOutboundCall" in args:
        second = args["secondOutboundCall"]
        refused = rpc.call_agent_function(
            second["surfaceId"],
            second["callFunction"],
            function_call_id=second["functionCallId"],
        )
        assert isinstance(refused, RpcError)
        assert refused.code == case["expectError"]["code"]
    elif "inboundResponse" in args:
        _, settlements = rpc.handle_agent_function_response(args["inboundResponse"])
        assert case["expect"]["correlatedCallId"] == call_id
        assert settlements == (Resolved(call_id, case["expect"]["result"]),)
    else:
        _, (settlement,) = rpc.timeout(call_id)
        assert isinstance(settlement, Rejected)
        assert settlement.error.code == case["expectError"]["code"]


def without_return_types(part: Any) -> Any:
    """Return an expected part of a template as our reader writes it."""
    if not isinstance(part, dict):
        return part
    if "path" in part:
        return {"@path": part["path"]}
    args = {name: without_return_types(value) for name, value in part["args"].items()}
    return {"@call": part["call"], "args": args}


def joined_texts(parts: list[Any]) -> list[Any]:
    """Return parts with neighbouring texts joined and empty ones dropped."""
    texts: list[Any] = []
    for part in parts:
        if texts and isinstance(part, str) and isinstance(texts[-1], str):
            texts[-1] += part
        elif part != "":
            texts.append(part)
    return texts


@pytest.mark.parametrize("case", conformance("expressions"))
def test_conformance_of_templates(case: dict[str, Any]) -> None:
    """Every engine reads a template the same way."""
    if "expect_error" in case:
        with pytest.raises(ExpressionFault) as caught:
            template_parts(case["input"])
        assert re.search(case["expect_error"]["message"], str(caught.value))
    else:
        expected = [without_return_types(part) for part in case["expect"]]
        assert joined_texts(template_parts(case["input"])) == joined_texts(expected)


def catalogs_of(case: dict[str, Any]) -> tuple[Catalog, ...]:
    """Return the catalogs of this protocol version that a case makes available."""
    available: list[Catalog] = []
    for path in case.get("catalogPaths", []):
        if path == "catalogs/basic/v1/catalog.json":
            available.append(loaded(published(BASIC_CATALOG), basic_bodies()))
        elif path.startswith("conformance/test_data"):
            name = path.rsplit("/", 1)[1]
            body: Body = lambda args, _scope: f"{args['value'] * 100:.0f}%"  # type: ignore[operator]  # noqa: E731  # a number
            available.append(loaded(published(f"v1_0/catalogs/test/{name}"), {"percent": body}))
        else:
            available.append(
                Catalog(
                    catalog_id="https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json",
                    functions=(),
                    protocol_version="0.9",
                )
            )
    return tuple(available)


@pytest.mark.parametrize("case", conformance("functions"))
def test_conformance_of_the_basic_functions(case: dict[str, Any]) -> None:
    """Each function on resolved arguments, and which catalog a call is looked up in."""
    if "surface" in case:
        check_routing(case)
    else:
        check_function(case)


def check_routing(case: dict[str, Any]) -> None:
    """Evaluate a call on a surface."""
    catalogs = catalogs_of(case)
    resolver = resolver_for(
        DataContext(
            surface=Surface(
                surface_id="s",
                catalogs=catalogs,
                default_catalog_id=case["surface"].get("catalogId"),
            )
        )
    )
    call = {"@call": case["function"], "args": case["args"]}
    if "catalogId" in case:
        call["catalogId"] = case["catalogId"]
    if "expectError" in case:
        with pytest.raises(ExpressionFault) as caught:
            resolver.resolve(call)
        assert case["expectError"].get("message", "") in str(caught.value)
    else:
        assert resolver.resolve(call) == case["expect"]


def check_function(case: dict[str, Any]) -> None:
    """Run a function on resolved arguments."""
    function = BASIC.function(case["function"])
    assert function is not None
    assert function.body is not None
    if case.get("protocolVersion") == "v0.9" and case["function"] in ("and", "or", "not"):
        pytest.skip("validation results are plain objects in v0.9, which is not spoken here")
    resolver = resolver_for(form())
    if "expectError" in case:
        with pytest.raises(ExpressionFault):
            function.body(case["args"], resolver)
        return
    result = function.body(case["args"], resolver)
    if case.get("protocolVersion", "v0.9") == "v0.9" and isinstance(case["expect"], bool):
        # Upstream reads these cases in v0.9, where a check answers with a boolean.
        result = result["valid"] if isinstance(result, dict) else result
    assert result == case["expect"]


@pytest.mark.parametrize("case", conformance("data_context"))
def test_conformance_of_paths(case: dict[str, Any]) -> None:
    """Relative paths start from the context."""
    args = case["args"]

    assert joined(args.get("contextPath", "/"), args["path"]) == case["expect"]


@pytest.mark.parametrize("case", conformance("reserved_keys"))
def test_conformance_of_reserved_keys(case: dict[str, Any]) -> None:
    """Which keys mean something, which stand for data, and which are a fault."""
    resolver = resolver_for(form().nested("/items/0", index=0))

    if "expectError" in case:
        with pytest.raises(ExpressionFault):
            resolver.resolve(case["value"])
    else:
        resolved = resolver.resolve(case["value"])
        assert case["expectValid"]
        assert case.get("expectResolved", resolved) == resolved


@pytest.mark.parametrize("case", conformance("nested_call_catalogs"))
def test_conformance_of_nested_calls(case: dict[str, Any]) -> None:
    """The catalog of a call inside of a surface."""
    custom = [
        catalog_of(
            *(Function.made(name, constant("ran")) for name in described["functions"]),
            catalog_id=described["catalogId"],
        )
        for described in case["catalogs"]
        if isinstance(described, dict)
    ]
    surface = Surface(
        surface_id="s",
        catalogs=(BASIC, *custom),
        default_catalog_id=case["surface"].get("catalogId"),
    )
    resolver = resolver_for(DataContext(surface=surface))

    if "expectError" in case:
        with pytest.raises(ExpressionFault) as caught:
            resolver.resolve(case["call"])
        assert case["expectError"]["message"] in str(caught.value)
    else:
        resolver.resolve(case["call"])


@pytest.mark.parametrize("case", conformance("common_types"))
def test_conformance_of_responses(case: dict[str, Any]) -> None:
    """Only FunctionResponse is a message; the other definitions belong to schemas."""
    if case["definition"] != "FunctionResponse":
        validator = schema_validator("common_types.json", f"#/$defs/{case['definition']}")
        for step in case["steps"]:
            assert validator.is_valid(step["value"]) == ("expectError" not in step)
        return
    for step in case["steps"]:
        message = {"version": "v1.0", "rendererFunctionResponse": step["value"]}
        assert isinstance(read_message(message, "renderer"), Envelope) == (
            "expectError" not in step
        )


IDENTIFIER_PATTERN = "^[\\p{XID_Start}_][\\p{XID_Continue}]*$"


def schema_validator(name: str, pointer: str = "", catalog: object = None) -> Any:
    """Return a validator of a published schema, over this catalog document."""
    base = "https://a2ui.org/specification/v1_0/"
    common = published("v1_0/common_types.json")
    # Python's patterns know no properties; the names are ASCII in every case.
    patterns = common["$defs"]["Extensions"]["patternProperties"]
    patterns["^[A-Za-z_][A-Za-z0-9_]*$"] = patterns.pop(IDENTIFIER_PATTERN, {})
    documents = {
        f"{base}common_types.json": common,
        f"{base}catalog.json": {
            key: value
            for key, value in (catalog or {"$defs": {"anyFunction": True}}).items()  # type: ignore[attr-defined]  # a document
            if key != "$id"
        },
    }
    if name not in ("common_types.json", "catalog.json"):
        documents[f"{base}{name}"] = published(f"v1_0/{name}")
    resources = [(uri, DRAFT202012.create_resource(item)) for uri, item in documents.items()]
    return Draft202012Validator(
        {"$ref": f"{base}{name}{pointer}"}, registry=Registry().with_resources(resources)
    )


WIRE_FILES = (
    "call_agent_function_message",
    "call_function_message",
    "function_response",
    "renderer_messages",
)


def wire_cases() -> list[Any]:
    """Return the published cases of messages, each with its schema and its catalog."""
    found: list[Any] = []
    for name in WIRE_FILES:
        for param in published_cases(f"v1_0/cases/{name}.json"):
            if param.values[0] is None:
                found.append(pytest.param(None, None, None, marks=param.marks))
                continue
            suite = published(f"v1_0/cases/{name}.json")
            catalog = suite.get("catalog")
            found.append(pytest.param(suite["schema"], catalog, param.values[0], id=str(param.id)))
    return found


@pytest.mark.parametrize(("schema", "catalog", "case"), wire_cases())
def test_the_reader_agrees_with_the_published_cases(
    schema: str, catalog: str | None, case: dict[str, Any]
) -> None:
    """What the schema refuses of an envelope, the reader refuses.

    One case is refused by the catalog and not by the envelope: there the
    handler refuses it. Metadata of an action is not read here at all.
    """
    document = published(f"v1_0/catalogs/test/{catalog}") if catalog else None
    assert schema_validator(schema, catalog=document).is_valid(case["data"]) == case["valid"]
    if "metadata" in case["data"].get("action", {}):
        return
    sender: Sender = "renderer" if schema.startswith("renderer") else "agent"
    read = read_message(case["data"], sender)
    if isinstance(read, Envelope) and not case["valid"]:
        answer = Rpc.new([loaded(document)]).call_renderer_function(case["data"])
        assert code_of(answer) == INVALID_FUNCTION_CALL
    else:
        assert isinstance(read, Envelope) == case["valid"]


@pytest.mark.parametrize(
    "message",
    [
        renderer_call("echoAny", {"value": {"a": [1, None, 2.5]}}),
        renderer_call("ping", call_id=""),
        renderer_call("nope"),
        renderer_call("fail", {}),
        renderer_call("echoText", {"text": 1}),
        {},
    ],
    ids=["value", "null", "unknown", "failure", "bad arguments", "malformed"],
)
def test_r101_every_answer_validates_against_the_published_schema(message: dict[str, Any]) -> None:
    """The agent on the other side may check it."""
    answer = handler().call_renderer_function(message)

    schema_validator("renderer_to_agent.json").validate(answer)


def test_every_message_made_here_validates_against_the_published_schemas() -> None:
    """Calls and answers in both directions.

    The function called takes arguments: a call always says `args`, also for a
    function that declares none, where the published schema wants the key away.
    """
    ops = own("ops_catalog_v1_0.json")
    agent = AgentRpc.new()
    from_renderer = schema_validator("renderer_to_agent.json", catalog=ops)
    from_agent = schema_validator("agent_to_renderer.json", catalog=ops)
    call = {"@call": "echoText", "catalogId": OPS.catalog_id, "args": {"text": "hi"}}

    _, to_agent = called(handler().call_agent_function("s", call))
    outgoing = agent.call_renderer_function(call, "form")
    assert not isinstance(outgoing, RpcError)
    from_renderer.validate(to_agent)
    from_agent.validate(outgoing[1])
    from_renderer.validate(handler().call_renderer_function(outgoing[1], context=form()))
    for answer in (to_agent, {}, {"version": "v1.0", "callAgentFunction": {}}):
        from_agent.validate(agent.answer_agent_function(answer, OPS))


def test_the_published_catalogs_load_and_ours_is_one() -> None:
    """What the definition of catalogs allows is taken, our own document included."""
    definition = schema_validator("catalog_definition.json")
    names = ("basic/catalog", "test/custom_catalog_v1_0", "test/testing_catalog")
    documents = [published(f"v1_0/catalogs/{name}.json") for name in names]

    for document in [*documents, own("ops_catalog_v1_0.json")]:
        definition.validate(document)
        assert loaded(document).catalog_id == document["catalogId"]
    assert documents[0]["catalogId"] == BASIC_CATALOG_ID
