"""Agents that are each other's peers, recipients and stream targets (D26, D32)."""

from __future__ import annotations

import pytest

from genagent_protocol.errors import Refused
from genagent_protocol.events import Completed
from support import fleet
from support.scenes import Scene, fails, says

pytestmark = pytest.mark.process


def test_s053_a_peer_is_asked_in_a_callback_and_answers(scene: Scene) -> None:
    """The callback waits, the peer's turn runs, and its text comes back."""
    scene.start(agent="Listening")
    scene.start(says("from b"), name="b")

    scene.client.notify_ack("a", ["ask", "b", "hello"])

    assert scene.state()[-1] == "answer from b"
    assert scene.prompts("b") == ["hello"]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (["ask", "a", "myself"], "Refused self_call"),
        (["ask", "nobody", "p"], "Refused not_found"),
        (["tell", "nobody", "p"], "Refused not_found"),
        (["stop", "a"], "Refused self_stop"),
        (["stop", "nobody"], "Refused not_found"),
        (["ask", "b", "p"], "TurnFailed backend_failed"),
    ],
)
def test_s033_s236_a_peer_call_that_fails_is_typed(
    scene: Scene, event: list[str], said: str
) -> None:
    """The callback goes on, and so does the agent."""
    scene.start(agent="Listening")
    scene.start(fails("r"), name="b")

    scene.client.notify_ack("a", event)

    assert scene.state()[-1] == said


def test_s053_an_agent_hears_of_the_death_of_a_peer_and_of_what_it_had_told(scene: Scene) -> None:
    """A killed peer: the `Down`, and no invented completion."""
    scene.start(agent="Listening")
    victim = fleet.start(scene.client, "b", fleet.HANGS)
    scene.client.notify_ack("a", ["monitor", "b"])
    scene.client.notify_ack("a", ["tell", "b", "p"])
    scene.kill(victim)
    scene.wait_seen("info down signal:9")

    assert not [line for line in scene.seen() if line.startswith("info completion")]


def test_what_an_agent_asked_for_itself_reaches_it_however_full_it_is(scene: Scene) -> None:
    """A watch and a submission are answered once; nobody would answer them again."""
    scene.start(fleet.HANGS, agent="Listening", max_pending_notifications=0)
    scene.start(fleet.HANGS, name="b")
    scene.client.notify_ack("a", ["monitor", "b"])
    scene.client.notify_ack("a", ["tell", "b", "p"])
    scene.client.tell("a", "p")
    with pytest.raises(Refused):
        scene.client.notify_ack("a", "no room for anything else")
    scene.client.interrupt("b")
    scene.wait_seen("post_turn interrupted", "b")
    scene.client.stop("b")
    scene.client.interrupt("a")

    scene.wait_seen("info down shutdown")
    assert "info completion of b: interrupted" in scene.seen()


def test_s087_an_agent_may_be_the_target_of_a_stream(scene: Scene) -> None:
    """Its `handle_info` gets each event; the completion goes to its own recipient."""
    sink = scene.start(name="sink", agent="Listening")
    scene.start()

    ref = scene.client.tell_with_completion("a", "p", stream_to=sink)

    assert isinstance(scene.outcome(ref), Completed)
    scene.wait_seen("info EventMessage", "sink", times=2)
    assert scene.seen("sink").count("info EventMessage") == 2


def test_s053_two_agents_talk_by_notifications(scene: Scene) -> None:
    """One notifies the other after its turn, whose event becomes a prompt."""
    scene.start(on={"handle_response": [{"notify": ["b", {"prompt": "your turn"}]}]})
    scene.start(name="b")

    scene.client.ask("a", "p")
    scene.wait_seen("post_turn completed", "b")

    assert scene.prompts("b") == ["your turn"]
