"""One turn as one run of a provider's program: clocks, draining, and who is believed.

The prompt goes in on standard input, lines of JSON come out, and a translator
makes events of them. The turn is judged after the process has exited and its pipe
is drained: a terminal line is believed before any exit status or clock; only
without one does the turn end in an error made from what else is known. Once a clock
has had the program told to end, a result is believed and a failure is not: it says no
more than that the program was told. Waiting is bounded everywhere, since a grandchild
may hold the pipe open for ever.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

from genagent_backends.base import Process, Turn
from genagent_backends.failures import error_event
from genagent_backends.foreign import Held
from genagent_backends.lines import MAX_LINE_BYTES, Line, LineSplitter, LineTooLong
from genagent_backends.timeouts import Timeout, timeout, timeout_at
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import BackendError

#: How long a program that has said its last word may take to leave.
EXIT_GRACE_MS = 5_000
#: How long the pipe of a process that has exited is still read; whoever was slow may read
#: later as much as a pipe can hold.
DRAIN_MS = 500
DRAIN_BYTES = 1024 * 1024
#: How long a line may take that was on its way when a clock ran out.
LAST_LOOK_MS = 50
#: How much is kept of what a program says while it is told to end: a result of any length.
LAST_WORDS_BYTES = MAX_LINE_BYTES + DRAIN_BYTES


@dataclass(frozen=True, slots=True, repr=False)
class Command:
    """What to run. Printing it shows the program only."""

    argv: tuple[str, ...]
    stdin: bytes
    env: Mapping[str, str]
    cwd: str | None = None

    def __repr__(self) -> str:
        return f"Command({self.argv[0]})"


@dataclass(frozen=True, slots=True)
class Clocks:
    """How long a gap between two lines, and the whole turn, may last; None is for ever."""

    idle_ms: int | None
    turn_ms: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run without a terminal line came to its end."""

    exit_status: int
    stderr: str


class Translator(Protocol):
    """Makes events of one turn's lines. It never raises, whatever a line holds."""

    @property
    def provider(self) -> str:
        """Whose lines these are, as a failure names it."""
        ...

    @property
    def session_id(self) -> str | None:
        """The provider's session id, once a line has shown a usable one."""
        ...

    @property
    def stray(self) -> bool:
        """Whether the program does what it was not asked for, and must not go on."""
        ...

    def translate(self, line: FrozenDict) -> Iterable[Event]:
        """Return what *line* says. A terminal event is the last one that matters."""
        ...

    def abandoned(self, ended: Ended) -> Event:
        """Return the `error` event of a turn whose program ended without a terminal line."""
        ...


@dataclass(frozen=True, slots=True)
class Fired:
    """A clock ran out: which one, and after how long."""

    clock: Literal["idle_timeout", "timeout"]
    after_ms: int


Silence: TypeAlias = Literal["silence"]
End: TypeAlias = Literal["end"]


class LineReader:
    """The lines of a process, each waited for until a moment of the caller's choice.

    Use it as a context manager, one turn at a time; *splitter* may outlive it, so
    that a line that was cut by the end of one turn is whole in the next, and one that
    came too late for it is not lost.
    """

    def __init__(self, process: Process, splitter: LineSplitter) -> None:
        self._process = process
        self._splitter = splitter
        self._ready = splitter.ready
        self._ended = False
        self._drained_at: float | None = None
        self._read_after_exit = 0
        self._scope: Timeout | None = None

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch_exit())
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch_exit(self) -> None:
        await self._process.wait()
        self._drained_at = asyncio.get_running_loop().time() + DRAIN_MS / 1000
        until = self._scope.when() if self._scope is not None else None
        if self._scope is not None and (until is None or until > self._drained_at):
            self._scope.reschedule(self._drained_at)

    async def next(self, until: float = math.inf) -> Line | Silence | End:
        """Return the next line, or that none came *until* then (loop time), or none will come.

        Output that holds no line is silence, however much of it there is.
        """
        return await self._next(until, until)

    async def at_hand(self, until: float) -> Line | Silence | End:
        """Do the same for a line that need not be waited for; noise is read *until* then."""
        return await self._next(0.0, until)

    async def _next(self, wait_until: float, until: float) -> Line | Silence | End:
        while not self._ready and not self._ended:
            # A process that never stops talking must not keep the event loop to itself.
            await asyncio.sleep(0)
            data = await self._read(wait_until)
            if data:
                self._ready.extend(self._splitter.feed(data))
                # Where there is always something to read, no time limit of a read ever passes.
                if self._drained(len(data)):
                    self._end()
                elif not self._ready and _now() >= until:
                    return "silence"
            elif data is None and self._drained_at is None:
                return "silence"
            else:
                self._end()
        return self._ready.popleft() if self._ready else "end"

    async def read_on(self) -> None:
        """Read until the output ends or this is cancelled, so that the process never has to wait.

        What it says is kept for `next`, which after too much of it finds the end.
        """
        kept = 0
        while data := await self._process.read():
            if not self._ended:
                lines = list(self._splitter.feed(data))
                self._ready.extend(lines)
                # Each of them is held as a value, which costs something if it is short.
                kept += len(data) + Held.PIECE_BYTES * len(lines)
                if kept >= LAST_WORDS_BYTES:
                    self._end()
            await asyncio.sleep(0)
        if not self._ended:
            self._end()

    def unfinished(self) -> Line | None:
        """Return the line that lacks nothing but its newline, if there is one."""
        return self._splitter.whole()

    def _end(self) -> None:
        self._ended = True
        self._ready.extend(self._splitter.finish())

    def _drained(self, just_read: int) -> bool:
        """Return whether what is still read must come from somebody else than the process."""
        if self._drained_at is None:
            return False
        self._read_after_exit += just_read
        return self._read_after_exit >= DRAIN_BYTES and _now() >= self._drained_at

    async def _read(self, until: float) -> bytes | None:
        limit = min(until, math.inf if self._drained_at is None else self._drained_at)
        try:
            async with timeout_at(None if limit == math.inf else limit) as self._scope:
                return await self._process.read()
        except TimeoutError:
            return None
        finally:
            self._scope = None


class Listener:
    """One turn's lines as they are heard, and why the turn is over once it is.

    Shared by a process per turn and a process per session.
    """

    def __init__(self, turn: Turn, translator: Translator, clocks: Clocks) -> None:
        self.terminal: Event | None = None
        self.problem: Fired | LineTooLong | None = None
        #: Whether nothing came for as long as the caller wanted to wait.
        self.quiet = False
        self._turn = turn
        self._translator = translator
        self._clocks = clocks
        self._started_at = _now()
        self._told: str | None = None

    async def next_line(self, reader: LineReader, quiet_ms: int | None = None) -> FrozenDict | None:
        """Return the next line, or None when the turn is over or a clock has run out.

        So it is when nothing has come for *quiet_ms*, which is no problem of its own.
        """
        if self.terminal is not None:
            return None
        # A consumer that was slow is not silence: this gap begins now, not at the last line.
        idle_at = _moment(_now(), self._clocks.idle_ms)
        turn_at = _moment(self._started_at, self._clocks.turn_ms)
        quiet_at = _moment(_now(), quiet_ms)
        # Also a program that never stops talking has to stop.
        got = "silence" if _now() >= turn_at else await reader.next(min(idle_at, turn_at, quiet_at))
        match got:
            case FrozenDict() as line:
                return line
            case LineTooLong() as problem:
                self.problem = problem
            case "silence" if min(idle_at, turn_at) <= quiet_at:
                self.problem = self._fired(idle=idle_at < turn_at)
            case "silence":
                self.quiet = True
        return None

    def _fired(self, *, idle: bool) -> Fired:
        if idle:
            return Fired("idle_timeout", self._clocks.idle_ms or 0)
        return Fired("timeout", self._clocks.turn_ms or 0)

    async def last_words(self, reader: LineReader) -> list[Event]:
        """Return what had been said, but not yet read, when a clock ran out.

        A terminal line among it is believed, and the clock is forgotten.
        """
        said: list[Event] = []
        until = _now() + DRAIN_MS / 1000
        while isinstance(self.problem, Fired) and _now() < until:
            line = await reader.next(_now() + LAST_LOOK_MS / 1000)
            if line == "silence":
                line = reader.unfinished() or line
            if not isinstance(line, FrozenDict):
                break
            said += await self.hear(line)
            if self.terminal is not None:
                self.problem = None
        return said

    async def dying_words(self, reader: LineReader) -> list[Event]:
        """Return what the program said as it was ended for a clock, if it said a result.

        That is believed, and the clock is forgotten; nothing else of it counts but a session id.
        """
        if not isinstance(self.problem, Fired):
            return []
        said: list[Event] = []
        # What was kept is no more than was to be kept, and the process has exited.
        until = _now() + DRAIN_MS / 1000
        while self.terminal is None:
            line = await reader.next(until)
            if not isinstance(line, FrozenDict):
                break
            said += await self.hear(line)
            # Of what was kept, none has to be waited for.
            await asyncio.sleep(0)
        if self.terminal is None or self.terminal.kind != "result":
            self.terminal = None
            return []
        self.problem = None
        return said

    async def hear(self, line: FrozenDict) -> list[Event]:
        """Return what *line* says; keep a terminal event back, and checkpoint a session id."""
        said: list[Event] = []
        for event in self._translator.translate(line):
            if event.terminal:
                self.terminal = event
                break
            said.append(event)
        session_id = self._translator.session_id
        if session_id is not None and session_id != self._told:
            self._told = session_id
            await self._turn.checkpoint(session_id)
        return said

    def verdict(self, ended: Ended) -> Event:
        """Return the event that ends the turn."""
        provider, session_id = self._translator.provider, self._translator.session_id
        known = {} if session_id is None else {"session_id": session_id}
        if self.terminal is not None:
            return self.terminal
        match self.problem:
            case Fired() as problem:
                return error_event(timed_out(provider, problem), known)
            case LineTooLong() as problem:
                return error_event(line_too_long(provider, problem), known)
            case None:
                return self._translator.abandoned(ended)


async def run(
    turn: Turn, command: Command, translator: Translator, clocks: Clocks
) -> AsyncGenerator[Event, None]:
    """Yield what one run of *command* says, the terminal event last.

    Cancelling or closing this ends the process, by SIGINT first, so that the program
    can end its own tools.
    """
    listener = Listener(turn, translator, clocks)
    try:
        process = await turn.spawn(command.argv, env=command.env, cwd=command.cwd)
    except OSError as error:
        yield error_event(not_started(translator.provider, error))
        return
    feeding = asyncio.create_task(_feed(process, command.stdin))
    try:
        async with LineReader(process, LineSplitter()) as reader:
            while (line := await listener.next_line(reader)) is not None:
                for said in await listener.hear(line):
                    yield said
            for said in await listener.last_words(reader):
                yield said
            if listener.problem is None and not translator.stray:
                await _let_leave(process, reader)
            async with meanwhile(reader.read_on()):
                ended = Ended(await process.end(), process.stderr_tail)
            for said in await listener.dying_words(reader):
                yield said
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        async with meanwhile(unheard(process)):
            await process.end()
    yield listener.verdict(ended)


async def _let_leave(process: Process, reader: LineReader) -> None:
    # It may still be writing down the session that the next turn resumes, and it must
    # not wait for somebody to read the rest of what it says.
    with suppress(TimeoutError):
        async with timeout(EXIT_GRACE_MS / 1000):
            while await reader.next() != "end":
                pass
            await process.wait()


@asynccontextmanager
async def meanwhile(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Do *work* for as long as this is entered; what it raises is nobody's.

    To end a process is to read on: one that waits for room in its pipe cannot put
    anything in order, such as the session that the next turn resumes.
    """
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def unheard(process: Process) -> None:
    """Read what *process* says, to its end or until this is cancelled, and keep nothing."""
    said = await process.read()
    while said:
        await asyncio.sleep(0)
        said = await process.read()


async def _feed(process: Process, data: bytes) -> None:
    await process.write(data)
    await process.close_stdin()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _moment(start: float, duration_ms: int | None) -> float:
    return math.inf if duration_ms is None else start + duration_ms / 1000


def timed_out(provider: str, clock: Fired) -> BackendError:
    """Return the failure of a turn that a clock ended.

    Only silence is worth another try: the same work would take as long again.
    """
    idle = clock.clock == "idle_timeout"
    said = "said nothing" if idle else "was not done"
    return BackendError(
        provider=provider,
        kind=clock.clock,
        retryable=idle,
        message=f"{provider} {said} within {clock.after_ms} ms",
        raw=FrozenDict({"clock": clock.clock, "after_ms": clock.after_ms}),
    )


def line_too_long(provider: str, line: LineTooLong) -> BackendError:
    """Return the failure of a turn that had an overlong line."""
    return BackendError(
        provider=provider,
        kind="line_too_long",
        retryable=False,
        message=f"{provider} printed a line of more than {line.limit_bytes} bytes",
        raw=FrozenDict({"limit_bytes": line.limit_bytes}),
    )


def not_started(provider: str, error: OSError) -> BackendError:
    """Return the failure of a turn whose program could not be started, and what was not there."""
    what = f": {error.filename}" if isinstance(error.filename, str) else ""
    return BackendError(
        provider=provider,
        kind="not_started",
        retryable=False,
        message=f"the program of {provider} could not be started: {error.strerror}{what}",
        raw=FrozenDict({"errno": error.errno}),
    )


def left_without_result(provider: str, ended: Ended, said: str = "") -> BackendError:
    """Return the failure of a turn whose program ended without saying how it went.

    What it *said* wins over the end of its standard error as the message.
    """
    how = (
        f"ended by signal {-ended.exit_status}"
        if ended.exit_status < 0
        else f"ended with exit status {ended.exit_status}"
    )
    message = said or ended.stderr.strip() or f"{provider} {how} without a result"
    return BackendError(
        provider=provider,
        kind="provider_error",
        retryable=False,
        message=message,
        raw=FrozenDict({"exit_status": ended.exit_status, "stderr": ended.stderr}),
    )
