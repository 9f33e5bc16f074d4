"""What the basic catalog promises of each function: arguments, result, who may call.

It is the published document in our own words, without components and prose; a
test holds the two against each other. No function names its callers, so only
the renderer may call any of them, and `openUrl` needs a gesture besides.
"""

from __future__ import annotations

from typing import Final

from genagent_protocol.rpc.functions import ReturnType
from genagent_protocol.rpc.json_values import Json

BASIC_CATALOG_ID: Final = "https://a2ui.org/specification/v1_0/catalogs/basic/catalog.json"
_COMMON: Final = "common_types.json#/$defs/"


def _dynamic(kind: str) -> dict[str, Json]:
    return {"$ref": f"{_COMMON}{kind}"}


_STRING: Final = _dynamic("DynamicString")
_NUMBER: Final = _dynamic("DynamicNumber")
_BOOLEAN: Final = _dynamic("DynamicBoolean")
_VALUE: Final = _dynamic("DynamicValue")
_TEXT: Final[dict[str, Json]] = {"type": "string"}
_COUNT: Final[dict[str, Json]] = {"type": "integer", "minimum": 0}
_LIMIT: Final[dict[str, Json]] = {"type": "number"}
_BOOLEANS: Final[dict[str, Json]] = {"type": "array", "minItems": 2, "items": _BOOLEAN}
_URL: Final[dict[str, Json]] = {
    "oneOf": [
        {"type": "string", "format": "uri"},
        _dynamic("DataBinding"),
        _dynamic("FunctionCall"),
    ]
}
_MIN_OR_MAX: Final[dict[str, Json]] = {"anyOf": [{"required": ["min"]}, {"required": ["max"]}]}


def _function(
    returns: ReturnType,
    required: dict[str, Json],
    optional: dict[str, Json] | None = None,
    rule: dict[str, Json] | None = None,
) -> dict[str, Json]:
    names: list[Json] = [*required]
    args: dict[str, Json] = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": names,
        "unevaluatedProperties": False,
        **(rule or {}),
    }
    return {
        "type": "object",
        "returnType": returns,
        "properties": {"args": args},
        "required": ["@call", "args"],
    }


_PLURALS: Final[dict[str, Json]] = dict.fromkeys(("zero", "one", "two", "few", "many"), _STRING)
_DECIMALS: Final[dict[str, Json]] = {"decimals": _NUMBER, "grouping": _BOOLEAN}

_FUNCTIONS: Final[dict[str, dict[str, Json]]] = {
    "required": _function("validationResult", {"value": {}}),
    "regex": _function("validationResult", {"value": _STRING, "pattern": _TEXT}),
    "length": _function(
        "validationResult", {"value": _STRING}, {"min": _COUNT, "max": _COUNT}, _MIN_OR_MAX
    ),
    "numeric": _function(
        "validationResult", {"value": _NUMBER}, {"min": _LIMIT, "max": _LIMIT}, _MIN_OR_MAX
    ),
    "email": _function("validationResult", {"value": _STRING}),
    "formatString": _function("string", {"value": _STRING}),
    "formatNumber": _function("string", {"value": _NUMBER}, _DECIMALS),
    "formatCurrency": _function("string", {"value": _NUMBER, "currency": _STRING}, _DECIMALS),
    "formatDate": _function("string", {"value": _VALUE, "format": _STRING}),
    "pluralize": _function("string", {"value": _NUMBER, "other": _STRING}, _PLURALS),
    "openUrl": {**_function("void", {"url": _URL}), "requiresUserActivation": True},
    "and": _function("boolean", {"values": _BOOLEANS}),
    "or": _function("boolean", {"values": _BOOLEANS}),
    "not": _function("boolean", {"value": _BOOLEAN}),
}


def basic_document() -> dict[str, Json]:
    """Return the declarations as a catalog document."""
    functions: dict[str, Json] = {
        name: _named(name, declared) for name, declared in _FUNCTIONS.items()
    }
    return {"catalogId": BASIC_CATALOG_ID, "protocolVersion": "1.0", "functions": functions}


def _named(name: str, declared: dict[str, Json]) -> dict[str, Json]:
    properties = declared["properties"]
    assert isinstance(properties, dict)
    return {**declared, "properties": {"@call": {"const": name}, **properties}}
