"""What a newborn's pipe says comes in an order that is of use, and orphans end who can."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess

import pytest

from genagentd import kernel
from genagentd.daemon import children
from genagentd.daemon.children import BirthPipe, Orphans, Watched
from support.immune import refused
from support.tracers import tracing
from support.waiting import until

_AGENT_SAYS = (b"pid 7\n", b"ready\n")
_HELPER_SAYS = b"pid 7\n"


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("cuts", list(itertools.combinations(range(1, 20), 2)))
async def test_the_pid_is_told_once_and_before_ready(place: int, cuts: tuple[int, int]) -> None:
    """The helper may speak before, between and after the words of the agent, in any pieces."""
    told: list[object] = []
    pipe = BirthPipe(told.append, lambda: told.append("ready"), lambda: told.append("end"))
    lines = list(_AGENT_SAYS)
    lines.insert(place, _HELPER_SAYS)
    said = b"".join(lines)

    for start, end in itertools.pairwise((0, *cuts, len(said))):
        os.write(pipe.write_fd, said[start:end])
        pipe.read()
    pipe.sent()
    pipe.read()

    assert told == [7, "ready", "end"]


# --- an agent's


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
async def test_an_end_that_only_its_tracer_may_know_is_told_later_and_truly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ran as another user, and a guess would be believed."""
    asked: list[int] = []
    monkeypatch.setattr(kernel, "exit_code", asked.append)
    monkeypatch.setattr(kernel, "UNTOLD_S", 0.001)
    told: list[tuple[int, bool]] = []
    process = _asleep()
    Watched(process.pid, lambda number, signalled: told.append((number, signalled)))

    with tracing(process.pid):
        os.kill(process.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while len(asked) < 3:
                await asyncio.sleep(0)
        assert told == []

    async with asyncio.timeout(30):
        while not told:
            await asyncio.sleep(0)
    assert told == [(signal.SIGKILL, True)]
    process.returncode = 0


# --- what is nobody's


def _asleep() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "3600"], start_new_session=True)


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
async def test_an_end_is_told_behind_what_it_left_and_waits_for_nothing_twice() -> None:
    """What dies takes a moment, and what hangs in the kernel takes for ever."""
    orphans = Orphans(frozenset, lambda _pid: False)
    gone = asyncio.Event()
    orphans.sweep_for(gone.set, 30)
    assert gone.is_set(), "there was nothing"

    left = _asleep()
    gone.clear()
    orphans.sweep_for(gone.set, 30)
    assert not gone.is_set()
    await asyncio.wait_for(gone.wait(), 30)
    assert kernel.stat(left.pid) is None

    hangs = os.getpid()  # Stands for one that was killed and does not die.
    orphans._dying[hangs] = -1
    gone.clear()
    orphans.sweep_for(gone.set, 0.001)
    assert not gone.is_set()
    await asyncio.wait_for(gone.wait(), 30)
    gone.clear()
    orphans.sweep_for(gone.set, 30)
    assert gone.is_set(), "it was waited for once"
    left.wait()


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
async def test_a_process_of_another_user_holds_up_nothing() -> None:
    """What `sudo` left can only be waited for, and nobody does; it is reaped when it ends."""
    orphans = Orphans(frozenset, lambda _pid: False)
    ours, foreign = _asleep(), _asleep()
    with refused(lambda pid: pid == foreign.pid):
        orphans.sweep()
        left = await orphans.settled(30)
        orphans.sweep()

        assert left == [foreign.pid]
        assert ours.pid not in kernel.children(os.getpid())
        assert kernel.is_alive(foreign.pid, kernel.started_ticks(foreign.pid))

    os.kill(foreign.pid, signal.SIGTERM)
    until_reaped = asyncio.get_running_loop().time() + 30
    while foreign.pid in kernel.children(os.getpid()):
        assert asyncio.get_running_loop().time() < until_reaped
        await asyncio.sleep(0)
    assert await orphans.settled(30) == []
    ours.returncode = foreign.returncode = 0


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
async def test_the_end_of_each_is_told_while_its_number_is_its_own() -> None:
    """What has its name can be removed then, and nobody else's."""
    told: list[tuple[int, int, bool]] = []
    orphans = Orphans(
        frozenset,
        lambda _pid: False,
        on_end=lambda pid, ticks: told.append((pid, ticks, pid in kernel.children(os.getpid()))),
    )
    both = [_asleep() for _ in range(2)]
    expected = {(process.pid, kernel.started_ticks(process.pid), True) for process in both}

    assert await orphans.settled(30) == []

    assert set(told) == expected
    assert len(told) == len(both)
    for process in both:
        process.returncode = 0


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
async def test_each_that_is_killed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be somebody else's; one that had ended by itself, or was ours, is nobody's loss."""
    named: list[object] = []
    monkeypatch.setattr(children, "report", lambda event, **more: named.append((event, more)))
    waited: set[int] = set()
    orphans = Orphans(frozenset, lambda _pid: False, waited.__contains__)
    lives, ended, ours = _asleep(), _asleep(), _asleep()
    waited.add(ours.pid)
    os.kill(ended.pid, signal.SIGKILL)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)

    assert await orphans.settled(30) == []

    assert named == [("orphan.killed", {"pid": lives.pid, "command": "sleep"})]
    lives.returncode = ended.returncode = ours.returncode = 0


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
async def test_of_very_many_that_are_killed_the_first_ones_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever leaves a thousand would else push everything out of the log; each time anew."""
    named: list[str] = []
    monkeypatch.setattr(children, "report", lambda event, **_more: named.append(event))
    orphans = Orphans(frozenset, lambda _pid: False)
    for _ in range(2):
        asleep = [_asleep() for _ in range(children.NAMED + 2)]

        assert await orphans.settled(30) == []

        assert named == [*["orphan.killed"] * children.NAMED, "orphans.killed"]
        named.clear()
        for process in asleep:
            process.returncode = 0


#: Begins itself again in a session of its own, as often as it is told, and stays.
_NESTED = """
if [ "$1" -gt 0 ]; then setsid sh -c "$2" sh $(($1 - 1)) "$2" & else echo; fi
exec sleep 3600
"""
_DEPTH = 60


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
async def test_one_sweep_ends_what_is_nested_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """One level at a time took seconds for a thousand; each is counted, and the first are named."""
    told: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(children, "report", lambda event, **more: told.append((event, more)))
    orphans = Orphans(frozenset, lambda _pid: False)
    top = subprocess.Popen(
        ["sh", "-c", _NESTED, "sh", str(_DEPTH), _NESTED], stdout=subprocess.PIPE
    )
    assert top.stdout
    top.stdout.readline()
    top.stdout.close()
    tree = [(found.pid, found.started_ticks) for found in kernel.tree_below(top.pid)]
    assert len(tree) == _DEPTH

    # The loop does not turn: nobody sweeps a second time.
    orphans.sweep()

    until(lambda: not any(kernel.is_alive(*each) for each in tree), "all of them are dead")
    assert await orphans.settled(30) == []
    names = [event for event, _ in told]
    assert names == [*["orphan.killed"] * children.NAMED, "orphans.killed"]
    assert told[-1][1] == {"count": _DEPTH + 1}
    top.returncode = 0


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("immune", [set(), {0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}])
async def test_whoever_cannot_be_killed_the_others_are(immune: set[int]) -> None:
    """Whatever part of the orphans refuses, and also when that changes later."""
    orphans = Orphans(frozenset, lambda _pid: False)
    all_three = [_asleep() for _ in range(3)]
    pids = [process.pid for process in all_three]
    stuck = {pids[index] for index in immune}

    with refused(lambda pid: pid in stuck):
        assert set(await orphans.settled(30)) == stuck
        assert {*kernel.children(os.getpid())} & {*pids} == stuck

    assert await orphans.settled(30) == []
    assert not {*kernel.children(os.getpid())} & {*pids}
    for process in all_three:
        process.returncode = 0


@pytest.mark.process
@pytest.mark.usefixtures("nothing_left")
async def test_what_was_there_before_us_is_spared_with_what_it_leaves() -> None:
    """A shell began it and then became the daemon; only what came to us since is an orphan."""
    # It forks when it is told to, and ends; what it leaves becomes a child of ours.
    job = subprocess.Popen(
        ["sh", "-c", "read line; sleep 3600 & echo $!"],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert job.stdin
    assert job.stdout
    orphans = Orphans(frozenset, lambda _pid: False)
    ours = _asleep()

    assert await orphans.settled(30) == []
    assert ours.pid not in kernel.children(os.getpid())
    assert job.poll() is None
    ours.returncode = 0

    job.stdin.write(b"\n")
    job.stdin.close()
    left = int(job.stdout.readline())
    job.stdout.close()
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert await orphans.settled(30) == []
        assert job.pid not in kernel.children(os.getpid()), "nobody else would reap it"
        assert kernel.is_alive(left, kernel.started_ticks(left))
    finally:
        job.returncode = 0
        kernel.kill_exactly(left)
        os.waitpid(left, 0)
