"""Of what agents printed the end is shown, and only what is new."""

from __future__ import annotations

import os
from pathlib import Path

from genagentd.testing.printed import MAX_BYTES, printed_since


def write(logs: Path, name: str, text: str, at_s: float) -> None:
    (logs / name).mkdir(exist_ok=True)
    path = logs / name / "1.log"
    path.write_text(text)
    os.utime(path, (at_s, at_s))


def test_what_was_written_since_is_shown_in_order(tmp_path: Path) -> None:
    """A daemon that serves all tests has the logs of all of them."""
    write(tmp_path, "old", "before", 100)
    write(tmp_path, "b", "second", 202)
    write(tmp_path, "a", "first", 201)
    write(tmp_path, "empty", "", 203)

    assert printed_since(tmp_path, 200) == [("printed by a", "first"), ("printed by b", "second")]


def test_a_long_log_is_shown_by_its_end(tmp_path: Path) -> None:
    """The reason of a failure is what was said last."""
    write(tmp_path, "a", "x" * MAX_BYTES + "the end", 200)

    [(_, text)] = printed_since(tmp_path, 200)

    assert text.endswith("the end")
    assert text.startswith("…")
    assert len(text) == MAX_BYTES + 1


def test_no_logs_are_none(tmp_path: Path) -> None:
    """A test may fail before anything was started."""
    assert printed_since(tmp_path / "logs", 0) == []
