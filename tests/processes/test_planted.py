"""What somebody planted in a daemon's directories is refused: not followed, not waited for."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from genagentd import Client, StartFailed
from genagentd.paths import Places
from genagentd.private_files import DAEMON_LOG
from support.commands import ran
from support.daemons import PrivateDaemon, only_who_waits_can_be_found
from support.waiting import until

pytestmark = pytest.mark.process

STRANGER = 65534


@pytest.fixture
def place(nothing_left: None) -> Iterator[PrivateDaemon]:
    """A directory for a daemon, which is not started."""
    daemon = PrivateDaemon()
    yield daemon
    daemon.cleanup()


def _start(place: PrivateDaemon) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "genagentd", "start", "--timeout", "30"],
        env=place.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd="/",
    )


def _link_the_log(run: Path) -> Path:
    victim = run / "victim"
    victim.write_text("mine")
    (run / "logs").mkdir(mode=0o700)
    (run / "logs/genagentd.log").symlink_to(victim)
    return run / "logs/genagentd.log"


def _pipe_for_a_lock(run: Path) -> Path:
    os.mkfifo(run / "genagentd.lock")
    return run / "genagentd.lock"


def _directory_for_a_socket(run: Path) -> Path:
    (run / "genagentd.sock").mkdir()
    return run / "genagentd.sock"


def _file_for_a_socket(run: Path) -> Path:
    (run / "genagentd.sock").write_text("somebody's")
    return run / "genagentd.sock"


@pytest.mark.parametrize(
    "plant", [_link_the_log, _pipe_for_a_lock, _directory_for_a_socket, _file_for_a_socket]
)
def test_a_planted_file_is_named_and_the_daemon_does_not_start(
    place: PrivateDaemon, plant: object
) -> None:
    """One clear line that says what to remove; a pipe in the place of the lock hangs nobody."""
    assert callable(plant)
    planted = plant(place.run)

    done = _start(place)

    assert done.returncode != 0
    assert str(planted) in done.stderr
    assert "remove" in done.stderr
    assert "Traceback" not in done.stderr
    victim = place.run / "victim"
    assert not victim.exists() or victim.read_text() == "mine"


def test_a_linked_log_directory_fails_only_the_start_of_its_agent(daemon: PrivateDaemon) -> None:
    """Whoever could write there once must not choose what is appended to now."""
    elsewhere = daemon.run / "elsewhere"
    elsewhere.mkdir()
    (daemon.places.logs / "q").symlink_to(elsewhere)

    with Client(daemon.run) as client:
        with pytest.raises(StartFailed, match="cannot be used as a log") as refused:
            client.start_agent(None, name="q", backend="echo")
        client.start_agent(None, name="r", backend="echo")
        client.stop("r")

    assert refused.value.reason.kind == "bad_directory"
    assert list(elsewhere.iterdir()) == []


def _fill(disk: Path) -> None:
    for number in range(9):
        (disk / str(number)).touch()


@pytest.mark.parametrize(
    ("how", "kind", "remedy"),
    [
        ("full", "resource_exhausted", "free some space there"),
        ("read-only", "bad_directory", "choose another directory"),
    ],
)
def test_a_disk_without_room_fails_the_start_of_an_agent_and_says_what_to_do(
    nothing_left: None, tmp_path: Path, how: str, kind: str, remedy: str
) -> None:
    """A full disk was a bad directory, and people were told to remove their logs."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "nr_inodes=8,size=64k,mode=700", "none", str(disk)]
    if subprocess.run(made, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    daemon = PrivateDaemon({"GENAGENT_STATE_DIR": str(disk)})
    try:
        daemon.start()
        with Client(daemon.run) as client:
            client.start_agent(None, name="a", backend="echo")
            client.stop("a")
            if how == "full":
                with pytest.raises(OSError, match="space"):
                    _fill(disk)
            else:
                subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            for name in ("a", "b"):
                with pytest.raises(StartFailed) as refused:
                    client.start_agent(None, name=name, backend="echo")

                assert refused.value.reason.kind == kind
                assert remedy in refused.value.reason.message
                assert "remove" not in refused.value.reason.message
        daemon.stop()
    finally:
        daemon.stop()
        daemon.cleanup()
        subprocess.run(["umount", str(disk)], check=True)


def test_a_removed_lock_does_not_let_a_second_daemon_take_the_socket(daemon: PrivateDaemon) -> None:
    """The first one and its agents would live on where nobody can reach them."""
    pid = daemon.pid
    daemon.places.lock.unlink()

    second = subprocess.run(
        [sys.executable, "-m", "genagentd", "run"],
        env=daemon.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd="/",
    )

    assert second.returncode == 4
    assert f"pid {pid}" in second.stderr
    with Client(daemon.run) as client:
        assert client.list() == ()


def _treasure(where: Path) -> set[str]:
    """Fill a directory with what is dear to somebody, sockets too; return what is in it."""
    where.mkdir(parents=True)
    (where / "letter").write_text("mine")
    (where / ".1-1").write_text("mine")
    (where / "link").symlink_to("letter")
    for name in ("own.sock", ".2-2"):
        os.mknod(where / name, stat.S_IFSOCK | 0o600)
    return {path.name for path in where.iterdir()}


@pytest.mark.parametrize("exchanged", ["a", "run"])
def test_a_directory_that_is_exchanged_for_a_link_costs_nobody_a_file(
    place: PrivateDaemon, exchanged: str
) -> None:
    """What stands behind it was never the daemon's, and its end removed it all the same."""
    place.start()
    with Client(place.run) as client:
        client.start_agent(None, name="a", backend="echo")
    # Whoever waits for the next start is not to bind its own behind the link.
    until(lambda: only_who_waits_can_be_found(place), "the next one is bound")
    victim = place.run.with_name(f"{place.run.name}-v")
    treasure = _treasure(victim / "a" if exchanged == "run" else victim)
    planted = place.places.agents if exchanged == "a" else place.run
    aside = planted.with_name(f"{planted.name}.old")
    if exchanged == "run":
        # Even one in which the lock is to be found.
        os.link(place.places.lock, victim / place.places.lock.name)
    planted.rename(aside)
    planted.symlink_to(victim)
    try:
        assert place.stop() == 0

        filled = victim / "a" if exchanged == "run" else victim
        assert {path.name for path in filled.iterdir()} == treasure
    finally:
        place.stop()
        planted.unlink()
        aside.rename(planted)
        shutil.rmtree(victim)


def test_a_file_in_the_place_of_an_agents_socket_stays(place: PrivateDaemon) -> None:
    """It is removed when the agent has ended; whoever put another one there keeps it."""
    place.start()
    with Client(place.run) as client:
        handle = client.start_agent(None, name="a", backend="echo")
        path = Path(place.places.agent_socket(handle.pid, handle.started_ticks))
        path.unlink(missing_ok=True)
        path.write_text("mine")
        client.stop("a")

    assert place.stop() == 0
    assert path.read_text() == "mine"


@pytest.mark.parametrize("named", ["a", "victim"])
def test_no_agent_is_forgotten_behind_a_link(tmp_path: Path, named: str) -> None:
    """A socket there with its very name is somebody else's."""
    places = Places(tmp_path / "run", tmp_path / "run")
    places.run.mkdir()
    where = tmp_path / "victim" if named == "victim" else places.agents
    where.mkdir()
    if named == "victim":
        places.agents.symlink_to(where)
    bound = where / os.path.basename(places.agent_socket(7, 11))
    os.mknod(bound, stat.S_IFSOCK | 0o600)

    places.forget_agent(7, 11)

    assert bound.exists() == (named == "victim")


def test_a_link_for_the_directory_of_all_logs_is_refused(daemon: PrivateDaemon) -> None:
    """Nothing is appended to, moved aside or forgotten behind it."""
    elsewhere = daemon.run / "elsewhere"
    elsewhere.mkdir()
    daemon.places.logs.rename(daemon.run / "logs.old")
    daemon.places.logs.symlink_to(elsewhere)

    with Client(daemon.run) as client, pytest.raises(StartFailed, match="a link or a file"):
        client.start_agent(None, name="q", backend="echo")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give directories away")
def test_nobody_reads_what_is_logged_who_made_a_removed_directory_anew(
    place: PrivateDaemon,
) -> None:
    """Under /tmp anybody can, and what is opened anew would go on in files of his."""
    state = place.run.with_name(f"{place.run.name}-s")
    place.environment = {"GENAGENT_STATE_DIR": str(state)}
    told = state / "logs" / DAEMON_LOG
    assert _start(place).returncode == 0
    try:
        with Client(place.run) as client:
            shutil.rmtree(state)
            told.parent.mkdir(parents=True)
            told.write_text("")
            for made in (state, told.parent, told):
                made.chmod(0o777)
                os.chown(made, STRANGER, STRANGER)

            os.kill(client.daemon_status().pid, signal.SIGHUP)
            with pytest.raises(StartFailed, match=f"belongs to uid {STRANGER}") as failed:
                client.start_agent(None, name="a", backend="echo")

        assert failed.value.reason.kind == "bad_directory"
    finally:
        assert ran(place, "genagentd", "stop").code == 0
        written = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
        shutil.rmtree(state)
    assert written == {told: b""}
