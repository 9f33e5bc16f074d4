"""Recorded runs, fed again: the same inputs give the same orders, in the same order.

The recordings were made through a `Recorder`: those called `real_*` in the processes of
agents (`tests/processes/test_recorded_runs.py`), the others by a shell in this process.
After a change that is meant, they are written anew like the conversations:
`REWRITE_CONVERSATIONS=1`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genagent_protocol.bounds import Limits
from genagent_protocol.errors import InvalidTransition
from genagent_protocol.turns import advance, begin
from genagent_protocol.turns.decisions import Done, Run
from genagent_protocol.turns.inputs import CallbackReturned, Input, PromptSubmitted, TurnStarted
from genagent_protocol.turns.recording import Recorder, replay
from support.turns_values import ALL, ref

FILES = sorted((Path(__file__).parent / "recordings").glob("*.txt"))
REWRITE = os.environ.get("REWRITE_CONVERSATIONS") == "1"

FIRST_STEPS: tuple[Input, ...] = (
    CallbackReturned("pre_run", Done()),
    PromptSubmitted(ref=ref(1), prompt="p", recipient="bob"),
    CallbackReturned("pre_turn", Run("p")),
    TurnStarted(1),
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_run_goes_the_same_way_again(path: Path) -> None:
    """Without a clock, chance or user code in it, the inputs alone determine the effects."""
    recorded = path.read_text(encoding="utf-8").splitlines()
    replayed = list(replay(recorded))
    if REWRITE:
        path.write_text("\n".join(replayed) + "\n", encoding="utf-8")
        recorded = replayed

    assert replayed == recorded


def test_there_are_recordings_of_some_length() -> None:
    """A glob that matches nothing would pass the test above."""
    lengths = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert sum(length > 100 for length in lengths.values()) >= 4
    assert {"real_callers", "real_killed"} <= set(lengths)


def test_a_recorder_changes_nothing_and_misses_nothing() -> None:
    """A recording that disturbed the run would be of another run."""
    recorder = Recorder()
    agent, opening = begin(Limits(), ALL)
    recorded, same_opening = recorder.begin(Limits(), ALL)
    assert (recorded, same_opening) == (agent, opening)

    for given in FIRST_STEPS:
        expected = advance(agent, given)
        assert recorder.advance(agent, given) == expected
        agent = expected.agent

    assert list(replay(recorder.lines)) == recorder.lines
    assert sum(line.startswith("> ") for line in recorder.lines) == len(FIRST_STEPS)


def test_a_mistake_of_the_shell_is_not_recorded() -> None:
    """What the machine did not hear did not happen."""
    recorder = Recorder()
    agent, _ = recorder.begin(Limits(), ALL)
    length = len(recorder.lines)

    with pytest.raises(InvalidTransition):
        recorder.advance(agent, TurnStarted(1))

    assert len(recorder.lines) == length
