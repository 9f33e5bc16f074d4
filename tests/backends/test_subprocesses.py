"""A turn that is a run of a program: it ends, whatever the program does."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genagent_backends import subprocesses
from genagent_backends.base import Failed, FirstSignal
from genagent_backends.claude import ClaudeBackend, ClaudeSession
from genagent_backends.claude_lines import ClaudeLines
from genagent_backends.failures import failure_of
from genagent_backends.foreign import Held
from genagent_backends.lines import LineSplitter
from genagent_backends.rehearsal import RehearsalTurn, Rehearsed, events_of, rehearse
from genagent_backends.subprocesses import Clocks, Fired, LineReader, Listener
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import BackendError
from support.backend_cli import Step, StubCli

INIT: Step = {"line": {"type": "system", "subtype": "init", "session_id": "s-1"}}
RESULT_LINE = {"type": "result", "subtype": "success", "result": "done", "session_id": "s-1"}
RESULT: Step = {"line": RESULT_LINE}
TOOL: Step = {
    "line": {
        "type": "assistant",
        "message": {"id": "m", "content": [{"type": "tool_use", "id": "t", "name": "Bash"}]},
    }
}
LONG: Step = {"long": 60_000}
#: For a program that heeds its signals, on however busy a machine.
LONG_GRACE_MS = 30_000
SAY: Step = {
    "line": {
        "type": "assistant",
        "message": {"id": "m", "content": [{"type": "text", "text": "hi"}]},
    }
}


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubCli]:
    made = StubCli(tmp_path)
    yield made
    made.end_helpers()


def started(stub: StubCli, **options: object) -> ClaudeSession:
    frozen = freeze({**stub.options, **options})
    assert isinstance(frozen, FrozenDict)
    session = ClaudeBackend().start_session(frozen)
    assert not isinstance(session, Failed), session
    return session


async def played(
    stub: StubCli,
    *steps: Step,
    prompt: str = "go",
    turn: RehearsalTurn | None = None,
    clocks: Mapping[str, int] | None = None,
) -> Rehearsed:
    stub.plays(list(steps))
    return await rehearse(ClaudeBackend(), started(stub, **(clocks or {})), prompt, turn)


def failure(done: Rehearsed) -> BackendError:
    assert done.terminal is not None
    reason = failure_of(done.terminal)
    assert isinstance(reason, BackendError), reason
    return reason


async def test_noise_blank_lines_and_a_missing_last_newline_cost_nothing(stub: StubCli) -> None:
    """Programs print warnings, and may end without a newline."""
    done = await played(
        stub,
        {"raw": "Warning: something\n\n[1, 2]\n"},
        INIT,
        {"raw": '{"type":"result","result":"done"}'},
    )

    assert done.kinds == ["session", "result"]
    assert done.text == "done"


async def test_what_comes_after_the_terminal_line_is_read_and_ignored(stub: StubCli) -> None:
    """The program must not block on it, and the turn has only one end."""
    done = await played(stub, INIT, RESULT, SAY, {"long": 300_000}, RESULT, {"exit": 0})

    assert done.kinds == ["session", "result"]


@pytest.mark.parametrize("size", [70_000, 300_000, 5_000_000])
async def test_e073_long_lines_are_read(stub: StubCli, size: int) -> None:
    """A tool result of several megabytes is ordinary."""
    done = await played(stub, INIT, {"long": size}, RESULT)

    assert done.kinds == ["session", "result"]


async def test_e073_an_overlong_line_fails_the_turn_and_the_next_one_works(
    stub: StubCli,
) -> None:
    """What the line said is lost, so the turn must not go on as if nothing were."""
    stub.plays([INIT, {"long": 40_000_000}, RESULT], [INIT, RESULT])
    session = started(stub)

    first = await rehearse(ClaudeBackend(), session, "go")
    second = await rehearse(ClaudeBackend(), first.session, "go")

    assert failure(first).kind == "line_too_long"
    assert second.text == "done"


async def test_e074_a_flood_on_standard_error_blocks_nobody(stub: StubCli) -> None:
    """Both sides would wait for ever on a full pipe that nobody reads."""
    done = await played(stub, {"stderr": 2_000_000}, INIT, RESULT)

    assert done.text == "done"


async def test_e074_the_last_of_standard_error_explains_an_early_end(stub: StubCli) -> None:
    """It is often all that a program says about why it did not even begin."""
    done = await played(
        stub, {"stderr": 2_000_000}, {"complain": "\nnot \x1b[31mlogged in\n"}, {"exit": 1}
    )

    assert failure(done).message.endswith("\nnot [31mlogged in")
    assert isinstance(raw := failure(done).raw, FrozenDict)
    assert raw["exit_status"] == 1
    assert len(str(raw["stderr"])) <= 8192


@pytest.mark.parametrize("prompt", ["go", "--help", "-", "ä\n\0", "x" * 200_000])
async def test_e075_the_prompt_is_on_standard_input_and_that_is_closed(
    stub: StubCli, prompt: str
) -> None:
    """A program that reads to the end must get there, with any prompt, of any length."""
    done = await played(stub, {"read_stdin": True}, INIT, RESULT, prompt=prompt)

    assert done.text == "done"
    [run] = stub.runs
    assert run.stdin == prompt
    assert prompt not in run.argv


async def test_e066_a_prompt_of_five_megabytes_reaches_the_program(stub: StubCli) -> None:
    """No pipe and no command line holds it at once."""
    prompt = "ä" * 2_500_000
    done = await played(stub, {"read_stdin": True}, INIT, RESULT, prompt=prompt)

    assert done.text == "done"
    assert stub.runs[0].stdin == prompt


async def test_e075_a_program_that_talks_before_it_listens_is_heard(stub: StubCli) -> None:
    """A long prompt and a long answer may fill both pipes at once."""
    done = await played(
        stub, INIT, {"long": 300_000}, {"read_stdin": True}, RESULT, prompt="x" * 300_000
    )

    assert done.text == "done"


async def test_e075_a_program_that_never_listens_is_no_error(stub: StubCli) -> None:
    """It may know the answer without reading the question to its end."""
    done = await played(stub, INIT, RESULT, {"exit": 0}, prompt="x" * 300_000)

    assert done.text == "done"


@pytest.mark.parametrize(
    ("options", "kind", "retryable"),
    [
        ({"idle_timeout_ms": 50}, "idle_timeout", True),
        ({"timeout_ms": 50}, "timeout", False),
        ({"idle_timeout_ms": 50, "timeout_ms": 60_000}, "idle_timeout", True),
        ({"idle_timeout_ms": 60_000, "timeout_ms": 50}, "timeout", False),
    ],
)
async def test_e076_silence_ends_by_the_clock_that_fired(
    stub: StubCli, options: dict[str, int], kind: str, retryable: bool
) -> None:
    """A program that hangs must not hold its agent, and which clock it was says why."""
    turn = RehearsalTurn()
    done = await played(stub, INIT, TOOL, {"silence": True}, turn=turn, clocks=options)

    assert failure(done).kind == kind
    assert failure(done).retryable is retryable
    assert failure(done).raw == FrozenDict({"clock": kind, "after_ms": 50})
    assert all(process.returncode is not None for process in turn.processes)


async def test_e076_a_program_that_never_stops_talking_ends_by_the_turns_clock(
    stub: StubCli,
) -> None:
    """Talk is no progress; only the whole turn's clock can tell."""
    done = await played(stub, INIT, *[LONG] * 4_000, clocks={"timeout_ms": 100})

    assert failure(done).kind == "timeout"


class Chatterbox:
    """A process whose next line is always there, so that reading it never waits."""

    pid = 1
    returncode = None
    stderr_tail = ""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def write(self, data: bytes) -> None: ...

    async def close_stdin(self) -> None: ...

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        return b"" if self.ended.is_set() else b'{"type":"chatter"}\n' * 1_000

    async def wait(self) -> int:
        await self.ended.wait()
        return -2

    async def end(self, first: FirstSignal = "SIGINT") -> int:
        self.ended.set()
        return -2


class ChattyTurn(RehearsalTurn):
    """One whose every process is a chatterbox."""

    async def spawn(self, argv: object, **_how: object) -> Chatterbox:
        return Chatterbox()


async def test_e076_talk_without_a_pause_neither_stops_the_clock_nor_the_loop(
    stub: StubCli,
) -> None:
    """Whoever reads it must still notice the time, and an interruption."""
    done = await rehearse(ClaudeBackend(), started(stub, timeout_ms=50), "go", ChattyTurn())
    running = asyncio.create_task(rehearse(ClaudeBackend(), started(stub), "go", ChattyTurn()))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})

    assert failure(done).kind == "timeout"
    assert running.cancelled()


NOISE = b"noise line\n" * 4_000
CHATTER = b'{"type":"chatter"}\n' * 1_000


class Noisy(Chatterbox):
    """A process whose output never pauses: what somebody below it says outlives it, too."""

    def __init__(self, output: bytes = NOISE, *, exits: bool = False) -> None:
        super().__init__()
        self._output = output
        if exits:
            self.ended.set()

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        return self._output


class NoisyTurn(RehearsalTurn):
    """One whose processes are the one it was given."""

    def __init__(self, process: Noisy) -> None:
        super().__init__()
        self._process = process

    async def spawn(self, argv: object, **_how: object) -> Noisy:
        return self._process


@pytest.mark.parametrize(
    ("clock", "kind"), [("timeout_ms", "timeout"), ("idle_timeout_ms", "idle_timeout")]
)
@pytest.mark.parametrize("output", [NOISE, b"x" * 40_000, b"\n" * 40_000], ids=lambda o: o[:1])
async def test_e076_noise_without_a_pause_is_silence(
    stub: StubCli, clock: str, kind: str, output: bytes
) -> None:
    """No read ever waits for it, so that no limit of a read passes."""
    session, turn = started(stub, **{clock: 50}), NoisyTurn(Noisy(output))
    done = await asyncio.wait_for(rehearse(ClaudeBackend(), session, "go", turn), 30)

    assert failure(done).kind == kind


@pytest.mark.parametrize("output", [NOISE, CHATTER], ids=["noise", "lines"])
async def test_e078_a_grandchild_that_never_stops_talking_does_not_hold_the_turn(
    stub: StubCli, output: bytes
) -> None:
    """Whatever it says: the program has exited, and cannot have said it."""
    turn = NoisyTurn(Noisy(output, exits=True))
    done = await asyncio.wait_for(rehearse(ClaudeBackend(), started(stub), "go", turn), 30)

    assert failure(done).kind == "provider_error"


class Left(Noisy):
    """A process that has exited; what it said is still in the pipe, which a grandchild holds."""

    def __init__(self, *said: bytes) -> None:
        super().__init__(exits=True)
        self._said = list(said)

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        if not self._said:
            await asyncio.Event().wait()
        return self._said.pop(0)


async def test_what_was_said_before_the_exit_is_read_by_a_slow_consumer_too(
    stub: StubCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment for draining has passed by then; what a pipe holds is the program's."""
    monkeypatch.setattr(subprocesses, "DRAIN_MS", 0)
    result = b'{"type":"result","result":"done"}\n'
    turn = NoisyTurn(Left(CHATTER, CHATTER, NOISE, result))
    done = await asyncio.wait_for(rehearse(ClaudeBackend(), started(stub), "go", turn), 30)

    assert done.text == "done"


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock also goes on when it is told to."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Steady(Chatterbox):
    """A process that says the same pieces over and over; each costs its reader a second."""

    def __init__(self, pieces: list[bytes], loop: SteppedLoop, *, exits: bool) -> None:
        super().__init__()
        self._pieces = itertools.cycle(pieces)
        self._loop = loop
        self.reads = 0
        if exits:
            self.ended.set()

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        self._loop.ahead += 1.0
        self.reads += 1
        assert self.reads < 200, "it is read without end"
        return next(self._pieces)


PIECES = st.sampled_from([NOISE, CHATTER, b"\n", b'{"half": ', b"x" * 65_536])


@settings(deadline=None)
@given(
    pieces=st.lists(PIECES, min_size=1, max_size=4),
    seconds=st.integers(-1, 5),
    exits=st.booleans(),
    at_hand=st.booleans(),
)
def test_no_output_holds_a_reader_beyond_its_moment(
    pieces: list[bytes], seconds: int, exits: bool, at_hand: bool
) -> None:
    """Whatever is said, and however much: a line, or an end, or the moment has come."""
    loop = SteppedLoop()

    async def read() -> None:
        process = Steady(pieces, loop, exits=exits)
        async with LineReader(process, LineSplitter()) as reader:
            for _ in range(3):
                before, until = process.reads, loop.time() + seconds
                said = await (reader.at_hand if at_hand else reader.next)(until)
                if said == "silence":
                    assert loop.time() >= until
                assert process.reads - before <= max(seconds, 0) + 1

    try:
        loop.run_until_complete(read())
    finally:
        loop.close()


async def test_a_stream_that_is_closed_early_ends_its_program(stub: StubCli) -> None:
    """Whoever wants no more must not leave it running until the turn is swept up."""
    stub.plays([INIT, SAY, {"silence": True}])
    turn = RehearsalTurn()
    answer = ClaudeBackend().prompt(started(stub), "go", turn)
    async with aclosing(events_of(answer)) as events:
        assert (await anext(events)).kind == "session"
        meanwhile = turn.processes[0].returncode

    assert [meanwhile, turn.processes[0].returncode] == [None, -signal.SIGINT]
    await turn.end()


async def test_a_result_that_was_on_its_way_when_the_clock_ran_out_is_believed(
    stub: StubCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer may have been slow; the answer is there and must not be thrown away."""
    stub.plays([INIT, SAY, RESULT])
    turn = RehearsalTurn()
    late = 0.0
    real = subprocesses._now
    monkeypatch.setattr(subprocesses, "_now", lambda: real() + late)

    def be_slow(event: Event) -> None:
        nonlocal late
        late = 1_000.0

    session = started(stub, timeout_ms=100_000)
    done = await rehearse(ClaudeBackend(), session, "go", turn, on_event=be_slow)

    assert done.kinds == ["session", "text", "result"]


FAILED: Mapping[str, object] = {
    "type": "result",
    "subtype": "error_during_execution",
    "is_error": True,
}
UNENDED: Step = {"raw": json.dumps(RESULT_LINE)}


def begun(rest: Mapping[str, object] | None = None) -> Step:
    """Return the step that says INIT and *rest*, without its newline, in one piece."""
    line = "" if rest is None else json.dumps(rest)
    return {"raw": json.dumps(INIT["line"]) + "\n" + line}


@pytest.fixture
def short_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a clock run out once the first line was heard."""
    heard = False
    real = Listener.next_line

    async def next_line(
        listener: Listener, reader: LineReader, quiet_ms: int | None = None
    ) -> FrozenDict | None:
        nonlocal heard
        if heard:
            listener.problem = Fired("idle_timeout", 1)
            return None
        heard = True
        return await real(listener, reader, quiet_ms)

    monkeypatch.setattr(Listener, "next_line", next_line)
    monkeypatch.setattr(subprocesses, "EXIT_GRACE_MS", 50)


@pytest.mark.usefixtures("short_of_time")
@pytest.mark.parametrize(
    "steps",
    [
        [begun(RESULT_LINE)],
        [{"ignore": ["SIGINT", "SIGTERM"]}, begun(RESULT_LINE)],
        [{"on_interrupt": [SAY, RESULT]}, begun()],
        [{"on_interrupt": [SAY, UNENDED]}, begun()],
        [{"on_interrupt": [SAY, {"long": 300_000}, RESULT]}, begun()],
    ],
    ids=["no newline", "no newline, deaf", "on SIGINT", "on SIGINT, no newline", "much on SIGINT"],
)
async def test_a_result_is_believed_before_a_clock_however_it_comes(
    stub: StubCli, steps: list[Step]
) -> None:
    """Without its newline, or only as the program is told to end: the work is done."""
    grace_ms = 50 if "ignore" in steps[0] else LONG_GRACE_MS
    done = await played(stub, *steps, {"silence": True}, turn=RehearsalTurn(grace_ms=grace_ms))

    assert done.kinds[-1] == "result"
    assert done.text == "done"


@pytest.mark.usefixtures("short_of_time")
async def test_a_failure_without_its_newline_says_more_than_the_clock(stub: StubCli) -> None:
    """It was there before the clock ran out."""
    done = await played(stub, begun({**FAILED, "api_error_status": 529}), {"silence": True})

    assert failure(done).kind == "server_error"


@pytest.mark.usefixtures("short_of_time")
@pytest.mark.parametrize("last", [{"line": FAILED}, SAY, {"raw": "{"}])
async def test_that_a_program_was_told_to_end_is_no_failure_of_its_own(
    stub: StubCli, last: Step
) -> None:
    """It says that it failed because a clock ran out, and which one is the reason."""
    done = await played(stub, {"on_interrupt": [last]}, begun(), {"silence": True})

    assert failure(done).kind == "idle_timeout"
    assert done.kinds == ["session", "error"]


class Farewell(Noisy):
    """A process that ends once all of its last words were taken from it."""

    def __init__(self, *said: bytes) -> None:
        super().__init__()
        self._said = list(said)
        self._told = asyncio.Event()

    async def read(self, limit_bytes: int = 65_536) -> bytes:
        await self._told.wait()
        if not self._said:
            self.ended.set()
            return b""
        return self._said.pop(0)

    async def end(self, first: FirstSignal = "SIGINT") -> int:
        self._told.set()
        return await self.wait()


@settings(deadline=None)
@given(
    said=st.lists(PIECES, max_size=20),
    bound=st.integers(1, 500_000),
    result_bytes=st.integers(100, 200_000),
)
async def test_last_words_are_taken_to_their_end_and_kept_up_to_a_bound(
    said: list[bytes], bound: int, result_bytes: int
) -> None:
    """A program that waits for room in its pipe cannot put in order what it has to."""
    result = json.dumps({**RESULT_LINE, "result": "x" * result_bytes}).encode()
    words = [*said, b"\n", result + b"\n"]
    process = Farewell(*words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocesses, "LAST_WORDS_BYTES", bound)
        async with LineReader(process, LineSplitter()) as reader:
            async with subprocesses.meanwhile(reader.read_on()):
                await asyncio.wait_for(process.end(), 30)
            heard = [line async for line in _rest(reader)]

    believed = any(line.get("type") == "result" for line in heard)
    before = b"".join(words[:-1])
    lines = len([*LineSplitter().feed(before)])
    assert believed == (len(before) + Held.PIECE_BYTES * lines < bound)


async def test_last_words_of_many_short_lines_are_as_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is held as a value, which takes far more than the few bytes that it was."""
    monkeypatch.setattr(subprocesses, "LAST_WORDS_BYTES", 100_000)
    process = Farewell(*[b"{}\n" * 1_000] * 30)
    async with LineReader(process, LineSplitter()) as reader:
        async with subprocesses.meanwhile(reader.read_on()):
            await asyncio.wait_for(process.end(), 30)
        heard = [line async for line in _rest(reader)]

    assert 1_000 <= len(heard) <= 2_000


async def test_whoever_waits_has_a_turn_while_last_words_are_heard() -> None:
    """None of them has to be waited for."""
    process = Farewell(b"{}\n" * 1_000)
    listener = Listener(RehearsalTurn(), ClaudeLines(), Clocks(None, None))
    listener.problem = Fired("idle_timeout", 1)
    turns = 0

    async def wait_and_see() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with LineReader(process, LineSplitter()) as reader:
        async with subprocesses.meanwhile(reader.read_on()):
            await asyncio.wait_for(process.end(), 30)
        async with subprocesses.meanwhile(wait_and_see()):
            assert await listener.dying_words(reader) == []

    assert turns >= 1_000 - 1


async def _rest(reader: LineReader) -> AsyncIterator[FrozenDict]:
    while isinstance(line := await reader.next(), FrozenDict):
        yield line


@pytest.mark.parametrize("how", ["clock", "interrupt", "close"])
async def test_a_program_that_is_told_to_end_can_say_much_and_then_save_its_session(
    stub: StubCli, tmp_path: Path, how: str, request: pytest.FixtureRequest
) -> None:
    """Whoever tells it to: the next turn resumes what it writes down last."""
    if how == "clock":
        request.getfixturevalue("short_of_time")
    saved = tmp_path / "saved"
    leaving: list[Step] = [{"long": 300_000}, {"touch": str(saved)}]
    stub.plays([{"on_interrupt": leaving}, INIT, {"silence": True}])
    session = started(stub)
    turn = RehearsalTurn(grace_ms=LONG_GRACE_MS)
    turn.begin(ClaudeBackend(), session)
    events = events_of(ClaudeBackend().prompt(session, "go", turn))
    assert (await anext(events)).kind == "session"
    match how:
        case "clock":
            assert (await anext(events)).kind == "error"
        case "interrupt":
            reading = asyncio.ensure_future(anext(events))
            # Once for the breath after the event before, and once for the wait for the next.
            for _ in range(2):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait({reading})
    await events.aclose()
    await turn.end()

    assert saved.exists()


async def test_what_an_interrupted_program_says_at_its_end_is_no_outcome(stub: StubCli) -> None:
    """The interrupt wins: whoever asked for it was told so."""
    stub.plays([{"on_interrupt": [RESULT]}, INIT, {"silence": True}])
    said = asyncio.Event()
    turn = RehearsalTurn()
    running = asyncio.create_task(
        rehearse(ClaudeBackend(), started(stub), "go", turn, on_event=lambda _event: said.set())
    )
    await asyncio.wait_for(said.wait(), 30)
    running.cancel()
    await asyncio.wait({running})

    assert running.cancelled()
    assert turn.processes[0].returncode is not None


async def test_e078_helpers_that_hold_the_pipe_do_not_hold_the_turn(stub: StubCli) -> None:
    """A tool's server outlives its program with the pipe open; ending it is the agent's work."""
    done = await played(stub, INIT, {"helpers": 3}, RESULT, {"exit": 0})

    assert done.text == "done"
    [run] = stub.runs
    assert len(run.helpers) == 3


async def test_e078_helpers_do_not_hold_a_turn_without_a_result_either(stub: StubCli) -> None:
    """The wait for a terminal line ends with the process, not with the pipe."""
    done = await played(stub, INIT, {"helpers": 1}, {"exit": 3})

    assert isinstance(raw := failure(done).raw, FrozenDict)
    assert raw["exit_status"] == 3


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
async def test_e082_an_interrupt_at_any_moment_leaves_no_process(stub: StubCli, steps: int) -> None:
    """Also between the start of the program and its first line."""
    stub.plays([INIT, SAY, {"silence": True}])
    turn = RehearsalTurn()
    running = asyncio.create_task(rehearse(ClaudeBackend(), started(stub), "go", turn))
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running}, timeout=5)

    assert running.cancelled()
    assert all(process.returncode is not None for process in turn.processes)


async def test_e083_interrupting_one_turn_leaves_the_other_alone(tmp_path: Path) -> None:
    """Signals go to one process and its group, never further."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = StubCli(tmp_path / "a"), StubCli(tmp_path / "b")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first.plays([INIT, {"silence": True}])
    second.plays([INIT, {"fifo": str(gate)}, RESULT])
    said = asyncio.Event()
    doomed = asyncio.create_task(
        rehearse(ClaudeBackend(), started(first), "go", on_event=lambda _event: said.set())
    )
    other = asyncio.create_task(rehearse(ClaudeBackend(), started(second), "go"))
    await said.wait()
    doomed.cancel()
    await asyncio.wait({doomed})
    # The other one stands before its result until somebody opens the FIFO.
    reading = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)

    assert (await other).text == "done"
    os.close(reading)
    assert doomed.cancelled()


async def test_e086_nothing_of_an_interrupted_turn_is_heard_in_the_next(stub: StubCli) -> None:
    """Late events would be taken for the answer to another prompt."""
    stub.plays([INIT, *[SAY] * 2_000, RESULT], [INIT, RESULT])
    session, events = started(stub), list[Event]()
    running = asyncio.create_task(rehearse(ClaudeBackend(), session, "go", on_event=events.append))
    while not events:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    heard = len(events)

    after = await rehearse(ClaudeBackend(), session, "again")
    assert after.kinds == ["session", "result"]
    assert len(events) == heard


async def test_e087_a_program_that_ignores_signals_is_killed_and_the_next_turn_runs(
    stub: StubCli,
) -> None:
    """The queue behind it must not wait for ever."""
    stub.plays([{"ignore": ["SIGINT", "SIGTERM"]}, INIT, {"silence": True}], [INIT, RESULT])
    session, turn = started(stub), RehearsalTurn(grace_ms=50)
    said = asyncio.Event()
    running = asyncio.create_task(
        rehearse(ClaudeBackend(), session, "go", turn, on_event=lambda _event: said.set())
    )
    await said.wait()
    running.cancel()
    await asyncio.wait({running})

    assert turn.processes[0].returncode == -signal.SIGKILL
    assert (await rehearse(ClaudeBackend(), session, "again")).text == "done"


async def test_a_terminal_line_is_believed_before_the_exit_status(stub: StubCli) -> None:
    """The program knows how its turn went; its status is about something else."""
    answered = await played(stub, INIT, RESULT, {"exit": 1})
    silent = await played(stub, INIT, SAY, {"exit": 0})

    assert answered.text == "done"
    assert failure(silent).message == "claude ended with exit status 0 without a result"


async def test_a_program_that_lingers_after_its_result_is_ended(
    stub: StubCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is there; waiting for ever for a clean exit would hold the agent."""
    monkeypatch.setattr(subprocesses, "EXIT_GRACE_MS", 50)
    turn = RehearsalTurn()
    done = await played(stub, INIT, RESULT, {"silence": True}, turn=turn)

    assert done.text == "done"
    assert turn.processes[0].returncode == -signal.SIGINT


async def test_a_program_that_closed_its_output_is_ended(
    stub: StubCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more can come from it."""
    monkeypatch.setattr(subprocesses, "EXIT_GRACE_MS", 50)
    done = await played(stub, INIT, {"close_stdout": True}, {"silence": True})

    assert failure(done).message == "claude ended by signal 2 without a result"


async def test_a_program_that_is_gone_fails_the_turn_and_says_so(stub: StubCli) -> None:
    """It was there when the session began; an update may have moved it."""
    session = started(stub)
    os.unlink(stub.path)
    done = await rehearse(ClaudeBackend(), session, "go")

    assert failure(done).kind == "not_started"
    assert "No such file" in failure(done).message


async def test_a_session_id_is_told_once_as_soon_as_a_line_shows_it(stub: StubCli) -> None:
    """A killed turn can then be resumed."""
    turn = RehearsalTurn()
    stub.plays([INIT, SAY, {"silence": True}])
    told: list[list[str]] = []
    running = asyncio.create_task(
        rehearse(
            ClaudeBackend(),
            started(stub),
            "go",
            turn,
            on_event=lambda _event: told.append(list(turn.checkpoints)),
        )
    )
    while len(told) < 2:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})

    assert told == [["s-1"], ["s-1"]]
    assert turn.checkpoints == ["s-1"]


def test_a_printed_command_shows_the_program_only() -> None:
    """Its arguments and environment may hold what nobody should read."""
    command = subprocesses.Command(("prog", "--secret"), b"secret", {"KEY": "secret"})

    assert repr(command) == "Command(prog)"
