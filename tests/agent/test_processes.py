"""The processes of a turn: whatever it began ends with it, and nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from genagent_backends.base import Process, Streaming, Turn
from genagent_protocol import envelopes, requests
from genagent_protocol.events import Completed, Event, Failed, event
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import INTERRUPTED
from genagentd import kernel
from genagentd.agent import reserve
from genagentd.agent.child import LOST_STATUS, STDERR_TAIL_BYTES, ChildProcess
from genagentd.agent.processes import Processes
from genagentd.agent.shell import SWEEPS
from genagentd.agent.sweep import Sweep, below, childless
from genagentd.agent.turn import Offer
from genagentd.agent.turn_loop import TurnLoop, TurnThread
from genagentd.sockets import end_context
from support.agent_life import DEADLINE_S, Conversation, living, living_process
from support.immune import refused
from support.tracers import tracing
from support.waiting import until

pytestmark = pytest.mark.process

RESULT = {"kind": "result", "text": "done"}
KINDS = ["child", "grandchild", "orphan", "unmanaged"]


@pytest.fixture(autouse=True)
def _nothing_left(nothing_left: None) -> Iterator[None]:
    """Of a life in this process, its ZeroMQ context is what must go, too."""
    yield
    end_context()


def script(*turns: object, **more: object) -> dict[str, object]:
    """Return the options of a scripted backend."""
    return {"script": list(turns), **more}


async def spawned(agent: Conversation) -> list[int]:
    """Return the pids that the running turn says it started."""
    said = await agent.next(envelopes.EventMessage, lambda said: said.event.kind == "spawned")
    pids = said.event.data["pids"]
    assert isinstance(pids, tuple)
    return [pid for pid in pids if isinstance(pid, int)]


def alive(pids: list[int]) -> list[int]:
    """Return which of *pids* run."""
    found = (kernel.stat(pid) for pid in pids)
    return [stat.pid for stat in found if stat is not None and not stat.ended]


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("what", KINDS)
async def test_what_a_turn_began_has_ended_when_its_completion_comes(what: str, deaf: bool) -> None:
    """Also what called setsid, forked twice, or was begun behind the agent's back."""
    turn = [{"spawn": what, "deaf": deaf}, RESULT]
    async with living(options=script(turn, [RESULT])) as agent:
        ref = agent.submit("go", stream=True)
        pids = await spawned(agent)
        assert isinstance(await agent.completion(ref), Completed)

        assert alive(pids) == []
        assert await agent.answered("go on") == "done"


@pytest.mark.parametrize("what", KINDS)
async def test_what_an_interrupted_turn_began_has_ended_when_that_is_acknowledged(
    what: str,
) -> None:
    """The acknowledgement is the moment from which nothing of it runs."""
    turn = [{"spawn": what}, {"hang": "idle"}]
    async with living(options=script(turn)) as agent:
        ref = agent.submit("go", stream=True)
        pids = await spawned(agent)
        assert alive(pids) == pids
        number = agent.begin_call(requests.InterruptRequest(ref=ref))
        await agent.next(envelopes.Reply, lambda said: said.call == number)

        assert alive(pids) == []


@pytest.mark.parametrize("what", KINDS)
async def test_what_a_crashed_turn_began_has_ended_too(what: str) -> None:
    """However a turn ends, it ends whole."""
    turn = [{"spawn": what}, {"raise": "OSError"}]
    async with living(options=script(turn)) as agent:
        ref = agent.submit("go", stream=True)
        pids = await spawned(agent)
        await agent.completion(ref)

        assert alive(pids) == []


@pytest.mark.parametrize("what", ["child", "grandchild"])
async def test_a_session_process_outlives_turns_and_ends_with_the_agent(what: str) -> None:
    """With everything below it; its turn's other processes end as always."""
    turn = [{"spawn": what, "for_session": True}, {"spawn": "orphan"}, {"hang": "idle"}]
    async with living(options=script(turn, [{"spawn": "child"}, RESULT])) as agent:
        ref = agent.submit("go", stream=True)
        kept, ended = await spawned(agent), await spawned(agent)
        agent.begin_call(requests.InterruptRequest(ref=ref))
        await agent.completion(ref)
        assert (alive(kept), alive(ended)) == (kept, [])

        assert await agent.answered("go on") == "done"
        assert alive(kept) == kept
        await agent.stop()

    assert alive(kept) == []


#: Its first thread ends, and another one does not.
HEADLESS = (
    "import ctypes, threading; threading.Thread(target=threading.Event().wait).start(); "
    "ctypes.CDLL(None).pthread_exit(None)"
)


@pytest.mark.parametrize("end", ["interrupt", "stop"])
async def test_a_process_without_its_first_thread_ends_with_its_turn(end: str) -> None:
    """It reads like a dead one in `/proc`, and lives."""
    turn = [{"spawn": [sys.executable, "-c", HEADLESS]}, {"hang": "idle"}]
    async with living(options=script(turn)) as agent:
        ref = agent.submit("go", stream=True)
        (pid,) = await spawned(agent)
        await asyncio.to_thread(
            until, lambda: (found := kernel.stat(pid)) and found.state == "Z", "its thread ended"
        )
        if end == "interrupt":
            number = agent.begin_call(requests.InterruptRequest(ref=ref))
            await agent.next(envelopes.Reply, lambda said: said.call == number)
        else:
            await agent.stop()

        assert alive([pid]) == []


async def test_a_stuck_turn_takes_its_processes_with_it() -> None:
    """They are killed before the agent exits, not left to whoever finds them."""
    turn = [{"spawn": "grandchild", "deaf": True}, {"hang": "stubborn"}]
    async with living_process(options=script(turn, interrupt_grace_ms=50)) as agent:
        ref = agent.submit("go", stream=True)
        pids = await spawned(agent)
        agent.begin_call(requests.InterruptRequest(ref=ref))
        await agent.ended()

        assert alive(pids) == []


async def test_what_was_there_before_the_turn_is_spared() -> None:
    """The agent's own helpers are none of the turn's business."""
    helper = subprocess.Popen(["sleep", "3600"])
    try:
        async with living(options=script([{"spawn": "orphan"}, RESULT])) as agent:
            assert await agent.answered("go") == "done"
            assert helper.poll() is None
        assert helper.poll() is None
    finally:
        helper.kill()
        helper.wait()


async def test_a_program_that_cannot_be_started_is_the_backends_to_report() -> None:
    """It gets the OSError of the start."""
    turn = [{"spawn": ["/no/such/program"]}, RESULT]
    async with living(options=script(turn)) as agent:
        assert "FileNotFoundError" in str(await agent.run("go"))


# One process


@pytest.fixture
async def children() -> AsyncIterator[list[ChildProcess]]:
    """Children that are ended and closed after the test."""
    made: list[ChildProcess] = []
    yield made
    for child in made:
        await child.end("SIGTERM")
        child.close()


def python(code: str, children: list[ChildProcess], grace_ms: int = 50) -> ChildProcess:
    """Start Python with *code*."""
    child = ChildProcess(
        [sys.executable, "-u", "-c", code], None, None, lambda _child: None, grace_ms
    )
    children.append(child)
    return child


async def test_a_traced_process_ends_when_it_is_dead(children: list[ChildProcess]) -> None:
    """The coordinator would wait for its tracer, and answer nobody meanwhile."""
    child = python("input()", children)
    with tracing(child.pid):
        os.kill(child.pid, signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            assert await child.wait() == -signal.SIGKILL
    os.waitpid(child.pid, 0)


async def test_a_status_that_only_its_tracer_may_know_is_waited_for(
    children: list[ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran as another user keeps it from us, and a guess would be believed."""
    asked: list[int] = []
    monkeypatch.setattr(kernel, "exit_code", asked.append)
    monkeypatch.setattr(kernel, "UNTOLD_S", 0.001)
    child = python("input()", children)
    async with asyncio.timeout(DEADLINE_S):
        with tracing(child.pid):
            os.kill(child.pid, signal.SIGKILL)
            while len(asked) < 3:
                await asyncio.sleep(0)
            assert child.returncode is None
        assert await child.wait() == -signal.SIGKILL


def ignored_in_python() -> None:
    """Have the ends of children ignored as anybody does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def ignored_in_c() -> None:
    """Have them ignored as a library may."""
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ctypes.CDLL(None).signal(signal.SIGCHLD, ctypes.c_void_p(signal.SIG_IGN))


@pytest.fixture
def _ends_as_before() -> Iterator[None]:
    """Nothing of that is left."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("_ends_as_before")
@pytest.mark.parametrize("ignored", [ignored_in_python, ignored_in_c])
async def test_the_status_of_a_program_is_kept_whatever_the_agent_ignores(
    ignored: Callable[[], None],
) -> None:
    """The kernel keeps none where nobody wants to hear of ends, and it read like a success."""
    processes = Processes()
    processes.turn_began(1)
    ignored()
    child = await processes.spawn(1, ["/bin/sh", "-c", "read go; exit 3"], None, None)
    await child.close_stdin()

    assert await child.wait() == 3
    await processes.end_all()


@pytest.mark.usefixtures("_ends_as_before")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("taken", [ignored_in_python, ignored_in_c])
async def test_a_status_that_was_taken_is_no_success(
    taken: Callable[[], None],
    when: str,
    children: list[ChildProcess],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Zero would be what nobody knows."""
    if when == "before":
        taken()
    child = python("input()" if when == "after" else "", children)
    if when == "after":
        taken()
        await child.close_stdin()

    assert await child.wait() == LOST_STATUS
    assert f"process.status_lost pid={child.pid}" in capfd.readouterr().err


@pytest.mark.parametrize("held", [False, True])
async def test_a_process_that_somebody_else_reaped_has_ended(
    held: bool, children: list[ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to wait for, and what it printed can be read."""

    def too_late(pid: int) -> None:
        os.waitpid(pid, 0)

    if not held:
        monkeypatch.setattr(kernel, "open_pidfd", too_late)
    child = python("print('done')", children)
    if held:
        too_late(child.pid)
    assert await child.wait() == LOST_STATUS
    assert await child.read() == b"done\n"


async def test_a_process_that_is_ended_at_once_gets_no_grace(
    children: list[ChildProcess],
) -> None:
    """Nor does what it has begun in a session of its own."""
    code = (
        "import os, signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "helper = subprocess.Popen(['sleep', '100'], start_new_session=True)\n"
        "print(helper.pid)\n"
        "time.sleep(100)\n"
    )
    child = python(code, children, grace_ms=3_600_000)
    helper = int(await child.read())
    begun = kernel.started_ticks(helper)

    assert await child.end("SIGKILL") == -signal.SIGKILL
    assert not kernel.is_alive(helper, begun)


async def test_a_process_can_be_talked_to(children: list[ChildProcess]) -> None:
    """Both ways at once, more than a pipe holds, to the end of both."""
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    child = python(code, children)
    said = os.urandom(300_000)

    async def write() -> None:
        await child.write(said)
        await child.close_stdin()
        await child.close_stdin()

    async def read() -> bytes:
        heard = b""
        while data := await child.read():
            heard += data
        return heard

    _, heard = await asyncio.gather(write(), read())

    assert heard == said[::-1]
    assert await child.wait() == 0
    assert child.returncode == 0


async def test_the_end_of_standard_error_is_kept_and_made_harmless(
    children: list[ChildProcess],
) -> None:
    """It is what a failure is told with, on a terminal."""
    code = "import sys; sys.stderr.write('x' * 200_000 + '\\x1b[31mred\\x07\\n')"
    child = python(code, children)
    await child.wait()

    assert child.stderr_tail.endswith("[31mred\n")
    assert len(child.stderr_tail) == STDERR_TAIL_BYTES - 2
    assert "\x1b" not in child.stderr_tail


async def test_a_process_that_closed_its_input_is_no_error(children: list[ChildProcess]) -> None:
    """It may have heard enough."""
    child = python("import os, time; os.close(0); print('closed'); time.sleep(60)", children)
    await child.read()
    await child.write(b"x" * 1_000_000)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import signal, time; signal.signal(2, lambda *_: exit(7)); print(1); time.sleep(60)", 7),
        ("import signal, time; signal.signal(2, signal.SIG_IGN); print(1); time.sleep(60)", -15),
        (
            "import signal, time; signal.signal(2, signal.SIG_IGN); "
            "signal.signal(15, signal.SIG_IGN); print(1); time.sleep(60)",
            -9,
        ),
    ],
)
async def test_a_process_is_ended_as_gently_as_it_allows(
    code: str, status: int, children: list[ChildProcess]
) -> None:
    """A provider's program ends its own tools on SIGINT, if it is given the time."""
    child = python(code, children)
    await child.read()

    assert await child.end() == status
    assert await child.end() == status


async def test_the_tree_of_a_process_ends_with_it(children: list[ChildProcess]) -> None:
    """Also what is in a session of its own, which no signal to a group reaches."""
    code = (
        "import subprocess, time; p = subprocess.Popen(['sleep', '3600'], start_new_session=True); "
        "print(p.pid); time.sleep(3600)"
    )
    child = python(code, children)
    below_it = int(await child.read())
    await child.end()

    assert alive([below_it]) == []
    os.waitpid(below_it, 0)


async def test_an_end_can_be_awaited_from_another_loop(children: list[ChildProcess]) -> None:
    """The turn's thread waits for what the coordinator reaps."""
    child = python("input()", children)

    def wait() -> int:
        async def both() -> int:
            waiting = asyncio.create_task(child.wait())
            await child.write(b"\n")
            return await waiting

        return asyncio.run(both())

    assert await asyncio.wait_for(asyncio.to_thread(wait), DEADLINE_S) == 0


async def test_a_wait_that_was_given_up_leaves_nothing(children: list[ChildProcess]) -> None:
    """A process for the session lives through any number of turns, and so of waits."""
    child = python("import sys; sys.stdin.read()", children)
    for _ in range(3):
        waiting = asyncio.create_task(child.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})

    assert child._waiters == []
    await child.close_stdin()
    assert await asyncio.wait_for(child.wait(), DEADLINE_S) == 0
    assert child._waiters == []


async def test_a_turn_that_is_over_starts_nothing(children: list[ChildProcess]) -> None:
    """A late thread of it would leave a process that nobody ends."""
    processes = Processes()
    processes.turn_began(1)
    processes.turn_over()

    with pytest.raises(OSError, match="is over"):
        await processes.spawn(1, ["true"], None, None)


class Held(Processes):
    """Processes that start at a moment of the test's choice, seen from the turn's thread."""

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], object]) -> None:
        super().__init__()
        self._begin = begin
        self._end = end
        self.started: list[ChildProcess] = []

    async def spawn(
        self, turn: int, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | None
    ) -> ChildProcess:
        """Start one between what is done before it, and what is done before anybody has it."""
        await self._begin()
        child = await super().spawn(turn, argv, env, cwd)
        self.started.append(child)
        self._end()
        return child


@pytest.mark.parametrize("for_session", [True, False])
@pytest.mark.parametrize("when", ["before", "while it starts", "on the way", "later", "never"])
async def test_a_process_that_nobody_got_ends_with_its_turn(when: str, for_session: bool) -> None:
    """Also one for the session: nobody has it, so that nobody would ever end it."""
    thread, main = TurnThread(), asyncio.get_running_loop()
    thread.ensure_running()
    over, held = asyncio.Event(), threading.Event()
    got: list[Process] = []
    # A daemon that serves the whole run may be there before.
    before = set(kernel.children(os.getpid()))

    async def turn() -> None:
        try:
            offer = Offer("a", 1, lambda _fact: None, main, processes, 5_000)
            got.append(await offer.spawn(["sleep", "3600"], for_session=for_session))
            if when == "later":
                await asyncio.Event().wait()
        finally:
            main.call_soon_threadsafe(over.set)

    async def begin() -> None:
        if when == "before":
            thread.call(tasks[0].cancel)
            await over.wait()

    def end() -> None:
        # The turn's thread is held until all that it is to find at once is there.
        thread.call(held.wait)
        if when == "while it starts":
            thread.call(tasks[0].cancel)

    processes = Held(begin, end)
    processes.turn_began(1)
    tasks: list[asyncio.Task[None]] = []
    thread.call(lambda: tasks.append(thread.begin(turn())))
    try:
        while not processes.started and not over.is_set():
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        if when == "on the way":
            thread.call(tasks[0].cancel)
        held.set()
        while when == "later" and not got:
            await asyncio.sleep(0)
        if when == "later":
            thread.call(tasks[0].cancel)
        await over.wait()
        processes.turn_over()
        await processes.end_turn()
        kept = [child.pid for child in processes.started if child.returncode is None]
    finally:
        held.set()
        await processes.end_all()
        thread.close()

    assert kept == ([process.pid for process in got] if for_session else [])
    assert bool(got) == (when in ("later", "never"))
    assert set(kernel.children(os.getpid())) <= before


# Sweeping


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that was there before."""
    process = subprocess.Popen(["sleep", "3600"])
    yield process
    process.kill()
    process.wait()


async def test_a_sweep_spares_what_is_spared_with_everything_below_it(tmp_path: Path) -> None:
    """A helper may go on starting what it needs while a turn runs."""
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    helper = subprocess.Popen(
        ["/bin/sh", "-c", f"read go < {fifo}; sleep 3600 & echo $!; wait"], stdout=subprocess.PIPE
    )
    spared = below()
    fifo.write_text("go\n")
    assert helper.stdout is not None
    later = int(helper.stdout.readline())
    try:
        assert await Sweep(spared, frozenset(), lambda _pid: False).end() == 0
        assert alive([helper.pid, later]) == [helper.pid, later]
        assert await Sweep(frozenset(), frozenset({helper.pid}), lambda _pid: False).end() == 0
        assert alive([helper.pid, later]) == [helper.pid, later]
    finally:
        helper.kill()
        helper.wait()
        helper.stdout.close()
        await Sweep(frozenset(), frozenset(), lambda _pid: False).end()
    assert alive([later]) == []


@pytest.mark.parametrize("kept", ["a server", "a session process"])
async def test_a_turn_ends_nothing_that_a_server_from_before_it_orphaned(
    tmp_path: Path, kept: str
) -> None:
    """`pre_run` may begin one, which has jobs of its own; a session process works for turns."""
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    kernel.adopt_orphans()
    server = subprocess.Popen(
        ["/bin/sh", "-c", f"read go < {fifo}; (sleep 3600 & echo $!); exec sleep 3600"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    processes = Processes()
    processes._strangers = frozenset()
    if kept == "a session process":
        processes._of_session[server.pid] = SimpleNamespace(pid=server.pid)  # type: ignore[assignment]  # all that is asked
    processes.turn_began(1)
    fifo.write_text("go\n")
    assert server.stdout is not None
    orphan = int(server.stdout.readline())
    until(lambda: kernel.stat(orphan).parent == os.getpid(), "it is an orphan")  # type: ignore[union-attr]  # it lives
    try:
        assert await processes._sweep().end() == (kept == "a session process")
        assert alive([server.pid]) == [server.pid]
        assert bool(alive([orphan])) == (kept == "a server")
    finally:
        server.stdout.close()
        await Sweep(frozenset(), frozenset(), lambda pid: pid == server.pid).end()
        server.wait()


#: Leaves a shell in a session of its own, which works once it is told to, and ends when told.
LEAVES = """
setsid sh -c 'echo $$; read go < there; setsid sleep 3600 & echo $!; (sleep 3600 & echo $!)
wait' &
read go < here; (sleep 3600 & echo $!); read go < end
"""


@pytest.mark.parametrize("when", ["between turns", "in a turn"])
async def test_what_a_process_of_the_session_leaves_ends_with_it(tmp_path: Path, when: str) -> None:
    """What was below it, and what that began since; nothing that the agent began."""
    for name in ("here", "there", "end"):
        os.mkfifo(tmp_path / name)
    kernel.adopt_orphans()
    before = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    processes = Processes()
    processes._strangers = frozenset()
    processes.turn_began(1)
    leaving = await processes.spawn(1, ["/bin/sh", "-c", LEAVES], None, str(tmp_path))
    processes.keep(leaving)
    said = (await leaving.read()).split()
    processes.turn_over()
    await processes.end_turn()
    since = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    try:
        if when == "in a turn":
            processes.turn_began(2)
        for name in ("here", "there"):
            await asyncio.to_thread((tmp_path / name).write_text, "go\n")
        while len(said) < 4:
            said += (await leaving.read()).split()
        left = [int(pid) for pid in said]
        assert alive(left) == left
        await asyncio.to_thread((tmp_path / "end").write_text, "go\n")
        assert await leaving.wait() == 0

        # Reaped as well: nobody else would.
        await asyncio.to_thread(until, lambda: not any(map(kernel.stat, left)), "it has ended")
        assert alive([before.pid, since.pid]) == [before.pid, since.pid]
    finally:
        await processes.end_all()
        before.wait()
        since.wait()
        leaving.close()


async def test_what_is_left_ends_at_once_if_its_end_is_cancelled() -> None:
    """Code of the agent may cancel every task there is."""
    kernel.adopt_orphans()
    processes = Processes()
    processes._strangers = frozenset()
    processes._polite_ms = 3_600_000
    processes.turn_began(1)
    deaf = ["/bin/sh", "-c", "trap '' TERM; (sleep 3600 & echo $!); read go"]
    leaving = await processes.spawn(1, deaf, None, None)
    processes.keep(leaving)
    left = int(await leaving.read())
    await leaving.close_stdin()
    await leaving.wait()
    (ending,) = processes._endings
    try:
        await asyncio.sleep(0)
        ending.cancel()
        await ending

        await asyncio.to_thread(until, lambda: not alive([left]), "it has ended")
    finally:
        await processes.end_all()


async def test_a_sweep_reaps_only_what_nobody_else_waits_for(
    sleeper: subprocess.Popen[bytes],
) -> None:
    """A status that is stolen is a status that is never told."""
    sweep = Sweep(frozenset(), frozenset(), lambda pid: pid == sleeper.pid)
    assert await sweep.end() == 1

    assert sleeper.wait() == -15


def test_a_process_without_children_is_known_at_once() -> None:
    """Most turns begin nothing, and must not pay for those that do."""
    assert childless()
    child = subprocess.Popen(["sleep", "3600"])
    assert not childless()
    child.kill()
    child.wait()
    assert childless()


async def test_a_short_grace_makes_the_ending_of_processes_short() -> None:
    """Otherwise a provider that has to be killed would always cost its agent."""
    options = {"interrupt_grace_ms": 2_000}
    async with living(backend=f"{__name__}:Ending", options=options) as agent:
        ref = agent.submit("go", stream=True)
        await spawned(agent)
        agent.begin_call(requests.InterruptRequest(ref=ref))
        outcome = await agent.completion(ref)

        assert outcome == Failed(INTERRUPTED)


class Ending:
    """A backend that ends its deaf program itself when its turn is interrupted."""

    def start_session(self, _options: FrozenDict) -> None:
        return None

    def terminate_session(self, _session: None) -> None:
        return None

    def prompt(self, session: None, _prompt: str, turn: Turn) -> Streaming:
        return Streaming(self._events(turn), session)

    async def _events(self, turn: Turn) -> AsyncIterator[Event]:
        deaf = "trap '' INT TERM; echo on; while :; do sleep 3600; done"
        process = await turn.spawn(["/bin/sh", "-c", deaf])
        try:
            await process.read()
            yield event("spawned", pids=[process.pid])
            await process.wait()
        finally:
            await process.end()


async def test_a_turn_ends_even_if_its_clean_up_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by code that cancels every task there is: a sweep that was cut off is begun anew."""
    times: list[None] = []
    sweep = Sweep.end

    async def cancelled_once(self: Sweep) -> int:
        times.append(None)
        if len(times) == 1:
            raise asyncio.CancelledError
        return await sweep(self)

    monkeypatch.setattr(Sweep, "end", cancelled_once)
    async with living(options=script([{"spawn": "unmanaged"}, RESULT], [RESULT])) as agent:
        ref = agent.submit("go", stream=True)
        begun = await spawned(agent)
        await agent.completion(ref)
        assert not alive(begun)
        assert await agent.answered("go on") == "done"


async def test_a_turn_ends_even_if_the_end_of_its_tasks_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its report is the last thing that its code does, whatever comes before."""

    async def failing(_self: TurnLoop) -> None:
        raise asyncio.CancelledError

    async with living(options=script([RESULT], [RESULT])) as agent:
        with monkeypatch.context() as patched:
            patched.setattr(TurnLoop, "end_strays", failing)
            assert await agent.answered("go") == "done"
        assert await agent.answered("go on") == "done"


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_turn_that_cannot_be_looked_through_ends_the_agent(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """What may run on is not over: it ends with the agent, which says why."""
    raised = [asyncio.CancelledError()] * SWEEPS if cancelled else [OSError(24, "no descriptors")]
    sweep = Sweep.end

    async def failing(self: Sweep) -> int:
        if raised:
            raise raised.pop()
        return await sweep(self)

    monkeypatch.setattr(Sweep, "end", failing)
    async with living(options=script([{"spawn": "child"}, RESULT], [RESULT])) as agent:
        ref = agent.submit("go")
        exiting = await agent.next(envelopes.Exiting)

        assert exiting.reason.text == "turn_stuck"
        assert exiting.unresolved == (ref,)
        assert agent.told(envelopes.Completion) == []


@pytest.fixture
def descriptors() -> Iterator[list[int]]:
    """What a leak has opened, and the limit of this process as it was."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    leaked: list[int] = []
    yield leaked
    for fd in leaked:
        os.close(fd)
    reserve.hold(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def leak(leaked: list[int]) -> None:
    """Open whatever may still be opened, and that is not much."""
    most = len(os.listdir("/proc/self/fd")) + 20
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    with contextlib.suppress(OSError):
        while True:
            leaked.append(os.open(os.devnull, os.O_RDONLY))


async def test_a_sweep_needs_no_descriptor_that_is_not_in_the_reserve(
    descriptors: list[int],
) -> None:
    """A leak in a long-lived agent is ordinary, and its tools end with their turn all the same."""
    deaf = ["setsid", "sh", "-c", "trap '' TERM; echo; while :; do sleep 3600 & wait; done"]
    spared = below()
    begun = [subprocess.Popen(deaf, stdout=subprocess.PIPE) for _ in range(8)]
    for one in begun:
        assert one.stdout is not None
        one.stdout.readline()
    sweep = Sweep(spared, frozenset(), lambda _pid: False)
    reserve.hold()
    try:
        leak(descriptors)
        with pytest.raises(OSError, match="Too many open files"):
            os.close(os.open(os.devnull, os.O_RDONLY))

        assert await sweep.end() >= len(begun)

        assert below() == spared
        with pytest.raises(OSError, match="Too many open files"):
            os.close(os.open(os.devnull, os.O_RDONLY))
    finally:
        for one in begun:
            one.kill()
            one.wait()
            assert one.stdout is not None
            one.stdout.close()


async def test_a_sweep_without_a_descriptor_says_that_it_could_not_look(
    descriptors: list[int],
) -> None:
    """Nothing found and nothing looked at are not the same."""
    with subprocess.Popen(["sleep", "3600"]) as sleeper:
        try:
            leak(descriptors)
            with pytest.raises(OSError, match="Too many open files"):
                await Sweep(frozenset(), frozenset(), lambda _pid: False).end()
            with pytest.raises(OSError, match="Too many open files"):
                Processes().turn_began(1)
        finally:
            sleeper.kill()


@pytest.mark.parametrize("immune", [{0}, {1}, {0, 1}])
async def test_a_sweep_goes_on_past_what_it_may_not_signal(immune: set[int]) -> None:
    """What `sudo` left is named and left, and everything else ends as ever."""
    both = [subprocess.Popen(["sleep", "3600"], start_new_session=True) for _ in range(2)]
    stuck = {both[index].pid for index in immune}
    mine = below() - {(one.pid, kernel.started_ticks(one.pid)) for one in both}
    sweep = Sweep(mine, frozenset(), lambda _pid: False)
    try:
        with refused(lambda pid: pid in stuck):
            assert await sweep.end() == 2 - len(immune)
            assert {pid for pid, _ in sweep.immune} == stuck
            assert {*alive([one.pid for one in both])} == stuck
        assert await Sweep(mine, frozenset(), lambda _pid: False).end() == len(immune)
    finally:
        for one in both:
            one.kill()
            one.wait()
