"""Surfaces, paths into their data, and reserved keys: scenarios R056 to R075."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.rpc import (
    EXECUTION_ERROR,
    INVALID_FUNCTION_CALL,
    DataContext,
    Surface,
)
from genagent_protocol.rpc.paths import joined, value_at
from support.rpc_house import (
    OPS,
    catalog_of,
    code_of,
    error_of,
    form,
    handler,
    nested,
    path,
    recording,
    renderer_call,
    surface,
    value_of,
)


def echoed(value: object, context: DataContext | None = None) -> Any:
    """Return what `echoAny` gives for an argument on surface `form`."""
    message = renderer_call("echoAny", {"value": value}, surface_id="form")
    answer = handler().call_renderer_function(message, context=context or form())
    return value_of(answer)["value"]


def test_r056_a_surface_that_is_not_there_is_named_in_the_refusal() -> None:
    """The agent may have deleted it a moment ago."""
    answer = handler().call_renderer_function(
        renderer_call("echoText", {"text": "hi"}, surface_id="gone")
    )

    assert error_of(answer) == (INVALID_FUNCTION_CALL, "Surface not found: gone")


def test_r057_a_context_of_another_surface_is_not_used() -> None:
    """Its data belongs to someone else."""
    answer = handler().call_renderer_function(
        renderer_call("echoText", {"text": "hi"}, surface_id="gone"), context=form()
    )

    assert error_of(answer) == (INVALID_FUNCTION_CALL, "Surface not found: gone")


def test_the_surface_is_judged_before_the_catalog() -> None:
    """The order of checks is fixed, so that two wrong things give one answer."""
    answer = handler().call_renderer_function(
        renderer_call("nope", catalog_id="urn:none", surface_id="gone")
    )

    assert error_of(answer)[1] == "Surface not found: gone"


@pytest.mark.parametrize("surface_id", [7, ["form"], {"a": 1}, "\ud800"], ids=repr)
def test_a_surface_id_that_is_no_text_is_refused(surface_id: Any) -> None:
    """It can name no surface."""
    message = renderer_call("echoText", {"text": "hi"})
    message["callRendererFunction"]["surfaceId"] = surface_id

    answer = handler().call_renderer_function(message, context=form())

    assert code_of(answer) == INVALID_FUNCTION_CALL


def test_r058_a_binding_reads_the_data_of_the_surface() -> None:
    """The value comes from what the person has typed, without a round trip of its own."""
    assert echoed(path("/user/name")) == "Ada"


def test_r059_without_a_surface_there_is_no_data_whatever_the_host_passes() -> None:
    """An agent that names no surface must not get one by accident."""
    message = renderer_call("echoAny", {"value": path("/user/name")})

    answer = handler().call_renderer_function(message, context=form())

    assert value_of(answer) == {"value": None}


def test_r060_a_path_to_nothing_is_null() -> None:
    """What is not there yet is not a failure."""
    assert echoed(path("/no/such")) is None


def test_r061_r062_null_or_a_number_where_a_text_is_wanted_is_refused() -> None:
    """The resolved value has to fit, not the binding."""
    for pointer in ("/no/such", "/user/age"):
        message = renderer_call("echoText", {"text": path(pointer)}, surface_id="form")
        code, text = error_of(handler().call_renderer_function(message, context=form()))
        assert code == INVALID_FUNCTION_CALL
        assert "Invalid" in text
        assert "echoText" in text


def test_r063_a_binding_may_stand_where_the_schema_knows_only_a_number() -> None:
    """Arguments of the outer call are judged once they are resolved."""
    message = renderer_call("literalCount", {"count": path("/user/age")}, surface_id="form")

    assert value_of(handler().call_renderer_function(message, context=form())) == 36


def test_r064_paths_may_be_relative_and_the_root_is_the_whole_model() -> None:
    """Calls from outside run at the root, so the scope is the root too."""
    model = form().surface.data_model

    assert echoed(path("user/name")) == "Ada"
    for pointer in ("/", "", "."):
        assert echoed(path(pointer)) == model


def test_calls_from_outside_run_at_the_root_whatever_the_context() -> None:
    """The host may hand in the context of an item in a list; the call names only the surface."""
    inside = form().nested("/items/1", index=1)

    assert echoed(path("user/name"), inside) == "Ada"


def test_r065_tildes_escape_slashes_and_themselves() -> None:
    """`~1` is read before `~0`, so that `~01` is the text `~1`."""
    assert echoed(path("/a~1b/c~0d")) == "escaped"
    assert echoed(path("/~01"), form(**{"~1": "tilde one"})) == "tilde one"


@pytest.mark.parametrize("index", ["2", "-1", "01", "one", "1.0", "²", "1" * 5_000])
def test_r066_an_index_that_no_item_has_is_null(index: str) -> None:
    """A list is addressed by canonical decimals and by nothing else."""
    assert echoed(path(f"/items/{index}")) is None


def test_an_index_addresses_an_item() -> None:
    """The counterpart of the refusals: this is how an item is reached."""
    assert echoed(path("/items/1/title")) == "two"


def test_r067_bindings_inside_lists_and_objects_are_resolved_in_place() -> None:
    """An argument is a tree, and any leaf of it may be dynamic."""
    value = {"who": path("/user/name"), "all": [path("/zero"), [path("/tags/0")]]}

    assert echoed(value) == {"who": "Ada", "all": [0, ["x"]]}


def test_r068_data_that_looks_like_a_binding_is_not_resolved_again() -> None:
    """Otherwise whoever fills in a form could read the rest of the model."""
    assert echoed(path("/trick")) == {"@path": "/user/name"}


def test_r069_data_that_looks_like_a_call_runs_nothing() -> None:
    """Otherwise whoever fills in a form could call functions."""
    function, seen = recording("spy", allowed_callers="rendererOrAgent")
    spies = catalog_of(function)
    context = surface("form", spies)
    data: dict[str, Any] = {"x": nested("spy", {}, "urn:test")}
    context = DataContext(
        surface=Surface(
            surface_id="form",
            catalogs=context.surface.catalogs,
            data_model=data,
            default_catalog_id="urn:test",
        )
    )

    message = renderer_call("echoAny", {"value": path("/x")}, surface_id="form")
    answer = handler(spies).call_renderer_function(message, context=context)

    assert value_of(answer) == {"value": data["x"]}
    assert seen == []


@pytest.mark.parametrize("pointer", ["/trick", "/trickCall"])
def test_r070_data_that_looks_dynamic_is_no_text(pointer: str) -> None:
    """As written a binding may stand for a text; resolved it is an object like any other."""
    message = renderer_call("echoText", {"text": path(pointer)}, surface_id="form")

    answer = handler().call_renderer_function(message, context=form())

    assert code_of(answer) == INVALID_FUNCTION_CALL


@pytest.mark.parametrize("kind", ["DataBinding", "FunctionCall"])
def test_r070_nothing_resolved_passes_for_a_binding_or_a_call(kind: str) -> None:
    """A schema may offer them by name beside a text, as openUrl does with its URL."""
    url = {"oneOf": [{"type": "string"}, {"$ref": f"common_types.json#/$defs/{kind}"}]}
    function, seen = recording("visit", arguments={"properties": {"url": url}})
    rpc = handler(catalog_of(function))

    def visit(pointer: str) -> dict[str, Any]:
        message = renderer_call(
            "visit", {"url": path(pointer)}, catalog_id="urn:test", surface_id="form"
        )
        return rpc.call_renderer_function(message, context=form())

    assert code_of(visit("/trick")) == INVALID_FUNCTION_CALL
    assert code_of(visit("/trickCall")) == INVALID_FUNCTION_CALL
    assert seen == []
    assert value_of(visit("/user/name")) == 1


def test_r071_a_call_leaves_the_data_model_as_it_was() -> None:
    """A body may do with its arguments what it likes; they are its own."""
    function, seen = recording("keep")
    rpc = handler(catalog_of(function))
    context = form()
    before = copy.deepcopy(context.surface.data_model)

    message = renderer_call("keep", {"all": path("/")}, catalog_id="urn:test", surface_id="form")
    rpc.call_renderer_function(message, context=context)
    seen[0]["all"]["user"].clear()

    assert context.surface.data_model == before


def test_a_data_model_may_be_frozen() -> None:
    """A host that keeps its state as values hands it in as it is."""
    model = freeze({"user": {"name": "Ada"}, "list": [1, [2]]})
    assert isinstance(model, FrozenDict)
    context = DataContext(surface=Surface(surface_id="form", catalogs=(OPS,), data_model=model))

    assert echoed(path("/user/name"), context) == "Ada"
    assert echoed(path("/list/1/0"), context) == 2
    assert echoed(path("/"), context) == {"user": {"name": "Ada"}, "list": [1, [2]]}


def test_data_that_json_cannot_hold_is_an_execution_error() -> None:
    """A host may keep what it likes in its model, but it cannot be sent to an agent."""
    message = renderer_call("echoAny", {"value": path("/when")}, surface_id="form")

    answer = handler().call_renderer_function(message, context=form(when=object()))

    assert code_of(answer) == EXECUTION_ERROR


def test_a_data_model_that_contains_itself_is_an_execution_error() -> None:
    """A cycle is endless depth, and depth is bounded."""
    model: dict[str, Any] = {"a": 1}
    model["self"] = model
    message = renderer_call("echoAny", {"value": path("/")}, surface_id="form")

    answer = handler().call_renderer_function(message, context=form(**model))

    assert code_of(answer) == EXECUTION_ERROR


def test_r072_plain_path_and_call_are_ordinary_keys() -> None:
    """Only the spellings with an at-sign are the protocol's."""
    assert echoed({"path": "/x", "call": "y"}) == {"path": "/x", "call": "y"}


def test_r073_a_doubled_at_sign_stands_for_one() -> None:
    """So data may have any key at all."""
    assert echoed({"@@path": "/x"}) == {"@path": "/x"}
    assert echoed({"@@@x": 1, "a": {"@@": 2}}) == {"@@x": 1, "a": {"@": 2}}


@pytest.mark.parametrize(
    "value",
    [
        {"@if": 1},
        {"@": 1},
        [{"a": {"@x": 1}}],
        {"@path": 7},
        {"@path": None},
        {"@call": ["f"]},
        {"@call": None},
        {"@path": "/x", "componentId": "c"},
    ],
    ids=repr,
)
def test_r074_r075_a_reserved_key_that_means_nothing_is_an_execution_error(value: object) -> None:
    """A later protocol may give it a meaning; until then it must not pass for data."""
    message = renderer_call("echoAny", {"value": value}, surface_id="form")

    assert code_of(handler().call_renderer_function(message, context=form())) == EXECUTION_ERROR


@pytest.mark.parametrize(
    ("scope", "relative", "absolute"),
    [
        ("/", "a", "/a"),
        ("/", "/a", "/a"),
        ("/user", "name", "/user/name"),
        ("/user/", "name", "/user/name"),
        ("/user", "", "/user"),
        ("/user", ".", "/user"),
        ("/", "", "/"),
        ("/user", "/list/0", "/list/0"),
    ],
)
def test_paths_are_joined_to_their_scope(scope: str, relative: str, absolute: str) -> None:
    """This is how a component inside a list finds its own item."""
    assert joined(scope, relative) == absolute


def test_empty_segments_and_a_trailing_slash_count_for_nothing() -> None:
    """Paths are often put together from parts, and the seams should not matter."""
    assert value_at({"a": {"b": 1}}, "//a///b/") == 1


def test_a_nested_context_has_its_own_scope_and_the_nearest_index() -> None:
    """A list inside a list counts its own items; an object inside a list counts the list's."""
    outer = DataContext(
        surface=Surface(surface_id="s", catalogs=(OPS,), data_model={"l": [{"n": 1}]})
    ).nested("l/0", index=0)

    assert outer.value("n") == 1
    assert outer.nested("n").index == 0
    assert outer.nested("n", index=5).index == 5
    assert outer.at_root().index is None
