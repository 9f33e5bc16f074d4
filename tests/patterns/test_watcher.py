"""S265: only what matters wakes it, in order, and each failure finds its event."""

from __future__ import annotations

import pytest

from examples.patterns.company import Voice, Watch, shown
from examples.patterns.watcher import begin, findings
from genagentd import Client, TurnFailed
from genagentd.testing import Gates, breaks, holds, says, scripted

pytestmark = pytest.mark.process


def _error(what: str) -> dict[str, str]:
    return {"level": "error", "what": what}


def test_a_boring_event_makes_no_turn(genagent_client: Client) -> None:
    """The script is empty: a turn would fail."""
    begin(genagent_client, "w", Voice("scripted", scripted()))

    genagent_client.notify_ack("w", {"level": "info", "what": "all quiet"})
    genagent_client.notify_ack("w", "something else altogether")

    assert findings(genagent_client, "w") == ()
    assert genagent_client.runtime_snapshot("w").phase == "idle"


def test_s265_events_during_a_turn_are_looked_at_afterwards_in_order(
    genagent_client: Client, watch: Watch, genagent_gates: Gates
) -> None:
    """The first is still being looked at while the others happen."""
    script = scripted(holds("a", "about a"), breaks("blind"), says("about c"), gates=genagent_gates)
    begin(genagent_client, "w", Voice("scripted", script))
    genagent_client.notify("w", _error("a"))
    genagent_gates.wait_blocked("a")
    genagent_client.notify("w", _error("b"))
    genagent_client.notify_ack("w", _error("c"))

    genagent_gates.release("a")
    watch.until(lambda: len(findings(genagent_client, "w")) == 3, "all three")

    assert [
        (seen["event"], seen["finding"] or seen["failure"])
        for seen in findings(genagent_client, "w")
    ] == [("a", "about a"), ("b", "backend_failed: blind"), ("c", "about c")]


def test_an_overload_belongs_to_the_newest_event(genagent_client: Client, watch: Watch) -> None:
    """While halted one prompt waits; the event that found no room is the one that failed."""
    voice = Voice("scripted", scripted(says("about the older")))
    begin(genagent_client, "w", voice, limits={"max_pending_prompts": 1})
    genagent_client.halt("w")
    genagent_client.notify_ack("w", _error("older"))
    genagent_client.notify_ack("w", _error("newer"))

    (failed,) = findings(genagent_client, "w")
    assert (failed["event"], failed["failure"]) == ("newer", "overloaded")
    assert shown(genagent_client, "w")["waiting"] == (1,)

    genagent_client.resume("w")
    watch.until(lambda: len(findings(genagent_client, "w")) == 2, "the older one, too")
    assert findings(genagent_client, "w")[1]["finding"] == "about the older"


def test_a_direct_prompt_is_nobody_s_event(genagent_client: Client) -> None:
    """It is declined, and no finding is made of it."""
    begin(genagent_client, "w", Voice("scripted", scripted(says("x"))))

    with pytest.raises(TurnFailed) as failed:
        genagent_client.ask("w", "hello?")

    assert failed.value.reason.code == "pre_turn_skipped"
    assert findings(genagent_client, "w") == ()
