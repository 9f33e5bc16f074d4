"""A line of the log goes out whole and at once, or it is lost and counted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagentd.daemon import report, standard_error
from genagentd.daemon.standard_error import StandardError
from genagentd.paths import make_private
from genagentd.private_files import open_appending
from support.full_disk import at_most

PAGE = 4096


@contextlib.contextmanager
def stood(fd: int) -> Iterator[None]:
    """Have *fd* be standard output and error meanwhile; it is closed."""
    before = [os.dup(standard) for standard in (1, 2)]
    for standard in (1, 2):
        os.dup2(fd, standard)
    os.close(fd)
    try:
        yield
    finally:
        for standard, kept in zip((1, 2), before, strict=True):
            os.dup2(kept, standard)
            os.close(kept)


@contextlib.contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Have the daemon's log go to *path*, which it looks after."""
    with stood(open_appending(path)):
        report.configure("json")
        report.keep_log(path)
        try:
            yield
        finally:
            report._stream = StandardError(report._opened)


def opened(path: str) -> int:
    return open_appending(path)


def drain(read: int) -> bytes:
    """Return all that is in the pipe."""
    said = b""
    while select.select([read], [], [], 0)[0]:
        said += os.read(read, 1 << 16)
    return said


@pytest.fixture(params=["reopened", "anothers"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to a pipe: one of our own, and the one that is left where it is not ours."""
    if request.param == "anothers":
        monkeypatch.setattr(standard_error, "_once_more", _refused)


def _refused() -> int:
    raise PermissionError


@pytest.mark.usefixtures("way")
def test_a_line_longer_than_what_a_pipe_still_takes_waits_for_nobody() -> None:
    """A poll says that one page is free, not that a line is; the next line says what was lost."""
    read, write = os.pipe()
    room = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    with stood(write):
        stream = StandardError(opened)
        os.write(2, b"x" * (room - PAGE - 1) + b"\n")

        stream.write("y" * (2 * PAGE) + "\n")
        stream.write("lost\n")
        dropped = stream.dropped
        drain(read)
        stream.write("next\n")
        stream.write("another\n")

        assert dropped == 2
        assert stream.dropped == 0
        assert drain(read) == b"\nnext\nanother\n"
        assert os.get_blocking(2)
    os.close(read)


def test_a_terminal_that_nobody_reads_is_not_waited_for() -> None:
    """There a poll promises a single byte, and whoever shares it must go on to wait."""
    master, terminal = pty.openpty()
    with stood(terminal):
        stream = StandardError(opened)

        for _ in range(40):
            stream.write("x" * 3_000 + "\n")

        assert stream.dropped > 0
        assert os.get_blocking(2)
    os.close(master)


@pytest.mark.parametrize("reopenable", [True, False])
@given(st.lists(st.tuples(st.integers(1, 3 * PAGE), st.booleans()), max_size=30))
def test_every_line_is_read_whole_or_counted(
    reopenable: bool, lines: list[tuple[int, bool]]
) -> None:
    """Whatever the reader does meanwhile, no line is glued to another one."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 2 * PAGE)
    texts = {number: f"{number} {'x' * size}" for number, (size, _) in enumerate(lines)}
    said = b""
    told: dict[int, int] = {}
    with stood(write), pytest.MonkeyPatch.context() as patch:
        if not reopenable:
            patch.setattr(standard_error, "_once_more", _refused)
        stream = StandardError(opened)
        for number, (_, reads) in enumerate(lines):
            told[number] = stream.dropped
            stream.write(f"{texts[number]}\n")
            if reads:
                said += drain(read)
        said += drain(read)
        left = stream.dropped
    os.close(read)

    found = said.decode().split("\n")
    whole = [number for number, text in texts.items() if text in found]
    assert len(whole) + sum(told[number] for number in whole) + left == len(lines)
    for text in set(found) - {"", *texts.values()}:
        assert any(lost.startswith(text) for lost in texts.values())


def test_a_line_that_a_full_disk_cut_is_counted_and_ended(tmp_path: Path) -> None:
    """Glued to it, the next event would be unreadable as well."""
    log = tmp_path / "genagentd.log"
    with logging_to(log):
        report.report("first")
        with at_most(log.stat().st_size + 20):
            report.report("cut")
            report.report("lost")
        report.warn("next")
        report.report("after")

    first, _, third, fourth = log.read_text().splitlines()
    assert json.loads(first)["event"] == "first"
    assert (json.loads(third)["event"], json.loads(third)["lines_dropped"]) == ("next", 2)
    assert "lines_dropped" not in json.loads(fourth)


def test_a_line_that_an_earlier_life_left_cut_is_ended(tmp_path: Path) -> None:
    """It may have ended because of the full disk."""
    log = tmp_path / "genagentd.log"
    log.write_bytes(b'{"event": "cu')
    with logging_to(log):
        report.report("next")

    assert json.loads(log.read_text().splitlines()[1])["event"] == "next"


def test_a_log_whose_second_file_is_in_the_way_of_nothing_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be moved aside is emptied, and that is said once each time."""
    monkeypatch.setattr(standard_error, "MAX_BYTES", 2_000)
    log = tmp_path / "genagentd.log"
    (tmp_path / "genagentd.log.1" / "full").mkdir(parents=True)
    most, told = 0, 0
    with logging_to(log):
        for number in range(100):
            report.report("line", number=number)
            most = max(most, log.stat().st_size)
            said = [json.loads(line)["event"] for line in log.read_text().splitlines()]
            told += said[1:2] == ["log.emptied"] and len(said) == 2

    assert most <= 2_000
    assert said[:2] == ["line", "log.emptied"]
    assert said.count("log.emptied") == 1
    assert told > 1


def test_a_log_that_was_removed_with_its_directory_is_made_anew_and_private(
    tmp_path: Path,
) -> None:
    """Without it nothing would be told of any agent, and nobody would notice."""
    log = tmp_path / "logs" / "genagentd.log"
    make_private(log.parent)
    with logging_to(log):
        report.report("before")
        log.unlink()
        log.parent.rmdir()

        report.reopen()
        report.report("after")

    make_private(log.parent)
    assert [json.loads(line)["event"] for line in log.read_text().splitlines()] == ["after"]


def test_a_log_that_cannot_be_opened_anew_says_so_where_it_still_goes(tmp_path: Path) -> None:
    """An operator who moved it away would look for lines in a file that is not there."""
    log = tmp_path / "genagentd.log"
    with logging_to(log):
        log.rename(tmp_path / "moved")
        log.mkdir()

        report.reopen()

    [line] = (tmp_path / "moved").read_text().splitlines()
    assert json.loads(line)["event"] == "log.lost"
    assert str(log) in json.loads(line)["message"]


def test_who_has_let_go_of_a_log_writes_into_the_one_that_is_there_now(tmp_path: Path) -> None:
    """Held for ever, one that was removed would keep its room on the disk."""
    log = tmp_path / "genagentd.log"
    with stood(open_appending(log)):
        stream = StandardError(opened)
        stream.keep(str(log))
        held = os.fstat(2).st_ino
        stream.let_go()
        assert os.fstat(2).st_ino != held
        log.rename(tmp_path / "moved")

        stream.reopen()
        stream.write("said\n")

    assert log.read_text() == "said\n"
    assert (tmp_path / "moved").read_text() == ""


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("named", [True, False])
def test_the_journal_is_told_how_much_a_line_matters(
    named: bool, log_format: Literal["json", "console"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`journalctl -p warning` showed none of ours; elsewhere it would be noise in every line."""
    read, write = socket.socketpair()
    found = os.fstat(write.fileno())
    inode = found.st_ino + (0 if named else 1)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{inode}")
    with read, stood(write.detach()):
        report.configure(log_format)
        report.report("ready")
        report.warn("disk.full")
        lines = read.recv(1 << 16).decode().splitlines()

    marks = ["<6>", "<4>"] if named else ["", ""]
    for line, mark, event in zip(lines, marks, ["ready", "disk.full"], strict=True):
        assert line.startswith(f"{mark}{'{' if log_format == 'json' else '2'}")
        assert event in line
