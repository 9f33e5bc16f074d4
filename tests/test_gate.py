"""Nobody is let in without room for all who can be waiting, whatever room there is when."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagentd import gate, kernel
from genagentd.entrance import Entrance
from genagentd.gate import BACKLOG, CLOSE, LEAST, PORTION, RECOUNT_EVERY, ROOMY, Gate

_FREE = st.sampled_from([0, LEAST - 1, LEAST, CLOSE - 1, ROOMY, ROOMY + 1, 10_000])


class Inside:
    """Lets people in as libzmq does: whoever waits, from every entrance that it was given."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.free = 10_000
        self.given: dict[str, socket.socket] = {}
        self.came: list[tuple[str, socket.socket]] = []
        self.last: Entrance | None = None
        self.blocked: list[OSError] = []
        self.gate = Gate(path, self._accept_from, self._leave, lambda: None, lambda _free: None)
        self.gate.on_blocked = self.blocked.append

    def _accept_from(self, entrance: Entrance) -> None:
        assert self.free >= LEAST
        assert self.free > ROOMY or not entrance.is_there()
        # Whoever is on the way in elsewhere has no descriptor yet that was counted.
        assert self.free > CLOSE or not select.select(list(self.given.values()), [], [], 0)[0]
        self.given[entrance.name] = socket.socket(fileno=entrance.fd)
        self.last = entrance

    def _leave(self, entrance: Entrance) -> None:
        assert not [endpoint for endpoint, _ in self.came if endpoint == entrance.name]
        if entrance is self.last:
            self.last = None  # Its number may be another file's from now on.
        self.given.pop(entrance.name).close()

    @property
    def wide_open(self) -> bool:
        """Whether who comes now is let in without that anybody is asked."""
        return self.last is not None and self.last.is_there()

    def waiting(self) -> bool:
        """Whether anybody waits at what people come to."""
        front = self.gate._front
        return front is not None and bool(select.select([front.fd], [], [], 0)[0])

    def take(self) -> int:
        """Let in whoever waits; return how many there were at one entrance at most."""
        most = 0
        for endpoint, listening in list(self.given.items()):
            count = 0
            while True:
                try:
                    connection, _ = listening.accept()
                except BlockingIOError:
                    break
                count += 1
                self.came.append((endpoint, connection))
                self.gate.accepted(endpoint)
            most = max(most, count)
        return most

    def lose_all(self) -> None:
        """Everybody leaves."""
        while self.came:
            endpoint, connection = self.came.pop()
            connection.close()
            self.gate.ended(endpoint)

    def close(self) -> None:
        """Close everything."""
        self.gate.close()
        self.lose_all()
        for listening in self.given.values():
            listening.close()


class Step(NamedTuple):
    """What happens before the loop has some turns."""

    free: int
    #: Whether the gate is told of that, as it is when an agent starts.
    told: bool
    come: int
    leave: bool
    #: Whether the directory takes no more files.
    full: bool
    #: Whether the file is removed, and whether somebody asks for it.
    removed: bool
    renewed: bool


_STEPS = st.lists(
    st.builds(
        Step,
        _FREE,
        st.booleans(),
        st.integers(0, PORTION + 3),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    max_size=8,
)


class Directory:
    """Makes entrances, unless it is full."""

    def __init__(self) -> None:
        self.full = False

    def __call__(self, path: str, number: int, backlog: int) -> Entrance:
        """Make one."""
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return Entrance(path, number, backlog)


@settings(max_examples=200, deadline=None)
@given(steps=_STEPS)
def test_nobody_is_let_in_without_room_for_all_who_wait(steps: list[Step]) -> None:
    """Whatever happens; and once there is room and a file again, whoever comes is let in."""
    with tempfile.TemporaryDirectory(prefix="gate") as directory, pytest.MonkeyPatch.context() as m:
        m.setattr(gate, "LOOK_AGAIN_S", 0.0)
        m.setattr(gate, "LOOK_SOON_S", 0.0)
        m.setattr(gate, "RETIRED_S", 0.0)
        m.setattr(gate, "RECOUNT_S", 0.0)
        before = kernel.open_descriptors()
        asyncio.run(_live(f"{directory}/s", steps, m))
        assert kernel.open_descriptors() == before
        assert os.listdir(directory) == []


async def _live(path: str, steps: list[Step], m: pytest.MonkeyPatch) -> None:
    made = Directory()
    m.setattr(gate, "Entrance", made)
    # The gate counts before the first step, too.
    m.setattr(kernel, "free_descriptors", lambda: 10_000)
    inside = Inside(path)
    m.setattr(kernel, "free_descriptors", lambda: inside.free)
    outside: list[socket.socket] = []
    entered = wanted = 0
    lost = False
    for step in steps:
        inside.free, made.full = step.free, step.full
        if step.told:
            inside.gate.recounted(step.free)
            assert not inside.wide_open or step.free > ROOMY or step.full
            assert not inside.wide_open or step.free >= CLOSE
        for _ in range(step.come):
            wanted += _come(path, outside)
        if step.removed and os.path.lexists(path):
            os.unlink(path)
            lost = True  # Who waited there may find no room.
        if step.renewed:
            inside.gate.renew()
        for _ in range(4):
            await asyncio.sleep(0)
            assert inside.take() <= BACKLOG + 1
        entered += len(inside.came) if step.leave else 0
        if step.leave:
            inside.lose_all()
    inside.free, made.full = 10_000, False
    inside.gate.renew()
    async with asyncio.timeout(60):
        while not inside.gate.reachable or not (lost or entered + len(inside.came) == wanted):
            await asyncio.sleep(0)
            inside.take()
        while not _come(path, outside):
            await asyncio.sleep(0)
            inside.take()
        # Whoever came last is let in last.
        while inside.take() or inside.waiting():
            await asyncio.sleep(0)
    inside.close()
    for visitor in outside:
        visitor.close()


def _come(path: str, outside: list[socket.socket]) -> int:
    """Connect, and return how many found a place."""
    visitor = socket.socket(socket.AF_UNIX)
    visitor.setblocking(False)
    outside.append(visitor)
    try:
        visitor.connect(path)
    except (BlockingIOError, FileNotFoundError, ConnectionRefusedError):
        return 0
    return 1


# --- one thing each


class House(NamedTuple):
    """A gate with people inside, and the directory that it stands in."""

    inside: Inside
    made: Directory


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[House]:
    """A gate with very much room, which looks again at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gate, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(gate, "LOOK_SOON_S", 0.0)
    monkeypatch.setattr(gate, "RETIRED_S", 0.0)
    made = Directory()
    monkeypatch.setattr(gate, "Entrance", made)
    monkeypatch.setattr(kernel, "free_descriptors", lambda: 10_000)
    inside = Inside("s")
    monkeypatch.setattr(kernel, "free_descriptors", lambda: inside.free)
    yield House(inside, made)
    inside.close()


WayIn = Literal["wide open", "one portion at a time", "none"]
WIDE: WayIn = "wide open"
NARROW: WayIn = "one portion at a time"
NONE: WayIn = "none"


def _way_in(house: House) -> WayIn:
    if not house.inside.gate.reachable:
        return NONE
    return WIDE if house.inside.wide_open else NARROW


async def _turns() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_a_portion_waits_until_the_one_before_is_inside(house: House) -> None:
    """Who is on the way in has no descriptor yet, and two portions would be let in for one."""
    house.inside.free = LEAST
    house.inside.gate.recounted(LEAST)
    outside: list[socket.socket] = []
    assert _come("s", outside)
    await _turns()
    given = len(house.inside.given)

    assert _come("s", outside)
    await _turns()
    assert len(house.inside.given) == given

    assert house.inside.take() == 1
    await _turns()
    assert len(house.inside.given) == given + 1
    assert house.inside.take() == 1
    for visitor in outside:
        visitor.close()


async def test_descriptors_that_go_elsewhere_narrow_it_before_anybody_comes(house: House) -> None:
    """Agents that start take them, and nobody who comes would be counted until it is too late."""
    assert _way_in(house) == WIDE

    house.inside.free = ROOMY
    house.inside.gate.recounted(ROOMY)

    assert _way_in(house) == NARROW


async def test_descriptors_that_go_to_who_comes_narrow_it(house: House) -> None:
    """Nobody else may tell us."""
    house.inside.free = ROOMY
    for _ in range(RECOUNT_EVERY + 1):
        house.inside.gate.accepted("ipc://s")

    assert _way_in(house) == NARROW
    for _ in range(RECOUNT_EVERY + 1):
        house.inside.gate.ended("ipc://s")


async def test_a_full_directory_keeps_who_knocks_outside_and_nobody_for_good(house: House) -> None:
    """An entrance that was handed over without a successor would be the last one."""
    house.inside.free = ROOMY
    house.inside.gate.recounted(ROOMY)
    house.made.full = True
    outside: list[socket.socket] = []
    assert _come("s", outside) == 1
    await _turns()

    assert house.inside.take() == 0
    assert _way_in(house) == NARROW
    assert len(house.inside.blocked) == 1

    house.made.full = False
    await _turns()
    assert house.inside.take() == 1
    assert _way_in(house) == NARROW
    outside[0].close()


async def test_what_cannot_be_narrowed_stays_open_until_there_is_hardly_room(house: House) -> None:
    """A full directory alone keeps nobody out; a crowd besides would end the process."""
    house.made.full = True
    house.inside.free = CLOSE
    house.inside.gate.recounted(CLOSE)
    assert _way_in(house) == WIDE

    house.inside.free = CLOSE - 1
    house.inside.gate.recounted(CLOSE - 1)
    assert _way_in(house) == NONE

    house.made.full = False
    await _turns()
    assert _way_in(house) == NARROW


async def test_a_file_that_cannot_be_made_again_is_tried_again(house: House) -> None:
    """SIGHUP is sent once, and the directory may be full at that moment."""
    os.unlink("s")
    house.made.full = True
    house.inside.gate.renew()
    await _turns()
    assert _way_in(house) == NONE

    house.made.full = False
    await _turns()

    assert _way_in(house) == WIDE


def test_an_entrance_that_cannot_take_its_place_leaves_nothing(tmp_path: Path) -> None:
    """A name that stays would be a file more in a directory that is full perhaps."""
    (tmp_path / "s").mkdir()

    with pytest.raises(OSError, match="directory"):
        Entrance(str(tmp_path / "s"), 1, 5)

    assert os.listdir(tmp_path) == ["s"]
