"""Recorded runs of the real programs, with what each one should become.

Recordings of ours are in `tests/backends/fixtures/`; those of others are read from
`../shared` beside the repository where present. `expected.json` says what each one
means. The text that a program makes up to show an error is left out of the text
events here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import BackendError, Failure

TESTS = Path(__file__).parents[1]
OURS = TESTS / "backends" / "fixtures"
THEIRS = TESTS.parents[1] / "shared" / "fixtures"
SETS = (
    OURS / "claude" / "2.1.332-local",
    OURS / "codex" / "0.171.0-local",
    THEIRS / "claude",
    THEIRS / "codex",
)


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded run, and what it should become."""

    provider: str
    path: Path
    expected: FrozenDict

    @property
    def made_up(self) -> tuple[object, ...]:
        found = self.expected.get("synthetic_error_text", ())
        assert isinstance(found, tuple)
        return found

    @property
    def texts(self) -> list[object]:
        found = self.expected["text_events"]
        assert isinstance(found, tuple)
        return [text for text in found if text not in self.made_up]

    @property
    def kinds(self) -> list[object]:
        found = self.expected["kinds"]
        assert isinstance(found, tuple)
        kinds: list[object] = list(found)
        for _ in self.made_up:
            kinds.remove("text")
        return kinds


def recordings() -> Iterator[object]:
    for folder in SETS:
        provider = "claude" if "claude" in folder.parts else "codex"
        if not folder.is_dir():
            why = f"the recordings of others are not here: {folder} is no directory"
            yield pytest.param(None, marks=pytest.mark.skip(reason=why), id=f"{provider}-others")
            continue
        for name, expected in json.loads((folder / "expected.json").read_text()).items():
            frozen = freeze(expected)
            assert isinstance(frozen, FrozenDict)
            recording = Recording(provider, folder / f"{name}.jsonl", frozen)
            yield pytest.param(recording, id=f"{provider}-{folder.name}-{name}")


def agrees(failure: Failure, recording: Recording) -> None:
    """Fail unless *failure* says what the recorded run failed of."""
    told = recording.expected["error"]
    assert isinstance(failure, BackendError)
    assert isinstance(failure.raw, FrozenDict)
    assert isinstance(told, FrozenDict)
    assert failure.provider == recording.provider
    match told:
        case {"reason": reason}:
            assert failure.raw == reason
        case {"message": message, "subtype": subtype}:
            assert failure.message == message
            assert failure.raw["subtype"] == subtype
            assert failure.status == told.get("status")
            assert failure.raw.get("terminal_reason") == told.get("terminal_reason")
        case _:
            raise AssertionError(f"nothing is told about this failure: {told}")
