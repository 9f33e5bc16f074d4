"""Playing a page of the documentation: what it shows is what happens.

A fence says by the words behind its language what it is:

    python file=my_agent.py     written to that file; any language
    python run                  run; a following fence `text output` is what it prints
    python part                 an excerpt of something; it only has to compile
    console                     each `$ ` line is run in a shell, and printed what follows it
    console needs=claude        not run here; its own commands must exist, with their options

In what is printed, `...` stands for anything; pids, refs and times may differ. A command
ends with code 0, or with the one that a comment at its end names: `# exit 3`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
_MARK = "-- end of command --"
_TIMEOUT_S = 100

#: What differs from run to run.
_VARYING = (
    (re.compile(r"\b[0-9a-f]{16}-\d+-[0-9a-f]{32}\b"), "REF"),
    (re.compile(r"\b[0-9a-f]{16}-\d+\b"), "LIFE"),
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m|h|d)\b"), "TIME"),
    (re.compile(r"\b\d{3,}\b"), "N"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Fence:
    """One block of a page."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def value(self, name: str) -> str | None:
        """Return what stands behind `name=` in its first line."""
        found = [word.partition("=")[2] for word in self.words if word.startswith(f"{name}=")]
        return found[0] if found else None


@dataclass(frozen=True)
class Step:
    """One command of a console block: what is run, how it ends, what it prints."""

    command: str
    code: int
    expected: str


def fences(page: Path, root: Path) -> list[Fence]:
    """Return the blocks of *page*, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Fence(
            page=str(page.relative_to(root)),
            line=text.count("\n", 0, found.start()) + 1,
            language=(found["info"].split() or [""])[0],
            words=tuple(found["info"].split()[1:]),
            text=textwrap.dedent(found["text"]),
        )
        for found in _FENCE.finditer(text)
    ]


def steps(console: str) -> list[Step]:
    """Return the commands of a console block."""
    made: list[Step] = []
    command: list[str] = []
    printed: list[str] = []

    def close() -> None:
        if command:
            text = "\n".join(command)
            ends = re.search(r"# exit (\d+)\s*$", text)
            expected = "\n".join(printed)
            made.append(Step(text, int(ends[1]) if ends else 0, expected))

    for line in console.rstrip("\n").splitlines():
        if line.startswith("$ "):
            close()
            command, printed = [line[2:]], []
        elif line.startswith("> ") and not printed:
            command.append(line[2:])
        else:
            printed.append(line)
    close()
    return made


def matches(expected: str, printed: str) -> bool:
    """Whether *printed* is what the page shows."""
    pattern = ""
    for line in _settled(expected).splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.split("...")) + r"\n"
    return re.fullmatch(pattern, _settled(printed) + "\n") is not None


def _settled(text: str) -> str:
    for varying, stand_in in _VARYING:
        text = varying.sub(stand_in, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@dataclass
class Bench:
    """Where a page is played: a directory, and a place for a daemon of its own."""

    directory: Path
    run_dir: Path
    #: Where its `python`, `genagent` and `genagentd` are.
    programs: Path = field(default_factory=lambda: Path(sys.executable).parent)
    #: What is added to the environment.
    added: Mapping[str, str] = field(default_factory=dict)
    waiting: str | None = None
    #: What was typed and printed so far.
    transcript: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a reader's shell would have."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GENAGENT_", "XDG_", "PYTEST_"))
        }
        return kept | {
            "PATH": f"{self.programs}:{kept.get('PATH', '')}",
            "GENAGENT_RUN_DIR": str(self.run_dir),
            "NO_COLOR": "1",
            **self.added,
        }

    def play(self, fence: Fence) -> None:
        """Do what *fence* shows.

        Raises:
            AssertionError: something else happens.
        """
        file = fence.value("file")
        if file is not None:
            path = self.directory / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fence.text, encoding="utf-8")
        elif fence.language == "console":
            self._console(fence)
        elif "output" in fence.words:
            self._compare(fence)
        elif "run" in fence.words:
            self._run(fence)
        elif fence.language == "python":
            assert "part" in fence.words, f"{fence}: is it run, a file, or a part?"
            compile(fence.text, str(fence), "exec")

    def _run(self, fence: Fence) -> None:
        script = self.directory / f"snippet_{fence.line}.py"
        script.write_text(fence.text, encoding="utf-8")
        done = self._process([str(self.programs / "python"), str(script)])
        assert done.returncode == 0, f"{fence}: {done.stdout}"
        self.waiting = done.stdout

    def _compare(self, fence: Fence) -> None:
        assert self.waiting is not None, f"{fence}: nothing has printed this"
        printed, self.waiting = self.waiting, None
        assert matches(fence.text, printed), f"{fence}: it printed\n{printed}"

    def _console(self, fence: Fence) -> None:
        if fence.value("needs") is not None:
            # What can be known without it: that the commands and their options exist.
            for command in own_commands(fence):
                check_spelling(fence, command)
            return
        self.type(fence)

    def type(self, fence: Fence) -> None:
        """Run the commands of a console block, whatever it needs, and compare what is printed.

        Raises:
            AssertionError: it ends or prints otherwise.
        """
        found = steps(fence.text)
        script = "exec 2>&1\n" + "".join(
            f"{step.command}\nprintf '\\n%s %s\\n' '{_MARK}' $?\n" for step in found
        )
        done = self._process(["bash", "-c", script])
        parts = done.stdout.split(f"\n{_MARK} ")
        assert len(parts) == len(found) + 1, f"{fence}: {done.stdout}"
        printed = parts[0]
        for step, after in zip(found, parts[1:], strict=True):
            code, _, following = after.partition("\n")
            assert int(code) == step.code, f"{fence}: {step.command}: exit {code}\n{printed}"
            self.transcript += [f"$ {step.command}", printed.rstrip("\n")]
            if step.expected:
                assert matches(step.expected, printed), f"{fence}: {step.command}\n{printed}"
            printed = following

    def _process(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
        )

    def clear(self) -> None:
        """End the daemon that the page may have left running."""
        self._process([str(self.programs / "python"), "-m", "genagentd", "stop", "--force"])


def own_commands(fence: Fence) -> Iterator[list[str]]:
    """Yield the words of every command of ours in a console block."""
    for step in steps(fence.text):
        words = shlex.split(step.command, comments=True)
        if words and words[0] in ("genagent", "genagentd"):
            yield words


def check_spelling(fence: Fence, words: list[str]) -> None:
    """Make sure that the command and its options exist.

    Raises:
        AssertionError: they do not.
    """
    import click

    from genagentd.cli import agents, daemon_commands
    from genagentd.cli.main import load_commands

    load_commands()
    app: click.Group = {"genagent": agents.app, "genagentd": daemon_commands.app}[words[0]]
    assert words[1] in app.commands, f"{fence}: there is no {words[0]} {words[1]}"
    ends = next((i for i, word in enumerate(words) if word in ("|", ">", "&&")), len(words))
    try:
        app.commands[words[1]].make_context(words[1], words[2:ends])
    except click.UsageError as error:
        raise AssertionError(f"{fence}: {' '.join(words)}: {error.format_message()}") from None
