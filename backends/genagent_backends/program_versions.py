"""Which version of a provider's program an agent runs, said once in the agent's log.

The program is asked beside the first turn, which neither waits for the answer
nor fails with it: when the turn is over, the question is given up, and put again
beside the next one. A version that this product was not tried with is a warning:
flags and lines change between versions.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from genagent_backends.base import Process, Turn
from genagent_backends.programs import Program
from genagent_backends.subprocesses import Command
from genagent_backends.timeouts import timeout
from genagent_protocol.events import Event

#: How long a program may take to say its version, in a turn that is longer.
PATIENCE_MS = 3_000
#: Beside so many turns it is asked, if they are over before it answers.
TURNS = 3
#: More than any version line; what a program says beyond it is not read.
MAX_ANSWER_BYTES = 4_096
VERSION = re.compile(rb"\b\d{1,6}\.\d{1,6}\.\d{1,6}\b")


class VersionNote:
    """Belongs to one backend, that is, to one life of an agent."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._turns_left = TURNS

    def beside(
        self, turn: Turn, command: Command, events: AsyncGenerator[Event, None]
    ) -> AsyncGenerator[Event, None]:
        """Return *events*; the first time, the program is asked for its version meanwhile."""
        return self._asking(turn, command, events) if self._turns_left else events

    async def _asking(
        self, turn: Turn, command: Command, events: AsyncGenerator[Event, None]
    ) -> AsyncGenerator[Event, None]:
        self._turns_left -= 1
        note = asyncio.create_task(self._note(turn, command))
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        finally:
            note.cancel()
            await asyncio.gather(note, return_exceptions=True)

    async def _note(self, turn: Turn, command: Command) -> None:
        try:
            version = await _version_of(turn, command)
        except asyncio.CancelledError:
            if self._turns_left:
                raise
            version = None
        self._turns_left = 0
        print(_line(self._program, version), file=sys.stderr, flush=True)


async def _version_of(turn: Turn, command: Command) -> str | None:
    """Return what the program says of itself, or None if it says nothing usable in time."""
    try:
        process = await turn.spawn((command.argv[0], "--version"), env=command.env, cwd=command.cwd)
    except OSError:
        return None
    try:
        async with timeout(PATIENCE_MS / 1000):
            await process.close_stdin()
            found = VERSION.search(await _all(process))
    except TimeoutError:
        return None
    finally:
        # It has nothing to put in order, and a turn may be waiting: no grace.
        await process.end("SIGKILL")
    return found[0].decode() if found else None


async def _all(process: Process) -> bytes:
    said = b""
    while len(said) < MAX_ANSWER_BYTES and (data := await process.read(MAX_ANSWER_BYTES)):
        said += data
    return said


def _line(program: Program, version: str | None) -> str:
    tested = "-".join(program.tested)
    event = "program.version" if _was_tested(program, version) else "program.untested"
    return f"{event} program={program.name} version={version or 'unknown'} tested={tested}"


def _was_tested(program: Program, version: str | None) -> bool:
    first, last = map(_numbers, program.tested)
    return version is not None and first <= _numbers(version) <= last


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
