"""One `claude` process for all turns of a session, spoken to in lines of JSON.

A turn begins with a user message and ends with the program's `result` line; between
turns the program may run some of its own (`claude_asked.py`). An interrupt is a
message, too: the turn is over when the program has answered it with the result of
what it had begun.

Nothing of one turn is ever read in the next. What came between two turns is thrown
away before a prompt is written, and a process is kept only if it has taken the whole
prompt and everything else it was told, and has ended the turn with its result; any
other is ended, and the next turn starts another that resumes the conversation. So it
is with a process that does not answer an interrupt in time, and with one whose
files, such as a key, are no longer what it was given.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from uuid import uuid4

from genagent_backends.base import Process, Turn
from genagent_backends.claude_asked import Asked, Prompt, Repeats
from genagent_backends.claude_lines import PROVIDER, ClaudeLines
from genagent_backends.failures import error_event, of_kind
from genagent_backends.foreign import text_at
from genagent_backends.lines import LineSplitter, LineTooLong
from genagent_backends.saying import Saying
from genagent_backends.subprocesses import (
    DRAIN_MS,
    Clocks,
    Command,
    Ended,
    LineReader,
    Listener,
    meanwhile,
    not_started,
    unheard,
)
from genagent_backends.timeouts import timeout
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import BackendError

#: How long an interrupted turn may take to be over, at most, and of the agent's grace; what
#: is left of it is for ending a process that did not answer.
INTERRUPT_ANSWER_MS = 1_500
INTERRUPT_ANSWER_PERCENT = 30
#: How long the process may take to leave once its input is closed.
LEAVE_MS = 2_000
#: How long a process may take to read the answers that wait when its turn is over, likewise.
SETTLE_MS = 500
SETTLE_PERCENT = 10
#: More questions between two turns are not put by a program that waits for answers.
MAX_QUESTIONS = 1_000


class Duplex:
    """The process of one session, begun with its first turn. It belongs to one agent."""

    def __init__(self) -> None:
        self._process: Process | None = None
        #: The environment that the process was started with.
        self.given: Mapping[str, str] = {}
        self._splitter = LineSplitter()
        self._cost_usd = 0.0
        #: What the process has shown of how it repeats prompts.
        self._repeats: Repeats = "not yet"

    def __repr__(self) -> str:
        return f"Duplex(pid={self._process.pid if self._process else None})"

    async def turn(
        self,
        turn: Turn,
        command: Command,
        clocks: Clocks,
        *,
        current: Collection[str] = (),
        afresh: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of one turn, the terminal one last; *command* starts the process.

        *current* are the variables that a process must have as *command* has them; one
        that was given others is replaced first, and *afresh* any that has served a turn.
        Cancelling or closing this interrupts
        the turn and leaves the process alive, if it answers.
        """
        try:
            if afresh:
                await self.close()
            process, kept = await self._ready(turn, command, current)
        except OSError as error:
            yield error_event(not_started(PROVIDER, error))
            return
        prompt = Prompt(command.stdin.decode(), str(uuid4()))
        asked = Asked(prompt, self._repeats)
        lines = ClaudeLines(cost_before_usd=self._cost_usd, asked=asked)
        listener = Listener(turn, lines, clocks)
        async with LineReader(process, self._splitter) as reader, Saying(process) as saying:
            which = saying.add(_message(prompt))
            try:
                # A turn that is stopped at its first event should not find its prompt unsaid.
                await asyncio.sleep(0)
                for before in kept:
                    _refuse(before, saying)
                    for said in await listener.hear(before):
                        yield said
                while (line := await listener.next_line(reader, asked.quiet_ms)) is not None:
                    _refuse(line, saying)
                    for said in await listener.hear(line):
                        yield said
                    if saying.full:
                        break
                for said in await listener.last_words(reader):
                    yield said
                if listener.quiet and (ending := asked.presumed()) is not None:
                    for said in await listener.hear(ending):
                        yield said
            finally:
                deaf = saying.full
                over = False
                try:
                    over = await _over(turn, process, reader, lines, saying, which)
                finally:
                    # Whatever went wrong on the way: a process that may still answer this
                    # prompt must not be given another one.
                    self._cost_usd = lines.cost_total_usd
                    self._repeats = asked.repeats
                    if not over:
                        async with meanwhile(unheard(process)):
                            await process.end()
        if deaf and listener.terminal is None:
            yield error_event(_deaf(), lines.about())
            return
        status = -1 if process.returncode is None else process.returncode
        yield listener.verdict(Ended(status, process.stderr_tail))

    async def _ready(
        self, turn: Turn, command: Command, current: Collection[str]
    ) -> tuple[Process, Sequence[FrozenDict]]:
        """Return a process that waits for a prompt, and what it said meanwhile that counts."""
        if any(self.given.get(name) != command.env.get(name) for name in current):
            await self.close()
        process = self._process
        if process is not None and process.returncode is None:
            kept = await self._caught_up(process)
            if kept is not None:
                return process, kept
            async with meanwhile(unheard(process)):
                await process.end()
        self._splitter, self._cost_usd, self._repeats = LineSplitter(), 0.0, "not yet"
        self.given = command.env
        self._process = await turn.spawn(
            command.argv, env=command.env, cwd=command.cwd, for_session=True
        )
        return self._process, ()

    async def _caught_up(self, process: Process) -> Sequence[FrozenDict] | None:
        """Throw away what *process* has said since its last turn.

        Its questions are kept, and how it introduced itself last: it may do so before
        it reads the prompt. None stands for one that has ended, or asks without end.
        """
        introduced: list[FrozenDict] = []
        questions: list[FrozenDict] = []
        until = asyncio.get_running_loop().time() + DRAIN_MS / 1000
        async with LineReader(process, self._splitter) as reader:
            while asyncio.get_running_loop().time() < until:
                match await reader.at_hand(until):
                    case FrozenDict() as line if _is_question(line):
                        questions.append(line)
                    case FrozenDict() as line if line.get("subtype") == "init":
                        introduced = [line]
                    case "silence":
                        break
                    case "end":
                        return None
        return [*introduced, *questions] if len(questions) <= MAX_QUESTIONS else None

    async def close(self) -> None:
        """End the process: by closing its input, and by force if that is not enough."""
        process = self._process
        if process is None:
            return
        async with meanwhile(unheard(process)):
            try:
                await process.close_stdin()
                with suppress(TimeoutError):
                    async with timeout(LEAVE_MS / 1000):
                        await process.wait()
            finally:
                # It is known until it has ended: an interrupt may come even here.
                await process.end()
        self._process = None


async def _over(
    turn: Turn,
    process: Process,
    reader: LineReader,
    lines: ClaudeLines,
    saying: Saying,
    which: int,
) -> bool:
    """Return whether the turn is over, so that *process* can be given another prompt.

    A turn that is not is given up: the program is told, and has a little time to answer.
    Half a prompt cannot be taken back, and after an `error` the turn may still go on.
    """
    if not saying.has_said(which) or saying.full:
        return False
    if not lines.answered:
        if lines.failed or process.returncode is not None:
            return False
        within_ms = min(INTERRUPT_ANSWER_MS, _part(turn, INTERRUPT_ANSWER_PERCENT))
        if not await _given_up(reader, lines, saying, within_ms):
            return False
    return await saying.settled(min(SETTLE_MS, _part(turn, SETTLE_PERCENT)))


def _part(turn: Turn, percent: int) -> int:
    return turn.interrupt_grace_ms * percent // 100


async def _given_up(reader: LineReader, lines: ClaudeLines, saying: Saying, within_ms: int) -> bool:
    """Return whether the program has given up the turn, in time and at our word."""
    until = asyncio.get_running_loop().time() + within_ms / 1000
    saying.add(_line({**_REQUEST, "request": {"subtype": "interrupt"}}))
    while isinstance(line := await reader.next(until), FrozenDict | LineTooLong):
        if isinstance(line, LineTooLong):
            continue
        _refuse(line, saying)
        for _event in lines.translate(line):
            pass
        if lines.answered:
            return True
        if line.get("type") in ("result", "error") or saying.full:
            break  # of a turn of the program's own: ours would only begin now
    return False


def _refuse(line: FrozenDict, saying: Saying) -> None:
    """Answer a question of the program, which would otherwise wait for ever."""
    if _is_question(line):
        saying.add(_refusal(line))


def _is_question(line: FrozenDict) -> bool:
    return line.get("type") == "control_request"


def _refusal(question: FrozenDict) -> bytes:
    refusal = {
        "subtype": "error",
        "request_id": text_at(question, "request_id"),
        "error": "nobody is there to answer",
    }
    return _line({"type": "control_response", "response": refusal})


def _deaf() -> BackendError:
    said = f"{PROVIDER} asks and asks, and reads no answer"
    return of_kind(PROVIDER, "provider_error", message=said)


_REQUEST = {"type": "control_request", "request_id": "interrupt"}


def _message(prompt: Prompt) -> bytes:
    message = {"role": "user", "content": prompt.text}
    return _line({"type": "user", "message": message, "uuid": prompt.id})


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"
