"""Arguments that fit or do not, and functions that do what they do: R092 to R101."""

from __future__ import annotations

import asyncio
import enum
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from genagent_protocol.rpc import (
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    Catalog,
    CatalogFault,
    Function,
    Rpc,
    RpcError,
    RpcLimits,
    Scope,
    load_catalog,
    schemas,
)
from genagent_protocol.rpc.allowance import Allowance
from support.rpc_house import (
    OPS,
    catalog_of,
    code_of,
    constant,
    echo,
    error_of,
    form,
    handler,
    path,
    raising,
    recording,
    renderer_call,
    value_of,
)


class Colour(enum.StrEnum):
    """A text that is more than a text."""

    RED = "red"


class Size(enum.IntEnum):
    """A number that is more than a number."""

    LARGE = 3


class Interrupting(Exception):
    """An exception whose text is interrupted by the person at the terminal."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Unprintable(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("no text")


def run(body: Any) -> dict[str, Any]:
    """Return the answer to a call of a function with this body."""
    catalog = catalog_of(Function.made("f", body, allowed_callers="agentOnly"))
    return handler(catalog).call_renderer_function(renderer_call("f", {}, catalog_id="urn:test"))


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("echoText", {}, "text"),
        ("echoText", {"text": "a", "zz": 1}, "zz"),
        ("double", {"amount": True}, "number"),
        ("double", {"amount": "2"}, "number"),
        ("double", {"amount": None}, "number"),
        ("setFlag", {"on": 1}, "boolean"),
        ("tagged", {"tags": ["a", 1]}, "tags/1"),
        ("literalCount", {"count": 0}, "minimum"),
        ("literalCount", {"count": 1.5}, "integer"),
        ("echoDynamic", {"value": None}, "value"),
        ("ping", {"x": 1}, "x"),
    ],
)
def test_r092_r093_r094_arguments_that_do_not_fit_are_refused(
    name: str, args: dict[str, Any], said: str
) -> None:
    """The text names the function and what is wrong, so that the agent can do it right."""
    code, text = error_of(handler().call_renderer_function(renderer_call(name, args)))

    assert code == INVALID_FUNCTION_CALL
    assert text.startswith(f"Invalid arguments for function '{name}': ")
    assert said in text


#: What `model_json_schema()` gives for an order of items, an item being of items again.
ORDER: dict[str, Any] = {
    "$defs": {
        "Item": {
            "properties": {
                "name": {"title": "Name", "type": "string"},
                "parts": {"default": [], "items": {"$ref": "#/$defs/Item"}, "type": "array"},
            },
            "required": ["name"],
            "title": "Item",
            "type": "object",
        }
    },
    "properties": {
        "first": {"$ref": "#/$defs/Item"},
        "others": {"items": {"$ref": "#/properties/first"}, "type": "array"},
    },
    "required": ["first"],
    "title": "Order",
    "type": "object",
}


def taking(schema: dict[str, Any], args: object) -> dict[str, Any]:
    """Return the answer of a function that is made with this schema of its arguments."""
    function = Function.made("f", echo, allowed_callers="agentOnly", arguments=schema)
    message = renderer_call("f", args, catalog_id="urn:test")
    return handler(catalog_of(function)).call_renderer_function(message)


@pytest.mark.parametrize("definitions", ["$defs", "definitions"])
def test_a_schema_may_refer_to_its_own_parts(definitions: str) -> None:
    """What describes a class with another inside does so; the root is that of the schema."""
    schema = json.loads(json.dumps(ORDER).replace("$defs", definitions))
    nested = {"name": "a", "parts": [{"name": "b", "parts": []}]}

    taken = taking(schema, {"first": nested, "others": [nested]})
    refused = taking(schema, {"first": {"name": "a", "parts": [{"name": 7}]}})

    assert value_of(taken) == {"first": nested, "others": [nested]}
    assert "first/parts/0/name: wanted is string" in error_of(refused)[1]


def test_a_list_that_is_wrong_in_every_item_is_looked_at_in_part() -> None:
    """An error takes kilobytes, and a message holds a million items."""
    schema = schemas.compiled({"properties": {"x": {"items": {"type": "string"}}}})
    assert isinstance(schema, schemas.ArgumentSchema)
    limits = RpcLimits()
    alone, many = Allowance(limits), Allowance(limits)
    schema.resolved_problem({"x": [1] * 1_000}, alone)

    problem = schema.resolved_problem({"x": [1] * 100_000}, many)

    assert problem == "x/0: wanted is string; x/1: wanted is string; x/2: wanted is string"
    assert many.steps_left == alone.steps_left


@pytest.mark.parametrize("name", ["default", "examples", "enum", "const", "properties"])
def test_an_argument_may_be_named_like_a_keyword(name: str) -> None:
    """A name is no keyword: what it stands for is a schema like that of any other argument."""
    wrong: list[dict[str, Any]] = [
        {"$ref": "#/nowhere"},
        {"$dynamicRef": "#x"},
        {"$id": "https://example.org/x"},
        {"pattern": "("},
    ]
    for keyword in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
        for schema in wrong:
            with pytest.raises(ValueError, match=r"nowhere|not allowed|cannot be read"):
                Function.made("f", arguments={keyword: {name: schema}})

    schema = {"properties": {name: {"const": False}}, "required": [name]}
    assert value_of(taking(schema, {name: False})) == {name: False}
    assert code_of(taking(schema, {name: True})) == INVALID_FUNCTION_CALL
    named = {"properties": {name: {"type": "integer"}, "x": {"$ref": f"#/properties/{name}"}}}
    assert value_of(taking(named, {name: 1, "x": 2})) == {name: 1, "x": 2}
    assert code_of(taking(named, {"x": "2"})) == INVALID_FUNCTION_CALL


@pytest.mark.parametrize("name", ["default", "examples", "enum", "const", "properties"])
def test_a_function_of_a_document_may_be_named_like_a_keyword(name: str) -> None:
    """Its schema is looked at like that of any other function."""
    for args, wanted in (({"$ref": "#/nowhere"}, CatalogFault), ({"type": "object"}, Catalog)):
        properties = {"@call": {"const": name}, "args": args}
        function = {"type": "object", "returnType": "any", "properties": properties}
        document = {"catalogId": "urn:x", "functions": {name: {**function, "required": ["@call"]}}}
        assert isinstance(load_catalog(document), wanted)


QUOTED = {"$ref": "#/nowhere", "$id": "x", "pattern": "("}


@pytest.mark.parametrize("keyword", ["default", "const"])
def test_what_a_schema_quotes_is_data_and_no_schema(keyword: str) -> None:
    """It may look like anything, and no reference may lead into it."""
    value_of(taking({"properties": {"x": {keyword: QUOTED}}}, {"x": QUOTED}))

    inside = {"properties": {"x": {keyword: {"a": {"type": 7}}}, "y": {"$ref": "#/PLACE"}}}
    there = json.loads(json.dumps(inside).replace("PLACE", f"properties/x/{keyword}/a"))
    with pytest.raises(ValueError, match="leads to what is no schema"):
        Function.made("f", arguments=there)


@pytest.mark.parametrize("dialect", ["http://json-schema.org/draft-07/schema#", "urn:any"])
def test_a_schema_is_read_alike_whatever_version_it_names(dialect: str) -> None:
    """Another version has other keywords, and those of the library count no work."""
    item = {"$schema": dialect, "type": "array", "prefixItems": [{"type": "integer"}]}
    schema = {"$schema": dialect, "properties": {"x": item}}

    assert value_of(taking(schema, {"x": [1, "a"]}))
    assert code_of(taking(schema, {"x": ["a"]})) == INVALID_FUNCTION_CALL


def test_an_argument_that_a_schema_forbids_is_named() -> None:
    """It was never a binding or a call."""
    refused = taking({"properties": {"old": False, "new": {}}}, {"old": 1, "new": 2})

    assert error_of(refused)[1] == "Invalid arguments for function 'f': old: not allowed."


@pytest.mark.parametrize("kind", ["DataBinding", "FunctionCall"])
def test_an_argument_that_had_to_be_an_expression_is_told_so(kind: str) -> None:
    """What it was resolved to does not match any more, whatever that is."""
    schema = {"properties": {"x": {"$ref": f"common_types.json#/$defs/{kind}"}}}

    assert "x: a binding or a call is wanted here" in error_of(taking(schema, {"x": 1}))[1]


def test_a_refusal_does_not_quote_the_value() -> None:
    """It may be long, and it may be a person's data on its way into someone's log."""
    message = renderer_call("double", {"amount": path("/secret")}, surface_id="form")

    _, text = error_of(handler().call_renderer_function(message, context=form(secret="hunter2")))

    assert "hunter2" not in text
    assert len(text) < 300


@pytest.mark.parametrize("name", ["a-b", "@if", "@@x", "a b", "1a"])
def test_an_argument_name_that_is_no_identifier_is_refused(name: str) -> None:
    """Also where a function takes whatever it is given."""
    function, seen = recording("open")
    rpc = handler(catalog_of(function))

    answer = rpc.call_renderer_function(renderer_call("open", {name: 1}, catalog_id="urn:test"))

    assert code_of(answer) == INVALID_FUNCTION_CALL
    assert seen == []


def test_r095_no_arguments_are_the_same_as_an_empty_object() -> None:
    """A function without parameters is called both ways."""
    assert value_of(handler().call_renderer_function(renderer_call("ping"))) is None
    assert value_of(handler().call_renderer_function(renderer_call("ping", {}))) is None


@pytest.mark.parametrize("args", [["a"], "a", 7, True], ids=repr)
def test_r096_arguments_that_are_no_object_are_refused(args: object) -> None:
    """Arguments are named; there is no order in which they could be meant."""
    answer = handler().call_renderer_function(renderer_call("echoText", args))

    assert code_of(answer) == INVALID_FUNCTION_CALL


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), INVALID_FUNCTION_CALL),
        (float("inf"), INVALID_FUNCTION_CALL),
        (2**64, INVALID_FUNCTION_CALL),
        (-(2**63) - 1, INVALID_FUNCTION_CALL),
        (10**5_000, INVALID_FUNCTION_CALL),
        ("\ud800", INVALID_FUNCTION_CALL),
        ({"\udfff": 1}, INVALID_FUNCTION_CALL),
        ({7: "x"}, INVALID_FUNCTION_CALL),
        (b"bytes", INVALID_FUNCTION_CALL),
        ({1, 2}, INVALID_FUNCTION_CALL),
        ("x" * 1_048_577, INVALID_FUNCTION_CALL),
    ],
    ids=[
        "nan",
        "infinity",
        "too large",
        "too small",
        "huge",
        "surrogate",
        "surrogate key",
        "number key",
        "bytes",
        "set",
        "too long",
    ],
)
def test_arguments_that_cannot_have_come_over_the_wire_are_refused(
    value: object, code: str
) -> None:
    """A handler is handed what a host parsed, and a host may have parsed it carelessly."""
    answer = handler().call_renderer_function(renderer_call("echoAny", {"value": value}))

    assert code_of(answer) == code


def test_a_list_that_contains_itself_is_an_execution_error() -> None:
    """A cycle is endless depth, and depth past the limit is the expression's fault."""
    cycle: list[Any] = []
    cycle.append(cycle)

    answer = handler().call_renderer_function(renderer_call("echoAny", {"value": cycle}))

    assert code_of(answer) == EXECUTION_ERROR


def test_a_list_that_contains_itself_many_times_is_refused_at_once() -> None:
    """Its copies would fill the memory long before its depth runs out."""
    wide: list[Any] = []
    wide.extend([wide] * 100)

    answer = handler().call_renderer_function(renderer_call("echoAny", {"value": wide}))

    assert code_of(answer) in (EXECUTION_ERROR, INVALID_FUNCTION_CALL)


def test_arguments_are_measured_to_the_byte() -> None:
    """The bound is the length of their msgpack encoding, heads of long lists included."""
    # {"l": [16 small numbers]}: 1 for the object, 2 for the key, 3 for the list's head, 16.
    message = renderer_call("open", {"l": [0] * 16}, catalog_id="urn:test")

    for max_bytes, fits in ((22, True), (21, False)):
        function, seen = recording("open")
        rpc = Rpc.new([catalog_of(function)], limits=RpcLimits(max_argument_bytes=max_bytes))
        assert ("value" in rpc.call_renderer_function(message)["rendererFunctionResponse"]) == fits  # type: ignore[operator]  # an object
        assert len(seen) == fits


def test_a_thousand_and_one_arguments_are_refused() -> None:
    """The protocol's own limit holds for the outer call too."""
    function, seen = recording("open")
    rpc = handler(catalog_of(function))

    def call(count: int) -> dict[str, Any]:
        args = {f"a{number}": number for number in range(count)}
        return rpc.call_renderer_function(renderer_call("open", args, catalog_id="urn:test"))

    assert value_of(call(1_000)) == 1
    assert code_of(call(1_001)) == INVALID_FUNCTION_CALL
    assert len(seen) == 1


def test_r097_a_function_that_raises_is_told_with_its_text() -> None:
    """The agent can do something with a text; without one there is a standing sentence."""
    rpc = handler()

    assert error_of(rpc.call_renderer_function(renderer_call("fail", {}))) == (
        EXECUTION_ERROR,
        "disk on fire",
    )
    assert error_of(rpc.call_renderer_function(renderer_call("failQuietly", {}))) == (
        EXECUTION_ERROR,
        "An error occurred during function execution.",
    )


@pytest.mark.parametrize(
    "failure",
    [
        SystemExit(1),
        GeneratorExit(),
        asyncio.CancelledError(),
        MemoryError(),
        StopIteration(),
        AssertionError(),
        Unprintable(),
        RuntimeError("\ud800"),
        RuntimeError("x" * 100_000),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_every_exception_of_a_function_is_an_answer_that_can_be_sent(
    failure: BaseException,
) -> None:
    """A function cannot stop the process that hosts it, nor leave the agent waiting."""
    answer = run(raising(failure))

    code, text = error_of(answer)
    assert code == EXECUTION_ERROR
    assert 0 < len(text) <= 2_000
    assert msgpack.unpackb(msgpack.packb(answer)) == answer


def test_a_function_that_never_stops_calling_itself_is_an_answer() -> None:
    """The stack ends, and the call with it."""

    def body(args: dict[str, Any], scope: Scope) -> object:
        return body(args, scope)

    assert code_of(run(body)) == EXECUTION_ERROR


@pytest.mark.parametrize("frames_left", range(20, 260, 20))
def test_a_host_that_is_deep_in_its_stack_gets_an_answer_too(frames_left: int) -> None:
    """Where the stack ends is nobody's fault, and still there is an answer."""
    message = renderer_call("echoAny", {"value": [[[{"a": [[["x"]]]}]]]})
    rpc = handler()
    depth = len(inspect.stack())

    def deeper(levels: int) -> dict[str, Any]:
        return rpc.call_renderer_function(message) if levels == 0 else deeper(levels - 1)

    answer = deeper(sys.getrecursionlimit() - depth - frames_left)

    body = answer["rendererFunctionResponse"]
    assert "value" in body or body["error"]["code"] == EXECUTION_ERROR


def test_keyboard_interrupt_passes() -> None:
    """A person at the terminal means the process, not the call."""
    with pytest.raises(KeyboardInterrupt):
        run(raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run(raising(Interrupting()))


def test_r098_nothing_is_answered_as_null() -> None:
    """The key is there, because its absence would make the answer malformed."""
    answer = run(constant(None))

    assert answer["rendererFunctionResponse"] == {"functionCallId": "c-1", "value": None}


def test_r099_a_result_that_json_cannot_hold_is_an_execution_error() -> None:
    """The function has run, but its result cannot be told."""
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    for value in (
        object(),
        float("nan"),
        {1: 2},
        b"x",
        2**64,
        "\ud800",
        {"a": {"b": {1, 2}}},
        cycle,
        iter([1]),
        10**5_000,
    ):
        code, text = error_of(run(constant(value)))
        assert code == EXECUTION_ERROR
        assert text.startswith("Function 'f' returned what JSON cannot hold: ")


def test_a_result_that_is_too_large_is_an_execution_error() -> None:
    """The answer would not fit the wire."""
    rpc = Rpc.new(
        [catalog_of(Function.made("f", constant("x" * 200), allowed_callers="agentOnly"))],
        limits=RpcLimits(max_value_bytes=100),
    )

    answer = rpc.call_renderer_function(renderer_call("f", {}, catalog_id="urn:test"))

    assert code_of(answer) == EXECUTION_ERROR


def test_a_coroutine_is_an_execution_error_and_leaves_no_warning() -> None:
    """A value cannot wait; who has to wait prepares the call and finishes it later."""

    async def body(_args: dict[str, Any], _scope: Scope) -> int:
        return 1

    code, text = error_of(run(body))

    assert code == EXECUTION_ERROR
    assert "awaited" in text


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ((1, (2,)), [1, [2]]),
        (Colour.RED, "red"),
        ({"size": Size.LARGE}, {"size": 3}),
        ({Colour.RED: 1}, {"red": 1}),
        (-0.0, -0.0),
        (2**64 - 1, 2**64 - 1),
        ("\x00é😀", "\x00é😀"),
    ],
    ids=repr,
)
def test_results_are_sent_as_the_plain_values_they_stand_for(value: object, sent: object) -> None:
    """What the encoder would make of an enum or a tuple must not depend on the encoder."""
    answer = run(constant(value))

    assert value_of(answer) == sent
    assert msgpack.unpackb(msgpack.packb(answer), strict_map_key=True) == answer
    assert json.loads(json.dumps(answer)) == answer


def test_r100_a_function_is_not_run_with_bad_arguments() -> None:
    """A refusal means that nothing has happened."""
    function, seen = recording(
        "pay",
        arguments={
            "type": "object",
            "properties": {"amount": {"type": "number"}},
            "required": ["amount"],
        },
    )
    rpc = handler(catalog_of(function))

    answer = rpc.call_renderer_function(
        renderer_call("pay", {"amount": "all of it"}, catalog_id="urn:test")
    )

    assert code_of(answer) == INVALID_FUNCTION_CALL
    assert seen == []


def test_a_body_gets_arguments_of_its_own() -> None:
    """It may change them without changing the message or a later call."""

    def body(args: dict[str, Any], _scope: Scope) -> object:
        args["list"].append(1)
        return args

    function = Function.made("f", body, allowed_callers="agentOnly")
    rpc = handler(catalog_of(function))
    message = renderer_call("f", {"list": []}, catalog_id="urn:test")

    first = value_of(rpc.call_renderer_function(message))
    second = value_of(rpc.call_renderer_function(message))

    assert first == second == {"list": [1]}
    assert message["callRendererFunction"]["callFunction"]["args"] == {"list": []}


def test_an_answer_shares_nothing_with_what_the_function_returned() -> None:
    """A function may keep its result and go on changing it."""
    kept: list[int] = [1]
    answer = run(constant(kept))

    kept.append(2)

    assert value_of(answer) == [1]


def test_a_body_may_refuse_with_a_code_of_its_own() -> None:
    """A refusal that the agent should branch on is a value, not an exception."""
    assert error_of(run(constant(RpcError("DENIED", "the person said no")))) == (
        "DENIED",
        "the person said no",
    )


def test_a_body_can_resolve_dynamic_values_of_its_own() -> None:
    """This is what formatString is made of, and others may be made of it too."""

    def body(_args: dict[str, Any], scope: Scope) -> object:
        return scope.resolve({"@path": "/user/name"})

    function = Function.made("name", body, allowed_callers="agentOnly")
    message = renderer_call("name", {}, catalog_id="urn:test", surface_id="form")

    answer = handler(catalog_of(function)).call_renderer_function(message, context=form())

    assert value_of(answer) == "Ada"


def test_a_schema_that_never_ends_is_an_execution_error() -> None:
    """A catalog may be wrong in ways that only a call shows."""
    function = Function.made("f", echo, allowed_callers="agentOnly", arguments={"$ref": "#"})

    answer = handler(catalog_of(function)).call_renderer_function(
        renderer_call("f", {}, catalog_id="urn:test")
    )

    assert code_of(answer) == EXECUTION_ERROR


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "elsewhere.json"},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema"},
        {"type": "colour"},
        {"properties": 7},
        {"properties": {"a": {"pattern": "("}}},
        {"patternProperties": {"(": {}}},
        {"$id": "https://example.com"},
        {"a": float("nan")},
    ],
    ids=repr,
)
def test_a_function_with_an_unusable_schema_is_not_made(schema: dict[str, Any]) -> None:
    """It is the programmer's mistake, and shows where it is made. Nothing is fetched."""
    with pytest.raises(ValueError, match=r"schema|reference|pattern|allowed|JSON"):
        Function.made("f", arguments=schema)


def test_a_functions_name_is_an_identifier() -> None:
    """Names with an at-sign are the protocol's own."""
    for name in ("a-b", "@x", "", "1a"):
        with pytest.raises(ValueError, match="identifier"):
            Function.made(name)


def _answers() -> Iterator[dict[str, Any]]:
    rpc = handler()
    yield rpc.call_renderer_function(renderer_call("echoAny", {"value": {"a": [1, None, 2.5]}}))
    yield rpc.call_renderer_function(renderer_call("ping"))
    yield rpc.call_renderer_function(renderer_call("nope"))
    yield rpc.call_renderer_function(renderer_call("fail", {}))
    yield rpc.call_renderer_function({})
    yield rpc.dispose()[0].call_renderer_function(renderer_call("ping"))
    yield Rpc.new([OPS]).call_renderer_function(renderer_call("echoText", {"text": 1}))


@pytest.mark.parametrize("answer", list(_answers()), ids=lambda answer: str(answer)[32:90])
def test_r101_every_answer_has_exactly_one_of_value_and_error(answer: dict[str, Any]) -> None:
    """The published schema demands it; `test_published_data` validates the same answers."""
    body = answer["rendererFunctionResponse"]

    assert ("value" in body) != ("error" in body)
    assert body.keys() <= {"functionCallId", "value", "error"}
