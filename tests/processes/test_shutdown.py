"""The end of the daemon that somebody asked for: in order, accounted for, and not for ever."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from genagent_backends.gates import Gates
from genagent_protocol.envelopes import Completion, Down
from genagent_protocol.errors import DaemonLost, ProcessDown, StartFailed, TurnFailed
from genagent_protocol.events import Completed, Failed
from genagent_protocol.refs import RequestRef
from genagentd import kernel
from genagentd.client.boxes import Message
from genagentd.client.client import Client
from support import fleet
from support.commands import ran
from support.daemons import PrivateDaemon, helper_of
from support.figures import Figures, counts
from support.waiting import until

pytestmark = pytest.mark.process


@pytest.fixture
def hasty(nothing_left: None) -> Iterator[PrivateDaemon]:
    """A daemon that gives turns three seconds to finish."""
    with _giving(3_000) as private:
        yield private


@pytest.fixture
def patient(nothing_left: None) -> Iterator[PrivateDaemon]:
    """A daemon that gives turns as long as a test may take."""
    with _giving(60_000) as private:
        yield private


@contextlib.contextmanager
def _giving(grace_ms: int) -> Iterator[PrivateDaemon]:
    private = PrivateDaemon(environment={"GENAGENT_GRACE_MS": str(grace_ms)})
    try:
        yield private.start()
    finally:
        private.stop()
        private.cleanup()


def everything_of(daemon: PrivateDaemon) -> list[fleet.Identity]:
    """Return the guardian and all below it."""
    assert daemon.guardian is not None
    return [
        *fleet.identities([daemon.guardian.pid]),
        *fleet.tree(daemon.guardian.pid),
    ]


def lines(daemon: PrivateDaemon, event: str) -> list[dict[str, Any]]:
    """Return the lines of its log about *event*."""
    found = [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


@counts(short=6, full=20)
def test_F032_turns_may_finish_and_every_ref_is_accounted_for(
    hasty: PrivateDaemon, figures: Figures, count: int
) -> None:
    """F032: a completion, a refusal, or a line in the log; and nothing survives."""
    quick: fleet.Turn = [{"spawn": "orphan"}, {"gate": "go", "timeout_ms": 60_000}]
    fates: dict[RequestRef, str] = {}
    with Client(hasty.run) as client, Gates() as gates:
        handles = [
            fleet.start(
                client,
                f"a{n}",
                [*quick, {"kind": "result"}] if n % 2 else fleet.BUSY_WITH_ORPHAN,
                options={"gate_dir": gates.directory},
            )
            for n in range(count)
        ]
        running = [fleet.begin(client, handle)[0] for handle in handles]
        queued = [client.at(h).submit_with_completion("queued").ref for h in handles]
        for ref in queued:
            fleet.admission(client, ref)
        for handle in handles:
            client.at(handle).monitor()
        client.list()
        everything = everything_of(hasty)
        asked = time.monotonic()

        hasty.signal(signal.SIGTERM)

        for handle in handles:
            until(partial(_drains, client, handle.name), "it drains")
        for _ in range(count // 2):
            gates.release("go")
        code = hasty.wait()
        took_s = time.monotonic() - asked
        reasons = []
        try:
            while True:
                match client.receive(5_000):
                    case Completion(ref=ref, outcome=Completed()):
                        fates[ref] = "completed"
                    case Completion(ref=ref, outcome=Failed(reason)):
                        fates[ref] = str(reason)
                    case Down(reason=reason):
                        reasons.append(reason.text)
        except DaemonLost:
            pass
    for line in lines(hasty, "request.unresolved"):
        fates.setdefault(RequestRef.parse(line["ref"]), "logged")
    unaccounted = [ref for ref in (*running, *queued) if ref not in fates]
    met = code == 0 and took_s <= 30 and not fleet.alive(everything) and not unaccounted
    figures.note(
        "F032",
        f"SIGTERM with {count} agents in turns: exit code, refs unaccounted for, survivors; took",
        f"{code}, {len(unaccounted)}, {len(fleet.alive(everything))}; {took_s:.1f} s",
        "0, 0, 0; within the stop timeout",
        met=met,
    )
    assert met
    assert reasons == ["shutdown"] * count
    assert [fates[ref] for ref in running] == ["logged", "completed"] * (count // 2)
    assert {fates[ref] for ref in queued} == {"draining"}


@pytest.mark.parametrize("how", ["forced", "signalled again", "killed at the end of the grace"])
def test_a_request_whose_agent_had_no_time_is_named_all_the_same(
    hasty: PrivateDaemon, how: str
) -> None:
    """It is killed before it can say why it exits, and has said before what it would leave."""
    stuck: fleet.Turn = [{"kind": "text", "text": "begun"}, {"hang": "blocked"}]
    fates: dict[RequestRef, str] = {}
    with Client(hasty.run) as client:
        handle = fleet.start(client, "a", stuck)
        running = client.at(handle).submit_with_completion("go", stream_to=client.address).ref
        fleet.event(client, running, "text")
        queued = client.at(handle).submit_with_completion("queued").ref
        fleet.admission(client, queued)

        if how == "forced":
            assert ran(hasty, "genagentd", "stop", "--force").code == 0
        else:
            hasty.signal(signal.SIGTERM)
        if how == "signalled again":
            until(partial(_drains, client, "a"), "it drains")
            until(partial(_signalled_again, hasty), "that was no echo")
        hasty.wait()
        with contextlib.suppress(DaemonLost):
            for message in fleet.rest(client, 5_000):
                if isinstance(message, Completion):
                    assert isinstance(message.outcome, Failed)
                    fates[message.ref] = str(message.outcome.reason)

    for line in lines(hasty, "request.unresolved"):
        fates[RequestRef.parse(line["ref"])] = "logged"
    assert fates == {running: "logged", queued: "logged" if how == "forced" else "draining"}


@pytest.mark.parametrize("how", ["in order", "forced", "frozen"])
def test_an_ask_whose_turn_is_cut_is_named_like_a_tell(hasty: PrivateDaemon, how: str) -> None:
    """Its caller hears that the agent ended, which says nothing of what the turn came to."""
    with Client(hasty.run) as client, Client(hasty.run) as asking, ThreadPoolExecutor(1) as pool:
        fleet.start(client, "a", [{"hang": "blocked" if how == "frozen" else "idle"}])
        asked = pool.submit(asking.ask, "a", "go")
        ref = until(lambda: client.status("a").current_request, "the turn runs")
        if how == "in order":
            hasty.signal(signal.SIGTERM)
        else:
            assert ran(hasty, "genagentd", "stop", "--force").code == 0
        with pytest.raises((TurnFailed, DaemonLost, ProcessDown)):
            asked.result(60)
        hasty.wait()

    assert [line["ref"] for line in lines(hasty, "request.unresolved")] == [ref.text]


def test_a_request_of_an_agent_that_is_slow_to_end_is_named(hasty: PrivateDaemon) -> None:
    """What is left is told before its last callback runs, which it does not survive."""
    with Client(hasty.run) as client:
        slow = {"seconds": 60, "shutdown_ms": 500}
        fleet.start(client, "a", agent="SlowToEnd", options=slow)
        client.halt("a")
        waiting = client.tell("a", "waits")
        client.stop("a")

    assert [line["ref"] for line in lines(hasty, "request.unresolved")] == [waiting.text]


def test_whoever_asks_for_the_end_as_well_cuts_no_turn_off(patient: PrivateDaemon) -> None:
    """`stop` is a wish, also the second time; only a second signal, or `--force`, means now."""
    turn: fleet.Turn = [
        {"spawn": "grandchild"},
        {"gate": "go", "timeout_ms": 60_000},
        {"kind": "result"},
    ]
    with Client(patient.run) as client, Gates() as gates:
        handle = fleet.start(client, "a", turn, options={"gate_dir": gates.directory})
        ref, _ = fleet.begin(client, handle)
        for _ in range(2):
            # It gives up waiting for the end, and nothing else.
            assert ran(patient, "genagentd", "stop", "--timeout", "0.5").code == 5
            assert _drains(client, "a")
        patient.signal(signal.SIGTERM)
        until(lambda: lines(patient, "signal"), "the first signal came")
        assert _drains(client, "a")
        gates.release("go")
        done = client.receive(30_000, matching=lambda message: isinstance(message, Completion))
        assert isinstance(done, Completion)
        assert done.ref == ref
        assert isinstance(done.outcome, Completed)
    assert patient.wait() == 0


def _signalled_again(daemon: PrivateDaemon) -> bool:
    daemon.signal(signal.SIGTERM)
    return any(line["forced"] for line in lines(daemon, "signal"))


def test_an_agent_that_could_not_say_what_it_leaves_is_named(hasty: PrivateDaemon) -> None:
    """Frozen, it hears nothing; that its requests are not known is the truth."""
    with Client(hasty.run) as client:
        handle = fleet.start(client, "frozen", fleet.HANGS)
        client.tell("frozen", "go")
        fleet.start(client, "idle")
        os.kill(handle.pid, signal.SIGSTOP)
        hasty.signal(signal.SIGTERM)
        hasty.wait()

    assert [line["agent"] for line in lines(hasty, "requests.unknown")] == ["frozen"]


def _drains(client: Client, name: object) -> bool:
    return client.runtime_snapshot(name).draining


def _start_many(client: Client, count: int, **how: Any) -> tuple[list[threading.Thread], list[str]]:
    """Begin so many starts at once; the list gets why each failed."""
    failed: list[str] = []

    def start(number: int) -> None:
        try:
            fleet.start(client, f"b{number}", **how)
        except (StartFailed, DaemonLost) as error:
            failed.append(error.reason.kind if isinstance(error, StartFailed) else "lost")

    starts = [threading.Thread(target=start, args=(number,)) for number in range(count)]
    for thread in starts:
        thread.start()
    return starts, failed


@counts(short=6, full=20)
def test_F033_E016_agents_that_are_starting_do_not_hold_up_the_end(
    daemon: PrivateDaemon, figures: Figures, count: int
) -> None:
    """F033, E016: they cannot be asked, so they are killed, and their starters are told why."""
    with Client(daemon.run) as client:
        starts, ended = _start_many(client, count, agent="SleepsInInit", options={"seconds": 60})
        until(lambda: len(client.list()) == count, "all are starting")
        # Half of them have begun their sleep by now, the others are just being born.
        until(lambda: _sleeping(client) >= count // 2, "half of them sleep")
        everything = everything_of(daemon)
        asked = time.monotonic()

        daemon.signal(signal.SIGTERM)

        code = daemon.wait()
        took_s = time.monotonic() - asked
        for thread in starts:
            thread.join(10)
    survivors = len(fleet.alive(everything))
    figures.note(
        "F033",
        f"SIGTERM while {count} agents start: survivors; took",
        f"{survivors}; {took_s:.2f} s",
        "0; 5 s",
        met=survivors == 0 and took_s <= 5,
    )
    assert (code, survivors) == (0, 0)
    assert ended == ["shutting_down"] * count


@pytest.mark.parametrize("forced", [False, True])
def test_F033_E018_a_helper_that_hangs_does_not_hold_up_the_end(
    daemon: PrivateDaemon, client: Client, figures: Figures, forced: bool
) -> None:
    """F033, E018: what it was to start cannot be killed yet; waiting for it can be given up."""
    # Its turn lasts until it is cut, so that there is time to ask twice.
    fleet.begin(client, fleet.start(client, "a", fleet.BUSY))
    os.kill(helper_of(daemon), signal.SIGSTOP)
    starting, told = _start_many(client, 5)
    until(lambda: len(client.list()) == 6, "they are starting")
    everything = everything_of(daemon)
    asked = time.monotonic()

    daemon.signal(signal.SIGTERM)
    if forced:
        until(partial(_signalled_again, daemon), "it is forced")

    code = daemon.wait()
    took_s = time.monotonic() - asked
    for thread in starting:
        thread.join(10)
    survivors = len(fleet.alive(everything))
    figures.note(
        "F033",
        f"a helper that hangs, 5 starts, SIGTERM{' twice' * forced}: survivors; took",
        f"{survivors}; {took_s:.2f} s",
        "0; 5 s",
        met=survivors == 0 and took_s <= 5,
    )
    assert survivors == 0
    assert told == ["shutting_down"] * 5
    assert code == 0
    # The launch was given up; one that is waited out is told of.
    assert lines(daemon, "helper.lost") == []


def _sleeping(client: Client) -> int:
    """Return how many agents have started their tool, the first thing they do."""
    handles = [row.handle for row in client.list()]
    return sum(handle is not None and bool(fleet.tree(handle.pid)) for handle in handles)


def test_E017_a_slow_end_of_one_agent_holds_up_nobody_else(client: Client) -> None:
    """E017: other stops, questions and prompts are answered meanwhile."""
    slow = {"seconds": 3, "shutdown_ms": 60_000}
    fleet.start(client, "a", agent="SlowToEnd", options=slow)
    fleet.start(client, "b")
    fleet.start(client, "c")
    ended: list[float] = []
    began = time.monotonic()
    stopping = threading.Thread(
        target=lambda: ended.append(0 if client.stop("a") is None else time.monotonic() - began)
    )
    stopping.start()
    until(lambda: _state(client, "a") == "stopping", "a is stopping")

    assert client.stop("b").text == "shutdown"
    assert client.status("c").state == "idle"
    assert client.ask("c", "still there").text == "done"
    assert ended == []
    stopping.join(30)
    assert len(ended) == 1


def _state(client: Client, name: str) -> str:
    return next(row.state for row in client.list() if row.name == name)


def _forced_by(daemon: PrivateDaemon, ask: Callable[[], None], times: int = 1) -> bool:
    """Ask once more; at once it would be taken for an echo of the first time."""
    ask()
    return _has_said(daemon, "shutdown.forced", times)


def _has_said(daemon: PrivateDaemon, event: str, times: int) -> bool:
    return len(lines(daemon, event)) >= times


def test_a_second_sigterm_ends_what_the_first_one_waits_for(daemon: PrivateDaemon) -> None:
    """An operator who asks twice does not want to wait for a turn."""
    with Client(daemon.run) as client:
        handle = fleet.start(client, "a", fleet.BUSY_WITH_ORPHAN)
        client.at(handle).monitor()
        fleet.begin(client, handle, spawns=2)
        everything = everything_of(daemon)
        daemon.signal(signal.SIGTERM)
        until(lambda: _state(client, "a") == "stopping", "it waits for the turn")

        asked = time.monotonic()
        until(partial(_forced_by, daemon, partial(daemon.signal, signal.SIGTERM)), "it is forced")

        assert fleet.down(client, handle).reason.text == "signal:9"
        assert daemon.wait() == 0
        assert time.monotonic() - asked < 5
    assert fleet.alive(everything) == []


class Foreground(PrivateDaemon):
    """A daemon that was run as a person would: in a process group that gets its Ctrl-C."""

    def start(self, *, wait: bool = True) -> PrivateDaemon:
        with (self.run / "stderr").open("ab") as log:
            self.guardian = subprocess.Popen(
                [sys.executable, "-m", "genagentd", "run"],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                process_group=0,
            )
        if wait:
            until(self._answers, "the daemon answers")
        return self

    def press_ctrl_c(self) -> None:
        """Do what the terminal does: signal the whole foreground group, if it is still there."""
        assert self.guardian is not None
        if self.guardian.poll() is None:
            os.killpg(self.guardian.pid, signal.SIGINT)


@pytest.fixture
def terminal(nothing_left: None) -> Iterator[Foreground]:
    """A daemon in the foreground."""
    private = Foreground()
    try:
        yield private
    finally:
        if private.guardian is not None:
            private.stop()
        private.cleanup()


@counts(short=1, full=5)
def test_E018_ctrl_c_says_what_it_waits_for_and_a_second_one_forces(
    terminal: Foreground, figures: Figures, count: int
) -> None:
    """E018: the first names who is waited for, the second ends all, with 130, within 2 s."""
    took_s = []
    for number in range(count):
        terminal.start()
        with Client(terminal.run) as client:
            handle = fleet.start(client, f"patient{number}", fleet.BUSY_WITH_ORPHAN)
            fleet.begin(client, handle, spawns=2)
            everything = everything_of(terminal)
            terminal.press_ctrl_c()
            until(partial(_has_said, terminal, "agent.stopping", number + 1), "it says for whom")
            assert lines(terminal, "agent.stopping")[number]["agent"] == handle.name
            assert terminal.guardian is not None
            assert terminal.guardian.poll() is None
            pressed = time.monotonic()

            until(partial(_forced_by, terminal, terminal.press_ctrl_c, number + 1), "it is forced")

            assert terminal.wait() == 130
            took_s.append(time.monotonic() - pressed)
        assert fleet.alive(everything) == []
    assert "Traceback" not in terminal.log
    figures.note(
        "E018",
        f"the second Ctrl-C, {count} times: all is over after",
        f"{max(took_s):.2f} s",
        "2 s",
        met=max(took_s) <= 2,
    )


def test_E019_ctrl_c_reaches_the_daemon_alone(terminal: Foreground) -> None:
    """E019: agents and their programs are ended by the daemon, and nobody prints a traceback."""
    terminal.start()
    with Client(terminal.run) as client:
        turn: fleet.Turn = [{"spawn": "grandchild"}, {"pause_ms": 500}, {"kind": "result"}]
        handles = [fleet.start(client, f"a{n}", turn) for n in range(3)]
        refs = [fleet.begin(client, handle)[0] for handle in handles]
        logs = [row.log for row in client.list()]

        terminal.press_ctrl_c()

        # The turns went on as if nothing had happened.
        for ref in refs:
            assert isinstance(fleet.completion(client, ref).outcome, Completed)
        assert terminal.wait() == 0
    assert "Traceback" not in terminal.log
    for log in logs:
        assert log is not None
        with open(log, encoding="utf-8") as file:
            assert "Traceback" not in file.read()


@counts(short=6, full=40)
def test_E019_ctrl_c_at_any_moment_of_the_start_prints_no_traceback(
    terminal: Foreground, count: int
) -> None:
    """E019: also while modules are imported and nothing is set up yet."""
    for number in range(count):
        terminal.start(wait=False)
        assert terminal.guardian is not None
        guardian = terminal.guardian
        # Before it has forked, it is the interpreter that is starting, and not yet us.
        until(partial(kernel.children, guardian.pid), "the guardian is there")
        with contextlib.suppress(subprocess.TimeoutExpired):
            guardian.wait(0.3 * (number + 1) / count)
        terminal.press_ctrl_c()
        assert terminal.wait() in (0, 130, -signal.SIGINT)
        assert "Traceback" not in terminal.log


@pytest.fixture
def typed(nothing_left: None) -> Iterator[str]:
    """A terminal where nobody types anything."""
    ends = pty.openpty()
    yield os.ttyname(ends[1])
    for descriptor in ends:
        os.close(descriptor)


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_daemon_that_waits_before_it_serves_can_be_ended(
    typed: str, number: signal.Signals, ignored: bool
) -> None:
    """For a configuration that is typed in, a lock, a network disk: none of them ends by itself."""
    waiting = PrivateDaemon(environment={"GENAGENT_CONFIG": typed})
    # As a shell has SIGINT and SIGQUIT for what it begins in the background.
    before = signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        waiting.start(wait=False)
    finally:
        signal.signal(number, before)
    assert waiting.guardian is not None
    guardian = waiting.guardian
    try:
        until(
            lambda: any(_has_open(pid, typed) for pid in kernel.children(guardian.pid)),
            "it reads what is typed",
        )

        waiting.signal(number)

        assert waiting.wait() == 128 + number
    finally:
        for pid in (*kernel.children(guardian.pid), guardian.pid):
            kernel.kill_exactly(pid)
        waiting.cleanup()


#: Runs the daemon, and signals it at a moment when it has no handlers: as soon as it can be
#: reached, or when its loop is closed and its files are not removed yet.
_SIGNALLED = """
import os, signal, sys
from genagentd import sockets
from genagentd.cli.main import daemon_main
from genagentd.daemon import service

def signalled(step):
    def then(*given):
        done = step(*given)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        return done
    return then

sys.argv[0] = "genagentd"
match sys.argv.pop(1):
    case "reachable":
        service.Daemon = signalled(service.Daemon)
    case "closed":
        sockets.end_context = signalled(sockets.end_context)
daemon_main()
"""


@pytest.mark.parametrize("moment", ["reachable", "closed"])
def test_a_signal_without_a_handler_ends_no_daemon_that_can_be_reached(
    nothing_left: None, moment: str
) -> None:
    """It ends in order all the same: nothing of it is left in its directory."""
    signalled = PrivateDaemon(command=[sys.executable, "-c", _SIGNALLED, moment, "run"])
    signalled.start(wait=False)
    try:
        if moment == "closed":
            until(lambda: lines(signalled, "ready"), "it serves")
            signalled.signal(signal.SIGTERM)

        assert signalled.wait() == 0
        assert lines(signalled, "stopped")
        assert signalled.places.lock.read_bytes() == b""
        assert not os.path.lexists(signalled.places.socket)
    finally:
        signalled.stop()
        signalled.cleanup()


def _has_open(pid: int, path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        opened = Path(f"/proc/{pid}/fd").iterdir()
        return any(os.readlink(descriptor) == path for descriptor in opened)
    return False


def test_E037_signals_to_the_whole_tree_at_once_end_in_order(hasty: PrivateDaemon) -> None:
    """E037: as a service manager does with `KillMode=control-group`; one DOWN for each agent."""
    with Client(hasty.run) as client:
        handles = [
            fleet.start(client, f"a{n}", fleet.BUSY_WITH_ORPHAN, restart="permanent")
            for n in range(3)
        ]
        for handle in handles:
            client.at(handle).monitor()
            fleet.begin(client, handle, spawns=2)
        everything = everything_of(hasty)

        for pid, _ in everything:
            os.kill(pid, signal.SIGTERM)

        assert hasty.wait() == 0
        # A monitor that had heard nothing, or would hear more, gets its news from the end
        # of the connection at the latest.
        downs = [m for m in _until_the_connection_ends(client) if isinstance(m, Down)]
    assert sorted((down.handle.name, down.reason.text) for down in downs) == [
        (handle.name, "shutdown") for handle in handles
    ]
    assert fleet.alive(everything) == []
    assert lines(hasty, "agent.restarting") == []


def _until_the_connection_ends(client: Client) -> Iterator[Message]:
    """Yield all that was said to *client*; the daemon is gone."""
    with contextlib.suppress(DaemonLost):
        while (message := client.receive(30_000)) is not None:
            yield message
        raise AssertionError("the connection did not end")
