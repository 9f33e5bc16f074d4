"""What only whole processes show: pipes, signals, terminals, locales."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess

import pytest

from support.commands import command, ran
from support.daemons import PrivateDaemon
from support.waiting import until

pytestmark = pytest.mark.process


def test_output_can_be_piped_to_one_who_stops_reading(house: PrivateDaemon) -> None:
    """No traceback when the reader has enough."""
    ran(house, "genagent", "start", "b")
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            command("genagent", "ask", "b", "-"),
            env=house.environ,
            input=b"x" * 500_000,
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
        )

    assert done.returncode == 1
    assert done.stderr == b""


def test_ctrl_c_while_waiting_is_exit_130_and_cancels_nothing(house: PrivateDaemon) -> None:
    """The ref was printed; the turn goes on."""
    turn = '[{"pause_ms": 1000}, {"kind": "text", "text": "done"}, {"kind": "result"}]'
    ran(house, "genagent", "start", "c", "--backend", "scripted", "-o", f"script=[{turn}]")
    with subprocess.Popen(
        command("genagent", "tell", "c", "p", "--wait"),
        env=house.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waits:
        assert waits.stdout is not None
        ref = waits.stdout.readline().strip()
        waits.send_signal(signal.SIGINT)
        _, err = waits.communicate(timeout=30)

    assert waits.returncode == 130
    assert err == (
        "genagent: stopped waiting; nothing was cancelled "
        f"(ask again with: genagent poll c {ref})\n"
    )
    until(lambda: ran(house, "genagent", "poll", "c", ref).out == "done\n", "it is completed")


def test_ctrl_c_while_waiting_for_json_leaves_the_ref(house: PrivateDaemon) -> None:
    """Otherwise a script could never ask for it again."""
    ran(
        house, "genagent", "start", "j", "--backend", "scripted", "-o", 'script=[[{"hang":"idle"}]]'
    )
    with subprocess.Popen(
        command("genagent", "tell", "j", "p", "--wait", "--json"),
        env=house.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waits:
        running = until(
            lambda: json.loads(ran(house, "genagent", "status", "j", "--json").out)[
                "current_request"
            ],
            "it runs",
        )
        waits.send_signal(signal.SIGINT)
        out, err = waits.communicate(timeout=30)

    assert (waits.returncode, err) == (130, "")
    error = json.loads(out)["error"]
    assert (error["code"], error["details"]["ref"]) == ("interrupted", running)


def test_a_killed_daemon_is_what_a_waiting_tell_blames() -> None:
    """And not the agent, of which nobody knows more."""
    private = PrivateDaemon().start()
    try:
        ran(
            private,
            *("genagent", "start", "k", "--backend", "scripted"),
            *("-o", 'script=[[{"hang":"idle"}]]'),
        )
        with subprocess.Popen(
            command("genagent", "tell", "k", "p", "--wait"),
            env=private.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as waits:
            assert waits.stdout is not None
            waits.stdout.readline()
            private.kill()
            _, err = waits.communicate(timeout=30)
    finally:
        private.stop()
        private.cleanup()

    assert waits.returncode == 6
    assert "the connection to the daemon was lost; its outcome is unknown" in err
    assert err.count("\n") == 1


def test_ctrl_c_of_an_ask_is_one_line(house: PrivateDaemon) -> None:
    """E052: in the middle of a call, exit 130 and no traceback."""
    ran(
        house, "genagent", "start", "d", "--backend", "scripted", "-o", 'script=[[{"hang":"idle"}]]'
    )
    with subprocess.Popen(
        command("genagent", "ask", "d", "p"),
        env=house.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as asks:
        until(
            lambda: (
                json.loads(ran(house, "genagent", "snapshot", "d", "--json").out)["phase"]
                == "processing"
            ),
            "the turn runs",
        )
        asks.send_signal(signal.SIGINT)
        out, err = asks.communicate(timeout=30)

    assert (asks.returncode, out, err.count("\n")) == (130, "", 1)
    assert err.startswith("genagent: stopped waiting; the turn runs on if it had begun")
    ran(house, "genagent", "stop", "d")


def on_a_terminal(place: PrivateDaemon, *arguments: str) -> str:
    """Return what a command writes when its standard output is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*arguments), env=place.environ, stdout=theirs, stdin=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        written = b""
        while select.select([ours], [], [], 30)[0]:
            try:
                written += os.read(ours, 65_536)
            except OSError:
                break
        process.wait(30)
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


def test_text_of_a_provider_cannot_control_a_terminal(house: PrivateDaemon) -> None:
    """Escapes are shown on a terminal, and kept in a pipe."""
    ran(house, "genagent", "start", "g")
    evil = "red \x1b[31m title \x1b]0;x\x07 end\nnext\tline"

    shown = on_a_terminal(house, "genagent", "ask", "g", evil)
    assert shown == "red \\x1b[31m title \\x1b]0;x\\x07 end\nnext\tline\n"
    assert ran(house, "genagent", "ask", "g", evil).out == evil + "\n"


def test_logs_are_followed_until_ctrl_c(house: PrivateDaemon) -> None:
    """What is printed from now on comes at once, in whole lines."""
    turn = '[{"print": "spoken\\n"}, {"kind": "result"}]'
    ran(
        house,
        *("genagent", "start", "h", "--backend", "scripted"),
        *("-o", f"script=[{turn}]", "-o", "repeat=true"),
    )
    with subprocess.Popen(
        command("genagent", "logs", "h", "-f"),
        env=house.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as follows:
        assert follows.stdout is not None
        for _ in range(2):
            ran(house, "genagent", "ask", "h", "p")
            while follows.stdout.readline() != "spoken\n":
                pass
        follows.send_signal(signal.SIGINT)
        _, err = follows.communicate(timeout=30)

    assert (follows.returncode, err.strip()) == (130, "")


def test_the_locale_does_not_change_what_is_written(house: PrivateDaemon) -> None:
    """UTF-8 in, UTF-8 out."""
    ran(house, "genagent", "start", "i")
    done = subprocess.run(
        command("genagent", "ask", "i", "-"),
        env=house.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        input="ä \U0001f600".encode(),
        capture_output=True,
        timeout=60,
    )

    assert done.stdout.decode() == "ä \U0001f600\n"
