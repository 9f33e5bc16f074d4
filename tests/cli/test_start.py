"""`genagentd start`: whoever was there and ends meanwhile, a daemon serves when it returns 0."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.envelopes import CoreState
from genagent_protocol.refs import BootId
from genagentd.cli import beginning, unanswered
from genagentd.client import core
from genagentd.client.client import Client
from genagentd.daemon import lock
from genagentd.paths import Places
from support import fleet
from support.commands import Command, command, ran
from support.daemons import PrivateDaemon

#: The number that one has which drains: ours, as it is we who hold its lock.
DRAINING = os.getpid()


class Begun:
    """A daemon that `start` began: what it ended with, if it did."""

    def __init__(self, pid: int, code: int | None) -> None:
        self.pid = pid
        self._code = code

    def poll(self) -> int | None:
        return self._code


class World:
    """Time that passes where somebody sleeps, what happens then, and who is there."""

    def __init__(self, run: Path) -> None:
        self.places = Places(run, run)
        self.now = 0.0
        #: What happens as soon as it is that late.
        self.later: dict[float, Callable[[], None]] = {}
        #: What becomes of each one that is begun: it serves, or another one is faster.
        self.fates: list[Callable[[], int | None]] = []
        self.answer: CoreState | None = None
        self.begun = 0
        self._held: lock.Lock | None = None
        self._dumb = False

    def monotonic(self) -> float:
        return self.now

    def sleep(self, for_s: float) -> None:
        self.now += for_s
        for late in sorted(at for at in self.later if at <= self.now):
            self.later.pop(late)()

    def spawn(self, *_: object) -> Begun:
        self.begun += 1
        fate = self.fates.pop(0)
        return Begun(100 + self.begun, fate())

    def ask(self, _where: Places, within_s: float) -> CoreState | None:
        if self._dumb:
            self.sleep(within_s)
        return self.answer

    # --- fates

    def serves(self) -> None:
        """It has the lock and answers."""
        self.answer = _state(100 + self.begun)
        self._take()

    def is_slow(self) -> None:
        """It does neither, and lives."""

    def locks_and_is_slow(self) -> None:
        """It is the one, and answers nobody yet."""
        self._take()

    def loses(self) -> int:
        """Another one has the lock, which answers to nobody yet."""
        self._take()
        return 4

    def loses_to_a_dumb_one(self) -> int:
        """That lets everybody in and says nothing."""
        self._dumb = True
        return self.loses()

    def loses_to_one_that_drains(self) -> int:
        """As long as it lives."""
        self.another_drains()
        return 4

    def _take(self) -> None:
        self._held = lock.take(self.places)
        assert self._held is not None

    # --- others

    def another_drains(self) -> None:
        self._take()
        self.answer = _state(DRAINING, draining=True)

    def it_is_silent(self) -> None:
        self.answer = None

    def the_other_ends(self) -> None:
        assert self._held is not None
        self._held.release()
        self.answer = None


def _state(pid: int, *, draining: bool = False) -> CoreState:
    return CoreState(
        call=1,
        pid=pid,
        boot=BootId("0" * 16),
        software="0",
        ready=not draining,
        draining=draining,
        agents=0,
        clients=1,
        uptime_ms=0,
        bad_frames=0,
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Nobody is there."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))
    made = World(tmp_path)
    for module in (beginning, unanswered, lock, core):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(beginning, "_spawn", made.spawn)
    monkeypatch.setattr(beginning, "_ask_core", made.ask)
    return made


def test_whoever_lost_to_a_daemon_that_ended_is_begun_anew(
    genagentd: Command, world: World
) -> None:
    """It was waited for until the time was over, and told to go on starting: a dead process."""
    world.fates = [world.loses, world.serves]
    world.later = {1.0: world.the_other_ends}

    told = genagentd("start", "--timeout", "6", "--json")

    assert (told.code, told.json["pid"], told.json["started"]) == (0, 102, True)
    assert world.now < 1.1


@pytest.mark.parametrize(
    ("fates", "later", "code", "error", "named"),
    [
        (["loses"], {}, 7, "not_answering", "pid {me}"),
        (["loses_to_a_dumb_one"], {6.0: "the_other_ends"}, 7, "not_reachable", "no daemon runs"),
        (["is_slow"], {}, 5, "starting", "pid 101"),
        (["loses", "is_slow"], {1.0: "the_other_ends"}, 5, "starting", "pid 102"),
    ],
)
def test_only_who_lives_is_said_to_go_on_starting(
    genagentd: Command,
    world: World,
    fates: list[str],
    later: dict[float, str],
    code: int,
    error: str,
    named: str,
) -> None:
    """Whoever looks for that process would find none, or a stranger."""
    world.fates = [getattr(world, fate) for fate in fates]
    world.later = {at: getattr(world, what) for at, what in later.items()}

    told: Any = genagentd("start", "--timeout", "6", "--json")

    assert (told.code, told.error) == (code, error)
    assert named.format(me=os.getpid()) in told.json["error"]["message"]
    assert world.begun == len(fates)


@pytest.mark.parametrize(
    ("parent", "pid"), [(101, os.getpid()), (1, None)], ids=["ours", "another one"]
)
def test_a_slow_daemon_that_has_its_lock_is_named_and_not_its_guardian(
    genagentd: Command,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    parent: int,
    pid: int | None,
) -> None:
    """Both have the same command line, and `status` names the daemon; never another one's."""
    monkeypatch.setattr(beginning, "_parent", lambda _pid: parent)
    world.fates = [world.locks_and_is_slow]

    told: Any = genagentd("start", "--timeout", "6", "--json")

    assert (told.code, told.error) == (5, "starting")
    who = "its guardian is pid 101" if pid is None else f"pid {pid}"
    assert f"({who})" in told.json["error"]["message"]
    assert told.json["error"]["details"]["pid"] == pid
    assert told.json["error"]["details"]["guardian"] == 101


@pytest.mark.parametrize("goes_silent", [True, False])
def test_a_daemon_that_ends_is_waited_for_and_another_one_begun(
    genagentd: Command, world: World, goes_silent: bool
) -> None:
    """'Already running' was said of it, and seconds later nothing ran."""
    world.another_drains()
    world.fates = [world.serves]
    world.later = {2.0: world.the_other_ends}
    if goes_silent:
        world.later[1.0] = world.it_is_silent

    told = genagentd("start", "--timeout", "6", "--json")

    assert (told.code, told.json["pid"], told.json["started"]) == (0, 101, True)
    assert 2.0 <= world.now < 2.1


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fates", [[], ["loses_to_one_that_drains"]])
def test_a_daemon_that_ends_for_too_long_is_named(
    genagentd: Command, world: World, fates: list[str], known: bool
) -> None:
    """It answers, so it is neither silent nor starting; nothing else was begun, or has lost."""
    if not fates:
        world.another_drains()
    if not known:
        # It is in a pid namespace that we do not see into.
        (world.places.lock).write_text("")
    world.fates = [getattr(world, fate) for fate in fates]

    told = genagentd("start", "--timeout", "6", "--json")

    error = told.json["error"]
    assert (told.code, error["code"], error["details"]) == (5, "stopping", {"pid": DRAINING})
    assert f"(pid {DRAINING}) is still ending after 6 s" in error["message"]
    assert "genagentd stop --force" in error["hint"]
    assert world.begun == len(fates)
    assert 6.0 <= world.now < 6.2


@pytest.mark.process
def test_a_start_while_a_real_daemon_drains_waits_for_its_end(nothing_left: None) -> None:
    """And `stop`, which waits for that end, too, does not wait for the one that is begun then."""
    place = PrivateDaemon({"GENAGENT_GRACE_MS": "600000"})
    try:
        old = ran(place, "genagentd", "start", "--json").json["pid"]
        with Client(place.run) as client:
            ref, _ = fleet.begin(client, fleet.start(client, "a", fleet.HANGS), spawns=0)
            fleet.event(client, ref, "text")
        core.stop_daemon(place.places.socket, 60_000, force=False)

        late = ran(place, "genagentd", "start", "--timeout", "0.5", "--json")
        with subprocess.Popen(
            command("genagentd", "start", "--timeout", "120", "--json"),
            env=place.environ,
            stdout=subprocess.PIPE,
        ) as waits:
            ended = ran(place, "genagentd", "stop", "--force", "--json")
            out, _ = waits.communicate(timeout=120)

        assert (late.code, late.error) == (5, "stopping")
        assert late.json["error"]["details"] == {"pid": old}
        assert (ended.code, ended.json["pid"]) == (0, old)
        began = json.loads(out)
        assert (waits.returncode, began["started"]) == (0, True)
        assert began["pid"] != old
        assert ran(place, "genagentd", "status", "--json").json["pid"] == began["pid"]
    finally:
        ran(place, "genagentd", "stop", "--force")
        place.cleanup()
