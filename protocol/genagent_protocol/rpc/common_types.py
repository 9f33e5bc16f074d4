"""The protocol's common types that argument schemas refer to, in two shapes.

*As written*, a place for a dynamic value may hold a binding or a call instead of
the value. *Resolved*, it holds the value and nothing else: then a binding or a
call is only data that looks like one, and passes for nothing that a schema
calls dynamic.
"""

from __future__ import annotations

from typing import Final

from genagent_protocol.rpc.json_values import Json

_BINDING: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {"@path": {"type": "string"}},
    "required": ["@path"],
    "additionalProperties": False,
}
_CALL_FIELDS: Final[dict[str, Json]] = {
    "@call": {"type": "string"},
    "catalogId": {"type": "string"},
}
_CALL: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {**_CALL_FIELDS, "args": {"type": "object"}},
    "required": ["@call"],
    "additionalProperties": False,
}
#: An object that is neither binding nor call, and has no key the protocol reserves.
_PLAIN_OBJECT: Final[dict[str, Json]] = {
    "type": "object",
    "propertyNames": {"not": {"pattern": "^@([^@]|$)"}},
}
#: Its comment tells it from a boolean that a schema wants literally.
RESOLVED_BOOLEAN: Final[dict[str, Json]] = {"type": "boolean", "$comment": "DynamicBoolean"}
#: Matches nothing: what was a binding or a call has been resolved. Its comment tells it from
#: what a schema forbids itself.
RESOLVED_EXPRESSION: Final[dict[str, Json]] = {"not": {}, "$comment": "DataBinding, FunctionCall"}
_STRINGS: Final[dict[str, Json]] = {"type": "array", "items": {"type": "string"}}
_TEXT: Final[dict[str, Json]] = {"type": "string"}


def _or_dynamic(*literals: Json) -> Json:
    return {"anyOf": [*literals, _BINDING, _CALL]}


_ALWAYS: Final[dict[str, Json]] = {
    "ComponentId": _TEXT,
    "Child": _TEXT,
    "CallId": _TEXT,
    "FunctionCommon": {"type": "object", "properties": _CALL_FIELDS, "required": ["@call"]},
}
#: Names to definitions, for arguments as they are written.
WRITTEN: Final[dict[str, Json]] = {
    **_ALWAYS,
    "DataBinding": _BINDING,
    "FunctionCall": _CALL,
    "DynamicString": _or_dynamic(_TEXT),
    "DynamicNumber": _or_dynamic({"type": "number"}),
    "DynamicBoolean": _or_dynamic({"type": "boolean"}),
    "DynamicStringList": _or_dynamic(_STRINGS),
    "DynamicValue": _or_dynamic({"type": ["string", "number", "boolean", "array"]}, _PLAIN_OBJECT),
}
#: The same names to definitions, for arguments that have been resolved.
RESOLVED: Final[dict[str, Json]] = {
    **_ALWAYS,
    "DataBinding": RESOLVED_EXPRESSION,
    "FunctionCall": RESOLVED_EXPRESSION,
    "DynamicString": _TEXT,
    "DynamicNumber": {"type": "number"},
    "DynamicBoolean": RESOLVED_BOOLEAN,
    "DynamicStringList": _STRINGS,
    "DynamicValue": {"type": ["string", "number", "boolean", "array", "object"]},
}
