"""How a published catalog document becomes a catalog, and which documents are refused.

The rules are those of the protocol's catalog definition. A document is taken
whole or not at all; one that is wrong in any function is refused with the place
and the reason, because a catalog is also a list of permissions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, get_args

from genagent_protocol.rpc.catalog import Catalog
from genagent_protocol.rpc.functions import AllowedCallers, Body, Function, ReturnType
from genagent_protocol.rpc.json_values import Json, Unfit, copied
from genagent_protocol.rpc.schemas import ArgumentSchema, SchemaFault, compiled_all
from genagent_protocol.rpc.versions import UNNAMED_VERSION, is_version

MAX_DOCUMENT_BYTES: Final = 16_777_216

Word = TypeVar("Word", bound=str)

_FIELDS: Final[dict[str, type]] = {
    "$schema": str,
    "$id": str,
    "protocolVersion": str,
    "$defs": dict,
    "title": str,
    "description": str,
    "catalogId": str,
    "instructions": str,
    "components": dict,
    "functions": dict,
}
_DEFINITIONS: Final = {"anyComponent", "anyFunction"}
_CALL_KEYS: Final = frozenset({"@call", "catalogId", "args"})
_ENTRY_FIELDS: Final[dict[str, type]] = {
    "type": str,
    "description": str,
    "returnType": str,
    "allowedCallers": str,
    "requiresUserActivation": bool,
    "unevaluatedProperties": bool,
    "additionalProperties": bool,
    "properties": dict,
    "required": list,
    "allOf": list,
}
_NOUNS: Final[dict[type, str]] = {
    str: "text",
    bool: "a boolean",
    dict: "an object",
    list: "a list",
}
_MAX_SHOWN: Final = 80
_TAKES_NOTHING: Final[dict[str, Json]] = {"type": "object", "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class CatalogFault:
    """Why a document is no catalog that can be used."""

    problem: str


class _Refused(Exception):
    """Carries a problem to `load_catalog`, which makes a value of it."""


def load_catalog(
    document: object, bodies: Mapping[str, Body] | None = None
) -> Catalog | CatalogFault:
    """Return the catalog that *document* describes, or why it is refused.

    *bodies* are the implementations by name; a function without one can be
    prepared, not run. This does not keep components, only checks their names,
    and fetches nothing.
    """
    copy = copied(document, max_bytes=MAX_DOCUMENT_BYTES)
    if isinstance(copy, Unfit):
        return CatalogFault(f"the document is not JSON: {copy.problem}")
    if not isinstance(copy.value, dict):
        return CatalogFault("the document is not an object")
    try:
        return _catalog(copy.value, {} if bodies is None else bodies)
    except _Refused as refused:
        return CatalogFault(str(refused))
    except RecursionError:
        return CatalogFault("the schemas are nested too deeply")


def _catalog(document: dict[str, Json], bodies: Mapping[str, Body]) -> Catalog:
    _check_fields(document)
    functions = document.get("functions", {})
    assert isinstance(functions, dict)
    unknown = sorted(bodies.keys() - functions.keys())
    if unknown:
        raise _Refused(f"there is no function {unknown[0]!r} for the body given")
    entries = {name: _entry(name, entry) for name, entry in functions.items()}
    schemas = _argument_schemas(entries)
    return Catalog(
        catalog_id=str(document["catalogId"]),
        protocol_version=str(document.get("protocolVersion", UNNAMED_VERSION)),
        functions=tuple(
            _function(name, entry, schemas[name], bodies.get(name))
            for name, entry in entries.items()
        ),
    )


def _check_fields(document: dict[str, Json]) -> None:
    problem = _field_problem(document, _FIELDS)
    if problem is not None:
        raise _Refused(problem)
    if not document.get("catalogId"):
        raise _Refused("catalogId is missing or empty")
    version = document.get("protocolVersion", UNNAMED_VERSION)
    if not is_version(str(version)):
        raise _Refused("protocolVersion is no version")
    definitions = document.get("$defs")
    if isinstance(definitions, dict) and definitions.keys() != _DEFINITIONS:
        raise _Refused("$defs holds anyComponent and anyFunction, and nothing else")
    _check_components(document.get("components", {}))


def _field_problem(fields: dict[str, Json], known: dict[str, type]) -> str | None:
    for key, value in fields.items():
        if key not in known:
            return f"unknown field {key[:_MAX_SHOWN]!r}"
        if not isinstance(value, known[key]):
            return f"{key} is not {_NOUNS[known[key]]}"
    return None


def _check_components(components: Json) -> None:
    assert isinstance(components, dict)
    for name, component in components.items():
        if not name.isidentifier() or name == "Surface":
            raise _Refused(f"components/{name}: no name for a component")
        if not isinstance(component, dict | bool):
            raise _Refused(f"components/{name}: is no schema")


def _entry(name: str, entry: Json) -> dict[str, Json]:
    if not name.isidentifier():
        raise _Refused(f"functions/{name[:_MAX_SHOWN]}: the name is no Unicode identifier")
    if not isinstance(entry, dict):
        raise _Refused(f"functions/{name}: is no object")
    problem = (
        _field_problem(entry, _ENTRY_FIELDS)
        or _permission_problem(entry)
        or _shape_problem(entry)
        or _name_problem(name, entry)
    )
    if problem is not None:
        raise _Refused(f"functions/{name}: {problem}")
    return entry


def _permission_problem(entry: dict[str, Json]) -> str | None:
    if entry.get("returnType") not in get_args(ReturnType):
        return "returnType is missing or unknown"
    callers = entry.get("allowedCallers", "rendererOnly")
    if callers not in get_args(AllowedCallers):
        return "allowedCallers is unknown"
    if entry.get("requiresUserActivation") and callers != "rendererOnly":
        return "a function that requires user activation is rendererOnly"
    return None


def _shape_problem(entry: dict[str, Json]) -> str | None:
    if entry.get("type") != "object":
        return "type is not 'object'"
    combined = "allOf" in entry
    if combined and entry.keys() & {"properties", "required"}:
        return "allOf stands beside properties or required"
    for part in _parts(entry):
        properties = part.get("properties", {})
        if not isinstance(properties, dict):
            return "properties is no object"
        if not combined and not properties.keys() <= _CALL_KEYS:
            return "properties holds more than @call, catalogId and args"
        problem = _argument_problem(properties.get("args", {}))
        if problem is not None:
            return problem
    return None


def _argument_problem(schema: Json) -> str | None:
    if not isinstance(schema, dict):
        return "the schema of args is no object"
    properties = schema.get("properties", {})
    names = properties if isinstance(properties, dict) else {}
    wrong = [name for name in names if not name.isidentifier()]
    return f"args/{wrong[0][:_MAX_SHOWN]}: the name is no Unicode identifier" if wrong else None


def _name_problem(name: str, entry: dict[str, Json]) -> str | None:
    parts = list(_parts(entry))
    named = [_property(part, "@call") for part in parts]
    names = [call.get("const") for call in named if isinstance(call, dict) and "const" in call]
    if names != [name]:
        return "@call is not the name of the function, as a const"
    required: list[Json] = []
    for part in parts:
        listed = part.get("required", [])
        required += listed if isinstance(listed, list) else []
    if "@call" not in required and "allOf" not in entry:
        return "@call is not required"
    return None


def _parts(entry: dict[str, Json]) -> list[dict[str, Json]]:
    """Return the entry, or the parts of which `allOf` makes it."""
    combined = entry.get("allOf")
    if not isinstance(combined, list):
        return [entry]
    return [part for part in combined if isinstance(part, dict)]


def _property(part: dict[str, Json], name: str) -> Json:
    properties = part.get("properties")
    return properties.get(name) if isinstance(properties, dict) else None


def _argument_schemas(entries: dict[str, dict[str, Json]]) -> dict[str, ArgumentSchema]:
    """Return the schemas of all functions, compiled together, as they may refer to each other."""
    document: dict[str, Json] = {"functions": dict(entries)}
    found: dict[str, Json] = {name: _arguments(entry) for name, entry in entries.items()}
    document["arguments"] = found
    compiled = compiled_all([f"/arguments/{name}" for name in found], document)
    if isinstance(compiled, SchemaFault):
        raise _Refused(compiled.problem)
    return dict(zip(found, compiled, strict=True))


def _arguments(entry: dict[str, Json]) -> Json:
    schemas = [args for part in _parts(entry) if isinstance(args := _property(part, "args"), dict)]
    if not schemas:
        return _TAKES_NOTHING
    return schemas[0] if len(schemas) == 1 else {"allOf": [*schemas]}


def _function(
    name: str, entry: dict[str, Json], schema: ArgumentSchema, body: Body | None
) -> Function:
    callers = entry.get("allowedCallers", "rendererOnly")
    return Function(
        name=name,
        arguments=schema,
        return_type=_one_of(entry["returnType"], get_args(ReturnType)),
        allowed_callers=_one_of(callers, get_args(AllowedCallers)),
        requires_user_activation=entry.get("requiresUserActivation") is True,
        body=body,
    )


def _one_of(value: Json, words: tuple[Word, ...]) -> Word:
    return next(word for word in words if word == value)
