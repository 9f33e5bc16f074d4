"""Scripts do what they say, in one process and as plain data."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from genagent_backends.base import Failed
from genagent_backends.gates import Gates, GateTimeout
from genagent_backends.options import BadValue
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, rehearse
from genagent_backends.scripted import ScriptedBackend, ScriptedSession
from genagent_backends.scripts import Gate, Kill, fails, says, script, turn_script
from genagent_protocol.events import Event, event
from genagent_protocol.plain import EMPTY, FrozenDict, freeze


def by_options(*turns: object, **options: object) -> tuple[ScriptedBackend, ScriptedSession]:
    backend, frozen = ScriptedBackend(*turns), freeze(options)
    assert isinstance(frozen, FrozenDict)
    session = backend.start_session(frozen)
    assert not isinstance(session, Failed), session
    return backend, session


async def played(*turns: object, prompt: str = "go", **options: object) -> Rehearsed:
    backend, session = by_options(script=turns, **options)
    return await rehearse(backend, session, prompt)


async def test_scripts_are_used_in_order_and_then_there_are_none() -> None:
    """S249: every attempt is in the history, also the one that found no script."""
    backend = ScriptedBackend(says("one"), says("two"))
    session = backend.start_session(EMPTY)
    assert not isinstance(session, Failed)

    answers = [await rehearse(backend, session, prompt) for prompt in ("a", "b", "c")]

    assert [answer.text for answer in answers] == ["one", "two", ""]
    assert answers[2].refused == Failed("no_script")
    assert backend.history == ("a", "b", "c")
    assert backend.remaining == 0


async def test_a_function_gets_the_prompt() -> None:
    """S250: whatever the agent made of the prompt, the script sees what was sent."""

    def plainly(prompt: str) -> Iterator[Event]:
        yield from says(f"{prompt} plainly")

    async def slowly(prompt: str) -> AsyncIterator[Event]:
        for said in says(f"{prompt} slowly"):
            yield said

    backend = ScriptedBackend(lambda prompt: says(prompt.upper()), plainly, slowly)

    texts = [(await rehearse(backend, ScriptedSession(), "hi")).text for _ in range(3)]

    assert texts == ["HI", "hi plainly", "hi slowly"]


async def test_a_failure_can_come_at_dispatch_or_in_the_stream() -> None:
    """The two leave different sessions behind, so both must be playable."""
    refused = await played({"error": {"code": "busy"}})
    failed = await played([{"kind": "text", "text": "a"}, {"kind": "error", "reason": "r"}])
    own = await rehearse(ScriptedBackend(fails("mine")), ScriptedSession(), "go")

    assert refused.refused == Failed(FrozenDict({"code": "busy"}))
    assert failed.terminal == event("error", {"reason": "r"})
    assert own.terminal == event("error", {"reason": "mine"})


@pytest.mark.parametrize(("name", "kind"), [("ValueError", ValueError), ("SystemExit", SystemExit)])
async def test_a_stream_can_raise(name: str, kind: type[BaseException]) -> None:
    """An exception in a stream is a crash of the turn, never of the agent."""
    with pytest.raises(kind, match="boom"):
        await played([{"kind": "text", "text": "a"}, {"raise": name, "message": "boom"}])


async def test_sys_exit_is_an_exception_of_the_turn() -> None:
    """The agent has to survive it, with its status in the reason."""
    with pytest.raises(SystemExit) as caught:
        await played({"exit": 3})

    assert caught.value.code == 3


async def test_a_gate_announces_itself_and_waits_for_its_release() -> None:
    """S251: a test may act while the turn stands between two events, without sleeping."""
    said: list[str] = []
    with Gates() as gates:
        backend, session = by_options(
            [{"kind": "text", "text": "before"}, {"gate": "g", "events": says("after")}],
            gate_dir=gates.directory,
        )
        turn = asyncio.create_task(
            rehearse(backend, session, "go", on_event=lambda said_now: said.append(said_now.kind))
        )
        await gates.until_blocked("g")
        assert said == ["text"]
        gates.release("g")

        assert (await turn).kinds == ["text", "text", "result"]


async def test_a_gate_that_nobody_releases_crashes_the_turn() -> None:
    """S251: a forgotten release fails one test instead of hanging all of them."""
    with Gates() as gates:
        backend = ScriptedBackend((Gate("g", timeout_ms=1), *says("late")), gates=gates)

        with pytest.raises(GateTimeout, match="gate g was not released within 1 ms"):
            await rehearse(backend, ScriptedSession(), "go")


async def test_a_gate_without_a_directory_says_what_is_missing() -> None:
    """The two options belong together."""
    with pytest.raises(ValueError, match="gate_dir"):
        await played({"gate": "g"})


async def test_a_release_may_come_before_the_turn_and_a_tag_may_be_used_again() -> None:
    """Neither side can miss the other, whoever comes first."""
    with Gates() as gates:
        backend = ScriptedBackend(*[(Gate("g"), *says("through"))] * 3, gates=gates)
        for _ in range(3):
            gates.release("g")

        texts = [(await rehearse(backend, ScriptedSession(), "go")).text for _ in range(3)]

        gates.wait_blocked("g")
        assert texts == ["through"] * 3


def test_a_test_that_waits_for_nobody_is_told() -> None:
    """A wrong tag must fail the test and say which one."""
    with Gates() as gates, pytest.raises(GateTimeout, match="nobody came to gate other"):
        gates.wait_blocked("other", timeout_ms=1)


def test_closing_gates_removes_what_they_made_and_keeps_what_was_given(tmp_path: Path) -> None:
    """A test's own directory is the test's."""
    made, given = Gates(), Gates(str(tmp_path))
    for gates in (made, given):
        gates.release("g")
        gates.close()
        gates.close()

    assert not os.path.exists(made.directory)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.blocked", "g.release"]


async def test_the_session_id_is_the_options_or_the_results() -> None:
    """Both ways a provider may name its conversation."""
    backend, session = by_options(
        says("a"), says("b", session_id="theirs"), says("c"), session_id="ours"
    )
    ids = []
    for _ in range(3):
        done = await rehearse(backend, session, "go")
        session = done.session
        assert done.terminal is not None
        ids.append(done.terminal.data["session_id"])

    assert ids == ["ours", "theirs", "theirs"]
    assert backend.reset_session(session) == ScriptedSession()


async def test_a_script_that_repeats_never_ends() -> None:
    """For load tests: one turn, any number of prompts."""
    backend, session = by_options(says("a"), says("b"), repeat=True)

    texts = [(await rehearse(backend, session, "go")).text for _ in range(5)]

    assert texts == ["a", "b", "a", "b", "a"]


async def test_a_turn_can_state_the_prompt_it_got() -> None:
    """What reached the backend can be seen from outside its process."""
    done = await played([{"echo": True}, {"kind": "result"}], prompt="rewritten")

    assert done.text == "rewritten"


async def test_history_can_be_written_to_a_file(tmp_path: Path) -> None:
    """A test cannot reach into another process, but it can read a file."""
    file = tmp_path / "history.jsonl"
    backend, session = by_options(says("a"), history_file=str(file))
    for prompt in ("first\nline", "past the last"):
        await rehearse(backend, session, prompt)

    assert [json.loads(line) for line in file.read_text().splitlines()] == list(backend.history)


async def test_a_script_can_come_from_a_file(tmp_path: Path) -> None:
    """A long script does not fit a command line."""
    file = tmp_path / "script.json"
    file.write_text(json.dumps([[{"kind": "text", "text": "from file"}, {"kind": "result"}]]))

    assert (await played(script_file=str(file))).text == "from file"


@pytest.mark.parametrize("content", ["{", "{}", '[{"no": "act"}]'])
def test_an_unreadable_script_file_refuses_the_start(tmp_path: Path, content: str) -> None:
    """A test with a broken script must not run as if it had none."""
    file = tmp_path / "script.json"
    file.write_text(content)
    answer = ScriptedBackend().start_session(FrozenDict({"script_file": str(file)}))

    assert isinstance(answer, Failed)
    assert isinstance(answer.reason, FrozenDict)
    assert answer.reason["option"] == "script_file"


def test_a_start_can_be_made_to_fail() -> None:
    """What a provider that is down at the start looks like."""
    options = FrozenDict({"start_error": FrozenDict({"code": "down"})})

    assert ScriptedBackend().start_session(options) == Failed(FrozenDict({"code": "down"}))
    assert ScriptedBackend(start_error="down").start_session(EMPTY) == Failed("down")


async def test_many_events_and_a_big_one() -> None:
    """What capture limits are tested with."""
    many = await played([{"many": 1000, "event": {"kind": "x", "n": 1}}, {"kind": "result"}])
    big = await played([{"big": 70_000}, {"kind": "result"}])

    assert many.kinds == ["x"] * 1000 + ["result"]
    assert len(big.text) == 70_000


async def test_a_checkpoint_is_told_and_its_answer_is_an_event() -> None:
    """A refused one is visible too, since it fails the turn."""
    backend, session = by_options(script=[[{"checkpoint": "a"}, {"checkpoint": "b"}]])
    turn = RehearsalTurn()
    done = await rehearse(backend, session, "go", turn)

    assert turn.checkpoints == ["a", "b"]
    assert [event.data["answer"] for event in done.events] == [None, "conflicting_session_id"]
    assert done.session == ScriptedSession("a")


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("what", ["child", "grandchild", "orphan"])
async def test_spawned_processes_are_listed(what: str, deaf: bool) -> None:
    """A test can check that they are gone only if it knows them."""
    turn = RehearsalTurn(grace_ms=20)
    backend, session = by_options(script=[[{"spawn": what, "deaf": deaf}, {"kind": "result"}]])
    done = await rehearse(backend, session, "go", turn)
    pids = done.events[0].data["pids"]
    assert isinstance(pids, tuple)

    outside = pids[0 if what == "orphan" else 1 :]
    for pid in outside:
        assert isinstance(pid, int)
        # A session of its own is beyond a rehearsal; the test must tidy it up itself.
        assert os.getsid(pid) == pid
        os.kill(pid, signal.SIGKILL)
    assert len(outside) == (0 if what == "child" else 1)
    assert [process.returncode is not None for process in turn.processes] == [True]


async def test_any_program_can_be_spawned_also_for_the_session() -> None:
    """A process for the session outlives its turn."""
    turn = RehearsalTurn()
    backend, session = by_options(
        script=[[{"spawn": ["sleep", "100"], "for_session": True}, {"kind": "result"}]]
    )
    await rehearse(backend, session, "go", turn)
    [process] = turn.session_processes
    assert process.returncode is None

    await turn.end_session()
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("how", ["blocked", "busy", "held", "stubborn"])
async def test_a_turn_that_does_not_listen_ends_after_its_time(how: str) -> None:
    """Each way not to listen is one the agent has to outlive."""
    running = asyncio.create_task(played([{"hang": how, "for_ms": 20}, {"kind": "result"}]))
    await asyncio.sleep(0)
    running.cancel()
    outcome = (await asyncio.gather(running, return_exceptions=True))[0]

    # Each runs to its end, where a cooperative one would have been cancelled.
    assert isinstance(outcome, Rehearsed), outcome


async def test_an_idle_turn_can_be_interrupted() -> None:
    """The polite way to hang."""
    running = asyncio.create_task(played({"hang": "idle"}))
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    ("act", "status"),
    [
        ({"os_exit": 7}, 7),
        ({"kill": "SIGKILL"}, -signal.SIGKILL),
        ({"kill": "SIGSEGV"}, -signal.SIGSEGV),
    ],
)
async def test_a_turn_can_end_its_process(act: dict[str, object], status: int) -> None:
    """How an agent dies must be tellable apart; a copy of this process does the dying."""
    code = (
        "import asyncio, json, sys\n"
        "from genagent_backends.rehearsal import rehearse\n"
        "from genagent_backends.scripted import ScriptedBackend, ScriptedSession\n"
        "backend = ScriptedBackend(json.loads(sys.argv[1]))\n"
        "asyncio.run(rehearse(backend, ScriptedSession(), 'go'))\n"
    )
    ended = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        json.dumps([{"print": "last words"}, act]),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await ended.communicate()

    assert (said, ended.returncode) == (b"last words", status)


@pytest.mark.parametrize(
    ("turn", "complaint"),
    [
        ({}, "an empty one"),
        ({"laugh": True}, "laugh"),
        (5, "int"),
        ([{"kind": ""}], "kind"),
        ([{"kind": 1}], "kind"),
        ({"raise": "NoSuchError"}, "NoSuchError"),
        ({"raise": "print"}, "print"),
        ({"gate": "../up"}, "file name"),
        ({"gate": "g", "events": 1}, "no list"),
        ({"hang": "about"}, "none of"),
        ({"many": -1, "event": {"kind": "x"}}, "many"),
        ({"many": 1}, "kind"),
        ({"spawn": []}, "spawn"),
        ({"spawn": "elephants"}, "spawn"),
        ({"print": "x", "to": "printer"}, "neither"),
        ({"kill": "SIGNONE"}, "signal"),
        ({"exit": "three"}, "exit"),
        ([{"error": "r"}, {"kind": "result"}], "alone"),
    ],
)
def test_a_malformed_script_is_refused_at_the_start(turn: object, complaint: str) -> None:
    """A script that means nothing must not run as something else."""
    with pytest.raises(BadValue, match=complaint):
        turn_script(freeze(turn))
    with pytest.raises(BadValue):
        script("not a list")


def test_a_script_may_mix_values_and_plain_data() -> None:
    """Tests in Python use the values, tests through a process the data; both are one."""
    assert turn_script([*says("a"), {"kill": "SIGTERM"}]) == (*says("a"), Kill(signal.SIGTERM))
