"""The guardian outlives the daemon and ends what it left, whatever session that is in."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from genagentd import kernel
from genagentd.daemon import guardian
from support.daemons import PrivateDaemon
from support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("nothing_left")]

#: Plays the daemon: leaves a tool in a session of its own and one that forked twice, says so,
#: and then does what its argument says.
_DAEMON = """
import os, signal, subprocess, sys, time
from genagentd.daemon.guardian import guard, listen
guard()
tool = subprocess.Popen(["sleep", "1000"], start_new_session=True)
twice = subprocess.Popen(["sh", "-c", "setsid sleep 1000 & echo $!"], stdout=subprocess.PIPE)
hidden = int(twice.stdout.readline())
twice.wait()
signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
listen()
print(os.getpid(), tool.pid, hidden, flush=True)
if sys.argv[1] == "exit":
    os._exit(7)
signal.pause()
"""


def _guarded(
    what: str, stderr: int | None = None, first: str = ""
) -> tuple[subprocess.Popen[str], list[int]]:
    command = [sys.executable, "-c", first + _DAEMON, what]
    guardian = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert guardian.stdout is not None
    with guardian.stdout as said:
        return guardian, [int(pid) for pid in said.readline().split()]


def _runs(pid: int) -> bool:
    found = kernel.stat(pid)
    return found is not None and not found.ended


def test_a_killed_daemon_leaves_nothing_in_sessions_of_its_own() -> None:
    """Every other subreaper is dead then; the guardian is the one that is left."""
    guardian, (daemon, tool, hidden) = _guarded("wait")

    os.kill(daemon, signal.SIGKILL)

    assert guardian.wait(30) == 128 + signal.SIGKILL
    assert [pid for pid in (daemon, tool, hidden) if _runs(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGQUIT])
def test_what_ended_a_daemon_that_could_not_say_so_is_in_its_log(
    capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    """Its log would go on with the next start, and nothing would tell why."""
    guardian, (daemon, *_) = _guarded("wait")

    os.kill(daemon, number)

    assert guardian.wait(30) == 128 + number
    [line] = capfd.readouterr().err.splitlines()
    said = json.loads(line)
    assert said.pop("timestamp")
    expected = {"event": "daemon.killed", "pid": daemon, "signal": number, "level": "warning"}
    assert said == expected


@pytest.mark.parametrize("becomes", ["moved", "removed", "kept"])
def test_what_ended_a_daemon_is_in_the_log_that_is_there_by_then(
    tmp_path: Path, becomes: str
) -> None:
    """The one from the start may be an old one by now; its room on the disk is not kept either."""
    log = tmp_path / "genagentd.log"
    log.touch(0o600)
    with log.open("ab") as stderr:
        guardian, (daemon, *_) = _guarded("wait", stderr.fileno())
    held = Path(f"/proc/{guardian.pid}/fd/2")
    until(lambda: os.readlink(held) == os.devnull, "the guardian has let go of it")
    if becomes == "moved":
        log.rename(tmp_path / "genagentd.log.1")
    elif becomes == "removed":
        log.unlink()
    else:
        log.write_text("a line that a full disk cu")

    os.kill(daemon, signal.SIGKILL)

    assert guardian.wait(30) == 128 + signal.SIGKILL
    assert json.loads(log.read_text().splitlines()[-1])["event"] == "daemon.killed"
    if becomes == "moved":
        assert (tmp_path / "genagentd.log.1").read_bytes() == b""


def test_a_log_that_cannot_be_opened_anew_is_kept(tmp_path: Path) -> None:
    """Root opened it, say, for a user who may not."""
    log = tmp_path / "genagentd.log"
    refuses = (
        "import os\nfrom genagentd.daemon import guardian\n"
        "guardian.open_appending = lambda _path: os.open('/nowhere', os.O_RDONLY)\n"
    )
    with log.open("ab") as stderr:
        guardian, (daemon, *_) = _guarded("wait", stderr.fileno(), first=refuses)

    os.kill(daemon, signal.SIGKILL)

    assert guardian.wait(30) == 128 + signal.SIGKILL
    assert json.loads(log.read_text().splitlines()[-1])["event"] == "daemon.killed"


def test_a_link_in_the_place_of_the_log_chooses_no_file(tmp_path: Path) -> None:
    """What somebody planted there would be written to."""
    log, victim = tmp_path / "genagentd.log", tmp_path / "victim"
    victim.touch()
    with log.open("ab") as stderr:
        guardian, (daemon, *_) = _guarded("wait", stderr.fileno())
    held = Path(f"/proc/{guardian.pid}/fd/2")
    until(lambda: os.readlink(held) == os.devnull, "the guardian has let go of it")
    log.unlink()
    log.symlink_to(victim)

    os.kill(daemon, signal.SIGKILL)

    assert guardian.wait(30) == 128 + signal.SIGKILL
    assert victim.read_bytes() == b""


def test_a_daemon_that_exits_has_said_why_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """Two lines about one end would make two of it."""
    guardian, _ = _guarded("exit")

    assert guardian.wait(30) == 7
    assert capfd.readouterr().err == ""


def test_a_caller_that_ignores_the_end_of_children_does_not_blind_the_guardian() -> None:
    """A program begins with what its caller ignored; ours would wait for its last child then."""
    careless = f"import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{_DAEMON}"
    guardian = subprocess.Popen(
        [sys.executable, "-c", careless, "wait"], stdout=subprocess.PIPE, text=True
    )
    assert guardian.stdout is not None
    with guardian.stdout as said:
        daemon, tool, hidden = map(int, said.readline().split())

    os.kill(daemon, signal.SIGKILL)

    assert guardian.wait(30) == 128 + signal.SIGKILL
    assert [pid for pid in (daemon, tool, hidden) if _runs(pid)] == []


def test_the_exit_status_is_the_daemons() -> None:
    """Whoever started the service must not see the guardian instead of it."""
    guardian, (_, tool, hidden) = _guarded("exit")

    assert guardian.wait(30) == 7
    assert not _runs(tool)
    assert not _runs(hidden)


def test_a_signal_reaches_the_daemon() -> None:
    """A service manager knows the first process only."""
    guardian, _ = _guarded("wait")

    guardian.send_signal(signal.SIGTERM)

    assert guardian.wait(30) == 9


def test_a_daemon_whose_guardian_was_killed_ends_in_order() -> None:
    """It would run unguarded otherwise, and a later kill would leave orphans."""
    guardian, (daemon, tool, hidden) = _guarded("wait")

    guardian.kill()
    guardian.wait(30)

    until(lambda: not _runs(daemon), "the daemon has ended")
    for pid in (tool, hidden):
        kernel.kill_exactly(pid)


def test_an_unrelated_process_of_the_same_name_is_untouched(tmp_path: Path) -> None:
    """Nothing is ever found by name."""
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        guardian, (daemon, *_) = _guarded("wait")
        os.kill(daemon, signal.SIGKILL)
        guardian.wait(30)

        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_deep_tree_is_killed_before_the_first_of_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One level at a time, a thousand of them took seconds."""
    us, depth = os.getpid(), 60
    below = {us: [1]} | {pid: [pid + 1] for pid in range(1, depth)}
    killed, killed_at_first_wait = set[int](), list[int]()

    def kill(pid: int, _ticks: int | None = None) -> bool:
        killed.add(pid)
        below[us] += below.pop(pid, [])  # It dies at once, and we adopt.
        return True

    def wait(pid: int, _options: int) -> tuple[int, int]:
        below[us].remove(pid)
        return pid, 9

    monkeypatch.setattr(kernel, "children", lambda pid: list(below.get(pid, [])))
    monkeypatch.setattr(kernel, "stat", lambda pid: kernel.Stat(pid, "S", us, pid, 1, 7))
    monkeypatch.setattr(kernel, "kill_exactly", kill)
    monkeypatch.setattr(kernel, "await_end", lambda _: killed_at_first_wait.append(len(killed)))
    monkeypatch.setattr(os, "waitpid", wait)
    guardian.end_descendants()

    assert killed_at_first_wait[0] == depth
    assert below[us] == []


#: Plays the guardian of a daemon that is dead, above tools of which some cannot be signalled.
_LEFT = """
import os, subprocess, sys
from genagentd import kernel
from genagentd.daemon.guardian import end_descendants
from support.immune import refused
kernel.adopt_orphans()
shell = "sleep 1000 & echo $!; wait; exec sleep 1000"
foreign = subprocess.Popen(
    ["sh", "-c", shell], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
)
below = int(foreign.stdout.readline())
ours = subprocess.Popen(["sleep", "1000"], stderr=subprocess.DEVNULL, start_new_session=True)
with refused(lambda pid: pid == foreign.pid):
    end_descendants()
print(foreign.pid, below, ours.pid, flush=True)
"""


def test_what_cannot_be_killed_keeps_the_guardian_from_nothing() -> None:
    """What `sudo` left is named and left; everything else ends, also what lives below it."""
    tests = str(Path(__file__).parents[1])
    search = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", _LEFT],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": search},
        check=False,
    )
    foreign, below, ours = map(int, done.stdout.split())
    try:
        assert done.returncode == 0, done.stderr
        assert (_runs(below), _runs(ours)) == (False, False)
        assert f'"pid": {foreign}, "uid": {os.getuid()}' in done.stderr
    finally:
        kernel.kill_exactly(foreign)


def test_a_stopped_daemon_hears_what_is_forwarded() -> None:
    """Ctrl-C would do nothing otherwise, however often."""
    guardian, (daemon, *_) = _guarded("wait")
    os.kill(daemon, signal.SIGSTOP)
    until(lambda: (found := kernel.stat(daemon)) and found.state == "T", "it is stopped")

    guardian.send_signal(signal.SIGTERM)

    assert guardian.wait(30) == 9


#: Plays a daemon that writes to its terminal, and says elsewhere that it could.
_WRITES = """
import os, sys
from genagentd.daemon.guardian import guard
guard()
os.write(2, b"a line of the log\\n")
os.write(int(sys.argv[1]), b"written")
"""


def test_a_terminal_that_stops_what_writes_in_the_background_stops_no_daemon() -> None:
    """`stty tostop`: its group is not the one in the foreground, and it logs there."""
    told, tell = os.pipe()
    os.set_inheritable(tell, True)
    guardian, terminal = pty.fork()
    if guardian == 0:
        mode = termios.tcgetattr(0)
        mode[3] |= termios.TOSTOP
        termios.tcsetattr(0, termios.TCSANOW, mode)
        os.execv(sys.executable, [sys.executable, "-c", _WRITES, str(tell)])
    os.close(tell)
    try:
        assert select.select([told], [], [], 60)[0], "the daemon is stopped"
        assert os.read(told, 100) == b"written"
    finally:
        for pid in kernel.children(guardian):
            kernel.kill_exactly(pid)
        os.waitpid(guardian, 0)
        os.close(terminal)
        os.close(told)


#: Begins two jobs and then becomes the daemon, as a login script or a container's entry does. One
#: job forks when the daemon runs, in a session of its own, and ends.
_BEFORE = """
import os, subprocess, sys
job = subprocess.Popen(["sleep", "1000"])
later = subprocess.Popen(
    ["sh", "-c", "read line; setsid sleep 1000 >/dev/null 2>&1 & echo $! >&2"],
    stdin=subprocess.PIPE, stderr=subprocess.PIPE,
)
os.set_inheritable(later.stdin.fileno(), True)
os.set_inheritable(later.stderr.fileno(), True)
go, told = str(later.stdin.fileno()), str(later.stderr.fileno())
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], "exit", str(job.pid), go, told])
"""
_FORKS_LATER = """
os.write(int(sys.argv[3]), b"\\n")
forked = int(os.read(int(sys.argv[4]), 100))
print(sys.argv[2], forked, end=" ", flush=True)
"""


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_what_was_there_before_the_daemon_outlives_it(end: str) -> None:
    """Also what that forks while the daemon runs: the guardian is above none of it."""
    what = "exit" if end == "exit" else "wait"
    daemon_program = _DAEMON.replace("print(os.getpid()", f"{_FORKS_LATER}print(os.getpid()")
    before = _BEFORE.replace('"exit"', f'"{what}"')
    first = subprocess.Popen(
        [sys.executable, "-c", before, daemon_program], stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    with first.stdout as said:
        job, forked, daemon, tool, hidden = map(int, said.readline().split())
    try:
        if end == "kill":
            os.kill(daemon, signal.SIGKILL)

        assert first.wait(30) == (7 if end == "exit" else 128 + signal.SIGKILL)
        assert (_runs(job), _runs(forked)) == (True, True)
        assert [pid for pid in (daemon, tool, hidden) if _runs(pid)] == []
    finally:
        for pid in (job, forked):
            kernel.kill_exactly(pid)


def test_a_signal_reaches_the_daemon_past_what_was_there_before() -> None:
    """There is one process more on its way then."""
    first = subprocess.Popen(
        [
            *(sys.executable, "-c", _BEFORE.replace('"exit"', '"wait"')),
            _DAEMON.replace("print(os.getpid()", f"{_FORKS_LATER}print(os.getpid()"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    with first.stdout as said:
        job, forked, *_ = map(int, said.readline().split())
    try:
        first.send_signal(signal.SIGTERM)

        assert first.wait(30) == 9
    finally:
        for pid in (job, forked):
            kernel.kill_exactly(pid)


@pytest.mark.parametrize("told_of", ["", "nobody"])
def test_only_a_service_manager_that_is_named_takes_the_guardians_place(
    tmp_path: Path, told_of: str
) -> None:
    """An empty variable names none."""
    private = PrivateDaemon({"NOTIFY_SOCKET": told_of and str(tmp_path / told_of)}).start()
    try:
        first = private.guardian
        assert first is not None
        assert (private.pid == first.pid) == bool(told_of)
    finally:
        private.stop()
        private.cleanup()
