"""Agents that flood, lie, hold the interpreter, print without end, or die all the time.

One of them costs itself something, and the others, the daemon and the truth nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from genagent_protocol.answers import AgentRow, PollPending
from genagent_protocol.envelopes import Admission, Completion, Down, Telemetry
from genagent_protocol.errors import GenAgentError, StartFailed
from genagent_protocol.events import Completed
from genagent_protocol.reasons import TURN_STUCK
from genagent_protocol.refs import AgentHandle, RequestRef
from genagent_protocol.supervision.terms import RestartPolicy
from genagentd import kernel
from genagentd.client.aio import AsyncClient
from genagentd.client.client import Client
from genagentd.daemon.logs import MAX_BYTES
from genagentd.environment import ALLOWED, ALLOWED_PREFIXES
from support import fleet
from support.commands import ran
from support.daemons import PrivateDaemon, helpers_of, waiting_in, zombies_below
from support.figures import Figures, counts, percentile
from support.waiting import until

pytestmark = pytest.mark.process


#: Who counts each lie: a daemon that could not read it, one that could, the one it was told.
COUNTED = {
    "down": ("agent.abuse",),
    "hello": ("agent.abuse",),
    "garbage": ("bad_frames", "agent.abuse"),
    "hidden_down": ("dropped",),
    "foreign_completion": ("dropped",),
}


@pytest.mark.parametrize("lie", COUNTED)
def test_F025_an_agent_that_speaks_for_others_is_ended_or_not_believed(
    daemon: PrivateDaemon, client: Client, figures: Figures, lie: str
) -> None:
    """F025: a forged DOWN or hello ends the forger; what is hidden in a body nobody believes.

    Each is counted once: by the daemon, or by whoever opened the body.
    """
    honest = fleet.start(client, "honest", fleet.HANGS)
    ref = client.at(honest).submit_with_completion("go").ref
    fleet.admission(client, ref)
    client.at(honest).monitor()
    forger = fleet.start(client, "forger", agent="Forger", options={"lie": lie, "ref": ref.text})
    client.at(forger).monitor()

    client.notify("forger", client.address.text)

    if "dropped" in COUNTED[lie]:
        client.notify_ack("forger", None)
        heard = list(fleet.rest(client, 300))
    else:
        assert fleet.down(client, forger).reason.text == "protocol_abuse"
        heard = list(fleet.rest(client))
    believers = [
        who
        for who, believes in (
            ("the client", heard != []),
            ("the daemon", client.whereis("honest") != honest),
            ("the agent", not isinstance(client.poll("honest", ref), PollPending)),
        )
        if believes
    ]
    counted = {
        "bad_frames": client.daemon_status().bad_frames,
        "dropped": client.shell.talk.bad_frames,
        "agent.abuse": daemon.log.count('"event": "agent.abuse"'),
    }
    found = ", ".join(believers) or "nobody"
    figures.note("F025", f"forged {lie}: believed by", found, "nobody", met=not believers)
    assert believers == []
    assert fleet.alive([fleet.of(honest)]) == [honest.pid]
    assert counted == {who: int(who in COUNTED[lie]) for who in counted}


@counts(short=1, full=10)
async def test_F026_an_agent_that_floods_the_daemon_is_ended_and_slows_nobody(
    daemon: PrivateDaemon, figures: Figures, count: int
) -> None:
    """F026: messages to the daemon without end, by *count* agents one after the other."""
    waited_ms = []
    async with AsyncClient(daemon.run) as client:
        await client.start_agent(None, name="b", backend="echo", cwd="/")
        before_kib = _rss_kib(daemon.pid)
        began = time.monotonic()
        for _ in range(count):
            handle = await client.start_agent(
                "support.faulty_agents:Flooder", name="a", backend="echo", cwd=fleet.HERE
            )
            await client.at(handle).monitor()
            await client.notify("a", 60)
            while (down := await client.receive(0)) is None:
                asked = time.monotonic()
                assert (await client.ask("b", "x")).text == "x"
                waited_ms.append((time.monotonic() - asked) * 1000)
            assert isinstance(down, Down)
            assert down.reason.text == "protocol_abuse"
        took_s = (time.monotonic() - began) / count
    grown_mib = (_rss_kib(daemon.pid) - before_kib) / 1024
    waited_ms.sort()
    p99 = percentile(waited_ms, 0.99)
    figures.note(
        "F026",
        f"{count} agents that flood the daemon: each is ended after",
        f"{took_s:.1f} s",
        "5 s",
        met=took_s <= 5,
    )
    figures.note(
        "F026", "p99 of asks to a sibling meanwhile", f"{p99:.0f} ms", "200 ms", met=p99 <= 200
    )
    figures.note(
        "F026", "growth of the daemon", f"{grown_mib:.0f} MiB", "512 MiB", met=grown_mib <= 512
    )


def _rss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


@counts(short=5, full=60)
def test_F042_E090_a_busy_process_is_never_taken_for_dead(
    client: Client, figures: Figures, count: int
) -> None:
    """F042, E090: it holds the interpreter for *count* seconds; it is shown as unresponsive."""
    turn: fleet.Turn = [
        {"kind": "text", "text": "begun"},
        {"pause_ms": 50},
        {"hang": "held", "for_ms": count * 1_000},
        {"kind": "result"},
    ]
    handle = fleet.start(client, "a", turn)
    client.at(handle).monitor()
    ref = client.at(handle).submit_with_completion("go", stream_to=client.address).ref
    fleet.event(client, ref, "text")
    began = time.monotonic()
    row = until(lambda: _unresponsive(client), "it is shown as unresponsive", within_s=30)
    shown_s = time.monotonic() - began
    assert row.state == "running"

    outcome = fleet.completion(client, ref, within_ms=(count + 30) * 1_000).outcome

    assert isinstance(outcome, Completed)
    until(lambda: _unresponsive(client) is None, "it answers again", within_s=5)
    downs = [m for m in fleet.rest(client) if isinstance(m, Down)]
    figures.note(
        "F042",
        f"the interpreter was held for {count} s: false DOWNs; shown as unresponsive after",
        f"{len(downs)}; {shown_s:.1f} s",
        "0; 5 s",
        met=not downs and shown_s <= 5,
    )
    assert downs == []


def test_a_process_without_its_first_thread_is_not_dead(client: Client) -> None:
    """`/proc` shows the state of that thread, which is the one of a zombie."""
    handle = client.start_agent(
        "support.rude_agents:LosesItsFirstThread", name="a", backend="echo", cwd=fleet.HERE
    )
    client.at(handle).monitor()
    client.notify("a", None)
    until(lambda: (found := kernel.stat(handle.pid)) and found.state == "Z", "the thread has ended")

    assert client.at(handle).notify(None) == "ok"
    row = until(lambda: _unresponsive(client), "it is shown as unresponsive")
    assert row.state == "running"
    assert client.receive(0) is None
    client.stop("a")
    assert fleet.down(client, handle).reason.text == "signal:9"
    assert client.at(handle).notify(None) == "not_alive"


def test_many_processes_that_end_in_one_callback_leave_the_log_alone(client: Client) -> None:
    """Each end is a signal, and more of them than a loop has room for are one all the same."""
    client.start_agent(
        "support.rude_agents:StartsManyProcesses", name="a", backend="echo", cwd=fleet.HERE
    )

    for _ in range(2):
        assert client.ask("a", "hello").text == "hello"
        client.status("a")

    (row,) = client.list()
    assert row.log is not None
    assert "wakeup" not in Path(row.log).read_text()


def _unresponsive(client: Client) -> AgentRow | None:
    (row,) = client.list()
    return None if row.unresponsive_since_ms is None else row


@counts(short=3, full=60)
def test_E042_what_agents_print_never_fills_the_disk(
    daemon: PrivateDaemon, client: Client, figures: Figures, count: int
) -> None:
    """E042: an agent and a program of it print as fast as they can, for *count* seconds."""
    turn: fleet.Turn = [
        {"spawn": ["sh", "-c", "exec yes filling the disk >&2"]},
        {"hang": "idle"},
    ]
    fleet.start(client, "b")
    handle = fleet.start(client, "a", turn, agent="Printer")
    client.notify_ack("a", count)
    fleet.begin(client, handle)
    before_kib = _rss_kib(daemon.pid)
    largest, waited_ms = 0, list[float]()
    until_s = time.monotonic() + count
    while time.monotonic() < until_s:
        largest = max(largest, _size_of(daemon.places.logs / "a"))
        began = time.monotonic()
        client.status("b")
        waited_ms.append((time.monotonic() - began) * 1000)
    grown_mib = (_rss_kib(daemon.pid) - before_kib) / 1024
    waited_ms.sort()
    p99 = percentile(waited_ms, 0.99)
    figures.note(
        "E042",
        f"printing without end for {count} s: on disk at most",
        f"{largest / 2**20:.1f} MiB",
        f"{2 * MAX_BYTES / 2**20:.0f} MiB",
        met=largest <= 2 * MAX_BYTES,
    )
    figures.note(
        "E042", "status of another agent meanwhile, p99", f"{p99:.0f} ms", "100 ms", met=p99 <= 100
    )
    assert MAX_BYTES / 2 < largest <= 2 * MAX_BYTES
    assert grown_mib < 16


def _size_of(directory: Path) -> int:
    """Return what is there; a file may be moved aside between the look and the question."""
    sizes = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            sizes += path.stat().st_size
    return sizes


def test_the_logs_of_old_lives_go(daemon: PrivateDaemon, client: Client) -> None:
    """A name that is started again and again must not fill the directory either."""
    for _ in range(15):
        fleet.start(client, "a")
        client.stop("a")
    fleet.start(client, "a")

    assert 1 < len(list((daemon.places.logs / "a").glob("*.log"))) <= 11


@counts(short=300, full=10_000)
async def test_F013_when_agents_die_at_random_every_request_is_accounted_for(
    daemon: PrivateDaemon, figures: Figures, count: int
) -> None:
    """F013: at most one completion for each; what has none belongs to a process that is down."""
    chance = random.Random(13)
    completions: Counter[RequestRef] = Counter()
    refused: set[RequestRef] = set()
    downs: Counter[AgentHandle] = Counter()
    sent: dict[RequestRef, AgentHandle] = {}
    async with AsyncClient(daemon.run) as client:
        handles: dict[int, AgentHandle] = {}

        async def renew(number: int) -> None:
            handles[number] = await client.start_agent(
                None, name=f"a{number}", backend="echo", cwd="/"
            )
            await client.at(handles[number]).monitor()

        async def listen() -> None:
            while True:
                match await client.receive():
                    case Completion(ref=ref):
                        completions[ref] += 1
                    case Admission(ref=ref, refused=reason) if reason is not None:
                        refused.add(ref)
                    case Down(handle=handle):
                        downs[handle] += 1

        listening = asyncio.create_task(listen())
        await asyncio.gather(*(renew(number) for number in range(6)))
        killed: list[AgentHandle] = []
        for number in range(count):
            target = chance.randrange(6)
            handle = handles[target]
            submitted = await client.at(handle).submit_with_completion(f"{number}")
            sent[submitted.ref] = handle
            if chance.random() < 0.03:
                os.kill(handle.pid, signal.SIGKILL)
                killed.append(handle)
                await _until(lambda handle=handle: downs[handle] > 0)
                await renew(target)
            elif number % 50 == 0:
                await client.status(f"a{target}")
        for number in range(6):
            os.kill(handles[number].pid, signal.SIGKILL)
            killed.append(handles[number])
        await _until(lambda: len(downs) == len(killed))
        listening.cancel()
    doubled = sum(times - 1 for times in completions.values()) + sum(
        times - 1 for times in downs.values()
    )
    unexplained = [
        ref
        for ref, handle in sent.items()
        if ref not in completions and ref not in refused and not downs[handle]
    ]
    figures.note(
        "F013",
        f"{count} requests, {len(killed)} kills: doubled, unexplained (completed "
        f"{len(completions)}, outcome unknown {count - len(completions)})",
        f"{doubled}, {len(unexplained)}",
        "0, 0",
        met=doubled == 0 and not unexplained,
    )
    assert (doubled, unexplained) == (0, [])
    assert set(downs) == set(killed)


async def _until(fact: object) -> None:
    assert callable(fact)
    async with asyncio.timeout(60):
        while not fact():
            await asyncio.sleep(0.001)


@counts(short=5, full=300)
def test_E091_what_is_shown_agrees_with_the_process_table(
    daemon: PrivateDaemon, client: Client, figures: Figures, count: int
) -> None:
    """E091: kills, stops, crashes, starts at random for *count* seconds, compared all the time."""
    over = threading.Event()
    troubled: list[str] = []

    def trouble() -> None:
        chance = random.Random(91)
        with Client(daemon.run) as other:
            while not over.is_set():
                name = f"a{chance.randrange(8)}"
                try:
                    handle = other.whereis(name)
                    if handle is None:
                        fleet.start(other, name, fleet.BUSY, restart="transient")
                    else:
                        _trouble(other, handle, chance.choice(("kill", "stop", "crash", "turn")))
                except GenAgentError as error:
                    troubled.append(type(error).__name__)

    mischief = threading.Thread(target=trouble)
    mischief.start()
    suspects: dict[str, float] = {}
    worst_s, looks = 0.0, 0
    until_s = time.monotonic() + count
    while time.monotonic() < until_s:
        now = time.monotonic()
        found = _disagreements(daemon, client.list())
        suspects = {what: suspects.get(what, now) for what in found}
        worst_s = max([worst_s, *(now - since for since in suspects.values())])
        looks += 1
    over.set()
    mischief.join(60)
    until(lambda: not zombies_below(daemon.pid), "there is no zombie", within_s=2)
    figures.note(
        "E091",
        f"{looks} looks in {count} s of chaos: the longest disagreement with /proc",
        f"{worst_s * 1000:.0f} ms",
        "2000 ms",
        met=worst_s <= 2,
    )
    assert worst_s <= 2
    assert looks > 10


def _trouble(client: Client, handle: AgentHandle, what: str) -> None:
    match what:
        case "kill":
            kernel.kill_exactly(handle.pid, handle.started_ticks)
        case "crash":
            pidfd = kernel.open_pidfd(handle.pid)
            if pidfd is not None:
                kernel.signal_pidfd(pidfd, signal.SIGSEGV)
                os.close(pidfd)
        case "stop":
            client.stop(handle.name)
        case _:
            client.at(handle).submit_with_completion("go")


def _disagreements(daemon: PrivateDaemon, rows: tuple[AgentRow, ...]) -> set[str]:
    """Return what is shown to run and does not, and what runs and is not shown."""
    running = [row.handle for row in rows if row.state == "running" and row.handle is not None]
    dead = {f"dead {h.pid}" for h in running if not kernel.is_alive(h.pid, h.started_ticks)}
    shown = {row.handle.pid for row in rows if row.handle is not None}
    # The helper leads one too, and so does the newborn that is nobody yet.
    agents = {pid for pid in kernel.children(daemon.pid) if _leads_its_session(pid)}
    hidden = agents - helpers_of(daemon) - waiting_in(daemon) - shown
    return dead | {f"hidden {pid}" for pid in hidden}


def _leads_its_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def test_E024_a_crash_loop_slows_down_and_ends(daemon: PrivateDaemon, client: Client) -> None:
    """E024: the wait grows, after five restarts it is failed, and everybody can see why."""
    policy = RestartPolicy(
        kind="permanent", max_restarts=5, period_ms=60_000, delay_ms=20, max_delay_ms=400
    )
    with client.telemetry() as records:
        handle = fleet.start(client, "a", [{"os_exit": 3}], restart=policy)
        client.at(handle).monitor()
        client.at(handle).submit_with_completion("end")
        assert fleet.down(client, handle).reason.text == "exit:3"
        for _ in range(5):
            again = until(lambda: client.whereis("a"), "it is there again")
            client.at(again).submit_with_completion("end")
            until(partial(_ended, client, again), "that one ended")
        row = until(lambda: _failed(client), "it is failed")
        told: list[Telemetry] = []
        while not (told and told[-1].event == "agent.failed"):
            record = records.receive(30_000)
            assert isinstance(record, Telemetry), "nobody told that it is failed"
            told.append(record)
    assert (row.restarts, row.reason and row.reason.text) == (5, "exit:3")
    assert row.log is not None
    assert "reason=exit:3" in Path(row.log).read_text()
    waits = [t.metadata["after_ms"] for t in told if t.event == "agent.restarting"]
    assert waits == [20, 40, 80, 160, 320]
    ends = [t.metadata["reason"] for t in told if t.event == "agent.down"]
    assert ends == ["exit:3"] * 6
    failed = told[-1]
    assert (failed.agent, failed.metadata["restarts"]) == ("a", 5)
    with pytest.raises(StartFailed, match="stop it first"):
        fleet.start(client, "a")
    client.stop("a")
    assert fleet.start(client, "a").name == "a"


def test_a_turn_that_keeps_the_interpreter_is_ended_by_the_kernel(client: Client) -> None:
    """No thread of the agent runs any more, so nothing in it could; its tools end with it."""
    handle = fleet.start(
        client,
        "a",
        [{"spawn": "grandchild"}, {"kind": "text", "text": "think"}, {"hang": "idle"}],
        agent="KeepsTheInterpreter",
        options={"watchdog_ms": 1_000, "interrupt_grace_ms": 200},
    )
    client.at(handle).monitor()
    client.at(handle).submit_with_completion("go")
    # What it says of them is held back with everything else.
    tools = until(lambda: fleet.tree(handle.pid), "it has begun")

    assert fleet.down(client, handle).reason == TURN_STUCK
    fleet.gone(tools, within_s=2)


def test_an_agent_that_cannot_be_started_again_says_why(
    daemon: PrivateDaemon, client: Client, tmp_path: Path
) -> None:
    """Its last life ended like any other; what keeps it from the next one is the news."""
    script = tmp_path / "script.json"
    script.write_text("[]")
    policy = RestartPolicy(kind="permanent", max_restarts=2, delay_ms=10, max_delay_ms=10)
    options = {"script_file": str(script)}
    handle = fleet.start(client, "a", options=options, restart=policy)
    script.unlink()

    os.kill(handle.pid, signal.SIGKILL)

    row = until(lambda: _failed(client), "it is failed")
    assert row.error is not None
    assert row.error.kind == "backend_start_failed"
    assert "script file" in row.error.message
    assert row.error.log is not None
    assert row.error.log == row.log
    assert "agent.down" in Path(row.log).read_text()
    listed = ran(daemon, "genagent", "list")
    assert "failed (backend_start_failed)" in listed.out


def _ended(client: Client, handle: AgentHandle) -> bool:
    return client.whereis(handle.name) != handle


def _failed(client: Client) -> AgentRow | None:
    return next((row for row in client.list() if row.state == "failed"), None)


@pytest.mark.parametrize(
    ("kind", "end", "back"),
    [
        ("temporary", {"os_exit": 3}, False),
        ("transient", {"os_exit": 3}, True),
        ("transient", {"os_exit": 0}, False),
        ("transient", {"kill": "SIGKILL"}, True),
        ("permanent", {"os_exit": 0}, True),
    ],
)
def test_a_policy_decides_who_comes_back(
    client: Client, kind: str, end: dict[str, object], back: bool
) -> None:
    """A restarted agent is another life: another process, no state, no old requests."""
    policy = RestartPolicy(kind=kind, delay_ms=1)  # type: ignore[arg-type]  # one of the kinds
    handle = fleet.start(client, "a", fleet.SAYS, [end], restart=policy)
    client.at(handle).monitor()
    assert client.ask("a", "remember").text == "done"
    ref = client.at(handle).submit_with_completion("end").ref
    fleet.down(client, handle)

    if not back:
        assert client.list() == ()
        return
    again = until(lambda: client.whereis("a"), "it is back")
    assert again.incarnation != handle.incarnation
    assert client.status("a").agent_state == ()
    assert type(client.poll("a", ref)).__name__ == "Lost"
    client.stop("a")
    assert client.list() == ()


@pytest.mark.parametrize("how", ["close", "killed", "killed beside a fork", "disconnected"])
def test_the_group_of_an_owner_that_is_gone_ends(
    daemon: PrivateDaemon, client: Client, tmp_path: Path, how: str
) -> None:
    """D40: its agents are owned; whatever became of the owner, they do not run on."""
    beside = tmp_path / "beside"
    owner = Client(daemon.run).connect()
    group = owner.group().open()
    handles = [
        group.start_agent(None, name=f"g{n}", backend="echo", cwd="/", restart="permanent")
        for n in range(3)
    ]
    for handle in handles:
        client.at(handle).monitor()
    fleet.start(client, "mine")

    if how == "close":
        group.close()
    elif how == "disconnected":
        owner.close()
    else:
        child = os.fork()
        if child == 0:
            forked = Client(daemon.run).connect()
            inner = forked.group().open()
            inner.start_agent(None, name="inner", backend="echo", cwd="/")
            if how == "killed beside a fork":
                beside.write_text(str(_fork_that_stays()))
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        until(lambda: client.whereis("inner") is None, "the group of the killed one ended")
        if beside.exists():
            os.kill(int(beside.read_text()), signal.SIGKILL)
        owner.close()

    assert {fleet.down(client, handle).reason.text for handle in handles} == {"shutdown"}
    until(lambda: [row.name for row in client.list()] == ["mine"], "only mine is left")
    owner.close()


def test_E045_an_agent_has_exactly_the_documented_environment(nothing_left: None) -> None:
    """E045: the allow-list and what its start adds; never what the daemon happened to have."""
    place = PrivateDaemon(
        environment={"SECRET": "1", "LC_ALL": "C.UTF-8", "GENAGENT_PASS_ENV": "WANTED"}
    )
    place.environment = {**place.environment, "WANTED": "2", "TZ": "UTC"}
    try:
        place.start()
        with Client(place.run) as client:
            fleet.start(
                client, "a", agent="ShowsEnvironment", env={"MINE": "3", "TZ": "Asia/Tokyo"}
            )
            seen = client.status("a").agent_state
            assert isinstance(seen, dict)
            allowed = {*ALLOWED, "LC_ALL", "WANTED", "MINE"}
            assert {n for n in seen if not n.startswith(ALLOWED_PREFIXES)} <= allowed
            assert (seen["WANTED"], seen["MINE"], seen["TZ"]) == ("2", "3", "Asia/Tokyo")
            assert "SECRET" not in seen
            assert seen == seen | {"LC_ALL": "C.UTF-8"}
            client.stop("a")
        place.stop()
        place.environment = {**place.environment, "WANTED": "changed"}
        place.start()
        with Client(place.run) as client:
            fleet.start(client, "a", agent="ShowsEnvironment")
            seen = client.status("a").agent_state
            assert isinstance(seen, dict)
            assert (seen["WANTED"], seen["TZ"], "MINE" in seen) == ("changed", "UTC", False)
    finally:
        place.stop()
        place.cleanup()


def test_E045_what_the_configuration_passes_reaches_the_next_life(
    nothing_left: None, tmp_path: Path
) -> None:
    """E045: a reload and a restart are enough; whoever runs on keeps what it was started with."""
    config = tmp_path / "config.toml"
    config.write_text('pass_env = ["OLD"]')
    place = PrivateDaemon(
        environment={"OLD": "1", "NEW": "2", "SECRET": "3", "GENAGENT_CONFIG": str(config)}
    )
    policy = RestartPolicy(kind="permanent", delay_ms=1)
    try:
        place.start()
        with Client(place.run) as client:
            old = {
                name: fleet.start(client, name, agent="ShowsEnvironment", restart=policy)
                for name in ("restarted", "killed", "untouched")
            }
            assert [_of_those(client, name) for name in old] == [{"OLD": "1"}] * 3

            config.write_text('pass_env = ["NEW"]')
            place.signal(signal.SIGHUP)
            until(lambda: "config.reloaded" in place.log, "it is read")
            assert [_of_those(client, name) for name in old] == [{"OLD": "1"}] * 3
            client.stop("restarted")
            fleet.start(client, "restarted", agent="ShowsEnvironment", restart=policy)
            os.kill(old["killed"].pid, signal.SIGKILL)
            until(
                lambda: client.whereis("killed") not in (None, old["killed"]), "it is there again"
            )

            assert _of_those(client, "restarted") == {"NEW": "2"}
            assert _of_those(client, "killed") == {"NEW": "2"}
            assert _of_those(client, "untouched") == {"OLD": "1"}
            assert client.whereis("untouched") == old["untouched"]
    finally:
        place.stop()
        place.cleanup()


def _of_those(client: Client, name: str) -> dict[str, str]:
    """Return which variables of the daemon, of those that are no agent's by right, it has."""
    seen = client.status(name).agent_state
    assert isinstance(seen, dict)
    return {key: str(seen[key]) for key in ("OLD", "NEW", "SECRET") if key in seen}


def _fork_that_stays() -> int:
    """Fork a process that holds a copy of all that is open, for as long as it lives."""
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    return child
