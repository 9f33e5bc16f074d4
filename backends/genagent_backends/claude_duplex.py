"""One `claude` process for all turns of a session, spoken to in lines of JSON.

A turn begins with a user message and ends with the program's `result` line; between
turns the program may run some of its own (`claude_asked.py`). An
interrupt is a message, too: the turn is over when the program has answered it
with the result of what it had begun, so that nothing of one turn is ever read in
the next. A process that does not answer in time is ended, and the next turn
starts another that resumes the conversation; as it does when what the process was
given in files, such as a key, is no longer what they hold.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import suppress

from genagent_backends.base import Process, Turn
from genagent_backends.claude_lines import PROVIDER, ClaudeLines
from genagent_backends.failures import error_event
from genagent_backends.foreign import text_at
from genagent_backends.lines import LineSplitter, LineTooLong
from genagent_backends.subprocesses import (
    Clocks,
    Command,
    Ended,
    LineReader,
    Listener,
    not_started,
)
from genagent_backends.timeouts import timeout
from genagent_protocol.events import Event
from genagent_protocol.plain import FrozenDict

#: How long an interrupted turn may take to be over; what is left of the agent's grace
#: is for ending a process that did not answer.
INTERRUPT_ANSWER_MS = 1_500
#: How long the process may take to leave once its input is closed.
LEAVE_MS = 2_000


class Duplex:
    """The process of one session, begun with its first turn. It belongs to one agent."""

    def __init__(self) -> None:
        self._process: Process | None = None
        #: The environment that the process was started with.
        self.given: Mapping[str, str] = {}
        self._splitter = LineSplitter()
        self._cost_usd = 0.0

    def __repr__(self) -> str:
        return f"Duplex(pid={self._process.pid if self._process else None})"

    async def turn(
        self, turn: Turn, command: Command, clocks: Clocks, *, current: Collection[str] = ()
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of one turn, the terminal one last; *command* starts the process.

        *current* are the variables that a process must have as *command* has them; one
        that was given others is replaced first. Cancelling or closing this interrupts
        the turn and leaves the process alive.
        """
        try:
            process = await self._alive(turn, command, current)
        except OSError as error:
            yield error_event(not_started(PROVIDER, error))
            return
        lines = ClaudeLines(cost_before_usd=self._cost_usd, repeated=True)
        listener = Listener(turn, lines, clocks)
        saying = asyncio.create_task(process.write(_message(command.stdin.decode())))
        async with LineReader(process, self._splitter) as reader:
            try:
                while (line := await listener.next_line(reader)) is not None:
                    await self._refuse_request(process, line)
                    for said in await listener.hear(line):
                        yield said
                for said in await listener.last_words(reader):
                    yield said
            finally:
                said_all = saying.done()
                saying.cancel()
                await asyncio.gather(saying, return_exceptions=True)
                if listener.terminal is None:
                    await self._stop_turn(process, reader, lines, polite=said_all)
                self._cost_usd = lines.cost_total_usd
        status = -1 if process.returncode is None else process.returncode
        yield listener.verdict(Ended(status, process.stderr_tail))

    async def _alive(self, turn: Turn, command: Command, current: Collection[str]) -> Process:
        if any(self.given.get(name) != command.env.get(name) for name in current):
            await self.close()
        if self._process is None or self._process.returncode is not None:
            self._splitter, self._cost_usd = LineSplitter(), 0.0
            self.given = command.env
            self._process = await turn.spawn(
                command.argv, env=command.env, cwd=command.cwd, for_session=True
            )
        return self._process

    async def _stop_turn(
        self, process: Process, reader: LineReader, lines: ClaudeLines, *, polite: bool
    ) -> None:
        """Have the program give up the turn; end it if it does not, or cannot be told."""
        until = asyncio.get_running_loop().time() + INTERRUPT_ANSWER_MS / 1000
        if polite and process.returncode is None:
            await process.write(_line({**_REQUEST, "request": {"subtype": "interrupt"}}))
            while isinstance(line := await reader.next(until), FrozenDict | LineTooLong):
                if isinstance(line, FrozenDict):
                    if any(event.terminal for event in lines.translate(line)):
                        return
                    if line.get("type") == "result":
                        break  # of a turn of the program's own: ours would only begin now
        await process.end()

    async def _refuse_request(self, process: Process, line: FrozenDict) -> None:
        """Answer a question of the program, which would otherwise wait for ever."""
        if line.get("type") == "control_request":
            refusal = {
                "subtype": "error",
                "request_id": text_at(line, "request_id"),
                "error": "nobody is there to answer",
            }
            await process.write(_line({"type": "control_response", "response": refusal}))

    async def close(self) -> None:
        """End the process: by closing its input, and by force if that is not enough."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            await process.close_stdin()
            with suppress(TimeoutError):
                async with timeout(LEAVE_MS / 1000):
                    await process.wait()
        finally:
            await process.end()


_REQUEST = {"type": "control_request", "request_id": "interrupt"}


def _message(prompt: str) -> bytes:
    return _line({"type": "user", "message": {"role": "user", "content": prompt}})


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"
