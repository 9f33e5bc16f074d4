"""S262: outputs nest, and a failed stage stops the ones after it without a turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.patterns.company import Voice, Watch, shown
from examples.patterns.pipeline import begin
from genagentd import Client
from genagentd.testing import breaks, echoes, scripted

pytestmark = pytest.mark.process

NAMES = ("one", "two", "three")


def test_s262_each_stage_works_on_what_the_one_before_it_wrote(
    genagent_client: Client, watch: Watch
) -> None:
    """Word for word."""
    echo = Voice("scripted", scripted(echoes()))
    begin(genagent_client, "text", [(name, name.upper(), echo) for name in NAMES])

    watch.until_halted(NAMES)

    assert shown(genagent_client, "three")["output"] == "THREE: TWO: ONE: text"


def test_a_failed_stage_halts_the_later_ones_without_a_turn(
    genagent_client: Client, watch: Watch, tmp_path: Path
) -> None:
    """Stage three is never prompted, and knows why."""
    history = tmp_path / "three"
    voices = (
        Voice("scripted", scripted(echoes())),
        Voice("scripted", scripted(breaks("no ink"))),
        Voice("scripted", {**scripted(echoes()), "history_file": str(history)}),
    )
    begin(genagent_client, "text", list(zip(NAMES, NAMES, voices, strict=True)))

    watch.until_halted(NAMES)

    assert shown(genagent_client, "one")["failure"] == ""
    assert shown(genagent_client, "two")["failure"] == "two: backend_failed: no ink"
    assert shown(genagent_client, "three") == {
        "output": "",
        "failure": "two: backend_failed: no ink",
    }
    assert not history.exists()
