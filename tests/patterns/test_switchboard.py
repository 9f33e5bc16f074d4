"""S259: the manager reads what came in when it suits, and nothing gets lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from examples.patterns.company import Voice, Watch, cast, shown
from examples.patterns.switchboard import Operator, Switchboard
from genagentd import Client, Refused, RequestRef
from genagentd.messages import Overloaded, Reason
from genagentd.testing import Gates, breaks, holds, says, scripted

pytestmark = pytest.mark.process


@pytest.fixture
def board(genagent_client: Client) -> Switchboard:
    return Switchboard(genagent_client)


def _texts(board: Switchboard, name: str) -> list[str]:
    return [str(entry.get("text") or entry.get("error")) for entry in board.inbox(name)]


def test_s259_results_that_arrive_during_an_acknowledgement_stay_unread(
    board: Switchboard, watch: Watch, genagent_gates: Gates
) -> None:
    """The reader names how many entries it saw, so a later one cannot be swallowed."""
    script = scripted(says("one"), says("two"), holds("third", "three"), gates=genagent_gates)
    board.open({"a": Voice("scripted", script)})
    for prompt in ("1", "2", "3"):
        board.submit("a", prompt)
    genagent_gates.wait_blocked("third")

    board.acknowledge("a", 2)
    genagent_gates.release("third")
    watch.until(lambda: _texts(board, "a") == ["three"], "only the third is unread")

    assert [entry["text"] for entry in board.transcript("a", 2)] == ["two", "three"]


def test_an_older_acknowledgement_cannot_move_back(board: Switchboard, watch: Watch) -> None:
    """Two readers may answer in the other order."""
    board.open({"a": Voice("scripted", scripted(says("one"), breaks("two"), says("three")))})
    for prompt in ("1", "2", "3"):
        board.submit("a", prompt)
    watch.until(lambda: len(board.inbox("a")) == 3, "all are there")

    board.acknowledge("a", 2)
    board.acknowledge("a", 1)

    assert _texts(board, "a") == ["three"]
    # And one that claims more than there is takes nothing in advance.
    board.acknowledge("a", 99)
    assert shown(board._client, "a")["acknowledged"] == 3


def test_a_broadcast_has_one_outcome_for_each_name(
    board: Switchboard, genagent_client: Client, genagent_gates: Gates
) -> None:
    """Whatever becomes of one agent, the others are asked."""
    held = Voice("scripted", scripted(holds("busy", "late"), gates=genagent_gates))
    genagent_client.start_agent(cast(Operator, "full", held, limits={"max_pending_prompts": 0}))
    board.submit("full", "the one that runs")
    genagent_gates.wait_blocked("busy")
    board.open({"free": Voice("scripted", scripted(says("yes")))})

    outcomes = board.broadcast(("free", "nobody", "full"), "well?")

    assert isinstance(outcomes["free"], RequestRef)
    assert isinstance(outcomes["full"], Overloaded)
    assert outcomes["nobody"] == Reason("not_found")
    genagent_gates.release("busy")


def test_a_halt_waits_for_the_turn_and_the_queue_for_the_resume(
    board: Switchboard, watch: Watch, genagent_client: Client, genagent_gates: Gates
) -> None:
    """Halting is no interruption."""
    script = scripted(holds("turn", "first"), says("second"), gates=genagent_gates)
    board.open({"a": Voice("scripted", script)})
    board.submit("a", "1")
    board.submit("a", "2")
    genagent_gates.wait_blocked("turn")

    board.halt("a")
    genagent_gates.release("turn")
    watch.until_halted(["a"])
    assert _texts(board, "a") == ["first"]
    assert genagent_client.runtime_snapshot("a").pending_prompts == 1

    board.resume("a")
    watch.until(lambda: _texts(board, "a") == ["first", "second"], "the queue goes on")


def test_commands_say_when_they_did_not_fit(
    board: Switchboard, genagent_client: Client, genagent_gates: Gates
) -> None:
    """With no room for notifications during a turn, a command is refused and changes nothing."""
    voice = Voice("scripted", scripted(holds("turn", "done"), gates=genagent_gates))
    limits = {"max_pending_notifications": 0}
    genagent_client.start_agent(cast(Operator, "a", voice, limits=limits))
    board.submit("a", "1")
    genagent_gates.wait_blocked("turn")

    commands: tuple[Callable[[], object], ...] = (
        lambda: board.acknowledge("a", 1),
        lambda: board.summarise("a", "x"),
        lambda: board.halt("a"),
    )
    for command in commands:
        with pytest.raises(Refused) as refused:
            command()
        assert refused.value.reason.code == "overloaded"

    assert board.summary("a") == ""
    assert not genagent_client.runtime_snapshot("a").halted
    genagent_gates.release("turn")


def test_a_missing_name_is_not_found_everywhere(board: Switchboard) -> None:
    """Only a resume is sent without an answer."""
    commands: tuple[Callable[[], object], ...] = (
        lambda: board.submit("nobody", "x"),
        lambda: board.inbox("nobody"),
        lambda: board.acknowledge("nobody", 1),
        lambda: board.summarise("nobody", "x"),
        lambda: board.transcript("nobody", 1),
        lambda: board.halt("nobody"),
        lambda: board.stop("nobody"),
    )
    for command in commands:
        with pytest.raises(Refused) as refused:
            command()
        assert refused.value.reason.code == "not_found"
    board.resume("nobody")
