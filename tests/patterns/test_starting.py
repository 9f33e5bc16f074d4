"""S270: a company starts as a whole or not at all, and leaves strangers alone."""

from __future__ import annotations

import pytest

from examples.patterns.company import Voice, cast, start_all, stop_all
from examples.patterns.debate import begin as debate
from examples.patterns.pipeline import Station
from examples.patterns.pipeline import begin as pipeline
from examples.patterns.pool import Pool
from genagentd import Client, StartFailed
from genagentd.testing import echoes, scripted

pytestmark = pytest.mark.process

VOICE = Voice("scripted", scripted(echoes(), repeat=True))


def _names(client: Client) -> list[str]:
    return sorted(str(row.name) for row in client.list())


def test_s270_when_one_member_cannot_start_those_before_it_are_stopped(
    genagent_client: Client,
) -> None:
    """Half a company would wait for ever for its other half."""
    incumbent = genagent_client.start_agent(None, name="edit", backend="echo")
    stations = [(name, name, VOICE) for name in ("draft", "shorten", "edit", "publish")]

    with pytest.raises(StartFailed) as refused:
        pipeline(genagent_client, "text", stations)

    assert refused.value.reason.code == "already_started"
    assert _names(genagent_client) == ["edit"]
    assert genagent_client.whereis("edit") == incumbent
    assert genagent_client.ask("edit", "still yours?").text == "still yours?"


def test_that_holds_for_every_pattern_with_several_agents(genagent_client: Client) -> None:
    """They share one way of starting."""
    genagent_client.start_agent(None, name="con", backend="echo")
    genagent_client.start_agent(None, name="worker-2", backend="echo")

    with pytest.raises(StartFailed):
        debate(genagent_client, "topic", {"pro": VOICE, "con": VOICE}, rounds=1)
    with pytest.raises(StartFailed):
        Pool(genagent_client, "worker", [VOICE, VOICE, VOICE])

    assert _names(genagent_client) == ["con", "worker-2"]


def test_stopping_a_company_spares_whoever_has_the_name_now(genagent_client: Client) -> None:
    """A handle is one life; a name may have been given to another."""
    specs = [cast(Station, name, VOICE, task="t", next=None) for name in ("a", "b")]
    company = start_all(genagent_client, specs)
    genagent_client.stop("a")
    successor = genagent_client.start_agent(None, name="a", backend="echo")

    stop_all(genagent_client, company)

    assert _names(genagent_client) == ["a"]
    assert genagent_client.whereis("a") == successor
