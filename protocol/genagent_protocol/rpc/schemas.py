"""What a function's arguments must look like, as they are written and as they are resolved.

Both shapes come from one schema: its references to the protocol's common types
lead to different definitions. This is the only module that knows how JSON
Schema is applied. No reference is ever fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, Schema

from genagent_protocol.rpc.common_types import (
    RESOLVED,
    RESOLVED_BOOLEAN,
    RESOLVED_EXPRESSION,
    WRITTEN,
)
from genagent_protocol.rpc.json_values import Arguments, Json

_ROOM: Final = "https://catalog.invalid/"
_CATALOG: Final = f"{_ROOM}catalog.json"
#: Catalogs name the common types by this file name beside them, or by its full address.
_COMMON_TYPES: Final = (
    f"{_ROOM}common_types.json",
    "https://a2ui.org/specification/v1_0/common_types.json",
)
#: Means `false`.
_FORBIDDEN: Final[dict[str, Json]] = {"not": {}, "$comment": "false"}
#: What people overlook who put a schema with references of its own into a catalog document.
_ROOT_HINT: Final = (
    "; # is the root of the catalog document, so inside of args it is "
    "'#/functions/NAME/properties/args'"
)
_MAX_SHOWN: Final = 200
_MAX_PROBLEMS: Final = 3
#: Among how many errors those are chosen; a long list may be wrong in every item.
_MAX_LOOKED_AT: Final = 1_000
#: Keywords that would give a part of the schema an identity of its own.
_IDENTITIES: Final = frozenset({"$id", "$anchor", "$dynamicRef", "$dynamicAnchor"})
#: Keywords whose value is data and not a schema.
_QUOTATIONS: Final = frozenset({"const", "enum", "default", "examples"})
#: Keywords whose messages in `jsonschema` quote names of arguments and no values.
_NAMING_KEYS_ONLY: Final = frozenset(
    {"required", "unevaluatedProperties", "additionalProperties", "dependentRequired"}
)


class _Error(Protocol):
    """What is read of one error that `jsonschema` reports."""

    absolute_path: Sequence[str | int]
    context: Sequence[_Error]
    instance: object
    message: str
    schema: object
    validator: str | None
    validator_value: object


class _Validator(Protocol):
    def iter_errors(self, instance: object, /) -> Iterator[_Error]: ...


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """Why a schema cannot be used, in words for whoever wrote the catalog."""

    problem: str


@dataclass(frozen=True, slots=True)
class ArgumentSchema:
    """The arguments that one function takes. Equal texts are equal schemas."""

    pointer: str
    document_text: str
    _written: _Validator = field(compare=False, repr=False)
    _resolved: _Validator = field(compare=False, repr=False)

    def written_problem(self, args: Arguments) -> str | None:
        """Say what is wrong with arguments as they are written, or None."""
        return _problem(self._written.iter_errors(args))

    def resolved_problem(self, args: Arguments) -> str | None:
        """Say what is wrong with resolved arguments, or None; they are settled first."""
        problem = _problem(self._resolved.iter_errors(args))
        if problem is not None and self._settled_any(args):
            problem = _problem(self._resolved.iter_errors(args))
        return problem

    def settle(self, args: Arguments) -> None:
        """Put its `valid` in the place of every validation result where a boolean is wanted.

        The arguments are changed in place. This does not touch a place that the
        schema does not make a DynamicBoolean, and does not say what else is wrong.
        """
        self._settled_any(args)

    def _settled_any(self, args: Arguments) -> bool:
        if "DynamicBoolean" not in self.document_text:
            return False
        return _settle_all(args, self._resolved.iter_errors(args))


def compiled(schema: dict[str, Json]) -> ArgumentSchema | SchemaFault:
    """Return the argument schema of a function that is defined in code.

    It is a document of its own: `#` is its root, and it may hold `$defs`.
    """
    schemas = compiled_all([""], schema)
    return schemas if isinstance(schemas, SchemaFault) else schemas[0]


def compiled_all(
    pointers: Sequence[str], document: dict[str, Json]
) -> list[ArgumentSchema] | SchemaFault:
    """Return the argument schemas that *pointers* lead to inside *document*.

    References are followed here and now, so that one that leads nowhere is a
    fault and not a surprise at the first call.
    """
    written, resolved = (_registry(document, types) for types in (WRITTEN, RESOLVED))
    whole = list(pointers) == [""]
    problem = _keyword_problem(document) or _reference_problem(document, written, whole=whole)
    for pointer in pointers:
        found = written.resolver().lookup(f"{_CATALOG}#{pointer}")
        problem = problem or _schema_problem(found.contents)
    if problem is not None:
        return SchemaFault(problem)
    text = json.dumps(document, sort_keys=True)
    return [
        ArgumentSchema(pointer, text, _validator(pointer, written), _validator(pointer, resolved))
        for pointer in pointers
    ]


def _registry(document: dict[str, Json], types: dict[str, Json]) -> Registry[Schema]:
    common: Schema = {"$defs": types}
    named = _with_places(document)
    assert isinstance(named, dict)
    resources = [(_CATALOG, DRAFT202012.create_resource(named))]
    resources += [(name, DRAFT202012.create_resource(common)) for name in _COMMON_TYPES]
    return Registry().with_resources(resources)


def _with_places(schema: Json) -> Json:
    """Return *schema* with every property that is `false` written so that an error has its place.

    `jsonschema` reports what a bare `false` forbids without saying where that is.
    """
    if isinstance(schema, list):
        return [_with_places(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    written = {
        key: value if key in _QUOTATIONS else _with_places(value) for key, value in schema.items()
    }
    for keyword in ("properties", "patternProperties"):
        named = written.get(keyword)
        if isinstance(named, dict):
            written[keyword] = {
                name: _FORBIDDEN if value is False else value for name, value in named.items()
            }
    return written


def _validator(pointer: str, registry: Registry[Schema]) -> _Validator:
    made: _Validator = Draft202012Validator({"$ref": f"{_CATALOG}#{pointer}"}, registry=registry)
    return made


def _keyword_problem(schema: Json) -> str | None:
    """Say which keyword cannot be used here, or which pattern cannot be read."""
    for key, value in _keywords(schema):
        if key in _IDENTITIES:
            return f"{key} is not allowed in the schema of arguments"
        patterns = [value] if key == "pattern" else value if key == "patternProperties" else []
        for pattern in patterns if isinstance(patterns, list | dict) else []:
            if isinstance(pattern, str) and not _is_pattern(pattern):
                return f"the pattern {pattern[:_MAX_SHOWN]!r} cannot be read"
    return None


def _reference_problem(schema: Json, registry: Registry[Schema], *, whole: bool) -> str | None:
    resolver = registry.resolver(base_uri=_CATALOG)
    for key, value in _keywords(schema):
        if key == "$ref" and isinstance(value, str):
            try:
                resolver.lookup(value)
            except (Unresolvable, ValueError):
                nowhere = f"the reference {value[:_MAX_SHOWN]!r} leads nowhere"
                return nowhere if whole or not value.startswith("#") else f"{nowhere}{_ROOT_HINT}"
    return None


def _schema_problem(schema: Schema) -> str | None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = "/".join(str(step) for step in error.absolute_path)
        return f"not a JSON Schema at {where or 'its root'}"
    return None


def _keywords(schema: Json) -> Iterator[tuple[str, Json]]:
    """Yield every key of every object in *schema*, except inside data that it quotes."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            yield key, value
            if key not in _QUOTATIONS:
                yield from _keywords(value)


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _problem(errors: Iterable[_Error]) -> str | None:
    some = [error for _, error in zip(range(_MAX_LOOKED_AT), errors, strict=False)]
    found = sorted(some, key=lambda error: len(error.absolute_path))
    # An argument that fails its own schema counts as unevaluated too, which
    # would only hide what is really wrong with it.
    telling = [error for error in found if error.validator != "unevaluatedProperties"] or found
    described = "; ".join(_described(error) for error in telling[:_MAX_PROBLEMS])
    return described[:_MAX_SHOWN] or None


def _described(error: _Error) -> str:
    """Say what is wrong without quoting the value: it may be long, and may be someone's data."""
    where = "/".join(str(step) for step in error.absolute_path) or "the arguments"
    if error.validator in _NAMING_KEYS_ONLY:
        return error.message
    if error.validator == "type":
        return f"{where}: wanted is {_names(error.validator_value)}"
    if error.schema == RESOLVED_EXPRESSION:
        return f"{where}: a binding or a call is wanted here, and was resolved"
    if error.validator is None or error.schema == _FORBIDDEN:
        return f"{where}: not allowed"
    return f"{where}: breaks {error.validator} {json.dumps(error.validator_value)[:_MAX_SHOWN]}"


def _names(types: object) -> str:
    return " or ".join(types) if isinstance(types, list) else str(types)


def _settle_all(args: Arguments, errors: Iterable[_Error]) -> bool:
    """Settle what `errors` complains of, as far as it is a validation result; tell if any was."""
    settled = [_settle(args, path) for path in list(_places_of_booleans(errors))]
    return any(settled)


def _places_of_booleans(errors: Iterable[_Error]) -> Iterator[list[str | int]]:
    """Yield where something else stands in the place of a DynamicBoolean."""
    for error in errors:
        yield from _places_of_booleans(error.context)
        if error.schema == RESOLVED_BOOLEAN and error.absolute_path:
            yield list(error.absolute_path)


def _settle(args: Arguments, path: Sequence[str | int]) -> bool:
    parent: Json = args
    for step in path[:-1]:
        parent = _item(parent, step)
    found = _item(parent, path[-1])
    validity = found.get("valid") if isinstance(found, dict) else None
    if not isinstance(validity, bool):
        return False
    if isinstance(parent, dict):
        parent[str(path[-1])] = validity
    elif isinstance(parent, list):
        parent[int(path[-1])] = validity
    return True


def _item(container: Json, step: str | int) -> Json:
    if isinstance(container, dict):
        return container[str(step)]
    assert isinstance(container, list)
    return container[int(step)]
