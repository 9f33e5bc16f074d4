"""Whole conversations with every order, to be read and reviewed as text.

Run with REWRITE_CONVERSATIONS=1 to write down what the machine says now, and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.supervision_script import VERBS, parse, play

CONVERSATIONS = sorted((Path(__file__).parent / "conversations").glob("*.txt"))


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_a_conversation_goes_as_it_is_written_down(path: Path) -> None:
    """A change in any order, report or number shows in the review, in words."""
    written = path.read_text()

    now = play(written.splitlines())

    if os.environ.get("REWRITE_CONVERSATIONS") == "1":
        path.write_text(now)
    assert now == written


def test_the_conversations_use_every_verb_but_two() -> None:
    """A verb that nobody says is a kind of input that nobody reads about."""
    told = {
        parse(line).verb
        for path in CONVERSATIONS
        for line in path.read_text().splitlines()
        if line.strip() and not line.startswith((" ", "#"))
    }

    assert set(VERBS) - told == {"close", "demonitor"}
