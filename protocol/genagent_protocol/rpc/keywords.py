"""How each keyword of JSON Schema is applied: counted as work, and without quoting a value.

`jsonschema` answers however long that takes, and each of its complaints repeats the
whole value. What is valid here is what `jsonschema` finds valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from genagent_protocol.rpc.check import Check, Errors, Keyword, Schema
from genagent_protocol.rpc.common_types import RESOLVED_BOOLEAN
from genagent_protocol.rpc.json_values import Json
from genagent_protocol.rpc.limits import SCHEMA_CHARACTER_STEPS, SCHEMA_KEYWORD_STEPS

_OF_JSONSCHEMA: Final[Mapping[str, Keyword]] = Draft202012Validator.VALIDATORS


def _check(validator: Any, steps: int = SCHEMA_KEYWORD_STEPS) -> Check:
    """Return the check that a keyword belongs to, and count the keyword."""
    check = validator.format_checker
    assert isinstance(check, Check)
    check.count(steps)
    return check


# Parts that are held against the same value


def _ref(validator: Any, ref: str, instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    target = check.lookup(ref)
    # All that leads back to itself does so through here, and only with what has parts.
    if not isinstance(instance, list | dict):
        return check.errors(validator, instance, target)
    if check.valid(validator, instance, target):
        return ()
    return check.blamed(validator, instance, target)


def _all_of(validator: Any, parts: list[Schema], instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    for part in parts:
        yield from check.errors(validator, instance, part)


def _any_of(validator: Any, parts: list[Schema], instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    for part in parts:
        if check.valid(validator, instance, part):
            return
    check.blame(instance, *parts)
    yield ValidationError("")


def _one_of(validator: Any, parts: list[Schema], instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    fitting = 0
    for part in parts:
        fitting += check.valid(validator, instance, part)
    if not fitting:
        check.blame(instance, *parts)
    if fitting != 1:
        yield ValidationError("")


def _not(validator: Any, part: Schema, instance: Any, _schema: Any) -> Errors:
    if _check(validator).valid(validator, instance, part):
        yield ValidationError("")


def _if(validator: Any, part: Schema, instance: Any, schema: dict[str, Any]) -> Errors:
    check = _check(validator)
    chosen = "then" if check.valid(validator, instance, part) else "else"
    return check.errors(validator, instance, schema[chosen]) if chosen in schema else ()


def _dependent_schemas(
    validator: Any, parts: dict[str, Schema], instance: Any, _schema: Any
) -> Errors:
    check = _check(validator, SCHEMA_KEYWORD_STEPS * (1 + len(parts)))
    for name, part in parts.items():
        if isinstance(instance, dict) and name in instance:
            yield from check.errors(validator, instance, part)


# Parts that are held against what is inside a value


def _properties(validator: Any, parts: dict[str, Schema], instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    if isinstance(instance, dict):
        for name, part in parts.items():
            if name in instance:
                yield from check.errors(validator, instance[name], part, name)


def _pattern_properties(
    validator: Any, parts: dict[str, Schema], instance: Any, _schema: Any
) -> Errors:
    check = _check(validator)
    if isinstance(instance, dict):
        check.count(len(parts) * _reading(instance))
        for pattern, part in parts.items():
            for name, item in instance.items():
                if re.search(pattern, name):
                    yield from check.errors(validator, item, part, name)


def _additional_properties(
    validator: Any, part: Schema, instance: Any, schema: dict[str, Any]
) -> Errors:
    check = _check(validator)
    if not isinstance(instance, dict) or part is True:
        return ()
    check.count((1 + len(schema.get("patternProperties", ()))) * _reading(instance))
    extra = [name for name in instance if not _is_declared(name, schema)]
    if part is False:
        return _unexpected("Additional", extra)
    return (
        error for name in extra for error in check.errors(validator, instance[name], part, name)
    )


def _unexpected(what: str, names: list[str]) -> Errors:
    """Return the error that an object has these names, if there are any; no value is quoted."""
    if not names:
        return ()
    shown, verb = ", ".join(map(repr, sorted(names))), "was" if len(names) == 1 else "were"
    return (ValidationError(f"{what} properties are not allowed ({shown} {verb} unexpected)"),)


def _is_declared(name: str, schema: dict[str, Any]) -> bool:
    """Tell whether a property has a schema of its own beside `additionalProperties`."""
    patterns = schema.get("patternProperties", ())
    return name in schema.get("properties", ()) or any(
        re.search(pattern, name) for pattern in patterns
    )


def _property_names(validator: Any, part: Schema, instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    if isinstance(instance, dict):
        for name in instance:
            yield from check.errors(validator, name, part)


def _items(validator: Any, part: Schema, instance: Any, schema: dict[str, Any]) -> Errors:
    check = _check(validator)
    if isinstance(instance, list) and part is not True:
        for place in range(len(schema.get("prefixItems", ())), len(instance)):
            yield from check.errors(validator, instance[place], part, place)


def _prefix_items(validator: Any, parts: list[Schema], instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    if isinstance(instance, list):
        for place, (item, part) in enumerate(zip(instance, parts, strict=False)):
            yield from check.errors(validator, item, part, place)


def _contains(validator: Any, part: Schema, instance: Any, schema: dict[str, Any]) -> Errors:
    check = _check(validator)
    if isinstance(instance, list):
        found = 0
        for item in instance:
            found += check.valid(validator, item, part)
        least, most = schema.get("minContains", 1), schema.get("maxContains", len(instance))
        if found > most:
            yield ValidationError("", validator="maxContains", validator_value=most)
        elif found < least and found:
            yield ValidationError("", validator="minContains", validator_value=least)
        elif found < least:
            yield ValidationError("")


# What no other part of the schema has looked at


def _unevaluated_properties(
    validator: Any, part: Schema, instance: Any, schema: dict[str, Any]
) -> Errors:
    check = _check(validator)
    if isinstance(instance, dict):
        seen = _evaluated_names(validator, instance, schema)
        left = [
            name
            for name in sorted(instance.keys() - seen)
            if not check.valid(validator, instance[name], part)
        ]
        if left:
            check.count(_reading(instance))
            yield from _unexpected("Unevaluated", left)


def _evaluated_names(validator: Any, instance: dict[str, Any], schema: Schema) -> set[str]:
    check = _check(validator)
    seen: set[str] = set()
    for applied in _applied(validator, instance, schema):
        check.count(_reading(instance))
        seen |= applied.get("properties", {}).keys() & instance.keys()
        if "additionalProperties" in applied:
            # It looks at what its neighbours do not, and they are counted as well.
            seen.update(instance)
        for pattern in applied.get("patternProperties", ()):
            check.count(_reading(instance))
            seen.update(name for name in instance if re.search(pattern, name))
        inner = applied.get("unevaluatedProperties") if applied is not schema else None
        if inner is not None:
            seen.update(instance)
    return seen


def _unevaluated_items(
    validator: Any, part: Schema, instance: Any, schema: dict[str, Any]
) -> Errors:
    check = _check(validator)
    if isinstance(instance, list):
        seen = _evaluated_places(validator, instance, schema)
        left = [place for place in range(len(instance)) if place not in seen]
        if any(not check.valid(validator, instance[place], part) for place in left):
            yield ValidationError("")


def _evaluated_places(validator: Any, instance: list[Any], schema: Schema) -> set[int]:
    check = _check(validator)
    seen: set[int] = set()
    for applied in _applied(validator, instance, schema):
        check.count(SCHEMA_KEYWORD_STEPS)
        whole = "items" in applied or (applied is not schema and "unevaluatedItems" in applied)
        seen.update(range(len(instance) if whole else len(applied.get("prefixItems", ()))))
        if "contains" in applied:
            part = applied["contains"]
            places = enumerate(instance)
            seen.update(place for place, item in places if check.valid(validator, item, part))
    return seen


def _applied(validator: Any, instance: Any, schema: Schema) -> Iterator[dict[str, Any]]:
    """Yield *schema* and all parts of it that are held against *instance* itself, and hold."""
    check = _check(validator)
    if not isinstance(schema, dict):
        return
    yield schema
    if "$ref" in schema:
        yield from _applied(validator, instance, check.lookup(schema["$ref"]))
    for keyword in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(keyword, ()):
            if check.valid(validator, instance, part):
                yield from _applied(validator, instance, part)
    if "if" in schema:
        holds = check.valid(validator, instance, schema["if"])
        if holds:
            yield from _applied(validator, instance, schema["if"])
        yield from _applied(validator, instance, schema.get("then" if holds else "else", True))
    for name, part in schema.get("dependentSchemas", {}).items():
        if isinstance(instance, dict) and name in instance:
            yield from _applied(validator, instance, part)


# What is asked of a value itself


def _type(validator: Any, types: str | list[str], instance: Any, schema: dict[str, Any]) -> Errors:
    check = _check(validator)
    wanted = [types] if isinstance(types, str) else types
    if not any(validator.is_type(instance, kind) for kind in wanted):
        if schema == RESOLVED_BOOLEAN and is_validation_result(instance):
            check.unsettled.add(id(instance))
        yield ValidationError("")


def is_validation_result(value: object) -> bool:
    """Tell whether *value* is what a validator of the basic catalog gives."""
    return isinstance(value, dict) and isinstance(value.get("valid"), bool)


def _const(validator: Any, const: Json, instance: Any, _schema: Any) -> Errors:
    if not _is_among(_check(validator), instance, [const]):
        yield ValidationError("")


def _enum(validator: Any, values: list[Json], instance: Any, _schema: Any) -> Errors:
    if not _is_among(_check(validator), instance, values):
        yield ValidationError("")


def _is_among(check: Check, instance: Any, values: list[Json]) -> bool:
    check.count(len(values))
    if not isinstance(instance, list | dict):
        truth = isinstance(instance, bool)  # To Python True is 1.
        return any(value == instance and isinstance(value, bool) == truth for value in values)
    alike = [value for value in values if isinstance(value, list | dict)]
    return bool(alike) and _text(check, instance) in {_text(check, value) for value in alike}


def _unique_items(validator: Any, wanted: bool, instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    if wanted and isinstance(instance, list):
        texts: set[str] = set()
        for item in instance:
            texts.add(_text(check, item))
        if len(texts) < len(instance):
            yield ValidationError("")


def _text(check: Check, value: Json) -> str:
    """Return a text that two values have in common if, and only if, JSON Schema calls them equal.

    A text and no number, because the hashes of texts cannot be foreseen.
    """
    return json.dumps(_whole(check, value), sort_keys=True)


def _whole(check: Check, value: Json) -> Json:
    """Return *value* with each number without a fraction as an integer: 1.0 is 1."""
    check.count(SCHEMA_KEYWORD_STEPS)
    match value:
        case list():
            return [_whole(check, item) for item in value]
        case dict():
            check.count(_reading(value))
            return {name: _whole(check, item) for name, item in value.items()}
        case str():
            check.count(len(value) * SCHEMA_CHARACTER_STEPS // 64)
        case float() if value.is_integer():
            return int(value)
    return value


def _sized(kind: type[Sized], fits: Callable[[int, int], bool]) -> Keyword:
    def applied(validator: Any, limit: int, instance: Any, _schema: Any) -> Errors:
        _check(validator)
        if isinstance(instance, kind) and not fits(len(instance), limit):
            yield ValidationError("")

    return applied


def _counted(keyword: str) -> Keyword:
    """Return what applies a keyword as `jsonschema` does; it is told of the names of arguments."""
    told = _OF_JSONSCHEMA[keyword]

    def applied(validator: Any, value: Any, instance: Any, schema: dict[str, Any]) -> Errors:
        length = len(value) if isinstance(value, list | dict) else 0
        _check(validator, SCHEMA_KEYWORD_STEPS * (1 + length))
        return told(validator, value, instance, schema)

    return applied


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Errors:
    check = _check(validator)
    if isinstance(instance, str):
        check.count(len(instance) * SCHEMA_CHARACTER_STEPS)
        if not re.search(pattern, instance):
            yield ValidationError("")


def _reading(instance: dict[str, Any]) -> int:
    """Return the steps that it takes to read the names in an object."""
    return len(instance) * SCHEMA_KEYWORD_STEPS


def _at_least(size: int, limit: int) -> bool:
    return size >= limit


def _at_most(size: int, limit: int) -> bool:
    return size <= limit


_KEYWORDS: Final[dict[str, Keyword]] = {
    "$ref": _ref,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "dependentSchemas": _dependent_schemas,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "items": _items,
    "prefixItems": _prefix_items,
    "contains": _contains,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
    "type": _type,
    "const": _const,
    "enum": _enum,
    "uniqueItems": _unique_items,
    "pattern": _pattern,
    "minLength": _sized(str, _at_least),
    "maxLength": _sized(str, _at_most),
    "minItems": _sized(list, _at_least),
    "maxItems": _sized(list, _at_most),
    "minProperties": _sized(dict, _at_least),
    "maxProperties": _sized(dict, _at_most),
    **{
        keyword: _counted(keyword)
        for keyword in (
            *("required", "dependentRequired", "multipleOf"),
            *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        )
    },
}

#: What `jsonschema` validates with, every keyword of it counted.
CountedValidator: Final[Any] = extend(Draft202012Validator, _KEYWORDS)
