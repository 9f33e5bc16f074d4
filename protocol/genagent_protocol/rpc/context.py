"""Where a dynamic value is evaluated: a surface, a scope inside its data, a place in a list.

A surface here is what evaluation needs of it and no more. Its data model belongs
to whoever renders it; it is only read, and what is read is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from genagent_protocol.plain import FrozenDict
from genagent_protocol.rpc.catalog import Catalog, catalog_named
from genagent_protocol.rpc.faults import ExpressionFault
from genagent_protocol.rpc.json_values import Json
from genagent_protocol.rpc.paths import ROOT, joined, value_at
from genagent_protocol.rpc.versions import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """A surface: its data model, its catalogs, and the one its calls use unless they say.

    A surface without an id is the place of a call that names no surface.
    """

    surface_id: str | None
    catalogs: tuple[Catalog, ...]
    data_model: dict[str, Json] | FrozenDict = field(default_factory=dict)
    default_catalog_id: str | None = None
    version: str = VERSION

    def catalog_for(self, function_name: str, catalog_id: str | None) -> Catalog:
        """Return the catalog that a call inside this surface is looked up in.

        It is the one the call names, else the surface's default; never the only
        one there is, and never one of another protocol version.

        Raises:
            ExpressionFault: there is no such catalog, or the call names none and
                the surface has no default.
        """
        wanted = self.default_catalog_id if catalog_id is None else catalog_id
        if wanted is None:
            raise ExpressionFault(
                f"Function call '{function_name}' names no catalogId and surface "
                f"{self.surface_id} has no default catalogId."
            )
        catalog = catalog_named(self.catalogs, wanted)
        if catalog is None or not catalog.serves(self.version):
            raise ExpressionFault(f"Catalog not found: {wanted}")
        return catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class DataContext:
    """A place on a surface: what relative paths start from, and the index in the nearest list."""

    surface: Surface
    scope: str = ROOT
    index: int | None = None

    def nested(self, path: str, index: int | None = None) -> DataContext:
        """Return the context of *path* inside this one.

        Without an *index* the list around this one counts.
        """
        return replace(
            self,
            scope=self.absolute(path),
            index=self.index if index is None else index,
        )

    def at_root(self) -> DataContext:
        """Return the surface's root context, which is where calls from outside run."""
        return DataContext(surface=self.surface)

    def absolute(self, path: str) -> str:
        """Return *path* as an absolute one."""
        return joined(self.scope, path)

    def value(self, path: str) -> object:
        """Return what *path* leads to, or None; the value is the data model's own."""
        return value_at(self.surface.data_model, self.absolute(path))
