"""Functions under one catalog id: where a call that names a catalog is looked up.

A catalog belongs to one version of the protocol, and only calls of that version
see it. No URL is fetched: the id is a name and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from genagent_protocol.rpc.functions import Function
from genagent_protocol.rpc.versions import is_version, same_version

#: What catalogs that are made in code are written for.
CATALOG_VERSION = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """A catalog as far as calls are concerned; components are not kept.

    Raises:
        ValueError: the id is empty, the version is none, or two functions have one name.
    """

    catalog_id: str
    functions: tuple[Function, ...]
    protocol_version: str = CATALOG_VERSION

    def __post_init__(self) -> None:
        if not self.catalog_id:
            raise ValueError("a catalog has an id")
        if not is_version(self.protocol_version):
            raise ValueError(f"{self.protocol_version!r} is no version of the protocol")
        names = [function.name for function in self.functions]
        if len(set(names)) != len(names):
            raise ValueError(f"catalog {self.catalog_id!r} has two functions of one name")

    def function(self, name: str) -> Function | None:
        """Return the function of this name, or None."""
        return next((known for known in self.functions if known.name == name), None)

    def serves(self, version: str) -> bool:
        """Tell whether calls of this protocol version may be looked up here."""
        return same_version(self.protocol_version, version)


def catalog_named(catalogs: Iterable[Catalog], catalog_id: str) -> Catalog | None:
    """Return the catalog of this id, or None; an empty id names none."""
    return next((known for known in catalogs if known.catalog_id == catalog_id), None)
