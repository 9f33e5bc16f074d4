"""`genagent attach` and `genagent call`: a person, or a script, at the other end of a call."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from genagentd.cli import exits
from genagentd.client.client import Client
from support.commands import Command, command, ran
from support.daemons import PrivateDaemon
from support.waiting import until

pytestmark = pytest.mark.process

TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def clerk(house: PrivateDaemon) -> Any:
    with Client(house.run) as client:
        handle = client.start_agent(
            "support.desk:Terminal", name="clerk", backend="echo", cwd=TESTS
        )
        yield client
        if client.whereis("clerk") == handle:
            client.stop("clerk")


def asking(client: Client, *questions: dict[str, Any]) -> threading.Thread:
    """Ask these one after another once somebody is attached, then stop the agent."""

    def ask() -> None:
        until(lambda: client.ask("clerk", "attached?").text and _attached(client), "it is attached")
        client.ask("clerk", json.dumps(questions))
        client.stop("clerk")

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def _attached(client: Client) -> bool:
    shown: Any = client.status("clerk").agent_state
    return bool(shown["attached"])


def test_a_terminal_shows_and_answers_until_the_agent_ends(
    clerk: Client, house: PrivateDaemon
) -> None:
    """A wrong answer to yes or no is asked again."""
    thread = asking(
        clerk,
        {"confirm": {"question": "Sure?\x1b[2J"}},
        {"ask": {"question": "Which?"}},
        {"show": {"text": "done"}},
    )
    attached = ran(house, "genagent", "attach", "clerk", stdin=b"maybe\ny\nthe blue one\n")
    thread.join()

    assert attached.code == exits.OK
    assert attached.out == "done\n"
    assert attached.err.count("yes or no?") == 2
    assert attached.err.count("yes or no is wanted, not 'maybe'") == 1
    assert "\x1b" not in attached.err
    assert "Which?" in attached.err


def test_a_script_at_the_terminal_gets_objects(clerk: Client, house: PrivateDaemon) -> None:
    """One a line, with the arguments as the agent gave them."""
    thread = asking(clerk, {"confirm": {"question": "Sure?", "detail": "really"}})
    attached = ran(house, "genagent", "attach", "clerk", "--json", stdin=b"n\n")
    thread.join()

    first, last = map(json.loads, attached.out.splitlines())
    assert first == {
        "function": "confirm",
        "arguments": {"question": "Sure?", "detail": "really"},
    }
    assert (last["ok"], last["state"]) == (True, "ended")


def test_a_script_answers_yes_or_no_in_its_own_words(clerk: Client, house: PrivateDaemon) -> None:
    """The booleans of JSON too; any other answer is asked again, and the question says why."""
    words = ["true", "false", '"yes"', "No"]
    thread = asking(clerk, *({"confirm": {"question": word}} for word in [*words, "last"]))
    typed = "".join(f"{word}\n" for word in [*words, "1", "Y"])
    attached = ran(house, "genagent", "attach", "clerk", "--json", stdin=typed.encode())
    thread.join()

    *asked, _ = map(json.loads, attached.out.splitlines())
    assert [said["arguments"]["question"] for said in asked] == [*words, "last", "last"]
    problems = [said.get("problem") for said in asked]
    assert problems == [*[None] * 5, "yes or no is wanted, not '1'"]
    logs = [path.read_text() for path in (house.run / "logs").rglob("*") if path.is_file()]
    assert any("[True, False, True, False, True]" in log for log in logs)


def test_what_was_typed_before_a_question_is_no_answer_to_it(
    clerk: Client, house: PrivateDaemon
) -> None:
    """A yes from before would approve what nobody has seen; later answers would be off by one."""
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"yes\nyes\n")
    attached = subprocess.Popen(
        command("genagent", "attach", "clerk"),
        env=house.environ,
        stdin=terminal,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with attached, open(keyboard, "wb", buffering=0) as typing:
        os.close(terminal)
        thread = asking(clerk, {"confirm": {"question": "Sure?"}}, {"ask": {"question": "Why?"}})
        assert attached.stderr is not None
        for prompt, answer in ((b"yes or no? ", b"no\n"), (b"> ", b"because\n")):
            shown = b""
            while prompt not in shown:
                shown += attached.stderr.read(1)
            typing.write(answer)
        thread.join()
        assert attached.wait(60) == exits.OK

    logs = [path.read_text() for path in (house.run / "logs").rglob("*") if path.is_file()]
    assert any("[False, 'because']" in log for log in logs)


@pytest.mark.parametrize("how", ["at its end", "a file", "closed"])
def test_nobody_at_the_terminal_is_told_to_the_agent(
    clerk: Client, house: PrivateDaemon, how: str
) -> None:
    """An end of input is no yes."""
    thread = asking(clerk, {"confirm": {"question": "Sure?"}})
    attach = shlex.join(command("genagent", "attach", "clerk"))
    redirected = {"at its end": "", "a file": " < /dev/null", "closed": " <&-"}[how]
    subprocess.run(
        attach + redirected, shell=True, env=house.environ, stdin=subprocess.DEVNULL, timeout=60
    )
    thread.join()

    logs = [path.read_text() for path in (house.run / "logs").rglob("*") if path.is_file()]
    assert any("NO_ANSWER" in log for log in logs)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("look_up_build", '{"sha": "9f"}'), exits.OK, '{"green": true, "sha": "9f"}\n'),
        (("look_up_build", '{"sha": "unknown"}'), exits.FAILED, ""),
        (("look_up_build", "[]"), exits.USAGE, ""),
        (("nothing",), exits.FAILED, ""),
    ],
)
def test_a_call_prints_its_value_or_says_why_there_is_none(
    genagent: Command, clerk: Client, arguments: tuple[str, ...], code: int, told: str
) -> None:
    """The value on standard output, everything else as one line of error."""
    ran = genagent("call", "clerk", *arguments)

    assert (ran.code, ran.out) == (code, told)


def test_the_code_of_a_failed_call_is_among_the_details(genagent: Command, clerk: Client) -> None:
    """Scripts branch on it."""
    ran = genagent("call", "clerk", "look_up_build", '{"sha": "unknown"}', "--json")

    assert ran.error == "function_failed"
    assert ran.json["error"]["details"] == {"code": "BUILD_UNKNOWN"}


@pytest.mark.parametrize("command", [("attach", "nobody"), ("call", "nobody", "f")])
def test_nobody_to_talk_to_is_exit_code_3(genagent: Command, command: tuple[str, ...]) -> None:
    """As everywhere."""
    assert genagent(*command).code == exits.NO_SUCH_AGENT


def test_an_agent_that_is_killed_takes_its_question_with_it(
    clerk: Client, house: PrivateDaemon
) -> None:
    """Whoever sits there is told at once, and not after an answer that nobody waits for."""
    handle = clerk.whereis("clerk")
    assert handle is not None
    question = {"confirm": {"question": "Sure?"}}
    keyboard, terminal = os.openpty()
    attached = subprocess.Popen(
        command("genagent", "attach", "clerk", "--json"),
        env=house.environ,
        stdin=terminal,
        stdout=subprocess.PIPE,
    )
    with attached:
        until(lambda: _attached(clerk), "it is attached")
        clerk.tell("clerk", json.dumps([question]))
        assert attached.stdout is not None
        assert json.loads(attached.stdout.readline())["function"] == "confirm"

        os.kill(handle.pid, signal.SIGKILL)

        told = json.loads(attached.stdout.readline())
        assert attached.wait(60) == exits.UNCERTAIN
    os.close(keyboard)
    os.close(terminal)

    assert told["error"]["code"] == "process_down"


def test_a_function_that_is_not_offered_is_told_with_those_that_are(
    genagent: Command, clerk: Client
) -> None:
    """Nobody has to read the agent's code to call it."""
    clerk.start_agent(None, name="mute", backend="echo")
    wrong = genagent("call", "clerk", "foo", "--json")
    mute = genagent("call", "mute", "foo")

    assert (wrong.code, wrong.error) == (exits.FAILED, "function_failed")
    assert wrong.json["error"]["message"] == "clerk offers no function foo"
    with clerk.attach("clerk") as session:
        assert wrong.json["error"]["details"]["offered"] == sorted(session.offered)
    assert (mute.code, mute.err) == (
        exits.FAILED,
        "genagent: mute offers no function foo (it offers none)\n",
    )


def test_a_call_that_is_not_back_in_time_is_exit_code_5(genagent: Command, clerk: Client) -> None:
    """As with every limit of waiting: there is no outcome yet."""
    ran = genagent("call", "clerk", "hangs", "--timeout", "0.05", "--json")

    assert (ran.code, ran.error) == (exits.PENDING, "timeout")
    assert ran.json["error"]["details"] == {"code": "TIMEOUT"}


def test_a_call_whose_agent_ends_is_exit_code_6(genagent: Command, clerk: Client) -> None:
    """Nobody knows what it had done; the function did not fail."""
    ran = genagent("call", "clerk", "kills_itself", "--timeout", "60", "--json")

    assert (ran.code, ran.error) == (exits.UNCERTAIN, "process_down")
    assert ran.json["error"]["message"] == "clerk: the agent is gone (signal:9)"
    assert ran.json["error"]["details"] == {"code": "CANCELLED"}


def test_arguments_that_are_no_object_are_told_in_part(genagent: Command, clerk: Client) -> None:
    """However long they are."""
    ran = genagent("call", "clerk", "look_up_build", json.dumps("x" * 5_000))

    assert ran.code == exits.USAGE
    assert len(ran.err) < 200
