"""What a function's arguments must look like, as they are written and as they are resolved.

Both shapes come from one schema: its references to the protocol's common types
lead to different definitions. `keywords` knows how each keyword is applied; this
is the only module that knows what a schema may be. No reference is ever fetched,
and every schema is read as one of JSON Schema 2020-12, whatever `$schema` says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, Schema

from genagent_protocol.rpc.check import Check, Lookup, Work
from genagent_protocol.rpc.common_types import RESOLVED, RESOLVED_EXPRESSION, WRITTEN
from genagent_protocol.rpc.json_values import Arguments, Json
from genagent_protocol.rpc.keywords import CountedValidator

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
#: The parts of a catalog document that are not kept.
_NOT_KEPT: Final = ("#/components/", "#/$defs/anyComponent", "#/$defs/anyFunction")
_MAX_SHOWN: Final = 200
_MAX_PROBLEMS: Final = 3
#: Among how many errors those are chosen; a long list may be wrong in every item.
_MAX_LOOKED_AT: Final = 1_000
#: Keywords that would give a part of the schema an identity of its own.
_IDENTITIES: Final = frozenset({"$id", "$anchor", "$dynamicRef", "$dynamicAnchor"})
#: Keywords whose value is data and not a schema.
_QUOTATIONS: Final = frozenset({"const", "enum", "default", "examples", "dependentRequired"})
#: Keywords whose value holds schemas by names; a name may be spelt like a keyword and is none.
_BY_NAME: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies"}
)
#: Keywords whose messages in `jsonschema` quote names of arguments and no values.
_NAMING_KEYS_ONLY: Final = frozenset(
    {"required", "unevaluatedProperties", "additionalProperties", "dependentRequired"}
)


class _Error(Protocol):
    """What is read of one error that is found."""

    absolute_path: Sequence[str | int]
    message: str
    schema: object
    validator: str | None
    validator_value: object


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """Why a schema cannot be used, in words for whoever wrote the catalog."""

    problem: str


@dataclass(frozen=True, slots=True)
class ArgumentSchema:
    """The arguments that one function takes. Equal texts are equal schemas."""

    pointer: str
    document_text: str
    _written: _Shape = field(compare=False, repr=False)
    _resolved: _Shape = field(compare=False, repr=False)

    def written_problem(self, args: Arguments, work: Work) -> str | None:
        """Say what is wrong with arguments as they are written, or None.

        Raises: what *work* raises when it has counted too much.
        """
        return _problem(self._written.errors(args, work))

    def resolved_problem(self, args: Arguments, work: Work) -> str | None:
        """Say what is wrong with resolved arguments, or None; they are settled first.

        Raises: as `written_problem` does.
        """
        problem = _problem(self._resolved.errors(args, work))
        if problem is not None and self._settled_any(args, work):
            problem = _problem(self._resolved.errors(args, work))
        return problem

    def settle(self, args: Arguments, work: Work) -> None:
        """Put its `valid` in the place of every validation result where a boolean is wanted.

        The arguments are changed in place. This does not touch a place that the
        schema does not make a DynamicBoolean, and does not say what else is wrong.

        Raises: as `written_problem` does.
        """
        self._settled_any(args, work)

    def _settled_any(self, args: Arguments, work: Work) -> bool:
        if "DynamicBoolean" not in self.document_text:
            return False
        return _settle(args, self._resolved.unsettled(args, work))


@dataclass(frozen=True, slots=True)
class _Shape:
    """One shape of the arguments: the schema of it, ready to be applied."""

    validator: Any
    lookup: Lookup

    def errors(self, args: Arguments, work: Work) -> Iterator[_Error]:
        check = Check(work, self.lookup)
        return check.errors(self._checking(check), args, self.validator.schema)

    def unsettled(self, args: Arguments, work: Work) -> set[int]:
        """Return the ids of the validation results that stand where a boolean is wanted."""
        check = Check(work, self.lookup, thorough=True)
        if not check.valid(self._checking(check), args, self.validator.schema):
            check.blame(args, self.validator.schema)
        return check.unsettled

    def _checking(self, check: Check) -> Any:
        return self.validator.evolve(format_checker=check)


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
    whole = list(pointers) == [""]
    # A catalog's document holds schemas by their names, and is none itself.
    placed: dict[str, Json] = (
        _with_places(document)
        if whole
        else {key: _named_with_places(key, named) for key, named in document.items()}
    )
    parts: list[Json] = [placed] if whole else [_inner("$defs", part) for part in placed.values()]
    written, resolved = (_registry(placed, types) for types in (WRITTEN, RESOLVED))
    problem = _keyword_problem(parts)
    for registry, types in ((written, WRITTEN), (resolved, RESOLVED)):
        problem = problem or _reference_problem(parts, registry, types, whole=whole)
    for pointer in pointers:
        found = written.resolver().lookup(f"{_CATALOG}#{pointer}")
        problem = problem or _schema_problem(found.contents)
    if problem is not None:
        return SchemaFault(problem)
    text = json.dumps(document, sort_keys=True)
    shapes = [_shapes(pointers, registry) for registry in (written, resolved)]
    return [
        ArgumentSchema(pointer, text, *both)
        for pointer, *both in zip(pointers, *shapes, strict=True)
    ]


def _registry(document: dict[str, Json], types: dict[str, Json]) -> Registry[Schema]:
    common: Schema = {"$defs": types}
    resources = [(_CATALOG, DRAFT202012.create_resource(document))]
    resources += [(name, DRAFT202012.create_resource(common)) for name in _COMMON_TYPES]
    return Registry().with_resources(resources)


def _shapes(pointers: Sequence[str], registry: Registry[Schema]) -> list[_Shape]:
    resolver = registry.resolver(base_uri=_CATALOG)
    known: dict[str, Any] = {}

    def lookup(reference: str) -> Any:
        # No part has an identity of its own, so a reference means the same wherever it stands.
        if reference not in known:
            known[reference] = resolver.lookup(reference).contents
        return known[reference]

    return [
        _Shape(CountedValidator(lookup(f"#{pointer}"), registry=registry), lookup)
        for pointer in pointers
    ]


def _with_places(schema: dict[str, Json]) -> dict[str, Json]:
    """Return *schema* with every property that is `false` written so that an error has its place.

    `jsonschema` reports what a bare `false` forbids without saying where that is. And it
    reads a part that names another version of JSON Schema by that one's keywords, uncounted.
    """
    return {key: _placed(key, value) for key, value in schema.items() if key != "$schema"}


def _placed(key: str, value: Json) -> Json:
    if key in _QUOTATIONS:
        return value
    if key in _BY_NAME:
        return _named_with_places(key, value)
    return _parts_with_places(value)


def _named_with_places(key: str, named: Json) -> Json:
    if not isinstance(named, dict):
        return named
    hidden = key in ("properties", "patternProperties")
    return {
        name: _FORBIDDEN if hidden and part is False else _parts_with_places(part)
        for name, part in named.items()
    }


def _parts_with_places(value: Json) -> Json:
    if isinstance(value, list):
        return [_parts_with_places(item) for item in value]
    return _with_places(value) if isinstance(value, dict) else value


def _keyword_problem(parts: Json) -> str | None:
    """Say which keyword cannot be used here, or which pattern cannot be read."""
    for key, value in _keywords(parts, set()):
        if key in _IDENTITIES:
            return f"{key} is not allowed in the schema of arguments"
        patterns = [value] if key == "pattern" else value if key == "patternProperties" else []
        for pattern in patterns if isinstance(patterns, list | dict) else []:
            if isinstance(pattern, str) and not _is_pattern(pattern):
                return f"the pattern {pattern[:_MAX_SHOWN]!r} cannot be read"
    return None


def _reference_problem(
    parts: Json, registry: Registry[Schema], types: dict[str, Json], *, whole: bool
) -> str | None:
    """Say which reference leads nowhere, or into what is no schema and was looked at as none."""
    resolver = registry.resolver(base_uri=_CATALOG)
    schemas: set[int] = set()
    references = [
        value
        for key, value in _keywords([parts, _inner("$defs", types)], schemas)
        if key == "$ref" and isinstance(value, str)
    ]
    for reference in dict.fromkeys(references):
        try:
            found = resolver.lookup(reference).contents
        except (Unresolvable, ValueError):
            return _unresolved(reference, whole=whole)
        if not isinstance(found, bool) and id(found) not in schemas:
            return f"the reference {reference[:_MAX_SHOWN]!r} leads to what is no schema"
    return None


def _unresolved(reference: str, *, whole: bool) -> str:
    shown = f"the reference {reference[:_MAX_SHOWN]!r}"
    if not whole and reference.startswith(_NOT_KEPT):
        return f"{shown} is not supported in arguments, which refer to '#/functions/...' alone"
    if not reference.startswith("#"):
        return f"{shown} leads nowhere; nothing is fetched, and # is the root of the document"
    return f"{shown} leads nowhere{'' if whole else _ROOT_HINT}"


def _schema_problem(schema: Schema) -> str | None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = "/".join(str(step) for step in error.absolute_path)
        return f"not a JSON Schema at {where or 'its root'}"
    return None


def _keywords(schema: Json, schemas: set[int]) -> Iterator[tuple[str, Json]]:
    """Yield every keyword of *schema* and the schemas in it; take down the ids of those."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item, schemas)
    elif isinstance(schema, dict) and id(schema) not in schemas:
        schemas.add(id(schema))
        for key, value in schema.items():
            yield key, value
            yield from _keywords(_inner(key, value), schemas)


def _inner(key: str, value: Json) -> Json:
    """Return where in the value of a keyword further schemas stand."""
    if key in _QUOTATIONS:
        return []
    if key in _BY_NAME:
        return [*value.values()] if isinstance(value, dict) else []
    return value


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


def _settle(container: Json, unsettled: set[int]) -> bool:
    """Settle the validation results of these ids inside *container*; tell if there were any."""
    if not unsettled:
        return False
    if isinstance(container, dict):
        container.update({name: _settled(item, unsettled) for name, item in container.items()})
    elif isinstance(container, list):
        container[:] = [_settled(item, unsettled) for item in container]
    return True


def _settled(value: Json, unsettled: set[int]) -> Json:
    if isinstance(value, dict) and id(value) in unsettled:
        return value["valid"]
    _settle(value, unsettled)
    return value
