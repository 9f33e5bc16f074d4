"""One check of a value against a schema: its work counted, and nothing of it done twice.

Every part of a schema that is held against a value is counted first, and what became
of a part and a value is remembered for the length of the check: alternatives that
lead back to themselves would double with every level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeAlias

from jsonschema import FormatChecker
from jsonschema.exceptions import ValidationError

from genagent_protocol.rpc.limits import SCHEMA_ERROR_STEPS, SCHEMA_PART_STEPS

Schema: TypeAlias = "bool | dict[str, Any]"
Errors: TypeAlias = "Iterable[ValidationError]"
#: What applies one keyword: the validator, the keyword's value, the instance, the schema around.
Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Errors]
#: Where a reference leads.
Lookup: TypeAlias = Callable[[str], Schema]

_NOTHING: Final[set[int]] = set()


class Work(Protocol):
    """What counts the work of a check."""

    def work(self, steps: int) -> None:
        """Count so many steps; it raises when there are none left."""


class Check(FormatChecker):  # type: ignore[misc]  # jsonschema comes without types
    """One check of one value, which must not change meanwhile.

    It takes the place of what checks formats, as that is what `jsonschema` hands
    from each validator to those of the parts of its schema; formats are not checked.
    """

    def __init__(self, work: Work, lookup: Lookup, *, thorough: bool = False) -> None:
        """Begin a check; a *thorough* one looks on where something is wrong already."""
        super().__init__(formats=())
        self.lookup = lookup
        #: The ids of validation results that stand where a boolean is wanted.
        self.unsettled: set[int] = set()
        self._work = work
        self._thorough = thorough
        self._parts: dict[int, Any] = {}
        self._applied: dict[int, list[tuple[Keyword, Any]]] = {}
        #: By the ids of a part and a value: whether it is valid, and what is unsettled in it.
        self._known: dict[tuple[int, int], tuple[bool, set[int]]] = {}

    def count(self, steps: int) -> None:
        """Count work; it raises when there was too much."""
        self._work.work(steps)

    def errors(
        self, validator: Any, instance: Any, schema: Schema, place: str | int | None = None
    ) -> Iterator[ValidationError]:
        """Yield what is wrong with *instance*, which stands at *place*."""
        self.count(SCHEMA_PART_STEPS)
        for error in self._found(validator, instance, schema):
            if place is not None:
                error.path.appendleft(place)
            yield error

    def valid(self, validator: Any, instance: Any, schema: Schema) -> bool:
        """Tell whether *instance* is valid; the second time it is known."""
        self.count(SCHEMA_PART_STEPS)
        key = (id(schema), id(instance))
        known = self._known.get(key)
        if known is not None:
            return known[0]
        around = self.unsettled
        if self._thorough:
            self.unsettled = set()
        wrong = int(schema is False)
        # As `iter_errors` does, and all in one frame: a grammar takes many steps for each
        # level of a value, and all of them are on the stack at once.
        for apply, value in self._keywords(validator, schema):
            for _ in apply(validator, value, instance, schema):
                wrong += 1
                if not self._thorough:
                    break
            if wrong and not self._thorough:
                break
        inside = self.unsettled if self._thorough else _NOTHING
        self.unsettled = around
        self.count(wrong * SCHEMA_ERROR_STEPS)
        self._known[key] = (not wrong, inside)
        return not wrong

    def _keywords(self, validator: Any, schema: Schema) -> list[tuple[Keyword, Any]]:
        """Return what is applied for each keyword of *schema*, and the keyword's value."""
        if isinstance(schema, bool):
            return []
        known = self._applied.get(id(schema))
        if known is None:
            each = validator.VALIDATORS
            known = [(each[name], value) for name, value in schema.items() if name in each]
            self._applied[id(schema)] = known
        return known

    def blamed(self, validator: Any, instance: Any, schema: Schema) -> Errors:
        """Return what is wrong with *instance*, of which `valid` found that something is."""
        if not self._thorough:
            return self.errors(validator, instance, schema)
        self.blame(instance, schema)
        return (ValidationError(""),)

    def blame(self, instance: Any, *schemas: Schema) -> None:
        """Take over what is unsettled in parts that were found not to be valid."""
        for schema in schemas:
            unsettled = self._known[(id(schema), id(instance))][1]
            self.count(len(unsettled))
            self.unsettled |= unsettled

    def _found(self, validator: Any, instance: Any, schema: Schema) -> Iterator[ValidationError]:
        if schema is False:
            forbidden = ValidationError("", validator=None, validator_value=None, schema=False)
            return iter((forbidden,))
        part = self._parts.get(id(schema))
        if part is None:
            part = self._parts[id(schema)] = validator.evolve(schema=schema)
        found: Iterator[ValidationError] = part.iter_errors(instance)
        return found
