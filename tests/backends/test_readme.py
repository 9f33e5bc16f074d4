"""What the README of the backends shows is what happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import genagent_backends
from genagent_backends.conformance import BackendConformance
from genagent_backends.scripts import script
from genagent_protocol.plain import freeze

README = Path(__file__).parents[2] / "backends" / "README.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Mapping[str, Any]:
    """Everything the README's Python defines, run from its top to its end."""
    blocks = BLOCK.findall(README.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "readme"}
    for language, code in blocks:
        if language == "python":
            exec(compile(code, str(README), "exec", dont_inherit=True), names)
    outputs = [text for language, text in blocks if language == "text"]
    assert capsys.readouterr().out == "".join(outputs)
    return names


TESTS = [name for name in dir(BackendConformance) if name.startswith("test_")]


@pytest.mark.parametrize("test", TESTS)
def test_the_backend_that_is_shown_passes_the_test_that_is_shown(
    test: str, shown: Mapping[str, Any]
) -> None:
    """An example that does not work costs more than none."""
    getattr(shown["TestCommand"](), test)()


def test_the_script_that_is_shown_is_one(shown: Mapping[str, Any]) -> None:
    """Also the parts that would not survive being run here."""
    assert len(script(freeze(shown["options"]["script"]))) == 4
    assert shown["backend"].remaining == 3


def test_every_file_that_is_named_is_there() -> None:
    """A map to a place that has moved leads astray."""
    package = Path(genagent_backends.__file__).parent
    named = set(re.findall(r"`(?:genagent_backends/)?(\w+\.py)`", README.read_text()))

    assert named
    assert {name for name in named if not (package / name).exists()} == set()
