"""The real programs, set up to talk to a provider on loopback and to nobody else.

They are found on PATH or in the packages of the extras `claude-cli` and `codex-cli`.
A test that wants one which is not here is skipped with a sentence.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import pytest

from genagent_backends.base import Failed
from genagent_backends.programs import CLAUDE, CODEX, Program, find_program

CODEX_CONFIG = """
model = "fake"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{base_url}"
wire_api = "responses"
env_key = "FAKE_KEY"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
"""


class Provider(Protocol):
    """Where a provider on loopback is."""

    @property
    def origin(self) -> str:
        """Its address."""
        ...

    @property
    def base_url(self) -> str:
        """Its address with the path that all dialects share."""
        ...


def _found(program: Program) -> None:
    if isinstance(find_program(program, None, os.environ), Failed):
        pytest.skip(f"the program {program.name} is not here; pip install '{program.extra}'")


def claude(home: Path, provider: Provider, **more: Any) -> dict[str, Any]:
    """Return the options of the `claude` backend."""
    _found(CLAUDE)
    env = {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "config"),
        "ANTHROPIC_BASE_URL": provider.origin,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return {"env": env, "hermetic": True, "max_retries": 0, **more}


def duplex(home: Path, provider: Provider, **more: Any) -> dict[str, Any]:
    """Return the options of the `claude` backend with one process for all turns."""
    return claude(home, provider, mode="duplex", **more)


def codex(home: Path, provider: Provider, **more: Any) -> dict[str, Any]:
    """Return the options of the `codex` backend, whose configuration is written here."""
    _found(CODEX)
    (home / "config").mkdir(exist_ok=True)
    config = CODEX_CONFIG.format(base_url=provider.base_url)
    (home / "config" / "config.toml").write_text(config)
    env = {"HOME": str(home), "CODEX_HOME": str(home / "config"), "FAKE_KEY": "dummy"}
    return {
        "env": env,
        "skip_git_repo_check": True,
        "sandbox": "read_only",
        "approval_policy": "never",
        **more,
    }
