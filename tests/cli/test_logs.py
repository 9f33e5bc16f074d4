"""`genagent logs` reads the logs of an agent's lives: the latest that spoke, or more of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genagentd.cli import agents
from genagentd.cli.main import load_commands
from support.commands import Command, runner


@pytest.fixture
def genagent(capsysbinary: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `genagent` in the environment as it is."""
    load_commands()
    return runner(agents.app, "genagent", capsysbinary, monkeypatch)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], Path]:
    """Write what the life of that number of the agent a printed, and return the file."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(tmp_path))
    directory = tmp_path / "logs" / "a"
    directory.mkdir(parents=True)

    def say(number: int, text: str) -> Path:
        path = directory / f"b-{number}.log"
        path.write_text(text)
        os.utime(path, (number, number))
        return path

    return say


def test_the_latest_life_that_said_anything_is_shown_and_named(
    genagent: Command, said: Callable[[int, str], Path]
) -> None:
    """The end of a life before was read as that of the one that runs, which was silent."""
    said(8, "long ago\n")
    said(9, "crashed\n")
    said(10, "")

    shown = genagent("logs", "a")

    assert shown.out == "crashed\n"
    which, more = shown.err.splitlines()
    assert which == "this is an earlier life, b-9; the latest, b-10, printed nothing"
    assert more.endswith("genagent logs --lives 3 a")


@pytest.mark.parametrize("option", ["--lines", "--lives"])
def test_a_number_that_no_log_reaches_is_refused(
    genagent: Command, said: Callable[[int, str], Path], option: str
) -> None:
    """It was a fault of the program, after the log had been read."""
    said(1, "spoke\n")

    refused = genagent("logs", "a", option, "9" * 20)

    assert (refused.code, refused.out) == (2, "")
    assert option in refused.err


def test_of_a_silent_life_that_runs_the_process_is_named(
    genagent: Command, said: Callable[[int, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever looks at the process knows that it is the right one."""
    said(9, "crashed\n")
    said(10, "")
    monkeypatch.setattr("genagentd.cli.logs._pid_of", lambda latest: {"b-10": 7}[latest.stem])

    told = genagent("logs", "a").err

    assert (
        told == "this is an earlier life, b-9; the present one, b-10 (pid 7), has printed nothing\n"
    )


def test_a_silent_life_counts_as_any_other(
    genagent: Command, said: Callable[[int, str], Path]
) -> None:
    """Whoever asks for two lives gets the latest two, and sees that the last one was silent."""
    said(7, "long ago\n")
    said(8, "crashed\n")
    said(9, "")
    said(10, "")

    assert genagent("logs", "a", "--lives", "3").out == (
        "crashed\n--- the next life: b-9\n--- the next life: b-10\n"
    )
    silent = genagent("logs", "a", "--lives", "2")
    assert (silent.code, silent.out) == (0, "")
    assert "genagent logs --lives 3 a" in silent.err


def test_the_life_before_is_pointed_at(genagent: Command, said: Callable[[int, str], Path]) -> None:
    """What an agent was started again for stands there."""
    said(9, "crashed\n")
    said(10, "again\n")

    shown = genagent("logs", "a")

    assert shown.out == "again\n"
    assert shown.err == "an earlier life has a log, too; see: genagent logs --lives 2 a\n"


def test_in_json_each_line_has_its_life(
    genagent: Command, said: Callable[[int, str], Path]
) -> None:
    """A program that follows a log could not tell where one life ended."""
    said(9, "crashed\n")
    said(10, "again\n")

    shown = genagent("logs", "a", "--lives", "2", "--json")

    assert [json.loads(line) for line in shown.out.splitlines()] == [
        {"agent": "a", "line": "crashed", "incarnation": "b-9"},
        {"agent": "a", "line": "again", "incarnation": "b-10"},
    ]
    assert shown.err == ""


def test_a_life_alone_is_shown_even_if_it_said_nothing(
    genagent: Command, said: Callable[[int, str], Path]
) -> None:
    """It has a log, and there is nothing to point at."""
    said(1, "")

    shown = genagent("logs", "a")

    assert (shown.code, shown.out, shown.err) == (0, "", "")


def test_more_lives_are_shown_in_their_order_with_a_line_between(
    genagent: Command, said: Callable[[int, str], Path]
) -> None:
    """Also where one was cut off in the middle of a line. JSON has lines of agents only."""
    said(8, "long ago\n")
    said(9, "one\ncut o")
    said(10, "two\n")

    both = "one\ncut o\n--- the next life: b-10\ntwo\n"
    assert genagent("logs", "a", "--lives", "2").out == both
    assert genagent("logs", "a", "--lives", "2", "-n", "2").out == both.removeprefix("one\n")
    assert genagent("logs", "a", "--lives", "9").out.startswith("long ago\n--- the next life: b-9")
    assert "---" not in genagent("logs", "a", "--lives", "2", "--json").out


@pytest.mark.parametrize("size", ["less", "nothing"])
def test_a_log_that_is_emptied_is_followed_from_its_beginning(
    genagent: Command, said: Callable[[int, str], Path], monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    """By the daemon where it cannot move it aside, or by `copytruncate`."""
    log = said(1, "as long as anything\n")
    steps = iter(["empty", "more", "end"])

    def meanwhile(_seconds: float) -> None:
        match next(steps):
            case "empty":
                log.write_text("anew\n" if size == "less" else "")
            case "more":
                with log.open("a") as file:
                    file.write("and more\n")
            case _:
                raise KeyboardInterrupt

    monkeypatch.setattr("genagentd.cli.logs.time.sleep", meanwhile)

    followed = genagent("logs", "a", "-f")

    anew = "anew\n" if size == "less" else ""
    assert followed.out == f"as long as anything\n{anew}and more\n"


def test_what_stands_in_the_place_of_the_older_file_hides_nothing_of_the_log(
    genagent: Command, said: Callable[[int, str], Path]
) -> None:
    """The daemon could not move a log there, and said in it what was lost."""
    said(1, "still here\n").with_suffix(".log.1").mkdir()

    shown = genagent("logs", "a")

    assert (shown.code, shown.out, shown.err) == (0, "still here\n", "")


def test_a_log_is_followed_into_the_next_life(
    genagent: Command, said: Callable[[int, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart is what one waits for; nothing of either life is lost."""
    first = said(1, "before\n")
    steps = iter(["more", "restart", "end"])

    def meanwhile(_seconds: float) -> None:
        match next(steps):
            case "more":
                first.write_text("before\nlast words\ncut o")
                os.utime(first, (1, 1))
            case "restart":
                said(2, "again\n")
            case _:
                raise KeyboardInterrupt

    monkeypatch.setattr("genagentd.cli.logs.time.sleep", meanwhile)

    followed = genagent("logs", "a", "-f")

    assert followed.code == 130
    assert followed.out == "before\nlast words\ncut o\n--- the next life: b-2\nagain\n"


def test_a_log_that_is_not_there_for_a_moment_is_followed_on(
    genagent: Command, said: Callable[[int, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is moved aside first, and made anew then."""
    log = said(1, "before\n")
    steps = iter(["moved", "made", "end"])

    def meanwhile(_seconds: float) -> None:
        match next(steps):
            case "moved":
                log.rename(log.with_suffix(".log.1"))
            case "made":
                log.write_text("after\n")
            case _:
                raise KeyboardInterrupt

    monkeypatch.setattr("genagentd.cli.logs.time.sleep", meanwhile)

    followed = genagent("logs", "a", "-f")

    assert followed.out == "before\nafter\n"


def test_who_follows_a_log_that_was_removed_is_told(
    genagent: Command, said: Callable[[int, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting longer would look as if the agent had nothing to say."""
    log = said(1, "before\n")
    monkeypatch.setattr(
        "genagentd.cli.logs.time.sleep", lambda _seconds: log.unlink(missing_ok=True)
    )

    followed = genagent("logs", "a", "-f")

    assert (followed.code, followed.out) == (0, "before\n")
    assert followed.err == f"{log} was removed; nothing more can be shown\n"
