"""`genagent`, command by command, against a real daemon."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genagent_backends.gates import Gates
from genagent_protocol.supervision.terms import RestartPolicy
from genagentd.client.client import Client
from genagentd.paths import Places
from support import fleet
from support.commands import Command, Ran, ran
from support.daemons import PrivateDaemon
from support.waiting import until

pytestmark = pytest.mark.process

REF = re.compile(r"[0-9a-f]{16}-\d+-[0-9a-f]{32}")
GATE_TURN = (
    '[{"gate": "g", "timeout_ms": 60000}, {"kind": "text", "text": "done"}, {"kind": "result"}]'
)


@pytest.fixture
def gates() -> Iterator[Gates]:
    with Gates() as opened:
        yield opened


def start_gated(genagent: Command, gates: Gates, *options: str) -> None:
    """Start the agent `a`, whose every turn waits at the gate `g`."""
    given = [f"script=[{GATE_TURN}]", "repeat=true", f"gate_dir={gates.directory}", *options]
    flags = [word for option in given for word in ("-o", option)]
    assert genagent("start", "a", "--backend", "scripted", *flags).code == 0


def told(genagent: Command, *arguments: str) -> str:
    """Tell the agent `a` something and return the ref."""
    ran = genagent("tell", "a", *arguments)
    assert ran.code == 0, ran.err
    assert REF.fullmatch(ran.out.strip())
    return ran.out.strip()


# --- start, list, stop


def test_an_agent_is_started_asked_listed_and_stopped(genagent: Command) -> None:
    """The four commands of the first minute, and data on standard output only."""
    assert genagent("start", "a").out.startswith("a started (pid ")
    asked = genagent("ask", "a", "hello")
    assert (asked.code, asked.out, asked.err) == (0, "hello\n", "")
    listed = genagent("list").out.splitlines()
    assert listed[0].split() == ["NAME", "STATE", "PID", "AGE", "BACKEND", "AGENT", "RESTARTS"]
    assert listed[1].split()[:2] == ["a", "running"]
    assert genagent("ps").out.splitlines()[0] == listed[0]
    assert genagent("stop", "a").out == "stopped (shutdown)\n"
    assert genagent("list", "--json").json == {"ok": True, "agents": []}


def test_an_agent_that_runs_again_does_not_look_as_if_it_had_failed(genagent: Command) -> None:
    """How its life before ended is no verdict about this one."""
    first = genagent("start", "a", "--restart", "permanent", "--json").json
    os.kill(first["pid"], signal.SIGKILL)

    def again() -> bool:
        [row] = genagent("list", "--json").json["agents"]
        return bool(row["state"] == "running" and row["restarts"] == 1)

    until(again, "it runs again")
    [_, row] = genagent("list").out.splitlines()
    assert "running (last end: signal:9)" in row


def test_what_start_prints_identifies_the_process(genagent: Command) -> None:
    """A script can capture the handle."""
    found = genagent("start", "a", "--json").json

    assert set(found) == {"ok", "name", "incarnation", "pid", "started_ticks", "place"}
    [row] = genagent("list", "--json").json["agents"]
    assert row["handle"] == {key: value for key, value in found.items() if key != "ok"}
    assert set(row) == {
        *("name", "state", "handle", "agent", "backend", "group", "age_ms", "restarts"),
        *("reason", "error", "unresponsive_since_ms", "log", "group_owner_pid", "watchdog_ms"),
    }


def test_a_second_start_of_a_name_is_refused(genagent: Command) -> None:
    """D42."""
    genagent("start", "a")

    again = genagent("start", "a", "--json")

    assert (again.code, again.error) == (4, "already_started")


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("--agent", "nowhere:Nobody"), 1, "import_failed"),
        (("--agent", "nocolon"), 2, "usage"),
        (("--backend", "nope"), 1, "unknown_backend"),
        (("-o", "watchdog_ms=-5"), 2, "invalid_limits"),
        (("-o", "novalue"), 2, "usage"),
        (("--restart", "always"), 2, "usage"),
        (("--cwd", "/no/such/directory"), 1, "bad_directory"),
    ],
)
def test_a_start_that_cannot_be_is_one_line_and_leaves_the_name_free(
    genagent: Command, arguments: tuple[str, ...], code: int, error: str
) -> None:
    """What, which agent, what to do; never a traceback."""
    failed = genagent("start", "a", *arguments)
    as_json = genagent("start", "a", *arguments, "--json")

    assert (failed.code, as_json.code, as_json.error) == (code, code, error)
    assert failed.out == ""
    assert failed.err.startswith("genagent: ")
    assert failed.err.count("\n") == 1
    assert "Traceback" not in failed.err
    assert genagent("start", "a").code == 0


def test_an_agent_runs_where_its_starter_stands(
    genagent: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D41: the working directory is the caller's, and its modules can be imported."""
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "from genagentd import Agent, NoReply\n"
        "class Mine(Agent):\n"
        "    def handle_response(self, ref, response, state):\n"
        "        return NoReply(state)\n"
        "    def show_state(self, state):\n"
        "        return [os.getcwd(), os.environ['MARK']]\n"
    )
    monkeypatch.chdir(tmp_path)

    started = genagent("start", "a", "--agent", "mine:Mine", "--env", "MARK=7")
    assert started.code == 0, started.err

    assert genagent("status", "a", "--json").json["agent_state"] == [str(tmp_path), "7"]


@pytest.mark.parametrize("typed", ["spaces and ä", 'json:["a",1]', "json:1", "-dash"])
def test_names_are_typed_and_shown_alike(genagent: Command, typed: str) -> None:
    """Other than text as json:; a dash after --."""
    assert genagent("start", "--", typed).code == 0
    assert genagent("ask", "--", typed, "hello").out == "hello\n"
    shown = genagent("list").out.splitlines()[1]
    assert shown.startswith(typed.replace(",", ", "))
    assert genagent("stop", "--", typed).code == 0


# --- ask and tell


def test_a_prompt_arrives_byte_for_byte(genagent: Command, tmp_path: Path) -> None:
    """200 kB with newlines, quotes and emoji, from standard input and from a file."""
    prompt = "\"'\\ \r\n\t$(x) \U0001f600 ä " * 9_000
    file = tmp_path / "prompt"
    file.write_bytes(prompt.encode())
    genagent("start", "a")

    assert genagent("ask", "a", "-", stdin=prompt.encode()).out == prompt + "\n"
    assert genagent("ask", "a", "--file", str(file)).out == prompt + "\n"
    assert genagent("ask", "a", prompt).out == prompt + "\n"


def test_a_failed_turn_is_exit_one(genagent: Command) -> None:
    """With the backend's reason as its code."""
    genagent("start", "a", "--backend", "scripted", "-o", 'script=[{"error": "quota"}]')

    failed = genagent("ask", "a", "p", "--json")

    assert (failed.code, failed.error) == (1, "backend_failed")


def test_an_ask_that_takes_too_long_says_what_becomes_of_it(
    genagent: Command, gates: Gates
) -> None:
    """Exit 5: the turn that has begun goes on, and what is queued goes with its caller."""
    start_gated(genagent, gates)

    begun = genagent("ask", "a", "p", "--timeout", "0.5")
    gates.wait_blocked("g", 30_000)
    queued = genagent("ask", "a", "q", "--timeout", "0.5", "--json")

    assert (begun.code, begun.err.count("\n")) == (5, 1)
    assert "runs on if it had begun, and is dropped if it was still queued" in begun.err
    assert "genagent tell a" in begun.err
    assert (queued.code, queued.error) == (5, "timeout")
    status = "status", "a", "--json"
    until(lambda: genagent(*status).json["queued"] == 0, "the queued one is dropped")
    assert genagent(*status).json["current_request"] is not None
    gates.release("g")


def test_tell_prints_the_ref_and_poll_follows_it(genagent: Command, gates: Gates) -> None:
    """Pending is exit 5; the response is the data."""
    start_gated(genagent, gates)

    ref = told(genagent, "p")
    gates.wait_blocked("g", 30_000)
    pending = genagent("poll", "a", ref)
    assert (pending.code, pending.out) == (5, "pending\n")
    assert genagent("poll", "a", ref, "--json").json["state"] == "pending"
    gates.release("g")

    until(lambda: genagent("poll", "a", ref).code == 0, "it is completed")
    assert genagent("poll", "a", ref).out == "done\n"
    done = genagent("poll", "a", ref, "--json").json
    assert (done["state"], done["text"], done["ref"]) == ("completed", "done", ref)


@pytest.mark.parametrize("wait", [("--wait", "0.05"), ("--wait=0.05",)])
def test_waiting_shorter_than_the_turn_prints_the_ref_and_cancels_nothing(
    genagent: Command, gates: Gates, wait: tuple[str, ...]
) -> None:
    """E098: exit 5; a later poll gives the result."""
    start_gated(genagent, gates)

    waited = genagent("tell", "a", "p", *wait)
    assert waited.code == 5
    assert "nothing was cancelled" in waited.err
    ref = waited.out.strip()
    gates.release("g")

    until(lambda: genagent("poll", "a", ref).out == "done\n", "it is completed")


@pytest.mark.parametrize(
    "arguments", [("a", "p", "--wait"), ("--wait", "a", "p"), ("a", "p", "--wait", "30")]
)
def test_waiting_prints_the_ref_and_then_the_response(
    genagent: Command, arguments: tuple[str, ...]
) -> None:
    """A bare `--wait` takes no value from what follows."""
    genagent("start", "a")

    waited = genagent("tell", *arguments)

    assert waited.code == 0, waited.err
    ref, response = waited.out.splitlines()
    assert REF.fullmatch(ref)
    assert response == "p"


def test_waiting_in_json_is_one_object(genagent: Command) -> None:
    """Ref, state and response together."""
    genagent("start", "a")

    done = genagent("tell", "a", "p", "--wait", "--json").json

    assert (done["ok"], done["state"], done["text"], done["agent"]) == (True, "completed", "p", "a")
    assert REF.fullmatch(done["ref"])
    accepted = genagent("tell", "a", "p", "--json").json
    assert set(accepted) == {"ok", "state", "agent", "ref"}


def test_streaming_prints_text_as_it_comes_and_not_again(genagent: Command) -> None:
    """The response is not repeated after its own stream."""
    turn = '[{"kind":"text","text":"one "},{"kind":"text","text":"two"},{"kind":"result"}]'
    genagent("start", "a", "--backend", "scripted", "-o", f"script=[{turn}]", "-o", "repeat=true")

    streamed = genagent("tell", "a", "p", "--stream")
    lines = genagent("tell", "a", "p", "--stream", "--json").out.splitlines()

    assert streamed.out.splitlines()[1:] == ["one two"]
    objects = [json.loads(line) for line in lines]
    assert [found.get("event") for found in objects] == ["text", "text", "result", None]
    assert objects[-1]["state"] == "completed"


def test_streaming_shows_where_a_message_begins(genagent: Command) -> None:
    """Two messages of one turn are not one word; the first has nothing before it."""
    script: list[object] = [
        [
            *({"kind": "text", "text": text, "message_boundary": True} for text in ("a", "", "b")),
            {"kind": "result"},
        ]
    ]
    genagent("start", "a", "--backend", "scripted", "-o", f"script={json.dumps(script)}")

    streamed = genagent("tell", "a", "p", "--stream")

    assert streamed.out.splitlines()[1:] == ["a", "", "b"]


def test_a_refused_tell_has_no_ref(genagent: Command, gates: Gates) -> None:
    """Exit 4, nothing on standard output."""
    start_gated(genagent, gates, "max_pending_prompts=0")
    told(genagent, "active")
    gates.wait_blocked("g", 30_000)

    refused = genagent("tell", "a", "too many")
    as_json = genagent("tell", "a", "too many", "--json")

    assert (refused.code, refused.out) == (4, "")
    assert (as_json.code, as_json.error) == (4, "overloaded")
    assert as_json.json["error"]["details"]["max_count"] == 0
    gates.release("g")


def test_a_halted_agent_can_be_told_to_refuse(genagent: Command) -> None:
    """`--on-halt fail`."""
    genagent("start", "a")
    genagent("halt", "a")

    assert genagent("tell", "a", "p", "--on-halt", "fail", "--json").error == "halted"
    ref = told(genagent, "p")
    assert genagent("poll", "a", ref).code == 5
    genagent("resume", "a")
    until(lambda: genagent("poll", "a", ref).out == "p\n", "it ran")


def test_the_death_of_the_agent_makes_the_outcome_uncertain(genagent: Command) -> None:
    """Exit 6, with the reason, and never a response."""
    genagent("start", "a", "--backend", "scripted", "-o", 'script=[[{"os_exit": 3}]]')

    died = genagent("tell", "a", "p", "--wait", "--json")

    assert (died.code, died.error) == (6, "uncertain")
    assert died.json["error"]["details"]["reason"] == "exit:3"
    # The process may end before its admission has left it.
    assert died.json["error"]["details"]["accepted"] in (True, None)


# --- control


def test_cancel_and_interrupt_say_what_they_did(genagent: Command, gates: Gates) -> None:
    """D42: current 4, already finished 4, not found 3, idle 4."""
    start_gated(genagent, gates)
    active = told(genagent, "p")
    gates.wait_blocked("g", 30_000)
    queued = told(genagent, "p")

    assert genagent("cancel", "a", queued).out == "cancelled\n"
    assert genagent("poll", "a", queued, "--json").error == "cancelled"
    current = genagent("cancel", "a", active, "--json")
    assert (current.code, current.error) == (4, "current")
    wrong = genagent("interrupt", "a", queued, "--json")
    assert (wrong.code, wrong.error) == (4, "not_current")
    assert genagent("interrupt", "a", active).out == "accepted\n"
    finished = genagent("cancel", "a", active, "--json")
    assert (finished.code, finished.error) == (4, "already_finished")
    idle = genagent("interrupt", "a", active, "--json")
    assert (idle.code, idle.error) == (4, "idle")
    unknown = active[:-1] + ("0" if active[-1] != "0" else "1")
    missing = genagent("cancel", "a", unknown, "--json")
    assert (missing.code, missing.error) == (3, "not_found")


def test_interrupt_without_a_ref_stops_whatever_runs(genagent: Command, gates: Gates) -> None:
    """Sent, not acknowledged."""
    start_gated(genagent, gates)
    ref = told(genagent, "p")
    gates.wait_blocked("g", 30_000)

    assert genagent("interrupt", "a").out == "sent\n"

    until(lambda: genagent("poll", "a", ref).code == 1, "it is interrupted")


def test_notify_sends_json_or_text(genagent: Command) -> None:
    """And with --ack waits until it was handled."""
    genagent(
        *("start", "a", "--agent", "support.talkers:Noting", "--backend", "scripted"),
        *("--cwd", str(fleet.HERE)),
    )

    assert genagent("notify", "a", '{"n": 1}', "--ack").out == "accepted\n"
    assert genagent("notify", "a", "-", stdin=b"plain words").out == "sent\n"

    assert genagent("status", "a", "--json").json["agent_state"] == [{"n": 1}, "plain words"]


def test_drain_reset_status_and_snapshot(genagent: Command) -> None:
    """Each has words for people and keys for scripts."""
    genagent("start", "a")
    genagent("ask", "a", "p")

    assert genagent("status", "a").out.startswith("a: idle, 0 queued")
    assert "phase                  idle" in genagent("snapshot", "a").out
    snapshot = genagent("snapshot", "a", "--json").json
    assert {"phase", "halted", "pending_prompts", "current_request"} <= set(snapshot)
    assert genagent("reset", "a").code == 0
    assert genagent("drain", "a").out == "drained\n"
    assert genagent("status", "a").code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "x", "p"),
        ("tell", "x", "p"),
        ("notify", "x", "e"),
        ("notify", "x", "e", "--ack"),
        ("interrupt", "x"),
        ("resume", "x"),
        ("halt", "x"),
        ("drain", "x"),
        ("stop", "x"),
        ("reset", "x"),
        ("status", "x"),
        ("snapshot", "x"),
        ("logs", "x"),
    ],
)
def test_a_name_that_nobody_has_is_exit_three(genagent: Command, arguments: Any) -> None:
    """Casts too: a person wants to know."""
    missing = genagent(*arguments, "--json")

    assert (missing.code, missing.error) == (3, "not_found")
    assert "no agent " in missing.json["error"]["message"]
    assert "named x" in missing.json["error"]["message"]


@pytest.mark.parametrize("verb", ["reset", "snapshot", "stop", "drain"])
def test_a_missing_agent_is_told_in_the_words_of_the_command(genagent: Command, verb: str) -> None:
    """And not in those of the library below it."""
    missing = genagent(verb, "x")

    assert missing.err.startswith(f"genagent: {verb}: no agent is named x ("), missing.err


def test_an_agent_that_has_failed_is_not_called_missing(
    genagent: Command, house: PrivateDaemon
) -> None:
    """Every command says it and how to free the name; a script takes it for one that is gone."""
    policy = RestartPolicy(kind="permanent", max_restarts=0)
    with Client(house.run) as client:
        handle = client.start_agent(None, name="a", backend="echo", restart=policy)
    os.kill(handle.pid, signal.SIGKILL)
    until(lambda: genagent("list", "--json").json["agents"][0]["state"] == "failed", "it failed")
    # It grows: since when it is so is what a person wants to know first.
    until(lambda: genagent("list", "--json").json["agents"][0]["age_ms"], "its age is told")

    counted = ran(house, "genagentd", "status")
    assert "0 agents, 1 failed, " in counted.out
    status = genagent("status", "a", "--json")
    assert (status.code, status.error) == (3, "not_found")
    assert status.json["error"]["details"]["state"] == "failed"
    for verb in (("ask", "a", "p"), ("snapshot", "a"), ("attach", "a")):
        failed = genagent(*verb)
        assert failed.code == 3
        assert failed.err.startswith(f"genagent: {verb[0]}: a has failed for good: signal:9 (")
        assert "genagent stop a frees the name" in failed.err
    assert genagent("stop", "a").code == 0
    assert genagent("status", "a").err.startswith("genagent: status: no agent is named a (")


def test_an_agent_of_a_group_is_not_called_missing(genagent: Command, house: PrivateDaemon) -> None:
    """It can be asked by everybody, and stopped by its owner."""
    with Client(house.run) as owner, owner.group() as group:
        group.start_agent(None, name="a", backend="echo")

        stop = genagent("stop", "a")
        assert stop.err == (
            f"genagent: stop: a belongs to a group of another client (pid {os.getpid()}) "
            "(it ends with that group, or after its turn with: genagent drain a)\n"
        )
        assert stop.code == 3
        assert genagent("ask", "a", "p").out == "p\n"
        [row] = genagent("list", "--json").json["agents"]
        assert row["group_owner_pid"] == os.getpid()
        assert f"running, in a group of pid {os.getpid()}  " in genagent("list").out
        again = genagent("start", "a", "--json")
        assert (again.code, again.error) == (4, "already_started")
        assert "take another name" in again.json["error"]["hint"]
        assert "genagent stop" not in again.json["error"]["hint"]
        assert genagent("drain", "a").code == 0
        assert "free this one with: genagent stop b" in _taken(genagent, "b")


def _taken(genagent: Command, name: str) -> str:
    """Return the hint about a name that an agent of nobody's group has."""
    genagent("start", name)
    hint: str = genagent("start", name, "--json").json["error"]["hint"]
    return hint


def test_a_look_at_an_agent_that_hangs_says_what_the_daemon_knows(genagent: Command) -> None:
    """It had no effect, and the hint is not the command that failed."""
    started = genagent("start", "a", "--json").json
    os.kill(started["pid"], signal.SIGSTOP)
    try:
        for verb in ("status", "snapshot"):
            late = genagent(verb, "a", "--timeout", "0.2", "--json")
            assert (late.code, late.error) == (5, "timeout")
            error = late.json["error"]
            assert "nothing was changed; to the daemon it is running" in error["message"]
            assert "genagent status" not in error["hint"]
            assert error["details"]["state"] == "running"
    finally:
        os.kill(started["pid"], signal.SIGCONT)


def test_a_response_ends_its_last_line_once(genagent: Command) -> None:
    """What a pipe brought usually ends with one of its own."""
    genagent("start", "a")

    assert genagent("ask", "a", "-", stdin=b"one\ntwo\n").out == "one\ntwo\n"
    assert genagent("ask", "a", "three").out == "three\n"


def test_an_option_that_is_nearly_a_limit_is_asked_about(genagent: Command) -> None:
    """The backend cannot know it, and the person forgot the unit."""
    failed = genagent("start", "a", "-o", "watchdog=60000")
    other = genagent("start", "a", "-o", "zzz=1", "--json")

    assert (failed.code, failed.err.count("\n")) == (1, 1)
    assert "watchdog may mean watchdog_ms" in failed.err
    assert (other.code, other.json["error"]["hint"]) == (1, "")


def test_an_option_that_the_backend_knows_is_no_mistaken_limit(genagent: Command) -> None:
    """Whether it refuses that very option, or the start for something else."""
    http = ("--backend", "openai", "-o", "model=m", "-o", "max_history_turns=2", "--json")
    refused = genagent("start", "a", *http)
    keyless = genagent("start", "a", *http, "-o", "store=false")

    for failed, words in ((refused, "needs store=false"), (keyless, "holds no key")):
        error = failed.json["error"]
        assert (words in error["message"], error["hint"]) == (True, "")


def test_an_exception_in_the_agents_own_code_leads_to_its_log(
    genagent: Command, tmp_path: Path
) -> None:
    """Which names the line that raised; nothing that looks like Python is shown."""
    file = tmp_path / "raising.py"
    file.write_text(
        "from genagentd import Agent, NoReply, Started\n"
        "class Late(Agent):\n"
        "    def init_agent(self, options): return Started(options, None)\n"
        "    def handle_response(self, ref, response, state):\n"
        "        raise KeyError('x')\n"
        "class Early(Late):\n"
        "    def pre_turn(self, prompt, state):\n"
        "        raise KeyError('x')\n"
    )
    genagent("start", "late", "--agent", "raising:Late", "--cwd", str(tmp_path))
    genagent("start", "early", "--agent", "raising:Early", "--cwd", str(tmp_path))

    late, early = genagent("ask", "late", "p"), genagent("ask", "early", "p")

    assert (late.code, early.code) == (6, 1)
    assert "ask late: " in late.err
    assert "callback handle_response, error KeyError" in late.err
    assert "genagent logs late" in late.err
    assert "genagent logs early" in early.err
    assert not set("{}") & set(late.err + early.err)
    until(lambda: f"{file}:5 handle_response" in genagent("logs", "late").out, "it is logged")
    until(lambda: f"{file}:8 pre_turn" in genagent("logs", "early").out, "it is logged")


def test_a_working_directory_that_is_a_file_is_said_to_be_none(
    genagent: Command, tmp_path: Path
) -> None:
    """It does exist, after all."""
    (tmp_path / "file").touch()

    failed = genagent("start", "a", "--cwd", str(tmp_path / "file"))

    assert f"{tmp_path / 'file'} is not a directory" in failed.err


def test_a_ref_of_a_life_that_is_over_is_exit_six(genagent: Command) -> None:
    """D28: lost; and of an agent that does not know it, exit 3."""
    genagent("start", "a")
    genagent("start", "b")
    ref = told(genagent, "p")
    assert genagent("poll", "b", ref, "--json").error == "not_found"
    genagent("stop", "a")

    lost = genagent("poll", "a", ref, "--json")

    assert (lost.code, lost.error) == (6, "lost")


# --- logs


def test_logs_show_what_an_agent_printed_also_when_it_is_gone(
    genagent: Command, house: PrivateDaemon
) -> None:
    """Its last words are what one wants to read."""
    turn = '[{"print": "one\\ntwo\\nthree\\n"}, {"kind": "result"}]'
    genagent("start", "a", "--backend", "scripted", "-o", f"script=[{turn}]")
    genagent("ask", "a", "p")
    genagent("stop", "a")

    until(lambda: "three" in genagent("logs", "a").out, "the log is written")
    whole = genagent("logs", "a").out.splitlines()
    assert [line for line in whole if "=" not in line] == ["one", "two", "three"]
    assert genagent("logs", "a", "-n", "2").out.splitlines() == whole[-2:]
    lines = [json.loads(line) for line in genagent("logs", "a", "--json").out.splitlines()]
    life = lines[0]["incarnation"]
    assert lines == [{"agent": "a", "line": line, "incarnation": life} for line in whole]
    assert Places(house.run, house.run).logs.is_dir()


def test_the_log_of_a_killed_agent_says_what_ended_it(genagent: Command) -> None:
    """It could not say so itself, and messages send people to its log."""
    pid = genagent("start", "k", "--json").json["pid"]
    os.kill(pid, signal.SIGKILL)

    line = f"agent.down agent=k pid={pid} reason=signal:9"
    until(lambda: genagent("logs", "k").out.rstrip().endswith(line), "the end is logged", 20)


def test_the_log_of_an_agent_that_the_daemon_killed_says_for_what(genagent: Command) -> None:
    """A signal does not say whose it was, and the daemon's log is not where one looks first."""
    slow = ["--agent", "support.faulty_agents:SlowToEnd", "--cwd", str(fleet.HERE)]
    genagent("start", "s", *slow, "-o", "seconds=600", "-o", "shutdown_ms=50")
    assert "signal:9" in genagent("stop", "s").out

    line = "reason=signal:9 killed_for=stop"
    until(lambda: genagent("logs", "s").out.rstrip().endswith(line), "the end is logged", 20)


@pytest.mark.parametrize("name", ['json:["a", 1]', 'json:{"b": [1], "a": null}', "json:7"])
def test_logs_are_found_whatever_kind_of_name_the_agent_has(genagent: Command, name: str) -> None:
    """What is typed as a list or a map leads to the file that the daemon made."""
    genagent("start", name)
    genagent("stop", name)

    until(lambda: "terminated" in genagent("logs", name).out, "the log is written", 20)


# --- conventions


@pytest.mark.parametrize(
    "arguments",
    [
        *((), ("frobnicate",), ("ask",), ("ask", "a"), ("poll", "a", "not-a-ref")),
        *(("list", "--frob"), ("start", ""), ("ask", "a", ""), ("tell", "a", "-")),
        *(("logs", "a", "-n", "-4"), ("start", "a", "--timeout", "-1")),
        *(("ask", "a", "p", "--timeout", wrong) for wrong in ("nan", "inf", "0", "-1", "1e30")),
        *(("tell", "a", "p", "--wait", wrong) for wrong in ("nan", "-1", "1e30")),
        ("start", "a", "--env", "GENAGENT_RUN_DIR=/x"),
    ],
)
def test_wrong_usage_is_exit_two_and_one_line(genagent: Command, arguments: Any) -> None:
    """Also as JSON, when that was asked for."""
    wrong = genagent(*arguments)
    as_json = genagent(*arguments, "--json")

    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)
    assert (as_json.code, as_json.error) == (2, "usage")


def test_a_prompt_over_the_limit_is_told_with_its_size(genagent: Command) -> None:
    """E066: typed, nothing sent, and the daemon is fine."""
    genagent("start", "a")

    big = genagent("ask", "a", "-", "--json", stdin=b"x" * 9_000_000)

    assert (big.code, big.error) == (2, "payload_too_large")
    assert big.json["error"]["details"]["limit_bytes"] == 8 * 1024 * 1024
    assert genagent("ask", "a", "still here").out == "still here\n"


def test_help_shows_examples_first(genagent: Command) -> None:
    """Then the options."""
    shown = genagent("tell", "--help").out

    assert shown.index("genagent tell coder") < shown.index("Options:")


def test_version_shows_program_protocol_and_daemon(genagent: Command) -> None:
    """As a command and as an option."""
    found = genagent("version", "--json").json

    assert found["daemon"] == found["version"]
    assert found["protocol"] == {"min": 1, "max": 1}
    assert "protocol 1 to 1" in genagent("--version").out


def test_all_other_clients_are_gone_after_a_command(
    genagent: Command, house: PrivateDaemon
) -> None:
    """A command leaves no connection behind."""
    genagent("list")

    with Client(house.run) as client:
        until(lambda: client.daemon_status().clients == 1, "only this client is left")


def test_a_turn_that_ran_too_long_names_its_limit(genagent: Command, gates: Gates) -> None:
    """`timeout` alone reads like the command's own, which was not over."""
    start_gated(genagent, gates, "watchdog_ms=50")

    asked = genagent("ask", "a", "p", "--json")
    waited = genagent("tell", "a", "p", "--wait", "--stream", "--json")
    ref = told(genagent, "p")
    polled = until(lambda: _failed(genagent, ref), "it failed")

    for ended in (asked, waited, polled):
        assert (ended.code, ended.error) == (1, "timeout")
        assert "the watchdog_ms of a allows, which is 50 ms" in ended.json["error"]["hint"]
        assert ended.json["error"]["details"]["watchdog_ms"] == 50


def _failed(genagent: Command, ref: str) -> Ran | None:
    polled = genagent("poll", "a", ref, "--json")
    return polled if polled.code == 1 else None
