"""What the README of the backends shows is what happens."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import genagent_backends
from genagent_backends.base import Failed
from genagent_backends.conformance import BackendConformance
from genagent_backends.failures import failure_of
from genagent_backends.rehearsal import rehearse
from genagent_backends.scripts import script
from genagent_protocol.plain import freeze
from genagent_protocol.reasons import BackendError
from genagentd import Client

README = Path(__file__).parents[2] / "backends" / "README.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Everything the README's Python defines, run from its top to its end."""
    blocks = BLOCK.findall(README.read_text(encoding="utf-8"))
    # It says which file holds the backend; the test and the rehearsal import it from there.
    module = ModuleType("my_package.command")
    monkeypatch.setitem(sys.modules, "my_package", ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, "my_package.command", module)
    names = vars(module)
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


@pytest.mark.parametrize("options", [{}, {"command": []}])
def test_the_backend_that_is_shown_refuses_to_run_nothing(
    options: dict[str, object], shown: Mapping[str, Any]
) -> None:
    """At the start, where whoever gave the options hears it."""
    refused = shown["CommandBackend"]().start_session(freeze(options))

    assert isinstance(refused, Failed)
    assert "command must name a program" in str(refused.reason)


async def test_a_program_that_is_not_there_is_an_error_event(shown: Mapping[str, Any]) -> None:
    """The page's own rule: a failure during the turn is no exception."""
    session = shown["CommandSession"](("there-is-no-such-program",))

    done = await rehearse(shown["CommandBackend"](), session, "hello")

    assert done.kinds == ["error"]
    assert done.terminal is not None
    reason = failure_of(done.terminal)
    assert isinstance(reason, BackendError)
    assert reason.kind == "not_started"
    assert "there-is-no-such-program cannot be run" in reason.message


@pytest.mark.process
def test_the_backend_that_is_shown_starts_by_its_full_name(
    genagent_client: Client, tmp_path: Path
) -> None:
    """From the directory of the start, without being installed."""
    _, code = BLOCK.findall(README.read_text(encoding="utf-8"))[0]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/command.py").write_text(code, encoding="utf-8")

    genagent_client.start_agent(
        None,
        name="a",
        backend="my_package.command:CommandBackend",
        options={"command": ["tr", "a-z", "A-Z"]},
        cwd=tmp_path,
    )

    assert genagent_client.ask("a", "hello").text == "HELLO"


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
