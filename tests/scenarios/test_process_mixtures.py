"""Random mixtures of everything that can be said to one agent, and what holds in the end."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from genagent_protocol.answers import Snapshot
from genagent_protocol.envelopes import Admission, Completion
from genagent_protocol.errors import Refused
from genagent_protocol.refs import AgentHandle, RequestRef
from genagentd.arguments import OnHalt
from genagentd.client.client import Client
from support import fleet
from support.scenes import PONG, Scene, fails

pytestmark = pytest.mark.process

WORDS = ("tell", "submit", "notify", "event prompt", "halt", "resume", "interrupt", "cancel")
ON_HALT: tuple[OnHalt, ...] = ("queue", "fail")
AT_REST = Snapshot(
    phase="idle",
    halted=False,
    halt_pending=False,
    draining=False,
    pending_prompts=0,
    pending_notifications=0,
    self_chain_pending=False,
    current_request=None,
)


@dataclass
class Talk:
    """Says things by chance, and remembers what came of them."""

    client: Client
    handle: AgentHandle
    chance: random.Random
    told: list[RequestRef] = field(default_factory=list)
    submitted: list[RequestRef] = field(default_factory=list)

    def say(self, number: int) -> None:
        """Say one thing."""
        client = self.client
        match self.chance.choice(WORDS):
            case "tell":
                self.tell(f"t{number}")
            case "submit":
                on_halt = self.chance.choice(ON_HALT)
                captured = client.at(self.handle)
                sent = captured.submit_with_completion(f"s{number}", on_halt=on_halt)
                self.submitted.append(sent.ref)
            case "notify":
                client.notify("a", number)
            case "event prompt":
                client.notify("a", {"prompt": f"e{number}"})
            case "halt":
                client.halt("a")
            case "resume":
                client.resume("a")
            case "interrupt":
                client.interrupt("a")
            case "cancel" if self.told:
                client.cancel_request("a", self.chance.choice(self.told))

    def tell(self, prompt: str) -> None:
        """Tell it, or be told that it does not fit."""
        try:
            self.told.append(self.client.tell_with_completion("a", prompt))
        except Refused as refused:
            if refused.reason.code != "overloaded":
                raise


@pytest.mark.parametrize("seed", range(4))
def test_s138_every_accepted_request_ends_once_and_all_room_comes_back(
    scene: Scene, seed: int
) -> None:
    """Bounded queues, failing turns, halts and interrupts: one fate each, and zero at rest."""
    chance = random.Random(seed)
    handle = scene.start(
        PONG,
        fails("r"),
        [{"pause_ms": 5}, *PONG],
        on={"handle_error": [{}, {"prompt": "again"}] * 50},
        backend={"repeat": True},
        max_pending_prompts=4,
        max_pending_notifications=3,
    )
    client, talk = scene.client, Talk(scene.client, handle, chance)
    for number in range(120):
        talk.say(number)
        snapshot = client.runtime_snapshot("a")
        assert snapshot.pending_prompts <= 4
        assert snapshot.pending_notifications <= 3
    client.resume("a")
    scene.idle()
    while client.runtime_snapshot("a") != AT_REST:
        scene.idle()
    heard = list(fleet.rest(client))

    admitted = [m for m in heard if isinstance(m, Admission)]
    accepted = {*talk.told, *(m.ref for m in admitted if m.accepted)}
    assert Counter(m.ref for m in admitted) == Counter(talk.submitted)
    assert Counter(m.ref for m in heard if isinstance(m, Completion)) == Counter(accepted)
    assert accepted
