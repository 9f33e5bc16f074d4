"""What a command prints: data on standard output, everything else on standard error.

With `--json` a command prints one object, or one object a line while it follows
something. Text that came from agents and providers is written as it is into files
and pipes; on a terminal its control characters are shown instead of obeyed.

What cannot be written to standard output is a failure that says what was done by
then. What cannot be written to standard error is lost, and changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from genagentd.cli.exits import Failure


class Unwritable(Exception):
    """Standard output does not take what is to be printed; *done* is what was done by then."""

    def __init__(self, done: str, error: OSError) -> None:
        but = f"{done}, but the" if done else "the"
        super().__init__(f"{but} answer could not be written: {error.strerror}")


class Output:
    """The two streams of one command, and what is said of it when it fails."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        #: The command as it was typed, and the agent it was typed for, as text.
        self.command = ""
        self.agent = ""
        #: What the command has done so far, for when its answer cannot be written.
        self.done = ""

    def result(self, text: str, /, **fields: object) -> None:
        """Print the result: *text*, whose last line is ended once, or *fields* as one object.

        Raises:
            Unwritable: standard output does not take it.
        """
        self.done = self.done or "it was done"
        if self.as_json:
            self.object({"ok": True, **fields})
        elif text:
            self.text(text if text.endswith("\n") else text + "\n")

    def object(self, value: dict[str, Any]) -> None:
        """Print one JSON object on a line of its own.

        Raises:
            Unwritable: standard output does not take it.
        """
        self._print(json.dumps(value, ensure_ascii=False, default=str) + "\n")

    def text(self, text: str) -> None:
        """Print text exactly as it is; on a terminal, without what would control it.

        Raises:
            Unwritable: standard output does not take it.
        """
        self._print(harmless(text) if sys.stdout.isatty() else text)

    def note(self, text: str) -> None:
        """Say something to the person, on standard error; never in JSON."""
        if not self.as_json:
            _say(text)

    def failure(self, prog: str, failure: Failure) -> None:
        """Say why the command failed: one line, or one object on standard output."""
        if self.as_json:
            error = {
                "code": failure.code,
                "message": failure.message,
                "hint": failure.hint,
                "details": failure.details,
            }
            try:
                self.object({"ok": False, "error": error})
            except (Unwritable, BrokenPipeError):
                pass  # Then the line says it; the exit code is the failure's all the same.
            else:
                return
        hint = f" ({failure.hint})" if failure.hint else ""
        line = " ".join(f"{failure.message}{hint}".split())
        _say(f"{prog}: {line}")

    def _print(self, text: str) -> None:
        try:
            _write(sys.stdout, text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Unwritable(self.done, error) from error


def harmless(text: str) -> str:
    """Return *text* with every control character but newline and tab shown, not meant."""
    return "".join(c if c in "\n\t" or c.isprintable() else ascii(c)[1:-1] for c in text)


def _say(text: str) -> None:
    """Write a line to standard error, if that takes it."""
    with contextlib.suppress(OSError):
        _write(sys.stderr, harmless(text) + "\n")


def _write(stream: Any, text: str) -> None:
    # UTF-8 whatever the locale says; a lone surrogate has no bytes of its own.
    stream.buffer.write(text.encode("utf-8", "backslashreplace"))
    stream.buffer.flush()


def duration(ms: int) -> str:
    """Return a duration for people, two units long at most."""
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds // 60 % 60:02}m"
    return f"{seconds // 86_400}d{seconds // 3600 % 24:02}h"


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return aligned columns with a head line."""
    lines = [columns, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def shortened(text: str, most: int = 200) -> str:
    """Return *text*, cut where it would fill more than a few lines."""
    return text if len(text) <= most else text[:most] + "…"
