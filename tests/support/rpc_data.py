"""The data of the A2UI tests: ours beside the tests, the published from where it is.

Published data is never part of this project. It is read from a `shared` folder
beside the checkout or, as far as it is in there, from the package `a2ui-core`;
where neither has it, the test that wants it is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
OURS = ROOT / "tests" / "protocol" / "rpc" / "data"
PUBLISHED = ROOT.parent / "shared" / "a2ui"
BASIC_CATALOG = "v1_0/catalogs/basic/catalog.json"


def own(name: str) -> Any:
    """Return a file of ours, parsed."""
    return json.loads((OURS / name).read_text(encoding="utf-8"))


def published(name: str) -> Any:
    """Return a published file, parsed; the test is skipped where it is not to be had."""
    path = PUBLISHED / name
    if path.exists():
        text = path.read_text(encoding="utf-8")
        return yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
    if name in _PACKAGED:
        return _PACKAGED[name]()
    pytest.skip(f"the published A2UI file {name} is neither beside this checkout nor in a2ui-core")


def published_cases(name: str) -> list[Any]:
    """Return published cases for parametrization; none where the file is not to be had."""
    path = PUBLISHED / name
    if not path.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{name} is not to be had"))]
    loaded = published(name)
    cases: list[Any] = loaded["tests"] if isinstance(loaded, dict) else loaded
    return [pytest.param(case, id=case.get("name", case.get("description"))) for case in cases]


def _packaged_basic_catalog() -> Any:
    module = pytest.importorskip("a2ui.core.basic_catalog.v1_0", reason="a2ui-core is missing")
    return module.BasicCatalog().to_json()


def _packaged_common_types() -> Any:
    module = pytest.importorskip("a2ui.core.schema.common_types_schema")
    schema = pytest.importorskip("a2ui.core.schema")
    return module.get_common_types_schema_map(schema.ProtocolVersion.V1_0)


def _packaged_agent_messages() -> Any:
    module = pytest.importorskip("a2ui.core.schema.agent_to_renderer_schema")
    schema = pytest.importorskip("a2ui.core.schema")
    return module.get_agent_to_renderer_schema_map(schema.ProtocolVersion.V1_0)


_PACKAGED: dict[str, Callable[[], Any]] = {
    BASIC_CATALOG: _packaged_basic_catalog,
    "v1_0/common_types.json": _packaged_common_types,
    "v1_0/agent_to_renderer.json": _packaged_agent_messages,
}
