"""Life and death of agents, their groups and their names."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest

from genagent_protocol.answers import InterruptAnswer
from genagent_protocol.bounds import Limits
from genagent_protocol.envelopes import Admission, Completion, Down
from genagent_protocol.errors import Refused, StartFailed
from genagent_protocol.events import Completed
from genagent_protocol.reasons import NORMAL, SHUTDOWN, ExitReason
from genagent_protocol.supervision.terms import RestartPolicy
from genagentd.client.client import Client
from genagentd.client.spec import AgentSpec
from support import fleet
from support.background import in_background
from support.scenes import HANGS, PONG, Scene, held
from support.waiting import until

pytestmark = pytest.mark.process

KILLED = ExitReason("signal:9")


def test_s222_a_killed_agent_is_not_started_again(scene: Scene) -> None:
    """Its name is free, and who takes it begins with nothing."""
    handle = scene.start()
    scene.watch(handle)
    scene.client.notify_ack("a", "remembered")
    scene.kill(handle)

    assert fleet.down(scene.client, handle).reason == KILLED
    assert scene.client.whereis("a") is None
    assert scene.client.list() == ()
    assert scene.start().incarnation != handle.incarnation
    assert scene.state() == ("pre_run",)


def test_s223_a_killed_agent_takes_nobody_with_it(scene: Scene) -> None:
    """Another's turn finishes."""
    victim = scene.start(held(tag="victim"), name="victim")
    scene.start(held())
    scene.hold(name="victim", tag="victim")
    ref = scene.hold()

    scene.kill(victim)
    scene.release()

    assert isinstance(scene.outcome(ref), Completed)


@pytest.mark.parametrize("where", ["prompt", "stream"])
def test_s224_the_turn_of_a_killed_agent_is_gone_wherever_it_was(scene: Scene, where: str) -> None:
    """Blocked in the backend's `prompt`, or between two events with a program of its own."""
    if where == "prompt":
        handle = scene.client.start_agent(
            "support.scenario_agents:Bare",
            name="a",
            backend="support.scenario_backends:Blocked",
            options={"gate_dir": scene.gates.directory},
            cwd=fleet.HERE,
        )
        scene.hold(tag="prompt")
        found = [fleet.of(handle)]
    else:
        handle = fleet.start(scene.client, "a", fleet.BUSY)
        _, spawned = fleet.begin(scene.client, handle)
        found = [fleet.of(handle), *spawned]
    scene.watch(handle)

    scene.kill(handle)

    assert fleet.down(scene.client, handle).reason == KILLED
    fleet.gone(found)


def test_s225_s226_a_stopped_agent_ends_its_turn_and_cleans_up(scene: Scene) -> None:
    """Both termination callbacks run, the session as its last whole turn left it."""
    scene.client.start_agent(
        "support.scenario_agents:Acting",
        name="a",
        backend="support.scenario_backends:Clinging",
        options={
            "file": str(scene.files / "a.seen"),
            "backend": {"file": str(scene.files / "b.seen")},
        },
        cwd=fleet.HERE,
    )
    for _ in range(2):
        scene.client.ask("a", "p")

    assert scene.client.stop("a") == SHUTDOWN

    assert scene.seen()[-1] == "terminate_agent shutdown"
    assert scene.seen("b") == ["terminated after 2 turns"]
    assert scene.client.whereis("a") is None


def test_s227_a_spec_is_a_value_that_needs_a_running_group(scene: Scene) -> None:
    """It starts nothing by itself; in a group that is not open the start fails."""
    spec = AgentSpec(agent=None, name="a", backend="echo")
    group = scene.client.group()

    with pytest.raises(StartFailed) as error:
        group.start_agent(spec)
    assert error.value.reason.kind == "group_not_running"
    assert scene.client.whereis("a") is None
    assert spec.restart == "temporary"

    with group:
        handle = group.start_agent(spec)
        assert scene.client.whereis("a") == handle
    assert scene.client.whereis("a") is None


def test_s228_stop_reaches_an_agent_only_through_its_owner(scene: Scene) -> None:
    """By name alone it is not found, and lives."""
    with scene.client.group() as group:
        handle = group.start_agent(None, name="a", backend="echo")

        with pytest.raises(Refused) as error:
            scene.client.stop("a")

        assert error.value.reason.code == "not_found"
        assert scene.client.whereis("a") == handle
        assert scene.client.stop("a", group=group) == SHUTDOWN


def test_s229_a_group_that_lost_its_owner_ends_and_comes_back_empty(scene: Scene) -> None:
    """Its agents are gone; a new group has none of them."""
    owner = Client(scene.house.run).connect()
    handle = owner.group().open().start_agent(None, name="a", backend="echo")
    scene.watch(handle)
    owner.close()

    assert fleet.down(scene.client, handle).reason == SHUTDOWN
    with scene.client.group() as group:
        with pytest.raises(Refused):
            group.stop("a")
        assert group.start_agent(None, name="a", backend="echo").incarnation != handle.incarnation


def test_s230_s105_a_closing_group_ends_idle_and_busy_agents_alike(scene: Scene) -> None:
    """The busy one's programs are gone, its queue never runs, others do not notice."""
    scene.client.start_agent(None, name="global", backend="echo")
    script = {"script": [fleet.BUSY, PONG], "history_file": str(scene.files / "busy.prompts")}
    with scene.client.group() as group:
        idle = group.start_agent(None, name="idle", backend="echo")
        busy = group.start_agent(None, name="busy", backend="scripted", options=script)
        _, spawned = fleet.begin(scene.client, busy)
        scene.client.tell("busy", "queued")

    assert fleet.alive([fleet.of(idle), fleet.of(busy), *spawned]) == []
    assert scene.prompts("busy") == ["go"]
    assert [row.name for row in scene.client.list()] == ["global"]
    assert scene.client.ask("global", "hello").text == "hello"
    for name in ("idle", "busy"):
        scene.client.start_agent(None, name=name, backend="echo")


def test_s231_a_name_is_one_agents_across_all_groups(scene: Scene) -> None:
    """The second start fails, in either direction, and the first agent is untouched."""
    scene.client.start_agent(None, name="a", backend="echo")
    with scene.client.group() as group:
        group.start_agent(None, name="b", backend="echo")
        with pytest.raises(StartFailed) as taken:
            group.start_agent(None, name="a", backend="echo")
        with pytest.raises(StartFailed) as taken_too:
            scene.client.start_agent(None, name="b", backend="echo")
        assert taken.value.reason.kind == taken_too.value.reason.kind == "already_started"
        assert scene.client.ask("a", "hello").text == "hello"
        assert scene.client.ask("b", "hello").text == "hello"


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_s232_an_ended_child_leaves_its_group(scene: Scene, end: str) -> None:
    """Prompts work in it; afterwards nothing is left to stop, and nothing comes back."""
    with scene.client.group() as group:
        handle = group.start_agent(AgentSpec(agent=None, name="a", backend="echo"))
        scene.watch(handle)
        assert scene.client.ask("a", "hello").text == "hello"

        if end == "stop":
            group.stop("a")
        else:
            scene.kill(handle)
        fleet.down(scene.client, handle)

        with pytest.raises(Refused):
            group.stop("a")
        assert scene.client.list() == ()


def test_s233_a_callback_that_ends_within_the_window_leaves_time_to_clean_up(scene: Scene) -> None:
    """The stop waits for it."""
    scene.start(shutdown_ms=30_000)
    scene.client.notify("a", {"block": "hook"})
    scene.blocked("hook")
    stopping = in_background(lambda: scene.client.stop("a"))
    scene.release("hook")

    assert stopping.result(30) == SHUTDOWN
    assert scene.seen()[-1] == "terminate_agent shutdown"


def test_s233_a_callback_that_outlasts_the_window_is_killed(scene: Scene) -> None:
    """No cleanup ran, and the reason says how it ended."""
    scene.start(shutdown_ms=50)
    scene.client.notify("a", {"block": "hook"})
    scene.blocked("hook")

    assert scene.client.stop("a") == KILLED
    assert scene.seen() == ["pre_run", 'event {"block": "hook"}']


@pytest.mark.parametrize("window", [-1, 1.5, "soon", True])
def test_s234_a_window_that_is_none_fails_the_start(scene: Scene, window: object) -> None:
    """The default is 5 s, and infinity is allowed."""
    with pytest.raises(StartFailed, match="shutdown_ms"):
        scene.start(shutdown_ms=window)

    assert Limits().shutdown_ms == 5_000
    scene.start(shutdown_ms="infinity")
    assert scene.client.stop("a") == SHUTDOWN


def test_s236_an_agent_cannot_stop_itself_and_can_stop_another(scene: Scene) -> None:
    """From its turn, its decision and its last hook: `self_stop`, at once."""
    handle = scene.start(agent="StopsItself")
    scene.start(name="b")

    scene.client.ask("a", "p")
    assert [line for line in scene.seen() if "self_stop" in line] == [
        "stream self_stop",
        "decision self_stop",
        "post_run self_stop",
    ]
    scene.client.notify_ack("a", ["stop", "b"])

    assert scene.seen()[-1] == "stop done"
    assert scene.client.whereis("b") is None
    assert scene.client.whereis("a") == handle


def test_s236_a_process_that_an_agent_began_may_stop_it(scene: Scene) -> None:
    """It is a client like any other."""
    handle = scene.start()
    scene.watch(handle)

    assert scene.elsewhere("client.stop('a'); client.close()").wait(60) == 0

    assert fleet.down(scene.client, handle).reason == SHUTDOWN


def test_s237_a_permanent_agent_comes_back_with_nothing(scene: Scene) -> None:
    """Same name, another process and life, empty state, a new session."""
    first = scene.client.start_agent(
        "support.scenario_agents:Acting",
        name="a",
        backend="echo",
        restart=RestartPolicy(kind="permanent", delay_ms=1),
        cwd=fleet.HERE,
    )
    session = scene.client.ask("a", "p").session_id
    scene.kill(first)
    until(lambda: scene.client.whereis("a") not in (None, first), "it is back")
    second = scene.client.whereis("a")

    assert second is not None
    assert second.incarnation != first.incarnation
    assert second.pid != first.pid
    assert scene.state() == ("pre_run",)
    assert scene.client.ask("a", "p").session_id != session


def test_s238_nothing_claims_that_a_provider_has_settled(scene: Scene) -> None:
    """What tells of an end tells of the agent and its turn; there is no word for more."""
    handle = scene.start(HANGS)
    scene.watch(handle)
    ref = scene.client.tell_with_completion("a", "p")
    scene.wait_seen("stream text begun")
    scene.client.interrupt_request("a", ref)
    scene.kill(handle)
    fleet.down(scene.client, handle)

    told = {
        kind.__name__: {field.name for field in dataclasses.fields(kind)}
        for kind in (Admission, Completion, Down, InterruptAnswer, ExitReason)
    }
    assert told == {
        "Admission": {"agent", "ref", "refused"},
        "Completion": {"agent", "ref", "outcome"},
        "Down": {"monitor", "handle", "reason"},
        "InterruptAnswer": {"result"},
        "ExitReason": {"text", "detail"},
    }


@pytest.mark.parametrize(("restart", "back"), [("transient", False), ("permanent", True)])
def test_s237_a_drained_agent_comes_back_if_it_is_permanent(
    scene: Scene, restart: Literal["transient", "permanent"], back: bool
) -> None:
    """To drain is to let it end, not to be rid of it: only a stop is that for every policy."""
    policy = RestartPolicy(kind=restart, delay_ms=1)
    handle = scene.client.start_agent(None, name="a", backend="echo", restart=policy)
    scene.watch(handle)
    scene.client.drain("a")

    assert fleet.down(scene.client, handle).reason == NORMAL
    if back:
        until(lambda: scene.client.whereis("a") not in (None, handle), "it is back")
        scene.client.stop("a")
    assert scene.client.list() == ()
