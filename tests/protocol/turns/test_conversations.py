"""Readable runs of the machine, reviewed like prose and compared line for line.

Each file holds the inputs and everything that was ordered because of them. After a
change that is meant, `REWRITE_CONVERSATIONS=1 pytest tests/protocol/turns` writes
the orders anew from the inputs, and the difference is what has to be reviewed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genagent_protocol.turns.notation import Unreadable
from genagent_protocol.turns.recording import Names, replay
from support.turns_values import FIRST_GENERATED, label, ref, response

FILES = sorted((Path(__file__).parent / "conversations").glob("*.txt"))
NAMES = Names(
    {
        **{label(ref(n)): ref(n) for n in (*range(1, 10), *range(1_001, 1_010))},
        "done": response("done"),
    }
)
REWRITE = os.environ.get("REWRITE_CONVERSATIONS") == "1"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_conversation_goes_as_it_is_written(path: Path) -> None:
    """A changed order of effects is a changed promise: it has to be seen and meant."""
    written = path.read_text(encoding="utf-8").splitlines()
    replayed = list(replay(written, NAMES))
    if REWRITE:
        path.write_text("\n".join(replayed) + "\n", encoding="utf-8")
        written = replayed

    assert replayed == written


def test_the_conversations_are_there_and_say_what_they_show() -> None:
    """A glob that matches nothing would pass every test above."""
    assert len(FILES) >= 15
    assert all(path.read_text(encoding="utf-8").startswith("# ") for path in FILES)
    assert NAMES.values["g1"] == ref(FIRST_GENERATED + 1)


def test_a_line_that_is_no_part_of_a_conversation_is_told() -> None:
    """A typing error must not silently shorten a run."""
    with pytest.raises(Unreadable, match="no part of a recording"):
        list(replay(["PromptSubmitted()"]))
    with pytest.raises(Unreadable, match="before any"):
        list(replay(["> InterruptReceived()"]))
    with pytest.raises(Unreadable, match="does not begin"):
        list(replay(["begin Offers() Offers()"]))
    with pytest.raises(Unreadable, match="is no input"):
        list(replay(["begin Limits() Offers()", "> NoReply()"]))
