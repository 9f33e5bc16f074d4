"""What the machine orders is performed, whatever becomes of any other order."""

from __future__ import annotations

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.plain import FrozenDict
from genagent_protocol.refs import BootId, Incarnation
from genagent_protocol.requests import StartAgent
from genagent_protocol.supervision import inputs
from genagentd.config import Config
from genagentd.daemon import lives
from genagentd.daemon import shell as shells
from genagentd.daemon.allowance import PER_AGENT, Allowance
from genagentd.daemon.lives import Life, Refusal, Surroundings
from genagentd.daemon.shell import Shell
from genagentd.paths import Places

INCARNATION = Incarnation(BootId("0123456789abcdef"), 1)


class Performing(Shell):
    """A shell without a daemon, which notes what it performs and fails where it is told to."""

    def __init__(self, failing: set[int]) -> None:
        self.table: Any = None
        self.on_change = lambda: None
        self._pending = deque()
        self._advancing = False
        self._failing = failing
        self.performed: list[Any] = []

    def _perform(self, effect: Any) -> None:
        self.performed.append(effect)
        if effect in self._failing:
            raise RuntimeError("this one cannot be performed")


def at_once(gone: Callable[[], None]) -> None:
    """Play a dead agent that left nothing behind."""
    gone()


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are lists of numbers, and each is a step with these as its effects."""
    monkeypatch.setattr(
        shells, "advance", lambda table, fact: SimpleNamespace(table=table, effects=fact)
    )
    monkeypatch.setattr(shells, "warn", lambda *_said, **_facts: None)


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize("failing", range(4))
def test_an_effect_that_fails_takes_no_other_with_it(failing: int) -> None:
    """The table has gone on: what is left out now would never be done."""
    shell = Performing({failing})

    shell.feed([0, 1, 2, 3])  # type: ignore[arg-type]  # stands for an input
    shell.feed([4])  # type: ignore[arg-type]  # stands for an input

    assert shell.performed == [0, 1, 2, 3, 4]


@given(
    steps=st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=5),
    failing=st.sets(st.integers(0, 9)),
)
def test_whatever_fails_everything_is_performed_once_and_in_order(
    steps: list[list[int]], failing: set[int]
) -> None:
    """Whichever effects fail, of whichever steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shells, "advance", lambda table, fact: SimpleNamespace(table=table, effects=fact)
        )
        patch.setattr(shells, "warn", lambda *_said, **_facts: None)
        shell = Performing(failing)
        for step in steps:
            shell.feed(step)  # type: ignore[arg-type]  # stands for an input

    assert shell.performed == [number for step in steps for number in step]


# --- an end


@pytest.mark.parametrize("broken", range(5))
async def test_a_disposal_does_all_of_it_whatever_a_part_does(broken: int, tmp_path: Path) -> None:
    """A descriptor that stays open, or a name that stays taken, would be lost for good."""
    done: list[int] = []

    def part(number: int) -> Any:
        def do(*_: object) -> None:
            done.append(number)
            if number == broken:
                raise RuntimeError("this part cannot be done")

        return do

    board: Any = SimpleNamespace(close_port=part(0))
    start: Any = SimpleNamespace(name="x")
    places = Places(tmp_path, tmp_path)
    nobody: Any = None
    around = Surroundings(
        places, Config(), nobody, board, lambda _fact: None, Allowance(), lambda gone: gone()
    )
    life: Any = Life(INCARNATION, start, around)
    life._pipe = SimpleNamespace(close=part(1))
    life._port = SimpleNamespace(connection=SimpleNamespace(close=part(2)))
    life._log = SimpleNamespace(close=part(3))
    life._watched = SimpleNamespace(pid=7, started_ticks=70)
    gone = Path(places.agent_socket(7, 70))
    gone.parent.mkdir()
    os.mknod(gone, stat.S_IFSOCK | 0o600)

    if broken < 4:
        with pytest.raises(RuntimeError):
            life.dispose()
    else:
        life.dispose()

    assert sorted(done) == [0, 1, 2, 3]
    assert not gone.exists()
    await asyncio.sleep(0)


# --- whom it was that was found


@pytest.mark.parametrize(
    ("listener", "drained", "said"),
    [
        (0, False, ["nobody listens there"]),
        (7, False, []),
        (8, False, ["process 8 listens there", "nobody listens there"]),
        (0, True, []),
        (8, True, []),
    ],
)
async def test_who_is_not_found_where_an_agent_was_to_be_is_told_while_it_matters(
    listener: int, drained: bool, said: list[str], tmp_path: Path
) -> None:
    """Nothing is told of a channel whose end was: by the exit of its process, for instance."""
    facts: list[Any] = []
    board: Any = SimpleNamespace(
        open_port=lambda _port: None, say=lambda _port, _hello: True, telemetry_watched=False
    )
    nobody: Any = None
    places = Places(tmp_path, tmp_path)
    around = Surroundings(
        places, Config(), nobody, board, facts.append, Allowance(), lambda gone: gone()
    )
    life: Any = Life(INCARNATION, StartAgent(name="x", agent=None, backend="echo"), around)
    life._watched = SimpleNamespace(pid=7, started_ticks=70)
    life._drained = drained
    life._port = SimpleNamespace(pid=7, connection=SimpleNamespace(listener_pid=listener))

    life._open()
    assert life._greeted == (listener == 7)
    if listener != 7:
        life._channel_ended()

    assert [type(fact) for fact in facts] == [inputs.ChannelMissed] * len(said)
    for fact, words in zip(facts, said, strict=True):
        assert fact.error.kind == "bad_directory"
        assert words in fact.error.message


def test_a_directory_that_may_not_be_entered_is_refused_before_there_is_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody: Any = None
    around = Surroundings(
        Places(tmp_path, tmp_path),
        Config(),
        nobody,
        nobody,
        lambda _fact: None,
        Allowance(),
        at_once,
    )
    start = StartAgent(name="x", agent=None, backend="echo", cwd=str(tmp_path))
    life = Life(INCARNATION, start, around)
    assert life._checked_directory() == str(tmp_path)

    # Root may enter any; whoever else runs this may not.
    monkeypatch.setattr(os, "access", lambda *_asked, **_how: False)
    with pytest.raises(Refusal, match="bad_directory"):
        life._checked_directory()


# --- a launch that nobody wants any more


@pytest.mark.parametrize("begun", [False, True])
async def test_a_launch_that_nobody_wants_fails_soon_and_is_not_tried_again(
    begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it waits for; the starter may be busy with others, or hang."""
    monkeypatch.setattr(lives, "UNWANTED_S", 0.0)
    asked = asyncio.Event()
    facts: list[Any] = []

    async def launch(*_order: object) -> None:
        assert not asked.is_set()
        asked.set()
        await asyncio.Event().wait()

    board: Any = SimpleNamespace(recounted=lambda _free: None)
    starter: Any = SimpleNamespace(launch=launch)
    places = Places(tmp_path, tmp_path)
    around = Surroundings(
        places, Config(), starter, board, facts.append, Allowance(), lambda gone: gone()
    )
    life = Life(INCARNATION, StartAgent(name="x", agent=None, backend="echo"), around)
    launching = asyncio.create_task(life.launch())
    if begun:
        await asked.wait()

    life.give_up()

    await launching
    assert [type(fact) for fact in facts] == [inputs.LaunchFailed]
    assert asked.is_set() == begun
    life.dispose()


# --- descriptors


async def test_a_start_tells_the_way_in_how_many_descriptors_it_leaves(tmp_path: Path) -> None:
    """Whoever comes would else be let in to those that agents take."""
    told: list[int] = []
    board: Any = SimpleNamespace(recounted=told.append)
    start: Any = SimpleNamespace(name="x", cwd="/")
    nobody: Any = None
    around = Surroundings(
        Places(tmp_path, tmp_path),
        Config(),
        nobody,
        board,
        lambda _fact: None,
        Allowance(),
        at_once,
    )
    for _ in range(2):
        life: Any = Life(INCARNATION, start, around)
        with pytest.raises(AttributeError, match="launch"):
            await life.launch()
        around.allowance.promise(object())

    assert told[0] - told[1] >= PER_AGENT


# --- telemetry


async def test_a_name_of_any_depth_is_told_to_who_watches() -> None:
    """A start must not hang because of a record about it."""
    name: Any = "x"
    for _ in range(63):
        name = (name,)
    said: list[bytes] = []
    shell = Performing(set())
    shell._board = SimpleNamespace(telemetry_watched=True, broadcast_telemetry=said.append)  # type: ignore[assignment]  # a watcher

    shell.emit("agent.starting", FrozenDict(agent=name, attempt=1))

    assert len(said) == 1


@pytest.mark.parametrize(
    ("event", "reason", "level"),
    [
        ("agent.down", "normal", "report"),
        ("agent.down", "shutdown", "report"),
        ("agent.down", "signal:11", "warn"),
        ("agent.killed", None, "warn"),
        ("agent.failed", None, "warn"),
        ("agent.restarting", None, "report"),
    ],
)
def test_what_somebody_should_look_at_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, event: str, reason: str | None, level: str
) -> None:
    """Who searches for warnings finds each end that nobody asked for."""
    levels: list[str] = []
    for name in ("report", "warn"):
        monkeypatch.setattr(shells, name, lambda _event, name=name, **_facts: levels.append(name))
    shell = Performing(set())
    shell._board = SimpleNamespace(telemetry_watched=False)  # type: ignore[assignment]  # no client

    shell.emit(event, FrozenDict(agent="a", reason=reason))

    assert levels == [level]
