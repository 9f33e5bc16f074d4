"""S266: a batch at a time, nothing lost, and a clock that belongs to one life."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.patterns.company import Voice, Watch, shown
from examples.patterns.heartbeat import Ticker, begin
from genagentd import AgentHandle, Client
from genagentd.testing import Gates, PrivateDaemon, breaks, holds, says, scripted

pytestmark = pytest.mark.process


def _observe(client: Client, *what: str) -> None:
    for each in what:
        client.notify_ack("h", {"observed": each})


def _tick(client: Client, handle: AgentHandle) -> None:
    client.notify_ack("h", {"tick": handle.incarnation.text})


def _prompts(history: Path) -> int:
    return len(history.read_text().splitlines()) if history.exists() else 0


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def test_below_the_minimum_a_tick_does_nothing(
    genagent_client: Client, watch: Watch, history: Path
) -> None:
    """At the minimum it makes one turn, and the count starts anew."""
    voice = Voice("scripted", {**scripted(says("sum")), "history_file": str(history)})
    handle = begin(genagent_client, "h", voice, minimum=2)
    _observe(genagent_client, "a")
    _tick(genagent_client, handle)
    assert (shown(genagent_client, "h")["observed"], _prompts(history)) == (("a",), 0)

    _observe(genagent_client, "b")
    _tick(genagent_client, handle)
    watch.until(lambda: shown(genagent_client, "h")["findings"] == ("sum",), "it was looked at")

    assert shown(genagent_client, "h")["observed"] == ()
    _tick(genagent_client, handle)
    assert _prompts(history) == 1


def test_s266_a_failed_batch_goes_back_in_front(
    genagent_client: Client, watch: Watch, genagent_gates: Gates
) -> None:
    """In the order in which it was observed, and a later tick tries again."""
    script = scripted([*holds("turn")[:1], *breaks("away")], says("sum"), gates=genagent_gates)
    handle = begin(genagent_client, "h", Voice("scripted", script), minimum=2)
    _observe(genagent_client, "a", "b")
    _tick(genagent_client, handle)
    genagent_gates.wait_blocked("turn")
    _observe(genagent_client, "c")
    genagent_gates.release("turn")

    watch.until(lambda: shown(genagent_client, "h")["observed"] == ("a", "b", "c"), "all are back")
    assert shown(genagent_client, "h")["findings"] == ()

    _tick(genagent_client, handle)
    watch.until(lambda: shown(genagent_client, "h")["findings"] == ("sum",), "then it works")


def test_ticks_while_halted_queue_one_prompt_only(
    genagent_client: Client, watch: Watch, history: Path
) -> None:
    """A night of ticks must not become a morning of turns."""
    voice = Voice("scripted", {**scripted(says("sum")), "history_file": str(history)})
    handle = begin(genagent_client, "h", voice, minimum=1)
    genagent_client.halt("h")
    _observe(genagent_client, "a")
    for _ in range(3):
        _tick(genagent_client, handle)
        _observe(genagent_client, "more")
    assert genagent_client.runtime_snapshot("h").pending_prompts == 1

    genagent_client.resume("h")
    watch.until(lambda: shown(genagent_client, "h")["findings"] == ("sum",), "it was looked at")
    assert _prompts(history) == 1


def test_a_tick_for_an_earlier_life_means_nothing(genagent_client: Client) -> None:
    """The successor has the name, and another life."""
    voice = Voice("scripted", scripted())
    earlier = begin(genagent_client, "h", voice, minimum=1)
    genagent_client.stop("h")
    begin(genagent_client, "h", voice, minimum=1)
    _observe(genagent_client, "a")

    _tick(genagent_client, earlier)

    assert shown(genagent_client, "h")["observed"] == ("a",)


@pytest.fixture
def tickers() -> Iterator[list[Ticker]]:
    made: list[Ticker] = []
    yield made
    for ticker in made:
        ticker.stop()


def test_the_ticker_drives_and_ends_with_its_agent(
    genagent_client: Client, genagent_daemon: PrivateDaemon, watch: Watch, tickers: list[Ticker]
) -> None:
    """It hears the Down of its own monitor, and never turns to the successor."""
    voice = Voice("scripted", scripted(says("sum")))
    handle = begin(genagent_client, "h", voice, minimum=1)
    tickers.append(Ticker(handle, 20, genagent_daemon.run_dir))
    _observe(genagent_client, "a")
    watch.until(lambda: shown(genagent_client, "h")["findings"] == ("sum",), "it ticks")

    genagent_client.stop("h")

    assert tickers[0].wait(20_000)
