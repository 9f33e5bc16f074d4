"""Catalog documents that load and those that are refused: scenarios R105 to R108."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    INVALID_FUNCTION_CALL,
    Body,
    Catalog,
    CatalogFault,
    Rpc,
    basic_bodies,
    load_catalog,
)
from genagent_protocol.rpc.basic.declarations import basic_document
from support.rpc_data import BASIC_CATALOG, own, published
from support.rpc_house import (
    BASIC,
    OPS,
    code_of,
    constant,
    echo,
    error_of,
    handler,
    loaded,
    renderer_call,
    value_of,
)

FUNCTION = {
    "type": "object",
    "returnType": "any",
    "allowedCallers": "agentOnly",
    "properties": {
        "@call": {"const": "f"},
        "args": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
    "required": ["@call"],
}


def document(**changes: Any) -> dict[str, Any]:
    """Return a catalog document of one function, changed; None leaves a field out."""
    fields = {
        "catalogId": "urn:doc",
        "protocolVersion": "1.0",
        "functions": {"f": copy.deepcopy(FUNCTION)},
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not None}


def with_function(**changes: Any) -> dict[str, Any]:
    """Return a catalog document whose one function is changed; None leaves a field out."""
    entry = {**copy.deepcopy(FUNCTION), **changes}
    return document(functions={"f": {key: item for key, item in entry.items() if item is not None}})


def with_args(schema: Any) -> dict[str, Any]:
    """Return a catalog document whose one function takes what *schema* says."""
    return with_function(properties={"@call": {"const": "f"}, "args": schema})


def test_r105_the_basic_catalog_has_fourteen_functions_for_the_renderer_alone() -> None:
    """This is what every renderer has, and none of it is an agent's to call."""
    catalog = loaded(published(BASIC_CATALOG), basic_bodies())

    for known in (catalog, BASIC):
        assert known.catalog_id == BASIC_CATALOG_ID
        assert [function.name for function in known.functions] == [
            "required",
            "regex",
            "length",
            "numeric",
            "email",
            "formatString",
            "formatNumber",
            "formatCurrency",
            "formatDate",
            "pluralize",
            "openUrl",
            "and",
            "or",
            "not",
        ]
        assert {function.allowed_callers for function in known.functions} == {"rendererOnly"}
        gated = [function.name for function in known.functions if function.requires_user_activation]
        assert gated == ["openUrl"]
        assert all(function.body for function in known.functions)


def _essence(schema: Any) -> Any:
    """Return a schema without prose and without an order where order means nothing."""
    if isinstance(schema, list):
        return sorted((_essence(item) for item in schema), key=repr)
    if isinstance(schema, dict):
        return {
            key: _essence(item)
            for key, item in schema.items()
            if not (key in ("description", "default") and not isinstance(item, dict))
        }
    return schema


def test_our_declarations_say_what_the_published_document_says() -> None:
    """They are written in our own words, and must not mean anything else."""
    theirs = published(BASIC_CATALOG)["functions"]
    ours = basic_document()["functions"]
    assert isinstance(ours, dict)

    assert ours.keys() == theirs.keys()
    for name, declared in ours.items():
        assert _essence(declared) == _essence(theirs[name]), name


def test_r106_a_document_without_a_version_is_of_0_9_and_not_seen() -> None:
    """That is what the protocol says of documents older than the field."""
    old = loaded(document(protocolVersion=None), {"f": constant(1)})

    answer = Rpc.new([old]).call_renderer_function(renderer_call("f", catalog_id="urn:doc"))

    assert old.protocol_version == "0.9"
    code, text = error_of(answer)
    assert code == INVALID_FUNCTION_CALL
    assert "does not match message protocol version" in text


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.7", "1.0+build.5"])
def test_patches_of_a_version_are_that_version(version: str) -> None:
    """A patch changes no meaning."""
    catalog = loaded(document(protocolVersion=version), {"f": constant(1)})

    assert catalog.serves("v1.0")
    assert catalog.serves("1.0")


@pytest.mark.parametrize("version", ["1.1", "0.9", "2.0", "1.0-rc.1", "10.0"])
def test_other_versions_are_other_versions(version: str) -> None:
    """Also one that is nearly the same."""
    assert not loaded(document(protocolVersion=version)).serves("v1.0")


WRONG: dict[str, Any] = {
    "no object": [],
    "nothing": None,
    "no id": document(catalogId=None),
    "empty id": document(catalogId=""),
    "id is a number": document(catalogId=7),
    "unknown field": document(colour="red"),
    "version with a v": document(protocolVersion="v1.0"),
    "version is a word": document(protocolVersion="one"),
    "version is a number": document(protocolVersion=1.0),
    "functions is a list": document(functions=[]),
    "components is a list": document(components=[]),
    "a component named Surface": document(components={"Surface": {}}),
    "a component named a-b": document(components={"a-b": {}}),
    "a component that is no schema": document(components={"Text": "text"}),
    "definitions without anyFunction": document(**{"$defs": {"anyComponent": {}}}),
    "other definitions": document(**{"$defs": {"anyComponent": {}, "anyFunction": {}, "more": {}}}),
    "nan": document(title="t", instructions="i", components={"Text": {"x": float("nan")}}),
    "a function that is no object": document(functions={"f": True}),
    "no return type": with_function(returnType=None),
    "unknown return type": with_function(returnType="colour"),
    "unknown callers": with_function(allowedCallers="everybody"),
    "callers is a list": with_function(allowedCallers=["agentOnly"]),
    "activation is a word": with_function(requiresUserActivation="yes"),
    "unknown field of a function": with_function(colour="red"),
    "no type": with_function(type=None),
    "type is list": with_function(type="array"),
    "no properties": with_function(properties=None),
    "properties without @call": with_function(properties={}),
    "another function's name": with_function(properties={"@call": {"const": "g"}}),
    "no const": with_function(properties={"@call": {"type": "string"}}),
    "more properties": with_function(properties={"@call": {"const": "f"}, "more": {}}),
    "@call not required": with_function(required=["args"]),
    "no required": with_function(required=None),
    "allOf with odd properties": with_function(
        allOf=[{"properties": []}], properties=None, required=None
    ),
    "allOf beside properties": with_function(allOf=[{}]),
    "args is no object": with_args(True),
    "args is no schema": with_args({"type": "colour"}),
    "an argument named a-b": with_args({"properties": {"a-b": {}}}),
    "a reference to nowhere": with_args({"properties": {"a": {"$ref": "#/nowhere"}}}),
    "a reference to the world": with_args({"properties": {"a": {"$ref": "https://example.com/x"}}}),
    "an unknown common type": with_args(
        {"properties": {"a": {"$ref": "common_types.json#/$defs/Colour"}}}
    ),
    "a pattern that cannot be read": with_args({"properties": {"a": {"pattern": "("}}}),
    "an identity of its own": with_args({"$id": "https://example.com/x"}),
}


@pytest.mark.parametrize("wrong", list(WRONG.values()), ids=list(WRONG))
def test_a_wrong_document_is_refused_whole(wrong: object) -> None:
    """A catalog is a list of permissions; half of one would be another list."""
    refused = load_catalog(wrong)

    assert isinstance(refused, CatalogFault)
    assert refused.problem


def test_r107_a_gated_function_that_agents_may_call_is_refused() -> None:
    """An agent has no gesture, so the document contradicts itself."""
    for callers in ("agentOnly", "rendererOrAgent"):
        wrong = with_function(requiresUserActivation=True, allowedCallers=callers)
        assert isinstance(load_catalog(wrong), CatalogFault)
    for said in ("rendererOnly", None):
        right = with_function(requiresUserActivation=True, allowedCallers=said)
        assert isinstance(load_catalog(right), Catalog)


@pytest.mark.parametrize("name", ["a-b", "@x", "", "1a", "a b", "a.b"])
def test_r108_a_name_that_is_no_identifier_is_refused(name: str) -> None:
    """Names with an at-sign are the protocol's own, and templates could not say the others."""
    entry = {**FUNCTION, "properties": {"@call": {"const": name}}}

    assert isinstance(load_catalog(document(functions={name: entry})), CatalogFault)


@pytest.mark.parametrize("name", ["größe", "f1", "_f", "名前", "class"])
def test_a_unicode_identifier_is_a_name(name: str) -> None:
    """Also one that is a word of this programming language."""
    entry = {**FUNCTION, "properties": {"@call": {"const": name}}}
    catalog = loaded(document(functions={name: entry}), {name: constant("ran")})

    answer = handler(catalog).call_renderer_function(renderer_call(name, catalog_id="urn:doc"))

    assert value_of(answer) == "ran"


def test_a_body_for_no_function_is_refused() -> None:
    """It is a spelling mistake, and the function it was meant for would have no body."""
    assert isinstance(load_catalog(document(), {"g": echo}), CatalogFault)


def test_a_function_that_declares_no_arguments_takes_none() -> None:
    """Declaring nothing is not the same as declaring that anything goes."""
    catalog = loaded(with_function(properties={"@call": {"const": "f"}}), {"f": echo})
    rpc = handler(catalog)

    assert value_of(rpc.call_renderer_function(renderer_call("f", catalog_id="urn:doc"))) == {}
    assert value_of(rpc.call_renderer_function(renderer_call("f", {}, catalog_id="urn:doc"))) == {}
    refused = rpc.call_renderer_function(renderer_call("f", {"x": 1}, catalog_id="urn:doc"))
    assert code_of(refused) == INVALID_FUNCTION_CALL


def test_a_function_may_be_described_in_parts() -> None:
    """Older catalogs combine the call's envelope and their own part with `allOf`."""
    parts = [
        {"$ref": "common_types.json#/$defs/FunctionCommon"},
        {
            "type": "object",
            "properties": {
                "@call": {"const": "f"},
                "args": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}},
                    "required": ["a"],
                    "unevaluatedProperties": False,
                },
            },
            "required": ["@call", "args"],
        },
    ]
    combined = with_function(allOf=parts, properties=None, required=None)
    rpc = handler(loaded(combined, {"f": echo}))

    def call(args: dict[str, Any]) -> dict[str, Any]:
        return rpc.call_renderer_function(renderer_call("f", args, catalog_id="urn:doc"))

    assert value_of(call({"a": "x"})) == {"a": "x"}
    assert code_of(call({})) == INVALID_FUNCTION_CALL
    assert code_of(call({"a": "x", "b": 1})) == INVALID_FUNCTION_CALL


def test_references_inside_the_document_are_followed() -> None:
    """A function may take what another one takes."""
    functions = {
        "f": FUNCTION,
        "g": {
            **FUNCTION,
            "properties": {
                "@call": {"const": "g"},
                "args": {"$ref": "#/functions/f/properties/args"},
            },
        },
    }
    rpc = handler(loaded(document(functions=functions), {"g": echo}))

    refused = rpc.call_renderer_function(renderer_call("g", {"a": 1}, catalog_id="urn:doc"))
    taken = rpc.call_renderer_function(renderer_call("g", {"a": "x"}, catalog_id="urn:doc"))

    assert code_of(refused) == INVALID_FUNCTION_CALL
    assert value_of(taken) == {"a": "x"}


def test_a_reference_of_a_schema_that_was_put_into_a_document_leads_nowhere() -> None:
    """The root is the document's; what is made in code stands alone, and has its own."""
    schema = {"$defs": {"A": {}}, "properties": {"a": {"$ref": "#/$defs/A"}}}
    where = "#/functions/f/properties/args/$defs/A"

    refused = load_catalog(with_args(schema))
    taken = load_catalog(with_args({**schema, "properties": {"a": {"$ref": where}}}))

    assert isinstance(refused, CatalogFault)
    assert "'#/$defs/A' leads nowhere; # is the root of the catalog document" in refused.problem
    assert isinstance(taken, Catalog)


@pytest.mark.parametrize(
    "reference", ["#/components/Text", "#/$defs/anyFunction", "#/$defs/anyComponent"]
)
def test_a_reference_to_what_is_not_kept_of_a_document_is_said_to_be_that(reference: str) -> None:
    """It is there, and whoever reads that it leads nowhere looks for a mistake of their own."""
    whole = with_args({"properties": {"a": {"$ref": reference}}})
    whole["components"] = {"Text": {}}
    whole["$defs"] = {"anyFunction": {}, "anyComponent": {}}

    refused = load_catalog(whole)

    assert isinstance(refused, CatalogFault)
    assert f"{reference!r} is not supported in arguments" in refused.problem


def test_a_reference_to_another_document_is_not_fetched() -> None:
    """Not even to this one by its address."""
    address = "https://example.test/catalog.json"
    whole = with_args({"properties": {"a": {"$ref": f"{address}#/functions/f"}}})
    whole["$id"] = address

    refused = load_catalog(whole)

    assert isinstance(refused, CatalogFault)
    assert "nothing is fetched, and # is the root of the document" in refused.problem


def test_data_that_a_schema_quotes_is_no_schema() -> None:
    """A default or an enum may hold anything, also what looks like a reference or a pattern."""
    odd = {"$ref": "#/nowhere", "pattern": "(", "$id": "x"}
    quoting = {"properties": {"a": {"default": odd, "enum": [odd], "examples": [odd]}}}

    assert isinstance(load_catalog(with_args(quoting)), Catalog)


def test_the_common_types_may_be_named_by_their_full_address() -> None:
    """Nothing is fetched from there; it is the name of what is known here."""
    reference = "https://a2ui.org/specification/v1_0/common_types.json#/$defs/DynamicString"
    rpc = handler(loaded(with_args({"properties": {"a": {"$ref": reference}}}), {"f": echo}))

    refused = rpc.call_renderer_function(renderer_call("f", {"a": 1}, catalog_id="urn:doc"))

    assert code_of(refused) == INVALID_FUNCTION_CALL


def test_loading_twice_gives_equal_catalogs() -> None:
    """A catalog is a value: what it says decides, not which object it is."""
    bodies: dict[str, Body] = {"f": echo}

    assert loaded(document(), bodies) == loaded(document(), bodies)
    assert loaded(document(), bodies) != loaded(with_args({"type": "object"}), bodies)
    known = {function.name: function.body for function in OPS.functions if function.body}
    assert loaded(own("ops_catalog_v1_0.json"), known) == OPS


def test_two_functions_of_one_name_are_refused() -> None:
    """A document cannot have them; a catalog made in code must not."""
    twice = OPS.functions[:1] * 2

    with pytest.raises(ValueError, match="one name"):
        Catalog(catalog_id="urn:x", functions=twice)
    with pytest.raises(ValueError, match="version"):
        Catalog(catalog_id="urn:x", functions=(), protocol_version="v1.0")
