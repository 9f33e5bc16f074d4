"""S261: both sides end with the same transcript, or with the same reason."""

from __future__ import annotations

import pytest

from examples.patterns.company import Voice, Watch, shown, stop_all
from examples.patterns.debate import begin
from genagentd import Client
from genagentd.testing import breaks, says, scripted

pytestmark = pytest.mark.process


def _sides(pro: list[object], con: list[object]) -> dict[str, Voice]:
    return {
        "pro": Voice("scripted", scripted(*pro)),  # type: ignore[arg-type]  # turns, as written
        "con": Voice("scripted", scripted(*con)),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("rounds", [1, 3])
def test_s261_both_sides_have_the_same_transcript(
    genagent_client: Client, watch: Watch, rounds: int
) -> None:
    """Each speaks exactly as often as agreed, in turn, and the last word is heard."""
    said = [says(f"{number}") for number in range(1, rounds + 1)]
    begin(genagent_client, "topic", _sides([*said, says("extra")], [*said, says("extra")]), rounds)

    watch.until_halted(("pro", "con"))

    expected = tuple((who, f"{n}") for n in range(1, rounds + 1) for who in ("pro", "con"))
    for side in ("pro", "con"):
        assert shown(genagent_client, side)["transcript"] == expected
        assert shown(genagent_client, side)["failure"] == ""


@pytest.mark.parametrize("broken", ["pro", "con"])
def test_a_failure_on_either_side_halts_both(
    genagent_client: Client, watch: Watch, broken: str
) -> None:
    """Nobody waits for an opponent that has given up."""
    turns: dict[str, list[object]] = {"pro": [says("1"), says("2")], "con": [says("1"), says("2")]}
    turns[broken][-1] = breaks("out of words")

    begin(genagent_client, "topic", _sides(turns["pro"], turns["con"]), rounds=2)
    watch.until_halted(("pro", "con"))

    reasons = {shown(genagent_client, side)["failure"] for side in ("pro", "con")}
    assert reasons == {"backend_failed: out of words"}


def test_two_debates_in_a_row_do_not_mix(genagent_client: Client, watch: Watch) -> None:
    """The same names, another debate: what was meant for the first one means nothing."""
    for word in ("first", "second"):
        handles = begin(genagent_client, word, _sides([says(word)], [says(word)]), rounds=1)
        watch.until_halted(("pro", "con"))
        genagent_client.notify_ack("pro", {"debate": "another", "gave_up": "late"})
        assert shown(genagent_client, "pro")["transcript"] == (("pro", word), ("con", word))
        assert shown(genagent_client, "pro")["failure"] == ""
        stop_all(genagent_client, handles)
