"""What the package may import, and that nobody pays for it who does not use it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import genagent_protocol.rpc

PACKAGE = Path(genagent_protocol.rpc.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ALLOWED = {
    "bisect",
    "collections",
    "dataclasses",
    "datetime",
    "decimal",
    "json",
    "math",
    "re",
    "typing",
    "urllib",
    "__future__",
    "genagent_protocol",
}
#: What the RPC shares with the rest: plain values, and the one tree of exceptions.
VALUES = {"genagent_protocol.plain", "genagent_protocol.errors"}
SCHEMA_LIBRARIES = {"jsonschema", "referencing"}
KNOW_SCHEMAS = {"schemas.py", "keywords.py", "check.py"}


def imported(module: Path) -> Iterator[str]:
    """Yield the full name of everything that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield str(node.module)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_of_the_rpc_imports_values_only(module: Path) -> None:
    """No clock, no randomness, no loop, no file, no log: the host has those."""
    roots = {name.split(".")[0] for name in imported(module)}

    assert roots - SCHEMA_LIBRARIES <= ALLOWED
    assert not roots & SCHEMA_LIBRARIES or module.name in KNOW_SCHEMAS


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_rpc_stands_on_plain_values_alone(module: Path) -> None:
    """It knows nothing of turns, supervision or the daemon's own wire."""
    ours = {name for name in imported(module) if name.startswith("genagent_protocol")}

    assert all(name in VALUES or name.startswith("genagent_protocol.rpc") for name in ours)


def test_the_protocol_package_does_not_import_the_rpc() -> None:
    """Its schema library takes a tenth of a second that an agent without RPC must not pay."""
    root = PACKAGE.parent / "__init__.py"

    assert not [name for name in imported(root) if "rpc" in name]


def test_the_public_names_are_there() -> None:
    """What is promised can be imported."""
    for name in genagent_protocol.rpc.__all__:
        assert hasattr(genagent_protocol.rpc, name), name
