"""Holding arguments against a schema: what is valid, and that finding out has a bound."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from genagent_protocol.rpc import (
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    AgentRpc,
    Function,
    Rpc,
    RpcLimits,
)
from genagent_protocol.rpc.allowance import Allowance
from genagent_protocol.rpc.json_values import MAX_NESTING
from genagent_protocol.rpc.schemas import ArgumentSchema, compiled
from support.rpc_house import catalog_of, echo, error_of, renderer_call, value_of

E = {"$ref": "#/$defs/E"}


def node(name: str) -> dict[str, Any]:
    """Return the schema of an operation with two sides, as pydantic writes it."""
    properties = {"op": {"const": name, "type": "string"}, "left": E, "right": E}
    return {"type": "object", "properties": properties, "required": ["op", "left", "right"]}


#: A grammar of expressions that leads back to itself.
GRAMMAR: dict[str, Any] = {
    "$defs": {
        "Add": node("add"),
        "Mul": node("mul"),
        "E": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Add"}, {"$ref": "#/$defs/Mul"}]},
    },
    "properties": {"e": E},
}


def nested(levels: int, leaf: Any = 1, right: Any = 1) -> Any:
    """Return an expression of so many multiplications inside each other."""
    value = leaf
    for _ in range(levels):
        value = {"op": "mul", "left": value, "right": right}
    return value


def other(keyword: str) -> dict[str, Any]:
    """Return the grammar with another keyword in the place of `anyOf`."""
    changed: dict[str, Any] = json.loads(json.dumps(GRAMMAR).replace("anyOf", keyword))
    return changed


def schema_of(schema: dict[str, Any]) -> ArgumentSchema:
    made = compiled(schema)
    assert isinstance(made, ArgumentSchema)
    return made


def steps(schema: ArgumentSchema, args: Any) -> tuple[int, str | None]:
    """Return how much work it was to look at the arguments, and what is wrong with them."""
    allowance = Allowance(RpcLimits(max_work_steps=10**9))
    problem = schema.resolved_problem(args, allowance)
    return 10**9 - allowance.steps_left, problem


#: Two parts that both lead to the same place, without any alternative.
TWICE: dict[str, Any] = {
    "$defs": {
        "N": {"allOf": [{"properties": {"left": {"$ref": "#/$defs/N"}}} for _ in range(2)]},
    },
    "properties": {"e": {"$ref": "#/$defs/N"}},
}


@pytest.mark.parametrize("leaf", [1, "wrong"])
@pytest.mark.parametrize(
    "schema", [GRAMMAR, other("oneOf"), TWICE], ids=["anyOf", "oneOf", "allOf"]
)
def test_a_grammar_that_leads_back_to_itself_takes_as_long_as_the_argument(
    schema: dict[str, Any], leaf: Any
) -> None:
    """Each level costs what the level before did, and not twice as much."""
    made = schema_of(schema)
    [ten, _], [twenty, _], [forty, problem] = (
        steps(made, {"e": nested(levels, leaf)}) for levels in (10, 20, 40)
    )

    assert forty - twenty <= 2 * (twenty - ten)
    assert forty < RpcLimits().max_work_steps / 20
    assert (problem is None) == (leaf == 1 or schema is TWICE)


#: Seven alternatives, references and combinations on the way from one level to the next.
STEPS: dict[str, Any] = {
    "$defs": {
        "Node": {"anyOf": [{"type": "object", "properties": {"left": E}, "required": ["left"]}]},
        "Kind": {"oneOf": [{"$ref": "#/$defs/Node"}]},
        "E": {"oneOf": [{"type": "integer"}, {"allOf": [{"$ref": "#/$defs/Kind"}]}]},
    },
    "properties": {"e": E},
}


@pytest.mark.parametrize("wrong", [False, True])
def test_a_grammar_of_many_steps_is_followed_as_deep_as_arguments_go(wrong: bool) -> None:
    """Also in a host that has a stack of its own; what does not fit is told as that."""
    value: Any = "not an integer" if wrong else 1
    for _ in range(MAX_NESTING - 1):
        value = {"left": value}
    function = Function.made("f", echo, arguments=STEPS, allowed_callers="agentOnly")
    rpc = Rpc.new([catalog_of(function)])

    def answer(frames: int) -> Any:
        if frames:
            return answer(frames - 1)
        return rpc.call_renderer_function(renderer_call("f", {"e": value}, catalog_id="urn:test"))

    said = answer(40)

    if wrong:
        assert error_of(said)[0] == INVALID_FUNCTION_CALL
    else:
        assert value_of(said) == {"e": value}


def test_a_validation_result_deep_inside_a_grammar_is_settled() -> None:
    """Wherever a boolean is wanted, also where each level has alternatives."""
    flag = {"$ref": "common_types.json#/$defs/DynamicBoolean"}
    grammar: dict[str, Any] = json.loads(json.dumps(GRAMMAR))
    grammar["$defs"]["E"]["anyOf"][0] = flag
    made = schema_of(grammar)
    args = {"e": nested(30, {"valid": False, "message": "m"}, {"valid": True})}

    work, problem = steps(made, args)

    assert problem is None
    assert args == {"e": nested(30, False, True)}
    assert work < RpcLimits().max_work_steps / 20


@pytest.mark.parametrize("item", [lambda n: n, lambda n: {"a": n}, lambda n: [str(n), [n]]])
def test_a_list_without_repetitions_takes_as_long_as_it_is(item: Any) -> None:
    """Not every item is compared with every other."""
    made = schema_of({"properties": {"x": {"uniqueItems": True}}})
    few, many = (steps(made, {"x": [item(n) for n in range(count)]}) for count in (1_000, 4_000))

    assert many[0] <= few[0] * 4
    assert few[1] is many[1] is None
    repeated = [item(n) for n in range(1_000)] + [item(7)]
    assert steps(made, {"x": repeated})[1] == "x: breaks uniqueItems true"


MANY = [[n] for n in range(20_000)]
LIMITS = RpcLimits(max_work_steps=200_000)
TOO_MUCH: list[tuple[dict[str, Any], Any]] = [
    ({"items": {"items": {"$ref": "common_types.json#/$defs/DynamicNumber"}}}, MANY),
    ({"items": {"anyOf": [{"type": "integer"}, {"minItems": 2}, {"maxItems": 1}]}}, MANY),
    ({"items": {"enum": [[n] for n in range(500)]}}, [[7]] * 1_000),
    ({"patternProperties": {f"^{n}$": {} for n in range(50)}}, {str(n): n for n in range(3_000)}),
]


@pytest.mark.parametrize(("schema", "value"), TOO_MUCH)
def test_arguments_that_take_too_long_to_look_at_are_an_execution_error(
    schema: dict[str, Any], value: Any
) -> None:
    """At either end: nothing else is served meanwhile."""
    function = Function.made(
        "f", echo, allowed_callers="rendererOrAgent", arguments={"properties": {"x": schema}}
    )
    served = catalog_of(function)
    call = renderer_call("f", {"x": value}, catalog_id="urn:test")
    asked = {"surfaceId": "s", **call["callRendererFunction"]}

    by_client = Rpc.new([served], limits=LIMITS).call_renderer_function(call)
    by_agent = AgentRpc.new(limits=LIMITS).answer_agent_function(
        {"version": "v1.0", "callAgentFunction": asked}, served
    )

    text = "To evaluate the arguments of the call takes too long."
    assert error_of(by_client) == error_of(by_agent) == (EXECUTION_ERROR, text)


def test_the_longest_list_of_numbers_is_taken() -> None:
    """A bound on work is none on what people send."""
    schema: dict[str, Any] = {"properties": {"x": {"items": {"type": "integer"}}}}
    function = Function.made("f", echo, arguments=schema)
    call = {"@call": "f", "args": {"x": [7] * 131_072}}
    body = {"surfaceId": "s", "functionCallId": "c", "callFunction": call}

    answer = AgentRpc.new().answer_agent_function(
        {"version": "v1.0", "callAgentFunction": body}, catalog_of(function)
    )

    assert len(value_of(answer)["x"]) == 131_072


def test_a_schema_that_leads_to_itself_and_nowhere_else_is_an_answer() -> None:
    """It is no work that could be counted, and no end of the process either."""
    function = Function.made("f", echo, arguments={"$ref": "#"})
    body = {"surfaceId": "s", "functionCallId": "c", "callFunction": {"@call": "f", "args": {}}}

    answer = AgentRpc.new().answer_agent_function(
        {"version": "v1.0", "callAgentFunction": body}, catalog_of(function)
    )

    assert error_of(answer)[0] in (EXECUTION_ERROR, INVALID_FUNCTION_CALL)


@pytest.mark.parametrize("value", ["valid", "not"])
@pytest.mark.parametrize("name", ["$schema", "$id", "$ref", "pattern", "$anchor"])
@pytest.mark.parametrize("keyword", ["dependentRequired", "dependencies", "dependentSchemas"])
def test_what_another_argument_needs_may_be_named_like_a_keyword(
    keyword: str, name: str, value: str
) -> None:
    """The names of arguments are the caller's."""
    needs: Any = {"required": ["a"]} if keyword == "dependentSchemas" else ["a"]
    schema = {"properties": {"o": {keyword: {name: needs}}}}
    args = {"o": {name: "x", **({"a": 1} if value == "valid" else {})}}

    _, problem = steps(schema_of(schema), args)

    assert (problem is None) == Draft202012Validator(schema).is_valid(args)


@pytest.mark.parametrize(
    ("patterns", "args", "problem"),
    [
        (["a", "(?i)b"], {"B": 1}, None),
        (["a", "(?i)b"], {"c": 1}, "Additional properties are not allowed ('c' was unexpected)"),
        (["(a)(b)", r"(c)\1"], {"cc": 1}, None),
        (["(?P<n>a)", "(?P<n>b)"], {"a": 1, "b": 1}, None),
        (["^a|b", "c$"], {"d": 1, "e": 2}, "('d', 'e' were unexpected)"),
    ],
    ids=["flags", "flags and more", "back reference", "named groups", "plain"],
)
def test_each_pattern_of_names_is_read_alone(
    patterns: list[str], args: dict[str, Any], problem: str | None
) -> None:
    """A pattern cannot be part of another: its flags and groups belong to all of it."""
    schema = {"patternProperties": {key: {} for key in patterns}, "additionalProperties": False}

    _, found = steps(schema_of(schema), args)

    assert found == problem if problem is None else problem in str(found)


NAMES = st.sampled_from(["a", "b", "const", "default", "$schema", "$id", "pattern"])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 2, 2.5, "", "a", "ab", 2**60, float(2**60)]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
SIZES = st.integers(0, 3)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def _keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, inner, min_size=1, max_size=2)
    patterns = st.dictionaries(
        st.sampled_from(["a", "b$", "^c", "^[$]", "pat"]), inner, min_size=1, max_size=2
    )
    values = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "const": VALUES,
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), SIZES),
        **dict.fromkeys(("minProperties", "maxProperties"), SIZES),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), SIZES),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "pattern": st.sampled_from(["a", "^b", "^$"]),
        "uniqueItems": st.booleans(),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True), max_size=2),
        **dict.fromkeys(("properties", "dependentSchemas"), named),
        "patternProperties": patterns,
        **dict.fromkeys(("additionalProperties", "propertyNames", "items"), inner),
        **dict.fromkeys(("contains", "not", "if", "then", "else"), inner),
        **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), inner),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), several),
        **dict.fromkeys(("minContains", "maxContains"), SIZES),
        "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
    }
    keyword = st.sampled_from(sorted(values))
    return st.lists(
        keyword.flatmap(lambda name: st.tuples(st.just(name), values[name])), max_size=4
    ).map(dict)


SCHEMAS = st.recursive(
    st.booleans() | TYPES.map(lambda kind: {"type": kind}), _keywords, max_leaves=6
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    root=_keywords(SCHEMAS),
    a=SCHEMAS.filter(lambda schema: "$ref" not in json.dumps(schema)),
    b=SCHEMAS.filter(lambda schema: "#/$defs/b" not in json.dumps(schema)),
    args=st.dictionaries(NAMES, VALUES, max_size=3),
)
def test_what_is_valid_is_what_the_library_calls_valid(
    root: dict[str, Any], a: Any, b: Any, args: dict[str, Any]
) -> None:
    """Counting and remembering change how much work it is, and nothing else."""
    schema = {**root, "$defs": {"a": a, "b": b}}
    expected = Draft202012Validator(schema).is_valid(args)

    work, problem = steps(schema_of(schema), json.loads(json.dumps(args)))

    assert (problem is None) == expected
    assert work > 0
