"""Every command, wherever it is typed, ends with the code that the page promises, in both forms.

One row for each command: a new one fails until it has one. The commands run in this
process; only those that begin or end a daemon, and the one that waits for an agent's
end, are processes of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click
import pytest

from genagent_backends.gates import Gates
from genagent_protocol.errors import CallTimeout, Refused
from genagent_protocol.refs import BootId, Incarnation, RequestRef
from genagentd.cli import agents, daemon_commands
from genagentd.cli.main import load_commands
from genagentd.client.client import Client
from support import fleet
from support.commands import Ran, command, ran, runner
from support.daemons import PrivateDaemon
from support.waiting import until

pytestmark = pytest.mark.process

State: TypeAlias = Literal["no daemon", "no agent", "running", "draining", "ending daemon"]
STATES: tuple[State, ...] = ("no daemon", "no agent", "running", "draining", "ending daemon")
#: States of the daemon, for `genagentd`.
PLACES: tuple[State, ...] = ("no daemon", "running", "ending daemon")

_DOWN, _NONE = "7 not_reachable", "3 not_found"
#: What each command ends with in each of the states: the exit code, and the error code if it is a
#: failure. NAME is the agent, REF a request that its life never had, MINE one that it has.
GENAGENT: dict[str, tuple[str, ...]] = {
    "ask NAME hello": (_DOWN, _NONE, "0", "4 draining", "4 draining"),
    "attach NAME": (_DOWN, _NONE, "0", "0", "0"),
    "call NAME slowly {}": (_DOWN, _NONE, "0", "0", "0"),
    "cancel NAME REF": (_DOWN, _NONE, "3 not_found", "3 not_found", "3 not_found"),
    "drain NAME --timeout 0.2": (_DOWN, _NONE, "0", "5 timeout", "5 timeout"),
    "halt NAME": (_DOWN, _NONE, "0", "0", "0"),
    "interrupt NAME REF": (_DOWN, _NONE, "4 idle", "4 not_current", "4 not_current"),
    "list": (_DOWN, "0", "0", "0", "0"),
    "logs NAME": (_NONE, _NONE, "0", "0", "0"),
    "notify NAME {} --ack": (_DOWN, _NONE, "0", "4 draining", "4 draining"),
    "poll NAME MINE": (_DOWN, "6 lost", "0", "5", "5"),
    "ps": (_DOWN, "0", "0", "0", "0"),
    "reset NAME": (_DOWN, _NONE, "0", "4 draining", "4 draining"),
    "resume NAME": (_DOWN, _NONE, "0", "0", "0"),
    "snapshot NAME": (_DOWN, _NONE, "0", "0", "0"),
    "start NAME": (_DOWN, "0", "4 already_started", "4 already_started", "4 shutting_down"),
    "status NAME": (_DOWN, _NONE, "0", "0", "0"),
    "stop NAME": (_DOWN, _NONE, "0", "0", "0"),
    "tell NAME hello": (_DOWN, _NONE, "0", "4 draining", "4 draining"),
    "version": ("0", "0", "0", "0", "0"),
}
GENAGENTD: dict[str, tuple[str, ...]] = {
    "install-service --print": ("0", "0", "0"),
    "run": ("0", "4 already_running", "4 already_running"),
    # One that ends is waited for, which here would be for ever.
    "start": ("0", "0", "5 stopping"),
    "status": ("7 not_reachable", "0", "0"),
    # Whoever asks as well waits for that end, too.
    "stop": ("7 not_reachable", "0", "5 stopping"),
    "stop --force": ("7 not_reachable", "0", "0"),
    "version": ("0", "0", "0"),
}
PROGRAMS: dict[str, tuple[click.Group, dict[str, tuple[str, ...]]]] = {
    "genagent": (agents.app, GENAGENT),
    "genagentd": (daemon_commands.app, GENAGENTD),
}
#: Commands after which an agent is not what it was before.
_ENDS_ITS_AGENT = ("attach", "stop")
#: Commands that say nothing of their own on standard output.
_SILENT = ("attach", "logs", "run")

_TURN: fleet.Turn = [{"gate": "held", "timeout_ms": 300_000}, {"kind": "result"}]
_STRANGE = RequestRef.mint(Incarnation(BootId("0" * 16), 1), bytes(16))


@dataclass
class World:
    """The daemons in which commands run, and the agents that are what a state needs."""

    empty: PrivateDaemon
    house: PrivateDaemon
    ending: PrivateDaemon
    gates: Gates
    #: Agents of the daemon that ends, which are there before it does.
    spare: list[tuple[str, RequestRef]] = field(default_factory=list)
    made: int = 0

    def place(self, state: State) -> PrivateDaemon:
        """Return where a command is in that state."""
        return {"no daemon": self.empty, "ending daemon": self.ending}.get(state, self.house)

    def agent(self, state: State, verb: str) -> tuple[str, RequestRef]:
        """Return the name of an agent in that state, and a request that it had or has."""
        if state in ("no daemon", "no agent"):
            self.made += 1
            return f"nobody{self.made}", _STRANGE
        if state == "ending daemon":
            return self.spare.pop() if verb in _ENDS_ITS_AGENT else self.spare[0]
        with Client(self.house.run) as client:
            if state == "draining":
                found = self.held(client)
                until(partial(_drains, client, found[0]), "it drains")
                return found
            handle = self._start(client, fleet.SAYS)
            ref = client.at(handle).submit_with_completion("once").ref
            fleet.completion(client, ref)
            return str(handle.name), ref

    def forget(self, state: State, name: str) -> None:
        """End the agent that a command was tried on, if it is there."""
        if state in ("no agent", "running", "draining"):
            with Client(self.house.run) as client, suppress(Refused):
                client.stop(name)

    def held(self, client: Client) -> tuple[str, RequestRef]:
        """Start an agent whose turn goes on until the gate is opened."""
        handle = self._start(client, _TURN)
        ref = client.at(handle).submit_with_completion("held").ref
        self.gates.wait_blocked("held")
        return str(handle.name), ref

    def _start(self, client: Client, turn: fleet.Turn) -> Any:
        self.made += 1
        return client.start_agent(
            "support.desk:Terminal",
            name=f"a{self.made}",
            backend="scripted",
            options={"script": [turn], "repeat": True, "gate_dir": self.gates.directory},
            limits={"shutdown_ms": 50, "interrupt_grace_ms": 50},
            cwd=fleet.HERE,
        )


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A directory without a daemon, a daemon that runs, and one that ends and is held up."""
    patient = {"GENAGENT_GRACE_MS": "300000"}
    places = [PrivateDaemon(), PrivateDaemon(), PrivateDaemon(environment=patient)]
    with Gates() as gates:
        try:
            made = World(places[0], places[1].start(), places[2].start(), gates)
            _end_held_up(made, made.ending, agents=1 + 2 * len(_ENDS_ITS_AGENT))
            yield made
        finally:
            for place in places:
                if place.guardian is not None:
                    with Client(place.run) as client:
                        for row in client.list():
                            client.stop(row.name)
                    place.stop()
                place.cleanup()


def _drains(client: Client, name: str) -> bool:
    # Nobody waits for its end.
    with suppress(CallTimeout):
        client.drain(name, 20)
    return client.status(name).draining


def _end_held_up(world: World, place: PrivateDaemon, agents: int) -> None:
    """Have that daemon begin to end, with so many agents whose turns go on."""
    with Client(place.run) as client:
        world.spare = [world.held(client) for _ in range(agents)]
        place.signal(signal.SIGTERM)
        until(lambda: client.daemon_status().draining, "it ends")
        for name, _ in world.spare:
            until(lambda: client.status(name).draining, "its agents do")  # noqa: B023  # at once


def test_every_command_has_a_row() -> None:
    """Whoever adds one says here how it ends, and where."""
    load_commands()

    for app, table in PROGRAMS.values():
        assert {row.split()[0] for row in table} == {*app.commands}
    assert {len(codes) for codes in GENAGENT.values()} == {len(STATES)}
    assert {len(codes) for codes in GENAGENTD.values()} == {len(PLACES)}


def test_every_code_of_the_tables_is_on_the_page() -> None:
    """The tables repeat a promise, they do not make one."""
    page = (Path(__file__).parents[2] / "docs/reference/reasons.md").read_text(encoding="utf-8")

    for promised in {
        code for _, table in PROGRAMS.values() for row in table.values() for code in row
    }:
        code, _, error = promised.partition(" ")
        assert f"\n| {code} | " in page
        assert f"`{error}`" in page or not error


@pytest.mark.parametrize("typed", GENAGENT)
@pytest.mark.parametrize("state", STATES)
def test_E046_a_command_about_agents_ends_alike_in_both_forms(
    world: World, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch, state: State, typed: str
) -> None:
    """E046: the documented code wherever it is typed, and the same one with `--json`."""
    place, verb = world.place(state), typed.split()[0]
    monkeypatch.setenv("GENAGENT_RUN_DIR", str(place.run))
    load_commands()
    here = runner(agents.app, "genagent", capsysbinary, monkeypatch)

    def run(*flags: str) -> Ran:
        name, ref = world.agent(state, verb)
        known = {"NAME": name, "MINE": ref.text, "REF": _other(ref).text}
        arguments = [known.get(word, word) for word in typed.split()]
        try:
            # Only an agent that is there is waited for until its end.
            if verb == "attach" and ref != _STRANGE:
                return _attached(place, name, *arguments, *flags)
            return here(*arguments, *flags)
        finally:
            world.forget(state, name)

    _holds("genagent", verb, GENAGENT[typed][STATES.index(state)], run(), run("--json"))


@pytest.mark.parametrize("typed", GENAGENTD)
@pytest.mark.parametrize("state", PLACES)
def test_E046_a_command_about_the_daemon_ends_alike_in_both_forms(
    world: World, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch, state: State, typed: str
) -> None:
    """E046: the documented code wherever it is typed, and the same one with `--json`."""
    verb = typed.split()[0]
    here = runner(daemon_commands.app, "genagentd", capsysbinary, monkeypatch)

    def run(*flags: str) -> Ran:
        place = world.place(state)
        match verb, state:
            case "run", "no daemon":
                return _run_until_told_to_end(place, *flags)
            case "start", "no daemon":
                try:
                    return ran(place, "genagentd", *typed.split(), *flags)
                finally:
                    assert ran(place, "genagentd", "stop").code == 0
            case "start", "ending daemon":
                return ran(place, "genagentd", *typed.split(), "--timeout", "0.5", *flags)
            case "stop", "running" | "ending daemon":
                return _stopped(world, state, *typed.split()[1:], *flags)
            case "run" | "start" | "stop", _:
                return ran(place, "genagentd", *typed.split(), *flags)
        monkeypatch.setenv("GENAGENT_RUN_DIR", str(place.run))
        return here(*typed.split(), *flags)

    _holds("genagentd", verb, GENAGENTD[typed][PLACES.index(state)], run(), run("--json"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_E046_a_command_that_is_spelled_wrongly_is_exit_2_in_both_forms(
    program: str, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E046: whatever the command, and whether or not there is a daemon."""
    monkeypatch.setenv("GENAGENT_RUN_DIR", "/nowhere/at/all")
    load_commands()
    app, table = PROGRAMS[program]
    here = runner(app, program, capsysbinary, monkeypatch)

    for verb in (row.split()[0] for row in table):
        wrong = (verb, "--no-such-option")
        _holds(program, verb, "2 usage", here(*wrong), here(*wrong, "--json"))
    _holds(program, "", "2 usage", here("no-such-command"), here("no-such-command", "--json"))


def _holds(program: str, verb: str, promised: str, text: Ran, as_json: Ran) -> None:
    """See that both forms of a command ended as promised, and say so each in its way."""
    code, _, error = promised.partition(" ")
    assert (text.code, as_json.code) == (int(code), int(code)), (text, as_json)
    assert not [
        said for one in (text, as_json) for said in (one.out, one.err) if "Traceback" in said
    ]
    if error:
        # Nothing that a script could take for an answer.
        assert text.out == ""
        assert text.err.startswith(f"{program}: ")
        assert text.err.count("\n") == 1
        assert as_json.error == error
        assert as_json.err == ""
        return
    assert text.out or verb in _SILENT
    objects = [json.loads(line) for line in as_json.out.splitlines()]
    assert verb == "logs" or all(each["ok"] is True for each in objects)
    assert len(objects) == 1 or verb in ("logs", "run")


def _other(ref: RequestRef) -> RequestRef:
    """Return a request of the same life that nobody made."""
    return RequestRef.mint(ref.incarnation, os.urandom(16))


def _attached(place: PrivateDaemon, name: str, *arguments: str) -> Ran:
    """Attach, and stop the agent once that is so."""
    with subprocess.Popen(
        command("genagent", *arguments),
        env=place.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as attaches:
        with Client(place.run) as client:
            until(lambda: _state_of(client, name)["attached"], "it is attached")
            client.stop(name)
        out, err = attaches.communicate(timeout=60)
    return Ran(attaches.returncode, out, err)


def _state_of(client: Client, name: str) -> Any:
    return client.status(name).agent_state


def _run_until_told_to_end(place: PrivateDaemon, *flags: str) -> Ran:
    """Run a daemon in the foreground until it is ready, and end it."""
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(
            command("genagentd", "run", *flags),
            env=place.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as runs:
            until(lambda: ran(place, "genagentd", "status").code == 0, "it answers")
            runs.send_signal(signal.SIGTERM)
            out, _ = runs.communicate(timeout=60)
        log.seek(0)
        return Ran(runs.returncode, out, log.read())


def _stopped(world: World, state: State, *flags: str) -> Ran:
    """Stop a daemon that is there for that alone."""
    place = PrivateDaemon(environment={"GENAGENT_GRACE_MS": "300000"}).start()
    kept = world.spare
    try:
        if state == "ending daemon":
            _end_held_up(world, place, agents=1)
            if "--force" not in flags:
                flags = (*flags, "--timeout", "0.5")
        return ran(place, "genagentd", "stop", *flags)
    finally:
        world.spare = kept
        # Its agents may still have five minutes.
        ran(place, "genagentd", "stop", "--force")
        place.stop()
        place.cleanup()
