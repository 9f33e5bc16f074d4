"""Calls inside of arguments: scenarios R076 to R091."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    EXECUTION_ERROR,
    DataContext,
    ExpressionFault,
    Function,
    RpcError,
    Surface,
    basic_catalog,
    resolver_for,
)
from support.rpc_house import (
    BASIC,
    OPS,
    OPS_ID,
    catalog_of,
    code_of,
    constant,
    echo,
    error_of,
    form,
    handler,
    nested,
    path,
    raising,
    recording,
    renderer_call,
    surface,
    value_of,
)


def answer_for(
    value: object, *, on: str | None = "form", gesture: bool = False, name: str = "echoAny"
) -> dict[str, Any]:
    """Return the answer to an echo whose argument is *value*, called on this surface."""
    argument = {"echoAny": "value", "echoText": "text", "setFlag": "on"}[name]
    return handler().call_renderer_function(
        renderer_call(name, {argument: value}, surface_id=on),
        context=None if on is None else surface(on),
        user_activated=gesture,
    )


def failure(value: object, *, on: str | None = "form") -> str:
    """Return the text of the execution error that *value* leads to."""
    code, text = error_of(answer_for(value, on=on))
    assert code == EXECUTION_ERROR
    return text


def test_r076_a_nested_call_without_a_catalog_uses_the_surfaces_default() -> None:
    """What stands on a surface speaks the language of the surface."""
    value = nested("formatString", {"value": "Hi ${/user/name}"})

    assert value_of(answer_for(value)) == {"value": "Hi Ada"}


def test_r077_without_a_surface_the_calls_own_catalog_is_the_default() -> None:
    """A call that brings its own place brings its own language."""
    value = nested("echoAny", {"value": 1})

    assert value_of(answer_for(value, on=None)) == {"value": {"value": 1}}


def test_r078_without_a_surface_no_other_catalog_is_searched() -> None:
    """A function is never found by trying the catalogs one by one."""
    assert "formatString" in failure(nested("formatString", {"value": "x"}), on=None)


def test_r079_without_a_surface_another_catalog_can_be_named_and_paths_are_null() -> None:
    """All the handler's catalogs are there; data is not."""
    value = nested("formatString", {"value": "[${/user/name}]"}, BASIC_CATALOG_ID)

    assert value_of(answer_for(value, on=None)) == {"value": "[]"}


def test_r080_a_surface_without_a_default_has_no_language() -> None:
    """Not even if only one catalog is there."""
    text = failure(nested("formatString", {"value": "x"}), on="bare")

    assert "has no default catalogId" in text


def test_r081_a_nested_call_does_not_inherit_the_outer_calls_catalog() -> None:
    """On a surface the default is the surface's, whoever calls."""
    assert "echoAny" in failure(nested("echoAny", {"value": 1}))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (nested("formatString", {"value": "x"}, "urn:none"), "Catalog not found: urn:none"),
        (nested("formatString", {"value": "x"}, ""), "Catalog not found: "),
        (nested("nope", {}, OPS_ID), "Unrecognized function 'nope'"),
        ({"@call": "echoAny", "catalogId": 7}, "catalogId"),
    ],
    ids=["catalog", "empty catalog", "function", "catalog is no text"],
)
def test_r082_what_cannot_be_found_is_a_failure_and_never_null(
    value: dict[str, Any], said: str
) -> None:
    """Null would look like data that is missing, and the agent would go on with it."""
    assert said in failure(value)


@pytest.mark.parametrize(
    "value",
    [
        nested("regex", {"value": "x"}),
        nested("formatString", {"value": 7}),
        nested("formatString"),
        nested("formatString", {"value": "x", "zz": 1}),
        nested("regex", {"value": "x", "pattern": path("/user/name")}),
        {"@call": "required", "args": ["value"]},
        {"@call": "required", "args": None},
    ],
    ids=repr,
)
def test_r083_written_arguments_that_break_the_schema_are_a_failure(value: dict[str, Any]) -> None:
    """They are checked as they are written: a binding only where one may stand."""
    failure(value)


def test_a_dynamic_value_as_written_has_no_reserved_keys() -> None:
    """Other than those of a binding or a call."""
    assert failure(nested("echoDynamic", {"value": {"@if": 1}}, OPS_ID)).startswith(
        "Invalid arguments for function 'echoDynamic'"
    )
    doubled = nested("echoDynamic", {"value": {"@@if": 1}}, OPS_ID)
    assert value_of(answer_for(doubled)) == {"value": {"value": {"@if": 1}}}


def test_r084_a_nested_function_that_fails_gives_its_text() -> None:
    """The agent wrote the expression and can read what went wrong in it."""
    assert failure(nested("fail", {}, OPS_ID)) == "disk on fire"
    assert failure(nested("failQuietly", {}, OPS_ID)) == (
        "An error occurred during function execution."
    )


def test_r085_a_failing_expression_wins_over_bad_arguments() -> None:
    """Arguments can only be judged once all of them have a value."""
    message = renderer_call("echoAny", {"value": nested("fail", {}, OPS_ID), "zz": 1})

    assert code_of(handler().call_renderer_function(message)) == EXECUTION_ERROR


@pytest.mark.parametrize("on", ["form", None])
def test_r086_index_has_no_value_outside_of_a_list(on: str | None) -> None:
    """A call from outside is never inside of a list."""
    assert "@index" in failure(nested("@index", {"offset": 1}), on=on)


def test_r086_index_counts_inside_of_a_list() -> None:
    """Components in a list number themselves so."""
    resolver = resolver_for(form().nested("/items/2", index=2))

    assert resolver.resolve(nested("@index")) == 2
    assert resolver.resolve(nested("@index", {"offset": 1})) == 3
    assert resolver.resolve(nested("@index", {"offset": path("/zero")})) == 2
    assert resolver.resolve(nested("@index", {"offset": 0.5})) == 2.5


@pytest.mark.parametrize(
    "call",
    [
        nested("@index", {}, OPS_ID),
        nested("@index", {"offset": "1"}),
        nested("@index", {"offset": True}),
        nested("@index", {"offset": None}),
        nested("@index", {"other": 1}),
        nested("@other", {}),
        nested("@", {}),
    ],
    ids=repr,
)
def test_r087_system_functions_belong_to_no_catalog_and_take_what_they_take(
    call: dict[str, Any],
) -> None:
    """The protocol's own functions are few and exact."""
    with pytest.raises(ExpressionFault):
        resolver_for(form().nested("/items/2", index=2)).resolve(call)


def test_r088_a_nested_function_that_needs_a_gesture_is_blocked_without_one() -> None:
    """Otherwise an agent would open a page by hiding the call inside an argument."""
    value = nested("openUrl", {"url": "https://example.com"}, BASIC_CATALOG_ID)

    code, text = error_of(answer_for(value))
    assert code == EXECUTION_ERROR
    assert "activation" in text
    assert value_of(answer_for(value, gesture=True)) == {"value": None}


def test_a_url_is_opened_by_the_host_and_only_in_a_gesture() -> None:
    """The value decides that it may happen; the host does it."""
    opened: list[str] = []
    catalog = basic_catalog(opened.append)
    context = DataContext(
        surface=Surface(surface_id="s", catalogs=(catalog,), default_catalog_id=BASIC_CATALOG_ID)
    )
    call = nested("openUrl", {"url": "https://example.com/a"})

    with pytest.raises(ExpressionFault):
        resolver_for(context).resolve(call)
    assert opened == []
    resolver_for(context, user_activated=True).resolve(call)
    assert opened == ["https://example.com/a"]


def test_r089_a_validation_result_is_an_object_or_a_boolean_as_the_place_wants() -> None:
    """A check may be shown with its message, or only be counted."""
    passed = nested("required", {"value": "x"}, BASIC_CATALOG_ID)
    failed = nested("required", {"value": ""}, BASIC_CATALOG_ID)

    assert value_of(answer_for(passed)) == {"value": {"valid": True}}
    assert value_of(answer_for(passed, name="setFlag")) == {"on": True}
    assert value_of(answer_for(failed, name="setFlag")) == {"on": False}


def test_a_validation_result_from_the_data_is_a_boolean_where_one_is_wanted() -> None:
    """Where it came from makes no difference to the place it stands in."""
    message = renderer_call("setFlag", {"on": path("/check")}, surface_id="form")

    answer = handler().call_renderer_function(
        message, context=form(check={"valid": False, "message": "no"})
    )

    assert value_of(answer) == {"on": False}


@pytest.mark.parametrize(
    ("schema", "given", "wanted"),
    [
        ({"type": "boolean"}, {"valid": True}, None),
        ({}, {"valid": True}, {"valid": True}),
        (
            {"type": "array", "items": {"$ref": "common_types.json#/$defs/DynamicBoolean"}},
            [{"valid": True}, False, {"valid": False, "code": "X"}],
            [True, False, False],
        ),
        (
            {"anyOf": [{"$ref": "common_types.json#/$defs/DynamicBoolean"}, {"type": "string"}]},
            {"valid": True},
            True,
        ),
        ({"$ref": "common_types.json#/$defs/DynamicBoolean"}, {"valid": "yes"}, None),
        ({"$ref": "common_types.json#/$defs/DynamicBoolean"}, {"valid": 1}, None),
    ],
    ids=["literal", "anything", "in a list", "one of two", "valid is text", "valid is a number"],
)
def test_only_a_place_for_a_dynamic_boolean_takes_a_validation_result(
    schema: dict[str, Any], given: object, wanted: object
) -> None:
    """Everywhere else an object stays what it is, and fits or does not."""
    function = Function.made(
        "take",
        echo,
        allowed_callers="agentOnly",
        arguments={"type": "object", "properties": {"v": schema}},
    )
    rpc = handler(catalog_of(function))

    answer = rpc.call_renderer_function(
        renderer_call("take", {"v": path("/v")}, catalog_id="urn:test", surface_id="form"),
        context=form(v=given),
    )

    if wanted is None:
        assert "Invalid" in error_of(answer)[1]
    else:
        assert value_of(answer) == {"v": wanted}


def test_nested_booleans_take_validation_results_too() -> None:
    """The rule belongs to the place, not to how deep the call stands."""
    function, seen = recording(
        "note",
        allowed_callers="rendererOrAgent",
        arguments={
            "type": "object",
            "properties": {"on": {"$ref": "common_types.json#/$defs/DynamicBoolean"}},
        },
    )
    notes = catalog_of(function)
    value = nested("note", {"on": nested("required", {"value": ""}, BASIC_CATALOG_ID)}, "urn:test")

    handler(notes).call_renderer_function(renderer_call("echoAny", {"value": value}))

    assert seen == [{"on": False}]


def test_r090_calls_nest_in_calls_and_in_templates() -> None:
    """Text for a person is put together from several functions."""
    count = nested(
        "pluralize",
        {
            "value": path("/user/age"),
            "one": "one year",
            "other": nested("formatString", {"value": "${/user/age} years"}),
        },
    )

    assert value_of(answer_for(count, name="echoText")) == {"text": "36 years"}


def test_r091_a_nested_call_takes_at_most_a_thousand_arguments() -> None:
    """The protocol's own limit."""
    thousand = nested("echoAny", {f"a{number}": 1 for number in range(1_000)}, OPS_ID)
    more = nested("echoAny", {f"a{number}": 1 for number in range(1_001)}, OPS_ID)

    assert "over 1000 arguments" in failure(more)
    assert "Invalid arguments" in failure(thousand)


def deep_list(levels: int) -> Any:
    """Return lists in lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def deep_object(levels: int) -> Any:
    """Return objects in objects."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def deep_calls(levels: int) -> Any:
    """Return calls in calls."""
    value: Any = 1
    for _ in range(levels):
        value = nested("echoAny", {"value": value}, OPS_ID)
    return value


@pytest.mark.parametrize("deep", [deep_list, deep_object, deep_calls])
@pytest.mark.parametrize("levels", [60, 1_000, 20_000])
def test_r091_nesting_past_the_limit_is_an_execution_error(
    deep: Callable[[int], Any], levels: int
) -> None:
    """However deep, it is an answer and never a crash."""
    failure(deep(levels))


def test_nesting_within_the_limit_is_taken() -> None:
    """The counterpart: depth that people write by hand is no problem."""
    assert value_of(answer_for(deep_list(40))) == {"value": deep_list(40)}
    expected: Any = 1
    for _ in range(20):
        expected = {"value": expected}
    assert value_of(answer_for(deep_calls(20))) == {"value": expected}


def test_a_template_in_the_data_that_calls_itself_ends() -> None:
    """Data is not evaluated, but formatString evaluates what it is handed as a template."""
    data = {"t": "${formatString(value: /t)}"}
    message = renderer_call(
        "echoText", {"text": nested("formatString", {"value": path("/t")})}, surface_id="form"
    )

    code, text = error_of(handler().call_renderer_function(message, context=form(**data)))

    assert code == EXECUTION_ERROR
    assert "nest deeper than" in text


def test_calls_may_nest_in_a_template_as_deep_as_the_protocol_says() -> None:
    """What the reader of templates takes, evaluation has to take too."""
    template = "'x'"
    for _ in range(99):
        template = f"pluralize(value: 2, other: {template})"

    value = nested("formatString", {"value": f"${{{template}}}"})

    assert value_of(answer_for(value, name="echoText")) == {"text": "x"}


def test_a_template_in_the_data_that_multiplies_itself_ends() -> None:
    """Ten calls that make ten calls each would otherwise never come to an end."""
    data = {"t": "${formatString(value: /t)}" * 10}
    message = renderer_call(
        "echoText", {"text": nested("formatString", {"value": path("/t")})}, surface_id="form"
    )

    answer = handler().call_renderer_function(message, context=form(**data))

    assert code_of(answer) == EXECUTION_ERROR


def test_one_call_may_need_only_so_many_functions() -> None:
    """A flat list of calls costs as much as a deep one."""
    calls = [nested("ping", None, OPS_ID)] * 10_001

    assert "takes too long" in failure(calls)


def test_many_bindings_to_large_data_end() -> None:
    """A short message must not blow up into gigabytes."""
    data = {"big": "x" * 1_000_000}
    message = renderer_call("echoAny", {"value": [path("/big")] * 20}, surface_id="form")

    code, text = error_of(handler().call_renderer_function(message, context=form(**data)))

    assert code == EXECUTION_ERROR
    assert text == "The data at '/big' cannot be used: too large."


@pytest.mark.parametrize("function", ["agent", "renderer"])
def test_a_renderers_own_expressions_may_not_call_agent_only_functions(function: str) -> None:
    """Such a function may not be bound into the interface; inside an agent's call it may stand."""
    secret, _ = recording("secret")
    catalogs = (BASIC, OPS, catalog_of(secret))
    if function == "agent":
        value = nested("secret", {}, "urn:test")
        answer = handler(catalogs[2]).call_renderer_function(
            renderer_call("echoAny", {"value": value})
        )
        assert value_of(answer) == {"value": 1}
    else:
        context = DataContext(surface=Surface(surface_id="s", catalogs=catalogs))
        with pytest.raises(ExpressionFault, match="cannot be called by renderer"):
            resolver_for(context).resolve(nested("secret", {}, "urn:test"))


@pytest.mark.parametrize(
    "body",
    [
        raising(SystemExit(3)),
        raising(GeneratorExit()),
        raising(MemoryError()),
        raising(RecursionError()),
        constant(object()),
        constant(float("nan")),
        constant(RpcError("OWN", "refused")),
    ],
    ids=["exit", "generator exit", "memory", "recursion", "object", "nan", "refused"],
)
def test_whatever_a_nested_body_does_is_an_execution_error(body: Any) -> None:
    """Nested or not, a function's failure is an answer to the agent."""
    catalog = catalog_of(Function.made("f", body, allowed_callers="rendererOrAgent"))
    value = nested("f", {}, "urn:test")

    answer = handler(catalog).call_renderer_function(renderer_call("echoAny", {"value": value}))

    assert code_of(answer) == EXECUTION_ERROR


def test_a_nested_function_without_a_body_is_an_execution_error() -> None:
    """A person cannot answer in the middle of an expression."""
    catalog = catalog_of(Function.made("ask", allowed_callers="rendererOrAgent"))
    value = nested("ask", {}, "urn:test")

    answer = handler(catalog).call_renderer_function(renderer_call("echoAny", {"value": value}))

    assert code_of(answer) == EXECUTION_ERROR
