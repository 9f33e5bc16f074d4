"""The keys of `--json` are a promise: what the page lists is what each command prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genagent_backends.gates import Gates
from genagentd.cli import agents, daemon_commands
from genagentd.cli.main import load_commands
from support.commands import Command, Ran, ran
from support.daemons import PrivateDaemon
from support.reference_markdown import words
from support.waiting import until

pytestmark = pytest.mark.process

_OFFERS = """
from genagentd import Agent, NoReply, Started, function


class Offers(Agent):
    def init_agent(self, options):
        print("here I am", flush=True)
        return Started({}, None)

    def handle_response(self, ref, response, state):
        return NoReply(state)

    @function
    def twice(self, arguments, state):
        return 2 * arguments["n"]
"""


def keys(command: str, section: str = "keys") -> set[str]:
    return {"ok", *words(section)[command].split()}


def said(done: Ran) -> set[str]:
    assert done.code in (0, 5), done.out + done.err
    return set(done.json)


def test_every_command_has_its_keys() -> None:
    """A new one gets its line; one that prints no object says so in words."""
    load_commands()
    apps = (("genagentd", daemon_commands.app), ("genagent", agents.app))
    commands = {f"{program} {name}" for program, app in apps for name in app.commands}

    assert set(words("keys")) == commands


def test_the_commands_of_an_agent_print_what_is_listed(genagent: Command, tmp_path: Path) -> None:
    """In the order of a life."""
    (tmp_path / "agents.py").write_text(_OFFERS)
    found = {}

    def run(name: str, *arguments: str, called: str | None = None) -> Ran:
        done = genagent(name, *arguments, "--json")
        found[f"genagent {called or name}"] = said(done)
        return done

    run("start", "a", "--agent", "agents:Offers", "--cwd", str(tmp_path))
    run("call", "a", "twice", '{"n": 2}')
    run("ask", "a", "hello")
    ref = run("tell", "a", "hello", "--wait", called="tell --wait").json["ref"]
    run("poll", "a", ref)
    run("notify", "a", "{}")
    run("interrupt", "a")
    run("halt", "a")
    queued = run("tell", "a", "later").json["ref"]
    run("poll", "a", queued, called="poll pending")
    run("snapshot", "a")
    run("cancel", "a", queued)
    run("resume", "a")
    run("status", "a")
    run("reset", "a")
    run("list")
    run("ps")
    run("version")
    run("drain", "a")
    run("start", "b")
    run("stop", "b")

    for command, listed in found.items():
        section = "keys" if command in words("keys") else "other_keys"
        assert listed == keys(command, section), command


def test_what_is_in_them_and_what_is_a_line_is_listed_too(
    genagent: Command, tmp_path: Path
) -> None:
    """A row, the request that runs, a line of a log, and an event of a stream."""
    with Gates() as gates:
        turn = [{"gate": "g", "timeout_ms": 60_000}, {"kind": "result"}]
        script = ("-o", f"script={json.dumps([turn])}", "-o", f"gate_dir={gates.directory}")
        genagent("start", "a", "--backend", "scripted", *script)
        genagent("tell", "a", "x")
        gates.wait_blocked("g")
        [row] = genagent("list", "--json").json["agents"]
        current = genagent("snapshot", "a", "--json").json["current_request"]
        gates.release("g")
    (tmp_path / "agents.py").write_text(_OFFERS)
    genagent("start", "b", "--agent", "agents:Offers", "--cwd", str(tmp_path))
    event, *_, last = genagent("tell", "b", "x", "--stream", "--json").out.splitlines()
    line = until(lambda: genagent("logs", "b", "--json").out, "it printed").splitlines()[0]

    found = {
        "genagent list row": row,
        "genagent snapshot row": current,
        "genagent tell --stream event": json.loads(event),
        "genagent logs line": json.loads(line),
    }
    for what, printed in found.items():
        assert set(printed) == keys(what, "other_keys") - {"ok"}, what
        for key in printed:
            assert f"`{key}`" in words("key_notes")[" ".join(what.split()[:2])], what
    assert set(json.loads(last)) == keys("genagent tell --wait", "other_keys")


def test_the_commands_of_the_daemon_print_what_is_listed() -> None:
    """On a daemon of their own, from its start to its end."""
    place = PrivateDaemon()
    try:
        found = {
            f"genagentd {name}": said(ran(place, "genagentd", name, *more, "--json"))
            for name, *more in (
                ("start",),
                ("status",),
                ("version",),
                ("install-service", "--print"),
                ("stop",),
            )
        }
    finally:
        ran(place, "genagentd", "stop")
        place.cleanup()

    for command, listed in found.items():
        assert listed == keys(command), command
