"""Rare things that happen to the processes around an agent, all of them seen somewhere."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from genagent_protocol.envelopes import Down
from genagent_protocol.errors import StartFailed
from genagent_protocol.plain import MAX_DEPTH
from genagentd import kernel, sendable
from genagentd.client.client import Client
from support import fleet
from support.commands import ran
from support.daemons import PrivateDaemon, zombies_below
from support.waiting import until

pytestmark = pytest.mark.process


def test_a_forked_child_that_holds_the_channel_does_not_hold_back_the_down(
    client: Client,
) -> None:
    """It inherited the socket, so the channel stays open; it is an orphan, and is swept first."""
    handle = fleet.start(client, "a", agent="Forks")
    client.at(handle).monitor()
    client.notify_ack("a", None)
    (child,) = fleet.tree(handle.pid)
    began = time.monotonic()

    os.kill(handle.pid, signal.SIGKILL)

    assert fleet.down(client, handle).reason.text == "signal:9"
    assert time.monotonic() - began < 5
    fleet.gone([child], within_s=2)


def test_an_agent_holds_nothing_of_the_daemon(daemon: PrivateDaemon, client: Client) -> None:
    """A lock or a client's socket that it inherited would outlive the daemon in it."""
    fleet.start(client, "other")
    handle = fleet.start(client, "a")
    found = _descriptors(handle.pid)
    assert not [path for path in found if "genagentd.lock" in path or path.endswith(".log")]
    # Beyond its three streams: two event loops, ZeroMQ's descriptors, and its own sockets.
    assert len(found) <= 25
    theirs, ours = set(found), set(_descriptors(daemon.pid))
    assert not {path for path in theirs & ours if path.startswith(("socket:", "pipe:"))}


def _descriptors(pid: int) -> list[str]:
    """Return what a process has open beside its three streams."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    streams = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]
    return [path for path in found if path not in streams]


@pytest.fixture
def spawning(nothing_left: None) -> Iterator[PrivateDaemon]:
    """A daemon that starts agents without a helper."""
    private = PrivateDaemon(environment={"GENAGENT_START_METHOD": "spawn"})
    try:
        yield private.start()
    finally:
        private.stop()
        private.cleanup()


def test_without_a_helper_everything_ends_the_same_way(spawning: PrivateDaemon) -> None:
    """`spawn` is the way out where a helper is unwanted; no promise depends on it."""
    with Client(spawning.run) as client:
        handles = [fleet.start(client, f"a{n}", fleet.BUSY_WITH_ORPHAN) for n in range(3)]
        begun = [identity for h in handles for identity in fleet.begin(client, h, spawns=2)[1]]
        client.at(handles[0]).monitor()
        client.list()  # behind the monitor, so that it is there before the kill
        os.kill(handles[0].pid, signal.SIGSEGV)
        assert fleet.down(client, handles[0]).reason.text == "signal:11"
        with pytest.raises(StartFailed):
            fleet.start(client, "b", agent="ExitsInInit", options={"status": 3})
        until(lambda: not zombies_below(spawning.pid), "there is no zombie", within_s=2)
        spawning.kill()
        fleet.gone([*begun, *map(fleet.of, handles)], within_s=5)
        spawning.wait()
    spawning.start()


def test_a_runtime_directory_that_was_removed_does_not_stop_the_end(
    daemon: PrivateDaemon,
) -> None:
    """Whoever cleans /tmp cleans there, too; agents that run are served on, and new ones start."""
    with Client(daemon.run) as client:
        handle = fleet.start(client, "a")
        pid = daemon.pid
        for path in daemon.run.iterdir():
            if path.name != "stderr":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert client.ask("a", "still there").text == "done"
        assert client.ask(fleet.start(client, "b").name, "and you").text == "done"
        client.at(handle).monitor()
        client.stop("a")
        assert fleet.down(client, handle).reason.text == "shutdown"
        assert ran(daemon, "genagentd", "status").code == 7
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert kernel.stat(pid) is None
    assert "Traceback" not in daemon.log


def test_logs_that_cannot_be_written_cost_no_agent_its_life(nothing_left: None) -> None:
    """A file-size limit is the nearest thing to a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    place = PrivateDaemon()
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        place.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    try:
        with Client(place.run) as client:
            prints: fleet.Turn = [{"print": "x" * 90_000}, *fleet.SAYS]
            handle = fleet.start(client, "a", prints)
            for _ in range(10):
                assert client.ask("a", "print").text == "done"
            assert client.whereis("a") == handle
    finally:
        assert place.stop() == 0
        place.cleanup()


def test_a_recycled_pid_is_a_stranger() -> None:
    """Same number, another start: it is neither alive as that one, nor signalled for it."""
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        ticks = kernel.started_ticks(stranger.pid)
        assert kernel.is_alive(stranger.pid, ticks)
        assert not kernel.is_alive(stranger.pid, ticks - 1)
        assert not kernel.kill_exactly(stranger.pid, ticks - 1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_handle_of_a_dead_process_is_not_alive_even_if_its_number_is_used_again(
    client: Client,
) -> None:
    """`notify` by handle asks the kernel for exactly that process."""
    handle = fleet.start(client, "a")
    client.stop("a")
    recycled = type(handle)(
        name=handle.name,
        incarnation=handle.incarnation,
        pid=os.getpid(),
        started_ticks=handle.started_ticks,
        place=handle.place,
    )
    assert client.at(recycled).notify("x") == "not_alive"
    client.at(recycled).monitor()
    message = client.receive(5_000)
    assert isinstance(message, Down)
    assert message.reason.text == "noproc"


def test_a_detached_daemon_and_its_guardian_killed_leave_no_agent(nothing_left: None) -> None:
    """Both at once is not promised for tools in sessions of their own; agents end all the same."""
    place = PrivateDaemon()
    try:
        started = ran(place, "genagentd", "start", "--json").json
        guardian = kernel.stat(started["pid"])
        assert guardian is not None
        with Client(place.run) as client:
            handles = [fleet.start(client, f"a{n}", fleet.HANGS) for n in range(3)]
            for handle in handles:
                client.at(handle).submit_with_completion("go")
            os.kill(guardian.parent, signal.SIGKILL)
            os.kill(started["pid"], signal.SIGKILL)
            fleet.gone(list(map(fleet.of, handles)), within_s=5)
    finally:
        place.cleanup()


def test_what_a_test_leaves_is_found(tmp_path: Path) -> None:
    """The fixtures of these tests would not be worth much if they could not fail."""
    left = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"])
    try:
        until(lambda: len(fleet.tree(os.getpid())) >= 2, "both are there")
        assert left.pid in fleet.alive(fleet.tree(os.getpid()))
    finally:
        for pid, ticks in fleet.tree(left.pid):
            kernel.kill_exactly(pid, ticks)
        left.kill()
        left.wait()


def test_a_forked_child_that_leaves_its_parents_blocks_leaves_them_alone(client: Client) -> None:
    """It exits as it wanted to, and group, mailbox and session go on in the parent."""
    fleet.start(client, "a")
    with client.group() as group, client.mailbox() as mailbox, client.attach("a") as session:
        group.start_agent(None, name="b", backend="echo")
        child = os.fork()
        if child == 0:
            os._exit(_left_by(group, mailbox, session))
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert client.ask("b", "still there").text == "still there"
        assert session.over is None


def _left_by(*entered: contextlib.AbstractContextManager[object]) -> int:
    try:
        for manager in reversed(entered):
            manager.__exit__(None, None, None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def test_a_name_of_any_depth_starts_also_while_somebody_watches(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record about it is a level more around the name; a client need not care for our limit."""
    monkeypatch.setattr(sendable, "MAX_NAME_DEPTH", MAX_DEPTH)
    name: object = "x"
    for _ in range(63):
        name = [name]
    with client.telemetry():
        handle = client.start_agent(None, name=name, backend="echo", start_timeout_ms=60_000)

        assert client.stop(name).text == "shutdown"
    assert handle.name != "x"


def test_a_socket_that_cannot_be_removed_holds_back_no_stop(
    daemon: PrivateDaemon, client: Client
) -> None:
    """Somebody put something else in its place, or took our right to remove it."""
    handle = fleet.start(client, "a")
    client.at(handle).monitor()
    path = Path(daemon.places.agent_socket(handle.pid, handle.started_ticks))
    (path / "below").mkdir(parents=True)

    assert client.stop("a").text == "shutdown"
    assert fleet.down(client, handle).reason.text == "shutdown"
    assert client.list() == ()
    shutil.rmtree(path)


def test_a_removed_directory_of_sockets_is_made_anew_by_the_next_start(
    daemon: PrivateDaemon, client: Client
) -> None:
    """Whoever cleans up under a running daemon takes no start with it."""
    shutil.rmtree(daemon.places.agents)

    fleet.start(client, "a")

    assert client.ask("a", "go").text
    shutil.rmtree(daemon.places.agents)
    daemon.places.agents.write_text("in the way")
    with pytest.raises(StartFailed) as failed:
        fleet.start(client, "b")

    assert failed.value.reason.kind == "bad_directory"
    assert str(daemon.places.agents) in failed.value.reason.message
    daemon.places.agents.unlink()


def test_a_list_of_processes_says_who_is_who(daemon: PrivateDaemon, client: Client) -> None:
    """They have one command line, and an operator has `ps` where nothing answers any more."""
    agent = fleet.start(client, "a\nname that is long")
    children = kernel.children(daemon.pid)

    assert daemon.guardian is not None
    assert kernel.command_of(daemon.guardian.pid) == "genagentd-guard"
    assert kernel.command_of(daemon.pid) == "genagentd"
    assert kernel.command_of(agent.pid) == "ga:a\\nname that"
    assert "genagent-helper" in map(kernel.command_of, children)
    until(
        lambda: "genagent-new" in map(kernel.command_of, kernel.children(daemon.pid)),
        "one waits for the next start",
    )
