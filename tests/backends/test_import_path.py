"""Files in an agent's working directory are not taken for parts of our libraries."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from genagent_backends.import_path import without_working_directory
from genagent_backends.programs import CLAUDE, find_program
from support.fake_provider import FakeProvider, Says

#: What the HTTP library has, wants, or can do without.
NAMES = (
    *(
        "h2",
        "hpack",
        "h11",
        "trio",
        "anyio",
        "sniffio",
        "socksio",
        "brotli",
        "brotlicffi",
        "uvloop",
    ),
    *("zstandard", "backports", "truststore", "certifi", "idna", "httpcore2", "httpx2"),
)
TURN = """
import asyncio, os, sys
sys.path.insert(0, os.getcwd())
from genagent_backends.chat import ChatBackend
from genagent_backends.rehearsal import rehearse
from genagent_backends.transport import Connections
from genagent_protocol.plain import FrozenDict
session = ChatBackend().start_session(FrozenDict({"model": "m", "base_url": sys.argv[1]}))
print(asyncio.run(rehearse(ChatBackend(), session, "hi")).text)
"""


async def test_a_turn_runs_none_of_the_files_beside_it(tmp_path: Path) -> None:
    """A novelist's `h2.py` is chapter two."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(
            "open(__file__ + '.ran', 'w')\nraise ValueError(__file__)"
        )
    async with FakeProvider(Says()) as provider:
        running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            TURN,
            provider.base_url,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await running.communicate()

    assert said.decode().strip() == "Hello there"
    assert list(tmp_path.glob("*.ran")) == []


def test_a_program_is_not_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write there could put one in the place of the package's."""
    planted = tmp_path / CLAUDE.package
    program = planted / CLAUDE.path_in_package
    program.parent.mkdir(parents=True)
    (planted / "__init__.py").touch()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert find_program(CLAUDE, None, {"PATH": "/nowhere"}) != str(program)


def test_the_import_path_is_what_it_was_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the directory is gone, or an import fails."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.syspath_prepend(str(gone))
    before = sys.path
    with suppress(LookupError), without_working_directory():
        assert str(gone) not in sys.path
        raise LookupError
    gone.rmdir()
    with without_working_directory():
        assert str(gone) in sys.path

    assert sys.path is before
