"""One daemon for a runtime directory: by its lock, whatever files, pids and strangers say."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from genagentd import kernel
from genagentd.client.client import Client
from genagentd.config import Config
from genagentd.daemon import service
from genagentd.paths import Places
from genagentd.socket_path import MAX_PATH_BYTES
from genagentd.unusable import NoRoom
from support import fleet
from support.commands import ran
from support.daemons import PrivateDaemon
from support.fake_daemon import fake_daemon
from support.figures import Figures, counts
from support.waiting import until

pytestmark = pytest.mark.process

NOBODY = 65534


@pytest.fixture
def place(nothing_left: None) -> Iterator[PrivateDaemon]:
    """A runtime directory without a daemon; one that is started in it ends with the test."""
    private = PrivateDaemon()
    try:
        yield private
    finally:
        ran(private, "genagentd", "stop", "--force")
        if private.guardian is not None:
            private.guardian.wait(30)
        private.cleanup()


def test_F014_a_second_daemon_is_refused_and_the_first_serves_on(
    daemon: PrivateDaemon, client: Client, figures: Figures
) -> None:
    """F014: binding would silently steal the socket, so the lock decides before."""
    inode = os.stat(daemon.places.socket).st_ino
    fleet.start(client, "a")
    began = time.monotonic()

    refused = ran(daemon, "genagentd", "run")

    took_ms = (time.monotonic() - began) * 1000
    assert (refused.code, f"pid {daemon.pid}" in refused.err) == (4, True)
    assert os.stat(daemon.places.socket).st_ino == inode
    assert client.ask("a", "still there").text == "done"
    figures.note(
        "F014",
        "a second daemon is refused after",
        f"{took_ms:.0f} ms",
        "1000 ms",
        met=took_ms <= 1_000,
    )


@counts(short=5, full=20)
def test_E010_of_many_starts_at_once_one_makes_the_daemon(
    place: PrivateDaemon, figures: Figures, count: int
) -> None:
    """E010: the others find it, and name its pid."""
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(lambda _: ran(place, "genagentd", "start", "--json"), range(count)))

    assert [one.code for one in found] == [0] * count, found
    pids = {one.json["pid"] for one in found}
    made = sum(one.json["started"] for one in found)
    figures.note(
        "E010", f"daemons after {count} starts at once", len(pids), "1", met=len(pids) == made == 1
    )
    assert (len(pids), made) == (1, 1)


def test_E008_a_stale_pid_of_a_stranger_stops_no_start_and_gets_no_signal(
    place: PrivateDaemon,
) -> None:
    """E008: a pid is worth nothing; the lock is, and nobody holds it."""
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        place.places.lock.write_text(f"{stranger.pid} {kernel.started_ticks(stranger.pid)}\n")
        no_daemon = ran(place, "genagentd", "stop")
        place.start()
        stopped = ran(place, "genagentd", "stop")
        assert (no_daemon.code, stopped.code) == (7, 0)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_what_a_killed_daemon_left_beside_its_socket_is_removed(place: PrivateDaemon) -> None:
    """It may be killed between a new socket and the rename that puts it in its place."""
    left = place.run / ".4711-3"
    kept = [place.run / ".4711-4", place.run / ".4711"]
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(left))
    kept[0].touch()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(kept[1]))

    place.start()

    assert not left.exists()
    assert [path.exists() for path in kept] == [True, True]
    assert place.stop() == 0


def test_E011_strangers_with_the_same_names_are_left_alone(
    place: PrivateDaemon, daemon: PrivateDaemon, client: Client, tmp_path: Path
) -> None:
    """E011: another daemon's agents, and a program called claude, are none of our business."""
    claude = tmp_path / "claude"
    claude.symlink_to("/bin/sleep")
    user_session = subprocess.Popen([str(claude), "1000"])
    try:
        theirs = fleet.start(client, "a", fleet.BUSY_WITH_ORPHAN)
        _, begun = fleet.begin(client, theirs, spawns=2)
        untouched = [fleet.of(theirs), *begun, *fleet.identities([user_session.pid, daemon.pid])]
        for end in ("kill", "stop"):
            place.start()
            with Client(place.run) as other:
                ours = fleet.start(other, "a", fleet.BUSY_WITH_ORPHAN)
                fleet.begin(other, ours, spawns=2)
            place.kill() if end == "kill" else place.stop()
            place.wait()
        assert len(fleet.alive(untouched)) == len(untouched)
    finally:
        user_session.kill()
        user_session.wait()


def test_E032_a_daemon_that_hangs_is_not_replaced(daemon: PrivateDaemon, client: Client) -> None:
    """E032: two starters at once both refuse, naming who holds the lock; then it goes on."""
    inode = os.stat(daemon.places.socket).st_ino
    fleet.start(client, "a")
    with fleet.stopped(daemon.pid), ThreadPoolExecutor(2) as pool:
        refused = list(
            pool.map(
                lambda _: ran(daemon, "genagentd", "start", "--timeout", "1", "--json"), range(2)
            )
        )
    assert [one.code for one in refused] == [7, 7]
    assert {one.json["error"]["details"]["pid"] for one in refused} == {daemon.pid}
    assert os.stat(daemon.places.socket).st_ino == inode
    assert client.ask("a", "still there").text == "done"


@pytest.mark.parametrize("length", [60, 85, 90, 107, 120])
@pytest.mark.parametrize("letter", ["d", "ä"])
def test_E034_a_directory_is_either_short_enough_for_agents_or_refused_with_its_length(
    tmp_path: Path, nothing_left: None, length: int, letter: str
) -> None:
    """E034: it is never the first start of an agent that finds out."""
    base = Path(f"/tmp/g{os.getpid()}")
    left = (length - len(str(base)) - 1) // len(letter.encode())
    long = PrivateDaemon(run=base / (letter * left))
    try:
        if len(os.fsencode(long.places.longest_socket)) > MAX_PATH_BYTES:
            refused = ran(long, "genagentd", "run")
            assert refused.code == 78
            assert f"the limit is {MAX_PATH_BYTES}" in refused.err
            assert str(long.run) in refused.err
        else:
            long.run.mkdir(mode=0o700, parents=True)
            long.start()
            with Client(long.run) as client:
                fleet.start(client, "a")
                assert client.ask("a", "hello").text == "done"
            assert long.stop() == 0
    finally:
        if long.run.exists():
            long.cleanup()
        if base.exists():
            base.rmdir()


def test_E063_nobody_else_gets_in_whatever_the_umask_and_the_modes(
    place: PrivateDaemon,
) -> None:
    """E063: directory and socket keep others out, and the uid of each frame does again."""
    if os.getuid() != 0:
        pytest.skip("only root can try to connect as somebody else")
    before = os.umask(0)
    try:
        place.start()
    finally:
        os.umask(before)
    assert os.stat(place.run).st_mode & 0o777 == 0o700
    assert os.stat(place.places.socket).st_mode & 0o077 == 0
    for directory in (place.places.agents, place.places.logs):
        assert os.stat(directory).st_mode & 0o077 == 0
    with Client(place.run) as client:
        fleet.start(client, "a")
        assert _as(NOBODY, place).startswith("PermissionError")
        for path in (place.run, Path(place.places.socket), place.places.agents):
            path.chmod(0o777)
        assert _as(NOBODY, place).startswith("NotReachable")
        assert client.daemon_status().bad_frames > 0
        assert client.ask("a", "nobody was served").text == "done"
        assert [row.name for row in client.list()] == ["a"]


def _as(uid: int, place: PrivateDaemon) -> str:
    """Return what a client of another user is stopped by."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(uid)
        told = "connected"
        try:
            with socket.socket(socket.AF_UNIX) as plain:
                plain.connect(place.places.socket)
            Client(place.run).connect(timeout_ms=1_000).start_agent(
                None, name="b", backend="echo", cwd="/"
            )
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        told = said.read()
    os.waitpid(child, 0)
    return told


@pytest.mark.parametrize("planted", ["link", "foreign", "writable_parent", "link_for_lock"])
def test_a_planted_path_is_refused(tmp_path: Path, nothing_left: None, planted: str) -> None:
    """Whoever could put something there first could be spoken to instead of us."""
    tmp_path.chmod(0o755)
    run = tmp_path / "run"
    match planted:
        case "link":
            (tmp_path / "theirs").mkdir()
            run.symlink_to(tmp_path / "theirs")
        case "foreign":
            if os.getuid() != 0:
                pytest.skip("only root can make a directory of somebody else")
            run.mkdir()
            os.chown(run, NOBODY, NOBODY)
        case "writable_parent":
            tmp_path.chmod(0o777)
        case "link_for_lock":
            run.mkdir(mode=0o700)
            (run / "genagentd.lock").symlink_to(tmp_path / "victim")
            (tmp_path / "victim").write_text("precious")

    refused = ran(PrivateDaemon(run=run), "genagentd", "run")

    assert refused.code == 78
    assert str(tmp_path) in refused.err
    assert "Traceback" not in refused.err
    if planted == "link_for_lock":
        assert (tmp_path / "victim").read_text() == "precious"


def test_a_lock_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk: an error number alone sends nobody to the right directory."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    places = Places(tmp_path / "run", tmp_path / "state")

    told = f"{places.lock} cannot be written: No space left on device; free some space there"
    with pytest.raises(NoRoom, match=told):
        service.serve(places, Config(), Config)


def test_looking_at_the_lock_never_keeps_a_daemon_from_taking_it(place: PrivateDaemon) -> None:
    """Everyone who asks whether a daemon runs holds the lock for a moment."""
    place.start()
    place.stop()
    looking = subprocess.Popen(
        [sys.executable, "-c", _LOOKS], env=place.environ, stdout=subprocess.PIPE
    )
    try:
        assert looking.stdout is not None
        looking.stdout.readline()
        for _ in range(5):
            assert place.start().stop() == 0
    finally:
        looking.kill()
        looking.communicate()


_LOOKS = """
from genagentd.daemon.lock import is_locked
from genagentd.paths import places
print(flush=True)
while True:
    is_locked(places())
"""


def test_what_a_crash_left_is_removed_and_nothing_else(place: PrivateDaemon) -> None:
    """Sockets of the dead go once the lock is ours; a link stays, and what is behind it."""
    agents = place.places.agents
    for directory in (place.run, agents):
        directory.mkdir(mode=0o700, exist_ok=True)
    outside = place.run / "outside"
    outside.mkdir()
    (outside / "file").write_text("precious")
    (agents / "link").symlink_to(outside)
    for path in (place.places.socket, str(agents / "old.sock")):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
    (agents / "sub").mkdir()
    (agents / "sub" / "deep").write_text("stale")

    place.start()

    assert {path.name for path in agents.iterdir()} == {"link", "sub"}
    assert (outside / "file").read_text() == "precious"


def test_a_client_does_not_talk_to_somebody_elses_daemon(place: PrivateDaemon) -> None:
    """A socket planted where ours is expected would hear every prompt."""
    if os.getuid() != 0:
        pytest.skip("only root can be two other users")
    place.run.chmod(0o777)
    trapper = os.fork()
    if trapper == 0:
        os.setuid(NOBODY)
        with socket.socket(socket.AF_UNIX) as trap:
            os.umask(0)
            trap.bind(place.places.socket)
            trap.listen()
            signal.pause()
    try:
        until(lambda: _listens(place.places.socket), "the trap is there")
        assert "another user (uid 65534)" in _as(NOBODY - 1, place)
        assert "did not" in _as(NOBODY, place)  # It is not a daemon, but it is its own.
    finally:
        os.kill(trapper, signal.SIGKILL)
        os.waitpid(trapper, 0)


@pytest.mark.parametrize("kind", ["foreign", "shared"])
def test_what_no_daemon_of_ours_would_serve_in_is_refused_also_where_somebody_listens(
    kind: str,
) -> None:
    """Root was told 'already running' of the daemon of another user, and exit 78 where none was."""
    if os.getuid() != 0:
        pytest.skip("only root reaches the daemon of another user")
    with fake_daemon() as there:
        if kind == "foreign":
            os.chown(there.run, NOBODY, NOBODY)
        else:
            there.run.chmod(0o777)
        place = PrivateDaemon(run=there.run)

        listened = ran(place, "genagentd", "start", "--json")
        looked = ran(place, "genagentd", "status")
        os.unlink(there.path)
        alone = ran(place, "genagentd", "start", "--json")

    assert (listened.code, listened.error) == (78, "bad_configuration")
    assert (listened.code, listened.out) == (alone.code, alone.out)
    # Root may look after the daemons of others.
    assert looked.code == 0


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as plain:
        return plain.connect_ex(path) == 0


def test_the_end_of_an_old_daemon_leaves_its_successor_alone(place: PrivateDaemon) -> None:
    """Somebody removed the directory under it, and another one lives in a new one of that name."""
    old = PrivateDaemon(run=place.run).start()
    shutil.rmtree(place.run)
    place.run.mkdir(mode=0o700)
    place.start()
    try:
        with Client(place.run) as client:
            handle = fleet.start(client, "a")
            sockets = set(place.places.agents.iterdir())
            old.signal(signal.SIGTERM)
            assert old.wait() == 0

            assert client.whereis("a") == handle
            assert sockets <= set(place.places.agents.iterdir())
        assert ran(place, "genagentd", "status").code == 0
    finally:
        old.stop()


def test_a_daemon_whose_socket_was_removed_can_be_reached_again(place: PrivateDaemon) -> None:
    """SIGHUP opens what was moved away anew: its log, and its socket."""
    place.start()
    os.unlink(place.places.socket)
    assert ran(place, "genagentd", "status").code == 7

    place.signal(signal.SIGHUP)

    until(lambda: ran(place, "genagentd", "status").code == 0, "it is reached again")
    assert ran(place, "genagentd", "stop").code == 0


def test_a_reload_where_there_can_be_no_lock_says_so_and_changes_nothing(
    place: PrivateDaemon,
) -> None:
    """Without the lock the socket is not ours to make; once there can be one, it is."""
    place.start()
    place.places.lock.unlink()
    place.places.lock.mkdir()
    os.unlink(place.places.socket)

    place.signal(signal.SIGHUP)

    until(lambda: '"lock.lost"' in place.log, "it says so")
    assert f"{place.places.lock} cannot be used as a lock" in place.log
    until(lambda: '"config.reloaded"' in place.log, "it has looked at everything")
    assert not os.path.lexists(place.places.socket)

    place.places.lock.rmdir()
    place.signal(signal.SIGHUP)

    until(lambda: ran(place, "genagentd", "status").code == 0, "it is reached again")


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_daemon_whose_socket_was_removed_is_named_and_can_be_stopped(
    place: PrivateDaemon, force: list[str]
) -> None:
    """Each command sent people to the next one otherwise, and none helped."""
    place.start()
    with Client(place.run) as client:
        fleet.start(client, "a")
    os.unlink(place.places.socket)

    for command in (["status"], ["start", "--timeout", "1"]):
        told = ran(place, "genagentd", *command)
        assert told.code == 7
        assert f"pid {place.pid}" in told.err
        assert f"kill -HUP {place.pid}" in told.err

    assert ran(place, "genagentd", "stop", *force).code == 0
    assert place.wait() == 0
    assert ran(place, "genagentd", "status").code == 7


def test_no_other_daemon_is_begun_where_one_runs_whose_directory_was_removed(
    place: PrivateDaemon,
) -> None:
    """As a logout does, or who tidies up: its agents would run on where nobody sees them."""
    place.start()
    pid = place.pid
    shutil.rmtree(place.run)

    told = ran(place, "genagentd", "start", "--timeout", "1")

    assert (told.code, f"pid {pid}" in told.err, f"kill -HUP {pid}" in told.err) == (7, True, True)
    place.signal(signal.SIGHUP)
    until(lambda: ran(place, "genagentd", "status").code == 0, "it is reached again")
    again = ran(place, "genagentd", "start", "--json")
    assert (again.code, again.json["pid"]) == (0, pid)


@pytest.mark.parametrize("lost", ["lock", "what it says", "directory"])
def test_a_daemon_that_answers_is_found_and_stopped_whatever_became_of_its_lock(
    place: PrivateDaemon, lost: str
) -> None:
    """'No daemon runs' was a lie, and what it would have stopped ran on."""
    place.start()
    pid = place.pid
    match lost:
        case "lock":
            place.places.lock.unlink()
        case "what it says":
            place.places.lock.write_text("garbage\n")
        case "directory":
            shutil.rmtree(place.run)
            place.signal(signal.SIGHUP)
            until(lambda: ran(place, "genagentd", "status").code == 0, "it is reached again")
            with Client(place.run) as client:
                fleet.start(client, "a")

    again = ran(place, "genagentd", "start", "--json")
    stopped = ran(place, "genagentd", "stop", "--json")

    assert (again.code, again.json["pid"], again.json["started"]) == (0, pid, False)
    assert (stopped.code, stopped.json["pid"]) == (0, pid)
    assert place.wait() == 0


def test_no_stranger_whom_the_lock_names_is_signalled(place: PrivateDaemon) -> None:
    """The daemon holds it and cannot be asked; the number in it was somebody else's before."""
    place.start()
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        place.places.lock.write_text(f"{stranger.pid} 12345\n")
        os.unlink(place.places.socket)

        told = ran(place, "genagentd", "stop", "--timeout", "10")

        assert (told.code, "not known" in told.err) == (7, True)
        assert stranger.poll() is None
        assert place.guardian is not None
        assert place.guardian.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        place.stop()


def test_a_daemon_leaves_the_socket_to_the_one_that_has_the_lock(place: PrivateDaemon) -> None:
    """Somebody removed the directory under it, and then the socket of its successor."""
    old = PrivateDaemon(run=place.run).start()
    shutil.rmtree(place.run)
    place.run.mkdir(mode=0o700)
    place.start()
    try:
        os.unlink(place.places.socket)
        old.signal(signal.SIGHUP)
        old.stop()
        assert not os.path.lexists(place.places.socket)

        place.signal(signal.SIGHUP)

        until(lambda: ran(place, "genagentd", "status").code == 0, "it is reached again")
    finally:
        old.stop()
