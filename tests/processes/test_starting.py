"""Starts: many at once, one of a name, and every way one can fail without leaving a trace."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from genagent_protocol.errors import StartFailed
from genagentd import kernel
from genagentd.client.aio import AsyncClient
from genagentd.client.client import Client
from genagentd.daemon import allowance
from support import fleet
from support.daemons import PrivateDaemon, living_below, waiting_in, zombies_below
from support.figures import Figures, counts
from support.waiting import until

pytestmark = pytest.mark.process


@counts(short=40, full=200)
async def test_F007_of_many_starts_of_one_name_exactly_one_succeeds(
    daemon: PrivateDaemon, figures: Figures, count: int
) -> None:
    """F007: the others are told who has the name."""
    async with AsyncClient(daemon.run) as client:
        starts = [client.start_agent(None, name="a", backend="echo", cwd="/") for _ in range(count)]
        ended = await asyncio.gather(*starts, return_exceptions=True)
        holder = await client.whereis("a")
    errors = [error for error in ended if isinstance(error, StartFailed)]
    assert holder in ended
    kinds = {error.reason.kind for error in errors}
    assert kinds == {"already_started"}
    assert {error.reason.detail for error in errors} == {holder.incarnation.text}
    met = len(errors) == count - 1
    figures.note(
        "F007",
        f"of {count} starts of one name: started, already_started",
        f"{count - len(errors)}, {len(errors)}",
        f"1, {count - 1}",
        met=met,
    )
    assert met


def _pss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


@counts(short=10, full=50)
async def test_F008_many_agents_at_once_are_ready_soon_and_small(
    daemon: PrivateDaemon, figures: Figures, count: int
) -> None:
    """F008: a fleet comes up in seconds, and an idle agent costs a few MiB."""
    async with AsyncClient(daemon.run) as client:
        began = time.monotonic()
        handles = await asyncio.gather(
            *(client.start_agent(None, name=n, backend="echo", cwd="/") for n in range(count))
        )
        took_s = time.monotonic() - began
        pss_mib = sum(_pss_kib(handle.pid) for handle in handles) / count / 1024
    figures.note(
        "F008",
        f"{count} agents started at once are ready after",
        f"{took_s:.2f} s",
        "15 s",
        met=took_s <= 15,
    )
    figures.note(
        "F008",
        f"PSS of each of {count} idle agents",
        f"{pss_mib:.1f} MiB",
        "16 MiB",
        met=pss_mib <= 16,
    )


@pytest.mark.parametrize(
    ("agent", "options", "terms", "kind", "says"),
    [
        ("RaisesInInit", {}, {}, "init_failed", "LookupError"),
        ("ExitsInInit", {"status": 0}, {}, "exited", "normal"),
        ("ExitsInInit", {"status": 3}, {}, "exited", "exit:3"),
        ("SleepsInInit", {"seconds": 60}, {"start_timeout_ms": 300}, "start_timeout", "300 ms"),
        ("NoSuchClass", {}, {}, "unknown_agent", "NoSuchClass"),
        (None, {"no_such": 1}, {}, "backend_start_failed", "no_such"),
        (None, {}, {"cwd": "/no/such/place"}, "bad_directory", "/no/such/place"),
    ],
)
@pytest.mark.parametrize("restart", ["temporary", "permanent"])
def test_E026_a_failed_start_is_told_and_leaves_nothing(
    daemon: PrivateDaemon,
    client: Client,
    agent: str | None,
    options: dict[str, object],
    terms: dict[str, object],
    kind: str,
    says: str,
    restart: str,
) -> None:
    """E026: typed, no process of it left, the name free at once, never tried again."""
    fleet.start(client, "other")
    before = set(living_below(daemon.pid)) - waiting_in(daemon)

    with pytest.raises(StartFailed) as failed:
        fleet.start(client, "a", agent=agent, options=options, restart=restart, **terms)

    assert failed.value.reason.kind == kind
    assert says in str(failed.value)
    assert "a" not in [row.name for row in client.list()]
    # Another newborn may just be becoming one that waits.
    until(
        lambda: set(living_below(daemon.pid)) - waiting_in(daemon) == before,
        "nothing of it is left",
        within_s=5,
    )
    assert fleet.start(client, "a").name == "a"


@pytest.mark.parametrize("exits", [False, True])
def test_E026_a_failed_start_is_told_when_its_tools_have_ended(
    client: Client, tmp_path: Path, exits: bool
) -> None:
    """E026: whoever hears that it failed may start another one in the same place at once."""
    pids = tmp_path / "pids"
    pids.touch()
    options = {"pids": str(pids), "exits": exits}

    with pytest.raises(StartFailed):
        fleet.start(client, "a", agent="RaisesAboveTools", options=options)

    tools = [int(pid) for pid in pids.read_text().split()]
    found = [kernel.stat(pid) for pid in tools]
    assert len(tools) == 5
    assert [one for one in found if one is not None and not one.ended] == []


@pytest.mark.parametrize("short_of", [0, 1])
def test_a_daemon_that_could_let_in_nobody_does_not_say_it_is_ready(
    daemon_environment: None, short_of: int
) -> None:
    """Its service manager and whoever began it waited for ever, and no message named the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    daemon = PrivateDaemon(environment={"GENAGENT_KEEP_NOFILE": "1"})
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowance.LEAST - short_of, hard))
    try:
        daemon.start(wait=not short_of)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        if short_of:
            assert daemon.wait() == 1
            assert "ulimit -n" in daemon.log
            assert '"ready"' not in daemon.log
        else:
            with Client(daemon.run) as client:
                client.start_agent(None, name="a", backend="echo", cwd="/")
                assert client.ask("a", "is there room?").text == "is there room?"
            assert daemon.stop() == 0
    finally:
        daemon.cleanup()


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Run with `ulimit -n 256`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("at_once", [False, True])
async def test_F036_E021_out_of_descriptors_is_a_typed_refusal(
    few_descriptors: None, daemon_environment: None, figures: Figures, at_once: bool
) -> None:
    """F036, E021: the agents that run are served on, and what was taken comes back."""
    daemon = PrivateDaemon(environment={"GENAGENT_KEEP_NOFILE": "1"})
    try:
        daemon.start()
        await _fill(daemon, figures, at_once)
    finally:
        assert daemon.stop() == 0
        daemon.cleanup()


@pytest.fixture
def daemon_environment(nothing_left: None) -> None:
    """The test makes its own daemon."""


async def _fill(daemon: PrivateDaemon, figures: Figures, at_once: bool) -> None:
    descriptors = f"/proc/{daemon.pid}/fd"
    async with AsyncClient(daemon.run) as client:
        await client.start_agent(None, name="first", backend="echo", cwd="/")
        await client.stop("first")
        baseline = len(os.listdir(descriptors))

        async def start(name: str) -> str:
            try:
                await client.start_agent(None, name=name, backend="echo", cwd="/")
            except StartFailed as failed:
                return failed.reason.kind
            return "started"

        names = [f"a{number}" for number in range(100)]
        if at_once:
            ended = await asyncio.gather(*map(start, names))
        else:
            ended = [await start(name) for name in names]
        assert set(ended) == {"started", "resource_exhausted"}
        started = [name for name, end in zip(names, ended, strict=True) if end == "started"]
        # Those that start together are each promised more than they take in the end.
        assert at_once or abs(len(started) - _documented(r"(\d+) with 256")[0]) <= 2
        texts = [(await client.ask(name, "still there")).text for name in started]
        assert texts == ["still there"] * len(started)
        await asyncio.gather(*map(client.stop, started))
        until(lambda: len(os.listdir(descriptors)) <= baseline, "they came back", within_s=10)
        assert await start("again") == "started"
        await client.stop("again")
    how = "at once" if at_once else "one by one"
    figures.note(
        "F036",
        f"ulimit -n 256, 100 agents {how}: refused, all descriptors came back",
        100 - len(started),
        "> 0",
        met=len(started) < 100,
    )


def _documented(pattern: str) -> list[int]:
    """Return the numbers that the page about limits says in the words of *pattern*."""
    page = Path(__file__).parents[2] / "docs/reference/configuration.md"
    said = re.search(pattern, page.read_text(encoding="utf-8"))
    assert said is not None, pattern
    return [int(number) for number in said.groups()]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_E021_agents_and_clients_cost_the_descriptors_that_the_page_says(
    nothing_left: None, figures: Figures, method: str
) -> None:
    """E021: whoever plans for hundreds of agents can work out the limit."""
    of_agent, of_client, of_daemon = documented = _documented(
        r"Each agent takes (\d+) descriptors of the daemon, each client (\d+), "
        r"the daemon itself about (\d+)"
    )
    some = 10
    place = PrivateDaemon(environment={"GENAGENT_START_METHOD": method}).start()
    try:
        with Client(place.run) as client:
            fleet.start(client, "first")
            first = _steady(place)
            for number in range(some):
                fleet.start(client, f"a{number}")
            agents = _once(place, first + some * of_agent)
            with ExitStack() as others:
                for _ in range(some):
                    others.enter_context(Client(place.run)).list()
                clients = _once(place, agents + some * of_client)
            fleet.stop_all(client)
            none = _once(place, first - of_agent)
    finally:
        place.stop()
        place.cleanup()
    itself = none - of_client
    measured = [(agents - first) / some, (clients - agents) / some, itself]
    figures.note(
        "E021",
        f"descriptors of the daemon ({method}) for each agent, each client, itself",
        ", ".join(f"{number:g}" for number in measured),
        f"{of_agent}, {of_client}, about {of_daemon}",
        met=measured[:2] == documented[:2] and abs(itself - of_daemon) <= 5,
    )
    assert measured[:2] == documented[:2]
    assert none == first - of_agent
    assert abs(itself - of_daemon) <= 5


def _steady(place: PrivateDaemon) -> int:
    """Return how many descriptors the daemon has, once that has stopped changing."""
    looks = deque([-1], maxlen=40)

    def as_before() -> bool:
        looks.append(_open(place))
        return len(looks) == looks.maxlen and len(set(looks)) == 1

    until(as_before, "what is open does not change")
    return looks[0]


def _once(place: PrivateDaemon, expected: int) -> int:
    """Return how many descriptors the daemon has: *expected*, unless it never has so many."""
    with suppress(AssertionError):
        until(lambda: _open(place) == expected, "so many are open", within_s=10)
    return _open(place)


def _open(place: PrivateDaemon) -> int:
    return len(os.listdir(f"/proc/{place.pid}/fd"))


@pytest.mark.parametrize(("agent", "printed"), [("RaisesInInit", True), ("NoSuchClass", False)])
def test_a_failed_start_names_its_log_if_there_is_anything_in_it(
    client: Client, agent: str, printed: bool
) -> None:
    """Whoever is sent to an empty file looks for what he missed."""
    with pytest.raises(StartFailed) as failed:
        fleet.start(client, "a", agent=agent)

    log = failed.value.reason.log
    assert (log is not None) is printed
    assert log is None or "LookupError" in Path(log).read_text()


def test_no_zombie_is_left_of_failed_starts(daemon: PrivateDaemon, client: Client) -> None:
    """Each failed start ends a process that nobody else would reap."""
    for number in range(5):
        with pytest.raises(StartFailed):
            fleet.start(client, f"a{number}", agent="ExitsInInit", options={"status": 1})

    until(lambda: not zombies_below(daemon.pid), "there is no zombie", within_s=2)
    assert [pid for pid in kernel.children(daemon.pid) if kernel.stat(pid) is None] == []
