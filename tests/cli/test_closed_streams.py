"""Standard streams that are closed or full change nothing but what can be read of a command."""

from __future__ import annotations

import itertools
import subprocess

import pytest

from genagentd.client.client import Client
from support.commands import Ran, command, ran
from support.daemons import PrivateDaemon

pytestmark = pytest.mark.process

#: How a shell takes the streams away. What is left is captured.
STREAMS = ["<&-", ">&-", "2>&-", "2>/dev/full", "<&- >&- 2>&-", ">&- 2>/dev/full"]
#: Each command and what it ends with, whatever its streams are.
COMMANDS = [
    (("genagent", "list"), 0),
    (("genagent", "list", "--json"), 0),
    (("genagent", "tell", "b", "p"), 0),
    (("genagent", "ask", "b", "p", "--json"), 0),
    (("genagent", "tell", "nobody", "p"), 3),
    (("genagent", "tell", "nobody", "p", "--json"), 3),
    (("genagent", "poll", "b", "no-ref"), 2),
    (("genagent", "--help"), 0),
    (("genagentd", "status"), 0),
    (("genagentd", "run"), 4),
]


def with_streams(house: PrivateDaemon, streams: str, *arguments: str) -> Ran:
    """Run a command as a shell does that redirects its streams."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", *command(*arguments)],
        env=house.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(autouse=True)
def agent(house: PrivateDaemon) -> None:
    """One agent, `b`."""
    with Client(house.run) as client:
        if client.whereis("b") is None:
            client.start_agent(None, name="b", backend="echo")


@pytest.mark.parametrize(
    ("arguments", "code", "streams"), [(*row, s) for row, s in itertools.product(COMMANDS, STREAMS)]
)
def test_the_exit_code_says_what_happened(
    house: PrivateDaemon, arguments: tuple[str, ...], code: int, streams: str
) -> None:
    """A closed stream is one that nobody reads, and the lines of a full one are lost."""
    done = with_streams(house, streams, *arguments)

    assert done.code == code
    assert "Traceback" not in done.err
    assert "Exception" not in done.err


@pytest.mark.parametrize("stderr", ["", "2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("arguments", "code"), COMMANDS)
def test_an_answer_that_cannot_be_written_is_a_failure(
    house: PrivateDaemon, arguments: tuple[str, ...], code: int, stderr: str
) -> None:
    """In one line, and what had failed anyway fails as it would."""
    done = with_streams(house, f">/dev/full {stderr}", *arguments)

    assert done.code == (code or 1)
    assert done.err.count("\n") == (0 if stderr else 1)
    if not code and not stderr:
        assert "answer could not be written: No space left on device" in done.err


@pytest.mark.parametrize("flags", [(), ("--json",), ("--wait",)])
def test_a_ref_that_cannot_be_written_is_in_the_line(
    house: PrivateDaemon, flags: tuple[str, ...]
) -> None:
    """The prompt is accepted, and somebody may want to poll for it."""
    done = with_streams(house, ">/dev/full", "genagent", "tell", "b", "hello", *flags)

    accepted, _, why = done.err.partition(", but the answer could not be written: ")
    assert (done.code, why) == (1, "No space left on device\n")
    ref = accepted.removeprefix("genagent: accepted as ")
    assert ran(house, "genagent", "poll", "b", ref).code in (0, 5)


@pytest.mark.parametrize(
    ("streams", "why"), [("<&-", "stdin, which is closed"), ("0>/dev/null", "stdin: Bad file")]
)
def test_a_prompt_from_a_stdin_that_is_none_is_refused(
    house: PrivateDaemon, streams: str, why: str
) -> None:
    """In one line."""
    done = with_streams(house, streams, "genagent", "tell", "b", "-")

    assert done.code == 2
    assert why in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("streams", "code"), [(">&- 2>&- <&-", 0), (">/dev/full", 1)])
def test_a_daemon_starts_whatever_the_streams_are(streams: str, code: int) -> None:
    """It is up; only whether that could be said differs."""
    private = PrivateDaemon()
    try:
        done = with_streams(private, streams, "genagentd", "start")
        up = ran(private, "genagentd", "status").code
        stopped = with_streams(private, streams, "genagentd", "stop")
    finally:
        private.cleanup()

    assert (done.code, up, stopped.code) == (code, 0, code)
    if code:
        assert "genagentd: running (pid " in done.err
