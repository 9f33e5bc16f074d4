"""`genagentd`: one daemon, started, looked at and ended by processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from genagent_protocol.envelopes import CoreState
from genagent_protocol.errors import CallTimeout
from genagent_protocol.refs import BootId
from genagentd import kernel
from genagentd.cli import agents, beginning, daemon_commands, unanswered
from genagentd.cli.main import load_commands
from genagentd.cli.unseen import listens_unseen, unseen_listener
from genagentd.client import core
from genagentd.daemon import lock
from genagentd.paths import Places
from support.backlogs import crowded
from support.commands import Command, command, ran, runner
from support.daemons import PrivateDaemon
from support.fake_daemon import fake_daemon
from support.waiting import until

pytestmark = pytest.mark.process


@pytest.fixture
def place(nothing_left: None) -> Iterator[PrivateDaemon]:
    """A private runtime directory without a daemon; one that was started is ended."""
    private = PrivateDaemon()
    yield private
    ran(private, "genagentd", "stop", "--force")
    private.cleanup()


# --- the daemon's life


def test_a_daemon_is_started_looked_at_and_stopped(place: PrivateDaemon) -> None:
    """Detached, answering when `start` returns, gone when `stop` returns (D42)."""
    assert ran(place, "genagentd", "status").code == 7

    started = ran(place, "genagentd", "start", "--json").json
    again = ran(place, "genagentd", "start", "--json").json
    status = ran(place, "genagentd", "status", "--json").json

    assert (started["started"], again["started"]) == (True, False)
    assert started["pid"] == again["pid"] == status["pid"]
    assert (status["ready"], status["agents"]) == (True, 0)
    assert set(status) == {
        *("ok", "pid", "ready", "draining", "agents", "clients", "uptime_ms", "bad_frames"),
        *("boot", "software", "run_dir", "log_dir", "log_removed"),
        *("restarting", "failed", "unresponsive"),
    }
    raced = ran(place, "genagentd", "run", "--json")
    assert (raced.code, raced.error) == (4, "already_running")
    assert raced.json["error"]["hint"] == "stop it with: genagentd stop"

    stopped = ran(place, "genagentd", "stop", "--json").json

    assert stopped["pid"] == started["pid"]
    assert kernel.stat(started["pid"]) is None
    after = ran(place, "genagentd", "stop", "--json")
    assert (after.code, after.error) == (7, "not_reachable")
    assert "start one" not in after.out


def test_a_daemon_whose_logs_were_removed_says_so_and_begins_them_anew(
    place: PrivateDaemon,
) -> None:
    """It would write for nobody until its end, and everything would look fine."""
    pid = ran(place, "genagentd", "start", "--json").json["pid"]
    before = ran(place, "genagentd", "status")
    shutil.rmtree(place.places.logs)
    removed = ran(place, "genagentd", "status")
    told = ran(place, "genagentd", "status", "--json").json["log_removed"]

    os.kill(pid, signal.SIGHUP)

    until(lambda: not kernel.writes_removed(pid), "it has another one")
    until(lambda: "config.reloaded" in place.places.daemon_log.read_text(), "it is written")
    assert (told, f"kill -HUP {pid}" in removed.out) == (True, True)
    assert ran(place, "genagentd", "status").out.count("\n") == before.out.count("\n")
    assert place.places.logs.stat().st_mode & 0o777 == 0o700
    until(lambda: not any(map(kernel.writes_removed, kernel.children(pid))), "nobody has the old")


def test_a_start_with_little_patience_says_that_it_goes_on(place: PrivateDaemon) -> None:
    """Something was changed, and the process has a number by which to find it."""
    begun = ran(place, "genagentd", "start", "--timeout", "0.001", "--json")

    guardian = begun.json["error"]["details"]["guardian"]
    assert (begun.code, begun.error) == (5, "starting")
    assert f"its guardian is pid {guardian}" in begun.json["error"]["message"]
    assert begun.json["error"]["details"]["pid"] is None
    until(lambda: ran(place, "genagentd", "status").code == 0, "it answers")
    daemon = kernel.stat(ran(place, "genagentd", "status", "--json").json["pid"])
    assert daemon is not None
    assert daemon.parent == guardian
    assert ran(place, "genagentd", "stop").code == 0


def test_many_starts_at_once_make_one_daemon(place: PrivateDaemon) -> None:
    """E010: all succeed with the same pid, and one of them did it."""
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: ran(place, "genagentd", "start", "--json"), range(6)))

    assert [one.code for one in found] == [0] * 6, found
    assert len({one.json["pid"] for one in found}) == 1
    assert sum(one.json["started"] for one in found) == 1


def test_a_start_that_fails_says_why_with_the_tail_of_the_log(place: PrivateDaemon) -> None:
    """Bad configuration is exit 78, for `run` as for `start`."""
    bad = place.run / "bad.toml"
    bad.write_text("grace = 1\n")

    failed = ran(place, "genagentd", "run", "--config", str(bad))
    started = ran(place, "genagentd", "start", "--config", str(bad), "--json")

    assert (failed.code, failed.err.count("\n")) == (78, 1)
    assert "grace_ms" in failed.err
    assert (started.code, started.error) == (78, "bad_configuration")
    assert "grace_ms" in started.json["error"]["message"]


def test_a_runtime_directory_that_is_not_ours_to_use_is_exit_78(tmp_path: Path) -> None:
    """A link could lead anywhere."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    linked = PrivateDaemon(run=tmp_path / "link")

    failed = ran(linked, "genagentd", "run", "--json")

    assert (failed.code, failed.error) == (78, "bad_configuration")


@pytest.mark.parametrize(
    "arguments",
    [
        *(("genagentd", verb) for verb in ("run", "start", "status", "stop", "version")),
        *(("genagent", "list"), ("genagent", "logs", "a"), ("genagent", "tell", "a", "p")),
    ],
    ids=" ".join,
)
def test_a_directory_that_cannot_be_one_is_exit_78_whoever_asks(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """E034: it is the configuration that is wrong, and nothing is made of it."""
    (tmp_path / "file").touch()
    long = tmp_path / ("ä" * 60)

    for run, told in (
        (long, "bytes, and the limit is"),
        (Path("some/where"), "not an absolute path"),
        (tmp_path / "file", "is not a directory"),
    ):
        failed = ran(PrivateDaemon(run=run), *arguments)
        assert (failed.code, failed.err.count("\n")) == (78, 1), failed
        assert told in failed.err

    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_is_open_to_others_is_exit_78_and_stays_open(tmp_path: Path) -> None:
    """It may be everybody's: then closing it would take it away from them."""
    tmp_path.chmod(0o755)
    failed = ran(PrivateDaemon(run=tmp_path), "genagentd", "start")

    assert (failed.code, failed.err.count("\n")) == (78, 1)
    assert "chmod 700" in failed.err
    assert (tmp_path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o755, [])


def test_a_daemon_that_hangs_is_named_and_not_replaced(place: PrivateDaemon) -> None:
    """E032: the lock's owner is told, the socket stays, and it is still there afterwards."""
    pid = ran(place, "genagentd", "start", "--json").json["pid"]
    inode = os.stat(place.places.socket).st_ino
    os.kill(pid, signal.SIGSTOP)
    try:
        refused = ran(place, "genagentd", "start", "--timeout", "1", "--json")
        silent = ran(place, "genagentd", "status", "--timeout", "1", "--json")
        stays = ran(place, "genagentd", "stop", "--timeout", "1", "--json")
        listed = ran(place, "genagent", "status", "x", "--timeout", "1")
    finally:
        os.kill(pid, signal.SIGCONT)

    # Every one of them leads out: none refers to another that does not know further either.
    for told in (refused, silent, stays):
        assert (told.code, told.error) == (7, "not_answering")
        assert told.json["error"]["details"]["pid"] == pid
        assert f"kill -9 {pid}; then: genagentd start" in told.json["error"]["hint"]
    assert listed.code in (5, 7)
    assert os.stat(place.places.socket).st_ino == inode
    assert ran(place, "genagentd", "status").code == 0


def test_a_daemon_without_a_lock_that_lets_nobody_in_is_not_waited_for_and_not_replaced(
    place: PrivateDaemon,
) -> None:
    """It is stopped, and clients that gave up fill its backlog; somebody removed its lock."""
    with crowded(place.places.socket):
        looked = ran(place, "genagentd", "status", "--timeout", "0.2", "--json")
        started = ran(place, "genagentd", "start", "--timeout", "0.2", "--json")
        stopped = ran(place, "genagentd", "stop", "--timeout", "0.2", "--json")
        second = ran(place, "genagentd", "run", "--json")

        assert (looked.code, looked.error) == (7, "not_reachable")
        assert (started.code, started.error) == (7, "not_answering")
        assert (stopped.code, stopped.error) == (7, "not_reachable")
        assert (second.code, second.error) == (4, "already_running")
        assert second.json["error"]["details"]["pid"] is None
    assert os.path.lexists(place.places.socket)


def test_a_start_that_fails_shows_what_this_one_wrote_and_has_the_code_of_run(
    place: PrivateDaemon,
) -> None:
    """Lines of daemons that ran long ago were taken for the reason, and for the time of it."""
    assert ran(place, "genagentd", "start").code == 0
    assert ran(place, "genagentd", "stop").code == 0
    bad = place.run / "bad.toml"
    bad.write_text("grace_ms = 'soon'")

    first, again = (
        ran(place, "genagentd", "start", "--config", str(bad), "--json") for _ in range(2)
    )
    runs = ran(place, "genagentd", "run", "--config", str(bad), "--json")

    for told in (first, again):
        assert (told.code, told.error) == (runs.code, runs.error) == (78, "bad_configuration")
        [line] = told.json["error"]["details"]["log"]
        assert line in told.json["error"]["message"]
        assert "grace_ms" in line


@pytest.mark.parametrize("removed", ["socket", "directory"])
def test_a_daemon_that_nobody_finds_is_named_at_once(place: PrivateDaemon, removed: str) -> None:
    """The kernel knows who listens there: none was said to run, or it was waited for in vain."""
    pid = ran(place, "genagentd", "start", "--json").json["pid"]
    aside = place.run.with_name(f"{place.run.name}-aside")
    if removed == "directory":
        place.run.rename(aside)
        place.run.mkdir(mode=0o700)
    else:
        os.unlink(place.places.socket)
    try:
        # Whoever waits does not come back in the time that a command has here.
        told = [ran(place, "genagentd", "status", "--timeout", "1000", "--json")]
        if removed == "directory":
            told.append(ran(place, "genagentd", "stop", "--timeout", "1000", "--json"))
        else:
            told.append(ran(place, "genagentd", "start", "--timeout", "1000", "--json"))
    finally:
        if removed == "directory":
            place.run.rmdir()
            aside.rename(place.run)

    end = f"kill {pid}" if removed == "directory" else "genagentd stop"
    for each in told:
        assert (each.code, each.error) == (7, "not_answering")
        assert each.json["error"]["details"]["pid"] == pid
        assert "was removed" in each.json["error"]["message"]
        assert each.json["error"]["hint"].endswith(f"kill -HUP {pid}, or end it with: {end}")
    os.kill(pid, signal.SIGHUP)
    until(lambda: ran(place, "genagentd", "status").code == 0, "it is found again")
    os.unlink(place.places.socket)
    again = ran(place, "genagentd", "status", "--json")
    assert again.json["error"]["details"]["pid"] == pid, "it is bound by another name now"


@pytest.mark.parametrize("listens", [True, False])
def test_only_a_socket_that_somebody_listens_at_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    """One that is bound and no more than that is a daemon that begins."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("gone sock")
        if listens:
            made.listen()
        there = listens_unseen("gone sock", os.getpid())
        os.unlink("gone sock")

        assert listens_unseen("gone sock", os.getpid()) == listens
        assert (unseen_listener("gone sock") is not None) == listens
        assert not listens_unseen("gone sock", os.getppid())
        assert not listens_unseen("another", os.getpid())
    assert not there
    assert not listens_unseen("gone sock", os.getpid())


@pytest.mark.parametrize("name", ["a\nb", "a\r b", "a\n0001: x", "\u00e9", "a "])
def test_a_removed_socket_is_found_whatever_its_directory_is_called(
    tmp_path: Path, name: str
) -> None:
    """The kernel's list has a line for each, and a path may have lines, too."""
    directory = tmp_path / name
    directory.mkdir()
    link = tmp_path / "link"
    link.symlink_to(directory)
    bound = link / "s"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(bound))
        made.listen()
        bound.unlink()

        for spelled in (directory / "s", bound, tmp_path / "." / name / "s"):
            assert listens_unseen(str(spelled), os.getpid())
        assert not listens_unseen(str(tmp_path / "s"), os.getpid())
        assert not listens_unseen(str(directory / "another"), os.getpid())


class Clock:
    """Time that passes only where somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, for_s: float) -> None:
        self.now += for_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the commands that look for a daemon."""
    made = Clock()
    for module in (daemon_commands, beginning, unanswered, lock, core):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.mark.parametrize("verb", ["start", "status", "stop"])
def test_no_command_looks_for_longer_than_it_may(
    genagentd: Command, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Somebody wrote into the lock, and who listens lets nobody in: each of them is waited for."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))
    held = lock.take(Places(tmp_path, tmp_path))
    assert held is not None
    (tmp_path / "genagentd.lock").write_text("garbage\n")

    def lets_nobody_in(_path: str, within_ms: int) -> int:
        clock.sleep(within_ms / 1000)
        return 0

    monkeypatch.setattr(lock, "listener_pid", lets_nobody_in)

    told = genagentd(verb, "--timeout", "1", "--json")

    held.release()
    assert (told.code, told.error) == (7, "not_answering")
    assert clock.now < 1.1


def test_status_waits_for_a_daemon_that_holds_the_lock_and_is_about_to_listen(
    genagentd: Command, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks in that moment would be told to kill it."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))
    held = lock.take(Places(tmp_path, tmp_path))
    assert held is not None
    asked = core.core_state

    def asks(path: str, timeout_ms: int) -> CoreState:
        if clock.now < 1:
            return asked(path, timeout_ms)
        return CoreState(
            call=1,
            pid=7,
            boot=BootId("b"),
            software="ours",
            ready=True,
            draining=False,
            agents=0,
            clients=0,
            uptime_ms=0,
            bad_frames=0,
        )

    monkeypatch.setattr(core, "core_state", asks)

    told = genagentd("status", "--timeout", "5", "--json")

    held.release()
    assert told.json["pid"] == 7


def test_what_connecting_took_is_not_waited_for_once_more(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many waited to be let in, and then nobody answers."""
    waited_ms = []

    class Slow:
        talk = None

        def __init__(self, *_: object, **__: object) -> None:
            clock.sleep(4)

        def run(self, _script: object, timeout_ms: int) -> None:
            waited_ms.append(timeout_ms)

        def close(self, linger_ms: int) -> None:
            """Nothing was opened."""

    monkeypatch.setattr(core, "BlockingShell", Slow)

    core.core_state("/x", 5_000)
    core.stop_daemon("/x", 5_000, force=False)

    assert waited_ms == [1_000, 1_000]


@pytest.mark.parametrize(
    ("listens", "code", "left"),
    [
        # It lets somebody in again, and it is a process that does not end.
        ([0, 0, os.getpid()], 5, []),
        # It is in a pid namespace that we do not see into.
        ([0, 0, 0, None, "never asked"], 0, ["never asked"]),
    ],
)
def test_a_daemon_without_a_lock_and_of_unknown_number_is_waited_for(
    genagentd: Command,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listens: list[Any],
    code: int,
    left: list[Any],
) -> None:
    """'Stopped' was said while its agents still finished their turns."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(core, "stop_daemon", lambda *_, **__: None)
    answers = iter(listens)
    monkeypatch.setattr(lock, "listener_pid", lambda *_: next(answers))

    told = genagentd("stop", "--timeout", "1", "--json")

    assert (told.code, list(answers)) == (code, left)
    assert code == 0 or told.json["error"]["details"]["pid"] == os.getpid()


def test_a_daemon_that_heard_of_its_end_and_stays_has_one_way_out_left(
    genagentd: Command, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has used force already was told to use force."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))

    def says_nothing(*_: object, **__: object) -> None:
        raise CallTimeout("stop", 1_000)

    monkeypatch.setattr(core, "stop_daemon", says_nothing)
    held = lock.take(Places(tmp_path, tmp_path))
    assert held is not None

    asked = genagentd("stop", "--timeout", "1", "--json")
    forced = genagentd("stop", "--timeout", "1", "--force", "--json")

    held.release()
    assert (asked.code, forced.code) == (5, 5)
    assert "stop --force" in asked.json["error"]["hint"]
    assert f"kill -9 {os.getpid()}; then: genagentd start" in forced.json["error"]["hint"]


def test_a_stop_does_not_wait_for_the_next_daemon(
    genagentd: Command, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that waited for the same end has the lock by then."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))
    held = lock.take(Places(tmp_path, tmp_path))
    assert held is not None
    with subprocess.Popen(["sleep", "60"]) as old:
        named = f"{old.pid} {kernel.started_ticks(old.pid)}\n"
        (tmp_path / "genagentd.lock").write_text(named)

        def ends(*_: object, **__: object) -> None:
            old.kill()
            old.wait()

        monkeypatch.setattr(core, "stop_daemon", ends)

        told = genagentd("stop", "--timeout", "1", "--json")

        held.release()
        assert (told.code, told.json["pid"]) == (0, old.pid)


def test_a_detached_daemon_outlives_its_starter_and_has_a_guardian(place: PrivateDaemon) -> None:
    """Its parent is the guardian, in a session of its own; standard input is closed to it."""
    pid = ran(place, "genagentd", "start", "--json").json["pid"]
    found = kernel.stat(pid)
    assert found is not None
    guardian = found.parent

    assert "genagentd" in Path(f"/proc/{guardian}/cmdline").read_text()
    assert os.getsid(pid) == os.getsid(guardian) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"


def test_force_does_not_let_agents_finish(place: PrivateDaemon) -> None:
    """A turn that would not end does not hold it up."""
    ran(place, "genagentd", "start")
    ran(
        place,
        *("genagent", "start", "a", "--backend", "scripted"),
        *("-o", 'script=[[{"hang": "stubborn"}]]'),
    )
    ran(place, "genagent", "tell", "a", "p")

    stopped = ran(place, "genagentd", "stop", "--force", "--timeout", "30")

    assert stopped.code == 0, stopped.err


def test_a_daemon_killed_in_a_wait_makes_the_outcome_uncertain(place: PrivateDaemon) -> None:
    """E050: within seconds, exit 6."""
    pid = ran(place, "genagentd", "start", "--json").json["pid"]
    ran(
        place, "genagent", "start", "a", "--backend", "scripted", "-o", 'script=[[{"hang":"idle"}]]'
    )
    with subprocess.Popen(
        command("genagent", "tell", "a", "p", "--wait", "--json"),
        env=place.environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as waits:
        until(
            lambda: (
                json.loads(ran(place, "genagent", "snapshot", "a", "--json").out)["phase"]
                == "processing"
            ),
            "the turn runs",
        )
        os.kill(pid, signal.SIGKILL)
        out, _ = waits.communicate(timeout=30)

    assert waits.returncode == 6
    error = json.loads(out)["error"]
    assert (error["code"], error["details"]["reason"]) == ("uncertain", "noconnection")


def test_the_module_is_the_program() -> None:
    """`python -m genagentd` and the script are the same code."""
    done = subprocess.run(
        [sys.executable, "-m", "genagentd", "--help"], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0
    assert "genagentd start" in done.stdout


def test_status_without_a_daemon_in_this_process(
    genagentd: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 7 at once, with what to do."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))

    missing = genagentd("status")

    assert missing.code == 7
    assert "genagentd start" in missing.err


def test_a_daemon_of_another_version_answers_the_core_and_nothing_else(
    genagentd: Command, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E039: exit 8 with both versions and the command that helps; status still works."""
    load_commands()
    genagent = runner(agents.app, "genagent", capsysbinary, monkeypatch)
    with fake_daemon(version=2) as other:
        monkeypatch.setenv("GENAGENT_RUN_DIR", str(other.run))

        refused = genagent("list", "--json")
        status = genagentd("status", "--json")

    assert (refused.code, refused.error) == (8, "version_mismatch")
    assert "genagentd stop" in refused.json["error"]["hint"]
    assert status.json["software"] == "fake"
    assert (status.json["agents"], status.json["failed"]) == (0, None)


def test_a_start_on_a_full_disk_says_so(place: PrivateDaemon, tmp_path: Path) -> None:
    """The log that would say it is on that disk, too."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", str(disk)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    try:
        for name in ("a", "genagentd.lock", "logs"):
            (disk / name).mkdir(mode=0o700) if name != "genagentd.lock" else (disk / name).touch()
        (disk / "logs" / "genagentd.log").touch(0o600)
        with pytest.raises(OSError, match="space"):
            (disk / "full").write_bytes(b"x" * 1_000_000)
        full = PrivateDaemon(run=disk)

        refused = ran(full, "genagentd", "start")

        # The place is right: a service manager is to try it again.
        assert refused.code == 1
        assert f"no space is left in {disk}" in refused.err
    finally:
        subprocess.run(["umount", str(disk)], check=True)
