"""Of what agents printed the end is shown, and only what is new."""

from __future__ import annotations

import os
from pathlib import Path

from genagentd.testing.printed import MAX_BYTES, lengths, printed_since


def log(logs: Path, name: str, text: str, written_s: float, life: int = 1) -> Path:
    path = logs / name / f"b007-{life}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (written_s, written_s))
    return path


def test_only_what_came_since_is_shown_the_oldest_first(tmp_path: Path) -> None:
    """Another test's agents may have had the same names, a moment ago."""
    log(tmp_path, "b", "old", 300)
    log(tmp_path, "c", "old", 300)
    before = lengths(tmp_path)
    log(tmp_path, "b", "old and new", 300)
    log(tmp_path, "b", "its next life", 200, life=2)

    assert printed_since(tmp_path, before) == [
        ("printed by b (2)", "its next life"),
        ("printed by b (1)", " and new"),
    ]


def test_a_log_that_was_begun_anew_is_all_new(tmp_path: Path) -> None:
    log(tmp_path, "a", "a long story", 300)
    before = lengths(tmp_path)
    log(tmp_path, "a", "short", 300)

    assert printed_since(tmp_path, before) == [("printed by a (1)", "short")]


def test_of_a_long_log_the_end_is_shown(tmp_path: Path) -> None:
    log(tmp_path, "a", "x" * MAX_BYTES + "end", 300)
    [(_, text)] = printed_since(tmp_path, {})

    assert text.startswith("…x")
    assert text.endswith("end")
    assert len(text) == MAX_BYTES + 1


def test_no_log_is_nothing(tmp_path: Path) -> None:
    """The daemon may have ended, and its directory with it."""
    assert printed_since(tmp_path / "logs", {}) == []
