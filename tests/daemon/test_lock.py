"""The lock is the kernel's word; what is written in it is believed of a process that runs."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from genagentd import kernel
from genagentd.daemon import lock
from genagentd.paths import Places
from genagentd.socket_path import UnusablePlace


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """A runtime directory; whoever is not named there at once is not waited for."""
    monkeypatch.setattr(lock, "_WAIT_S", 0)
    return Places(tmp_path, tmp_path)


@pytest.fixture
def held(places: Places) -> Iterator[lock.Lock]:
    taken = lock.take(places)
    assert taken is not None
    yield taken
    taken.release()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def _me() -> lock.Holder:
    return lock.Holder(os.getpid(), kernel.started_ticks(os.getpid()))


def test_who_holds_it_is_named_and_nobody_else_takes_it(places: Places, held: lock.Lock) -> None:
    """Asking does not take it away."""
    assert lock.holder(places) == _me()
    assert lock.take(places) is None
    assert held.is_there


def test_a_lock_that_somebody_else_shares_is_refused_and_not_waited_for(places: Places) -> None:
    """Whoever looks at it lets go at once; `flock -s`, by anybody, may hold it for good."""
    with places.lock.open("w") as shared:
        fcntl.flock(shared, fcntl.LOCK_SH)

        with pytest.raises(UnusablePlace, match=f"shared lock on {places.lock}.*fuser"):
            lock.take(places)

    taken = lock.take(places)
    assert taken is not None
    taken.release()


def test_a_disk_that_knows_no_locks_is_named(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network disks are such; nobody can hold a lock there."""

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)

    with pytest.raises(UnusablePlace, match=f"{places.lock} cannot be locked: No locks"):
        lock.take(places)
    assert not lock.is_locked(places)


def test_what_was_released_names_nobody(places: Places) -> None:
    """Its file stays."""
    taken = lock.take(places)
    assert taken is not None
    taken.release()

    assert not lock.is_locked(places)
    assert lock.holder(places) is None
    assert places.lock.read_bytes() == b""


def test_whoever_is_written_there_and_is_somebody_else_now_holds_nothing(
    places: Places, held: lock.Lock, stranger: subprocess.Popen[bytes]
) -> None:
    """A daemon that was killed left its number; the one that has the lock writes in a moment."""
    assert held.is_there
    ticks = kernel.started_ticks(stranger.pid)
    for left in (
        *(b"", b"garbage\n", b"\xff\n", b"7\n", b"0 0\n", b"9" * 30 + b" 1\n"),
        b"%d 12345\n" % stranger.pid,
        b"%d %d\n" % (2**22 + 1, ticks),
    ):
        places.lock.write_bytes(left)

        assert lock.is_locked(places)
        assert lock.holder(places) is None, left


def test_nobody_is_waited_for_longer_than_the_asker_may(
    places: Places, held: lock.Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own patience is for askers that have more."""
    monkeypatch.setattr(lock, "_WAIT_S", float("inf"))
    assert held.is_there
    places.lock.write_bytes(b"garbage\n")

    assert lock.holder(places, within_s=0) is None


def test_a_dead_one_that_is_not_reaped_holds_nothing(places: Places, held: lock.Lock) -> None:
    """Its number is still its own, and the lock is no more."""
    assert held.is_there
    dead = subprocess.Popen(["sleep", "1000"])
    places.lock.write_bytes(b"%d %d\n" % (dead.pid, kernel.started_ticks(dead.pid)))
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)

    assert lock.holder(places) is None
    dead.wait()


def test_a_file_that_was_removed_is_made_anew(places: Places, held: lock.Lock) -> None:
    """Nobody else may take that name meanwhile, and everybody finds the daemon again."""
    places.lock.unlink()
    assert not lock.is_locked(places)

    assert held.renew()

    assert held.is_there
    assert lock.holder(places) == _me()


def test_a_successor_keeps_its_lock(places: Places, held: lock.Lock) -> None:
    """It was started where somebody had removed the first one's directory."""
    places.lock.unlink()
    successor = lock.take(places)
    assert successor is not None

    assert not held.renew()

    assert (successor.is_there, held.is_there) == (True, False)
    successor.release()
