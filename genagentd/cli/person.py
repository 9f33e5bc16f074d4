"""Whoever sits at the terminal: asked one thing at a time, and listened to without waiting blindly.

While a line is awaited the loop goes on, so that the end of the agent that asked
ends the question, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Awaitable, Callable
from typing import Any

from genagent_protocol.errors import FunctionFailed
from genagentd.cli.output import Output, shortened

#: Whoever sat at the terminal left without an answer.
NO_ANSWER = "NO_ANSWER"
#: What a person types, and what a program writes.
_YES, _NO = {"y", "yes", "true"}, {"n", "no", "false"}
_STDIN = 0


class Person:
    """Answers what an agent asks; the questions of several calls wait for each other."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._keyboard = Keyboard()
        self._turn = asyncio.Lock()

    @property
    def functions(self) -> dict[str, Callable[[dict[str, Any]], Awaitable[object]]]:
        """What the person can be asked, by name."""
        return {"ask": self._ask, "confirm": self._confirm, "show": self._show}

    async def _ask(self, arguments: dict[str, Any]) -> object:
        async with self._turn:
            return await self._answer("ask", arguments, "> ")

    async def _confirm(self, arguments: dict[str, Any]) -> object:
        async with self._turn:
            problem = None
            while True:
                answer = await self._answer("confirm", arguments, "yes or no? ", problem)
                word = answer.removeprefix('"').removesuffix('"').lower()
                if word in _YES | _NO:
                    return word in _YES
                problem = f"yes or no is wanted, not {shortened(answer, 40)!r}"

    async def _show(self, arguments: dict[str, Any]) -> None:
        async with self._turn:
            if self._out.as_json:
                self._out.object({"function": "show", "arguments": arguments})
            else:
                self._out.text(f"{arguments['text']}\n")

    async def _answer(
        self, function: str, arguments: dict[str, Any], prompt: str, problem: str | None = None
    ) -> str:
        """Show the question and return the line that is typed after it.

        *problem* says why the answer before this was none.

        Raises:
            FunctionFailed: nobody will type any more.
        """
        self._keyboard.forget_what_was_typed()
        if self._out.as_json:
            why = {} if problem is None else {"problem": problem}
            self._out.object({"function": function, "arguments": arguments, **why})
        else:
            for text in (problem, arguments["question"], arguments.get("detail")):
                if text is not None:
                    self._out.note(text)
            self._out.note(prompt)
        line = await self._keyboard.line()
        if line is None:
            raise FunctionFailed(NO_ANSWER, "nobody is at the terminal any more")
        return line.strip()


class Keyboard:
    """The lines of standard input, awaited."""

    def __init__(self) -> None:
        self._read = b""

    async def line(self) -> str | None:
        """Return the next line, or None when there will be none."""
        if sys.stdin is None:
            return None  # It was closed; whatever has its number now is not for us to read.
        line, newline, rest = self._read.partition(b"\n")
        while not newline:
            await _readable()
            try:
                data = os.read(_STDIN, 4_096)
            except OSError:
                data = b""
            if not data and not self._read:
                return None
            # The last line may have no newline.
            self._read += data or b"\n"
            line, newline, rest = self._read.partition(b"\n")
        self._read = rest
        return line.decode("utf-8", "replace")

    def forget_what_was_typed(self) -> None:
        """Drop what waits at a terminal: nobody can have answered what was not asked yet.

        What a pipe holds was written as answers, and stays.
        """
        if sys.stdin is not None and os.isatty(_STDIN):
            self._read = b""
            with contextlib.suppress(termios.error):
                termios.tcflush(_STDIN, termios.TCIFLUSH)


async def _readable() -> None:
    """Return when standard input has something, which a plain file always has."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(_STDIN, ready.set)
    except OSError:
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(_STDIN)
