"""The house holds: who may import whom, one importer per library, no cycle, no work at import.

The table is design, not taste: a machine that could read a clock would not be a value,
and a daemon that imported an agent would carry every agent's libraries.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = ("genagentd", "genagent_protocol", "genagent_backends")

#: Which file alone may import a library. RPC schemas are the one room of several files.
SINGLE_IMPORTERS = {
    "zmq": {"genagentd.sockets"},
    "msgpack": {"genagent_protocol.codec"},
    "multiprocess": {"genagentd.daemon.starter"},
    "structlog": {"genagentd.daemon.report"},
    "dill": set(),
    "pickle": set(),
    "marshal": set(),
}

#: A room and what it must not import, by prefix.
FORBIDDEN = {
    "genagent_protocol": (
        *("genagentd", "genagent_backends", "zmq", "asyncio", "os", "time", "random", "uuid"),
        *("threading", "subprocess", "logging", "secrets", "socket", "selectors"),
    ),
    "genagent_protocol.turns": (
        *("genagent_protocol.supervision", "genagent_protocol.codec"),
        "genagent_protocol.envelopes",
    ),
    "genagent_protocol.supervision": (
        *("genagent_protocol.turns", "genagent_protocol.codec"),
        "genagent_protocol.envelopes",
    ),
    "genagent_backends": (
        *("genagentd", "zmq", "genagent_protocol.turns", "genagent_protocol.codec"),
        *("genagent_protocol.envelopes", "genagent_protocol.supervision", "anthropic", "openai"),
    ),
    "genagentd.client": ("genagentd.daemon", "genagentd.agent", "genagent_backends"),
    "genagentd.agent": ("genagentd.daemon", "genagentd.cli", "genagentd.client"),
    "genagentd.daemon": (
        *("genagentd.client", "genagentd.agent", "genagentd.cli", "genagent_backends"),
    ),
    "genagentd.cli": ("genagentd.agent", "genagent_backends"),
}


def modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        for path in root.rglob("*.py"):
            parts = [package, *path.relative_to(root).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(path: Path, *, at_import: bool = False) -> Iterator[str]:
    """Yield what a module imports; with *at_import* only what runs when it is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = _outside_functions(tree) if at_import else ast.walk(tree)
    for node in nodes:
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                for alias in node.names:
                    inner = f"{module}.{alias.name}"
                    # A package's front door is not used by who asks for a room in it.
                    yield inner if inner in MODULES else module


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or guarded:
            continue
        yield child
        yield from _outside_functions(child)


def under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_imports_nothing_it_must_not(room: str) -> None:
    """The import table of the design, checked on every file, functions included."""
    broken = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if under(module, room)
        for name in imports(path)
        for prefix in FORBIDDEN[room]
        if under(name, prefix)
    ]

    assert broken == []


@pytest.mark.parametrize("library", SINGLE_IMPORTERS)
def test_a_library_has_one_importer(library: str) -> None:
    """What a library looks like is known in one file, so that it can be replaced there."""
    importers = {
        module
        for module, path in MODULES.items()
        if any(under(name, library) for name in imports(path))
    }

    assert importers <= SINGLE_IMPORTERS[library]


def test_no_module_imports_itself_around_a_corner() -> None:
    """A cycle is two modules that are one module; the graph sorts, so there is none."""
    graph = {
        module: {
            name for name in imports(path, at_import=True) if name in MODULES and name != module
        }
        for module, path in MODULES.items()
    }

    assert len(list(TopologicalSorter(graph).static_order())) >= len(MODULES)


def test_every_module_explains_itself() -> None:
    """The docstring states the rule the module keeps."""
    silent = [
        module
        for module, path in MODULES.items()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert silent == []


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    """What does not fit on ten screens is two modules."""
    long = {
        module: lines
        for module, path in MODULES.items()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }

    assert long == {}


def test_time_limits_are_those_that_hold_in_a_task_being_cancelled() -> None:
    """`asyncio.timeout` of the oldest Pythons we run on does not (`genagent_backends.timeouts`)."""
    other = [
        module
        for module, path in MODULES.items()
        if "asyncio.timeout(" in (text := path.read_text()) or "asyncio.timeout_at(" in text
    ]

    assert other == []


def _fresh(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return done.stdout.strip()


def test_importing_the_package_does_nothing() -> None:
    """No thread, no socket, no configuration: what is imported in every process must be idle."""
    code = (
        "import os, threading; before = sorted(os.listdir('/proc/self/fd'))\n"
        "import genagentd\n"
        "import sys\n"
        "assert threading.active_count() == 1\n"
        "assert sorted(os.listdir('/proc/self/fd')) == before\n"
        "print('zmq' in sys.modules, 'tomllib' in sys.modules)"
    )

    assert _fresh(code) == "False False"


def test_the_daemon_does_not_carry_what_only_others_need() -> None:
    """Agents, clients, backends and schemas stay out of the daemon's memory."""
    code = (
        "import sys, genagentd.daemon.control\n"
        "rooms = ('genagentd.agent', 'genagentd.client', 'genagent_backends', 'jsonschema')\n"
        "print([m for m in sys.modules if m.startswith(rooms)])"
    )

    assert _fresh(code) == "[]"
